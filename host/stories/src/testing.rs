//! A guest in Rust for this crate's tests: a set of Pods, by hand, without an SDK.

use std::sync::Arc;

use mortise_core::admission::{AdmissionRequest, Checked, Verdict, Violation};
use mortise_core::contract::{CallResult, Child, Failure, Outcome};
use mortise_core::conversion::{Conversion, ConversionRequest};
use mortise_core::dependencies::Dependencies;
use mortise_core::limits::CallLimits;
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::view::View;
use serde_json::{Value, json};

use crate::guest::Guest;

/// Keeps `spec.replicas` Pods, and counts those that run in its status.
pub(crate) struct Sets;

pub(crate) fn set(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": name}, "spec": {"replicas": replicas}})
}

pub(crate) fn reference(kind: &str, name: &str) -> ObjectRef {
    let api_version = if kind == "Set" { "example.com/v1" } else { "v1" };
    ObjectRef { kind: Kind::new(api_version, kind), name: Name::new("default", name) }
}

impl Guest for Sets {
    fn manifest(&self) -> Arc<str> {
        let count = json!({"type": "integer", "minimum": 0});
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["replicas"], "properties": {"replicas": count}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        });
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "sets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "sets", "singular": "set", "kind": "Set", "listKind": "SetList"},
            },
        });
        let admission = json!({"apiVersion": "example.com/v1", "kind": "Set", "validate": true});
        let controller = json!({
            "for": {"apiVersion": "example.com/v1", "kind": "Set"},
            "owns": [{"apiVersion": "v1", "kind": "Pod", "update": "recreate"}],
        });
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "sets", "version": "1",
            "customResources": [crd], "controllers": [controller], "admission": [admission],
        })
        .to_string()
        .into()
    }

    fn reconcile(&self, object: &str, mut view: View, _: &CallLimits) -> (CallResult, Dependencies) {
        let set: Value = serde_json::from_str(object).unwrap();
        let pods = view.owned(&Kind::new("v1", "Pod"), &["status.phase".to_owned()]);
        let result = match pods {
            Err(error) => CallResult::Failed(Failure::Retry(error.to_string())),
            Ok(pods) => {
                let running = pods.matches("Running").count();
                let containers = json!([{"name": "main", "image": "nginx"}]);
                let pod: Arc<str> =
                    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}).to_string().into();
                let wanted = set["spec"]["replicas"].as_u64().unwrap_or_default();
                let children = (0..wanted).map(|n| Child::new(n.to_string(), Arc::clone(&pod))).collect();
                let status = Some(json!({"running": running}).to_string().into());
                CallResult::Done(Outcome { children: Some(children), status, ..Outcome::default() })
            }
        };
        (result, view.into_dependencies())
    }

    fn admit(&self, request: &AdmissionRequest, _: &CallLimits) -> Verdict {
        let object: Value = serde_json::from_str(&request.object).unwrap();
        let is_unlucky = object["spec"]["replicas"] == 13;
        let violation = || Violation::new("spec.replicas", "Invalid value: 13: not so many");
        Verdict::Checked(Checked::new(is_unlucky.then(violation), []))
    }

    fn convert(&self, _: &ConversionRequest, _: &CallLimits) -> Conversion {
        Conversion::Refused("there is one version".to_owned())
    }
}
