//! The connection to the API server: how it is found, what every request carries, how long an answer may take and how
//! much of it is read. Requests go in as method, path and body; status and bytes, or a [`Failure`], come out.
//!
//! kube's client brings TLS, credentials and their renewal. Its own retries are off (X8): they repeat every method, also
//! after answers that leave open whether a write happened, and only the driver knows what is safe to repeat.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mortise_core::object::Kind;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::connections;
use crate::counts::RequestCounts;
use crate::discovery::{Discovery, Resource};
use crate::failure::{Failure, Refused};
use crate::limiter::{ReadLimiter, WriteLimiter};

/// Every request says who asks, so that audit logs and flow control can tell.
const USER_AGENT: &str = concat!("mortise/", env!("CARGO_PKG_VERSION"));
/// A connection within a cluster takes milliseconds; an address that swallows packets must not hold a retry for long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for the bytes of a request to leave. Bodies are at most a few MiB.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest a read of one object, of a discovery document or of a page's first byte may take.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Most bytes of an answer that is no watch.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Where the API server is to be found.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A kubeconfig file. None: the files in `$KUBECONFIG`, then the cluster that this process runs in, then
    /// `~/.kube/config`, as controller-runtime looks.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; None takes its current one.
    pub context: Option<String>,
}

/// Why there is no connection to begin with.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The file that was named cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither `$KUBECONFIG` nor `~/.kube/config` can be used, and this is no Pod.
    #[error(
        "found no cluster: not running in one, and the kubeconfig in $KUBECONFIG or ~/.kube/config cannot be used; name one with --kubeconfig"
    )]
    NoCluster {
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The Pod's ServiceAccount is not mounted, or unreadable.
    #[error("running in a cluster, but its ServiceAccount cannot be used; is automountServiceAccountToken off?")]
    InCluster {
        /// Why.
        source: Box<kube::config::InClusterError>,
    },
    /// Certificates or credentials are unusable.
    #[error("cannot set up the connection to {host}")]
    Client {
        /// The API server's address.
        host: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// The API server as this host reaches it. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    /// For everything that is answered at once.
    client: Client,
    watches: Client,
    host: String,
    counts: RequestCounts,
    discovery: Discovery,
    writes: WriteLimiter,
    live_reads: ReadLimiter,
}

/// An answer that is a success.
pub(crate) struct Answer {
    pub body: Bytes,
}

impl ApiServer {
    /// Sets the connection up. Nothing is sent yet, so an API server that is down is no error here. Must be called
    /// within a tokio runtime, and after the process has installed its rustls crypto provider.
    pub async fn connect(access: &Access) -> Result<Self, AccessError> {
        let mut config = access.config().await?;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.write_timeout = Some(SEND_TIMEOUT);
        config.headers.push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
        let host = config.cluster_url.authority().map_or_else(String::new, |authority| authority.to_string());
        let unusable = |source: kube::Error| AccessError::Client { host: host.clone(), source: source.into() };
        let watches = connections::client(&config, CONNECT_TIMEOUT).map_err(unusable)?;
        let client = Client::try_from(config).map_err(unusable)?;
        let (counts, discovery) = (RequestCounts::default(), Discovery::default());
        let (writes, live_reads) = (WriteLimiter::of_writes(), ReadLimiter::of_reads());
        Ok(Self { inner: Arc::new(Inner { client, watches, host, counts, discovery, writes, live_reads }) })
    }

    /// "10.0.0.1:443": the host label of `rest_client_requests_total`.
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// What was asked so far.
    pub fn counts(&self) -> &RequestCounts {
        &self.inner.counts
    }

    /// Which kinds the API server serves, and where.
    pub(crate) fn discovery(&self) -> &Discovery {
        &self.inner.discovery
    }

    /// Where a kind's objects are.
    pub(crate) async fn resource(&self, kind: &Kind) -> Result<Arc<Resource>, Failure> {
        let ask = async |path: String| match self.get(&path, READ_TIMEOUT).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(Failure::Answered(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure),
        };
        self.inner.discovery.resource(kind, ask).await
    }

    /// Permits for writes.
    pub(crate) fn writes(&self) -> &WriteLimiter {
        &self.inner.writes
    }

    /// Permits for live reads.
    pub(crate) fn live_reads(&self) -> &ReadLimiter {
        &self.inner.live_reads
    }

    /// Whether the API server answers and calls itself ready; for probes and messages.
    pub async fn is_ready(&self) -> bool {
        self.get("/readyz", READ_TIMEOUT).await.is_ok()
    }

    /// A read that has to be answered completely within its time.
    pub(crate) async fn get(&self, path: &str, within: Duration) -> Result<Answer, Failure> {
        self.ask(request(Method::GET, path, None, Bytes::new())?, within).await
    }

    /// Any request that has to be answered completely within its time.
    pub(crate) async fn ask(&self, request: Request<Body>, within: Duration) -> Result<Answer, Failure> {
        let deadline = Instant::now() + within;
        let mut body = self.send(&self.inner.client, request, deadline).await?;
        Ok(Answer { body: read_all(&mut body, deadline).await? })
    }

    /// Opens a watch. It lasts until the body is dropped, which gives up its place on a connection too.
    pub(crate) async fn watch(&self, request: Request<Body>, deadline: Instant) -> Result<Body, Failure> {
        self.send(&self.inner.watches, request, deadline).await
    }

    /// Sends a request and returns the body of its answer, unread, once the answer is known to be a success.
    async fn send(&self, client: &Client, request: Request<Body>, deadline: Instant) -> Result<Body, Failure> {
        let method = request.method().clone();
        // In a box of its own for as long as it takes: within the future of a watch it would take its room for good, which is
        // some KiB for each.
        let sent = Box::pin(timeout_at(deadline, client.send(request))).await;
        let code = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok()).map(|answer| answer.status().as_u16());
        self.inner.counts.add(method, code);
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::of_client(&error).during(&self.inner.host)),
            Err(_) => return Err(Failure::Lost(format!("{} did not answer in time", self.inner.host))),
        };
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        let (head, mut body) = answer.into_parts();
        // An error without its words is still an error with a code.
        let words = read_all(&mut body, deadline).await.unwrap_or_default();
        Err(Failure::Answered(Refused::read(head.status, &head.headers, &words)))
    }
}

