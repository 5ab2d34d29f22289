//! Manifests in, what was parsed or the text of the refusal out.

use serde_json::{Value, json};

use super::writes::WriteVerb;
use super::*;
use crate::object::Kind;

mod scopes;

/// A manifest with every section but admission and conversion.
fn manifest() -> Value {
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "podset", "version": "0.1.0",
        "customResources": [{
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "podsets.app.example.com"},
            "spec": {
                "group": "app.example.com", "scope": "Namespaced", "names": {"kind": "PodSet", "plural": "podsets"},
                "versions": [
                    {"name": "v1alpha1", "served": true, "storage": true},
                    {"name": "v1alpha0", "served": false, "storage": false},
                ],
            },
        }],
        "controllers": [{
            "for": {"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet"},
            "owns": [
                {"apiVersion": "v1", "kind": "Pod", "update": "recreate"},
                {"apiVersion": "v1", "kind": "ConfigMap"},
            ],
            "reads": [{"apiVersion": "v1", "kind": "Node"}, {"apiVersion": "v1", "kind": "Pod"}],
            "where": {"labels": "tier=web", "annotations": {"example.com/on": "true"}},
            "concurrency": 3,
        }],
        "limits": {"memoryBytes": 1048576, "deadlineMs": 250},
    })
}

/// The manifest with another value at a JSON pointer ("/limits/deadlineMs"), whose last key may be new.
fn with(place: &str, value: Value) -> Value {
    let mut manifest = manifest();
    let (parent, key) = place.rsplit_once('/').unwrap();
    match manifest.pointer_mut(parent).unwrap() {
        Value::Object(object) => drop(object.insert(key.to_owned(), value)),
        Value::Array(array) => array[key.parse::<usize>().unwrap()] = value,
        other => panic!("{parent} is {other}"),
    }
    manifest
}

fn refusal(manifest: &Value) -> Refusal {
    match Manifest::parse(&manifest.to_string()) {
        Err(refusal) => refusal,
        Ok(parsed) => panic!("accepted: {parsed:?}"),
    }
}

/// Checks that every case is refused as invalid with this text.
#[track_caller]
fn invalid(cases: impl IntoIterator<Item = (&'static str, Value, &'static str)>) {
    for (place, value, words) in cases {
        let refusal = refusal(&with(place, value));
        assert_eq!(refusal.reason, "InvalidManifest", "{place}");
        assert!(refusal.message.contains(words), "{place}: {words:?} is not in: {}", refusal.message);
        assert!(refusal.message.starts_with("the manifest is not valid: "), "{}", refusal.message);
    }
}

#[test]
fn every_field_of_a_manifest_is_read() {
    let parsed = Manifest::parse(&manifest().to_string()).unwrap();
    assert_eq!((&*parsed.name, &*parsed.version), ("podset", "0.1.0"));
    let kind = |api_version, kind| Kind::new(api_version, kind);
    let podset = kind("app.example.com/v1alpha1", "PodSet");
    let crd = &parsed.custom_resources[0];
    assert_eq!((&*crd.name, &*crd.plural, crd.namespaced), ("podsets.app.example.com", "podsets", true));
    assert_eq!(crd.kinds, std::slice::from_ref(&podset), "only what is served");
    let controller = &parsed.controllers[0];
    assert_eq!((&controller.primary, controller.concurrency), (&podset, 3));
    assert_eq!(controller.selection.to_string(), "labels tier=web, annotation example.com/on=\"true\"");
    assert_eq!(controller.readable(), [podset, kind("v1", "Pod"), kind("v1", "ConfigMap"), kind("v1", "Node")]);
    let update_of = |name: &str| controller.owned(&Kind::new("v1", name)).map(|owned| owned.update);
    assert_eq!(update_of("Pod"), Some(Update::Recreate));
    assert_eq!(update_of("ConfigMap"), Some(Update::Apply));
    assert_eq!(update_of("Node"), None);
    assert_eq!((parsed.limits.memory_bytes, parsed.limits.deadline_ms), (1 << 20, 250));
}

