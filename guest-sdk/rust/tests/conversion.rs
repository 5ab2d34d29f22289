//! A kind of three versions, as an author writes them, and their conversion.

use mortise_sdk::prelude::*;
use mortise_sdk::testing::Cluster;
use mortise_sdk::{NoStatus, Value};

/// A tank, as it is stored.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "example.com", version = "v1", kind = "Tank", status = TankStatus)]
pub struct TankSpec {
    size: Size,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    valves: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
struct Size {
    value: u32,
    unit: String,
}

/// How full it is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct TankStatus {
    percent: u32,
}

mod v1beta1 {
    use mortise_sdk::prelude::*;

    /// A tank in litres, whose status held conditions alone.
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1beta1", kind = "Tank")]
    pub struct TankSpec {
        pub litres: u32,
        #[serde(default)]
        pub sealed: bool,
    }
}

mod v1alpha1 {
    use mortise_sdk::prelude::*;

    /// A tank with its size in one text.
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "example.com", version = "v1alpha1", kind = "Tank", status = super::TankStatus)]
    pub struct TankSpec {
        pub size: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
    }
}

impl TryFrom<v1alpha1::TankSpec> for TankSpec {
    type Error = String;

    fn try_from(old: v1alpha1::TankSpec) -> Result<Self, String> {
        let (value, unit) = old.size.split_once(' ').ok_or("spec.size: expected \"10 l\"")?;
        let value = value.parse().map_err(|_| format!("spec.size: {value:?} is no number"))?;
        Ok(Self { size: Size { value, unit: unit.into() }, valves: Vec::new() })
    }
}

impl From<TankSpec> for v1alpha1::TankSpec {
    fn from(new: TankSpec) -> Self {
        Self { size: format!("{} {}", new.size.value, new.size.unit), color: None }
    }
}

impl From<v1beta1::TankSpec> for TankSpec {
    fn from(old: v1beta1::TankSpec) -> Self {
        Self { size: Size { value: old.litres, unit: "l".into() }, valves: Vec::new() }
    }
}

impl TryFrom<TankSpec> for v1beta1::TankSpec {
    type Error = String;

    fn try_from(new: TankSpec) -> Result<Self, String> {
        let Size { value, unit } = new.size;
        let is_litres = unit == "l";
        is_litres.then_some(Self { litres: value, sealed: false }).ok_or(format!("{unit:?} has no litres"))
    }
}

impl From<NoStatus> for TankStatus {
    fn from(_: NoStatus) -> Self {
        Self { percent: 0 }
    }
}

impl From<TankStatus> for NoStatus {
    fn from(_: TankStatus) -> Self {
        Self {}
    }
}

#[reconciler(conversion(v1alpha1::Tank, v1beta1::Tank))]
fn reconcile(_tank: &Tank, _cx: &Context) -> Result<Outcome<TankStatus>, Failure> {
    Ok(Outcome::new())
}

fn tank(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Tank", "spec": spec,
        "metadata": {"name": "a", "namespace": "n", "uid": "u-1", "resourceVersion": "7", "labels": {"x": "y"}},
    })
}

#[track_caller]
fn convert(object: &Value, version: &str) -> Value {
    Cluster::of(&PLUGIN).convert(object, &format!("example.com/{version}")).expect("it can be converted")
}

fn refused(object: &Value, to: &str) -> String {
    Cluster::of(&PLUGIN).convert(object, to).expect_err("it cannot be converted")
}

#[test]
fn the_definition_has_all_versions_and_stores_the_reconciled_one() {
    let manifest: Value = serde_json::from_str(&PLUGIN.manifest()).unwrap();
    assert_eq!(manifest["conversion"], json!([{"apiVersion": "example.com/v1", "kind": "Tank"}]));
    let versions = manifest["customResources"][0]["spec"]["versions"].as_array().unwrap();
    let facts: Vec<Value> =
        versions.iter().map(|version| json!([version["name"], version["served"], version["storage"]])).collect();
    assert_eq!(facts, [json!(["v1", true, true]), json!(["v1alpha1", true, false]), json!(["v1beta1", true, false])]);
    for version in versions {
        assert!(version["schema"]["openAPIV3Schema"]["properties"]["spec"].is_object(), "{version}");
        assert!(version["subresources"]["status"].is_object(), "{version}");
    }
}

