//! HTTP requests of a plugin to a server on loopback that misbehaves on purpose, with the real host.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use mortise_control_plane::ADMIN;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::foo::field;
use super::world::{DEADLINE, World, built};

/// The origin that the guest declares; the server's has as many characters.
const DECLARED: &[u8] = b"127.0.0.1:10000";

/// A request that the server got.
#[derive(Clone, Debug)]
struct Received {
    line: String,
    idempotency_key: Option<String>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    /// Paths under /held/ that are answered now.
    released: Mutex<Vec<String>>,
    changed: Condvar,
}

/// A server whose response depends on the path.
pub(super) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let of_threads = Arc::clone(&shared);
        // Ends with the process, as the connections do that hang.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_threads);
                std::thread::spawn(move || respond(stream, &shared));
            }
        });
        Self { port, shared }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn received(&self, path: &str) -> Vec<Received> {
        let all = self.shared.received.lock().unwrap();
        all.iter().filter(|received| received.line.contains(&format!(" {path} "))).cloned().collect()
    }

    fn release(&self, path: &str) {
        self.shared.released.lock().unwrap().push(path.to_owned());
        self.shared.changed.notify_all();
    }

    pub(super) fn guest(&self) -> Vec<u8> {
        guest(self.port)
    }
}

/// A listener on a port of five digits.
fn listener() -> TcpListener {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if listener.local_addr().unwrap().port() >= 10_000 {
            return listener;
        }
    }
}

/// The guest with the origin of a server on this port.
fn guest(port: u16) -> Vec<u8> {
    let mut bytes = std::fs::read(built("test-guests/requesting.wasm")).unwrap();
    let own = format!("127.0.0.1:{port}");
    let places: Vec<usize> =
        bytes.windows(DECLARED.len()).enumerate().filter(|(_, window)| *window == DECLARED).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the guest declares no origin");
    for at in places {
        bytes[at..at + DECLARED.len()].copy_from_slice(own.as_bytes());
    }
    bytes
}

/// A server over TLS that responds with the Authorization header of each request: the port, the certificate in PEM, and the
/// headers.
fn echo() -> (u16, String, Arc<Mutex<Vec<String>>>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener, received) = (Arc::new(config), listener(), Arc::new(Mutex::new(Vec::new())));
    let (port, of_thread) = (listener.local_addr().unwrap().port(), Arc::clone(&received));
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let mut bytes = Vec::new();
            let mut chunk = [0; 4_096];
            while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut chunk) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                }
            }
            let head = String::from_utf8_lossy(&bytes).into_owned();
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let sent = lines.find(|(name, _)| name.eq_ignore_ascii_case("authorization")).map(|(_, value)| value);
            let Some(sent) = sent else { continue };
            of_thread.lock().unwrap().push(sent.to_owned());
            let response = format!("HTTP/1.1 200 OK\r\nX-Echo: {sent}\r\nContent-Length: {}\r\n\r\n{sent}", sent.len());
            let _ = stream.write_all(response.as_bytes()).and_then(|()| stream.flush());
        }
    });
    (port, made.cert.pem(), received)
}

fn respond(mut stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 4_096];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let line = head.lines().next().unwrap_or_default().to_owned();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let before = {
        let mut received = shared.received.lock().unwrap();
        let before = received.iter().filter(|each| each.line == line).count();
        received.push(Received { line: line.clone(), idempotency_key: header("idempotency-key") });
        before
    };
    if path.starts_with("/held/") {
        let released = shared.released.lock().unwrap();
        let is_held = |released: &mut Vec<String>| !released.contains(&path);
        drop(shared.changed.wait_timeout_while(released, DEADLINE, is_held).unwrap());
    }
    let text = |status: &str, more: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}", body.len())
    };
    let response = match path.as_str() {
        "/hanging" => return std::thread::sleep(DEADLINE),
        "/failing" => text("503 Service Unavailable", "", "no"),
        "/recovering" if before < 1 => text("500 Internal Server Error", "", "no"),
        "/moved" => text("302 Found", "Location: /target\r\n", ""),
        "/large" => text("200 OK", "", &"x".repeat(2 << 20)),
        "/counted" => text("200 OK", "", &before.to_string()),
        path => text("200 OK", "", path),
    };
    // The host may have given up.
    let _ = stream.write_all(response.as_bytes());
}