#[test]
fn children_may_be_in_any_namespace_and_adopted_if_the_manifest_says_so() {
    let parsed = |owned: Value| {
        let mut manifest = manifest();
        manifest["controllers"][0]["owns"] = json!([owned]);
        Manifest::parse(&manifest.to_string()).map(|parsed| parsed.controllers[0].clone())
    };
    let pod = |more: Value| {
        let mut owned = json!({"apiVersion": "v1", "kind": "Pod"});
        json_patch::merge(&mut owned, &more);
        parsed(owned)
    };
    let spec = pod(json!({})).unwrap();
    assert_eq!((spec.tracks(&Kind::new("v1", "Pod")), spec.owns[0].adopt, spec.has_finalizer()), (false, false, false));
    let spec = pod(json!({"namespaces": "any", "adopt": true})).unwrap();
    assert_eq!((spec.tracks(&Kind::new("v1", "Pod")), spec.owns[0].adopt, spec.has_finalizer()), (true, true, true));
    let refused = pod(json!({"namespaces": "all"})).unwrap_err().message;
    assert!(refused.contains("controllers[0].owns[0].namespaces: \"all\" is neither \"any\" nor a list"), "{refused}");
}

#[test]
fn fields_that_are_absent_have_defaults() {
    let least = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "least",
        "controllers": [{"for": {"apiVersion": "example.com/v1", "kind": "Thing"}}],
    });
    let parsed = Manifest::parse(&least.to_string()).unwrap();
    assert_eq!((parsed.limits, parsed.custom_resources.len()), (CallLimits::default(), 0));
    assert_eq!(parsed.controllers[0].concurrency, controller::DEFAULT_CONCURRENCY);
    assert!(parsed.controllers[0].selection.is_everything());
}

#[test]
fn text_that_is_not_a_manifest_of_this_version_is_refused() {
    invalid([
        (
            "/apiVersion",
            json!("mortise.dev/v2"),
            "it is mortise.dev/v2 PluginManifest, this host reads mortise.dev/v1alpha1",
        ),
        ("/kind", json!("Pod"), "it is mortise.dev/v1alpha1 Pod"),
        ("/colour", json!("red"), "unknown field `colour`"),
        ("/controllers/0/watches", json!([]), "unknown field `watches`"),
        ("/controllers/0/where", json!({"fields": "a=b"}), "unknown field `fields`"),
        ("/limits/fuel", json!(1), "unknown field `fuel`"),
        ("/name", json!(7), "invalid type"),
        ("/controllers", json!([]), "controllers: there is none"),
    ]);
    let not_json = Manifest::parse("{").unwrap_err();
    assert!(not_json.message.contains("EOF while parsing"), "{}", not_json.message);
    let too_long = Manifest::parse(&" ".repeat(MAX_MANIFEST_BYTES + 1)).unwrap_err();
    assert!(too_long.message.contains("it has 1048577 bytes, the most is 1048576"), "{}", too_long.message);
}

#[test]
fn writes_are_declared_by_kind_and_verb_and_entries_of_one_kind_are_merged() {
    let write = |kind: &str, verbs: Value| json!({"apiVersion": "v1", "kind": kind, "verbs": verbs});
    let mut scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["patch"]});
    scaled["subresources"] = json!(["scale"]);
    let all = json!([write("Pod", json!(["evict"])), scaled, write("Pod", json!(["delete", "evict"]))]);
    let parsed = Manifest::parse(&with("/writes", all).to_string()).unwrap();
    let (pod, deployment) = (Kind::new("v1", "Pod"), Kind::new("apps/v1", "Deployment"));
    assert_eq!(parsed.writes.len(), 2);
    for verb in [WriteVerb::Delete, WriteVerb::Evict] {
        assert!(writes::allows(&parsed.controllers[0].writes, &pod, verb));
    }
    assert!(writes::allows(&parsed.writes, &deployment, WriteVerb::Patch));
    assert!(!writes::allows(&parsed.writes, &pod, WriteVerb::Patch));
    assert!(!writes::allows(&parsed.writes, &Kind::new("apps/v1", "Pod"), WriteVerb::Evict));
    assert!(writes::allows_subresource(&parsed.writes, &deployment, "scale"));
    assert!(!writes::allows_subresource(&parsed.writes, &deployment, "status"));
}

