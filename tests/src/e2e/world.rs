//! What end-to-end tests use: a control plane that no other test uses meanwhile, one host process, and clients. It cleans up
//! after each test, and knows nothing of what is tested.
//!
//! `MORTISE_E2E_HOST` names another host than the debug build, for figures of time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use mortise_control_plane::{ADMIN, Binaries, ControlPlane, Options, Process, print_progress};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::checkout::root;

pub use crate::checkout::built;

pub const HOST_NAMESPACE: &str = "mortise-system";
/// A user with the rights that a test grants.
pub const RESTRICTED: &str = "mortise-restricted";
/// Users of hosts that run concurrently, by which the audit log identifies their requests; with the rights that a test
/// grants.
pub const CONTENDERS: [&str; 2] = ["mortise-a", "mortise-b"];
/// Bound of every wait; ten times what it takes on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Annotations of a Pod that takes so long to end once it is deleted: one for kwok, one for a local cluster.
pub const ENDS_AFTER: [&str; 2] = ["example.com/terminates-in", "local-cluster.mortise.dev/stops-after"];

/// The label of what a test makes without a namespace, such as Nodes and further Namespaces, which is deleted with it.
pub const OF_A_TEST: &str = "mortise.dev/of-a-test=true";
/// The CRDs whose objects have finalizers.
const FINALIZED: [&str; 3] = [
    "nodemaintenances.maintenance.mortise.dev",
    "configmapreplicas.replication.mortise.dev",
    "memcacheds.cache.example.com",
];

/// One for each of two tests at once: they mostly wait, so two share two cores well.
static PLANES: [OnceLock<ControlPlane>; 2] = [const { OnceLock::new() }; 2];
static TAKEN: Mutex<[bool; 2]> = Mutex::new([false; 2]);
static RETURNED: Condvar = Condvar::new();

/// One of the control planes, for one test at a time.
struct Turn(usize);

/// One test's share of the cluster.
pub struct World {
    pub plane: &'static ControlPlane,
    pub namespace: String,
    pub client: Client,
    runtime: tokio::runtime::Runtime,
    pub host: Option<Host>,
    /// The control group in which its hosts start; that of the tests unless a test has one of its own.
    pub group: Option<PathBuf>,
    cache: tempfile::TempDir,
    audit_mark: u64,
    log_mark: u64,
    _turn: Turn,
}

pub struct Host {
    pub process: Process,
    metrics: u16,
    probes: u16,
}

impl Turn {
    fn wait() -> Self {
        // A test that failed has cleaned up too.
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let all = |taken: &mut [bool; 2]| taken.iter().all(|taken| *taken);
        let mut taken = RETURNED.wait_while(taken, all).unwrap_or_else(PoisonError::into_inner);
        let free = usize::from(taken[0]);
        taken[free] = true;
        Self(free)
    }

    fn plane(&self) -> &'static ControlPlane {
        PLANES[self.0].get_or_init(|| {
            let binaries = Binaries::ensure(&mut print_progress()).unwrap();
            let users = [&[RESTRICTED], &CONTENDERS[..]].concat().into_iter().map(str::to_owned).collect();
            let options = Options { users, audit_reads: true, on_kubectl: Some(show), ..Options::default() };
            let plane = ControlPlane::start(&binaries, &options).unwrap();
            plane.kubectl_output(&["create", "namespace", HOST_NAMESPACE]).unwrap();
            plane
        })
    }
}

/// Prints a kubectl command and its answer, so that a failed test shows what happened. A test polls: one that answers as before
/// is not shown again.
fn show(command: &str, answer: &str) {
    /// Characters of a command with its input, and of an answer: a screen of them.
    const SHOWN: usize = 2_000;
    thread_local!(static ANSWERS: RefCell<HashMap<String, String>> = RefCell::default());
    let before = ANSWERS.with_borrow_mut(|answers| answers.insert(command.to_owned(), answer.to_owned()));
    if before.as_deref() != Some(answer) || !command.contains(" get ") {
        println!("$ {command:.SHOWN$}\n{answer:.SHOWN$}");
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[self.0] = false;
        RETURNED.notify_one();
    }
}

