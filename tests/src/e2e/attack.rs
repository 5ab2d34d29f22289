//! All who mean a host harm, at once: users with the objects that cost most, forged marks, a plugin that overruns every limit or
//! requests without end, components to compile, and clients of its ports. They stop when an `Attack` ends, which fails unless each
//! has reached what it attacks. How the host keeps itself is unknown here.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::http::Server;
use super::reload::append_custom_section;
use super::world::{DEADLINE, HOST_NAMESPACE, World, base64, built};

/// Pairs of an object that a user writes: so many that the API server takes its text.
const PAIRS: usize = 15_000;
/// Values of a review: the most that the port takes of one request.
const REVIEW_VALUES: usize = 2_600_000;
/// Objects of each kind of user.
const OBJECTS: usize = 10;
/// What the hostile plugin does for an object each.
const OVERRUNS: [&str; 8] = ["loop", "alloc", "trap", "stack", "hostcalls", "output", "log-flood", "duplicate-child"];
/// Addresses of clients that send whole bodies, of those that send a byte now and then, and of those that send nothing.
const SENDERS: std::ops::Range<u8> = 2..5;
const SLOW: std::ops::Range<u8> = 5..8;
const IDLE: std::ops::Range<u8> = 8..10;
/// Connections of each slow client and of each idle one.
const CONNECTIONS: usize = 30;
const IDLE_CONNECTIONS: usize = 200;

pub(super) struct Attack {
    stops: Arc<AtomicBool>,
    reached: Reached,
    threads: Vec<JoinHandle<()>>,
    users: Vec<tokio::task::JoinHandle<()>>,
}

/// How many connections each client had, and how many writes of each user the API server has answered: a review that
/// the host has no room for is refused.
type Reached = Arc<Mutex<BTreeMap<&'static str, usize>>>;

/// A client of the webhook port.
#[derive(Clone)]
struct Caller {
    server: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Attack {
    pub(super) fn begin(world: &mut World, requests: &Server) -> Self {
        OVERRUNS.iter().for_each(|mode| world.apply(&overrun(world, mode)));
        (0..OBJECTS).for_each(|number| world.apply(&fetch(world, requests, number)));
        let mut attack =
            Self { stops: Arc::default(), reached: Arc::default(), threads: Vec::new(), users: Vec::new() };
        let namespace = Some(world.namespace.clone());
        let api = |api_version: &str, kind: &str| world.api(api_version, kind, namespace.as_deref());
        attack.user(world, Duration::from_millis(500), ("ConfigMaps", config_map), api("v1", "ConfigMap"));
        attack.user(world, Duration::from_millis(500), ("PodSets", pod_set), api("app.example.com/v1alpha1", "PodSet"));
        attack.user(world, Duration::from_millis(200), ("Pictures", picture), api("test.mortise.dev/v1", "Picture"));
        attack.user(world, Duration::from_millis(200), ("forged children", forged), api("v1", "ConfigMap"));
        attack.user(
            world,
            Duration::from_secs(5),
            ("components", component),
            world.api("v1", "ConfigMap", Some(HOST_NAMESPACE)),
        );
        let caller = Caller::of(world);
        let runtime = world.block_on(async { tokio::runtime::Handle::current() });
        for number in SENDERS {
            attack.client(&runtime, &caller, number, ("whole reviews", send_bodies));
        }
        for number in SLOW {
            attack.client(&runtime, &caller, number, ("slow reviews", send_slowly));
        }
        for number in IDLE {
            attack.client(&runtime, &caller, number, ("idle connections", send_nothing));
        }
        let metrics = world.host().metrics_port();
        let scraped = Caller { server: (Ipv4Addr::LOCALHOST, metrics).into(), ..caller };
        attack.client(&runtime, &scraped, 1, ("scrapes", scrape));
        attack
    }

    /// Writes one object after another, until it is stopped. What a webhook refuses, or the API server for now, has reached them.
    fn user(&mut self, world: &World, pause: Duration, (name, write): (&'static str, Writes), api: Api<DynamicObject>) {
        let (stops, reached) = (Arc::clone(&self.stops), Arc::clone(&self.reached));
        reached.lock().unwrap().insert(name, 0);
        self.users.push(world.spawn(async move {
            for number in 0.. {
                if stops.load(Ordering::Relaxed) {
                    return;
                }
                let has_reached = match write(api.clone(), number).await {
                    Ok(()) => true,
                    Err(kube::Error::Api(status)) => status.code == 429 || status.message.contains("admission webhook"),
                    Err(_) => false,
                };
                if has_reached {
                    *reached.lock().unwrap().entry(name).or_default() += 1;
                }
                tokio::time::sleep(pause).await;
            }
        }));
    }

    fn client(
        &mut self,
        runtime: &tokio::runtime::Handle,
        caller: &Caller,
        number: u8,
        (name, act): (&'static str, Act),
    ) {
        let (stops, runtime, caller) = (Arc::clone(&self.stops), runtime.clone(), caller.clone());
        let reached = Arc::clone(&self.reached);
        reached.lock().unwrap().entry(name).or_default();
        self.threads.push(std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                // The host may refuse it, or be gone.
                let connect = || {
                    let stream = runtime.block_on(caller.connect(Ipv4Addr::new(127, 0, 0, number)))?;
                    *reached.lock().unwrap().entry(name).or_default() += 1;
                    Ok(stream)
                };
                if act(&caller, &connect, &stops).is_err() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }));
    }

    /// Everybody stops, once each has reached what it attacks.
    pub(super) fn end(mut self) {
        let ends = Instant::now() + DEADLINE;
        while self.reached.lock().unwrap().values().any(|count| *count == 0) && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("an attacker does not panic");
        }
        self.users.drain(..).for_each(|user| user.abort());
        let reached = self.reached.lock().unwrap();
        println!("attacks: {reached:?}");
        assert!(reached.values().all(|count| *count > 0), "somebody attacked nothing: {reached:?}");
    }
}

