//! The connections of watches. A watch is open for minutes and mostly silent, so many share one HTTP/2 connection; one with
//! many events has a connection of its own, as `traffic.rs` decides. An API server or a proxy that speaks HTTP/1.1 only gets
//! a connection for each.
//!
//! Requests come in, responses go out with their bodies unread. All other requests use kube's own client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio::time::Instant;
use tower::BoxError;
use tower::util::option_layer;

use crate::traffic::Class;

/// Watches of one connection. RFC 9113 (§6.5.2) advises servers to allow at least a hundred; where one allows fewer, the
/// others get no response and are retried over another connection.
const WATCHES: u16 = 64;
/// Connections with a single watch; busier watches beyond this bound share. Eight of them are all that one I/O thread can read.
const MAX_OWN: usize = 8;
/// A connection that is silent for this long gets a ping, as in client-go.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Without a response to the ping for this long, the connection is closed and its watches are reopened; client-go's number.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Unread bytes of one watch, a few of the largest objects: while the host is busy, further ones stay in the API server.
const WATCH_WINDOW: u32 = 2 << 20;
/// Unread bytes of all connections, as when a host with a thousand kinds lists all of them at once.
const ALL_WINDOWS: u32 = 128 << 20;
/// A new connection gets this part of what the others leave of [`ALL_WINDOWS`]: 16 MiB for the first, two for the sixteenth,
/// so for a thousand watches.
const WINDOW_PART: u32 = 8;
/// The least window of a connection, which RFC 9113 (§6.9.2) prescribes. Connections that get no more, after some 2,500
/// watches, add a KiB for each watch to [`ALL_WINDOWS`].
const MIN_WINDOW: u32 = 65_535;

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;
/// One connection over HTTP/2, or one per request over HTTP/1.1; opened at the first request.
type HttpClient = legacy::Client<Connector, Body>;

/// A connection. Each of its watches holds a reference, and the references are counted.
struct Connection<C> {
    client: C,
    class: Class,
    /// Its unread bytes. Watches that are not read may fill it and delay the others, but all are read by one event loop.
    window: u32,
    /// A watch got no response over it in time, or an error: it may be dead. No further watch is opened over it; those that
    /// it has stay.
    avoided: AtomicBool,
}

/// The connections in use.
struct Connections<C, F> {
    open: Mutex<Vec<Arc<Connection<C>>>>,
    make: F,
}

impl<C, F: Fn(u32) -> C> Connections<C, F> {
    fn new(make: F) -> Self {
        Self { open: Mutex::default(), make }
    }

    /// A connection for one more watch, whose response is due at the deadline. Of those that are shared the oldest with room,
    /// so that those of a burst become empty.
    fn take(&self, class: Class, deadline: Option<Instant>) -> Opening<C> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| watches(connection) > 0);
        let own = open.iter().filter(|connection| connection.class == Class::Own).count();
        let class = if own < MAX_OWN { class } else { Class::Shared };
        let has_room = |connection: &&Arc<Connection<C>>| {
            connection.class == Class::Shared
                && watches(connection) < usize::from(WATCHES)
                && !connection.avoided.load(Ordering::Relaxed)
        };
        if let Some(connection) = open.iter().find(has_room).filter(|_| class == Class::Shared) {
            return Opening { connection: Arc::clone(connection), deadline };
        }
        let window = window(class, open.iter().map(|connection| connection.window));
        let client = (self.make)(window);
        let connection = Arc::new(Connection { client, class, window, avoided: AtomicBool::new(false) });
        open.push(Arc::clone(&connection));
        Opening { connection, deadline }
    }
}

/// The window of a connection beside others with these.
fn window(class: Class, others: impl Iterator<Item = u32>) -> u32 {
    let part = ALL_WINDOWS.saturating_sub(others.sum()) / WINDOW_PART;
    let most = if class == Class::Own { WATCH_WINDOW } else { ALL_WINDOWS };
    part.clamp(MIN_WINDOW, most)
}

/// The references to a connection, without that of the list.
fn watches<C>(connection: &Arc<Connection<C>>) -> usize {
    Arc::strong_count(connection) - 1
}

/// When the response to a watch is due: an extension of its request, whose future is dropped at that time.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(pub Instant);

/// A watch that waits for its response. If that fails or is not there in time, its connection is avoided. A watch that is
/// ended earlier, as when its kind is relisted, says nothing about the connection.
struct Opening<C> {
    connection: Arc<Connection<C>>,
    deadline: Option<Instant>,
}

impl<C> Opening<C> {
    fn responded(mut self) -> Arc<Connection<C>> {
        self.deadline = None;
        Arc::clone(&self.connection)
    }

    fn failed(&self) {
        self.connection.avoided.store(true, Ordering::Relaxed);
    }
}

impl<C> Drop for Opening<C> {
    fn drop(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.failed();
        }
    }
}

/// A client for watches, with the credentials and headers of `config`. The extensions of a request say which connection it
/// gets ([`Class`]) and how long it may wait there ([`Deadline`]).
pub(crate) fn client(config: &Config, connect_timeout: Duration) -> Result<Client, kube::Error> {
    let connector = connector(config, connect_timeout)?;
    let connections = Arc::new(Connections::new(move |window| http_client(connector.clone(), window)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let extensions = request.extensions();
        let deadline = extensions.get().map(|Deadline(deadline)| *deadline);
        let opening = connections.take(extensions.get().copied().unwrap_or_default(), deadline);
        async move {
            let response = opening.connection.client.request(request).await.inspect_err(|_| opening.failed())?;
            let held = opening.responded();
            // The watch holds its connection until its body is dropped.
            Ok::<_, BoxError>(response.map(|body| {
                body.map_frame(move |frame| {
                    let _held = &held;
                    frame
                })
            }))
        }
    });
    Ok(ClientBuilder::new(service, config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build())
}

fn connector(config: &Config, connect_timeout: Duration) -> Result<Connector, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(tls.enable_http1().enable_http2().wrap_connector(tcp));
    connector.set_connect_timeout(Some(connect_timeout));
    Ok(connector)
}

fn http_client(connector: Connector, window: u32) -> HttpClient {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        // By default a connection accepts no request when it got none for 90 s.
        .pool_idle_timeout(None::<Duration>)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        // A connection counts as idle when it accepts no further requests, though its last watch is open.
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(WATCH_WINDOW)
        .http2_initial_connection_window_size(window)
        .build(connector)
}

#[cfg(test)]
mod tests;