#[test]
fn invalid_writes_are_refused_with_their_place() {
    let write = |kind: &str, verbs: Value| json!([{"apiVersion": "v1", "kind": kind, "verbs": verbs}]);
    let of_status = json!([{"apiVersion": "v1", "kind": "Node", "verbs": ["apply"], "subresources": ["status"]}]);
    let odd = json!([{"apiVersion": "v1", "kind": "Node", "verbs": ["patch"], "subresources": ["../x"]}]);
    invalid([
        ("/writes", json!([{"apiVersion": "v1", "kind": "Node"}]), "missing field `verbs`"),
        ("/writes", write("Node", json!([])), "writes[0].verbs: there is none"),
        ("/writes", write("Node", json!(["update"])), "writes[0].verbs: \"update\" is none of \"apply\", \"patch\""),
        ("/writes", write("Node", json!(["evict"])), "writes[0].verbs: only v1/Pod can be evicted, not v1/Node"),
        ("/writes", write("", json!(["patch"])), "writes[0]: apiVersion"),
        ("/writes", write("Secret", json!(["delete"])), "writes[0]: delete of v1/Secret carries the UID that was seen"),
        ("/writes", of_status, "writes[0].subresources: they can only be patched"),
        ("/writes", odd, "writes[0].subresources: \"../x\" is not a subresource"),
    ]);
}

#[test]
fn invalid_controllers_are_refused_with_their_place() {
    let podset = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet"});
    let twice = json!([{"for": podset}, {"for": podset}]);
    let versions = json!([{"for": podset}, {"for": {"apiVersion": "app.example.com/v1", "kind": "PodSet"}}]);
    invalid([
        ("/controllers", twice, "app.example.com/v1alpha1/PodSet is reconciled by two of them"),
        ("/controllers", versions, "app.example.com/v1/PodSet is reconciled by two of them"),
        ("/controllers/0/for/kind", json!(""), "controllers[0].for: apiVersion"),
        ("/controllers/0/for/apiVersion", json!("a.b/c/v1"), "names no kind"),
        ("/controllers/0/reads/1", json!({"apiVersion": "apps/", "kind": "Deployment"}), "controllers[0].reads[1]: "),
        ("/controllers/0/owns/1", json!({"apiVersion": "", "kind": "Pod"}), "controllers[0].owns[1]: "),
        ("/controllers/0/owns/1", json!({"apiVersion": "v1", "kind": "Pod"}), "owns[1]: v1/Pod is owned twice"),
        ("/controllers/0/owns/1", podset, "cannot be its own child"),
        (
            "/controllers/0/owns/0/update",
            json!("replace"),
            "owns[0].update: \"replace\" is none of \"apply\", \"recreate\"",
        ),
        ("/controllers/0/owns/0/maxUnavailable", json!(2), "only \"update\": \"rollingRecreate\" has it"),
        ("/controllers/0/owns/1/maxUnavailable", json!(1), "owns[1].maxUnavailable: only"),
        ("/controllers/0/where", json!({"labels": "a=b=c"}), "controllers[0].where.labels: the label selector"),
        ("/controllers/0/concurrency", json!(0), "concurrency: 0 is not within 1 and 256"),
        ("/controllers/0/concurrency", json!(257), "257 is not within 1 and 256"),
    ]);
}

#[test]
fn each_owned_kind_has_its_update_strategy() {
    let update = |fields: Value| {
        let mut owned = json!({"apiVersion": "v1", "kind": "Pod"});
        owned.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let parsed = Manifest::parse(&with("/controllers/0/owns/0", owned).to_string())?;
        Ok::<_, Refusal>(parsed.controllers[0].owned(&Kind::new("v1", "Pod")).unwrap().update)
    };
    let rolling = |max_unavailable| Update::RollingRecreate { max_unavailable };
    assert_eq!(update(json!({})), Ok(Update::Apply));
    assert_eq!(update(json!({"update": "onDelete"})), Ok(Update::OnDelete));
    assert_eq!(update(json!({"update": "rollingRecreate"})), Ok(rolling(1)));
    assert_eq!(update(json!({"update": "rollingRecreate", "maxUnavailable": 25})), Ok(rolling(25)));
    let none = update(json!({"update": "rollingRecreate", "maxUnavailable": 0})).unwrap_err();
    assert!(none.message.contains("owns[0].maxUnavailable: with 0 no child could ever be replaced"), "{none}");
}

#[test]
fn each_owned_kind_says_when_a_child_that_is_being_deleted_gets_a_successor() {
    let replaces = |replace: &str| {
        let parsed = Manifest::parse(&with("/controllers/0/owns/0/replace", json!(replace)).to_string())?;
        let controller = &parsed.controllers[0];
        Ok::<_, Refusal>((controller.owns[0].replace, controller.replaces_at_once()))
    };
    assert_eq!(replaces("atOnce"), Ok((Replace::AtOnce, true)));
    assert_eq!(replaces("whenGone"), Ok((Replace::WhenGone, false)));
    let parsed = Manifest::parse(&manifest().to_string()).unwrap();
    assert_eq!(parsed.controllers[0].owns[0].replace, Replace::WhenGone);
    let unknown = replaces("soon").unwrap_err();
    assert!(unknown.message.contains("owns[0].replace: \"soon\" is neither \"whenGone\" nor \"atOnce\""), "{unknown}");
}

