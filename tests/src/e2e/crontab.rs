//! CronTab end to end: ticks become Jobs, once each also when the host is killed, and by the concurrency policy; ended
//! Jobs are pruned. The shortest schedule is a minute, so the tests that need ticks wait for up to three; the others
//! put the status into the past, for a missed tick.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mortise_core::time;
use serde_json::{Value, json};

use super::world::{World, built};

/// A minute until the next tick, and ten seconds for its Job.
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

fn jobs(world: &World, crontab: &str) -> Vec<String> {
    let names = get(world, "jobs", "{.items[*].metadata.name}");
    names.split_whitespace().filter(|name| name.starts_with(&format!("{crontab}-"))).map(str::to_owned).collect()
}

fn active(world: &World, crontab: &str) -> Vec<String> {
    serde_json::from_str(&get(world, &format!("ct/{crontab}"), "{.status.active}")).unwrap_or_default()
}

fn minute(job: &str) -> u64 {
    job.rsplit_once('-').and_then(|(_, minute)| minute.parse().ok()).unwrap_or_else(|| panic!("{job} has no minute"))
}

/// A minute in the plugin's format.
pub fn shown(minute: u64) -> String {
    time::seconds(minute * 60_000)
}

pub fn minute_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60
}

/// Waits for an Event of a CronTab with this reason and message.
#[track_caller]
fn wait_for_event(world: &World, crontab: &str, reason: &str, message: &str) {
    let selector = format!("involvedObject.kind=CronTab,involvedObject.name={crontab},reason={reason}");
    let format = "jsonpath={range .items[*]}{.message}{\"\\n\"}{end}";
    world.until(&format!("{crontab} has the event {reason}: {message}"), || {
        let messages = world.kubectl_here(&["get", "events", "--field-selector", &selector, "-o", format]);
        messages.lines().any(|line| line == message).then_some(())
    });
}

/// Waits until the condition Ready has this reason. Returns its message.
fn wait_for_reason(world: &World, crontab: &str, reason: &str) -> String {
    world.until(&format!("{crontab} has the reason {reason}"), || {
        let ready = "{.status.conditions[?(@.type=='Ready')].reason}|{.status.conditions[?(@.type=='Ready')].message}";
        let found = get(world, &format!("crontab/{crontab}"), ready);
        found.strip_prefix(&format!("{reason}|")).map(str::to_owned)
    })
}

#[test]
fn a_tick_creates_a_job_with_a_pod_per_replica() {
    let world = World::with_plugin("crontab", "crontab");
    world.apply(&crontab(&world, "tab", json!({"cronSpec": " * * * * * ", "image": "cron", "replicas": 2})));
    let job =
        world.until_within(NEXT_TICK, "the next tick has its Job", &mut || jobs(&world, "tab").into_iter().next());
    let found: Value = serde_json::from_str(&world.kubectl_here(&["get", "job", &job, "-o", "json"])).unwrap();
    assert_eq!((&found["spec"]["parallelism"], &found["spec"]["completions"]), (&json!(2), &json!(2)), "{found:#}");
    assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "tab");
    let tick = found["metadata"]["annotations"]["stable.example.com/scheduled-at"].as_str().unwrap();
    assert_eq!(job, format!("tab-{}", minute(&job)), "the name has its CronTab and a minute");
    assert_eq!(shown(minute(&job)), tick, "and the minute is that of its tick");
    world.until("the status has the tick", || {
        (get(&world, "ct/tab", "{.status.lastScheduleTime}") == tick).then_some(())
    });
    wait_for_event(&world, "tab", "SuccessfulCreate", &format!("started the Job of {tick}"));
    world.kubectl_here(&["wait", "--for=condition=Ready", "ct/tab", "--timeout=60s"]);
    world.kubectl_here(&["wait", "--for=condition=Complete", &format!("job/{job}"), "--timeout=60s"]);
    assert_eq!(get(&world, &format!("job/{job}"), "{.status.succeeded}"), "2");
}

/// Cordons all Nodes, so that only the tests end Jobs.
fn keep_jobs_running(world: &World) {
    let nodes = world.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"]);
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    world.kubectl(&[&["cordon"], &nodes[..]].concat());
}

