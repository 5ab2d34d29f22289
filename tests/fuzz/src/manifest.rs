//! A manifest to its checked form, its rights and the plans of its CRDs. An input is a manifest on one line, then a live
//! CustomResourceDefinition; a line that is a definition itself is compared with that of a manifest.

use std::collections::BTreeSet;

use mortise_core::crd::{self, CrdOwner, CrdPlan, conversion};
use mortise_core::limits::{
    MAX_ADMISSION, MAX_CONTROLLERS, MAX_CUSTOM_RESOURCES, MAX_DEADLINE_MS, MAX_KINDS, MAX_MEMORY_BYTES, MAX_WATCHES,
};
use mortise_core::manifest::{ControllerSpec, Exports, Manifest};
use mortise_core::object::Kind;
use mortise_core::permission::needed;
use mortise_core::webhook::{Address, Endpoint};
use mortise_core::well_known::GROUP;
use serde_json::Value;

use crate::cost::{self, Bound};
use crate::tree_bytes::tree_bytes;
use crate::worst::{Maker, list};

/// A manifest is read as a tree, which its definitions are copied out of; their texts are parts of its own.
const TREES: usize = 3;
/// Of each byte of a manifest that is kept: names and rules, each in a text of its own. Checked manifests have no more than a MiB,
/// and few of them live.
const KEPT_FACTOR: usize = 16;
/// The verbs that change something.
const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];

pub(crate) fn run(input: &[u8]) {
    if let Some(mut maker) = Maker::of(input) {
        return check(&made(&mut maker), "");
    }
    let (first, live) = crate::two_lines(input);
    let (Ok(text), Ok(live)) = (std::str::from_utf8(first), std::str::from_utf8(live)) else { return };
    check(text, live);
}

/// A manifest with a schema, controllers or more members of any content.
fn made(maker: &mut Maker<'_>) -> String {
    let (schema, printed) = (maker.value(), maker.value());
    let (group, name) = ("app.example.com", "podsets.app.example.com");
    let version = format!(
        r#"{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","default":{schema}}}}},"additionalPrinterColumns":{printed}}}"#
    );
    let names = r#"{"kind":"PodSet","plural":"podsets"}"#;
    let definition = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{name}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{names},"versions":[{version}]}}}}"#
    );
    if maker.up_to(3) == 0 {
        return definition;
    }
    let kind = r#"{"apiVersion":"app.example.com/v1","kind":"PodSet"}"#;
    let owned = r#"{"apiVersion":"v1","kind":"Pod","update":"recreate"}"#;
    let owns = list(owned, maker.count(owned.len() + 1).min(200));
    let controller = format!(r#"{{"for":{kind},"owns":{owns}}}"#);
    let controllers = list(&controller, 1 + maker.up_to(1) * maker.up_to(70));
    let more = maker.value();
    format!(
        r#"{{"apiVersion":"mortise.dev/v1alpha1","kind":"PluginManifest","name":"podset","customResources":[{definition}],"controllers":{controllers},"{}":{more}}}"#,
        maker.one(&["more", "limits", "http", "conversion", "admission"])
    )
}

fn check(text: &str, live: &str) {
    let definition =
        serde_json::from_str::<Value>(text).ok().filter(|value| value["kind"] == "CustomResourceDefinition");
    if definition.is_some() {
        return check_plans("podset", text, live);
    }
    let parsed = cost::within(
        "parsing a manifest",
        Bound { input: text.len(), peak: TREES * tree_bytes(text.as_bytes()) + KEPT_FACTOR * text.len() },
        || Manifest::parse(text),
        |parsed| match parsed {
            Ok(_) => KEPT_FACTOR * text.len(),
            Err(refusal) => refusal.message.capacity(),
        },
    );
    match parsed {
        Ok(manifest) => {
            check_bounds(&manifest);
            check_rights(&manifest);
            for custom_resource in &manifest.custom_resources {
                let is_planned = matches!(
                    crd::plan(None, &crd::prepare("podset", &custom_resource.body, None), true),
                    CrdPlan::Create(_)
                );
                assert!(
                    is_planned && custom_resource.kinds.iter().all(|kind| kind.group() != GROUP),
                    "{custom_resource:?}"
                );
                check_plans(&manifest.name, &custom_resource.body, live);
            }
        }
        Err(refusal) => {
            crate::check_message(&refusal.message);
            assert!(!refusal.message.is_empty() && !refusal.reason.is_empty());
        }
    }
}

