//! A plugin is replaced while its objects change: no change is lost, no Pod doubled, the host not restarted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use tokio::task::JoinHandle;

use super::pods::Witness;
use super::world::{HOST_NAMESPACE, World, built, count_from_env};

/// PodSets that are being scaled. `MORTISE_E2E_RELOAD_SETS` raises it.
const SETS: usize = 30;
/// Reloads of the plugin. `MORTISE_E2E_RELOADS` raises it.
const RELOADS: usize = 4;
/// Every third build is new, so that the few reloads of a short run have each sort: a first build, one that served
/// before, and one that is compiled while another serves.
const FRESH_EVERY: usize = 3;
/// Interval of the load's changes, which keeps the host busy.
const LOAD_EVERY: Duration = Duration::from_millis(10);
/// From the ConfigMap's watch event to a status by the new version, without the compilation: a second for the update to
/// reach the host, and as much again for trial, first call and write on a busy machine.
const TO_FIRST_STATUS: Duration = Duration::from_secs(2);

/// Creates PodSets `set-0`, `set-1`, ... in batches.
pub fn create_sets(world: &World, sets: usize, replicas: i64) {
    let api = world.podsets();
    let objects: Vec<DynamicObject> = (0..sets)
        .map(|index| serde_json::from_value(world.podset(&format!("set-{index}"), replicas)).unwrap())
        .collect();
    world.block_on(async {
        for batch in objects.chunks(12) {
            let creates = batch
                .iter()
                .map(|object| api.create(&PostParams { dry_run: false, field_manager: None }, object))
                .collect::<Vec<_>>();
            for created in futures::future::join_all(creates).await {
                created.unwrap();
            }
        }
    });
}

pub fn scale(world: &World, index: usize, replicas: i64) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let api = world.podsets();
    world.block_on(api.patch(&format!("set-{index}"), &PatchParams::default(), &patch)).unwrap();
}

/// Waits until every set has exactly its Pods, also in its status.
pub fn wait_converged(world: &World, witness: &Witness, sets: usize, replicas: usize) {
    world.until_within(Duration::from_secs(240), &format!("{sets} sets have {replicas} Pods each"), &mut || {
        if witness.alive() != sets * replicas {
            return None;
        }
        let all = world.block_on(world.podsets().list(&Default::default())).unwrap();
        let settled = |object: &DynamicObject| {
            object.data["status"]["podNames"].as_array().map_or(0, Vec::len) == replicas
                && object.data["status"]["replicas"] == json!(replicas)
        };
        all.iter().all(settled).then_some(())
    });
}

/// The build of podset that wrote a status, by the condition's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    Plain,
    Next,
}

impl Build {
    fn of(set: &DynamicObject) -> Option<Self> {
        let conditions = set.data["status"]["conditions"].as_array()?;
        let message = conditions.iter().find(|condition| condition["type"] == "Ready")?["message"].as_str()?;
        Some(if message.ends_with(" are up") { Self::Next } else { Self::Plain })
    }

    fn other(self) -> Self {
        if self == Self::Plain { Self::Next } else { Self::Plain }
    }

    fn component(self) -> PathBuf {
        built(if self == Self::Plain { "plugins/podset.wasm" } else { "test-guests/podset-next.wasm" })
    }
}

/// What the test's watches have shown, with times.
struct Shown {
    /// The build that wrote the status of each set.
    builds: BTreeMap<String, Build>,
    /// The build whose first status is awaited.
    awaited: Build,
    /// The first change of the ConfigMap since then.
    offered_at: Option<Instant>,
    /// The first status by that build.
    written_at: Option<Instant>,
}

/// Watches the PodSets and the plugin's ConfigMap until dropped.
struct Lookout {
    shown: Arc<Mutex<Shown>>,
    tasks: [JoinHandle<()>; 2],
}

impl Lookout {
    fn watch(world: &World) -> Self {
        let awaited = Build::Plain;
        let shown = Shown { builds: BTreeMap::new(), awaited, offered_at: None, written_at: None };
        let shown = Arc::new(Mutex::new(shown));
        let (sets, config_maps) = (Arc::clone(&shown), Arc::clone(&shown));
        let set_task = world.follow(world.podsets(), move |event| {
            if let watcher::Event::Apply(set) | watcher::Event::InitApply(set) = event {
                sets.lock().unwrap().set(&set);
            }
        });
        let config_map_task = world.follow(world.api("v1", "ConfigMap", Some(HOST_NAMESPACE)), move |event| {
            if let watcher::Event::Apply(_) | watcher::Event::InitApply(_) = event {
                config_maps.lock().unwrap().offered_at.get_or_insert_with(Instant::now);
            }
        });
        Self { shown, tasks: [set_task, config_map_task] }
    }

    fn look<T>(&self, look: impl FnOnce(&mut Shown) -> T) -> T {
        look(&mut self.shown.lock().unwrap())
    }

