//! What every end-to-end test stands on: the shared control plane, one host process, and clients. It cleans up what a
//! test leaves behind, and knows nothing of what is tested.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use mortise_control_plane::{ADMIN, Binaries, ControlPlane, Options, Process, print_progress};
use serde_json::{Value, json};

use crate::checkout::root;

pub use crate::checkout::built;

/// The namespace that the host lives in.
pub const HOST_NAMESPACE: &str = "mortise-system";
/// A user without any rights but those that a test grants.
pub const RESTRICTED: &str = "mortise-restricted";
/// Users for hosts that run beside each other, so that the audit log can tell their requests apart; without any rights but
/// those that a test grants.
pub const CONTENDERS: [&str; 2] = ["mortise-a", "mortise-b"];
/// Longest that anything may take that a test waits for; ten times what it takes on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The label of Nodes that a test has made; they go with it.
const NODE_OF_A_TEST: &str = "mortise.dev/of-a-test=true";
/// The CRD whose objects have finalizers.
const MAINTENANCES: &str = "nodemaintenances.maintenance.mortise.dev";

static PLANE: OnceLock<ControlPlane> = OnceLock::new();
static TURN: Mutex<()> = Mutex::new(());

/// One test's share of the cluster.
pub struct World {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    pub client: Client,
    runtime: tokio::runtime::Runtime,
    pub host: Option<Host>,
    cache: tempfile::TempDir,
    audit_mark: u64,
    log_mark: u64,
    _turn: MutexGuard<'static, ()>,
}

/// A running host.
pub struct Host {
    pub process: Process,
    metrics: u16,
    probes: u16,
}

fn plane() -> &'static ControlPlane {
    PLANE.get_or_init(|| {
        let binaries = Binaries::ensure(&mut print_progress()).unwrap();
        let users = [&[RESTRICTED], &CONTENDERS[..]].concat().into_iter().map(str::to_owned).collect();
        let options = Options { users, audit_reads: true, ..Options::default() };
        let plane = ControlPlane::start(&binaries, &options).unwrap();
        plane.kubectl_output(&["create", "namespace", HOST_NAMESPACE]).unwrap();
        plane
    })
}

/// A count that can be raised from outside, for runs that may take long.
pub fn count_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// A port that nobody has now, nor takes before the host does: they come in turn, and lie below those that a system gives
/// to outgoing connections, of which there are many between here and there.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs beside each other begin apart.
    let first = 20_000 + u16::try_from(std::process::id() % 10).unwrap() * 1_000;
    let mut tries = (0..1_000).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 1_000);
    tries.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one of a thousand ports is free")
}

impl World {
    /// A world in which no host runs yet.
    pub fn new(name: &str) -> Self {
        // A test that failed has left a mess that `clean` takes away, not a broken lock.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let plane = plane();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let kubeconfig = kube::config::Kubeconfig::read_from(plane.kubeconfig(ADMIN).unwrap()).unwrap();
        let client = runtime.block_on(async {
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
            Client::try_from(config).unwrap()
        });
        let cache = tempfile::tempdir().unwrap();
        let namespace = format!("e2e-{name}");
        let mut world =
            Self { plane, namespace, client, runtime, host: None, cache, audit_mark: 0, log_mark: 0, _turn: turn };
        world.clean();
        world.until("the namespace is free", || {
            world.plane.kubectl_output(&["create", "namespace", &world.namespace]).ok()
        });
        world.mark_audit();
        world
    }

    /// A world in which the host runs and serves podset.
    pub fn with_podset(name: &str) -> Self {
        Self::with_plugin(name, "podset")
    }

    /// A world in which the host runs and serves one of the plugins.
    pub fn with_plugin(name: &str, plugin: &str) -> Self {
        let mut world = Self::new(name);
        world.start_host();
        world.offer(plugin, &built(&format!("plugins/{plugin}.wasm")));
        world.wait_ready(plugin);
        world
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(future)
    }

    // === the host ===

    /// Starts the host as the cluster's administrator.
    pub fn start_host(&mut self) {
        self.start_host_as(ADMIN, &[]);
    }