#[test]
fn limits_beyond_the_hosts_are_refused_with_the_maximum() {
    invalid([
        ("/limits/memoryBytes", json!(0), "limits.memoryBytes: 0 is not within 1 and 268435456"),
        ("/limits/memoryBytes", json!(MAX_MEMORY_BYTES + 1), "268435457 is not within"),
        ("/limits/deadlineMs", json!(0), "limits.deadlineMs: 0 is not within 1 and 10000"),
        ("/limits/deadlineMs", json!(MAX_DEADLINE_MS + 1), "10001 is not within"),
    ]);
}

#[test]
fn invalid_custom_resources_are_refused_with_their_place() {
    invalid([
        ("/customResources/0", json!({}), "customResources[0]: missing field `kind`"),
        ("/customResources/0/kind", json!("Deployment"), "its kind is \"Deployment\", expected CustomResource"),
        ("/customResources/0/metadata/name", json!("podset"), "but must be \"podsets.app.example.com\""),
        ("/customResources/0/spec/versions", json!([{"name": "v1"}]), "customResources[0]: no version is served"),
    ]);
}

#[test]
fn a_number_in_a_custom_resource_that_cannot_be_registered_is_refused_with_its_place() {
    let manifest = with("/customResources/0/spec/versions/0/x", json!("A NUMBER")).to_string();
    let refusal = Manifest::parse(&manifest.replace("\"A NUMBER\"", "1e999")).unwrap_err();
    assert!(refusal.message.contains("customResources[0]: number out of range"), "{}", refusal.message);
}

#[test]
fn built_in_kinds_are_recognised_by_their_group() {
    let is_builtin = |api_version: &str, kind: &str| {
        let manifest = with("/controllers/0/for", json!({"apiVersion": api_version, "kind": kind}));
        Manifest::parse(&manifest.to_string()).unwrap().controllers[0].builtin
    };
    for (api_version, kind) in
        [("v1", "Node"), ("apps/v1", "Deployment"), ("batch/v1", "Job"), ("networking.k8s.io/v1", "Ingress")]
    {
        assert!(is_builtin(api_version, kind), "{api_version} {kind}");
    }
    for (api_version, kind) in [("app.example.com/v1alpha1", "PodSet"), ("gateway.networking.k8s.io/v1", "Gateway")] {
        assert!(!is_builtin(api_version, kind), "{api_version} {kind}");
    }
}

#[test]
fn kinds_that_the_host_writes_for_each_reconcile_cannot_be_reconciled() {
    for (api_version, kind, why) in [
        ("v1", "Event", "each would cause more"),
        ("events.k8s.io/v1", "Event", "each would cause more"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "under customResources"),
    ] {
        let refusal = refusal(&with("/controllers/0/for", json!({"apiVersion": api_version, "kind": kind})));
        assert_eq!(refusal.reason, "ProtectedKind", "{api_version} {kind}");
        let words = format!("controllers[0].for: {api_version}/{kind} cannot be reconciled: ");
        assert!(refusal.message.starts_with(&words) && refusal.message.contains(why), "{}", refusal.message);
    }
}

#[test]
fn g10_a_definition_has_no_metadata_and_no_short_names_that_mean_something_to_others() {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
    for (path, value, why) in [
        ("/metadata/ownerReferences", owner, "metadata.ownerReferences is set"),
        ("/metadata/finalizers", json!(["example.com/a"]), "metadata.finalizers is set"),
        ("/metadata/labels", json!({"mortise.dev/host-namespace": "b"}), "\"mortise.dev/host-namespace\""),
        ("/metadata/annotations", json!({"mortise.dev/plugin": "b"}), "\"mortise.dev/plugin\""),
        ("/spec/names/shortNames", json!(["ps", "svc"]), "shortNames has \"svc\""),
    ] {
        let refusal = refusal(&with(&format!("/customResources/0{path}"), value));
        assert!(refusal.message.contains(why), "{}", refusal.message);
    }
    let metadata = json!({
        "name": "podsets.app.example.com", "creationTimestamp": null, "labels": {"app.kubernetes.io/name": "podset"},
        "annotations": {"controller-gen.kubebuilder.io/version": "v0.16.0"},
    });
    let mut manifest = with("/customResources/0/metadata", metadata);
    manifest["customResources"][0]["spec"]["names"]["shortNames"] = json!(["ps"]);
    Manifest::parse(&manifest.to_string()).unwrap();
}

