//! CronTab on the real control plane: ticks become Jobs that the Job controller runs, once each also across a killed host, and
//! an expression that means nothing is refused. The shortest schedule is a minute, so one tick is waited for; what else
//! systems.md says of CronTab is tested natively beside the plugin.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{World, built};

/// A minute until the next tick, and ten seconds for what follows from it.
const NEXT_TICK: Duration = Duration::from_secs(70);

fn crontab(world: &World, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "stable.example.com/v1beta1", "kind": "CronTab",
        "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
    })
}

fn get(world: &World, what: &str, path: &str) -> String {
    world.kubectl_here(&["get", what, "-o", &format!("jsonpath={path}")])
}

/// The names of the Jobs of a CronTab.
fn jobs(world: &World, crontab: &str) -> Vec<String> {
    let names = get(world, "jobs", "{.items[*].metadata.name}");
    names.split_whitespace().filter(|name| name.starts_with(&format!("{crontab}-"))).map(str::to_owned).collect()
}

/// Waits until the condition Ready has this reason; its message.
fn wait_for_reason(world: &World, crontab: &str, reason: &str) -> String {
    world.until(&format!("{crontab} says {reason}"), || {
        let ready = "{.status.conditions[?(@.type=='Ready')].reason}|{.status.conditions[?(@.type=='Ready')].message}";
        let told = get(world, &format!("crontab/{crontab}"), ready);
        told.strip_prefix(&format!("{reason}|")).map(str::to_owned)
    })
}

fn world_with_crontab(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host();
    world.offer("crontab", &built("plugins/crontab.wasm"));
    world.wait_ready("crontab");
    world
}

#[test]
fn a_tick_becomes_a_job_of_as_many_pods_as_replicas() {
    let world = world_with_crontab("crontab");
    world.apply(&crontab(&world, "tab", json!({"cronSpec": " * * * * * ", "image": "cron", "replicas": 2})));
    let job =
        world.until_within(NEXT_TICK, "the next tick has its Job", &mut || jobs(&world, "tab").into_iter().next());
    let found: Value = serde_json::from_str(&world.kubectl_here(&["get", "job", &job, "-o", "json"])).unwrap();
    assert_eq!((&found["spec"]["parallelism"], &found["spec"]["completions"]), (&json!(2), &json!(2)), "{found:#}");
    assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "tab");
    let tick = found["metadata"]["annotations"]["stable.example.com/scheduled-at"].as_str().unwrap();
    world.until("the status tells of the tick", || {
        (get(&world, "ct/tab", "{.status.lastScheduleTime}") == tick).then_some(())
    });
    world.kubectl_here(&["wait", "--for=condition=Ready", "ct/tab", "--timeout=60s"]);
    world.kubectl_here(&["wait", "--for=condition=Complete", &format!("job/{job}"), "--timeout=60s"]);
    assert_eq!(get(&world, &format!("job/{job}"), "{.status.succeeded}"), "2");
}

#[test]
fn a_schedule_that_means_nothing_is_refused_and_told_of_one_that_is_stored_already() {
    let world = world_with_crontab("crontab-broken");
    let broken = crontab(&world, "broken", json!({"cronSpec": "61 * * * *", "image": "cron"}));
    let why = "\"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59";
    world.until("the API server asks the plugin, and refuses it", || {
        let refusal = format!("{:#}", world.plane.apply(&broken.to_string()).err()?);
        refusal.contains(&format!("spec.cronSpec: Invalid value: {why}")).then_some(())
    });
    world.withdraw("crontab");
    world.until("nobody is asked any more", || world.plane.apply(&broken.to_string()).ok());
    world.offer("crontab", &built("plugins/crontab.wasm"));
    assert_eq!(wait_for_reason(&world, "broken", "InvalidSchedule"), why);
}

#[test]
fn a_tick_that_was_missed_has_one_job_however_often_the_host_dies() {
    let mut world = world_with_crontab("crontab-missed");
    let mut tab = crontab(&world, "tab", json!({"cronSpec": "@yearly", "image": "cron:1", "suspend": true}));
    world.apply(&tab);
    wait_for_reason(&world, "tab", "Suspended");
    let past = r#"{"status":{"lastScheduleTime":"2020-01-01T00:00:00Z"}}"#;
    world.kubectl_here(&["patch", "ct/tab", "--subresource=status", "--type=merge", "-p", past]);
    tab["spec"]["suspend"] = json!(false);
    world.apply(&tab);
    let of_this_year =
        world.until("the newest of the missed ticks has its Job", || jobs(&world, "tab").into_iter().next());
    let tick =
        get(&world, &format!("job/{of_this_year}"), "{.metadata.annotations.stable\\.example\\.com/scheduled-at}");
    assert!(tick.ends_with("-01-01T00:00:00Z"), "{tick}");
    let uid = |world: &World| get(world, &format!("job/{of_this_year}"), "{.metadata.uid}");
    let before = uid(&world);

    for image in ["cron:2", "cron:3"] {
        // Without a host the API server would have nobody to ask about the change.
        tab["spec"]["image"] = json!(image);
        world.apply(&tab);
        world.kill_host();
        world.start_host();
        wait_until_seen(&world);
        assert_eq!(get(&world, "ct/tab", "{.status.lastScheduleTime}"), tick);
        assert_eq!((jobs(&world, "tab"), uid(&world)), (vec![of_this_year.clone()], before.clone()));
    }
    world.kubectl_here(&["delete", "job", &of_this_year]);
    tab["spec"]["image"] = json!("cron:4");
    world.apply(&tab);
    wait_until_seen(&world);
    assert_eq!(jobs(&world, "tab"), [""; 0], "a Job that a person deleted does not come back");
}

/// Waits until the status is about the spec as it is.
fn wait_until_seen(world: &World) {
    world.until("the host has seen the change", || {
        let observed = "{.metadata.generation} {.status.conditions[?(@.type=='Ready')].observedGeneration}";
        let seen = get(world, "ct/tab", observed);
        let (generation, observed) = seen.split_once(' ')?;
        (generation == observed).then_some(())
    });
}
