//! Eru as its users see it, run natively, with the test's clock.

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Action, ObjectKey, Outcome, RawJson, Status, Timestamp, Value, json};

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

/// What one call is given.
struct Given {
    cluster: Cluster,
    eru: Eru,
}

impl Given {
    fn of(fields: Value) -> Self {
        let mut cluster = Cluster::of(&PLUGIN);
        cluster.add(&deployment(json!({}), json!({"replicas": 3})));
        Self { cluster, eru: eru(fields) }
    }

    /// The Deployment was restarted for a tick.
    fn restarted(mut self, tick: &str) -> Self {
        let template = json!({"metadata": {"annotations": {"mtsre.meitu.com/restarted-at": tick}}});
        self.cluster.add(&deployment(json!({}), json!({"template": template})));
        self
    }

    /// The status has this as the only restart.
    fn recorded(mut self, tick: &str) -> Self {
        let status = EruStatus { last_restart_time: Timestamp::parse(tick), next_restart_time: None, restarts: 1 };
        self.eru.status = Status::of(status);
        self
    }

    fn at(&mut self, time: &str) -> Outcome<Value> {
        self.cluster.set_now_unix_ms(ms(time));
        self.cluster.reconcile(&self.eru).unwrap()
    }
}

/// The tick for which an outcome restarts the Deployment.
fn restart(outcome: &Outcome<Value>) -> Value {
    let [Action::Patch(patch)] = &outcome.actions[..] else { return Value::Null };
    assert_eq!(patch.target, ObjectKey::new("apps/v1", "Deployment", Some("default"), "web"));
    let annotations = &patch.body.value().unwrap()["spec"]["template"]["metadata"]["annotations"];
    annotations["mtsre.meitu.com/restarted-at"].clone()
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
    let mut given = Given::of(json!({}));
    let before = given.at("2026-01-01T11:59:50Z");
    assert_eq!(before.status_value(), json!({"nextRestartTime": NOON, "restarts": 0}));
    assert_eq!(ready(&before), ("Scheduled", "the next restart is at 2026-01-01T12:00:00Z"));
    assert_eq!(before.requeue_after.unwrap().as_secs(), 10);
    assert_eq!(restart(&before), Value::Null);

    let due = given.at(NOON);
    assert_eq!(events(&due), [("Restarted", "restarts the Deployment web for the tick of 2026-01-01T12:00:00Z")]);
    assert_eq!(due.status_value()["restarts"], 0, "it counts once it is on the Deployment");
    assert_eq!(restart(&due), NOON);
    assert_eq!(due.actions, given.at("2026-01-01T12:00:07Z").actions, "a host that starts then wants the same");

    let status = json!({"lastRestartTime": NOON, "nextRestartTime": FIVE_PAST, "restarts": 1});
    for mut given in [given.restarted(NOON), Given::of(json!({})).restarted(NOON).recorded(NOON)] {
        for time in [NOON, "2026-01-01T12:04:59Z"] {
            let after = given.at(time);
            assert_eq!((after.status_value(), restart(&after)), (status.clone(), Value::Null));
        }
        assert_eq!(restart(&given.at(FIVE_PAST)), FIVE_PAST);
    }
    let second = Given::of(json!({})).restarted(FIVE_PAST).recorded(NOON).at(FIVE_PAST);
    assert_eq!(second.status_value()["restarts"], 2);
}

#[test]
fn of_missed_ticks_the_newest_restarts_the_deployment() {
    let due = Given::of(json!({})).at("2026-01-31T12:31:00Z");
    let message =
        "restarts the Deployment web for the tick of 2026-01-31T12:30:00Z; ticks before it that were missed: 8646";
    assert_eq!(events(&due), [("MissedSchedule", message)]);
    assert_eq!(restart(&due), "2026-01-31T12:30:00Z");
}

#[test]
fn a_clock_that_is_set_back_or_forward_restarts_nothing_twice() {
    let mut given = Given::of(json!({})).restarted(HALF_PAST).recorded(HALF_PAST);
    let back = given.at("2026-01-01T11:30:00Z");
    assert_eq!((restart(&back), &back.status_value()["restarts"]), (Value::Null, &json!(1)));
    assert_eq!(back.status_value()["nextRestartTime"], "2026-01-01T12:35:00Z");
    assert_eq!(restart(&given.at("2026-01-01T13:31:00Z")), "2026-01-01T13:30:00Z");
}

