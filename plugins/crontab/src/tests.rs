//! CronTab as its users see it, run natively, with the test's clock.

use std::collections::BTreeSet;

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Json, ObjectKey, Outcome, RawJson, Status, Timestamp, Value, json};

use super::{CronTab, CronTabStatus, PLUGIN};

fn ms(time: &str) -> u64 {
    Timestamp::parse(time).unwrap().unix_ms()
}

/// A CronTab of every fifth minute, created twenty seconds before the first tick of these tests, with these fields of
/// the spec.
fn tab(fields: Value) -> CronTab {
    let mut spec = json!({"cronSpec": " */5 * * * * ", "image": "cron:1"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let mut tab = CronTab::new("tab", RawJson::new(&spec).unwrap().parse().unwrap());
    tab.metadata.creation_timestamp = Some("2026-01-01T11:59:40Z".to_owned());
    tab
}

/// A CronTab in a cluster whose time the test advances. Outcomes change Jobs and status as the host would.
struct Story {
    cluster: Cluster,
    tab: CronTab,
}

impl Story {
    fn of(fields: Value) -> Self {
        Self { cluster: Cluster::of(&PLUGIN), tab: tab(fields) }
    }

    /// The outcome at this time, at the fixed point.
    fn at(&mut self, time: &str) -> Outcome<Value> {
        self.cluster.set_now_unix_ms(ms(time));
        // The second round is for what waits until the status is written.
        for _ in 0..2 {
            let outcome = self.cluster.settle(&self.tab).unwrap();
            self.record(&outcome);
        }
        let outcome = self.cluster.reconcile(&self.tab).unwrap();
        let jobs: BTreeSet<String> = self.jobs().into_iter().collect();
        if outcome.children.is_some() {
            let wanted = outcome.child_keys().into_iter().map(|key| format!("tab-{key}"));
            assert_eq!(wanted.collect::<BTreeSet<_>>(), jobs, "fixed point");
        }
        outcome
    }

    fn record(&mut self, outcome: &Outcome<Value>) {
        let status: CronTabStatus = RawJson::new(&outcome.status_value()).unwrap().parse().unwrap();
        self.tab.status = Status::of(status);
    }

    fn jobs(&self) -> Vec<String> {
        self.cluster
            .objects("Job")
            .into_iter()
            .map(|job| job["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn job(&self, name: &str) -> Value {
        let jobs = self.cluster.objects("Job");
        jobs.into_iter().find(|job| job["metadata"]["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    }

    /// Ends a Job as the Job controller does.
    fn end(&mut self, name: &str, how: &str) {
        let mut job = self.job(name);
        let failure_target = json!({"type": "FailureTarget", "status": "True"});
        job["status"]["conditions"] = json!([failure_target, {"type": how, "status": "True"}]);
        self.cluster.add(&job);
    }

    fn delete(&mut self, name: &str) {
        let namespace = self.tab.metadata.namespace.as_deref();
        assert!(self.cluster.remove(&ObjectKey::new("batch/v1", "Job", namespace, name)), "{name}");
    }
}

/// The Job of a tick.
fn name(tick: &str) -> String {
    format!("tab-{}", ms(tick) / 60_000)
}

fn ready(outcome: &Outcome<Value>) -> (&str, &str) {
    let ready = outcome.condition_of("Ready").unwrap();
    (&ready.reason, &ready.message)
}

fn events(outcome: &Outcome<Value>) -> Vec<(&str, &str)> {
    outcome.events.iter().map(|event| (event.reason.as_str(), event.message.as_str())).collect()
}

const NOON: &str = "2026-01-01T12:00:00Z";
const FIVE_PAST: &str = "2026-01-01T12:05:00Z";
const TEN_PAST: &str = "2026-01-01T12:10:00Z";

#[test]
fn a_tick_gets_one_job_with_replicas_pods_named_after_the_crontab_and_the_minute() {
    let mut story = Story::of(json!({"replicas": 3}));
    story.cluster.set_now_unix_ms(ms(NOON));
    let first = story.cluster.reconcile(&story.tab).unwrap();
    assert_eq!(events(&first), [("SuccessfulCreate", "started the Job of 2026-01-01T12:00:00Z")]);
    assert_eq!(
        first.status_value(),
        json!({"nextScheduleTime": FIVE_PAST, "active": []}),
        "a tick is recorded once its Job is seen"
    );

    let outcome = story.at(NOON);
    assert_eq!(story.jobs(), ["tab-29454480"]);
    let job = story.job("tab-29454480");
    assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch/v1"), &json!("Job")));
    assert_eq!((&job["spec"]["parallelism"], &job["spec"]["completions"]), (&json!(3), &json!(3)));
    assert_eq!(job["spec"]["template"]["spec"]["containers"], json!([{"name": "cron", "image": "cron:1"}]));
    assert_eq!(job["metadata"]["annotations"]["stable.example.com/scheduled-at"], NOON);
    let status = json!({"lastScheduleTime": NOON, "nextScheduleTime": FIVE_PAST, "active": ["tab-29454480"]});
    assert_eq!(outcome.status_value(), status);
    assert_eq!(ready(&outcome), ("Scheduled", "the next tick is at 2026-01-01T12:05:00Z"));
    assert_eq!(events(&outcome), []);
}

#[test]
fn between_ticks_nothing_happens_until_the_next_one() {
    let mut story = Story::of(json!({}));
    let outcome = story.at("2026-01-01T11:59:59Z");
    assert_eq!(outcome.child_keys(), [""; 0]);
    assert_eq!(outcome.status_value(), json!({"nextScheduleTime": NOON, "active": []}));
    assert_eq!(outcome.requeue_after.unwrap().as_millis(), 1_000);
    story.at(NOON);
    let outcome = story.at("2026-01-01T12:04:59.500Z");
    assert_eq!(story.jobs(), [name(NOON)]);
    assert_eq!(outcome.requeue_after.unwrap().as_millis(), 500);
    story.at(FIVE_PAST);
    assert_eq!(story.jobs(), [name(NOON), name(FIVE_PAST)]);
}

#[test]
fn a_tick_that_has_had_its_job_never_gets_another() {
    let mut story = Story::of(json!({}));
    story.at(NOON);
    story.delete(&name(NOON));
    assert_eq!(story.at("2026-01-01T12:01:00Z").child_keys(), [""; 0], "the status has the tick");

    let mut story = Story::of(json!({}));
    story.at(NOON);
    story.tab.status = Status::none();
    let outcome = story.at("2026-01-01T12:01:00Z");
    assert_eq!(outcome.status_value()["lastScheduleTime"], NOON, "the Job has the tick");
    assert_eq!(story.jobs(), [name(NOON)]);
    let mut deleted = story.job(&name(NOON));
    deleted["metadata"]["deletionTimestamp"] = NOON.into();
    story.cluster.add(&deleted);
    story.tab.status = Status::none();
    story.cluster.set_now_unix_ms(ms("2026-01-01T12:02:00Z"));
    let outcome = story.cluster.reconcile(&story.tab).unwrap();
    assert_eq!(outcome.child_keys(), [""; 0], "a Job that is being deleted is not created again");
    assert_eq!(outcome.status_value()["active"], json!([]));
    assert_eq!(outcome.status_value()["lastScheduleTime"], NOON);
}

#[test]
fn after_an_outage_only_the_newest_missed_tick_runs_and_an_event_says_so() {
    let mut story = Story::of(json!({}));
    story.at(NOON);
    // Thirty days.
    story.cluster.set_now_unix_ms(ms("2026-01-31T12:02:00Z"));
    let outcome = story.cluster.reconcile(&story.tab).unwrap();
    let missed = "only the newest tick runs, that of 2026-01-31T12:00:00Z; ticks before it that were missed: 8639";
    assert_eq!(events(&outcome)[1], ("MissedSchedule", missed));
    let outcome = story.at("2026-01-31T12:02:00Z");
    assert_eq!(story.jobs(), [name(NOON), name("2026-01-31T12:00:00Z")]);
    assert_eq!(outcome.status_value()["nextScheduleTime"], "2026-01-31T12:05:00Z");
}

#[test]
fn a_tick_beyond_its_deadline_does_not_run() {
    let mut story = Story::of(json!({"startingDeadlineSeconds": 30}));
    let late = story.at("2026-01-01T12:00:30.001Z");
    assert_eq!(story.jobs(), [""; 0]);
    let why = "the tick of 2026-01-01T12:00:00Z was missed by more than spec.startingDeadlineSeconds";
    assert_eq!(events(&late), [("MissedSchedule", why)]);
    assert_eq!(late.status_value(), json!({"nextScheduleTime": FIVE_PAST, "active": []}));
    story.at("2026-01-01T12:05:30Z");
    assert_eq!(story.jobs(), [name(FIVE_PAST)], "just in time");
}

#[test]
fn allow_runs_jobs_beside_each_other() {
    let mut story = Story::of(json!({}));
    story.at(NOON);
    let outcome = story.at(FIVE_PAST);
    assert_eq!(outcome.status_value()["active"], json!([name(NOON), name(FIVE_PAST)]));
}

#[test]
fn forbid_waits_for_the_running_job_and_then_runs_the_newest_tick() {
    let mut story = Story::of(json!({"concurrencyPolicy": "Forbid"}));
    story.at(NOON);
    story.at(FIVE_PAST);
    let outcome = story.at(TEN_PAST);
    assert_eq!(story.jobs(), [name(NOON)]);
    assert_eq!(
        ready(&outcome),
        ("JobActive", "the tick of 2026-01-01T12:10:00Z waits until the running Jobs have ended")
    );
    assert_eq!(outcome.status_value()["lastScheduleTime"], NOON);
    story.end(&name(NOON), "Failed");
    let outcome = story.at("2026-01-01T12:12:00Z");
    assert_eq!(story.jobs(), [name(NOON), name(TEN_PAST)]);
    assert_eq!(outcome.status_value()["active"], json!([name(TEN_PAST)]));

    let mut story = Story::of(json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 60}));
    story.at(NOON);
    story.at(FIVE_PAST);
    story.end(&name(NOON), "Complete");
    story.at("2026-01-01T12:07:00Z");
    assert_eq!(story.jobs(), [name(NOON)], "the deadline counts while it waits");
}

#[test]
fn replace_deletes_the_running_job_before_its_own_begins() {
    let mut story = Story::of(json!({"concurrencyPolicy": "Replace"}));
    story.at(NOON);
    story.cluster.set_now_unix_ms(ms(FIVE_PAST));
    let outcome = story.cluster.reconcile(&story.tab).unwrap();
    assert_eq!(outcome.child_keys(), [""; 0]);
    assert_eq!(ready(&outcome), ("Replacing", "the running Jobs make room for the tick of 2026-01-01T12:05:00Z"));
    let outcome = story.at(FIVE_PAST);
    assert_eq!(story.jobs(), [name(FIVE_PAST)]);
    assert_eq!(outcome.status_value()["lastScheduleTime"], FIVE_PAST);
    story.end(&name(FIVE_PAST), "Complete");
    story.at(TEN_PAST);
    assert_eq!(story.jobs(), [name(FIVE_PAST), name(TEN_PAST)], "a finished Job is not replaced");
}

#[test]
fn the_newest_finished_jobs_are_kept_and_running_ones_always() {
    let mut story = Story::of(json!({"historyLimit": 2}));
    let times: Vec<String> = (0..6).map(|n| format!("2026-01-01T12:{:02}:00Z", n * 5)).collect();
    for (n, time) in times.iter().enumerate() {
        story.at(time);
        // The second one never ends.
        if n != 1 {
            story.end(&name(time), if n == 4 { "Failed" } else { "Complete" });
        }
    }
    let outcome = story.at("2026-01-01T12:26:00Z");
    assert_eq!(story.jobs(), [name(&times[1]), name(&times[4]), name(&times[5])]);
    assert_eq!(outcome.status_value()["active"], json!([name(&times[1])]));
    for _ in 0..3 {
        story.at("2026-01-01T12:27:00Z");
        assert_eq!(story.jobs().len(), 3, "no deleted Job is created again");
    }
}

#[test]
fn the_only_trace_of_a_tick_stays_until_the_status_has_it() {
    let mut story = Story::of(json!({"historyLimit": 0}));
    story.cluster.set_now_unix_ms(ms(NOON));
    story.cluster.settle(&story.tab).unwrap();
    story.end(&name(NOON), "Complete");
    let outcome = story.cluster.reconcile(&story.tab).unwrap();
    assert_eq!(outcome.child_keys(), ["29454480"], "the status does not have it yet");
    assert_eq!(outcome.requeue_after.unwrap().as_secs(), 1);
    story.record(&outcome);
    let outcome = story.at("2026-01-01T12:00:01Z");
    assert_eq!(story.jobs(), [""; 0]);
    assert_eq!(outcome.status_value()["lastScheduleTime"], NOON);
}

#[test]
fn a_changed_spec_does_not_change_existing_jobs() {
    let mut story = Story::of(json!({"replicas": 2}));
    story.at(NOON);
    let before = story.job(&name(NOON));
    story.tab.spec.image = "cron:2".to_owned();
    story.tab.spec.cron_spec = "@hourly".to_owned();
    let after = story.at("2026-01-01T12:01:00Z");
    let kept = json!({"apiVersion": "batch/v1", "kind": "Job"});
    assert_eq!(after.child("29454480").unwrap(), kept, "it is kept as it is");
    assert_eq!(after.status_value()["nextScheduleTime"], "2026-01-01T13:00:00Z");
    story.at("2026-01-01T13:00:00Z");
    let job = story.job(&name("2026-01-01T13:00:00Z"));
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "cron:2");
    assert_eq!(story.job(&name(NOON)), before);
}

#[test]
fn a_suspended_crontab_starts_nothing_and_runs_the_newest_tick_afterwards() {
    let mut story = Story::of(json!({"suspend": true}));
    let outcome = story.at(TEN_PAST);
    assert_eq!(story.jobs(), [""; 0]);
    assert_eq!(ready(&outcome), ("Suspended", "spec.suspend is set: no Job is started"));
    assert_eq!((outcome.status_value(), outcome.requeue_after), (json!({"active": []}), None));
    story.tab.spec.suspend = false;
    story.at("2026-01-01T12:11:00Z");
    assert_eq!(story.jobs(), [name(TEN_PAST)]);
}

#[test]
fn a_time_zone_is_respected_and_its_repeated_hour_runs_once() {
    let mut story = Story::of(json!({"cronSpec": "30 2 * * *", "timeZone": "Europe/Berlin"}));
    story.tab.metadata.creation_timestamp = Some("2026-10-24T12:00:00Z".to_owned());
    for (time, jobs) in [("2026-10-25T00:30:00Z", 1), ("2026-10-25T01:30:00Z", 1), ("2026-10-26T01:30:00Z", 2)] {
        story.at(time);
        assert_eq!(story.jobs().len(), jobs, "{time}");
    }
}

#[test]
fn an_invalid_expression_is_quoted_and_changes_no_jobs() {
    let mut story = Story::of(json!({}));
    story.at(NOON);
    for (expression, zone, why) in [
        ("*/5 * * *", None, "\"*/5 * * *\" is not a cron expression: it has 4 fields"),
        ("61 * * * *", None, "\"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59"),
        ("@hourly", Some("Mars/Olympus"), "\"Mars/Olympus\" is not a time zone"),
    ] {
        story.tab.spec.cron_spec = expression.to_owned();
        story.tab.spec.time_zone = zone.map(str::to_owned);
        let outcome = story.at("2026-01-01T13:00:00Z");
        assert_eq!(outcome.children, None);
        assert_eq!(outcome.status_value(), json!({"lastScheduleTime": NOON, "active": [name(NOON)]}));
        let (reason, message) = ready(&outcome);
        assert_eq!(reason, "InvalidSchedule");
        assert!(message.starts_with(why), "{message}");
        assert!(!outcome.is_ready());
    }
}

#[test]
fn a_schedule_that_never_fires_says_so() {
    let outcome = Story::of(json!({"cronSpec": "0 0 30 2 *"})).at(NOON);
    assert_eq!(ready(&outcome), ("NeverFires", "\"0 0 30 2 *\" never fires again"));
    assert_eq!((outcome.is_ready(), outcome.requeue_after), (false, None));
}

#[test]
fn a_clock_that_steps_an_hour_either_way_runs_no_tick_twice() {
    let mut story = Story::of(json!({"cronSpec": "@hourly"}));
    story.at("2026-01-01T13:00:00Z");
    let back = story.at(NOON);
    assert_eq!(story.jobs(), [name("2026-01-01T13:00:00Z")]);
    assert_eq!(back.status_value()["nextScheduleTime"], "2026-01-01T14:00:00Z");
    assert_eq!(back.requeue_after.unwrap().as_secs(), 2 * 3_600);
    story.at("2026-01-01T13:00:00Z");
    assert_eq!(story.jobs(), [name("2026-01-01T13:00:00Z")]);
    story.at("2026-01-01T15:00:00Z");
    assert_eq!(story.jobs(), [name("2026-01-01T13:00:00Z"), name("2026-01-01T15:00:00Z")]);
}

#[test]
fn the_job_of_a_crontab_with_a_long_name_is_named_by_the_host() {
    let mut story = Story::of(json!({}));
    story.tab.metadata.name = "x".repeat(54);
    story.cluster.set_now_unix_ms(ms(NOON));
    let named = |story: &Story| {
        story.cluster.reconcile(&story.tab).unwrap().child("29454480").unwrap()["metadata"]["name"].clone()
    };
    assert_eq!(named(&story).as_str().map(str::len), Some(63));
    story.tab.metadata.name.push('x');
    assert_eq!(named(&story), Value::Null);
}

#[test]
fn a_job_whose_key_is_no_tick_is_ignored() {
    let mut story = Story::of(json!({}));
    let stranger = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "stranger"}});
    story.cluster.add_child(&story.tab, "backup", &stranger);
    let outcome = story.at("2026-01-01T11:59:59Z");
    assert_eq!(outcome.status_value(), json!({"nextScheduleTime": NOON, "active": []}));
}

/// Pseudorandom numbers, the same in every run.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn however_often_the_host_dies_no_tick_runs_twice_and_none_that_it_saw_is_lost() {
    let policies =
        [json!({"historyLimit": 0}), json!({"concurrencyPolicy": "Replace"}), json!({"concurrencyPolicy": "Forbid"})];
    for (n, fields) in policies.into_iter().enumerate() {
        let (mut story, mut seed, mut now) = (Story::of(fields.clone()), n as u64, ms(NOON));
        story.tab.spec.cron_spec = "* * * * *".to_owned();
        let (mut ran, mut ended, mut expected) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for _ in 0..500 {
            now += draw(&mut seed) % 40_000;
            story.cluster.set_now_unix_ms(now);
            let before: BTreeSet<String> = story.jobs().into_iter().collect();
            // The host dies before its writes, after some of them, or not at all.
            let outcome = story.cluster.reconcile(&story.tab).unwrap();
            match draw(&mut seed) % 4 {
                0 => continue,
                1 => drop(story.cluster.settle(&story.tab).unwrap()),
                _ => {
                    let settled = story.cluster.settle(&story.tab).unwrap();
                    story.record(&settled);
                    if !matches!(ready(&outcome).0, "JobActive") {
                        expected.insert(now / 60_000);
                    }
                }
            }
            for job in story.jobs() {
                let is_new = !before.contains(&job) || ended.contains(&job) && story.job(&job)["status"].is_null();
                assert!(!is_new || ran.insert(job.clone()), "{job} ran twice: {fields}");
                if draw(&mut seed).is_multiple_of(2) {
                    story.end(&job, "Complete");
                    ended.insert(job);
                }
            }
        }
        let lost: Vec<u64> = expected.into_iter().filter(|minute| !ran.contains(&format!("tab-{minute}"))).collect();
        assert_eq!(lost, [0; 0], "{fields}");
        assert!(ran.len() > 100, "{} Jobs: {fields}", ran.len());
    }
}