#[test]
fn a_round_trip_over_any_versions_restores_the_object() {
    let objects = [
        tank("v1", json!({"size": {"value": 3, "unit": "l"}, "valves": ["a", "b"]})),
        tank("v1", json!({"size": {"value": 3, "unit": "l"}})),
        tank("v1alpha1", json!({"size": "3 l", "color": "red"})),
        tank("v1alpha1", json!({"size": "3 l"})),
        tank("v1beta1", json!({"litres": 3, "sealed": true})),
        tank("v1beta1", json!({"litres": 3})),
    ];
    for object in objects {
        let own = object["apiVersion"].as_str().unwrap().trim_start_matches("example.com/");
        for way in [&["v1"][..], &["v1alpha1"], &["v1beta1"], &["v1alpha1", "v1beta1"], &["v1beta1", "v1", "v1alpha1"]]
        {
            let mut there = object.clone();
            for version in way {
                there = convert(&there, version);
                assert_eq!(there["metadata"]["uid"], "u-1");
                assert_eq!(there["metadata"]["labels"], json!({"x": "y"}));
            }
            let mut back = convert(&there, own);
            if object["spec"].get("sealed").is_none() {
                // A default that was not written may be: it means the same.
                back["spec"].as_object_mut().unwrap().remove("sealed");
            }
            let differing = back["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let kept_for_itself = differing.keys().any(|key| key.ends_with(&format!("conversion-{own}")));
            assert!(!kept_for_itself, "{own} by {way:?}: {differing:?}");
            back["metadata"].as_object_mut().unwrap().remove("annotations");
            assert_eq!(back, object, "by {way:?}");
        }
    }
}

#[test]
fn a_change_in_another_version_is_kept_beside_the_fields_that_version_lacks() {
    let object = tank("v1", json!({"size": {"value": 3, "unit": "l"}, "valves": ["a", "b"]}));
    let mut shown = convert(&object, "v1alpha1");
    assert_eq!(shown["spec"], json!({"size": "3 l"}));
    shown["spec"]["size"] = json!("5 l");
    let back = convert(&shown, "v1");
    assert_eq!(back["spec"], json!({"size": {"value": 5, "unit": "l"}, "valves": ["a", "b"]}));

    let mut shown = convert(&tank("v1alpha1", json!({"size": "3 l", "color": "red"})), "v1");
    shown["spec"]["valves"] = json!(["c"]);
    let back = convert(&shown, "v1alpha1");
    assert_eq!(back["spec"], json!({"size": "3 l", "color": "red"}));
    assert_eq!(convert(&back, "v1")["spec"]["valves"], json!(["c"]), "the annotation keeps the new value");
}

#[test]
fn a_status_is_converted_and_keeps_the_fields_of_the_host() {
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let mut object = tank("v1", json!({"size": {"value": 3, "unit": "l"}}));
    object["status"] = json!({"percent": 40, "conditions": conditions, "observedGeneration": 2});
    let same = convert(&object, "v1alpha1");
    assert_eq!(same["status"], object["status"]);
    assert_eq!(same["metadata"]["annotations"], Value::Null, "nothing is lost that would have to be kept");
    let without = convert(&object, "v1beta1");
    assert_eq!(without["status"], json!({"conditions": conditions, "observedGeneration": 2}));
    assert_eq!(convert(&without, "v1"), object);
    object["status"] = json!({"conditions": conditions});
    assert_eq!(convert(&convert(&object, "v1alpha1"), "v1"), object, "a status that holds nothing but conditions yet");
}

#[test]
fn a_conversion_that_fails_reports_the_authors_message() {
    let old = tank("v1alpha1", json!({"size": "many l"}));
    assert_eq!(refused(&old, "example.com/v1"), "spec.size: \"many\" is no number");
    assert_eq!(refused(&tank("v1alpha1", json!({"size": "3 gal"})), "example.com/v1beta1"), "\"gal\" has no litres");
    let unfit = refused(&tank("v1alpha1", json!({"size": 3})), "example.com/v1");
    assert!(unfit.starts_with("its spec does not fit the plugin's type of example.com/v1alpha1: "), "{unfit}");
    assert_eq!(refused(&old, "example.com/v2"), "the plugin knows no Tank of example.com/v2");
    let mut other = old.clone();
    other["kind"] = json!("Pond");
    assert_eq!(refused(&other, "example.com/v1"), "the plugin converts no Pond of example.com");
}
