//! Eru as its users see it, run natively, with the test's clock.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{ObjectKey, Outcome, RawJson, Status, Timestamp, Value, json};

use super::{Eru, EruStatus, PLUGIN};

const CREATED: &str = "2026-01-01T11:59:40Z";
const NOON: &str = "2026-01-01T12:00:00Z";
const FIVE_PAST: &str = "2026-01-01T12:05:00Z";
const HALF_PAST: &str = "2026-01-01T12:30:00Z";

fn ms(time: &str) -> u64 {
    Timestamp::parse(time).unwrap().unix_ms()
}

/// A Deployment with annotations and other fields of its spec.
fn deployment(annotations: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "of-web", "creationTimestamp": CREATED,
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// An Eru of every fifth minute, created twenty seconds before the first tick of these tests.
fn eru(fields: Value) -> Eru {
    let mut spec = json!({"deployment": "web", "schedule": "*/5 * * * *"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let mut eru = Eru::new("web", RawJson::new(&spec).unwrap().parse().unwrap());
    eru.metadata.creation_timestamp = Some(CREATED.to_owned());
    eru
}

/// An Eru in a cluster whose time the test advances. Outcomes change the Deployment and the status as the host would.
struct Story {
    cluster: Cluster,
    eru: Eru,
}

impl Story {
    fn of(fields: Value) -> Self {
        let mut cluster = Cluster::of(&PLUGIN);
        cluster.add(&deployment(json!({}), json!({"replicas": 3})));
        Self { cluster, eru: eru(fields) }
    }

    /// The outcome at this time, before it is carried out.
    fn wanted(&mut self, time: &str) -> Outcome<Value> {
        self.cluster.set_now_unix_ms(ms(time));
        self.cluster.reconcile(&self.eru).unwrap()
    }

    /// The outcome at this time, at the fixed point.
    fn at(&mut self, time: &str) -> Outcome<Value> {
        self.cluster.set_now_unix_ms(ms(time));
        let outcome = self.cluster.settle(&self.eru).unwrap();
        let status: EruStatus = RawJson::new(&outcome.status_value()).unwrap().parse().unwrap();
        self.eru.status = Status::of(status);
        assert!(outcome.actions.is_empty(), "fixed point: {outcome:?}");
        outcome
    }

    /// The tick in the Deployment's annotation.
    fn restarted_at(&self) -> Value {
        let annotations = &self.cluster.objects("Deployment")[0]["spec"]["template"]["metadata"]["annotations"];
        annotations["mtsre.meitu.com/restarted-at"].clone()
    }

    fn restarts(&self) -> i64 {
        self.eru.status.get().map_or(0, |status| status.restarts)
    }
}

fn ready(outcome: &Outcome<Value>) -> (&str, &str) {
    let ready = outcome.condition_of("Ready").unwrap();
    (&ready.reason, &ready.message)
}

fn events(outcome: &Outcome<Value>) -> Vec<(&str, &str)> {
    outcome.events.iter().map(|event| (event.reason.as_str(), event.message.as_str())).collect()
}

/// The Eru of a Deployment with these annotations.
fn adopted(annotations: Value) -> Option<Value> {
    let mut cluster = Cluster::of(&PLUGIN);
    let deployment = deployment(annotations, json!({}));
    cluster.add(&deployment);
    cluster.reconcile(&deployment).unwrap().child("eru")
}

#[test]
fn an_annotated_deployment_has_an_eru_of_its_name_with_the_annotated_schedule() {
    let annotated = |schedule: &str| json!({"mtsre.meitu.com/eru": "true", "mtsre.meitu.com/eru-schedule": schedule});
    let eru = adopted(annotated("@daily")).unwrap();
    assert_eq!((&eru["apiVersion"], &eru["kind"]), (&json!("mtsre.meitu.com/v1"), &json!("Eru")));
    assert_eq!(eru["metadata"], json!({"name": "web"}));
    assert_eq!(eru["spec"], json!({"deployment": "web", "schedule": "@daily"}));
    let without = adopted(json!({"mtsre.meitu.com/eru": "true"})).unwrap();
    assert_eq!(without["spec"], json!({"deployment": "web"}), "the user sets the schedule");
    for other in [json!({}), json!({"mtsre.meitu.com/eru": "false"}), json!({"mtsre.meitu.com/eru-schedule": "@daily"})]
    {
        assert_eq!(adopted(other.clone()), None, "{other}");
    }
}

#[test]
fn at_a_tick_the_deployment_is_restarted_once() {
    let mut story = Story::of(json!({}));
    let before = story.at("2026-01-01T11:59:50Z");
    assert_eq!(before.status_value(), json!({"nextRestartTime": NOON, "restarts": 0}));
    assert_eq!(ready(&before), ("Scheduled", "the next restart is at 2026-01-01T12:00:00Z"));
    assert_eq!(before.requeue_after.unwrap().as_secs(), 10);
    assert_eq!(story.restarted_at(), Value::Null);

    let due = story.wanted(NOON);
    assert_eq!(events(&due), [("Restarted", "restarts the Deployment web for the tick of 2026-01-01T12:00:00Z")]);
    assert_eq!(due.status_value()["restarts"], 0, "it counts once it is on the Deployment");
    let after = story.at(NOON);
    assert_eq!(story.restarted_at(), NOON);
    assert_eq!(after.status_value(), json!({"lastRestartTime": NOON, "nextRestartTime": FIVE_PAST, "restarts": 1}));
    for time in [NOON, "2026-01-01T12:04:59Z"] {
        assert_eq!(story.at(time).status_value(), after.status_value());
    }
    story.at(FIVE_PAST);
    assert_eq!((story.restarted_at(), story.restarts()), (json!(FIVE_PAST), 2));
}

#[test]
fn a_host_that_dies_before_or_after_the_write_restarts_once() {
    let mut story = Story::of(json!({}));
    // Before: the next host wants the same.
    assert_eq!(story.wanted(NOON).actions, story.wanted("2026-01-01T12:00:07Z").actions);
    // After the patch, and before the status: the Deployment has the tick.
    story.cluster.settle(&story.eru).unwrap();
    let next = story.wanted("2026-01-01T12:00:09Z");
    assert!(next.actions.is_empty());
    assert_eq!((&next.status_value()["restarts"], &next.status_value()["lastRestartTime"]), (&json!(1), &json!(NOON)));
}

#[test]
fn of_missed_ticks_the_newest_restarts_the_deployment() {
    let mut story = Story::of(json!({}));
    let due = story.wanted("2026-01-31T12:31:00Z");
    let message =
        "restarts the Deployment web for the tick of 2026-01-31T12:30:00Z; ticks before it that were missed: 8646";
    assert_eq!(events(&due), [("MissedSchedule", message)]);
    story.at("2026-01-31T12:31:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!("2026-01-31T12:30:00Z"), 1));
}

#[test]
fn a_clock_that_is_set_back_or_forward_restarts_nothing_twice() {
    let mut story = Story::of(json!({}));
    story.at(HALF_PAST);
    let back = story.at("2026-01-01T11:30:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!(HALF_PAST), 1));
    assert_eq!(back.status_value()["nextRestartTime"], "2026-01-01T12:35:00Z");
    story.at("2026-01-01T13:31:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!("2026-01-01T13:30:00Z"), 2));
}

#[test]
fn a_repeated_wall_time_restarts_once_and_a_skipped_one_after_the_jump() {
    let mut story = Story::of(json!({"schedule": "30 2 * * *", "timeZone": "Europe/Berlin"}));
    // Forward on March 29: there is no 02:30, and 03:00 is the first instant after it.
    assert_eq!(story.at("2026-03-29T01:05:00Z").status_value()["lastRestartTime"], "2026-03-29T01:00:00Z");
    // Back on October 25: 02:30 is at 00:30 and at 01:30 UTC.
    assert_eq!(story.at("2026-10-25T00:31:00Z").status_value()["lastRestartTime"], "2026-10-25T00:30:00Z");
    let next = story.at("2026-10-25T01:31:00Z").status_value()["nextRestartTime"].clone();
    assert_eq!((next, story.restarts()), (json!("2026-10-26T01:30:00Z"), 2));
}

#[test]
fn after_a_pause_or_suspension_the_newest_missed_tick_restarts_once() {
    let mut story = Story::of(json!({}));
    story.cluster.add(&deployment(json!({}), json!({"paused": true})));
    assert_eq!(ready(&story.at(NOON)).0, "DeploymentPaused");
    assert_eq!(story.restarted_at(), Value::Null);
    story.cluster.add(&deployment(json!({}), json!({})));
    story.at("2026-01-01T12:11:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!("2026-01-01T12:10:00Z"), 1));

    story.eru.spec.suspend = true;
    let suspended = story.at(HALF_PAST);
    assert_eq!((ready(&suspended).0, suspended.requeue_after), ("Suspended", None));
    assert_eq!(suspended.status_value().get("nextRestartTime"), None);
    story.eru.spec.suspend = false;
    story.at("2026-01-01T12:31:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!(HALF_PAST), 2));
}

#[test]
fn a_missing_deployment_is_reported_and_a_new_one_is_not_restarted_for_ticks_before_it() {
    let mut story = Story::of(json!({}));
    story.at(NOON);
    assert!(story.cluster.remove(&ObjectKey::new("apps/v1", "Deployment", Some("default"), "web")));
    let missing = story.at("2026-01-01T12:06:00Z");
    assert_eq!(ready(&missing), ("DeploymentNotFound", "there is no Deployment web in this namespace"));
    assert_eq!(story.restarts(), 1);
    let mut recreated = deployment(json!({}), json!({}));
    recreated["metadata"]["creationTimestamp"] = json!("2026-01-01T12:07:00Z");
    story.cluster.add(&recreated);
    story.at("2026-01-01T12:08:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (Value::Null, 1));
    story.at("2026-01-01T12:10:00Z");
    assert_eq!((story.restarted_at(), story.restarts()), (json!("2026-01-01T12:10:00Z"), 2));
}

#[test]
fn of_two_erus_for_one_deployment_the_older_one_restarts_it() {
    let mut story = Story::of(json!({}));
    let mut older = eru(json!({"schedule": "@yearly"}));
    older.metadata.name = "older".to_owned();
    older.metadata.creation_timestamp = Some("2026-01-01T11:00:00Z".to_owned());
    story.cluster.add(&older);
    let message = "the Eru older restarts the Deployment web already; delete one of the two";
    assert_eq!(ready(&story.at(NOON)), ("DeploymentTaken", message));
    assert_eq!(story.restarted_at(), Value::Null);
    let of_another = json!({"deployment": "other"});
    older.spec = RawJson::new(&of_another).unwrap().parse().unwrap();
    story.cluster.add(&older);
    story.at(NOON);
    assert_eq!(story.restarted_at(), NOON);
}

#[test]
fn a_restart_by_an_older_eru_is_not_counted() {
    let mut story = Story::of(json!({}));
    let annotated =
        json!({"template": {"metadata": {"annotations": {"mtsre.meitu.com/restarted-at": "2026-01-01T11:55:00Z"}}}});
    story.cluster.add(&deployment(json!({}), annotated));
    assert_eq!(story.at("2026-01-01T11:59:50Z").status_value(), json!({"nextRestartTime": NOON, "restarts": 0}));
}

#[test]
fn a_missing_or_invalid_schedule_is_reported() {
    let why = |fields: Value| {
        let outcome = Story::of(fields).wanted(NOON);
        assert!(outcome.actions.is_empty());
        let (reason, message) = ready(&outcome);
        format!("{reason}: {message}")
    };
    assert!(why(json!({"schedule": null})).starts_with("NoSchedule: spec.schedule is empty"));
    assert!(why(json!({"schedule": " "})).starts_with("NoSchedule: "));
    let wrong = "InvalidSchedule: \"61 * * * *\" is not a cron expression: minute \"61\": 61 is not within 0 and 59";
    assert_eq!(why(json!({"schedule": "61 * * * *"})), wrong);
    assert!(why(json!({"timeZone": "Mars/Olympus"})).contains("Mars/Olympus"));
    assert!(why(json!({"schedule": "0 0 30 2 *"})).starts_with("NeverFires: "));
}
