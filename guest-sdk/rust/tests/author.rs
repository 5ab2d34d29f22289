//! The SDK as an author uses it: from another crate, by its public items.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use mortise_sdk::prelude::*;
use mortise_sdk::testing::Cluster;
use mortise_sdk::{Value, json};

/// A web site.
///
/// It has pages.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "example.com", version = "v1beta2", kind = "Site", status = SiteStatus, plural = "websites",
    short_name = "ws", short_name = "web", category = "all", cluster,
    scale(spec = ".spec.pages", status = ".status.pages", selector = ".status.selector"),
    column(name = "Pages", type = "integer", path = ".spec.pages", wide, description = "How many"),
    annotation("example.com/team", "web")
)]
pub struct SiteSpec {
    pages: u16,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct SiteStatus {
    pages: usize,
    described: Vec<Value>,
}

/// A Deployment, with what only this plugin looks at.
#[derive(Projection, Debug)]
#[projection("apps/v1/Deployment")]
struct Deployment<'a> {
    #[field(child_key)]
    key: &'a str,
    #[field("metadata.labels[\"example.com/page\"]")]
    page: Option<String>,
    #[field("spec.replicas")]
    replicas: Option<u16>,
}

#[reconciler(
    owns(Deployment, update = "recreate"),
    owns("v1/Pod", replace = "at-once"),
    reads("v1/Node", "v1/ConfigMap"),
    owns("v1/Secret", update = "rolling_recreate", max_unavailable = 3),
    owns("v1/Service", update = "rolling_recreate"),
    owns("v1/Endpoints", update = "on_delete", replace = "when-gone"),
    concurrency = 4,
    limits(memory_bytes = 1048576, deadline_ms = 250),
    name = "sites",
    version = "9.9.9"
)]
fn reconcile(site: &Site, cx: &Context) -> Result<Outcome<SiteStatus>, Failure> {
    let deployments: Vec<Deployment> = cx.owned()?;
    let described: Vec<Value> = deployments
        .iter()
        .map(|each| json!([each.key, each.page, each.replicas, site.status.get().is_some()]))
        .collect();
    Ok(Outcome::new().status(&SiteStatus { pages: described.len(), described }))
}

fn manifest() -> Value {
    Json::raw(PLUGIN.manifest()).value().unwrap()
}

#[test]
fn everything_that_attributes_say_is_in_the_manifest() {
    let manifest = manifest();
    assert_eq!(manifest["apiVersion"], "mortise.dev/v1alpha1");
    assert_eq!((&manifest["name"], &manifest["version"]), (&json!("sites"), &json!("9.9.9")));
    assert_eq!(
        manifest["controllers"],
        json!([{
            "for": {"apiVersion": "example.com/v1beta2", "kind": "Site"},
            "owns": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "update": "recreate"},
                {"apiVersion": "v1", "kind": "Pod", "replace": "atOnce"},
                {"apiVersion": "v1", "kind": "Secret", "update": "rollingRecreate", "maxUnavailable": 3},
                {"apiVersion": "v1", "kind": "Service", "update": "rollingRecreate", "maxUnavailable": 1},
                {"apiVersion": "v1", "kind": "Endpoints", "update": "onDelete"},
            ],
            "reads": [{"apiVersion": "v1", "kind": "Node"}, {"apiVersion": "v1", "kind": "ConfigMap"}],
            "concurrency": 4,
        }])
    );
    assert_eq!(manifest["limits"], json!({"memoryBytes": 1_048_576, "deadlineMs": 250}));
}

#[test]
fn everything_that_attributes_say_is_in_the_custom_resource_definition() {
    let resource = manifest()["customResources"][0].clone();
    assert_eq!(resource["metadata"]["name"], "websites.example.com");
    assert_eq!(resource["metadata"]["annotations"], json!({"example.com/team": "web"}));
    assert_eq!(resource["spec"]["scope"], "Cluster");
    let names = json!({"kind": "Site", "listKind": "SiteList", "plural": "websites", "singular": "site",
        "shortNames": ["ws", "web"], "categories": ["all"]});
    assert_eq!(resource["spec"]["names"], names);
    let version = &resource["spec"]["versions"][0];
    assert_eq!(version["subresources"]["status"], json!({}));
    let scale = json!({"specReplicasPath": ".spec.pages", "statusReplicasPath": ".status.pages",
        "labelSelectorPath": ".status.selector"});
    assert_eq!(version["subresources"]["scale"], scale);
    let columns = json!([
        {"name": "Pages", "type": "integer", "jsonPath": ".spec.pages", "priority": 1, "description": "How many"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    assert_eq!(version["additionalPrinterColumns"], columns);
    assert_eq!(version["schema"]["openAPIV3Schema"]["description"], "A web site.\n\nIt has pages.");
}

#[test]
fn projections_read_their_fields_into_a_flat_struct() {
    let site = Site::new("a", SiteSpec { pages: 1 });
    let mut cluster = Cluster::of(&PLUGIN);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, "template": {}},
        "metadata": {"labels": {"example.com/page": "a \"quoted\" one"}}});
    cluster.add_child(&site, "x", &deployment).add_child(
        &site,
        "y",
        &json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
    );
    let status = cluster.reconcile(&site).unwrap().status_value();
    assert_eq!(status["described"], json!([["x", "a \"quoted\" one", 2, false], ["y", null, null, false]]));
}