#[test]
fn l4_a_custom_resource_in_a_built_in_group_is_refused() {
    let community = ["gateway.networking.k8s.io", "x.example.k8s.io", "k8s.io", "kubernetes.io", "a.kubernetes.io"];
    for group in ["apps", "resource.k8s.io", "rbac.authorization.k8s.io"].into_iter().chain(community) {
        let mut manifest = with("/customResources/0/spec/group", json!(group));
        manifest["customResources"][0]["metadata"]["name"] = json!(format!("podsets.{group}"));
        let refusal = refusal(&manifest);
        assert_eq!(refusal.reason, "ProtectedGroup", "{group}");
        assert!(refusal.message.contains(&format!("the group {group:?} belongs to Kubernetes")), "{}", refusal.message);
    }
    let approved = |group: &str, approval: &str| {
        let mut manifest = with("/customResources/0/spec/group", json!(group));
        let metadata =
            json!({"name": format!("podsets.{group}"), "annotations": {"api-approved.kubernetes.io": approval}});
        manifest["customResources"][0]["metadata"] = metadata;
        Manifest::parse(&manifest.to_string()).is_ok()
    };
    for group in ["k8s.io.example.com", "notk8s.io", "notkubernetes.io"] {
        assert!(approved(group, ""), "{group}");
    }
    assert!(approved("x.example.k8s.io", "unapproved, an experiment") && !approved("x.example.k8s.io", ""));
    assert!(!approved("resource.k8s.io", "unapproved, an experiment"), "the API server serves it itself");
}

#[test]
fn kinds_of_community_groups_can_be_reconciled_owned_read_and_written() {
    let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"});
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"});
    let mut written = snapshot.clone();
    written["verbs"] = json!(["patch"]);
    for (place, value) in [
        ("/controllers/0/for", route.clone()),
        ("/controllers/0/owns/1", route),
        ("/controllers/0/reads/1", snapshot),
        ("/writes", json!([written])),
    ] {
        assert!(Manifest::parse(&with(place, value).to_string()).is_ok(), "{place}");
    }
}

#[test]
fn what_names_no_kind_is_refused_wherever_a_manifest_names_one() {
    let long = "k".repeat(64);
    let wrong = [
        ("*/v1", "Pod"),
        ("*", "Pod"),
        ("v*", "Pod"),
        ("apps/*", "Deployment"),
        ("*.example.com/v1", "Pod"),
        ("v1", "P*d"),
        ("v1\n", "Pod"),
        ("Apps/v1", "Deployment"),
        ("apps /v1", "Deployment"),
        ("-apps/v1", "Deployment"),
        ("a..b/v1", "Deployment"),
        ("apps/1", "Deployment"),
        ("v1", "Pod/status"),
        ("v1", "\u{202e}Pod"),
        ("v1", &long),
    ];
    for (api_version, kind) in wrong {
        let entry = json!({"apiVersion": api_version, "kind": kind});
        let mut written = entry.clone();
        written["verbs"] = json!(["patch"]);
        for (place, value) in [
            ("/controllers/0/for", entry.clone()),
            ("/controllers/0/owns/1", entry.clone()),
            ("/controllers/0/reads/1", entry.clone()),
            ("/writes", json!([written])),
            ("/admission", json!([{"apiVersion": api_version, "kind": kind, "validate": true}])),
            ("/conversion", json!([entry])),
        ] {
            let refusal = refusal(&with(place, value));
            assert_eq!(refusal.reason, "InvalidManifest", "{place} {api_version} {kind}: {}", refusal.message);
        }
    }
    for (api_version, kind) in [("stable.example.com/stable", "Kind-2"), ("v1", "pod"), ("e/v1beta1", "K")] {
        let entry = json!({"apiVersion": api_version, "kind": kind});
        assert!(Manifest::parse(&with("/controllers/0/reads/1", entry).to_string()).is_ok(), "{api_version} {kind}");
    }
}