type Writes = fn(Api<DynamicObject>, usize) -> BoxFuture<'static, kube::Result<()>>;
type Connect<'a> = &'a dyn Fn() -> std::io::Result<TcpStream>;
type Act = fn(&Caller, Connect<'_>, &AtomicBool) -> std::io::Result<()>;

impl Caller {
    fn of(world: &World) -> Self {
        let field = |field: &str| {
            let path = format!("jsonpath={{.webhooks[0].clientConfig.{field}}}");
            world.kubectl(&["get", "validatingwebhookconfiguration", "mortise-admitting", "-o", &path])
        };
        let url: http::Uri = field("url").parse().expect("it is a URL");
        let authority =
            serde_json::from_value::<k8s_openapi::ByteString>(field("caBundle").into()).expect("it is base64");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&authority.0).expect("it is PEM")).expect("it is an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let port = url.port_u16().expect("a host of a test has a port of its own");
        Self { server: (Ipv4Addr::LOCALHOST, port).into(), config: Arc::new(config) }
    }

    /// A connection that comes from another address than the API server's.
    async fn connect(&self, from: Ipv4Addr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.server).await?.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    fn secured(&self, stream: TcpStream) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST));
        let client = ClientConnection::new(Arc::clone(&self.config), name).map_err(std::io::Error::other)?;
        Ok(StreamOwned::new(client, stream))
    }
}

/// The head of a review of so many bytes.
fn head(path: &str, bytes: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: mortise\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n"
    )
}

/// A review whose object has as many values as there is room for.
fn review() -> String {
    let values = ["[]"; REVIEW_VALUES].join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"a","operation":"CREATE","object":{{"apiVersion":"test.mortise.dev/v1","kind":"Picture","metadata":{{"name":"a","namespace":"a"}},"spec":{{"image":"nginx","values":[{values}]}}}}}}}}"#
    )
}

/// One whole review after another, each over a connection of its own.
fn send_bodies(caller: &Caller, connect: Connect<'_>, stops: &AtomicBool) -> std::io::Result<()> {
    let body = review();
    for path in ["/validate/admitting", "/mutate/admitting", "/convert/admitting"].into_iter().cycle() {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let mut stream = caller.secured(connect()?)?;
        stream.write_all(head(path, body.len()).as_bytes())?;
        stream.write_all(body.as_bytes())?;
        // A refusal may come before the whole body was sent.
        let _ = stream.read(&mut [0; 1_024])?;
    }
    Ok(())
}

/// Connections that declare a large body and send a byte of each now and then.
fn send_slowly(caller: &Caller, connect: Connect<'_>, stops: &AtomicBool) -> std::io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = caller.secured(connect()?)?;
        stream.write_all(head("/validate/admitting", REVIEW_VALUES).as_bytes())?;
        streams.push(stream);
    }
    while !stops.load(Ordering::Relaxed) && !streams.is_empty() {
        std::thread::sleep(Duration::from_secs(1));
        streams.retain_mut(|stream| stream.write_all(b"[").is_ok());
    }
    Ok(())
}

/// Connections without a handshake, until the host has closed most.
fn send_nothing(_: &Caller, connect: Connect<'_>, stops: &AtomicBool) -> std::io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let stream = connect()?;
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    while !stops.load(Ordering::Relaxed) && streams.len() > IDLE_CONNECTIONS / 2 {
        std::thread::sleep(Duration::from_millis(500));
        let is_open = |stream: &mut TcpStream| !matches!(stream.read(&mut [0]), Ok(0));
        streams.retain_mut(is_open);
    }
    Ok(())
}

