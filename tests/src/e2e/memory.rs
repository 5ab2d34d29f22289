//! A host with little memory, a plugin that breaks no rule and fills every bound with the content that costs most, and a plugin
//! that works: the host lives, also when it starts anew with all of it there, and the working plugin is served (Q4, P18).
//!
//! `MORTISE_E2E_HOSTILES` (50) is the number of the hostile plugin's objects, `MORTISE_E2E_ATTACK_S` (10) how long each part
//! of the test takes, `MORTISE_E2E_MIB` (512) the memory. With `MORTISE_E2E_P99_MS` the working plugin has to be as fast: on a
//! machine that does nothing else, with a host that is a release build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use mortise_control_plane::ADMIN;
use serde_json::json;

use super::admission::{create, forget_authority, wait_for_webhooks};
use super::attack::Attack;
use super::http::Server;
use super::world::{World, built, count_from_env};

const OBJECTS: usize = 50;
const SECONDS: usize = 10;
/// The memory of the host with its compilers.
const MIB: usize = 512;
/// What the statuses of all objects have together, and their children as much: the cache keeps both as text.
const TEXT_BYTES: usize = 24 << 20;
/// A status has 256 KiB at most, with its conditions.
const MOST_BYTES: usize = 250_000;
/// Until the hostile plugin has filled all of its objects.
const TO_FILL: Duration = Duration::from_secs(600);

/// The memory limit of the host's processes: a group of the test's own where the kernel lets it make one.
struct Limit {
    bytes: u64,
    group: Option<PathBuf>,
}

