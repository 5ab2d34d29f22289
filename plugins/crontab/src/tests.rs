//! CronTab as its users see it, run natively, with the test's clock.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Json, Outcome, RawJson, Status, Timestamp, Value, json};

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

/// What one call is given.
struct Given {
    cluster: Cluster,
    tab: CronTab,
}

impl Given {
    fn of(fields: Value) -> Self {
        Self { cluster: Cluster::of(&PLUGIN), tab: tab(fields) }
    }

    /// The status has this as the last tick.
    fn recorded(mut self, tick: &str) -> Self {
        let status = CronTabStatus { last_schedule_time: Timestamp::parse(tick), ..CronTabStatus::default() };
        self.tab.status = Status::of(status);
        self
    }

    /// The Job of a tick is there, with these fields.
    fn job(mut self, tick: &str, mut job: Value) -> Self {
        (job["apiVersion"], job["kind"]) = ("batch/v1".into(), "Job".into());
        self.cluster.add_child(&self.tab, &key(tick), &job);
        self
    }

    fn at(&mut self, time: &str) -> Outcome<Value> {
        self.cluster.set_now_unix_ms(ms(time));
        self.cluster.reconcile(&self.tab).unwrap()
    }
}

fn running() -> Value {
    json!({})
}

/// A Job that has ended, as the Job controller says it.
fn ended(how: &str) -> Value {
    let failure_target = json!({"type": "FailureTarget", "status": "True"});
    json!({"status": {"conditions": [failure_target, {"type": how, "status": "True"}]}})
}

fn deleted() -> Value {
    json!({"metadata": {"deletionTimestamp": NOON}})
}

/// The key of a tick's Job.
fn key(tick: &str) -> String {
    (ms(tick) / 60_000).to_string()
}

/// The name of a tick's Job.
fn name(tick: &str) -> String {
    format!("tab-{}", key(tick))
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
    let first = Given::of(json!({"replicas": 3})).at(NOON);
    assert_eq!(events(&first), [("SuccessfulCreate", "started the Job of 2026-01-01T12:00:00Z")]);
    assert_eq!(
        first.status_value(),
        json!({"nextScheduleTime": FIVE_PAST, "active": []}),
        "a tick is recorded once its Job is seen"
    );
    assert_eq!(first.child_keys(), ["29454480"]);
    let job = first.child("29454480").unwrap();
    assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch/v1"), &json!("Job")));
    assert_eq!(job["metadata"]["name"], "tab-29454480");
    assert_eq!((&job["spec"]["parallelism"], &job["spec"]["completions"]), (&json!(3), &json!(3)));
    assert_eq!(job["spec"]["template"]["spec"]["containers"], json!([{"name": "cron", "image": "cron:1"}]));
    assert_eq!(job["metadata"]["annotations"]["stable.example.com/scheduled-at"], NOON);

    let next = Given::of(json!({"replicas": 3})).job(NOON, running()).at(NOON);
    let status = json!({"lastScheduleTime": NOON, "nextScheduleTime": FIVE_PAST, "active": ["tab-29454480"]});
    assert_eq!(next.status_value(), status);
    assert_eq!(ready(&next), ("Scheduled", "the next tick is at 2026-01-01T12:05:00Z"));
    assert_eq!((events(&next), next.child_keys()), (vec![], vec!["29454480"]));
}

#[test]
fn between_ticks_nothing_happens_until_the_next_one() {
    let before = Given::of(json!({})).at("2026-01-01T11:59:59Z");
    assert_eq!(before.child_keys(), [""; 0]);
    assert_eq!(before.status_value(), json!({"nextScheduleTime": NOON, "active": []}));
    assert_eq!(before.requeue_after.unwrap().as_millis(), 1_000);
    let mut given = Given::of(json!({})).job(NOON, running()).recorded(NOON);
    let between = given.at("2026-01-01T12:04:59.500Z");
    assert_eq!(between.child_keys(), [key(NOON)]);
    assert_eq!(between.requeue_after.unwrap().as_millis(), 500);
    assert_eq!(given.at(FIVE_PAST).child_keys(), [key(NOON), key(FIVE_PAST)]);
}

#[test]
fn a_tick_that_has_had_its_job_never_gets_another() {
    let later = "2026-01-01T12:01:00Z";
    let gone = Given::of(json!({})).recorded(NOON).at(later);
    assert_eq!(gone.child_keys(), [""; 0], "the status has the tick");
    let there = Given::of(json!({})).job(NOON, running()).at(later);
    assert_eq!(there.child_keys(), [key(NOON)]);
    assert_eq!(there.status_value()["lastScheduleTime"], NOON, "the Job has the tick");
    let leaving = Given::of(json!({})).job(NOON, deleted()).at(later);
    assert_eq!(leaving.child_keys(), [""; 0], "a Job that is being deleted is not created again");
    assert_eq!(leaving.status_value()["active"], json!([]));
    assert_eq!(leaving.status_value()["lastScheduleTime"], NOON);
}

