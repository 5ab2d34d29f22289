//! The client of the API server: how it is found, the headers, deadlines and bounds of all requests. Method, path and body
//! come in; the response's body, or a [`Failure`], comes out.
//!
//! kube's client has TLS, credentials and their renewal. Its retries are off (X8): they repeat every method, even after
//! responses that leave open whether a write took effect, and only the engine knows what may be repeated.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mortise_core::object::Kind;
use mortise_core::response::says_failure;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::answers::{Answers, Room, Size};
use crate::connections;
use crate::counts::RequestCounts;
use crate::discovery::{Discovery, Resource};
use crate::failure::{Failure, refused};
use crate::leadership::Leadership;
use crate::limiter::{ReadLimiter, WriteLimiter};
use crate::traffic::Class;

/// For audit logs and flow control.
const USER_AGENT: &str = concat!("mortise/", env!("CARGO_PKG_VERSION"));
/// A connection within a cluster takes milliseconds; an address that drops packets must not delay a retry for long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest that sending a request may take. Bodies have a few MiB at most.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long writes wait for permits when the host ends, of the ten seconds that it has: those that are small get theirs, and
/// what is sent last has its response.
const DRAIN: Duration = Duration::from_secs(3);
/// Longest that a read of one object or document, or the response to a watch, may take.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// How the API server is found.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A kubeconfig file. None: the files in `$KUBECONFIG`, then the cluster that this process runs in, then
    /// `~/.kube/config`, as controller-runtime looks.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; None takes its current one.
    pub context: Option<String>,
}

/// Why the client cannot be set up.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The given file cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither `$KUBECONFIG` nor `~/.kube/config` can be used, and the host does not run in a Pod.
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
    /// The certificates or credentials are unusable.
    #[error("cannot set up the connection to {host}")]
    Client {
        /// The API server's address.
        host: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A client of the API server. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    /// For all requests but watches.
    client: Client,
    watches: Client,
    host: String,
    counts: RequestCounts,
    discovery: Discovery,
    writes: WriteLimiter,
    /// Of a host with leader election.
    leadership: OnceLock<watch::Receiver<Leadership>>,
    drains: watch::Sender<bool>,
    live_reads: ReadLimiter,
    answers: Answers,
}

/// A successful response.
pub(crate) struct Response {
    pub body: Bytes,
    /// Kept while the body is used.
    _room: Option<Room>,
}

impl ApiServer {
    /// Sets the client up. Nothing is sent yet, so an API server that is down is no error here. Must be called within a tokio
    /// runtime, and after the process has installed its rustls crypto provider.
    pub async fn connect(access: &Access) -> Result<Self, AccessError> {
        Self::with_config(access.config().await?)
    }

    pub(crate) fn with_config(mut config: Config) -> Result<Self, AccessError> {
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
        let answers = Answers::default();
        let (leadership, drains) = (OnceLock::new(), watch::Sender::new(false));
        let inner = Inner { client, watches, host, counts, discovery, writes, leadership, drains, live_reads, answers };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// "10.0.0.1:443": the host label of `rest_client_requests_total`.
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// The requests so far.
    pub fn counts(&self) -> &RequestCounts {
        &self.inner.counts
    }

    /// The kinds that the API server serves, with their paths.
    pub(crate) fn discovery(&self) -> &Discovery {
        &self.inner.discovery
    }

    /// The resource of a kind.
    pub(crate) async fn resource(&self, kind: &Kind) -> Result<Arc<Resource>, Failure> {
        let get = async |path: String| match self.get(&path, READ_TIMEOUT, Size::Object).await {
            Ok(response) => Ok(Some(response.body)),
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure),
        };
        self.inner.discovery.resource(kind, get).await
    }

    /// X7: the claim of a write that waits for its permit is renewed as this says.
    pub fn follow(&self, leadership: watch::Receiver<Leadership>) {
        self.inner.leadership.set(leadership).expect("a host takes part in one election");
    }

    /// The host ends: writes that wait for a permit are not sent, unless they get it soon.
    pub fn drain(&self) {
        self.inner.drains.send_replace(true);
    }