/// A count that an environment variable can raise, for longer runs.
pub fn count_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// A free port that nobody is likely to take before the host does: below the range of outgoing connections, and each
/// port is used once.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent test runs start at different ports.
    let first = 20_000 + u16::try_from(std::process::id() % 10).unwrap() * 1_000;
    let mut tries = (0..1_000).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 1_000);
    tries.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one of a thousand ports is free")
}

/// A client of the user whom a kubeconfig names.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

impl World {
    /// A world without a host.
    pub fn new(name: &str) -> Self {
        let turn = Turn::wait();
        let plane = turn.plane();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = runtime.block_on(client(&plane.kubeconfig(ADMIN).unwrap()));
        let cache = tempfile::tempdir().unwrap();
        let namespace = format!("e2e-{name}");
        let (host, group) = (None, None);
        let mut world =
            Self { plane, namespace, client, runtime, host, group, cache, audit_mark: 0, log_mark: 0, _turn: turn };
        world.until("the namespace is free", || {
            world.plane.kubectl_output(&["create", "namespace", &world.namespace]).ok()
        });
        world.mark_audit();
        world
    }

    /// A world with a host that serves podset.
    pub fn with_podset(name: &str) -> Self {
        Self::with_plugin(name, "podset")
    }

    /// A world with a host that serves one of the plugins.
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