#[test]
fn a_custom_resource_with_wildcards_in_its_names_is_refused() {
    for (path, value) in [
        ("/customResources/0/spec/names/plural", "*"),
        ("/customResources/0/spec/names/kind", "*"),
        ("/customResources/0/spec/versions/0/name", "v*"),
        ("/customResources/0/spec/group", "*.example.com"),
    ] {
        let mut manifest = with(path, json!(value));
        let spec = &manifest["customResources"][0]["spec"];
        let name = format!("{}.{}", spec["names"]["plural"].as_str().unwrap(), spec["group"].as_str().unwrap());
        manifest["customResources"][0]["metadata"]["name"] = json!(name);
        assert_eq!(refusal(&manifest).reason, "InvalidManifest", "{path}");
    }
}

#[test]
fn what_a_manifest_says_of_its_plugin_is_one_line() {
    let parsed = Manifest::parse(&with("/version", json!("1.0\u{1b}[2J\nReady: True")).to_string()).unwrap();
    assert_eq!(&*parsed.version, "1.0 Ready: True");
    let parsed = Manifest::parse(&with("/version", json!("1".repeat(1_000))).to_string()).unwrap();
    assert_eq!(parsed.version.chars().count(), 253);
}

#[test]
fn no_plugin_reconciles_owns_or_writes_the_hosts_own_kinds() {
    let plugin = json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin"});
    let own = refusal(&with("/controllers/0/for", plugin.clone()));
    assert_eq!(own.reason, "ProtectedGroup", "{}", own.message);
    let mut brought = manifest()["customResources"][0].clone();
    brought["metadata"]["name"] = json!("podsets.mortise.dev");
    brought["spec"]["group"] = json!("mortise.dev");
    assert_eq!(refusal(&with("/customResources/0", brought)).reason, "ProtectedGroup");
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    for kind in [plugin, crd, json!({"apiVersion": "v1", "kind": "Event"})] {
        let mut write = kind.clone();
        write["verbs"] = json!(["patch"]);
        let written = refusal(&with("/writes", json!([write])));
        assert_eq!(written.reason, "ProtectedKind", "{}", written.message);
        let refusal = refusal(&with("/controllers/0/owns/1", kind));
        assert_eq!(refusal.reason, "ProtectedKind", "{}", refusal.message);
    }
}

const ADMISSION: Exports = Exports { admission: true, conversion: false };
const CONVERSION: Exports = Exports { admission: false, conversion: true };

#[test]
fn conversion_names_a_kind_of_several_versions_and_needs_its_export() {
    let entry = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet"});
    let parsed = Manifest::parse(&with("/conversion", json!([entry])).to_string()).unwrap();
    let (crd, versions) = ("podsets.app.example.com".into(), vec!["v1alpha1".into(), "v1alpha0".into()]);
    let kind = Kind::new("app.example.com/v1alpha1", "PodSet");
    assert_eq!(parsed.conversion, [ConversionSpec { kind, crd, versions }]);
    assert!(parsed.check_exports(CONVERSION).is_ok());
    let refusal = parsed.check_exports(ADMISSION).unwrap_err();
    assert!(refusal.message.contains("exports mortise:plugin/admission"), "{}", refusal.message);
    let refusal = parsed.check_exports(Exports::default()).unwrap_err();
    assert!(refusal.message.contains("exports no mortise:plugin/conversion"), "{}", refusal.message);
    let without = Manifest::parse(&manifest().to_string()).unwrap();
    assert_eq!(without.check_exports(CONVERSION).unwrap_err().reason, "ContractMismatch");

    let foreign = json!({"apiVersion": "v1", "kind": "Pod"});
    invalid([
        ("/conversion", json!([foreign]), "conversion[0]: no CRD under customResources serves v1/Pod"),
        ("/conversion", json!([entry, entry]), "conversion[1]: podsets.app.example.com has two entries"),
        ("/customResources/0/spec/conversion", json!({}), "customResources[0]: the host writes spec.conversion"),
    ]);
    let mut single = with("/conversion", json!([entry]));
    single["customResources"][0]["spec"]["versions"].as_array_mut().unwrap().pop();
    let refusal = Manifest::parse(&single.to_string()).unwrap_err();
    assert!(refusal.message.contains("has one version, v1alpha1, so there is nothing"), "{}", refusal.message);
}

#[test]
fn admission_names_the_reviewed_kinds_and_defaults_to_create_and_update() {
    let podset = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "validate": true});
    let parsed = Manifest::parse(&with("/admission", json!([podset])).to_string()).unwrap();
    let expected = AdmissionSpec {
        kind: Kind::new("app.example.com/v1alpha1", "PodSet"),
        resource: Some("podsets".into()),
        operations: Operations { create: true, update: true, delete: false },
        mutate: false,
        validate: true,
    };
    assert_eq!(parsed.admission, [expected]);
    assert!(parsed.check_exports(ADMISSION).is_ok());
    let refusal = parsed.check_exports(Exports::default()).unwrap_err();
    assert!(refusal.message.contains("exports no mortise:plugin/admission"), "{}", refusal.message);
    let without = Manifest::parse(&manifest().to_string()).unwrap();
    assert!(without.check_exports(Exports::default()).is_ok());
    assert_eq!(without.check_exports(ADMISSION).unwrap_err().reason, "ContractMismatch");
}