/// A host that sends requests to this machine, and the plugin.
fn world(name: &str, server: &Server) -> World {
    let mut world = World::new(name);
    world.start_host_as(ADMIN, &["--allow-http=local"]);
    world.offer_bytes("requesting", &server.guest());
    world.wait_ready("requesting");
    world
}

fn apply(world: &World, requests: &Value) {
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Fetch", "spec": {"requests": requests},
        "metadata": {"name": "fetch", "namespace": world.namespace},
    }));
}

/// What the plugin has read, by key.
fn responses(world: &World) -> BTreeMap<String, String> {
    serde_json::from_str(&field(world, "fetch/fetch", "{.status.responses}")).unwrap_or_default()
}

#[track_caller]
fn wait_response(world: &World, key: &str, expected: &str) {
    world.until(&format!("the response to {key} is {expected:?}"), || {
        (responses(world).get(key).map(String::as_str) == Some(expected)).then_some(())
    });
}

#[test]
fn each_response_and_each_failure_is_what_the_plugin_reads() {
    let server = Server::start();
    let world = world("http-replies", &server);
    let request = |key: &str| json!({"key": key, "url": server.url(&format!("/{key}")), "timeoutMs": 1_000});
    let keys = ["fine", "moved", "large", "recovering", "failing", "hanging"];
    apply(&world, &keys.iter().map(|key| request(key)).collect::<Vec<_>>().into());
    wait_response(&world, "fine", "200 /fine");
    wait_response(&world, "moved", "302 ");
    wait_response(&world, "large", "TooLarge");
    wait_response(&world, "recovering", "200 /recovering");
    wait_response(&world, "failing", "503 no");
    wait_response(&world, "hanging", "Timeout");
    let count = |path: &str| server.received(path).len();
    let once = ["/fine", "/moved", "/large"].map(count);
    assert_eq!((once, count("/target"), count("/recovering")), ([1, 1, 1], 0, 2));
    assert!(count("/failing") >= 3 && count("/hanging") >= 3, "a failure is shown from the third on");
    assert_eq!(field(&world, "fetch/fetch", "{.status.conditions[?(@.type==\"Ready\")].status}"), "True");
    for (code, least) in [("200", 2.0), ("302", 1.0), ("503", 3.0), ("timeout", 3.0), ("too_large", 1.0)] {
        let labels = format!("controller=\"requesting/Fetch\",code=\"{code}\"");
        assert!(world.metric("mortise_http_requests_total", &labels) >= least, "{code}: {}", world.metrics_text());
    }
    apply(&world, &json!([{"key": "counted", "url": server.url("/counted"), "refreshMs": 1_000}]));
    wait_response(&world, "counted", "200 2");
}

#[test]
fn a_host_that_is_not_declared_gets_nothing_and_neither_does_this_machine_unless_it_may() {
    let server = Server::start();
    let mut world = World::new("http-refused");
    world.start_host();
    world.offer_bytes("requesting", &server.guest());
    // Before that, it is being compiled.
    world.until("the condition says what is missing", || {
        let ready = world.condition("requesting", "Ready")?;
        (ready["status"] == "False" && ready["message"].as_str()?.contains("--allow-http")).then_some(())
    });
    world.stop_host();

    world.start_host_as(ADMIN, &["--allow-http"]);
    world.wait_ready("requesting");
    apply(&world, &json!([{"key": "a", "url": server.url("/a")}]));
    wait_response(&world, "a", "Address");
    world.stop_host();

    world.start_host_as(ADMIN, &["--allow-http=local"]);
    wait_response(&world, "a", "200 /a");
    let another = Server::start();
    apply(&world, &json!([{"key": "b", "url": another.url("/b")}]));
    let stalled =
        "{.status.conditions[?(@.type==\"Stalled\")].reason}: {.status.conditions[?(@.type==\"Stalled\")].message}";
    let message = world.until("the outcome is refused", || {
        Some(field(&world, "fetch/fetch", stalled)).filter(|text| text.starts_with("BadOutcome"))
    });
    let expected = format!("GET http://127.0.0.1:{} is not declared under http of the manifest", another.port);
    assert!(message.contains(&expected), "{message}");
    assert!(another.shared.received.lock().unwrap().is_empty());
}

