//! Where clients are tried: the real control plane and a local cluster, set up alike: the same user, the same nodes, and roles
//! that decide. Output: kubeconfigs. It must not know clients.

use mortise_control_plane::{ADMIN, Binaries, ControlPlane, node, print_progress};
use mortise_local_cluster::User;
use mortise_local_server::{Options, Server};
use serde_json::{Value, json};

use crate::terminal::Terminal;

const TOKEN: &str = "of-the-administrator";
const NODES: usize = 2;

pub(crate) trait Cluster {
    /// The administrator's kubeconfig.
    fn kubeconfig(&self) -> Value;

    /// The kubeconfig with a namespace, which is created.
    fn within(&self, namespace: &str) -> Value {
        let mut config = self.kubeconfig();
        Terminal::new(&config, &[]).run(&format!(
            "kubectl create namespace {namespace}; kubectl wait -n {namespace} --for=create sa/default cm/kube-root-ca.crt"
        ));
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        config
    }
}

/// The one that is built from Kubernetes' own modules, with kwok as kubelets.
pub(crate) struct Real(ControlPlane);

impl Real {
    pub(crate) fn start() -> Self {
        let binaries = Binaries::ensure(&mut print_progress()).unwrap();
        let defaults = mortise_control_plane::Options::default();
        let options = mortise_control_plane::Options { nodes: NODES, service_accounts: true, ..defaults };
        Self(ControlPlane::start(&binaries, &options).unwrap())
    }
}

impl Cluster for Real {
    fn kubeconfig(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.0.kubeconfig(ADMIN).unwrap()).unwrap()).unwrap()
    }
}

/// A local cluster in this process.
pub(crate) struct Local(pub(crate) Server);

impl Local {
    pub(crate) fn start() -> Self {
        let groups = vec!["system:masters".to_owned()];
        let user = User { name: ADMIN.to_owned(), uid: ADMIN.to_owned(), groups, ..User::default() };
        let tokens = vec![(TOKEN.to_owned(), user)];
        let defaults = mortise_local_cluster::Options::default();
        let cluster = mortise_local_cluster::Options { nodes: 0, rbac: true, tokens, ..defaults };
        let local = Self(Server::open(Options { cluster, ..Options::default() }).unwrap());
        let terminal = Terminal::new(&local.kubeconfig(), &[]);
        for at in 1..=NODES {
            terminal.run(&format!("echo '{}' | kubectl create -f -", node(&format!("node-{at}"))));
        }
        local
    }
}

impl Cluster for Local {
    fn kubeconfig(&self) -> Value {
        let mut config: Value = serde_json::from_str(self.0.kubeconfig()).unwrap();
        config["users"][0]["user"] = json!({"token": TOKEN});
        config
    }
}