#[test]
fn after_an_outage_only_the_newest_missed_tick_runs_and_an_event_says_so() {
    // Thirty days.
    let outcome = Given::of(json!({})).job(NOON, running()).recorded(NOON).at("2026-01-31T12:02:00Z");
    let missed = "only the newest tick runs, that of 2026-01-31T12:00:00Z; ticks before it that were missed: 8639";
    assert_eq!(events(&outcome)[1], ("MissedSchedule", missed));
    assert_eq!(outcome.child_keys(), [key(NOON), key("2026-01-31T12:00:00Z")]);
    assert_eq!(outcome.status_value()["nextScheduleTime"], "2026-01-31T12:05:00Z");
}

#[test]
fn a_tick_beyond_its_deadline_does_not_run() {
    let mut given = Given::of(json!({"startingDeadlineSeconds": 30}));
    let late = given.at("2026-01-01T12:00:30.001Z");
    assert_eq!(late.child_keys(), [""; 0]);
    let why = "the tick of 2026-01-01T12:00:00Z was missed by more than spec.startingDeadlineSeconds";
    assert_eq!(events(&late), [("MissedSchedule", why)]);
    assert_eq!(late.status_value(), json!({"nextScheduleTime": FIVE_PAST, "active": []}));
    assert_eq!(given.at("2026-01-01T12:05:30Z").child_keys(), [key(FIVE_PAST)], "just in time");
}

#[test]
fn allow_runs_jobs_beside_each_other() {
    let mut given = Given::of(json!({})).job(NOON, running()).job(FIVE_PAST, running());
    let outcome = given.at(FIVE_PAST);
    assert_eq!(outcome.child_keys(), [key(NOON), key(FIVE_PAST)]);
    assert_eq!(outcome.status_value()["active"], json!([name(NOON), name(FIVE_PAST)]));
}

#[test]
fn forbid_waits_for_the_running_job_and_then_runs_the_newest_tick() {
    let given = || Given::of(json!({"concurrencyPolicy": "Forbid"})).recorded(NOON);
    let waiting = given().job(NOON, running()).at(TEN_PAST);
    assert_eq!(waiting.child_keys(), [key(NOON)]);
    assert_eq!(
        ready(&waiting),
        ("JobActive", "the tick of 2026-01-01T12:10:00Z waits until the running Jobs have ended")
    );
    assert_eq!(waiting.status_value()["lastScheduleTime"], NOON);
    let next = given().job(NOON, ended("Failed")).at("2026-01-01T12:12:00Z");
    assert_eq!(next.child_keys(), [key(NOON), key(TEN_PAST)]);
    assert_eq!(next.status_value()["active"], json!([]));

    let fields = json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 60});
    let late = Given::of(fields).job(NOON, ended("Complete")).recorded(NOON).at("2026-01-01T12:07:00Z");
    assert_eq!(late.child_keys(), [key(NOON)], "the deadline counts while it waits");
}

#[test]
fn replace_deletes_the_running_job_before_its_own_begins() {
    let given = || Given::of(json!({"concurrencyPolicy": "Replace"})).recorded(NOON);
    let replacing = given().job(NOON, running()).at(FIVE_PAST);
    assert_eq!(replacing.child_keys(), [""; 0]);
    assert_eq!(ready(&replacing), ("Replacing", "the running Jobs make room for the tick of 2026-01-01T12:05:00Z"));
    assert_eq!(given().at(FIVE_PAST).child_keys(), [key(FIVE_PAST)]);
    let outcome = given().job(NOON, ended("Complete")).at(FIVE_PAST);
    assert_eq!(outcome.child_keys(), [key(NOON), key(FIVE_PAST)], "a finished Job is not replaced");
}

#[test]
fn the_newest_finished_jobs_are_kept_and_running_ones_always() {
    let times: Vec<String> = (0..6).map(|n| format!("2026-01-01T12:{:02}:00Z", n * 5)).collect();
    let given = |jobs: &[usize]| {
        jobs.iter().fold(Given::of(json!({"historyLimit": 2})).recorded(&times[5]), |given, n| match n {
            1 => given.job(&times[1], running()),
            4 => given.job(&times[4], ended("Failed")),
            _ => given.job(&times[*n], ended("Complete")),
        })
    };
    for jobs in [&[0, 1, 2, 3, 4, 5][..], &[1, 4, 5]] {
        let outcome = given(jobs).at("2026-01-01T12:26:00Z");
        assert_eq!(outcome.child_keys(), [1, 4, 5].map(|n: usize| key(&times[n])), "{jobs:?}");
        assert_eq!(outcome.status_value()["active"], json!([name(&times[1])]));
    }
}

