//! The webhook configurations of plugins, and the writes that create them. Live and wanted configurations come in as
//! JSON, writes come out; `kube/src/webhook/configurations.rs` sends them.
//!
//! Two invariants hold for every plugin: neither a stopped host nor a failing plugin blocks a deletion, and the
//! webhooks exclude the host's own namespace, because the host is repaired there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::AdmissionBackend;
use crate::manifest::AdmissionSpec;
use crate::object::Kind;
use crate::webhook::{Endpoint, Purpose, Subject, without_managed_fields};
use crate::well_known::{HOST, HOST_NAMESPACE_LABEL, MANAGED_BY_LABEL, PLUGIN};

/// A kind of webhook configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Configuration {
    /// The purpose of its webhooks.
    pub purpose: Purpose,
}

impl Configuration {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self { purpose: Purpose::Mutate }, Self { purpose: Purpose::Validate }];

    /// "ValidatingWebhookConfiguration".
    pub fn kind(self) -> &'static str {
        match self.purpose {
            Purpose::Mutate => "MutatingWebhookConfiguration",
            Purpose::Validate => "ValidatingWebhookConfiguration",
        }
    }

    /// The name of the resource.
    pub fn resource(self) -> &'static str {
        match self.purpose {
            Purpose::Mutate => "mutatingwebhookconfigurations",
            Purpose::Validate => "validatingwebhookconfigurations",
        }
    }
}

/// Plural resource names by kind.
pub type Resources = BTreeMap<Kind, Arc<str>>;

/// The write of a configuration.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// POST this.
    Create(Value),
    /// PUT this; it carries the resourceVersion that was compared.
    Update(Value),
    /// DELETE by name, with the UID as precondition.
    Delete {
        /// metadata.name.
        name: String,
        /// metadata.uid.
        uid: String,
    },
}

/// The name of both configurations of a plugin.
pub fn name_of(plugin: &str) -> String {
    format!("mortise-{plugin}")
}

/// The plugin that a live configuration belongs to; None when it does not belong to the host in `namespace`.
pub fn plugin_of<'a>(live: &'a Value, namespace: &str) -> Option<&'a str> {
    let labels = &live["metadata"]["labels"];
    let is_ours = labels[MANAGED_BY_LABEL] == HOST && labels[HOST_NAMESPACE_LABEL] == namespace;
    live["metadata"]["annotations"][PLUGIN].as_str().filter(|_| is_ours)
}

/// The configuration that a plugin needs, if any. `discovered` has the resources of kinds that it does not define.
pub fn wanted(
    of: Configuration,
    plugin: &str,
    namespace: &str,
    serving: &AdmissionBackend,
    endpoint: &Endpoint,
    discovered: &Resources,
) -> Option<Value> {
    let webhooks: Vec<Value> = serving
        .specs
        .iter()
        .filter_map(|spec| Some((spec, spec.resource.as_ref().or_else(|| discovered.get(&spec.kind))?)))
        .flat_map(|(spec, resource)| {
            webhooks(of.purpose, plugin, serving.timeout_seconds(), (spec, resource), endpoint)
        })
        .collect();
    (!webhooks.is_empty()).then(|| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": of.kind(),
            "metadata": {
                "name": name_of(plugin),
                "labels": {(MANAGED_BY_LABEL): HOST, (HOST_NAMESPACE_LABEL): namespace},
                "annotations": {(PLUGIN): plugin},
            },
            "webhooks": webhooks,
        })
    })
}

/// The write that turns `live` into `wanted`, if one is needed. By [`plugin_of`], `live` belongs to the plugin.
pub fn change(live: Option<&Value>, wanted: Option<Value>) -> Option<Change> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match (live, wanted) {
        (None, None) => None,
        (None, Some(wanted)) => Some(Change::Create(wanted)),
        (Some(live), None) => {
            Some(Change::Delete { name: text(&live["metadata"]["name"]), uid: text(&live["metadata"]["uid"]) })
        }
        // The kind was asked for: the items of a list do not say what they are.
        (Some(live), Some(wanted))
            if ["metadata", "webhooks"].iter().all(|part| covers(&live[part], &wanted[part])) =>
        {
            None
        }
        (Some(live), Some(mut wanted)) => {
            // Labels, annotations and owners of others stay.
            let mut metadata = without_managed_fields(live.clone())["metadata"].take();
            for part in ["labels", "annotations"] {
                for (key, value) in wanted["metadata"][part].as_object().into_iter().flatten() {
                    metadata[part][key] = value.clone();
                }
            }
            wanted["metadata"] = metadata;
            Some(Change::Update(wanted))
        }
    }
}

/// One webhook for creates and updates and one for deletes: they fail differently.
fn webhooks(
    purpose: Purpose,
    plugin: &str,
    timeout: u64,
    (spec, resource): (&AdmissionSpec, &str),
    endpoint: &Endpoint,
) -> Vec<Value> {
    let is_declared = match purpose {
        Purpose::Mutate => spec.mutate,
        Purpose::Validate => spec.validate,
    };
    let written = [(spec.operations.create, "CREATE"), (spec.operations.update, "UPDATE")];
    let written = written.into_iter().filter_map(|(is_declared, operation)| is_declared.then_some(operation)).collect();
    let deleted = if spec.operations.delete && purpose == Purpose::Validate { vec!["DELETE"] } else { Vec::new() };
    // Nobody else can validate the plugin's own kinds. Other kinds must work without the plugin.
    let policy = if spec.is_own() { "Fail" } else { "Ignore" };
    [
        // An object that is being deleted must lose its finalizers by an update, even if it is invalid.
        (written, "", policy, "is-not-being-deleted", "!has(object.metadata.deletionTimestamp)"),
        // The garbage collector and the namespace controller would retry forever, and nobody would see why.
        (
            deleted,
            "-delete",
            "Ignore",
            "is-not-asked-by-the-control-plane",
            "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
        ),
    ]
    .into_iter()
    .filter(|(operations, ..)| is_declared && !operations.is_empty())
    .map(|(operations, suffix, policy, condition, expression): (Vec<&str>, _, _, _, _)| {
        let mut webhook = json!({
            "name": format!("{}{suffix}.{resource}.{plugin}.mortise.dev", purpose.as_str()),
            "admissionReviewVersions": ["v1"],
            "clientConfig": endpoint.client(Subject::Admission(purpose), plugin),
            "failurePolicy": policy,
            "matchConditions": [{"name": condition, "expression": expression}],
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded(spec, endpoint),
            }]},
            "objectSelector": {},
            "rules": [{
                "apiGroups": [spec.kind.group()],
                "apiVersions": [spec.kind.version()],
                "operations": operations,
                // Without subresources: only the host writes the status.
                "resources": [resource],
                "scope": "*",
            }],
            "sideEffects": "None",
            "timeoutSeconds": timeout,
        });
        if purpose == Purpose::Mutate {
            webhook["reinvocationPolicy"] = json!("Never");
        }
        webhook
    })
    .collect()
}

/// The namespaces that a webhook excludes: the host's, and for kinds of others also the cluster's.
fn excluded(spec: &AdmissionSpec, endpoint: &Endpoint) -> Vec<String> {
    let cluster = (!spec.is_own() && *endpoint.namespace != *CLUSTER_NAMESPACE).then_some(CLUSTER_NAMESPACE);
    cluster.into_iter().chain([&*endpoint.namespace]).map(str::to_owned).collect()
}

const CLUSTER_NAMESPACE: &str = "kube-system";

/// Whether `live` has everything in `wanted`. The API server adds fields with defaults, but no list elements.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| live.get(key).is_some_and(|live| covers(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}