impl Limit {
    fn make(name: &str) -> Self {
        let bytes = (count_from_env("MORTISE_E2E_MIB", MIB) as u64) << 20;
        let name = format!("mortise-e2e-{name}-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        // Of either version.
        let groups = [(root.join("memory").join(&name), "memory.limit_in_bytes"), (root.join(&name), "memory.max")];
        let make = |(folder, limit): (PathBuf, &str)| {
            fs::create_dir_all(&folder).ok()?;
            if folder.join(limit).exists() && fs::write(folder.join(limit), bytes.to_string()).is_ok() {
                return Some(folder);
            }
            fs::remove_dir(&folder).ok();
            None
        };
        Self { bytes, group: groups.into_iter().find_map(make) }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // The kernel keeps a group until its last process is gone.
        let ends = Instant::now() + Duration::from_secs(5);
        while self.group.as_ref().is_some_and(|folder| fs::remove_dir(folder).is_err()) && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What a process has in memory (`VmRSS`), or has had at most (`VmHWM`).
fn bytes_of(process: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// When the first Pod of each PodSet was seen.
type Seen = Arc<Mutex<BTreeMap<String, Instant>>>;

/// A cluster with a limited host that serves podset and `admitting` to those who work, and `hostile` and `requesting` to others.
struct Siege {
    server: Server,
    seen: Seen,
    /// The hostile plugin's objects that have their status.
    filled: Arc<Mutex<BTreeSet<String>>>,
    /// The bytes of each hostile object's status.
    bytes: usize,
    objects: usize,
    world: World,
    // The last to go, since the host has to have left it.
    limit: Limit,
}

impl Siege {
    fn begin(name: &str) -> Self {
        let objects = count_from_env("MORTISE_E2E_HOSTILES", OBJECTS);
        let (limit, server, mut world) = (Limit::make(name), Server::start(), World::new(name));
        world.group.clone_from(&limit.group);
        println!("{objects} objects; a group of the test's own: {}", limit.group.is_some());
        forget_authority(&world);
        let bytes = (TEXT_BYTES / objects).min(MOST_BYTES);
        let mut siege = Self { server, seen: Seen::default(), filled: Arc::default(), bytes, objects, world, limit };
        siege.start();
        for plugin in ["plugins/podset", "test-guests/hostile"] {
            let name = plugin.split_once('/').expect("it has a folder").1;
            siege.world.offer(name, &built(&format!("{plugin}.wasm")));
        }
        siege.world.offer("admitting", &built("test-guests/admitting.wasm"));
        siege.world.offer_bytes("requesting", &siege.server.guest());
        for plugin in ["podset", "hostile", "requesting"] {
            siege.world.wait_ready(plugin);
        }
        wait_for_webhooks(&mut siege.world);
        siege.watch();
        siege.watch_hostile();
        siege
    }

    fn start(&mut self) {
        self.world.start_host_as(ADMIN, &["--allow-http=local"]);
    }

    fn watch(&self) {
        let api: Api<Pod> = Api::namespaced(self.world.client.clone(), &self.world.namespace);
        let into = Arc::clone(&self.seen);
        self.world.follow(api, move |event| {
            if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event {
                let owner = pod.owner_references().first().map(|owner| owner.name.clone()).unwrap_or_default();
                into.lock().unwrap().entry(owner).or_insert_with(Instant::now);
            }
        });
    }

    fn watch_hostile(&self) {
        let into = Arc::clone(&self.filled);
        self.world.follow(self.hostiles(), move |event| {
            if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = event
                && object.data.get("status").is_some()
            {
                into.lock().unwrap().insert(object.name_any());
            }
        });
    }

    fn hostiles(&self) -> Api<DynamicObject> {
        self.world.api("test.mortise.dev/v1", "Hostile", Some(&self.world.namespace))
    }

    /// Makes the hostile plugin's objects. Every tenth fails each time.
    fn make(&self) {
        let (world, hostiles) = (&self.world, self.hostiles());
        for number in 0..self.objects {
            let mode = if is_filled(number) { "fill" } else { "retry" };
            let object = json!({
                "apiVersion": "test.mortise.dev/v1", "kind": "Hostile",
                "metadata": {"name": format!("hostile-{number}"), "namespace": world.namespace},
                "spec": {"mode": mode, "bytes": self.bytes},
            });
            let object = serde_json::from_value(object).unwrap();
            world.block_on(hostiles.create(&PostParams::default(), &object)).unwrap();
        }
    }

    /// Waits until each of the hostile plugin's objects has its status.
    fn wait_filled(&self) {
        let all = (0..self.objects).filter(|number| is_filled(*number)).count();
        self.world.until_within(TO_FILL, "each hostile object has its status", &mut || {
            (self.filled.lock().unwrap().len() >= all).then_some(())
        });
    }

    /// Creates objects of the working plugins one after another for a while, and shows how long the client waited: for the
    /// Pod of a PodSet, and for the admission of a Picture. The host has to live meanwhile.
    fn measure(&mut self, name: &str) {
        let process = self.world.host().process.pid();
        let duration = Duration::from_secs(count_from_env("MORTISE_E2E_ATTACK_S", SECONDS) as u64);
        let (begin, mut number) = (Instant::now(), 0);
        let (mut pods, mut admissions, mut resident) = (Vec::new(), Vec::new(), Vec::new());
        while begin.elapsed() < duration {
            number += 1;
            let name = format!("{name}-{number}");
            pods.push(self.podset(&name));
            let create_begin = Instant::now();
            create(&self.world, &name, &json!({"image": "nginx"})).expect("a good Picture is admitted");
            admissions.push(create_begin.elapsed());
            resident.push(bytes_of(process, "VmRSS"));
            // A few each second, as people have them.
            std::thread::sleep(Duration::from_millis(100));
        }
        let (peak, limit) = (bytes_of(process, "VmHWM"), self.limit.bytes);
        let ended = self.world.host().process.ended().unwrap();
        assert!(ended.is_none(), "the host has ended: {ended:?}\n{}", self.world.host().process.tail());
        resident.sort_unstable();
        println!(
            "{name}: RSS median {} MiB, most {} of {} MiB; {}",
            resident[resident.len() / 2] >> 20,
            peak >> 20,
            limit >> 20,
            self.used(),
        );
        assert!(peak < limit, "the host has had {} MiB", peak >> 20);
        for (what, times) in [("a Pod", &mut pods), ("an admission", &mut admissions)] {
            let p99 = show(name, what, times);
            let most = count_from_env("MORTISE_E2E_P99_MS", usize::MAX);
            assert!(p99.as_millis() < most as u128, "{what} took {p99:?}");
        }
    }

    /// How long a new PodSet waits for its Pod.
    fn podset(&self, name: &str) -> Duration {
        let (world, podset) = (&self.world, serde_json::from_value(self.world.podset(name, 1)).unwrap());
        let begin = Instant::now();
        world.block_on(world.podsets().create(&PostParams::default(), &podset)).unwrap();
        let mut at = || self.seen.lock().unwrap().get(name).copied();
        world.until(&format!("{name} has its Pod"), &mut at).duration_since(begin)
    }

    /// What the host says of its memory.
    fn used(&self) -> String {
        let text = self.world.metrics_text();
        let of_memory = |line: &&str| line.starts_with("mortise_memory_") && !line.ends_with(" 0");
        text.lines().filter(of_memory).collect::<Vec<_>>().join(", ")
    }

    fn restart(&mut self) {
        self.world.kill_host();
        self.start();
        self.world.until("the host serves", || (self.world.probe("/readyz").0 == 200).then_some(()));
        self.world.until_within(TO_FILL, "the hostile plugin was called again", &mut || {
            (self.world.metric("controller_runtime_reconcile_total", "controller=\"hostile/Hostile\"") > 0.0)
                .then_some(())
        });
    }
}

/// Whether the hostile plugin fills this object, and does not fail.
fn is_filled(number: usize) -> bool {
    number % 10 != 9
}

/// Prints the latencies, and returns the one that 99 of 100 are below.
fn show(name: &str, what: &str, times: &mut [Duration]) -> Duration {
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    println!("{name}: {what}: {} times, median {:?}, p99 {p99:?}", times.len(), times[times.len() / 2]);
    p99
}

#[test]
fn q4_p18_a_plugin_at_every_bound_leaves_a_host_of_512_mib_alive_and_another_plugin_served() {
    let mut siege = Siege::begin("memory");
    siege.measure("alone");
    siege.make();
    siege.measure("filling");
    siege.wait_filled();
    siege.measure("full");
    siege.restart();
    siege.measure("again");
}

#[test]
fn q4_p18_all_attacks_at_once_leave_a_host_of_512_mib_alive_and_those_who_work_served() {
    let mut siege = Siege::begin("attacks");
    siege.make();
    siege.wait_filled();
    let attack = Attack::begin(&mut siege.world, &siege.server);
    siege.measure("attacked");
    // Those who attack find the host that comes.
    attack.end();
    siege.restart();
    let attack = Attack::begin(&mut siege.world, &siege.server);
    siege.measure("attacked-again");
    attack.end();
}
