//! What a story shows and one call cannot: what becomes of the outcomes of a function.

use mortise_sdk::prelude::*;
use mortise_sdk::testing::{Cluster, Story};

/// Keeps a ConfigMap and a Pod, and counts its own calls in its status, as nobody should.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "example.com", version = "v1", kind = "App", status = AppStatus)]
struct AppSpec {
    mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Whether the status counts calls.
    #[serde(default)]
    counts: bool,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
struct AppStatus {
    calls: u64,
    /// What others write into the ConfigMap.
    progress: Option<String>,
}

#[reconciler(owns("v1/ConfigMap", "v1/Pod"))]
fn reconcile(app: &App, cx: &Context) -> Result<Outcome<AppStatus>, Failure> {
    let calls = app.status.get().map_or(0, |status| status.calls) + u64::from(app.spec.counts);
    let made = cx.owned_of_kind::<Object>("v1", "ConfigMap", &["data.progress"])?;
    let progress = made.first().and_then(|map| map.str_at("data.progress")).map(str::to_owned);
    let settings = json!({"metadata": {"name": "settings"}, "data": {"mode": app.spec.mode}});
    let mut children = vec![Child::new("settings", Json::of_kind("v1", "ConfigMap", &settings))];
    if let Some(image) = &app.spec.image {
        let containers = if image.is_empty() { json!([]) } else { json!([{"name": "app", "image": image}]) };
        children.push(Child::new("pod", Json::of_kind("v1", "Pod", &json!({"spec": {"containers": containers}}))));
    }
    let made = made.len();
    let outcome = Outcome::children(children).status(&AppStatus { calls, progress });
    Ok(outcome.ready(made == 1, "Made", format!("{made} ConfigMaps")))
}

fn app(mode: &str) -> App {
    App::new("web", AppSpec { mode: mode.to_owned(), image: None, counts: false })
}

fn settings(mode: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"mode": mode}})
}

#[test]
fn a_strangers_object_with_the_name_of_a_child_is_refused_as_in_a_cluster() {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add(&settings("theirs"));
    assert!(cluster.reconcile(&app("fast")).is_ok(), "one call sees nothing of it");

    let mut story = Story::of(&PLUGIN);
    story.apply(&settings("theirs"));
    story.apply(&app("fast"));
    story.run_until_idle();
    let stalled = story.condition(&app("fast"), "Stalled").unwrap();
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("ChildExists")));
    assert_eq!(story.get(&settings("")).unwrap()["data"]["mode"], "theirs");
}

#[test]
fn a_child_that_somebody_changes_is_changed_back() {
    let mut story = Story::of(&PLUGIN);
    story.apply(&app("fast"));
    story.run_until_idle();
    story.edit(&settings(""), &json!({"data": {"mode": "by hand"}}));
    story.run_until_idle();
    assert_eq!(story.get(&settings("")).unwrap()["data"]["mode"], "fast");
    let woken_by = story.woken_by(&app("fast"));
    assert!(woken_by.iter().any(|by| by.kind == "ConfigMap"), "{woken_by:?}");
}

#[test]
fn a_status_that_feeds_on_itself_is_found() {
    let mut object = app("fast");
    object.spec.counts = true;
    let mut story = Story::of(&PLUGIN);
    story.apply(&object);
    story.run_until_idle();
    let before = story.get(&object).unwrap()["status"]["calls"].clone();
    story.crash_host();
    story.run_until_idle();
    let after = story.get(&object).unwrap()["status"]["calls"].clone();
    assert!(after.as_u64() > before.as_u64(), "each call changes it: {before}, {after}");

    let found = std::panic::catch_unwind(|| {
        Story::run(&PLUGIN, |story| {
            let mut object = app("fast");
            object.spec.counts = true;
            story.apply(&object);
            story.run_until_idle();
        });
    });
    let why = found.unwrap_err();
    let why = why.downcast_ref::<String>().unwrap();
    assert!(why.contains("a host that starts again writes"), "{why}");
}

#[test]
fn x9_a_status_that_follows_its_children_is_no_fight_and_a_child_that_others_change_is() {
    let (steps, a_moment) = (200, Duration::from_millis(100));
    let mut story = Story::of(&PLUGIN);
    story.apply(&app("fast"));
    story.run_until_idle();
    for step in 0..steps {
        story.edit(&settings(""), &json!({"data": {"progress": step.to_string()}}));
        story.advance(a_moment);
    }
    story.run_until_idle();
    assert_eq!(story.get(&app("fast")).unwrap()["status"]["progress"], (steps - 1).to_string());
    assert!(story.is(&app("fast"), "Ready"));

    for step in 0..steps {
        story.edit(&settings(""), &json!({"data": {"mode": "theirs", "progress": step.to_string()}}));
        story.advance(a_moment);
    }
    assert_eq!(story.condition(&app("fast"), "Stalled").unwrap()["reason"], "Fighting");
}

#[test]
fn an_object_that_is_created_again_is_another_with_children_of_its_own() {
    let mut story = Story::of(&PLUGIN);
    let first = story.apply(&app("fast"));
    story.run_until_idle();
    let child = story.get(&settings("")).unwrap();
    story.delete(&app("fast"));
    let second = story.apply(&app("fast"));
    story.run_until_idle();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let successor = story.get(&settings("")).unwrap();
    assert_ne!(child["metadata"]["uid"], successor["metadata"]["uid"], "the garbage collector took the first");
    assert_eq!(successor["metadata"]["ownerReferences"][0]["uid"], second["metadata"]["uid"]);
}

#[test]
fn a_child_that_its_schema_refuses_is_reported() {
    let mut object = app("fast");
    object.spec.image = Some(String::new());
    assert!(Cluster::of(&PLUGIN).reconcile(&object).is_ok(), "one call knows no schema of its children");

    let mut story = Story::of(&PLUGIN);
    story.apply(&object);
    story.run_until_idle();
    let stalled = story.condition(&object, "Stalled").unwrap();
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("Invalid")));
    let message = stalled["message"].as_str().unwrap();
    assert!(message.contains("spec.containers: Required value"), "{message}");
    assert_eq!(story.objects("v1/Pod"), [Value::Null; 0]);
}

#[test]
fn a_whole_story_holds_in_every_order_and_with_every_crash() {
    Story::run(&PLUGIN, |story| {
        let mut object = app("fast");
        object.spec.image = Some("nginx".to_owned());
        story.apply(&object);
        story.run_until_idle();
        assert!(story.is(&object, "Ready"));
        assert_eq!(story.objects("v1/Pod")[0]["status"]["phase"], "Running");
        story.edit(&object, &json!({"spec": {"mode": "slow"}}));
        story.run_until_idle();
        assert_eq!(story.get(&settings("")).unwrap()["data"]["mode"], "slow");
    });
}

#[test]
fn rights_and_writes_are_refused_until_they_are_allowed() {
    let mut story = Story::of(&PLUGIN);
    story.refuse(&ObjectKey::new("v1", "ConfigMap", Some("default"), "settings"), "exceeded quota: few");
    story.apply(&app("fast"));
    story.run_until_idle();
    let message = story.condition(&app("fast"), "Stalled").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains("exceeded quota: few"), "{message}");
    story.allow();
    story.advance(Duration::from_secs(1_200));
    assert!(story.is(&app("fast"), "Ready"));

    story.deny("v1/ConfigMap");
    story.delete(&settings(""));
    story.run_until_idle();
    assert_eq!(story.get(&settings("")), None, "nothing is written by half a view");
    story.allow();
    story.advance(Duration::from_secs(300));
    assert!(story.get(&settings("")).is_some());
}