/// Scrapes without end, of which most are not read to their end.
fn scrape(_: &Caller, connect: Connect<'_>, _: &AtomicBool) -> std::io::Result<()> {
    let mut stream = connect()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    stream.read(&mut [0; 1_024]).map(drop)
}

fn overrun(world: &World, mode: &str) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Hostile", "spec": {"mode": mode},
        "metadata": {"name": mode, "namespace": world.namespace},
    })
}

/// An object whose requests hang or have responses that are too large, again each second.
fn fetch(world: &World, server: &Server, number: usize) -> Value {
    let request = |key: usize| {
        let path = ["hanging", "large"][key % 2];
        json!({"key": format!("{path}-{key}"), "url": server.url(&format!("/{path}")), "refreshMs": 1_000, "keep": true})
    };
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Fetch",
        "metadata": {"name": format!("fetch-{number}"), "namespace": world.namespace},
        "spec": {"requests": (0..16).map(request).collect::<Vec<_>>()},
    })
}

/// Makes an object, or replaces what it has, so that each watch shows it.
async fn apply(api: Api<DynamicObject>, object: Value) -> kube::Result<()> {
    let name = object["metadata"]["name"].as_str().expect("it has a name").to_owned();
    let force = PatchParams::apply("attacker").force();
    api.patch(&name, &force, &Patch::Apply(object)).await.map(drop)
}

/// Small members, so that a tree takes as much more than its text as it can.
fn config_map(api: Api<DynamicObject>, number: usize) -> BoxFuture<'static, kube::Result<()>> {
    let data: serde_json::Map<_, _> = (0..PAIRS).map(|key| (format!("k{key:05}"), number.to_string().into())).collect();
    let name = format!("worst-{}", number % OBJECTS);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    Box::pin(apply(api, object))
}

fn pod_set(api: Api<DynamicObject>, number: usize) -> BoxFuture<'static, kube::Result<()>> {
    let template = json!({"spec": {"containers": [], "volumes": vec![json!({"": number}); PAIRS]}});
    let object = json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "metadata": {"name": format!("worst-{}", number % OBJECTS)},
        "spec": {"replicas": 0, "template": template},
    });
    // Without owners of its fields, which would take more of the API server than of the host.
    Box::pin(replace(api, object))
}

/// A Picture that is reviewed and not stored.
fn picture(api: Api<DynamicObject>, number: usize) -> BoxFuture<'static, kube::Result<()>> {
    let annotations: serde_json::Map<_, _> = (0..PAIRS).map(|key| (format!("k{key:05}"), "".into())).collect();
    let object = json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Picture", "spec": {"image": "nginx"},
        "metadata": {"name": format!("worst-{number}"), "annotations": annotations},
    });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    Box::pin(async move { api.create(&dry_run, &object_of(object)).await.map(drop) })
}

/// A copy of a child, with all marks of its owner.
fn forged(api: Api<DynamicObject>, number: usize) -> BoxFuture<'static, kube::Result<()>> {
    Box::pin(async move {
        let children =
            api.list(&ListParams::default().labels("app.kubernetes.io/managed-by=mortise").limit(10)).await?;
        let no_child = || kube::Error::Service("there is no child yet".into());
        let child = children.items.get(number % children.items.len().max(1)).ok_or_else(no_child)?;
        let metadata = ObjectMeta {
            name: Some(format!("forged-{}", number % 100)),
            labels: Some(child.labels().clone()),
            annotations: Some(child.annotations().clone()),
            owner_references: Some(child.owner_references().to_vec()),
            ..ObjectMeta::default()
        };
        apply(api, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"number": number.to_string()}}))
            .await
    })
}

/// A component that was never seen, in the place of the last one.
fn component(api: Api<DynamicObject>, number: usize) -> BoxFuture<'static, kube::Result<()>> {
    let mut bytes = std::fs::read(built("plugins/eru.wasm")).expect("it is built");
    append_custom_section(&mut bytes, number.to_string().as_bytes());
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"plugin.wasm": base64(&bytes)},
        "metadata": {"name": "compiled", "labels": {"mortise.dev/plugin": "true"}},
    });
    Box::pin(replace(api, object))
}

async fn replace(api: Api<DynamicObject>, object: Value) -> kube::Result<()> {
    let mut object = object_of(object);
    let name = object.name_any();
    match api.get_opt(&name).await? {
        Some(before) => {
            object.metadata.resource_version = before.metadata.resource_version;
            api.replace(&name, &PostParams::default(), &object).await.map(drop)
        }
        None => api.create(&PostParams::default(), &object).await.map(drop),
    }
}

fn object_of(object: Value) -> DynamicObject {
    serde_json::from_value(object).expect("it is an object")
}