/// A request with a body of the given type, or without one.
pub(crate) fn request(
    method: Method,
    path: &str,
    content_type: Option<&'static str>,
    body: Bytes,
) -> Result<Request<Body>, Failure> {
    let mut builder = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        builder = builder.header(header::CONTENT_TYPE, content_type);
    }
    builder.body(Body::from(body)).map_err(|error| Failure::Invalid(format!("the path {path:?} is no URL: {error}")))
}

async fn read_all(body: &mut Body, deadline: Instant) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(Failure::of_client(&error)),
            Err(_) => return Err(Failure::Lost("the answer did not end in time".to_owned())),
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > MAX_ANSWER_BYTES {
            return Err(Failure::TooLarge);
        }
        // Most answers are one chunk and need no copy.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Where a connection is described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place<'a> {
    File(&'a Path),
    Environment,
    Pod,
    Home,
}

impl Access {
    /// Whether this process runs in a Pod and reaches the API server as such.
    pub fn is_in_cluster(&self) -> bool {
        self.place(is_set("KUBECONFIG"), is_set("KUBERNETES_SERVICE_HOST")) == Place::Pod
    }

    /// The one order in which every command of mortise looks.
    fn place(&self, names_kubeconfig: bool, in_pod: bool) -> Place<'_> {
        match &self.kubeconfig {
            Some(path) => Place::File(path),
            None if names_kubeconfig => Place::Environment,
            None if in_pod => Place::Pod,
            None => Place::Home,
        }
    }

    /// How the API server is reached, as far as files and the environment say; nothing is sent.
    pub async fn config(&self) -> Result<Config, AccessError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match self.place(is_set("KUBECONFIG"), is_set("KUBERNETES_SERVICE_HOST")) {
            Place::File(path) => {
                let failed = |source| AccessError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
                let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)
            }
            Place::Pod => Config::incluster().map_err(|source| AccessError::InCluster { source: Box::new(source) }),
            Place::Environment | Place::Home => Config::from_kubeconfig(&options)
                .await
                .map_err(|source| AccessError::NoCluster { source: Box::new(source) }),
        }
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// A status of the API server that a caller compares with.
pub(crate) const NOT_FOUND: u16 = StatusCode::NOT_FOUND.as_u16();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_goes_before_the_environment_that_before_the_pod_and_the_home_folder_is_last() {
        let named = Access { kubeconfig: Some("a".into()), context: None };
        assert_eq!(named.place(true, true), Place::File(Path::new("a")));
        let unnamed = Access::default();
        assert_eq!(unnamed.place(true, true), Place::Environment);
        assert_eq!(unnamed.place(false, true), Place::Pod);
        assert_eq!(unnamed.place(false, false), Place::Home);
    }
}
