//! Tenancy gives Namespaces of a tier what every tenant needs. A Namespace and the plugin's configuration go in; its
//! ResourceQuota, its LimitRange and its NetworkPolicy come out.
//!
//! All Namespaces are reconciled, also those without the label: otherwise the children would remain when it is removed.

use std::collections::BTreeMap;

use mortise_sdk::Quantity;
use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

#[derive(Projection)]
#[projection("v1/Namespace")]
struct Namespace<'a> {
    #[field("metadata.name")]
    name: &'a str,
    /// The name of the tier.
    #[field("metadata.labels[\"tenancy.example.com/tier\"]")]
    tier: Option<&'a str>,
}

/// The plugin's configuration, `config.yaml` of its ConfigMap.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The tiers by name.
    #[serde(default)]
    tiers: BTreeMap<String, Tier>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tier {
    /// What all Pods of a Namespace may request together.
    cpu: Quantity,
    memory: Quantity,
    /// What a container has that requests nothing.
    default_cpu: Quantity,
    default_memory: Quantity,
    /// Whether other Namespaces may send to its Pods.
    #[serde(default)]
    open: bool,
}

#[reconciler(owns("v1/ResourceQuota", "v1/LimitRange", "networking.k8s.io/v1/NetworkPolicy"))]
fn reconcile(namespace: &Namespace, cx: &Context) -> Result<Outcome, Failure> {
    let Some(name) = namespace.tier else { return Ok(Outcome::children([])) };
    let config: Config = cx.config()?;
    match config.tiers.get(name) {
        Some(tier) => Ok(Outcome::children(children(namespace.name, tier))),
        // Its children stay: a typing error must not remove a quota.
        None => {
            let known: Vec<&str> = config.tiers.keys().map(String::as_str).collect();
            let message = format!("there is no tier {name:?}; the configuration has: {}", known.join(", "));
            Ok(Outcome::new().event(Event::warning("UnknownTier", message)))
        }
    }
}

fn children(namespace: &str, tier: &Tier) -> Vec<Child> {
    let quota = json!({"hard": {"requests.cpu": tier.cpu, "requests.memory": tier.memory}});
    let defaults = json!({"cpu": tier.default_cpu, "memory": tier.default_memory});
    let limits = json!({"limits": [{"type": "Container", "defaultRequest": defaults}]});
    let own = json!([{"podSelector": {}}]);
    let isolation = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": own}]});
    // The Namespace has no namespace of its own, so each child names it.
    let child = |api_version: &str, kind: &str, spec: Value| {
        let metadata = json!({"name": "tenancy", "namespace": namespace});
        Child::new("tenancy", Json::of_kind(api_version, kind, &json!({"metadata": metadata, "spec": spec})))
    };
    let mut children = vec![child("v1", "ResourceQuota", quota), child("v1", "LimitRange", limits)];
    if !tier.open {
        children.push(child("networking.k8s.io/v1", "NetworkPolicy", isolation));
    }
    children
}