    /// Starts the host as a user, with more arguments.
    pub fn start_host_as(&mut self, user: &str, arguments: &[&str]) {
        let kubeconfig = self.plane.kubeconfig(user).unwrap();
        self.start_host_with(&kubeconfig, arguments);
    }

    /// Starts the host with a kubeconfig, and with more arguments.
    pub fn start_host_with(&mut self, kubeconfig: &Path, arguments: &[&str]) {
        assert!(self.host.is_none(), "a host runs already");
        // Every host appends to the same log.
        self.log_mark = std::fs::metadata(self.log()).map_or(0, |log| log.len());
        self.host = Some(self.spawn_host("mortise", kubeconfig, self.cache.path(), arguments));
    }

    /// Starts a host beside the one of the test, if any, with a name for its log and a cache that no other host has.
    pub fn spawn_host(&self, name: &str, kubeconfig: &Path, cache: &Path, arguments: &[&str]) -> Host {
        self.spawn_host_in(HOST_NAMESPACE, name, kubeconfig, cache, arguments)
    }

    /// The same with its plugins in another namespace.
    pub fn spawn_host_in(
        &self,
        namespace: &str,
        name: &str,
        kubeconfig: &Path,
        cache: &Path,
        arguments: &[&str],
    ) -> Host {
        let (metrics, probes) = (free_port(), free_port());
        let mut command = Command::new(built("debug/mortise"));
        command
            .args(["run", "--namespace", namespace])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cache-dir")
            .arg(cache)
            .args(["--metrics-bind-address", &format!("127.0.0.1:{metrics}")])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{probes}")])
            .args(["--webhook-port", &free_port().to_string()])
            .args(arguments);
        Host { process: self.plane.spawn(name, command).unwrap(), metrics, probes }
    }

    pub fn host(&mut self) -> &mut Host {
        self.host.as_mut().expect("a host runs")
    }

    /// kill -9.
    pub fn kill_host(&mut self) {
        if let Some(mut host) = self.host.take() {
            host.process.kill().unwrap();
        }
    }

    /// SIGTERM, and the status that the host ends with.
    pub fn stop_host(&mut self) {
        let mut host = self.host.take().expect("a host runs");
        host.process.terminate().unwrap();
        let status = self.until("the host ends after SIGTERM", || host.process.ended().unwrap());
        assert!(status.success(), "the host ended with {status}:\n{}", host.process.tail());
    }

    fn log(&self) -> PathBuf {
        self.plane.logs().join("mortise.log")
    }

    /// What the host that was started last has logged so far, whole lines only; it may have ended.
    pub fn log_since_start(&self) -> String {
        let log = std::fs::read(self.log()).unwrap();
        let log = &log[usize::try_from(self.log_mark).unwrap()..];
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        String::from_utf8(log[..whole].to_vec()).unwrap()
    }