    /// Passes every event of a watch to `see`. The watcher recovers from errors by itself.
    pub fn follow<K>(
        &self,
        api: Api<K>,
        mut see: impl FnMut(watcher::Event<K>) + Send + 'static,
    ) -> tokio::task::JoinHandle<()>
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    {
        self.spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                event.into_iter().for_each(&mut see);
            }
        })
    }

    pub fn start_host(&mut self) {
        self.start_host_as(ADMIN, &[]);
    }

    pub fn start_host_as(&mut self, user: &str, arguments: &[&str]) {
        let kubeconfig = self.plane.kubeconfig(user).unwrap();
        self.start_host_with(&kubeconfig, arguments);
    }

    pub fn start_host_with(&mut self, kubeconfig: &Path, arguments: &[&str]) {
        assert!(self.host.is_none(), "a host runs already");
        // Every host appends to the same log.
        self.log_mark = std::fs::metadata(self.log()).map_or(0, |log| log.len());
        self.host = Some(self.spawn_host("mortise", kubeconfig, self.cache.path(), arguments));
    }

    /// Starts another host, with a name for its log and a cache of its own.
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
        let program = std::env::var_os("MORTISE_E2E_HOST").map_or_else(|| built("debug/mortise"), PathBuf::from);
        let mut command = match &self.group {
            None => Command::new(program),
            Some(group) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(group.join("cgroup.procs")).arg(program);
                shell
            }
        };
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

    /// SIGTERM; the host has to exit with success.
    pub fn stop_host(&mut self) {
        let mut host = self.host.take().expect("a host runs");
        host.process.terminate().unwrap();
        let status = self.until("the host ends after SIGTERM", || host.process.ended().unwrap());
        assert!(status.success(), "the host ended with {status}:\n{}", host.process.tail());
    }

    fn log(&self) -> PathBuf {
        self.plane.logs().join("mortise.log")
    }

    /// The log of the last started host, complete lines only.
    pub fn log_since_start(&self) -> String {
        let log = std::fs::read(self.log()).unwrap();
        let log = &log[usize::try_from(self.log_mark).unwrap()..];
        let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        String::from_utf8(log[..whole].to_vec()).unwrap()
    }

    /// The same of a host that logs JSON. Every line has to be an object without duplicate fields.
    pub fn json_log(&self) -> Vec<Value> {
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(value.to_string().len(), line.len(), "a duplicate field in {line}");
            value
        };
        self.log_since_start().lines().map(parse).collect()
    }

    /// Puts a component into a labelled ConfigMap, as in the README, or replaces it.
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

    /// Waits until Plugin objects may be made.
    pub fn wait_plugins_served(&self) {
        self.until("Plugin objects are served", || self.plane.kubectl_output(&["get", "plugins"]).ok());
    }

    pub fn wait_ready(&mut self, plugin: &str) {
        self.wait_condition(plugin, "Ready", "True", "");
        self.wait_event_of(plugin);
    }

    /// Waits for the Event of a Plugin object, which follows its status: else a test that counts writes from now on may
    /// count that one. An Event may be dropped where many are due, so this ends after a while.
    fn wait_event_of(&self, plugin: &str) {
        let plugins = self.api("mortise.dev/v1alpha1", "Plugin", None);
        let uid = self.block_on(plugins.get(plugin)).expect("it was read before").metadata.uid;
        let events = self.api("events.k8s.io/v1", "Event", Some("default"));
        let is_of = |event: &DynamicObject| event.data["regarding"]["uid"].as_str() == uid.as_deref();
        let ends = Instant::now() + Duration::from_secs(2);
        while Instant::now() < ends {
            let listed = self.block_on(events.list(&ListParams::default()));
            if listed.is_ok_and(|listed| listed.items.iter().any(is_of)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a condition of a Plugin object has a status and, unless empty, a reason; returns its message.
    pub fn wait_condition(&mut self, plugin: &str, type_: &str, status: &str, reason: &str) -> String {
        self.until(&format!("plugin {plugin} has {type_}={status} {reason}"), || {
            let found = self.condition(plugin, type_)?;
            let holds = found["status"] == status && (reason.is_empty() || found["reason"] == reason);
            holds.then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// A condition of a Plugin object.
    pub fn condition(&self, plugin: &str, type_: &str) -> Option<Value> {
        let plugins = self.api("mortise.dev/v1alpha1", "Plugin", None);
        let object = self.block_on(plugins.get_opt(plugin)).ok().flatten()?;
        let conditions = object.data["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["type"] == type_)
    }

    /// The message of a condition of a Plugin object; empty while it has none.
    pub fn message(&self, plugin: &str, type_: &str) -> String {
        let found = self.condition(plugin, type_);
        found.and_then(|found| Some(found["message"].as_str()?.to_owned())).unwrap_or_default()
    }

    /// A field of a Plugin object; empty while it does not exist.
    pub fn of_plugin(&self, plugin: &str, path: &str) -> String {
        let path = format!("jsonpath={{{path}}}");
        self.kubectl(&["get", "plugin", plugin, "--ignore-not-found", "-o", &path])
    }

    pub fn plugin_digest(&self, plugin: &str) -> Option<String> {
        let plugins = self.api("mortise.dev/v1alpha1", "Plugin", None);
        let object = self.block_on(plugins.get_opt(plugin)).unwrap()?;
        object.data["status"]["digest"].as_str().map(str::to_owned)
    }

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

    /// Runs kubectl, which has to succeed, and returns its output.
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

    /// A Node that is deleted after the test.
    pub fn node(&self, name: &str) -> Value {
        let mut node = mortise_control_plane::node(name);
        let (key, value) = OF_A_TEST.split_once('=').expect("it is a label");
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

    /// Polls until `probe` returns a value; panics with the end of the host's log at the deadline.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        self.until_within(DEADLINE, what, &mut probe)
    }

    #[track_caller]
    pub fn until_within<T>(&self, deadline: Duration, what: &str, probe: &mut dyn FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(value) = probe() {
                return value;
            }
            if begin.elapsed() > deadline {
                let tail = self.host.as_ref().map(|host| host.process.tail()).unwrap_or_default();
                panic!("waited {deadline:?} until {what}; the end of the host's log:\n{tail}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ignores the audit log so far.
    pub fn mark_audit(&mut self) {
        self.audit_mark = self.plane.audit_since(self.audit_mark).unwrap().1;
    }

    /// The host's requests since the mark, as a user of its own.
    pub fn requests_by(&self, user: &str) -> Vec<mortise_control_plane::AuditRecord> {
        let (records, _) = self.plane.audit_since(self.audit_mark).unwrap();
        records.into_iter().filter(|record| record.user == user).collect()
    }

    /// The host's writes since the mark.
    pub fn writes_by_host(&self) -> Vec<mortise_control_plane::AuditRecord> {
        let (records, _) = self.plane.audit_since(self.audit_mark).unwrap();
        records.into_iter().filter(|record| record.is_write() && record.user_agent.starts_with("mortise")).collect()
    }

    /// The same for one user, since concurrent hosts have users of their own, without writes of Leases.
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

    /// Removes the finalizers of plugins, and uncordons the Nodes.
    fn clean_finalizers(&self) {
        let served = self.plane.kubectl_output(&["get", "crd", "-o", "name"]).unwrap_or_default();
        let none = r#"{"metadata":{"finalizers":null}}"#;
        let names = "jsonpath={range .items[*]}{.metadata.name} {.metadata.namespace}{\"\\n\"}{end}";
        for kind in FINALIZED.into_iter().filter(|kind| served.contains(kind)) {
            let left = self.plane.kubectl_output(&["get", kind, "-A", "-o", names]).unwrap_or_default();
            for (name, namespace) in left.lines().filter_map(|line| line.split_once(' ')) {
                let namespace = if namespace.is_empty() { vec![] } else { vec!["-n", namespace] };
                let patch = [&["patch", kind, name, "--type=merge", "-p", none][..], &namespace].concat();
                let _ = self.plane.kubectl_output(&patch);
            }
        }
        let cordoned = "jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}";
        let nodes = self.plane.kubectl_output(&["get", "nodes", "-o", cordoned]).unwrap_or_default();
        for node in nodes.split_whitespace() {
            let _ = self.plane.kubectl_output(&["annotate", "node", node, "maintenance.mortise.dev/cordoned-by-"]);
            let _ = self.plane.kubectl_output(&["uncordon", node]);
        }
    }

    /// Deletes everything that a test may have created.
    fn clean(&mut self) {
        self.kill_host();
        let quiet = ["--ignore-not-found", "--wait=true", "--timeout=60s"];
        let delete = |what: &[&str]| {
            // Fails if the kind is not served any more.
            let _ = self.plane.kubectl_output(&[&["delete"], what, &quiet].concat());
        };
        // First, since they may refuse the other deletes.
        let webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
        delete(&[webhooks, "-l", "app.kubernetes.io/managed-by=mortise"]);
        delete(&["configmap", "-n", HOST_NAMESPACE, "-l", "mortise.dev/plugin"]);
        self.clean_finalizers();
        // The plugins' CRDs, not the host's own.
        delete(&["crd", "-l", "app.kubernetes.io/managed-by=mortise,app.kubernetes.io/part-of!=mortise"]);
        delete(&["crd", "-l", OF_A_TEST]);
        delete(&["plugins.mortise.dev", "--all"]);
        delete(&["lease", "-n", HOST_NAMESPACE, "--all"]);
        // Otherwise a plugin for Deployments would find them in the next test, in a terminating namespace.
        delete(&["deployments", "-n", &self.namespace, "--all"]);
        let of_a_test = "clusterrolebindings,clusterroles,nodes,namespaces";
        let _ = self.plane.kubectl_output(&["delete", of_a_test, "-l", OF_A_TEST, "--wait=false"]);
        // No other test uses a namespace of this name.
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

    pub fn metrics_port(&self) -> u16 {
        self.metrics
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(host) = &self.host
        {
            eprintln!("the end of the host's log:\n{}", host.process.tail());
        }
        self.clean();
    }
}

/// A GET on loopback: the status and the body.
fn http_get(port: u16, path: &str) -> (u16, String) {
    let mut response = Vec::new();
    let mut exchange = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        stream.read_to_end(&mut response).map(|_| ())
    };
    if exchange().is_err() {
        return (0, String::new());
    }
    let text = String::from_utf8_lossy(&response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

pub fn base64(bytes: &[u8]) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap();
    encoded.as_str().unwrap().to_owned()
}