#[test]
fn the_late_response_to_a_former_request_is_not_read() {
    let server = Server::start();
    let world = world("http-late", &server);
    let request = |path: &str| json!([{"key": "zone", "url": server.url(path)}]);
    apply(&world, &request("/held/former"));
    world.until("the first request is sent", || (server.received("/held/former").len() == 1).then_some(()));
    apply(&world, &request("/latter"));
    wait_response(&world, "zone", "200 /latter");
    server.release("/held/former");
    world.until("the host has the late response", || {
        (world.metric("mortise_http_requests_total", "code=\"200\"") >= 2.0).then_some(())
    });
    // Another request shows that the host has reconciled since.
    let both = json!([{"key": "zone", "url": server.url("/latter")}, {"key": "more", "url": server.url("/more")}]);
    apply(&world, &both);
    wait_response(&world, "more", "200 /more");
    assert_eq!(responses(&world)["zone"], "200 /latter");
    assert_eq!(server.received("/latter").len(), 1, "an unchanged request is not sent again");
}

#[test]
fn x8_a_host_killed_between_a_request_and_its_write_sends_it_again_with_the_same_key_and_writes_once() {
    let server = Server::start();
    let mut world = world("http-crash", &server);
    apply(&world, &json!([{"key": "made", "url": server.url("/held/made"), "post": "{}", "keep": true}]));
    world.until("the request is sent", || (server.received("/held/made").len() == 1).then_some(()));
    world.kill_host();
    server.release("/held/made");
    assert_eq!(field(&world, "configmaps", "{.items[?(@.data.response)].data.response}"), "");
    world.start_host_as(ADMIN, &["--allow-http=local"]);
    world.until("the response becomes a ConfigMap", || {
        let made = field(&world, "configmaps", "{.items[?(@.data.response)].data.response}");
        (made == "200 /held/made").then_some(())
    });
    let received = server.received("/held/made");
    let [first, again] = received.as_slice() else { panic!("sent twice: {received:?}") };
    assert!(first.idempotency_key.is_some(), "{first:?}");
    assert_eq!(first.idempotency_key, again.idempotency_key);
    assert!(first.line.starts_with("POST "), "{first:?}");
}

#[test]
fn g8_a_value_that_the_host_made_is_sent_with_a_grant_alone_and_no_echo_shows_it() {
    let (port, certificate, received) = echo();
    let origin = format!("https://127.0.0.1:{port}");
    let authority = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority.path(), certificate).unwrap();
    let mut world = World::new("http-secrets");
    world.start_host_as(ADMIN, &["--allow-http=local", "--http-ca", authority.path().to_str().unwrap()]);
    world.offer_bytes("requesting", &guest(port));
    world.wait_ready("requesting");
    let request = |key: &str| json!({"key": key, "url": format!("{origin}/{key}"), "token": key});
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Fetch",
        "metadata": {"name": "fetch", "namespace": world.namespace},
        "spec": {"makesToken": true, "requests": [request("own"), request("made")]},
    }));
    const ECHO: &str = "200 Bearer [value of a Secret]";
    wait_response(&world, "own", ECHO);
    wait_response(&world, "made", "Secret");
    let message = world.wait_condition("requesting", "Permitted", "False", "NotGranted");
    let grant = format!("add \"{origin}\" to spec.grants.generatedValuesTo of the Plugin requesting");
    assert!(message.contains(&grant) && message.contains("the host made \"made\""), "{message}");
    assert_eq!(*received.lock().unwrap(), ["Bearer s3cret-0f-s0me0ne"]);

    let patch = json!({"spec": {"grants": {"generatedValuesTo": [origin]}}}).to_string();
    world.kubectl(&["patch", "plugin", "requesting", "--type=merge", "-p", &patch]);
    wait_response(&world, "made", ECHO);
    world.wait_condition("requesting", "Permitted", "True", "Allowed");
    let path = "go-template={{.data.made | base64decode}}";
    let made = world.kubectl_here(&["get", "secret", "token", "-o", path]);
    assert_eq!(made.len(), 32, "{made}");
    assert_eq!(*received.lock().unwrap(), ["Bearer s3cret-0f-s0me0ne".to_owned(), format!("Bearer {made}")]);
    let plugin = world.kubectl(&["get", "plugin", "requesting", "-o", "yaml"]);
    for text in [field(&world, "fetch/fetch", "{}"), field(&world, "events", "{}"), world.log_since_start(), plugin] {
        assert!(!text.contains(&made) && !text.contains("s3cret-0f-s0me0ne"), "{text}");
    }
}