#[test]
fn the_custom_resource_is_what_the_tutorial_has() {
    let manifest: Value = Json::raw(PLUGIN.manifest()).value().unwrap();
    let resource = &manifest["customResources"][0];
    assert_eq!(resource["metadata"]["name"], "crontabs.stable.example.com");
    let names = json!({"kind": "CronTab", "listKind": "CronTabList", "plural": "crontabs", "singular": "crontab",
        "shortNames": ["ct"]});
    assert_eq!(resource["spec"]["names"], names);
    assert_eq!(
        (&resource["spec"]["scope"], &resource["spec"]["versions"][0]["name"]),
        (&json!("Namespaced"), &json!("v1beta1"))
    );
    let schema = &resource["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let spec = &schema["spec"]["properties"];
    assert_eq!(schema["spec"]["required"], json!(["cronSpec", "image"]));
    assert_eq!((&spec["replicas"]["default"], &spec["historyLimit"]["default"]), (&json!(1), &json!(3)));
    assert_eq!(spec["concurrencyPolicy"]["default"], "Allow");
    assert_eq!(spec["concurrencyPolicy"]["enum"], json!(["Allow", "Forbid", "Replace"]));
    assert_eq!(spec["replicas"]["minimum"], 0);
    assert_eq!(schema["status"]["properties"]["lastScheduleTime"]["format"], "date-time");
}

#[test]
fn an_invalid_schedule_is_refused_with_its_field() {
    let cluster = Cluster::of(&PLUGIN);
    let refused = |fields: Value| cluster.create(&tab(fields)).unwrap_err().to_string();
    let minute = "spec.cronSpec: Invalid value: \"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59";
    assert_eq!(refused(json!({"cronSpec": "61 * * * *"})), minute);
    let zone = refused(json!({"timeZone": "Mars/Olympus"}));
    assert!(zone.starts_with("spec.timeZone: Invalid value: ") && zone.contains("Mars/Olympus"), "{zone}");
    assert_eq!(cluster.create(&tab(json!({}))).unwrap().warnings, [""; 0]);
    let never = cluster.create(&tab(json!({"cronSpec": "0 0 30 2 *"}))).unwrap();
    assert_eq!(never.warnings, ["spec.cronSpec never fires: 0 0 30 2 *"]);

    let (stored, other) = (tab(json!({"cronSpec": "x"})), tab(json!({"cronSpec": "x", "replicas": 2})));
    assert!(cluster.update(&stored, &other).is_ok(), "a stored schedule is checked when it changes");
    assert!(cluster.update(&tab(json!({})), &stored).is_err());
}