#[test]
fn invalid_admission_is_refused_with_its_place() {
    let podset = |more: Value| {
        let mut entry = json!({"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet"});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let validated = podset(json!({"validate": true}));
    let foreign = json!([{"apiVersion": "v1", "kind": "Pod", "validate": true}]);
    invalid([
        ("/admission", foreign, "admission[0]: this plugin neither brings nor reconciles v1/Pod"),
        ("/admission", json!([podset(json!({}))]), "neither mutate nor validate is true"),
        ("/admission", json!([validated, validated]), "admission[1]: app.example.com/v1alpha1/PodSet has two entries"),
        ("/admission", json!([podset(json!({"validate": true, "operations": []}))]), "operations: there is none"),
        ("/admission", json!([podset(json!({"operations": ["connect"]}))]), "\"connect\" is none of \"create\""),
        ("/admission", json!([podset(json!({"mutate": true, "operations": ["create", "delete"]}))]), "only validated"),
        ("/admission", json!([podset(json!({"validate": true, "failurePolicy": "Fail"}))]), "unknown field"),
    ]);
}

/// A manifest with `count` controllers, each with `kinds` kinds of its own.
fn controllers(count: usize, kinds: usize) -> Value {
    let kind = |name: String| json!({"apiVersion": "example.com/v1", "kind": name});
    let controller = |number: usize| {
        let reads: Vec<Value> = (1..kinds).map(|read| kind(format!("Kind{number}x{read}"))).collect();
        json!({"for": kind(format!("Kind{number}")), "reads": reads})
    };
    with("/controllers", (0..count).map(controller).collect())
}

#[test]
fn x10_a_manifest_has_a_bounded_number_of_controllers_kinds_and_crds() {
    for (place, most, at, beyond) in [
        ("controllers:", MAX_CONTROLLERS, controllers(MAX_CONTROLLERS, 1), controllers(MAX_CONTROLLERS + 1, 1)),
        ("own and read:", MAX_KINDS, controllers(4, MAX_KINDS / 4), controllers(1, MAX_KINDS + 1)),
    ] {
        Manifest::parse(&at.to_string()).unwrap();
        let refusal = refusal(&beyond);
        let expected = format!("{place} there are {}, one plugin may have {most}", most + 1);
        assert!(refusal.message.contains(&expected), "{expected:?} is not in {refusal}");
    }
    let crd = |number: usize| {
        let mut crd = manifest()["customResources"][0].clone();
        crd["metadata"]["name"] = json!(format!("kind{number}s.app.example.com"));
        crd["spec"]["names"] = json!({"kind": format!("Kind{number}"), "plural": format!("kind{number}s")});
        crd
    };
    let crds = |count: usize| with("/customResources", (0..count).map(crd).collect());
    Manifest::parse(&crds(MAX_CUSTOM_RESOURCES).to_string()).unwrap();
    let refusal = refusal(&crds(MAX_CUSTOM_RESOURCES + 1));
    assert!(refusal.message.contains("customResources: there are 65, one plugin may have 64"), "{}", refusal.message);
}

#[test]
fn http_names_origins_methods_and_secrets() {
    let http = json!([
        {"origin": "https://api.example.com", "methods": ["POST", "GET"], "secrets": ["token"]},
        {"origin": "https://API.example.com:443", "methods": ["GET"], "secrets": ["another", "token"]},
        {"origin": "http://10.0.0.1:8080", "methods": ["HEAD"]},
    ]);
    let parsed = Manifest::parse(&with("/http", http).to_string()).unwrap();
    let text = |rule: &HttpRule| {
        let methods: Vec<&str> = rule.methods.iter().map(|method| method.as_str()).collect();
        format!("{} {} {}", rule.origin, methods.join(","), rule.secrets.join(","))
    };
    let rules: Vec<String> = parsed.http.iter().map(text).collect();
    assert_eq!(rules, ["https://api.example.com GET,POST another,token", "http://10.0.0.1:8080 HEAD "]);
    assert_eq!(parsed.controllers[0].http, parsed.http);
    let entry = |origin: &str, methods: &[&str], secrets: &[&str]| json!([{"origin": origin, "methods": methods, "secrets": secrets}]);
    let many: Vec<Value> = (0..33).map(|n| json!({"origin": format!("https://h{n}"), "methods": ["GET"]})).collect();
    let names: Vec<String> = (0..17).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    invalid([
        ("/http", entry("api.example.com", &["GET"], &[]), "http[0].origin: \"api.example.com\" is not such as"),
        ("/http", entry("https://*.example.com", &["GET"], &[]), "neither a DNS name nor an IP address"),
        ("/http", entry("https://a/path", &["GET"], &[]), "an origin ends with the host or the port"),
        ("/http", entry("https://a", &[], &[]), "http[0].methods: there is none"),
        ("/http", entry("https://a", &["get"], &[]), "\"get\" is none of GET, HEAD, POST, PUT, PATCH and DELETE"),
        ("/http", entry("https://a", &["GET"], &["../a"]), "http[0].secrets: \"../a\" is not the name of a Secret"),
        ("/http", entry("https://a", &["GET"], &names), "http[0].secrets: there are 17, the most is 16"),
        ("/http", entry("http://a", &["GET"], &["a"]), "http://a is not encrypted, so it gets no Secrets"),
        ("/http", many.into(), "http: there are 33, one plugin may have 32"),
    ]);
}

#[test]
fn an_entry_of_reads_may_be_a_pattern_of_kinds_and_no_other_may() {
    let pattern = |api_version: &str| json!({"apiVersion": api_version, "kind": "*"});
    let reads = json!([pattern("apps/v1"), {"apiVersion": "v1", "kind": "Node"}, pattern("*.example.com/*")]);
    let parsed = Manifest::parse(&with("/controllers/0/reads", reads).to_string()).unwrap();
    let shown: Vec<String> = parsed.controllers[0].patterns.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["apps/v1/*", "*.example.com/*"]);
    assert_eq!(parsed.controllers[0].reads, [Kind::new("v1", "Node").into()]);
    let most = |count: usize| Value::from(vec![pattern("apps/v1"); count]);
    assert!(Manifest::parse(&with("/controllers/0/reads", most(32)).to_string()).is_ok());
    let partly = json!({"apiVersion": "apps/v1", "kind": "Deploy*"});
    invalid([
        (
            "/controllers/0/reads/0",
            pattern("*"),
            "controllers[0].reads[0]: apiVersion \"*\" with kind \"*\" is no pattern",
        ),
        (
            "/controllers/0/reads/1",
            partly,
            "controllers[0].reads[1]: apiVersion \"apps/v1\" with kind \"Deploy*\" is not one kind",
        ),
        (
            "/controllers/0/reads/0",
            json!({"apiVersion": "v1", "kind": "*", "labels": "a=b"}),
            "controllers[0].reads[0]: a pattern of kinds is not narrowed by namespaces or labels",
        ),
        ("/controllers/0/owns/0", pattern("v1"), "only `reads` may have patterns"),
        ("/controllers/0/for", pattern("example.com/v1"), "only `reads` may have patterns"),
        ("/controllers/0/reads", most(33), "controllers[0].reads: patterns: there are 33, one plugin may have 32"),
    ]);
}

#[test]
fn lists_whose_entries_are_compared_with_each_other_have_bounds_before_that() {
    let kind = |at: usize| json!({"apiVersion": "example.com/v1", "kind": format!("Kind{at}")});
    let write = |at: usize| json!({"apiVersion": "example.com/v1", "kind": format!("Kind{at}"), "verbs": ["patch"]});
    let http = |at: usize| json!({"origin": format!("https://{at}.example.com"), "methods": ["GET"]});
    let list = |entry: &dyn Fn(usize) -> Value, count: usize| Value::from_iter((0..count).map(entry));
    invalid([
        ("/controllers/0/owns", list(&kind, 129), "controllers[0].owns: there are 129, one plugin may have 128"),
        ("/controllers/0/reads", list(&kind, 161), "controllers[0].reads: there are 161, one plugin may have 160"),
        ("/writes", list(&write, 1_025), "writes: there are 1025, one plugin may have 1024"),
        ("/http", list(&http, 1_025), "http: there are 1025, one plugin may have 1024"),
    ]);
    assert_eq!(Manifest::parse(&with("/writes", list(&write, 1_024)).to_string()).unwrap().writes.len(), 1_024);
}
