//! Eru on the real Deployment controller: which Deployments have one, what keeps it from restarting them, and ticks at which
//! the host is killed, under a witness that watches the Deployments on its own.
//!
//! `MORTISE_E2E_TICKS` raises how many ticks are waited for (1); a schedule's shortest step is a minute.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::world::{World, count_from_env};
use crate::simulation::random::Random;

/// Deployments that are restarted at each tick.
const DEPLOYMENTS: usize = 5;
/// Kills around each tick.
const KILLS: usize = 5;
const REPLICAS: i32 = 3;
/// How many Pods more the Deployment controller may have for a while, and fewer that are available: a quarter, the one
/// rounded up and the other down, which are its defaults.
const SURGE: i32 = 1;
const UNAVAILABLE: i32 = 0;
const MINUTE: Duration = Duration::from_secs(60);

const ASKS: &str = "mtsre.meitu.com/eru";
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

/// A part of an object; nothing while it is not there.
fn field(world: &World, object: &str, path: &str) -> String {
    let output =
        world.plane.kubectl_output(&["-n", &world.namespace, "get", object, "-o", &format!("jsonpath={path}")]);
    output.unwrap_or_default()
}

#[track_caller]
fn wait_for_reason(world: &World, eru: &str, reason: &str) {
    world.until(&format!("{eru} says {reason}"), || {
        let told = field(world, &format!("eru/{eru}"), "{.status.conditions[?(@.type=='Ready')].reason}");
        (told == reason).then_some(())
    });
}

#[test]
fn a_deployment_that_asks_for_it_has_an_eru_of_its_own() {
    let world = World::with_plugin("eru", "eru");
    let annotate = |what: &str| drop(world.kubectl_here(&["annotate", "--overwrite", "deployment/web", what]));
    world.apply(&deployment(&world, "web", json!({ASKS: "true", SCHEDULE: "@daily"})));
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
    assert_eq!(reconciling(), "NoSchedule", "kstatus has it beside a Ready that is not True");
    let own = r#"{"spec":{"schedule":"0 12 1 * *","timeZone":"Asia/Kolkata"}}"#;
    world.kubectl_here(&["patch", "eru/web", "--type=merge", "-p", own]);
    wait_for_reason(&world, "web", "Scheduled");
    assert_eq!(reconciling(), "");
    let next = field(&world, "eru/web", "{.status.nextRestartTime}");
    assert!(next.ends_with("-01T06:30:00Z"), "noon in Kolkata, of the first day of a month: {next}");
    let calls = |world: &World| world.metric("mortise_guest_calls_total", "controller=\"eru/Deployment\"");
    let before = calls(&world);
    annotate("looked-at=again");
    world.until("the Deployment was looked at again", || (calls(&world) > before).then_some(()));
    assert_eq!(field(&world, "eru/web", "{.spec.schedule} {.spec.timeZone}"), "0 12 1 * * Asia/Kolkata");

    world.kubectl_here(&["annotate", "deployment/web", &format!("{ASKS}-")]);
    let gone = || field(&world, "eru/web", "{.metadata.name}").is_empty().then_some(());
    world.until("the Eru goes with the annotation", gone);
    annotate(&format!("{ASKS}=true"));
    wait_for_reason(&world, "web", "NoSchedule");
    world.kubectl_here(&["delete", "deployment", "web"]);
    world.until("the Eru goes with its Deployment", gone);
}

#[test]
fn an_eru_that_a_person_made_stays_theirs() {
    let world = World::with_plugin("eru-own", "eru");
    world.apply(&eru(&world, "web", "other"));
    world.apply(&deployment(&world, "web", json!({ASKS: "true", SCHEDULE: "@daily"})));
    world.until("the Deployment tells of it", || {
        let described = world.kubectl_here(&["describe", "deployment", "web"]);
        described.contains("Eru").then_some(())
    });
    let path = "{.spec.deployment} {.spec.schedule} {.metadata.ownerReferences}";
    assert_eq!(field(&world, "eru/web", path), "other @yearly ");
}

#[test]
fn what_keeps_a_deployment_from_being_restarted_is_told_and_ends_by_itself() {
    let world = World::with_plugin("eru-told", "eru");
    world.apply(&eru(&world, "first", "web"));
    wait_for_reason(&world, "first", "DeploymentNotFound");
    world.apply(&deployment(&world, "web", json!({})));
    world.kubectl_here(&["wait", "--for=condition=Ready", "eru/first", "--timeout=60s"]);
    world.kubectl_here(&["rollout", "pause", "deployment/web"]);
    wait_for_reason(&world, "first", "DeploymentPaused");
    world.kubectl_here(&["rollout", "resume", "deployment/web"]);
    wait_for_reason(&world, "first", "Scheduled");

    // Creation times are of whole seconds, and of one second the first by name has it.
    world.apply(&eru(&world, "second", "web"));
    wait_for_reason(&world, "second", "DeploymentTaken");
    world.kubectl_here(&["delete", "eru", "first"]);
    wait_for_reason(&world, "second", "Scheduled");
    let path = "{.spec.template.metadata.annotations} {.metadata.generation}";
    assert_eq!(field(&world, "deployment/web", path), " 3", "paused, resumed and never restarted");
}

/// What the witness has seen of each Deployment.
#[derive(Default)]
struct Seen {
    /// The ticks that stood on the Pod template, in their order.
    restarts: BTreeMap<String, Vec<String>>,
    generations: BTreeMap<String, i64>,
    /// How many Pods each ReplicaSet of a Deployment is to have.
    sets: BTreeMap<String, BTreeMap<String, i32>>,
    was_available: BTreeMap<String, bool>,
    /// Moments at which the Deployment controller was beyond its limits.
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

    /// What the Deployment controller wants of Pods stands in its ReplicaSets; the Pods follow each at its own pace.
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

/// Has a witness at work for every kind that it looks at.
fn watch(world: &World) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let of_deployments = Arc::clone(&seen);
    each(world, move |deployment| of_deployments.lock().unwrap().apply(&deployment));
    let of_sets = Arc::clone(&seen);
    each(world, move |set| of_sets.lock().unwrap().apply_set(&set));
    seen
}

/// Looks at every state of every object of a kind, as long as the world lasts.
fn each<K>(world: &World, mut look: impl FnMut(K) + Send + 'static)
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    let objects: Api<K> = Api::namespaced(world.client.clone(), &world.namespace);
    world.spawn(async move {
        let mut events = watcher(objects, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event {
                look(object);
            }
        }
    });
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn wait_until_time(time: Duration) {
    std::thread::sleep(time.saturating_sub(since_1970()));
}

/// A minute as the plugin writes it.
fn shown(minute: u64) -> String {
    mortise_core::time::seconds(minute * 60_000)
}

/// Kills the host around a tick: once as it comes, then each time at some moment of its successor's first seconds.
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
        world.apply(&deployment(&world, name, json!({ASKS: "true", SCHEDULE: "* * * * *"})));
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
        world.until("every Deployment was restarted for the tick, and told of it", || {
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