#[test]
fn a_field_that_does_not_fit_is_named() {
    let site = Site::new("a", SiteSpec { pages: 1 });
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add_child(&site, "x", &json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "two"}}));
    let failure = cluster.reconcile(&site).unwrap_err();
    assert!(failure.message().contains("Deployment") && failure.message().contains("spec.replicas: "), "{failure}");
}

#[test]
fn a_status_that_does_not_fit_counts_as_none() {
    let mut site = serde_json::to_value(Site::new("a", SiteSpec { pages: 1 })).unwrap();
    assert_eq!((&site["apiVersion"], &site["kind"]), (&json!("example.com/v1beta2"), &json!("Site")));
    site["status"] = json!({"conditions": [], "pages": "an older build wrote text"});
    assert!(Cluster::of(&PLUGIN).reconcile(&site).is_ok());
    site["spec"] = json!({"pages": "x"});
    let failure = Cluster::of(&PLUGIN).reconcile(&site).unwrap_err();
    assert!(failure.message().contains("spec: "), "{failure}");
}

mod foreign_types {
    //! A plugin that reads and wants objects in the types of k8s-openapi.

    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use mortise_sdk::prelude::*;

    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1", kind = "Mirror")]
    pub struct MirrorSpec {}

    #[reconciler(owns("v1/ConfigMap"), reads("v1/Pod"))]
    pub fn reconcile(_mirror: &Mirror, cx: &Context) -> Result<Outcome, Failure> {
        let pods: Vec<Pod> = cx.list(&Query::of_kind("v1", "Pod").selector("app"))?;
        let copies = pods.iter().filter_map(|pod| {
            let name = pod.metadata.name.clone()?;
            Some(Child::new(name, &ConfigMap { data: pod.metadata.labels.clone(), ..ConfigMap::default() }))
        });
        Ok(Outcome::children(copies))
    }
}

#[test]
fn the_types_of_k8s_openapi_can_be_read_and_returned() {
    let mirror = foreign_types::Mirror::new("m", foreign_types::MirrorSpec {});
    let mut cluster = Cluster::of(&foreign_types::PLUGIN);
    for (name, labels) in [("a", json!({"app": "web"})), ("b", json!({}))] {
        cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}));
    }
    let outcome = cluster.reconcile(&mirror).unwrap();
    assert_eq!(outcome.child_keys(), ["a"]);
    assert_eq!(outcome.child("a").unwrap()["kind"], "ConfigMap");
    assert_eq!(outcome.child("a").unwrap()["data"], json!({"app": "web"}));
}

mod several_controllers {
    //! A plugin of two controllers in modules of their own: one of a built-in kind, one of the kind that it owns.

    use mortise_sdk::prelude::*;

    plugin!(deployments::adopt, report, limits(deadline_ms = 250), name = "notes", version = "1.2.3");

    /// A note about a Deployment.
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1", kind = "Note", status = NoteStatus)]
    pub struct NoteSpec {
        pub about: String,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    pub struct NoteStatus {
        pub letters: usize,
    }

    #[controller(concurrency = 2)]
    fn report(note: &Note, _cx: &Context) -> Result<Outcome<NoteStatus>, Failure> {
        Ok(Outcome::new().status(&NoteStatus { letters: note.spec.about.len() }))
    }

    mod deployments {
        use mortise_sdk::prelude::*;

        use super::{Note, NoteSpec};

        #[derive(Projection)]
        #[projection("apps/v1/Deployment")]
        pub struct Deployment<'a> {
            #[field("metadata.name")]
            name: &'a str,
            #[field("metadata.annotations[\"example.com/note\"]")]
            note: Option<String>,
        }

        #[controller(owns(Note, update = "apply"), labels = "tier in (web, api)", annotation("example.com/on", "true"))]
        pub fn adopt(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
            let note = |about: &String| Note::wanted(deployment.name, NoteSpec { about: about.clone() });
            Ok(Outcome::children(deployment.note.iter().map(|about| Child::new("note", &note(about)))))
        }
    }
}