/// Ends a Job's Pod as a kubelet would, and waits until the Job controller has seen it.
fn end_job(world: &World, job: &str) {
    let of_job = format!("job-name={job}");
    let pod = world.until(&format!("{job} has its Pod"), || {
        let pods = world.kubectl_here(&["get", "pods", "-l", &of_job, "-o", "name"]);
        pods.lines().next().map(str::to_owned)
    });
    let succeeded = r#"{"status":{"phase":"Succeeded"}}"#;
    world.kubectl_here(&["patch", &pod, "--subresource=status", "--type=merge", "-p", succeeded]);
    world.kubectl_here(&["wait", "--for=condition=Complete", &format!("job/{job}"), "--timeout=60s"]);
}

/// Waits until the status has the newest tick with a Job, and the next one.
#[track_caller]
fn wait_for_status(world: &World, crontab: &str) {
    world.until(&format!("{crontab} has its newest tick and the next in its status"), || {
        let newest = minute(jobs(world, crontab).last()?);
        let found = get(world, &format!("ct/{crontab}"), "{.status.lastScheduleTime} {.status.nextScheduleTime}");
        (found == format!("{} {}", shown(newest), shown(newest + 1))).then_some(())
    });
}

#[test]
fn concurrency_policies_and_the_history_limit_hold_at_the_next_ticks() {
    let mut world = World::with_plugin("crontab-policies", "crontab");
    keep_jobs_running(&world);
    world.mark_audit();
    let tab = |name: &str, field: &str, value: Value| {
        crontab(&world, name, json!({"cronSpec": "* * * * *", "image": "cron", field: value}))
    };
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        tab("allow", "concurrencyPolicy", json!("Allow")), tab("forbid", "concurrencyPolicy", json!("Forbid")),
        tab("replace", "concurrencyPolicy", json!("Replace")), tab("history", "historyLimit", json!(1)),
    ]}));
    let [allowed, forbidding, replaced, ended] = ["allow", "forbid", "replace", "history"].map(|name| {
        let what = format!("{name} has its first Job in its status");
        world.until_within(NEXT_TICK, &what, &mut || active(&world, name).into_iter().next())
    });
    wait_for_status(&world, "allow");
    end_job(&world, &ended);
    world.until("an ended Job is no longer active", || active(&world, "history").is_empty().then_some(()));
    assert_eq!(jobs(&world, "history"), [ended.as_str()], "one is within the limit");

    // The second tick.
    let both = world.until_within(NEXT_TICK, "a second Job runs beside the first", &mut || {
        Some(active(&world, "allow")).filter(|active| active.len() > 1)
    });
    assert_eq!((&both[0], &both), (&allowed, &jobs(&world, "allow")), "the first one runs on");
    wait_for_status(&world, "allow");
    let second = minute(&both[1]);
    assert_replaced(&world, &replaced);
    assert_pruned_and_suspended(&world, &ended);
    let waits = wait_for_reason(&world, "forbid", "JobActive");
    assert!(waits.ends_with("waits until the running Jobs have ended"), "{waits}");

    // The third tick: the second one, which had to wait, is not made up for.
    let third = format!("the tick of {} waits until the running Jobs have ended", shown(second + 1));
    world.until_within(NEXT_TICK, "forbid waits with the next tick", &mut || {
        (wait_for_reason(&world, "forbid", "JobActive") >= third).then_some(())
    });
    assert_eq!(
        (jobs(&world, "forbid"), active(&world, "forbid")),
        (vec![forbidding.clone()], vec![forbidding.clone()])
    );
    let first_tick = shown(minute(&forbidding));
    assert_eq!(get(&world, "ct/forbid", "{.status.lastScheduleTime}"), first_tick, "no other tick had its Job");
    end_job(&world, &forbidding);
    let follower = world.until("the Job that waited runs", || active(&world, "forbid").into_iter().next());
    assert!(minute(&follower) > second, "{follower} is of a skipped tick");
    assert_eq!(jobs(&world, "forbid"), [forbidding, follower]);

    // A suspended one is not reconciled at its ticks, only at a change.
    world.kubectl_here(&["patch", "ct/history", "--type=merge", "-p", r#"{"spec":{"image":"cron:2"}}"#]);
    wait_until_seen(&world, "history");
    assert_eq!(jobs(&world, "history").len(), 1, "a suspended one has no Job of the third tick");
}

/// Replace at its second tick: another Job runs, which was created after the delete of the first.
fn assert_replaced(world: &World, first: &str) {
    let next = world.until_within(NEXT_TICK, "another Job runs instead of the first", &mut || {
        let (active, jobs) = (active(world, "replace"), jobs(world, "replace"));
        (active == jobs && jobs.len() == 1 && jobs[0] != first).then(|| jobs[0].clone())
    });
    world.until("the Pod of the first is gone with it", || {
        world.kubectl_here(&["get", "pods", "-l", &format!("job-name={first}"), "-o", "name"]).is_empty().then_some(())
    });
    let writes = world.writes_by_host();
    let written = |verb: &str, job: &str| {
        let is_it = |write: &mortise_control_plane::AuditRecord| {
            write.resource == "jobs" && write.verb == verb && write.name == job && write.code < 300
        };
        writes.iter().position(is_it).unwrap_or_else(|| panic!("no {verb} of {job}: {writes:#?}"))
    };
    assert!(written("delete", first) < written("create", &next), "{writes:#?}");
}

/// A history of one at its second tick, then suspended: of two ended Jobs the newer one stays.
fn assert_pruned_and_suspended(world: &World, first: &str) {
    let newest =
        world.until_within(NEXT_TICK, "the second Job runs", &mut || active(world, "history").into_iter().next());
    assert_eq!(jobs(world, "history"), [first, &newest], "a running Job does not count");
    world.kubectl_here(&["patch", "ct/history", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]);
    wait_for_reason(world, "history", "Suspended");
    end_job(world, &newest);
    world.until("the older one is pruned", || (jobs(world, "history") == [newest.as_str()]).then_some(()));
    assert_eq!(get(world, "ct/history", "{.status.nextScheduleTime}"), "");
}

#[test]
fn the_next_time_is_in_the_time_zone_and_the_tutorials_sample_works_unchanged() {
    let world = World::with_plugin("crontab-zone", "crontab");
    let noon = |name: &str, zone: Value| {
        crontab(&world, name, json!({"cronSpec": "0 12 * * *", "image": "cron", "timeZone": zone}))
    };
    world.until("admission refuses an unknown zone", || {
        let refusal = format!("{:#}", world.plane.apply(&noon("mars", json!("Mars/Olympus")).to_string()).err()?);
        (refusal.contains("spec.timeZone: Invalid value: ") && refusal.contains("Mars/Olympus")).then_some(())
    });
    // Neither has daylight saving time.
    for (name, zone, time) in [("utc", Value::Null, "T12:00:00Z"), ("kolkata", json!("Asia/Kolkata"), "T06:30:00Z")] {
        let before = shown(minute_now());
        world.apply(&noon(name, zone));
        wait_for_reason(&world, name, "Scheduled");
        let next = get(&world, &format!("ct/{name}"), "{.status.nextScheduleTime}");
        assert!(next.ends_with(time) && next > before, "{name}: {next}");
    }

    // Every minute of a Friday and of a Sunday, as the tutorial has it. 1970 began on a Thursday.
    let next_after = |now: u64| (now + 1..).find(|minute| matches!(minute / 1440 % 7, 1 | 3)).expect("a week has both");
    let before = minute_now();
    world.apply_sample("crontab");
    wait_for_reason(&world, "my-new-cron-object", "Scheduled");
    let next = get(&world, "ct/my-new-cron-object", "{.status.nextScheduleTime}");
    assert!((shown(next_after(before))..=shown(next_after(minute_now()))).contains(&next), "{next}");
    let defaults =
        get(&world, "ct/my-new-cron-object", "{.spec.replicas} {.spec.concurrencyPolicy} {.spec.historyLimit}");
    assert_eq!(defaults, "1 Allow 3");
}

#[test]
fn an_invalid_schedule_is_refused_and_reported_if_it_is_stored_already() {
    let world = World::with_plugin("crontab-broken", "crontab");
    let broken = crontab(&world, "broken", json!({"cronSpec": "61 * * * *", "image": "cron"}));
    let why = "\"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59";
    world.until("admission refuses it", || {
        let refusal = format!("{:#}", world.plane.apply(&broken.to_string()).err()?);
        refusal.contains(&format!("spec.cronSpec: Invalid value: {why}")).then_some(())
    });
    world.withdraw("crontab");
    world.until("without the webhook it is stored", || world.plane.apply(&broken.to_string()).ok());
    world.offer("crontab", &built("plugins/crontab.wasm"));
    assert_eq!(wait_for_reason(&world, "broken", "InvalidSchedule"), why);
}

/// A suspended yearly CronTab whose newest tick with a Job was in 2020.
fn suspended_since_2020(world: &World) -> Value {
    let tab = crontab(world, "tab", json!({"cronSpec": "@yearly", "image": "cron:1", "suspend": true}));
    world.apply(&tab);
    wait_for_reason(world, "tab", "Suspended");
    assert_eq!(get(world, "ct/tab", "{.status.nextScheduleTime}"), "", "a suspended one has no next tick");
    let past = r#"{"status":{"lastScheduleTime":"2020-01-01T00:00:00Z"}}"#;
    world.kubectl_here(&["patch", "ct/tab", "--subresource=status", "--type=merge", "-p", past]);
    tab
}

#[test]
fn a_tick_that_was_missed_has_one_job_however_often_the_host_dies() {
    let mut world = World::with_plugin("crontab-missed", "crontab");
    let mut tab = suspended_since_2020(&world);
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
        // Before the kill, since without a host admission would refuse the change.
        tab["spec"]["image"] = json!(image);
        world.apply(&tab);
        world.kill_host();
        world.start_host();
        wait_until_seen(&world, "tab");
        assert_eq!(get(&world, "ct/tab", "{.status.lastScheduleTime}"), tick);
        assert_eq!((jobs(&world, "tab"), uid(&world)), (vec![of_this_year.clone()], before.clone()));
    }
    world.kubectl_here(&["delete", "job", &of_this_year]);
    tab["spec"]["image"] = json!("cron:4");
    world.apply(&tab);
    wait_until_seen(&world, "tab");
    assert_eq!(jobs(&world, "tab"), [""; 0], "a deleted Job is not created again");
}

