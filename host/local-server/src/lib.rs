//! The door of a local cluster: it serves a [`mortise_local_cluster::Cluster`] on loopback as kube-apiserver serves its
//! own, so that kubectl, client libraries and helm may use it. Input: connections and the time. Output: responses. It must
//! not know kinds, nor the host that is tested on it.
//!
//! The cluster is a value that one change at a time replaces; who reads takes the newest and waits for nobody.

mod audit;
mod authority;
mod browser;
mod clock;
mod connection;
mod current;
mod decode;
mod encode;
mod endpoint;
mod exchange;
mod file;
mod metrics;
mod saved;
mod seed;
mod stream;
mod tokens;
mod webhook;
mod work;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use mortise_local_cluster::Cluster;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::task::{JoinHandle, JoinSet};

use crate::audit::AuditLog;
use crate::authority::Authority;
use crate::browser::Names;
use crate::current::Current;
use crate::exchange::Door;
use crate::saved::Saved;

pub use crate::tokens::read as read_tokens;

/// How long open requests may take to end when the server is closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// Threads that serve: one request may compute while others are read and written.
const THREADS: usize = 4;

/// How a server is set up. In every mode requests need credentials: those of the kubeconfig, whose certificate is made at each
/// start, a static token, or a ServiceAccount's token.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The cluster; its authority is set by the server.
    pub cluster: mortise_local_cluster::Options,
    /// The port on loopback; 0 for a free one.
    pub port: u16,
    /// PEM files with the certificate and the key to serve with; without them the server makes its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The objects that a cluster begins with, as another one has them, instead of its own; those of `state` come before.
    pub objects: Option<Vec<Value>>,
    /// The folder in which the cluster and its authority outlast the process.
    pub state: Option<PathBuf>,
    /// The file that gets a line for each request, as from kube-apiserver's `--audit-log-path`.
    pub audit_log: Option<PathBuf>,
}

/// A running server. It ends when it is dropped; [`Server::close`] lets requests end first.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    kubeconfig: String,
    door: Arc<Door>,
    tasks: JoinSet<Result<()>>,
    accepting: Option<JoinHandle<()>>,
    // None once it is shut down.
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// Which file or port cannot be used, or which controller there is not.
    pub fn open(options: Options) -> Result<Self> {
        check_controllers(&options.cluster.controllers)?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("local-cluster")
            .enable_all()
            .build()
            .context("start the threads of the local cluster")?;
        let authority = Authority::open(options.state.as_deref())?;
        let serving = authority.serving(options.certificate.as_ref())?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .with_context(|| format!("listen on {address}: choose another port with --port, or 0 for a free one"))?;
        let address = listener.local_addr().context("read the port that the system gave")?;
        let kubeconfig = authority.kubeconfig(&format!("https://{address}"), &serving)?;

        let mut cluster = options.cluster;
        cluster.root_ca.clone_from(&serving.authority_pem);
        let (cluster, saved) = match (&options.state, options.objects) {
            (Some(folder), _) => Saved::open(folder, cluster).map(|(cluster, saved)| (cluster, Some(saved)))?,
            (None, objects) => {
                (cluster.seed, cluster.token_key) = (seed::random()?, seed::random()?);
                let new = match objects {
                    Some(objects) => Cluster::with_objects(cluster, objects).map_err(Error::msg)?,
                    None => Cluster::new(cluster, clock::now()),
                };
                (new, None)
            }
        };
        let audit = options.audit_log.as_deref().map(AuditLog::open).transpose()?;
        let certificate = serving.chain.first().context("the certificate to serve with is empty")?;
        let names = Names::new(certificate.clone(), address.port())?;
        let door = Arc::new(Door::new(Current::new(cluster, saved), names, audit));
        let tls = connection::acceptor(serving, &authority)?;
        let mut tasks = JoinSet::new();
        tasks.spawn_on(work::work(Arc::clone(&door)), runtime.handle());
        let accepting = Some(runtime.spawn(connection::accept(listener, tls, Arc::clone(&door))));
        Ok(Self { address, kubeconfig, door, tasks, accepting, runtime: Some(runtime) })
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The kubeconfig of an administrator, whose client certificate it has.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Writes that kubeconfig to a file that only this user can read, in one step.
    ///
    /// # Errors
    /// Why the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        file::ensure_ours(path)?;
        file::replace(path, self.kubeconfig.as_bytes())
    }

    /// Forgets how the cluster changed so far, as etcd does every five minutes: watches that are behind get 410.
    pub fn compact(&self) {
        // A cluster that panicked is as before.
        let _ = self.door.current.change(Cluster::compact);
    }

    /// Serves until the future is ready, and gives what it gives.
    ///
    /// # Errors
    /// When the server cannot go on, such as on a full disk.
    pub fn run_until<T>(&mut self, end: impl Future<Output = T>) -> Result<T> {
        let runtime = self.runtime.as_ref().expect("it is there until the server is closed");
        runtime.block_on(async {
            tokio::select! {
                end = end => Ok(end),
                why = self.door.current.broken() => Err(why),
                ended = self.tasks.join_next() => match ended {
                    Some(Ok(Err(error))) => Err(error),
                    other => Err(anyhow!("the task of the controllers ended: {other:?}")),
                },
            }
        })
    }

    /// Ends watches, waits for open requests, and stops.
    pub fn close(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.door.close();
        if let Some(accepting) = self.accepting.take() {
            // Requests that are still open after the deadline are cut off.
            let _ = runtime.block_on(async { tokio::time::timeout(CLOSE_DEADLINE, accepting).await });
        }
        self.tasks.abort_all();
        runtime.shutdown_timeout(CLOSE_DEADLINE);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not a plain drop of the runtime, which may not happen inside of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Refuses names that no controller has, as kube-controller-manager does.
fn check_controllers(entries: &[String]) -> Result<()> {
    let mut named = entries.iter().map(|entry| entry.trim_start_matches('-'));
    let is_known = |name: &str| name.is_empty() || name == "*" || Cluster::controllers().any(|known| known == name);
    if let Some(name) = named.find(|name| !is_known(name)) {
        let all: Vec<&str> = Cluster::controllers().collect();
        bail!("{name:?} is not in the list of known controllers: {}", all.join(", "));
    }
    Ok(())
}
