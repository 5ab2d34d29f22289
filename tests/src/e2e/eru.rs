//! Eru end to end, on the real Deployment controller: which Deployments have one, what keeps it from restarting them,
//! and ticks at which the host is killed, with an independent watcher of the Deployments.
//!
//! `MORTISE_E2E_TICKS` raises the number of ticks (1); a schedule's shortest step is a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::crontab::shown;
use super::foo::field;
use super::world::{World, count_from_env};
use crate::simulation::random::Random;

const DEPLOYMENTS: usize = 5;
const KILLS: usize = 5;
const REPLICAS: i32 = 3;
/// The Deployment controller's defaults: a quarter of the Pods more for a while, rounded up, and a quarter unavailable,
/// rounded down.
const SURGE: i32 = 1;
const UNAVAILABLE: i32 = 0;
const MINUTE: Duration = Duration::from_secs(60);

const ENABLED: &str = "mtsre.meitu.com/eru";
const SCHEDULE: &str = "mtsre.meitu.com/eru-schedule";
const RESTARTED_AT: &str = "mtsre.meitu.com/restarted-at";

fn deployment(world: &World, name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": world.namespace, "annotations": annotations},
        "spec": {
            "replicas": REPLICAS, "revisionHistoryLimit": 100,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    })
}

fn eru(world: &World, name: &str, deployment: &str) -> Value {
    json!({
        "apiVersion": "mtsre.meitu.com/v1", "kind": "Eru",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"deployment": deployment, "schedule": "@yearly"},
    })
}

#[track_caller]
fn wait_for_reason(world: &World, eru: &str, reason: &str) {
    world.until(&format!("{eru} has the reason {reason}"), || {
        let found = field(world, &format!("eru/{eru}"), "{.status.conditions[?(@.type=='Ready')].reason}");
        (found == reason).then_some(())
    });
}

#[test]
fn a_deployment_with_the_annotation_has_an_eru() {
    let world = World::with_plugin("eru", "eru");
    let annotate = |what: &str| drop(world.kubectl_here(&["annotate", "--overwrite", "deployment/web", what]));
    world.apply(&deployment(&world, "web", json!({ENABLED: "true", SCHEDULE: "@daily"})));
    world.apply(&deployment(&world, "other", json!({})));
    wait_for_reason(&world, "web", "Scheduled");
    let path =
        "{.spec.deployment} {.spec.schedule} {.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}";
    assert_eq!(field(&world, "eru/web", path), "web @daily Deployment/web");
    assert_eq!(world.kubectl_here(&["get", "erus", "-o", "name"]).trim(), "eru.mtsre.meitu.com/web");

    let schedule_is = |schedule: &str| {
        world.until(&format!("the Eru's schedule is {schedule:?}"), || {
            (field(&world, "eru/web", "{.spec.schedule}") == schedule).then_some(())
        });
    };
    annotate(&format!("{SCHEDULE}=@weekly"));
    schedule_is("@weekly");
    world.kubectl_here(&["annotate", "deployment/web", &format!("{SCHEDULE}-")]);
    schedule_is("");
    wait_for_reason(&world, "web", "NoSchedule");
    let reconciling = || field(&world, "eru/web", "{.status.conditions[?(@.type=='Reconciling')].reason}");
    assert_eq!(reconciling(), "NoSchedule", "kstatus requires it with a Ready that is not True");
    let own = r#"{"spec":{"schedule":"0 12 1 * *","timeZone":"Asia/Kolkata"}}"#;
    world.kubectl_here(&["patch", "eru/web", "--type=merge", "-p", own]);
    wait_for_reason(&world, "web", "Scheduled");
    assert_eq!(reconciling(), "");
    let next = field(&world, "eru/web", "{.status.nextRestartTime}");
    assert!(next.ends_with("-01T06:30:00Z"), "noon in Kolkata, of the first day of a month: {next}");
    let calls = |world: &World| world.metric("mortise_guest_calls_total", "controller=\"eru/Deployment\"");
    let before = calls(&world);
    annotate("changed=again");
    world.until("the Deployment was reconciled again", || (calls(&world) > before).then_some(()));
    assert_eq!(field(&world, "eru/web", "{.spec.schedule} {.spec.timeZone}"), "0 12 1 * * Asia/Kolkata");

    world.kubectl_here(&["annotate", "deployment/web", &format!("{ENABLED}-")]);
    let gone = || field(&world, "eru/web", "{.metadata.name}").is_empty().then_some(());
    world.until("the Eru is deleted with the annotation", gone);
    annotate(&format!("{ENABLED}=true"));
    wait_for_reason(&world, "web", "NoSchedule");
    world.kubectl_here(&["delete", "deployment", "web"]);
    world.until("the Eru is deleted with its Deployment", gone);
}