fn check_bounds(manifest: &Manifest) {
    let Manifest { controllers, custom_resources, admission, conversion, limits, .. } = manifest;
    assert!((1..=MAX_CONTROLLERS).contains(&controllers.len()));
    assert!(custom_resources.len() <= MAX_CUSTOM_RESOURCES && admission.len() <= MAX_ADMISSION);
    assert!(conversion.len() <= custom_resources.len());
    let kinds: BTreeSet<Kind> = controllers.iter().flat_map(ControllerSpec::readable).collect();
    assert!(kinds.len() <= MAX_KINDS);
    let places = controllers.iter().flat_map(ControllerSpec::scopes).flat_map(|(_, scope)| scope.namespaces);
    assert!(places.count() <= MAX_WATCHES);
    assert!(
        (1..=MAX_MEMORY_BYTES).contains(&limits.memory_bytes) && (1..=MAX_DEADLINE_MS).contains(&limits.deadline_ms)
    );
    for kind in kinds {
        assert!(!kind.kind.contains('*') && !kind.api_version.contains('*') && !kind.kind.is_empty(), "{kind}");
    }
    for spec in admission {
        assert!(spec.mutate || spec.validate);
        assert!(spec.is_own() || controllers.iter().any(|controller| controller.primary == spec.kind));
    }
    let exports = Exports { admission: !admission.is_empty(), conversion: !conversion.is_empty() };
    assert!(manifest.check_exports(exports).is_ok());
}

/// No plugin gets a right to write what is the host's, and none without a kind.
fn check_rights(manifest: &Manifest) {
    for permission in needed(manifest) {
        let kind = &permission.kind;
        assert!(!kind.kind.is_empty() && !kind.api_version.contains('*'), "{permission:?}");
        assert!(kind.group() != GROUP || !WRITES.contains(&permission.verb), "{permission:?}");
        assert!(permission.namespace.is_none_or(|namespace| !namespace.is_empty()));
    }
}

/// A plan that is carried out needs no other one.
fn check_plans(plugin: &str, body: &str, live: &str) {
    let address = Address::Service { name: "mortise-webhook".into(), port: 443 };
    let endpoint = Endpoint { address, ca_bundle: Some("b25l".into()), namespace: "mortise-system".into() };
    for conversion in [None, Some(conversion::strategy(plugin, &endpoint))] {
        let wanted = crd::prepare(plugin, body, conversion);
        match crd::plan(None, &wanted, false) {
            CrdPlan::Create(created) => {
                assert_eq!(
                    crd::plan(Some(&created), &wanted, true),
                    CrdPlan::Nothing(CrdOwner::Plugin),
                    "after the creation of {wanted}"
                );
            }
            CrdPlan::Refuse(refusal) => return crate::check_message(&refusal.message),
            other => panic!("{other:?} without a live definition"),
        }
        crd::establishment(live);
        if let Ok(live) = serde_json::from_str(live) {
            conversion::trusts(&live, plugin, &endpoint);
        }
        for objects_exist in [false, true] {
            match crd::plan(Some(live), &wanted, objects_exist) {
                CrdPlan::Update(updated) => {
                    let again = crd::plan(Some(&updated), &wanted, true);
                    assert_eq!(again, CrdPlan::Nothing(CrdOwner::Plugin), "after the update of {live} to {wanted}");
                }
                CrdPlan::Narrows { refusal, kept } => {
                    crate::check_message(&refusal.message);
                    assert!(objects_exist);
                    let Some(kept) = kept else { continue };
                    let again = crd::plan(Some(&kept), &wanted, true);
                    assert!(!matches!(again, CrdPlan::Update(_) | CrdPlan::Create(_)), "after {kept}: {again:?}");
                }
                CrdPlan::Refuse(refusal) => crate::check_message(&refusal.message),
                CrdPlan::Nothing(_) => {}
                CrdPlan::Create(_) => panic!("{live} is created once more"),
            }
        }
    }
}
