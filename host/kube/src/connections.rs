//! The connections that watches share. A watch is open for minutes and says little, so many of them go over one HTTP/2
//! connection; an API server, or a proxy in front of it, that speaks HTTP/1.1 only is given a connection by each.
//!
//! Requests go in and answers come out, their bodies unread; what a watch asks and says is not known here. Everything
//! else that the host asks is short and goes over kube's own client.

use std::ops::Deref;
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
use tower::BoxError;
use tower::util::option_layer;

/// Watches of one connection. Servers are advised to allow at least a hundred (RFC 9113 §6.5.2); where one allows fewer,
/// those beyond are not answered, and tried again over another connection.
const WATCHES: u16 = 64;
/// A connection that has brought nothing for this long is asked whether it is alive, as client-go asks.
const PING_AFTER: Duration = Duration::from_secs(30);
/// How long that may take to be answered before all its watches are opened anew; client-go's number.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of one watch that may lie unread, a few of the largest objects: what a watch does not take while the host is busy
/// stays with the API server.
const WATCH_WINDOW: u32 = 2 << 20;
/// Bytes of a connection that may lie unread: all of its watches', so that one that stands still holds up no other.
const CONNECTION_WINDOW: u32 = WATCH_WINDOW * WATCHES as u32;

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;
/// One connection over HTTP/2, or as many as it is asked for over HTTP/1.1; made when it is first needed.
type HttpClient = legacy::Client<Connector, Body>;

/// A connection, as those who watch over it hold it, by which they are counted.
struct Connection<C> {
    client: C,
    /// A watch got no answer: those that have one stay, and no other is opened over it. It may be dead, which shows late.
    avoided: AtomicBool,
}

/// Connections with room for some watches each.
struct Connections<C, F> {
    open: Mutex<Vec<Arc<Connection<C>>>>,
    make: F,
}

impl<C, F: Fn() -> C> Connections<C, F> {
    fn new(make: F) -> Self {
        Self { open: Mutex::default(), make }
    }

    /// A connection with room for one more watch, the oldest first, so that those that came with a burst empty again.
    fn take(&self) -> Opening<C> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| watches(connection) > 0);
        let has_room = |connection: &&Arc<Connection<C>>| {
            watches(connection) < usize::from(WATCHES) && !connection.avoided.load(Ordering::Relaxed)
        };
        if let Some(connection) = open.iter().find(has_room) {
            return Opening(Some(Arc::clone(connection)));
        }
        let connection = Arc::new(Connection { client: (self.make)(), avoided: AtomicBool::new(false) });
        open.push(Arc::clone(&connection));
        Opening(Some(connection))
    }
}

/// Everyone who holds a connection, without the list of all.
fn watches<C>(connection: &Arc<Connection<C>>) -> usize {
    Arc::strong_count(connection) - 1
}

/// A watch that waits for its answer. One that ends without, however that may be, has its connection avoided.
struct Opening<C>(Option<Arc<Connection<C>>>);

impl<C> Opening<C> {
    fn answered(mut self) -> Option<Arc<Connection<C>>> {
        self.0.take()
    }
}

impl<C> Drop for Opening<C> {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.avoided.store(true, Ordering::Relaxed);
        }
    }
}

impl<C> Deref for Opening<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.0.as_ref().expect("there until it is answered").client
    }
}

/// A client for watches, with the credentials and headers of `config`.
pub(crate) fn client(config: &Config, connect_timeout: Duration) -> Result<Client, kube::Error> {
    let connector = connector(config, connect_timeout)?;
    let connections = Arc::new(Connections::new(move || http_client(connector.clone())));
    let service = tower::service_fn(move |request: Request<Body>| {
        let opening = connections.take();
        async move {
            let answer = opening.request(request).await?;
            let held = opening.answered();
            // The watch holds its connection until its body is dropped.
            Ok::<_, BoxError>(answer.map(|body| {
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

fn http_client(connector: Connector) -> HttpClient {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        // By default a connection takes no further watch when it has not taken one for 90 s.
        .pool_idle_timeout(None::<Duration>)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        // The last watch of a connection that takes no others counts as idle.
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(WATCH_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(connector)
}

#[cfg(test)]
mod tests;