    /// Ends when a write that waits is not sent any more.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as this.
        let _ = self.inner.drains.subscribe().wait_for(|drains| *drains).await;
        sleep(DRAIN).await;
    }

    /// The last time to send a write that was let be sent until then.
    pub(crate) fn renewed(&self, not_after_ms: u64) -> u64 {
        self.inner.leadership.get().map_or(not_after_ms, |leadership| leadership.borrow().renewed(not_after_ms))
    }

    /// Permits for writes.
    pub(crate) fn writes(&self) -> &WriteLimiter {
        &self.inner.writes
    }

    #[cfg(test)]
    pub(crate) fn answers(&self) -> &Answers {
        &self.inner.answers
    }

    /// Permits for live reads.
    pub(crate) fn live_reads(&self) -> &ReadLimiter {
        &self.inner.live_reads
    }

    /// Whether the API server responds that it is ready; for probes and messages.
    pub async fn is_ready(&self) -> bool {
        self.get("/readyz", READ_TIMEOUT, Size::Small).await.is_ok()
    }

    /// Sends a GET and reads the whole response within a time.
    pub(crate) async fn get(&self, path: &str, within: Duration, size: Size) -> Result<Response, Failure> {
        self.send(request(Method::GET, path, None, Bytes::new())?, within, size).await
    }

    /// Sends a request and reads the whole response within a time, when there is room for one of its size.
    pub(crate) async fn send(&self, request: Request<Body>, within: Duration, size: Size) -> Result<Response, Failure> {
        let (uri, answers) = (request.uri().clone(), &self.inner.answers);
        let room = answers.before(uri.path(), size).await;
        let deadline = Instant::now() + within;
        let mut body = self.open(&self.inner.client, request, deadline).await?;
        let (body, room) = answers.read(&mut body, uri.path(), size, room, deadline).await?;
        if says_failure(&body) {
            return Err(Failure::Lost(
                "the response has a status of success, and says that the request failed".to_owned(),
            ));
        }
        Ok(Response { body, _room: room })
    }

    /// Opens a watch. It lasts until the body is dropped, which frees its place on a connection too.
    pub(crate) async fn watch(
        &self,
        mut request: Request<Body>,
        deadline: Instant,
        class: Class,
    ) -> Result<Body, Failure> {
        request.extensions_mut().insert(class);
        request.extensions_mut().insert(connections::Deadline(deadline));
        self.open(&self.inner.watches, request, deadline).await
    }

    /// Sends a request and returns the unread body of a successful response.
    async fn open(&self, client: &Client, request: Request<Body>, deadline: Instant) -> Result<Body, Failure> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        // In a box: the future of a watch, which lives on, would be some KiB larger.
        let sent = Box::pin(timeout_at(deadline, client.send(request))).await;
        let code = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok()).map(|response| response.status().as_u16());
        self.inner.counts.add(method, code);
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::of_client(&error).during(&self.inner.host)),
            Err(_) => return Err(Failure::Lost(format!("{} did not respond in time", self.inner.host))),
        };
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let (head, mut body) = response.into_parts();
        // The status code is an error even without a body.
        let read = self.inner.answers.read(&mut body, uri.path(), Size::Object, None, deadline).await;
        let body = read.map(|(body, _)| body).unwrap_or_default();
        Err(Failure::Response(refused(head.status, &head.headers, &body)))
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

/// The source of the configuration.
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

    /// The order of all commands of mortise.
    fn place(&self, names_kubeconfig: bool, in_pod: bool) -> Place<'_> {
        match &self.kubeconfig {
            Some(path) => Place::File(path),
            None if names_kubeconfig => Place::Environment,
            None if in_pod => Place::Pod,
            None => Place::Home,
        }
    }

    /// Reads the configuration from files and the environment; nothing is sent.
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

/// 404.
pub(crate) const NOT_FOUND: u16 = StatusCode::NOT_FOUND.as_u16();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_file_precedes_the_environment_which_precedes_the_pod_and_the_home_folder_is_last() {
        let named = Access { kubeconfig: Some("a".into()), context: None };
        assert_eq!(named.place(true, true), Place::File(Path::new("a")));
        let unnamed = Access::default();
        assert_eq!(unnamed.place(true, true), Place::Environment);
        assert_eq!(unnamed.place(false, true), Place::Pod);
        assert_eq!(unnamed.place(false, false), Place::Home);
    }
}
