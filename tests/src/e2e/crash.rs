//! kill -9 at random moments while PodSets converge: an independent watcher never sees two Pods for one child, and none
//! is lost.

use std::time::Duration;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::world::{World, count_from_env};
use crate::simulation::random::Random;

/// Kills. `MORTISE_E2E_KILLS` raises it; `MORTISE_E2E_SEED` repeats a run.
const KILLS: usize = 6;
const SETS: usize = 50;

#[test]
fn x8_a_host_killed_at_any_moment_neither_doubles_nor_loses_a_pod() {
    let mut world = World::with_podset("crash");
    let kills = count_from_env("MORTISE_E2E_KILLS", KILLS);
    let seed = count_from_env("MORTISE_E2E_SEED", 1) as u64;
    let mut random = Random::new(seed);
    let witness = Witness::watch(&world);
    world.mark_audit();
    create_sets(&world, SETS, 0);
    let mut killed = 0;
    let mut replicas = 4;
    while killed < kills {
        // Up to four Pods each, then down to none, so that there is always work to interrupt.
        for index in 0..SETS {
            scale(&world, index, replicas);
        }
        for _ in 0..5.min(kills - killed) {
            std::thread::sleep(Duration::from_millis(random.below(700)));
            world.kill_host();
            killed += 1;
            world.start_host();
        }
        wait_converged(&world, &witness, SETS, replicas as usize);
        replicas = 4 - replicas;
    }
    if replicas == 4 {
        for index in 0..SETS {
            scale(&world, index, 4);
        }
    }
    wait_converged(&world, &witness, SETS, 4);
    let doubles = witness.with(|seen| seen.doubles.clone());
    assert!(doubles.is_empty(), "{doubles:#?}");
    // Every deleted Pod was scaled away: a multiple of SETS x 4.
    let (ever, deleted) = witness.with(|seen| (seen.ever.len(), seen.deleted.len()));
    let mut deletes = std::collections::BTreeMap::<String, usize>::new();
    let (records, _) = world.plane.audit_since(0).unwrap();
    for record in
        records.iter().filter(|r| r.verb == "delete" && r.resource == "pods" && r.namespace == world.namespace)
    {
        *deletes.entry(format!("{} {}", record.user_agent, record.code)).or_default() += 1;
    }
    assert_eq!(deleted % (SETS * 4), 0, "the host deleted too many Pods: {deletes:#?}");
    assert_eq!(ever, deleted + SETS * 4, "the host created too many Pods");
    println!("crash: {killed} kills, seed {seed}, {ever} Pods created, {deleted} scaled away, 0 doubled, 0 lost");
}
