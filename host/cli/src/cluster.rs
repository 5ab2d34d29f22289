//! `mortise cluster`: serves a local cluster in the foreground until a signal ends it. The cluster and its door are in
//! library crates.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use mortise_local_server::{Options, Server, read_tokens};
use tokio::signal::unix::{SignalKind, signal};

use crate::{cache, words};

/// What is printed about other users.
const OTHERS: &str = "\
Nobody is answered without credentials; that file has an administrator's. To be somebody else:
  kubectl --as jane --as-group devs auth whoami      a user and a group; they need not exist
  kubectl create serviceaccount robot                a ServiceAccount, by a token:
  kubectl config set-credentials robot --token=$(kubectl create token robot)
  kubectl --user robot auth whoami
  mortise cluster --token-auth-file FILE             users with tokens that you choose
";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  A cluster with one node, and kubectl on it:
      mortise cluster --kubeconfig local.yaml &
      kubectl --kubeconfig local.yaml get nodes

  The same cluster again after a restart, with its objects:
      mortise cluster --kubeconfig local.yaml --port 6443 --state ~/.local/share/mortise-cluster

What it is:
  The API server's behaviour, the controllers of kube-controller-manager, and models of the scheduler and the
  kubelets, in one process that starts within a second. Pods get addresses and run, but nothing runs in them:
  there are no containers, no logs and no exec. It listens on loopback alone.

Who may use it:
  Those who have credentials. The kubeconfig has an administrator's client certificate, and its file and the folder of
  --state are for this user alone. Without credentials only /livez, /readyz, /healthz and /version are answered; with
  RBAC such a request is of system:anonymous, to which roles may be bound. Other users have a ServiceAccount's token
  (kubectl create token), or one of --token-auth-file, or are impersonated (kubectl --as). Requests of web pages, and
  requests for a name that is not of loopback or of the certificate, are refused.

Signals:
  SIGTERM or SIGINT ends it, with exit code 0.")]
pub struct ClusterArgs {
    /// Port on loopback; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Kubeconfig to write, of an administrator and for this user alone [default: kubeconfig in the folder of --state, else
    /// cluster.kubeconfig in the user's folder of mortise, such as ~/.cache/mortise]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Nodes that the cluster starts with
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// Controllers that run, as kube-controller-manager's --controllers: "*" is all, a name adds one and "-" before a name
    /// leaves it out; "scheduler" and "kubelet" are among them, and an empty list runs none
    #[arg(long, value_name = "LIST", default_value = "*", value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Folder in which the objects outlast the process; without it they are lost at the end
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// File with static bearer tokens: lines of token,user,uid and optionally ,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Who may do what: all who have credentials everything, or as roles and their bindings say, also to those who have none
    #[arg(long, value_name = "MODE", default_value = "AlwaysAllow")]
    authorization_mode: Authorization,
    /// File that gets a line of JSON for each request, as kube-apiserver's audit log at the level Metadata
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Certificate to serve with, in PEM [default: one that the cluster makes]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Authorization {
    #[value(name = "RBAC")]
    Rbac,
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
}

/// Serves until a signal.
pub fn run(args: ClusterArgs) -> anyhow::Result<()> {
    let kubeconfig = match (args.kubeconfig, &args.state) {
        (Some(file), _) => file,
        (None, Some(folder)) => folder.join("kubeconfig"),
        // Not the system's temporary folder: there, somebody else could be first to have a file of this name.
        (None, None) => cache::folder(None)?.join("cluster.kubeconfig"),
    };
    let tokens = args.token_auth_file.as_deref().map(read_tokens).transpose()?.unwrap_or_default();
    let cluster = mortise_local_cluster::Options {
        nodes: args.nodes,
        controllers: args.controllers,
        rbac: args.authorization_mode == Authorization::Rbac,
        tokens,
        ..mortise_local_cluster::Options::default()
    };
    let mut server = Server::open(Options {
        cluster,
        port: args.port,
        certificate: args.tls_cert_file.zip(args.tls_private_key_file),
        state: args.state,
        objects: None,
        audit_log: args.audit_log_path,
    })?;
    server.write_kubeconfig(&kubeconfig)?;
    let path = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    let ready = format!("The cluster is ready at {}: export KUBECONFIG={}\n{OTHERS}", server.url(), path.display());
    // The signals are caught before anybody knows that there is a cluster to end.
    let ended = server.run_until(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        words::print(&ready)?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        anyhow::Ok(())
    })?;
    server.close();
    ended.context("wait for a signal")
}
