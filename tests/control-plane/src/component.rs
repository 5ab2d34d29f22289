//! The command line of each part of the control plane.

use std::path::Path;
use std::process::Command;

use crate::binaries::{Binaries, Programs};
use crate::identity::ADMIN;
use crate::layout::Layout;

/// One process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// etcd, the API server's store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager: garbage collection, namespaces, Deployments, Jobs.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, which simulates kubelets: Nodes become Ready, scheduled Pods run, deleted Pods are removed.
    Kwok,
}

impl Component {
    /// The API alone: objects are stored and watched, but no controller acts on them.
    pub const API: &'static [Self] = &[Self::Etcd, Self::ApiServer];
    /// A whole cluster.
    pub const ALL: &'static [Self] =
        &[Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The process's name, which is also its log file's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    /// Starts this part beside others, in an authorization mode. A local cluster has all of them in the API server's process.
    pub(crate) fn command(
        self,
        others: &[Self],
        service_accounts: bool,
        mode: &str,
        binaries: &Binaries,
        layout: &Layout,
    ) -> Command {
        let programs = match &binaries.programs {
            Programs::Local(binary) => return local(binary, others, mode, layout),
            Programs::Kubernetes(programs) => programs,
        };
        match self {
            Self::Etcd => etcd(&programs.etcd, layout),
            Self::ApiServer => kube_apiserver(&programs.kube_apiserver, service_accounts, mode, layout),
            Self::ControllerManager => {
                kube_controller_manager(&programs.kube_controller_manager, service_accounts, layout)
            }
            Self::Scheduler => kube_scheduler(&programs.kube_scheduler, layout),
            Self::Kwok => kwok(&programs.kwok, &programs.stages, layout),
        }
    }
}

fn local(binary: &Path, parts: &[Component], mode: &str, layout: &Layout) -> Command {
    let has = |part| parts.contains(&part);
    let all = if has(Component::ControllerManager) { "*" } else { "" };
    let one = |part, name: &'static str| if has(part) { name.to_owned() } else { format!("-{name}") };
    let (scheduler, kubelet) = (one(Component::Scheduler, "scheduler"), one(Component::Kwok, "kubelet"));
    let mut command = Command::new(binary);
    command
        .args(["cluster".to_owned(), format!("--port={}", layout.api), "--nodes=0".to_owned()])
        .arg(format!("--controllers={all},{scheduler},{kubelet}"))
        .arg(flag("state", &layout.etcd()))
        .arg(flag("kubeconfig", &layout.dir.join("local.kubeconfig")))
        .arg(flag("tls-cert-file", &layout.pki("apiserver.crt")))
        .arg(flag("tls-private-key-file", &layout.pki("apiserver.key")))
        .arg(flag("token-auth-file", &layout.pki("tokens.csv")))
        .arg(format!("--authorization-mode={mode}"))
        .arg(flag("audit-log-path", &layout.audit_log()));
    command
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn etcd(binary: &Path, layout: &Layout) -> Command {
    let client = format!("https://127.0.0.1:{}", layout.etcd_client);
    let peer = format!("https://127.0.0.1:{}", layout.etcd_peer);
    let mut command = Command::new(binary);
    command
        .arg(flag("data-dir", &layout.etcd()))
        .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
        .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
        .arg(format!("--initial-cluster=default={peer}"))
        // Without certificates anybody on this machine would have all that the API server keeps.
        .args(["--client-cert-auth", "--peer-client-cert-auth"])
        .args(["trusted-ca-file", "peer-trusted-ca-file"].map(|name| flag(name, &layout.pki("etcd-ca.crt"))))
        .args(["cert-file", "peer-cert-file"].map(|name| flag(name, &layout.pki("etcd.crt"))))
        .args(["key-file", "peer-key-file"].map(|name| flag(name, &layout.pki("etcd.key"))))
        // The data has to survive a killed API server, but no crash of the machine.
        .args(["--unsafe-no-fsync", "--log-level=warn"]);
    command
}

fn kube_apiserver(binary: &Path, service_accounts: bool, mode: &str, layout: &Layout) -> Command {
    let mut command = Command::new(binary);
    command
        .arg(format!("--etcd-servers=https://127.0.0.1:{}", layout.etcd_client))
        .arg(flag("etcd-cafile", &layout.pki("etcd-ca.crt")))
        .args([flag("etcd-certfile", &layout.pki("etcd.crt")), flag("etcd-keyfile", &layout.pki("etcd.key"))])
        .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={}", layout.api)])
        .arg(flag("cert-dir", &layout.dir.join("pki")))
        .arg(flag("tls-cert-file", &layout.pki("apiserver.crt")))
        .arg(flag("tls-private-key-file", &layout.pki("apiserver.key")))
        .arg(flag("token-auth-file", &layout.pki("tokens.csv")))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(flag("service-account-signing-key-file", &layout.pki("service-account.key")))
        .arg(flag("service-account-key-file", &layout.pki("service-account.pub")))
        .arg(format!("--authorization-mode={mode}"))
        .arg(flag("admission-control-config-file", &layout.admission_config()))
        // Nothing runs in Pods, and without the plugin a new namespace is usable at once.
        .args((!service_accounts).then_some("--disable-admission-plugins=ServiceAccount"))
        .args(["--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged", "--endpoint-reconciler-type=none"])
        .arg(flag("audit-policy-file", &layout.audit_policy()))
        .arg(flag("audit-log-path", &layout.audit_log()))
        // One file, never rotated: tests count all writes, and a run is short.
        .arg("--audit-log-maxsize=0");
    command
}

fn kube_controller_manager(binary: &Path, service_accounts: bool, layout: &Layout) -> Command {
    let mut command = Command::new(binary);
    command
        .arg(flag("kubeconfig", &layout.kubeconfig(ADMIN)))
        .arg(flag("service-account-private-key-file", &layout.pki("service-account.key")))
        .args(["--use-service-account-credentials=false", "--leader-elect=false", "--secure-port=0"])
        // With the default of 20 requests a second the garbage collector would be the slowest part of every test.
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
        .args(service_accounts.then(|| flag("root-ca-file", &layout.pki("ca.crt"))));
    command
}

fn kube_scheduler(binary: &Path, layout: &Layout) -> Command {
    let mut command = Command::new(binary);
    command
        .arg(flag("kubeconfig", &layout.kubeconfig(ADMIN)))
        .args(["--leader-elect=false", "--secure-port=0"])
        // As for the controller manager: the default is 50.
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    command
}

fn kwok(binary: &Path, stages: &[impl AsRef<Path>], layout: &Layout) -> Command {
    let mut command = Command::new(binary);
    command
        .arg(flag("kubeconfig", &layout.kubeconfig(ADMIN)))
        .arg("--manage-all-nodes=true")
        // Without it no lease is renewed, and after 50 s the node controller marks every Node as lost and its Pods as
        // not ready, for ever. 40 s is the kubelet's default.
        .arg("--node-lease-duration-seconds=40")
        // Its stages are parsed when the first objects match them, and write a global map without a lock (easycel 0.6.0,
        // the newest): beside Nodes and Pods that exist at its start, two threads did so at once and it died.
        .env("GOMAXPROCS", "1")
        .args(stages.iter().map(|stage| flag("config", stage.as_ref())));
    command
}
