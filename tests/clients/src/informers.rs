//! Informers follow 10,000 objects while their watch is cut and its version is compacted away, and lose none. Input: a local
//! cluster. It must not know how informers come back.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::{reflector, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use mortise_control_plane::{go_program, print_progress};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster as _, Local};
use crate::proxy::Proxy;

const NAMESPACE: &str = "default";
const OBJECTS: usize = 10_000;
/// Writes at once.
const WRITERS: usize = 16;
/// client-go waits for up to 30 s between tries.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// The versions of objects by name.
type Versions = BTreeMap<String, String>;

trait Informer {
    /// What its store has, and what its events said.
    fn versions(&mut self) -> [Versions; 2];
}

/// An informer in Go: it prints its versions when it is asked.
struct Go {
    child: Child,
    asks: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Go {
    fn start(library: &str, kubeconfig: &Path) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("informers");
        let program = go_program(&folder, ".", "informers", &mut print_progress()).unwrap();
        let mut command = Command::new(program);
        command.args([library, NAMESPACE]).env("KUBECONFIG", kubeconfig);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (asks, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, asks, lines }
    }
}

impl Informer for Go {
    fn versions(&mut self) -> [Versions; 2] {
        let mut line = String::new();
        writeln!(self.asks).unwrap();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// kube-rs's reflector.
struct Reflector {
    store: reflector::Store<ConfigMap>,
    seen: tokio::sync::watch::Receiver<Versions>,
}

fn named(object: &ConfigMap) -> (String, String) {
    (object.name_any(), object.resource_version().unwrap())
}

impl Reflector {
    fn start(client: Client, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let (sender, seen) = tokio::sync::watch::channel(Versions::new());
        let events = reflector(writer, watcher(Api::namespaced(client, NAMESPACE), config).default_backoff());
        tokio::spawn(events.for_each(move |event| {
            sender.send_modify(|seen| match event {
                Ok(watcher::Event::Init) => seen.clear(),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => seen.extend([named(&object)]),
                Ok(watcher::Event::Delete(object)) => drop(seen.remove(&object.name_any())),
                Ok(watcher::Event::InitDone) | Err(_) => {}
            });
            std::future::ready(())
        }));
        Self { store, seen }
    }
}

impl Informer for Reflector {
    fn versions(&mut self) -> [Versions; 2] {
        [self.store.state().iter().map(|object| named(object)).collect(), self.seen.borrow().clone()]
    }
}

async fn client(kubeconfig: &Value) -> Client {
    let config = Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}

/// A local cluster with its objects, and a way to it that can be cut.
struct World {
    local: Local,
    maps: Api<ConfigMap>,
    proxy: Proxy,
    /// The kubeconfig of that way, and its file.
    kubeconfig: Value,
    folder: TempDir,
}

async fn each(count: std::ops::Range<usize>, act: impl AsyncFn(String)) {
    stream::iter(count).map(|at| act(format!("map-{at}"))).buffer_unordered(WRITERS).collect::<()>().await;
}

impl World {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let local = tokio::task::spawn_blocking(Local::start).await.unwrap();
        let mut kubeconfig = local.kubeconfig();
        let maps = Api::namespaced(client(&kubeconfig).await, NAMESPACE);
        let proxy = Proxy::start(local.0.url().strip_prefix("https://").unwrap().parse().unwrap()).await;
        kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{}", proxy.port).into();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let world = Self { local, maps, proxy, kubeconfig, folder };
        world.create(0..OBJECTS).await;
        world
    }

    async fn create(&self, range: std::ops::Range<usize>) {
        each(range, async |name| {
            let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap();
            self.maps.create(&PostParams::default(), &map).await.unwrap();
        })
        .await;
    }

    async fn versions(&self) -> Versions {
        self.maps.list(&ListParams::default()).await.unwrap().iter().map(named).collect()
    }

    /// Waits until each informer has what the cluster has.
    async fn expect_same(&self, informers: &mut [(&str, Box<dyn Informer>)]) {
        let (expected, began) = (self.versions().await, Instant::now());
        for (name, informer) in informers {
            loop {
                let [store, seen] = informer.versions();
                if store == expected && seen == expected {
                    println!("{name} has {} objects after {:?}", store.len(), began.elapsed());
                    break;
                }
                let differ =
                    |has: &Versions| expected.iter().filter(|(name, version)| has.get(*name) != Some(version)).count();
                assert!(
                    began.elapsed() < DEADLINE,
                    "{name}: of {} objects its store has {}, with {} missing or old, and of its events {}",
                    expected.len(),
                    store.len(),
                    differ(&store),
                    differ(&seen)
                );
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Changes half of the objects, deletes some and creates others, and forgets how.
    async fn change_and_compact(&self) {
        let before = self.maps.list(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
        each(0..OBJECTS / 2, async |name| {
            let patch = Patch::Merge(json!({"data": {"a": "2"}}));
            self.maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        })
        .await;
        each(OBJECTS / 4..OBJECTS / 3, async |name| {
            self.maps.delete(&name, &DeleteParams::default()).await.unwrap();
        })
        .await;
        self.create(OBJECTS..OBJECTS + 100).await;
        self.local.0.compact();
        let mut watch = self.maps.watch(&WatchParams::default().timeout(10), &before).await.unwrap().boxed();
        match watch.try_next().await {
            Ok(Some(WatchEvent::Error(status))) => assert_eq!(status.code, 410, "{status:?}"),
            other => panic!("version {before} is still served: {other:?}"),
        }
    }

    async fn follow(&self, mut informers: Vec<(&str, Box<dyn Informer>)>) {
        self.expect_same(&mut informers).await;
        self.proxy.set_open(false);
        self.change_and_compact().await;
        self.proxy.set_open(true);
        self.expect_same(&mut informers).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflectors_of_kube_follow_10_000_objects_through_a_compaction() {
    let world = World::start().await;
    let (listing, streaming) = (client(&world.kubeconfig).await, client(&world.kubeconfig).await);
    world
        .follow(vec![
            ("kube", Box::new(Reflector::start(listing, watcher::Config::default()))),
            (
                "kube with streaming lists",
                Box::new(Reflector::start(streaming, watcher::Config::default().streaming_lists())),
            ),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_in_go_follow_10_000_objects_through_a_compaction() {
    let world = World::start().await;
    let kubeconfig = world.folder.path().join("kubeconfig");
    let start = |library| -> (&str, Box<dyn Informer>) { (library, Box::new(Go::start(library, &kubeconfig))) };
    world.follow(vec![start("client-go"), start("controller-runtime")]).await;
}