#[test]
fn a_repeated_wall_time_restarts_once_and_a_skipped_one_after_the_jump() {
    let given = || Given::of(json!({"schedule": "30 2 * * *", "timeZone": "Europe/Berlin"}));
    // Forward on March 29: there is no 02:30, and 03:00 is the first instant after it.
    assert_eq!(restart(&given().at("2026-03-29T01:05:00Z")), "2026-03-29T01:00:00Z");
    // Back on October 25: 02:30 is at 00:30 and at 01:30 UTC.
    let first = "2026-10-25T00:30:00Z";
    assert_eq!(restart(&given().at("2026-10-25T00:31:00Z")), first);
    let second = given().restarted(first).at("2026-10-25T01:31:00Z");
    assert_eq!(restart(&second), Value::Null);
    assert_eq!(second.status_value()["nextRestartTime"], "2026-10-26T01:30:00Z");
}

#[test]
fn after_a_pause_or_suspension_the_newest_missed_tick_restarts_once() {
    let mut given = Given::of(json!({}));
    given.cluster.add(&deployment(json!({}), json!({"paused": true})));
    let paused = given.at(NOON);
    assert_eq!((ready(&paused).0, restart(&paused)), ("DeploymentPaused", Value::Null));
    given.cluster.add(&deployment(json!({}), json!({})));
    assert_eq!(restart(&given.at("2026-01-01T12:11:00Z")), "2026-01-01T12:10:00Z");

    given = given.restarted("2026-01-01T12:10:00Z");
    given.eru.spec.suspend = true;
    let suspended = given.at(HALF_PAST);
    assert_eq!((ready(&suspended).0, suspended.requeue_after), ("Suspended", None));
    assert_eq!((restart(&suspended), suspended.status_value().get("nextRestartTime")), (Value::Null, None));
    given.eru.spec.suspend = false;
    assert_eq!(restart(&given.at("2026-01-01T12:31:00Z")), HALF_PAST);
}

#[test]
fn a_missing_deployment_is_reported_and_a_new_one_is_not_restarted_for_ticks_before_it() {
    let mut given = Given::of(json!({})).recorded(NOON);
    assert!(given.cluster.remove(&ObjectKey::new("apps/v1", "Deployment", Some("default"), "web")));
    let missing = given.at("2026-01-01T12:06:00Z");
    assert_eq!(ready(&missing), ("DeploymentNotFound", "there is no Deployment web in this namespace"));
    assert_eq!(missing.status_value()["restarts"], 1);
    let mut recreated = deployment(json!({}), json!({}));
    recreated["metadata"]["creationTimestamp"] = json!("2026-01-01T12:07:00Z");
    given.cluster.add(&recreated);
    assert_eq!(restart(&given.at("2026-01-01T12:08:00Z")), Value::Null);
    assert_eq!(restart(&given.at("2026-01-01T12:10:00Z")), "2026-01-01T12:10:00Z");
}

#[test]
fn of_two_erus_for_one_deployment_the_older_one_restarts_it() {
    let mut given = Given::of(json!({}));
    let mut older = eru(json!({"schedule": "@yearly"}));
    older.metadata.name = "older".to_owned();
    older.metadata.creation_timestamp = Some("2026-01-01T11:00:00Z".to_owned());
    given.cluster.add(&older);
    let message = "the Eru older restarts the Deployment web already; delete one of the two";
    let taken = given.at(NOON);
    assert_eq!((ready(&taken), restart(&taken)), (("DeploymentTaken", message), Value::Null));
    let of_another = json!({"deployment": "other"});
    older.spec = RawJson::new(&of_another).unwrap().parse().unwrap();
    given.cluster.add(&older);
    assert_eq!(restart(&given.at(NOON)), NOON);
}

#[test]
fn a_restart_by_an_older_eru_is_not_counted() {
    let outcome = Given::of(json!({})).restarted("2026-01-01T11:55:00Z").at("2026-01-01T11:59:50Z");
    assert_eq!(outcome.status_value(), json!({"nextRestartTime": NOON, "restarts": 0}));
}

#[test]
fn a_missing_or_invalid_schedule_is_reported() {
    let why = |fields: Value| {
        let outcome = Given::of(fields).at(NOON);
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