#[test]
fn a_plugin_of_several_controllers_has_one_manifest_and_calls_the_controller_of_the_kind() {
    let plugin = &several_controllers::PLUGIN;
    let manifest = Json::raw(plugin.manifest()).value().unwrap();
    assert_eq!((&manifest["name"], &manifest["version"]), (&json!("notes"), &json!("1.2.3")));
    assert_eq!(manifest["limits"], json!({"deadlineMs": 250}));
    let note = json!({"apiVersion": "example.com/v1", "kind": "Note"});
    assert_eq!(
        manifest["controllers"],
        json!([
            {"for": {"apiVersion": "apps/v1", "kind": "Deployment"},
             "where": {"labels": "tier in (web, api)", "annotations": {"example.com/on": "true"}},
             "owns": [{"apiVersion": "example.com/v1", "kind": "Note", "update": "apply"}]},
            {"for": note, "concurrency": 2},
        ])
    );
    assert_eq!(manifest["customResources"].as_array().unwrap().len(), 1, "a built-in kind has no definition");

    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1},
        "metadata": {"name": "web", "namespace": "shop", "labels": {"tier": "web"},
            "annotations": {"example.com/note": "busy", "example.com/on": "true"}}});
    let cluster = Cluster::of(plugin);
    let note = cluster.reconcile(&deployment).unwrap().child("note").unwrap();
    assert_eq!((&note["metadata"]["name"], &note["spec"]["about"]), (&json!("web"), &json!("busy")));
    assert_eq!(cluster.reconcile(&note).unwrap().status_value(), json!({"letters": 4}));
    deployment["metadata"]["annotations"] = json!({"example.com/on": "true"});
    assert_eq!(cluster.reconcile(&deployment).unwrap().child_keys(), [""; 0]);
    for (place, value) in [("annotations", json!({"example.com/on": "false"})), ("labels", json!({"tier": "db"}))] {
        let mut other = deployment.clone();
        other["metadata"][place] = value;
        let failure = cluster.reconcile(&other).unwrap_err();
        assert!(failure.message().contains("the host would not call the plugin for \"web\""), "{failure}");
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
    assert!(cluster.reconcile(&pod).unwrap_err().message().contains("no controller reconciles Pod"));
}

#[test]
fn a_status_field_that_the_schema_lacks_fails_the_test() {
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1", kind = "Farm", status = FarmStatus)]
    struct FarmSpec {}

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    struct FarmStatus {
        fields: std::collections::BTreeMap<String, Field>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    struct Field {
        crops: Vec<Crop>,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    struct Crop {
        name: String,
        #[schemars(skip)]
        acres: Option<u32>,
    }

    #[reconciler]
    fn reconcile(farm: &Farm, _cx: &Context) -> Result<Outcome<FarmStatus>, Failure> {
        let crop = Crop { name: "rye".into(), acres: (farm.metadata.name == "large").then_some(9) };
        let fields = [("north".to_owned(), Field { crops: vec![crop] })].into();
        Ok(Outcome::new().status(&FarmStatus { fields }))
    }

    let cluster = Cluster::of(&PLUGIN);
    let error = cluster.reconcile(&Farm::new("large", FarmSpec {})).unwrap_err();
    assert!(error.message().starts_with("status.fields.north.crops[0].acres: the schema"), "{error}");
}

#[test]
fn a_kind_of_a_pattern_can_be_read_unless_it_is_not_served_and_others_are_refused_by_name() {
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1", kind = "Follow")]
    struct FollowSpec {
        kind: String,
    }

    #[reconciler(reads("apps/v1/*", "v1/*", "*.example.com/*"))]
    fn reconcile(follow: &Follow, cx: &Context) -> Result<Outcome, Failure> {
        let (api_version, kind) = follow.spec.kind.rsplit_once('/').unwrap();
        let target =
            cx.get_key_fields::<Object>(&ObjectKey::new(api_version, kind, None, "web"), &["spec.replicas"])?;
        Ok(Outcome::new().ready(
            target.is_some(),
            "Followed",
            target.map_or_else(String::new, |it| it.value().to_string()),
        ))
    }

    let reads = Json::raw(PLUGIN.manifest()).value().unwrap()["controllers"][0]["reads"].clone();
    let pattern = |api_version: &str| json!({"apiVersion": api_version, "kind": "*"});
    assert_eq!(reads, json!([pattern("apps/v1"), pattern("v1"), pattern("*.example.com/*")]));
    let follow = |kind: &str| Follow::new("a", FollowSpec { kind: kind.into() });
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.add(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                        "spec": {"replicas": 2, "paused": true}}));
    let outcome = cluster.reconcile(&follow("apps/v1/Deployment")).unwrap();
    assert_eq!(outcome.condition_of("Ready").unwrap().message, r#"{"spec":{"replicas":2}}"#);
    assert!(!cluster.reconcile(&follow("a.example.com/v1/Gauge")).unwrap().is_ready(), "there is no such object");
    cluster.set_not_served("a.example.com/v1", "Gauge");
    let refused = |kind: &str| cluster.reconcile(&follow(kind)).unwrap_err().message().to_owned();
    assert!(refused("a.example.com/v1/Gauge").contains("does not serve a.example.com/v1/Gauge"));
    for kind in ["v1/Secret", "example.com/v1/Gauge", "batch/v1/Job"] {
        assert!(refused(kind).starts_with(&format!("{kind} is not declared, and no pattern has it")), "{kind}");
    }
}