#[test]
fn an_eru_of_a_user_is_not_adopted() {
    let world = World::with_plugin("eru-own", "eru");
    world.apply(&eru(&world, "web", "other"));
    world.apply(&deployment(&world, "web", json!({ENABLED: "true", SCHEDULE: "@daily"})));
    world.until("the Deployment has an Event about it", || {
        let described = world.kubectl_here(&["describe", "deployment", "web"]);
        described.contains("Eru").then_some(())
    });
    let path = "{.spec.deployment} {.spec.schedule} {.metadata.ownerReferences}";
    assert_eq!(field(&world, "eru/web", path), "other @yearly ");
}

#[test]
fn what_keeps_an_eru_from_restarting_is_a_condition_until_it_ends() {
    let world = World::with_plugin("eru-conditions", "eru");
    world.apply(&eru(&world, "first", "web"));
    wait_for_reason(&world, "first", "DeploymentNotFound");
    world.apply(&deployment(&world, "web", json!({})));
    world.kubectl_here(&["wait", "--for=condition=Ready", "eru/first", "--timeout=60s"]);
    world.kubectl_here(&["rollout", "pause", "deployment/web"]);
    wait_for_reason(&world, "first", "DeploymentPaused");
    world.kubectl_here(&["rollout", "resume", "deployment/web"]);
    wait_for_reason(&world, "first", "Scheduled");

    // Creation times have whole seconds; within one second the name decides.
    world.apply(&eru(&world, "second", "web"));
    wait_for_reason(&world, "second", "DeploymentTaken");
    world.kubectl_here(&["delete", "eru", "first"]);
    wait_for_reason(&world, "second", "Scheduled");
    let path = "{.spec.template.metadata.annotations} {.metadata.generation}";
    assert_eq!(field(&world, "deployment/web", path), " 3", "paused, resumed and never restarted");
}

/// What the watches have shown of each Deployment.
#[derive(Default)]
struct Seen {
    /// The ticks in the Pod template, in order.
    restarts: BTreeMap<String, Vec<String>>,
    generations: BTreeMap<String, i64>,
    /// The wanted Pods of each ReplicaSet of a Deployment.
    sets: BTreeMap<String, BTreeMap<String, i32>>,
    was_available: BTreeMap<String, bool>,
    /// Violations of the Deployment controller's limits.
    beyond: Vec<String>,
}

impl Seen {
    fn apply(&mut self, deployment: &Deployment) {
        let name = deployment.name_any();
        let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let tick = template.and_then(|metadata| metadata.annotations.as_ref()?.get(RESTARTED_AT));
        let restarts = self.restarts.entry(name.clone()).or_default();
        if let Some(tick) = tick.filter(|tick| restarts.last() != Some(*tick)) {
            restarts.push(tick.clone());
        }
        self.generations.insert(name.clone(), deployment.metadata.generation.unwrap_or_default());
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default();
        let was_available = self.was_available.entry(name.clone()).or_default();
        *was_available |= available == REPLICAS;
        if *was_available && available < REPLICAS - UNAVAILABLE {
            self.beyond.push(format!("{name}: {available} Pods are available"));
        }
    }