    /// The same of a host that logs JSON. Every line has to be an object in which no field stands twice.
    pub fn json_log(&self) -> Vec<Value> {
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(value.to_string().len(), line.len(), "a field stands twice in {line}");
            value
        };
        self.log_since_start().lines().map(parse).collect()
    }

    // === plugins ===

    /// Puts a component into a labelled ConfigMap, as the README tells people to, or replaces it.
    pub fn offer(&self, name: &str, component: &Path) {
        let bytes = std::fs::read(component).unwrap_or_else(|error| panic!("{}: {error}", component.display()));
        self.offer_bytes(name, &bytes);
    }

    pub fn offer_bytes(&self, name: &str, bytes: &[u8]) {
        self.put_config_map(name, json!({"plugin.wasm": base64(bytes)}), json!({}));
    }

    pub fn put_config_map(&self, name: &str, binary_data: Value, data: Value) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": HOST_NAMESPACE, "labels": {"mortise.dev/plugin": "true"}},
            "binaryData": binary_data, "data": data,
        });
        let text = object.to_string();
        let api = self.api("v1", "ConfigMap", Some(HOST_NAMESPACE));
        let object: DynamicObject = serde_json::from_str(&text).unwrap();
        self.block_on(async {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    api.replace(name, &PostParams::default(), &object).await.unwrap();
                }
                Err(error) => panic!("ConfigMap {name}: {error}"),
            }
        });
    }

    pub fn withdraw(&self, name: &str) {
        self.kubectl(&["delete", "configmap", name, "-n", HOST_NAMESPACE]);
    }

    pub fn wait_ready(&mut self, plugin: &str) {
        self.wait_condition(plugin, "Ready", "True", "");
    }

    /// Waits until a condition of a Plugin object has a status and, unless empty, a reason; returns its message.
    pub fn wait_condition(&mut self, plugin: &str, type_: &str, status: &str, reason: &str) -> String {
        self.until(&format!("plugin {plugin} has {type_}={status} {reason}"), || {
            let found = self.condition(plugin, type_)?;
            let holds = found["status"] == status && (reason.is_empty() || found["reason"] == reason);
            holds.then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// A condition of a Plugin object as it is now.
    pub fn condition(&self, plugin: &str, type_: &str) -> Option<Value> {
        let plugins = self.api("mortise.dev/v1alpha1", "Plugin", None);
        let object = self.block_on(plugins.get_opt(plugin)).ok().flatten()?;
        let conditions = object.data["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["type"] == type_)
    }

    pub fn plugin_digest(&self, plugin: &str) -> Option<String> {
        let plugins = self.api("mortise.dev/v1alpha1", "Plugin", None);
        let object = self.block_on(plugins.get_opt(plugin)).unwrap()?;
        object.data["status"]["digest"].as_str().map(str::to_owned)
    }

    // === the cluster ===

    pub fn api(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub fn podsets(&self) -> Api<DynamicObject> {
        self.api("app.example.com/v1alpha1", "PodSet", Some(&self.namespace))
    }

    /// Runs kubectl, which has to succeed, and returns what it prints.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.kubectl_output(arguments).unwrap()
    }

    /// Runs kubectl in the test's namespace.
    #[track_caller]
    pub fn kubectl_here(&self, arguments: &[&str]) -> String {
        self.kubectl(&[&["-n", &self.namespace], arguments].concat())
    }

    pub fn apply(&self, manifest: &Value) {
        self.plane.apply(&manifest.to_string()).unwrap();
    }

    /// Applies a plugin's sample in the test's namespace.
    #[track_caller]
    pub fn apply_sample(&self, plugin: &str) {
        let sample = root().join("plugins").join(plugin).join("sample.yaml");
        self.kubectl_here(&["apply", "-f", sample.to_str().expect("the checkout's path is text")]);
    }

    /// A Node that goes with the test.
    pub fn node(&self, name: &str) -> Value {
        let mut node = mortise_control_plane::node(name);
        let (key, value) = NODE_OF_A_TEST.split_once('=').expect("it is a label");
        node["metadata"]["labels"][key] = value.into();
        node
    }

    pub fn podset(&self, name: &str, replicas: i64) -> Value {
        json!({
            "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": replicas},
        })
    }

    /// Waits until a question has an answer, and tells the host's last words when it never does.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        self.until_within(DEADLINE, what, &mut ask)
    }

    #[track_caller]
    pub fn until_within<T>(&self, deadline: Duration, what: &str, ask: &mut dyn FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            if begin.elapsed() > deadline {
                let tail = self.host.as_ref().map(|host| host.process.tail()).unwrap_or_default();
                panic!("within {deadline:?} it did not come to be that {what}; the host's last words:\n{tail}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    // === witnesses ===

    /// Forgets what the audit log holds so far.
    pub fn mark_audit(&mut self) {
        self.audit_mark = self.plane.audit_since(self.audit_mark).unwrap().1;
    }

    /// The host's own requests since the mark that asked to change something.
    pub fn writes_by_host(&self) -> Vec<mortise_control_plane::AuditRecord> {
        let (records, _) = self.plane.audit_since(self.audit_mark).unwrap();
        records.into_iter().filter(|record| record.is_write() && record.user_agent.starts_with("mortise")).collect()
    }

    /// The same of one user, by whom hosts that run beside each other are told apart, without those that ask for the lead.
    pub fn writes_by(&self, user: &str) -> Vec<mortise_control_plane::AuditRecord> {
        let writes = self.writes_by_host().into_iter();
        writes.filter(|record| record.user == user && record.resource != "leases").collect()
    }

    /// The sum of all series of a metric whose labels contain a text.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        self.host.as_ref().expect("a host runs").metric(name, labels)
    }

    pub fn metrics_text(&self) -> String {
        http_get(self.host.as_ref().expect("a host runs").metrics, "/metrics").1
    }

    pub fn probe(&self, path: &str) -> (u16, String) {
        self.host.as_ref().expect("a host runs").probe(path)
    }

    /// Lets go what a plugin that is gone would keep, and gives the Nodes back.
    fn clean_maintenances(&self) {
        let left = self.plane.kubectl_output(&["get", MAINTENANCES, "-o", "name"]).unwrap_or_default();
        for object in left.lines() {
            let none = r#"{"metadata":{"finalizers":null}}"#;
            let _ = self.plane.kubectl_output(&["patch", object, "--type=merge", "-p", none]);
        }
        let cordoned = "jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}";
        let nodes = self.plane.kubectl_output(&["get", "nodes", "-o", cordoned]).unwrap_or_default();
        for node in nodes.split_whitespace() {
            let _ = self.plane.kubectl_output(&["annotate", "node", node, "maintenance.mortise.dev/cordoned-by-"]);
            let _ = self.plane.kubectl_output(&["uncordon", node]);
        }
    }

    /// Takes everything away that a test may have made.
    fn clean(&mut self) {
        self.kill_host();
        let quiet = ["--ignore-not-found", "--wait=true", "--timeout=60s"];
        let delete = |what: &[&str]| {
            // What is not there, or not served any more, needs no deleting.
            let _ = self.plane.kubectl_output(&[&["delete"], what, &quiet].concat());
        };
        // First: what they refuse may be what the rest takes away.
        let webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
        delete(&[webhooks, "-l", "app.kubernetes.io/managed-by=mortise"]);
        delete(&["configmap", "-n", HOST_NAMESPACE, "-l", "mortise.dev/plugin=true"]);
        self.clean_maintenances();
        // Those that came with plugins; the host's own is a part of mortise.
        delete(&["crd", "-l", "app.kubernetes.io/managed-by=mortise,app.kubernetes.io/part-of!=mortise"]);
        delete(&["nodes", "-l", NODE_OF_A_TEST]);
        delete(&["plugins.mortise.dev", "--all"]);
        delete(&["lease", "-n", HOST_NAMESPACE, "--all"]);
        // A plugin for Deployments would find them in the next test, in a namespace that is still going.
        delete(&["deployments", "-n", &self.namespace, "--all"]);
        // Nobody else uses a namespace of this name, so nobody has to wait until it is gone.
        let _ = self.plane.kubectl_output(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

impl Host {
    /// The sum of all series of a metric whose labels contain a text.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let text = http_get(self.metrics, "/metrics").1;
        let lines = text.lines().filter(|line| {
            let series = line.split([' ', '{']).next().unwrap_or_default();
            series == name && line.contains(labels)
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub fn probe(&self, path: &str) -> (u16, String) {
        http_get(self.probes, path)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(host) = &self.host
        {
            let mut text = String::new();
            let _ = writeln!(text, "the host's last words:\n{}", host.process.tail());
            eprint!("{text}");
        }
        self.clean();
    }
}

/// A GET on loopback: the status and the body.
fn http_get(port: u16, path: &str) -> (u16, String) {
    let mut answer = Vec::new();
    let mut exchange = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        stream.read_to_end(&mut answer).map(|_| ())
    };
    if exchange().is_err() {
        return (0, String::new());
    }
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

fn base64(bytes: &[u8]) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap();
    encoded.as_str().unwrap().to_owned()
}
