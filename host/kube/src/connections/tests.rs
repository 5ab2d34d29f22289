//! How many connections watches take, with a server that speaks TLS and one version of HTTP.

use std::convert::Infallible;

use bytes::Bytes;
use futures::future::try_join_all;
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::ApiServer;

const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Http {
    One,
    /// With so many streams per connection.
    Two(u32),
}

/// More streams than any test opens.
const HTTP_2: Http = Http::Two(1_000);

/// A server whose every response is one line and never ends.
struct Server {
    config: Config,
    /// Its certificate, which is its own authority.
    pem: String,
    /// The task of each connection that got a request.
    used: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Server {
    async fn speaking(http: Http) -> Self {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let chain = vec![own.cert.der().clone()];
        let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key.into()).unwrap();
        tls.alpn_protocols = match http {
            Http::One => vec![b"http/1.1".to_vec()],
            Http::Two(_) => vec![b"h2".to_vec()],
        };
        let tls = TlsAcceptor::from(Arc::new(tls));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(vec![own.cert.der().to_vec()]);
        let used = Arc::default();
        let log = Arc::clone(&used);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, tls.clone(), http, Arc::clone(&log)));
            }
        });
        Self { config, pem: own.cert.pem(), used }
    }

    async fn connections(&self) -> usize {
        self.used.lock().await.len()
    }
}

async fn converse(stream: TcpStream, tls: TlsAcceptor, http: Http, used: Arc<Mutex<Vec<JoinHandle<()>>>>) {
    // The client may have ended.
    let Ok(stream) = tls.accept(stream).await else { return };
    let (sender, mut requests) = mpsc::unbounded_channel();
    let service = service_fn(move |_request| {
        // Only the first request of a connection is received.
        let _ = sender.send(());
        async {
            let line = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{}\n")))]);
            let endless = futures::StreamExt::chain(line, futures::stream::pending());
            Ok::<_, Infallible>(Response::new(StreamBody::new(endless)))
        }
    });
    let serving = tokio::spawn(async move {
        let io = TokioIo::new(stream);
        let _ = match http {
            Http::One => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
            Http::Two(streams) => {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(streams).serve_connection(io, service).await
            }
        };
    });
    if requests.recv().await.is_some() {
        used.lock().await.push(serving);
    }
}

/// A watch that has delivered a line.
async fn watch(client: &Client) -> Result<Body, kube::Error> {
    let request = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
    let mut body = client.send(request).await?.into_body();
    body.frame().await.unwrap()?;
    Ok(body)
}

/// Watches opened one after another.
async fn watches_of(client: &Client, count: u16) -> Vec<Body> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(timeout(DEADLINE, watch(client)).await.expect("there is a response").unwrap());
    }
    all
}

#[test]
fn watches_fill_the_oldest_connection_and_one_without_any_is_dropped() {
    let connections = Connections::new(|_| ());
    let take = || connections.take(Class::Shared, None).responded();
    let mut held: Vec<_> = (0..=2 * WATCHES).map(|_| take()).collect();
    assert_eq!(connections.open.lock().unwrap().len(), 3);
    drop(held.remove(0));
    assert!(Arc::ptr_eq(&held[0], &take()), "the free place is taken first");

    let third = Arc::downgrade(&held.pop().unwrap());
    drop(take());
    assert!(third.upgrade().is_none());
}

#[test]
fn a_connection_without_a_response_takes_no_other_watch_and_keeps_those_it_has() {
    let endings: [fn(Opening<()>); 2] = [drop, |opening| opening.failed()];
    for (end, deadline) in endings.into_iter().zip([Some(Instant::now()), None]) {
        let connections = Connections::new(|_| ());
        let first = connections.take(Class::Shared, None).responded();
        end(connections.take(Class::Shared, deadline));
        let second = connections.take(Class::Shared, None).responded();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(connections.open.lock().unwrap().len(), 2);
    }
}

#[test]
fn a_watch_that_is_ended_while_it_is_opened_leaves_its_connection_to_others() {
    let connections = Connections::new(|_| ());
    let in_time = Some(Instant::now() + DEADLINE);
    let first = connections.take(Class::Shared, in_time).responded();
    drop(connections.take(Class::Shared, in_time));
    assert!(Arc::ptr_eq(&first, &connections.take(Class::Shared, in_time).responded()));
}