#[test]
fn a_tick_that_was_missed_by_more_than_the_deadline_has_no_job_and_is_reported() {
    let world = World::with_plugin("crontab-deadline", "crontab");
    let mut tab = suspended_since_2020(&world);
    tab["spec"]["suspend"] = json!(false);
    tab["spec"]["startingDeadlineSeconds"] = json!(60);
    world.apply(&tab);
    wait_for_reason(&world, "tab", "Scheduled");
    let next = get(&world, "ct/tab", "{.status.nextScheduleTime}");
    let year: u32 = next.split('-').next().and_then(|year| year.parse().ok()).unwrap_or_else(|| panic!("{next}"));
    let tick = format!("{}-01-01T00:00:00Z", year - 1);
    let why = format!("the tick of {tick} was missed by more than spec.startingDeadlineSeconds");
    wait_for_event(&world, "tab", "MissedSchedule", &why);
    assert_eq!(jobs(&world, "tab"), [""; 0]);
    assert_eq!(get(&world, "ct/tab", "{.status.lastScheduleTime}"), "2020-01-01T00:00:00Z");

    tab["spec"].as_object_mut().unwrap().remove("startingDeadlineSeconds");
    world.apply(&tab);
    world.until("without a deadline it has its Job", || {
        (get(&world, "ct/tab", "{.status.lastScheduleTime}") == tick && jobs(&world, "tab").len() == 1).then_some(())
    });
    let missed =
        format!("only the newest tick runs, that of {tick}; ticks before it that were missed: {}", year - 2022);
    wait_for_event(&world, "tab", "MissedSchedule", &missed);
}

/// Waits until the status is of the current generation.
fn wait_until_seen(world: &World, crontab: &str) {
    world.until("the host has seen the change", || {
        let observed = "{.metadata.generation} {.status.conditions[?(@.type=='Ready')].observedGeneration}";
        let seen = get(world, &format!("ct/{crontab}"), observed);
        let (generation, observed) = seen.split_once(' ')?;
        (generation == observed).then_some(())
    });
}