    /// Waits until one build has written the status of every set, so that the other's first status is a change.
    fn wait_for_all(&self, world: &World, sets: usize, build: Build) {
        world.until(&format!("{sets} sets have a status by the build {build:?}"), || {
            let by_it = self.look(|shown| shown.builds.values().filter(|by| **by == build).count());
            (by_it == sets).then_some(())
        });
    }
}

impl Shown {
    fn set(&mut self, set: &DynamicObject) {
        let Some(build) = Build::of(set) else { return };
        self.builds.insert(set.name_any(), build);
        if build == self.awaited {
            self.written_at.get_or_insert_with(Instant::now);
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Scales one set after the other up and down, until dropped.
struct Load {
    scaled: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Load {
    fn start(world: &World, sets: usize) -> Self {
        let (api, scaled) = (world.podsets(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&scaled);
        let task = world.spawn(async move {
            for next in 0.. {
                let patch = Patch::Merge(json!({"spec": {"replicas": 1 + (next / sets) % 2}}));
                api.patch(&format!("set-{}", next % sets), &PatchParams::default(), &patch).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(LOAD_EVERY).await;
            }
        });
        Self { scaled, task }
    }

    fn scaled(&self) -> usize {
        self.scaled.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Offers a component. Returns the time from the ConfigMap's watch event to the first status by the new version, and
/// how much of it was compilation.
fn replace(world: &World, lookout: &Lookout, build: Build, component: &[u8]) -> (Duration, Duration) {
    let compiled = |world: &World| world.metric("mortise_plugin_compile_seconds_sum", "");
    let before = compiled(world);
    lookout.look(|shown| (shown.awaited, shown.offered_at, shown.written_at) = (build, None, None));
    world.offer_bytes("podset", component);
    let took = world.until("the new build has written a status", || {
        lookout.look(|shown| Some(shown.written_at?.saturating_duration_since(shown.offered_at?)))
    });
    (took, Duration::from_secs_f64(compiled(world) - before))
}

#[test]
fn l1_a_plugin_replaced_under_load_serves_at_once_and_loses_and_doubles_nothing() {
    let mut world = World::with_podset("reload");
    let sets = count_from_env("MORTISE_E2E_RELOAD_SETS", SETS);
    let reloads = count_from_env("MORTISE_E2E_RELOADS", RELOADS);
    let witness = Witness::watch(&world);
    create_sets(&world, sets, 1);
    wait_converged(&world, &witness, sets, 1);
    let pid = world.host().process.pid();
    let lookout = Lookout::watch(&world);
    let load = Load::start(&world, sets);
    let (mut uncached, mut cached) = (Vec::new(), Vec::new());
    let mut build = Build::Plain;
    for reload in 0..reloads {
        lookout.wait_for_all(&world, sets, build);
        build = build.other();
        // A custom section changes the digest, so no cache has it.
        let fresh = reload % FRESH_EVERY == FRESH_EVERY - 1;
        let mut bytes = std::fs::read(build.component()).unwrap();
        if fresh {
            append_custom_section(&mut bytes, format!("build {reload}").as_bytes());
        }
        let (took, compiling) = replace(&world, &lookout, build, &bytes);
        assert!(
            took <= compiling + TO_FIRST_STATUS,
            "reload {reload} took {took:?} from the watch event to the first status, of which {compiling:?} were compiling"
        );
        if fresh || reload == 0 { uncached.push(took) } else { cached.push(took) }
    }
    let scaled = load.scaled();
    drop(load);
    for index in 0..sets {
        scale(&world, index, 2);
    }
    wait_converged(&world, &witness, sets, 2);
    let doubles = witness.with(|seen| seen.doubles.clone());
    assert!(doubles.is_empty(), "{doubles:#?}");
    assert_eq!(world.metric("mortise_plugin_reloads_total", "podset"), reloads as f64);
    assert_eq!(world.host().process.pid(), pid);
    assert!(world.host().process.ended().unwrap().is_none(), "the host has exited");
    println!(
        "reload: {sets} sets scaled {scaled} times while the plugin was replaced {reloads} times: 0 lost, 0 doubled, \
         0 restarts; watch event to first status of the new code p50 cached {}, uncached {}",
        median(&mut cached),
        median(&mut uncached),
    );
}

fn median(times: &mut [Duration]) -> String {
    times.sort();
    times.get(times.len() / 2).map_or_else(|| "unknown".to_owned(), |time| format!("{} ms", time.as_millis()))
}

/// Appends a custom section: the same code, another digest.
pub fn append_custom_section(component: &mut Vec<u8>, content: &[u8]) {
    let name = b"build";
    let size = 1 + name.len() + content.len();
    assert!(size < 128, "one byte of LEB128 is enough for the size");
    component.push(0);
    component.push(size as u8);
    component.push(name.len() as u8);
    component.extend_from_slice(name);
    component.extend_from_slice(content);
}
