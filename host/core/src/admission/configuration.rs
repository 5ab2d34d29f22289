//! The ValidatingWebhookConfigurations and MutatingWebhookConfigurations that plugins mean, and what to do so that the
//! cluster has them. What is live and what is wanted come in as JSON, writes go out; `kube/src/webhook/configurations.rs`
//! performs them.
//!
//! Two things must hold whatever a plugin does: nobody is kept from deleting anything by a host that is away or a plugin
//! that fails, and the host's own namespace is never asked about, since whatever mends the host is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::AdmissionBackend;
use crate::manifest::AdmissionSpec;
use crate::object::Kind;
use crate::webhook::{Endpoint, Purpose, Subject};
use crate::well_known::{HOST, HOST_NAMESPACE_LABEL, MANAGED_BY_LABEL, PLUGIN};

/// A kind of configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Configuration {
    /// What its webhooks are asked for.
    pub purpose: Purpose,
}

impl Configuration {
    /// Both.
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

/// The names of resources, by their kinds.
pub type Resources = BTreeMap<Kind, Arc<str>>;

/// What has to be written.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// POST this.
    Create(Value),
    /// PUT this; it carries the resourceVersion of what was compared.
    Update(Value),
    /// DELETE what has this name and UID.
    Delete {
        /// metadata.name.
        name: String,
        /// metadata.uid.
        uid: String,
    },
}

/// The name of a plugin's configurations.
pub fn name_of(plugin: &str) -> String {
    format!("mortise-{plugin}")
}

/// The plugin that a live configuration belongs to; None when it is none of this host's, whose namespace is given.
pub fn plugin_of<'a>(live: &'a Value, namespace: &str) -> Option<&'a str> {
    let labels = &live["metadata"]["labels"];
    let is_ours = labels[MANAGED_BY_LABEL] == HOST && labels[HOST_NAMESPACE_LABEL] == namespace;
    live["metadata"]["annotations"][PLUGIN].as_str().filter(|_| is_ours)
}

/// What a plugin's configuration has to be; None when it needs none of this kind. `namespace` is the host's, `discovered` has
/// the kinds that the plugin does not bring.
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

/// What to write so that a configuration is as it is wanted, or gone; None when it is. `live` is the plugin's own, as
/// [`plugin_of`] says.
pub fn change(live: Option<&Value>, wanted: Option<Value>) -> Option<Change> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match (live, wanted) {
        (None, None) => None,
        (None, Some(wanted)) => Some(Change::Create(wanted)),
        (Some(live), None) => {
            Some(Change::Delete { name: text(&live["metadata"]["name"]), uid: text(&live["metadata"]["uid"]) })
        }
        (Some(live), Some(wanted)) if covers(live, &wanted) => None,
        (Some(live), Some(mut wanted)) => {
            // Others' labels, annotations and owners stay.
            let mut metadata = live["metadata"].clone();
            for part in ["labels", "annotations"] {
                let ours = wanted["metadata"][part].as_object().cloned().unwrap_or_default();
                for (key, value) in ours {
                    metadata[part][key] = value;
                }
            }
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.remove("managedFields");
            }
            wanted["metadata"] = metadata;
            Some(Change::Update(wanted))
        }
    }
}

/// One webhook for what is written and one for what is deleted: they fail differently.
fn webhooks(
    purpose: Purpose,
    plugin: &str,
    timeout: u64,
    (spec, resource): (&AdmissionSpec, &str),
    endpoint: &Endpoint,
) -> Vec<Value> {
    let is_asked = match purpose {
        Purpose::Mutate => spec.mutate,
        Purpose::Validate => spec.validate,
    };
    let word = purpose.as_str();
    let written: Vec<&str> = [(spec.operations.create, "CREATE"), (spec.operations.update, "UPDATE")]
        .into_iter()
        .filter_map(|(is_meant, operation)| is_meant.then_some(operation))
        .collect();
    let mut webhooks = Vec::new();
    if is_asked && !written.is_empty() {
        // Of a kind that the plugin brings nobody else could say what is right. What others work with goes on without it.
        let policy = if spec.is_own() { "Fail" } else { "Ignore" };
        let name = format!("{word}.{resource}.{plugin}.mortise.dev");
        // Finalizers are taken off by an update: an object that is being deleted is let go whatever stands in it.
        let condition = json!({
            "name": "is-not-being-deleted",
            "expression": "!has(object.metadata.deletionTimestamp)",
        });
        webhooks.push(webhook(
            &name,
            purpose,
            plugin,
            (timeout, policy),
            (spec, resource),
            endpoint,
            &written,
            condition,
        ));
    }
    if is_asked && spec.operations.delete && purpose == Purpose::Validate {
        let name = format!("{word}-delete.{resource}.{plugin}.mortise.dev");
        // The garbage collector and the namespace controller would try for ever, and nobody would see why.
        let condition = json!({
            "name": "is-not-asked-by-the-control-plane",
            "expression": "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
        });
        webhooks.push(webhook(
            &name,
            purpose,
            plugin,
            (timeout, "Ignore"),
            (spec, resource),
            endpoint,
            &["DELETE"],
            condition,
        ));
    }
    webhooks
}

#[expect(clippy::too_many_arguments, reason = "each is one field of the webhook")]
fn webhook(
    name: &str,
    purpose: Purpose,
    plugin: &str,
    (timeout, policy): (u64, &str),
    (spec, resource): (&AdmissionSpec, &str),
    endpoint: &Endpoint,
    operations: &[&str],
    condition: Value,
) -> Value {
    let mut webhook = json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": endpoint.client(Subject::Admission(purpose), plugin),
        "failurePolicy": policy,
        "matchConditions": [condition],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared(spec, endpoint),
        }]},
        "objectSelector": {},
        "rules": [{
            "apiGroups": [spec.kind.group()],
            "apiVersions": [spec.kind.version()],
            "operations": operations,
            // Without subresources: a status is the host's to write.
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
}

/// Namespaces that are never asked about: the host's, and for what is not the plugin's own also the cluster's.
fn spared(spec: &AdmissionSpec, endpoint: &Endpoint) -> Vec<String> {
    let cluster = (!spec.is_own() && *endpoint.namespace != *CLUSTER_NAMESPACE).then_some(CLUSTER_NAMESPACE);
    cluster.into_iter().chain([&*endpoint.namespace]).map(str::to_owned).collect()
}

const CLUSTER_NAMESPACE: &str = "kube-system";

/// True when everything that is wanted is there as it is wanted. Lists are compared as wholes.
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