#[test]
fn the_only_trace_of_a_tick_stays_until_the_status_has_it() {
    let given = || Given::of(json!({"historyLimit": 0})).job(NOON, ended("Complete"));
    let outcome = given().at(NOON);
    assert_eq!(outcome.child_keys(), ["29454480"], "the status does not have it yet");
    assert_eq!(outcome.requeue_after.unwrap().as_secs(), 1);
    let outcome = given().recorded(NOON).at("2026-01-01T12:00:01Z");
    assert_eq!(outcome.child_keys(), [""; 0]);
    assert_eq!(outcome.status_value()["lastScheduleTime"], NOON);
}

#[test]
fn a_changed_spec_does_not_change_existing_jobs() {
    let fields = json!({"image": "cron:2", "cronSpec": "@hourly"});
    let mut given = Given::of(fields).job(NOON, running()).recorded(NOON);
    let after = given.at("2026-01-01T12:01:00Z");
    let kept = json!({"apiVersion": "batch/v1", "kind": "Job"});
    assert_eq!(after.child("29454480").unwrap(), kept, "it is kept as it is");
    assert_eq!(after.status_value()["nextScheduleTime"], "2026-01-01T13:00:00Z");
    let next = given.at("2026-01-01T13:00:00Z");
    let job = next.child(&key("2026-01-01T13:00:00Z")).unwrap();
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "cron:2");
    assert_eq!(next.child("29454480").unwrap(), kept);
}

#[test]
fn a_suspended_crontab_starts_nothing_and_runs_the_newest_tick_afterwards() {
    let outcome = Given::of(json!({"suspend": true})).at(TEN_PAST);
    assert_eq!(outcome.child_keys(), [""; 0]);
    assert_eq!(ready(&outcome), ("Suspended", "spec.suspend is set: no Job is started"));
    assert_eq!((outcome.status_value(), outcome.requeue_after), (json!({"active": []}), None));
    assert_eq!(Given::of(json!({})).at("2026-01-01T12:11:00Z").child_keys(), [key(TEN_PAST)]);
}

#[test]
fn a_time_zone_is_respected_and_its_repeated_hour_runs_once() {
    let [first, repeated, next] = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"];
    let mut given = Given::of(json!({"cronSpec": "30 2 * * *", "timeZone": "Europe/Berlin"}));
    given.tab.metadata.creation_timestamp = Some("2026-10-24T12:00:00Z".to_owned());
    assert_eq!(given.at(first).child_keys(), [key(first)]);
    let mut given = given.recorded(first);
    assert_eq!(given.at(repeated).child_keys(), [""; 0]);
    assert_eq!(given.at(next).child_keys(), [key(next)]);
}

#[test]
fn an_invalid_expression_is_quoted_and_changes_no_jobs() {
    let mut given = Given::of(json!({})).job(NOON, running()).recorded(NOON);
    for (expression, zone, why) in [
        ("*/5 * * *", None, "\"*/5 * * *\" is not a cron expression: it has 4 fields"),
        ("61 * * * *", None, "\"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59"),
        ("@hourly", Some("Mars/Olympus"), "\"Mars/Olympus\" is not a time zone"),
    ] {
        given.tab.spec.cron_spec = expression.to_owned();
        given.tab.spec.time_zone = zone.map(str::to_owned);
        let outcome = given.at("2026-01-01T13:00:00Z");
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
    let outcome = Given::of(json!({"cronSpec": "0 0 30 2 *"})).at(NOON);
    assert_eq!(ready(&outcome), ("NeverFires", "\"0 0 30 2 *\" never fires again"));
    assert_eq!((outcome.is_ready(), outcome.requeue_after), (false, None));
}

#[test]
fn a_clock_that_steps_an_hour_either_way_runs_no_tick_twice() {
    let [one, two, three] = ["2026-01-01T13:00:00Z", "2026-01-01T14:00:00Z", "2026-01-01T15:00:00Z"];
    let mut given = Given::of(json!({"cronSpec": "@hourly"})).job(one, running()).recorded(one);
    let back = given.at(NOON);
    assert_eq!(back.child_keys(), [key(one)]);
    assert_eq!(back.status_value()["nextScheduleTime"], two);
    assert_eq!(back.requeue_after.unwrap().as_secs(), 2 * 3_600);
    assert_eq!(given.at(one).child_keys(), [key(one)]);
    assert_eq!(given.at(three).child_keys(), [key(one), key(three)]);
}

#[test]
fn the_job_of_a_crontab_with_a_long_name_is_named_by_the_host() {
    let mut given = Given::of(json!({}));
    let mut named = |length: usize| {
        given.tab.metadata.name = "x".repeat(length);
        given.at(NOON).child("29454480").unwrap()["metadata"]["name"].clone()
    };
    assert_eq!(named(54).as_str().map(str::len), Some(63));
    assert_eq!(named(55), Value::Null);
}

#[test]
fn a_job_whose_key_is_no_tick_is_ignored() {
    let mut given = Given::of(json!({}));
    let stranger = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "stranger"}});
    given.cluster.add_child(&given.tab, "backup", &stranger);
    let outcome = given.at("2026-01-01T11:59:59Z");
    assert_eq!(outcome.status_value(), json!({"nextScheduleTime": NOON, "active": []}));
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
