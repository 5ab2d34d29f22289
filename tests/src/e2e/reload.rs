//! A plugin is replaced while its objects change: nothing is lost, nothing doubled, nothing restarted.

use std::time::{Duration, Instant};

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::pods::Witness;
use super::world::{World, built, count_from_env};

/// PodSets that are being scaled. `MORTISE_E2E_RELOAD_SETS` raises it.
const SETS: usize = 30;
/// How often the plugin is replaced. `MORTISE_E2E_RELOADS` raises it.
const RELOADS: usize = 4;
/// Every how many replacements the build is new. Three, so that the few of a short run have each sort: a first build, one
/// that served before, and one that is compiled while another serves.
const FRESH_EVERY: usize = 3;

/// Creates PodSets `set-0`, `set-1`, ... a dozen at a time.
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

/// Waits until every set has exactly its Pods and says so in its status.
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

#[test]
fn l1_a_plugin_replaced_under_load_loses_and_doubles_nothing() {
    let mut world = World::with_podset("reload");
    let sets = count_from_env("MORTISE_E2E_RELOAD_SETS", SETS);
    let reloads = count_from_env("MORTISE_E2E_RELOADS", RELOADS);
    let witness = Witness::watch(&world);
    create_sets(&world, sets, 1);
    wait_converged(&world, &witness, sets, 1);
    let pid = world.host().process.pid();
    let builds = [built("test-guests/podset-next.wasm"), built("plugins/podset.wasm")];
    let (mut uncached, mut cached) = (Vec::new(), Vec::new());
    let mut next_set = 0;
    for reload in 0..reloads {
        let build = &builds[reload % 2];
        // No cache has seen it: a custom section makes it another digest.
        let fresh = reload % FRESH_EVERY == FRESH_EVERY - 1;
        let mut bytes = std::fs::read(build).unwrap();
        if fresh {
            append_custom_section(&mut bytes, format!("build {reload}").as_bytes());
        }
        let reloads_before = world.metric("mortise_plugin_reloads_total", "podset");
        let begin = Instant::now();
        world.offer_bytes("podset", &bytes);
        let took = world.until("the new build has taken over", || {
            // Load goes on meanwhile: one set after the other is scaled to and fro.
            scale(&world, next_set % sets, 1 + (next_set / sets % 2) as i64);
            next_set += 1;
            (world.metric("mortise_plugin_reloads_total", "podset") > reloads_before).then(|| begin.elapsed())
        });
        if fresh || reload == 0 { uncached.push(took) } else { cached.push(took) }
    }
    for index in 0..sets {
        scale(&world, index, 2);
    }
    wait_converged(&world, &witness, sets, 2);
    let doubles = witness.with(|seen| seen.doubles.clone());
    assert!(doubles.is_empty(), "{doubles:#?}");
    assert_eq!(world.host().process.pid(), pid);
    assert!(world.host().process.ended().unwrap().is_none(), "the host has ended");
    println!(
        "reload: {sets} sets scaled {next_set} times while the plugin was replaced {reloads} times: 0 lost, 0 doubled, \
         0 restarts; update to take-over p50 cached {:?}, uncached {:?}",
        median(&mut cached),
        median(&mut uncached)
    );
}

fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}

/// Appends an empty-handed custom section: the same code, another digest.
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