    /// The ReplicaSets have the Pods that the Deployment controller wants; the Pods themselves follow later.
    fn apply_set(&mut self, set: &ReplicaSet) {
        let owner = set.owner_references().first().map(|owner| owner.name.clone()).unwrap_or_default();
        let sets = self.sets.entry(owner.clone()).or_default();
        sets.insert(set.name_any(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default());
        let all: i32 = sets.values().sum();
        if all > REPLICAS + SURGE {
            self.beyond.push(format!("{owner}: {all} Pods are wanted: {sets:?}"));
        }
    }
}

fn watch(world: &World) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let of_deployments = Arc::clone(&seen);
    world.follow(Api::namespaced(world.client.clone(), &world.namespace), move |event| {
        if let watcher::Event::Apply(deployment) | watcher::Event::InitApply(deployment) = event {
            of_deployments.lock().unwrap().apply(&deployment);
        }
    });
    let of_sets = Arc::clone(&seen);
    world.follow(Api::namespaced(world.client.clone(), &world.namespace), move |event| {
        if let watcher::Event::Apply(set) | watcher::Event::InitApply(set) = event {
            of_sets.lock().unwrap().apply_set(&set);
        }
    });
    seen
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn wait_until_time(time: Duration) {
    std::thread::sleep(time.saturating_sub(since_1970()));
}

/// Kills the host around a tick, then each of its successors within its first seconds.
fn kill_around(world: &mut World, tick: Duration, random: &mut Random) {
    wait_until_time(tick - Duration::from_millis(300) + Duration::from_millis(random.between(0, 400)));
    world.kill_host();
    for _ in 1..KILLS {
        world.start_host();
        std::thread::sleep(Duration::from_millis(random.between(0, 2_500)));
        world.kill_host();
    }
    world.start_host();
}

#[test]
fn a_tick_restarts_once_within_the_limits_however_often_the_host_dies() {
    let ticks = count_from_env("MORTISE_E2E_TICKS", 1);
    let mut world = World::with_plugin("eru-ticks", "eru");
    let names: Vec<String> = (0..DEPLOYMENTS).map(|number| format!("web-{number}")).collect();
    let seen = watch(&world);
    for name in &names {
        world.apply(&deployment(&world, name, json!({ENABLED: "true", SCHEDULE: "* * * * *"})));
    }
    for name in &names {
        wait_for_reason(&world, name, "Scheduled");
        world.kubectl_here(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]);
    }
    let mut random = Random::new(1);
    let mut minute = 0;
    for _ in 0..ticks {
        minute = since_1970().as_secs() / 60 + 1;
        kill_around(&mut world, MINUTE * u32::try_from(minute).unwrap(), &mut random);
        world.until("every Deployment was restarted for the tick, as its Eru's status says", || {
            names
                .iter()
                .all(|name| field(&world, &format!("eru/{name}"), "{.status.lastRestartTime}") == shown(minute))
                .then_some(())
        });
    }
    let stop = r#"{"spec":{"suspend":true}}"#;
    for name in &names {
        world.kubectl_here(&["patch", &format!("eru/{name}"), "--type=merge", "-p", stop]);
        wait_for_reason(&world, name, "Suspended");
        world.kubectl_here(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]);
    }
    let seen = seen.lock().unwrap();
    let mut restarts = 0;
    for name in &names {
        let created = field(&world, &format!("eru/{name}"), "{.metadata.creationTimestamp}");
        let all: Vec<String> = (minute - ticks as u64 - 1..=minute).map(shown).filter(|tick| *tick > created).collect();
        assert_eq!(seen.restarts[name], all, "{name}: each tick since {created} once");
        assert_eq!(seen.generations[name], 1 + all.len() as i64, "{name}: and nothing else was changed");
        assert_eq!(field(&world, &format!("eru/{name}"), "{.status.restarts}"), all.len().to_string(), "{name}");
        let sets = world.kubectl_here(&["get", "replicasets", "-l", &format!("app={name}"), "-o", "name"]);
        assert_eq!(sets.lines().count(), 1 + all.len(), "{name}: {sets}");
        restarts += all.len();
    }
    assert_eq!(seen.beyond, [""; 0], "the Pods are rolled within the Deployment's own limits");
    println!(
        "eru: {ticks} ticks, {} kills, {restarts} restarts of {DEPLOYMENTS} Deployments: each exactly once",
        ticks * KILLS
    );
}