#[test]
fn the_windows_of_all_connections_together_are_bounded() {
    let connections = Connections::new(|window| window);
    let all = || connections.open.lock().unwrap().iter().map(|connection| connection.window).sum::<u32>();
    let own: Vec<_> = (0..MAX_OWN).map(|_| connections.take(Class::Own, None).responded()).collect();
    assert!(own.iter().all(|connection| connection.client == WATCH_WINDOW), "one watch needs no more");
    let mut shared: Vec<_> = (0..1_000).map(|_| connections.take(Class::Shared, None).responded()).collect();
    assert!(all() <= ALL_WINDOWS, "{}", all());
    let least = shared.iter().map(|connection| connection.client).min().unwrap();
    assert!(least > 1 << 20, "each of a thousand kinds' connections has room for the largest objects: {least}");

    shared.extend((1_000..20_000).map(|_| connections.take(Class::Shared, None).responded()));
    assert!(all() <= ALL_WINDOWS + 20_000 / u32::from(WATCHES) * MIN_WINDOW, "{}", all());
    drop((own, shared));
    assert_eq!(connections.take(Class::Shared, None).connection.window, ALL_WINDOWS / WINDOW_PART);
}

#[tokio::test]
async fn over_http_2_watches_share_connections_and_outlive_the_loss_of_one() {
    let server = Server::speaking(HTTP_2).await;
    let client = client(&server.config, DEADLINE).unwrap();
    let mut all = watches_of(&client, WATCHES + 1).await;
    assert_eq!(server.connections().await, 2);
    drop(all.remove(0));
    all.extend(watches_of(&client, 1).await);
    assert_eq!(server.connections().await, 2, "a watch that ends leaves its place");

    for serving in server.used.lock().await.drain(..) {
        serving.abort();
    }
    for body in &mut all {
        let frame = timeout(DEADLINE, body.frame()).await.expect("a watch whose connection is lost ends");
        assert!(frame.is_none_or(|frame| frame.is_err()));
    }
    all.extend(watches_of(&client, 1).await);
    assert_eq!(server.connections().await, 1);
}

#[tokio::test]
async fn over_http_2_watches_that_are_opened_together_share_one_connection() {
    let server = Server::speaking(HTTP_2).await;
    let client = client(&server.config, DEADLINE).unwrap();
    let all = try_join_all((0..WATCHES).map(|_| watch(&client)));
    let _all = timeout(DEADLINE, all).await.expect("all get a response").unwrap();
    assert_eq!(server.connections().await, 1);
}

#[tokio::test]
async fn watches_beyond_what_a_server_allows_go_over_another_connection() {
    let server = Server::speaking(Http::Two(2)).await;
    let api = ApiServer::with_config(server.config.clone()).unwrap();
    let open = async || {
        let request = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
        api.watch(request, Instant::now() + Duration::from_millis(500), Class::Shared).await
    };
    let _allowed = (open().await.unwrap(), open().await.unwrap());
    assert!(open().await.is_err(), "the third gets no response");
    let _beyond = open().await.unwrap();
    assert_eq!(server.connections().await, 2);
}

#[tokio::test]
async fn busy_watches_have_connections_of_their_own_up_to_a_bound_and_the_others_share() {
    let server = Server::speaking(HTTP_2).await;
    let api = ApiServer::with_config(server.config.clone()).unwrap();
    let open = async |class| {
        let request = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
        let mut body = api.watch(request, Instant::now() + DEADLINE, class).await.unwrap();
        body.frame().await.unwrap().unwrap();
        body
    };
    let mut shared = Vec::new();
    let mut own = Vec::new();
    for _ in 0..3 {
        shared.push(open(Class::Shared).await);
        own.push(open(Class::Own).await);
    }
    assert_eq!(server.connections().await, 1 + 3);
    while own.len() < MAX_OWN {
        own.push(open(Class::Own).await);
    }
    shared.push(open(Class::Own).await);
    assert_eq!(server.connections().await, 1 + MAX_OWN, "one beyond the bound shares");
    own.pop();
    own.push(open(Class::Own).await);
    assert_eq!(server.connections().await, 1 + MAX_OWN + 1, "one that ends makes room");
}

#[tokio::test]
async fn over_http_1_each_watch_has_a_connection_of_its_own() {
    let server = Server::speaking(Http::One).await;
    let client = client(&server.config, DEADLINE).unwrap();
    let _all = watches_of(&client, 3).await;
    assert_eq!(server.connections().await, 3);
}

/// In a Pod the file is the mounted ca.crt, which the kubelet replaces. kube's client reads it again once a minute, and has
/// tests of that; here is that no client of the host checks certificates otherwise.
#[tokio::test]
async fn f31_the_authority_in_the_file_of_a_pod_counts_for_watches_and_for_all_other_requests() {
    let server = Server::speaking(Http::One).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &server.pem).unwrap();
    let former = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut config = server.config.clone();
    config.default_retry = false;
    config.root_cert = Some(vec![former.cert.der().to_vec()]);
    for mounted in [None, Some(file.path().to_owned())] {
        config.root_cert_file = mounted;
        for client in [client(&config, DEADLINE).unwrap(), Client::try_from(config.clone()).unwrap()] {
            let opened = timeout(DEADLINE, watch(&client)).await.expect("there is a response or an error");
            assert_eq!(opened.is_ok(), config.root_cert_file.is_some(), "{:?}", opened.err());
        }
    }
}
