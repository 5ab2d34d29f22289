//! Which policies are about a request: each with its bindings and their parameters. Input: attributes and objects. Output:
//! policies to evaluate. It must not know what they say.

use std::sync::Arc;

use serde_json::Value;

use super::matching::{self, GROUP, Objects};
use super::reading::{array, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::Halt;
use crate::resource::{Resource, Storage, group_version};
use crate::selector::Labels;
use crate::store::Object;

/// A policy with one of its bindings.
pub(super) struct Invocation {
    pub(super) policy: Arc<Object>,
    pub(super) binding: Arc<Object>,
    /// The resource in the version that the policy wants.
    pub(super) target: Arc<Resource>,
    /// What the binding refers to, each to be evaluated with; a single null without any; or why there are none.
    pub(super) params: Result<Vec<Value>, String>,
}

impl Invocation {
    pub(super) fn spec(&self) -> &Value {
        &self.policy.value["spec"]
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.spec()["failurePolicy"] == "Ignore"
    }
}

/// The policies of these plurals (of policies, and of their bindings) that match.
pub(super) fn all(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    [policies, bindings]: [&str; 2],
) -> Result<Vec<Invocation>, Halt> {
    let mut found = Vec::new();
    let (policies, bindings) = (Storage::new(GROUP, policies), Storage::new(GROUP, bindings));
    if attributes.resource.plural.ends_with("reviews") || matching::is_policy(attributes) {
        return Ok(found);
    }
    for policy in cluster.store.list(&policies, None, None) {
        let spec = &policy.value["spec"];
        let Some(target) = selected(cluster, attributes, objects, &spec["matchConstraints"])? else { continue };
        let all = cluster.store.list(&bindings, None, None);
        for binding in all.filter(|binding| binding.value["spec"]["policyName"] == policy.name()) {
            let limits = &binding.value["spec"]["matchResources"];
            if limits.is_object() && selected(cluster, attributes, objects, limits)?.is_none() {
                continue;
            }
            let params = params(cluster, attributes, spec, &binding.value["spec"]["paramRef"]);
            let (policy, binding, target) = (policy.clone(), binding.clone(), target.clone());
            found.push(Invocation { policy, binding, target, params });
        }
    }
    Ok(found)
}

/// The resource in the version that a policy's or a binding's `MatchResources` have, if they match.
fn selected(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    constraints: &Value,
) -> Result<Option<Arc<Resource>>, Halt> {
    let (rules, policy) = (array(constraints, "resourceRules"), &constraints["matchPolicy"]);
    let excluded = array(constraints, "excludeResourceRules");
    if matching::matching(cluster, attributes, objects, excluded, policy).is_some() {
        return Ok(None);
    }
    let target = if rules.is_empty() {
        Some(attributes.resource.clone())
    } else {
        matching::matching(cluster, attributes, objects, rules, policy)
    };
    let selects = target.is_some() && matching::selects(cluster, attributes, objects, constraints)?;
    Ok(target.filter(|_| selects))
}

/// The parameters that a binding refers to; a single null without any.
fn params(cluster: &Cluster, attributes: &Attributes, spec: &Value, reference: &Value) -> Result<Vec<Value>, String> {
    let wanted = &spec["paramKind"];
    if !wanted.is_object() || !reference.is_object() {
        return Ok(vec![Value::Null]);
    }
    let (group, version) = group_version(text(wanted, "apiVersion"));
    let resource = cluster.kind(group, version, text(wanted, "kind"));
    let resource = resource
        .ok_or_else(|| format!("paramKind kind `{group}/{version}, Kind={}` not known", text(wanted, "kind")))?;
    let said = text(reference, "namespace");
    let namespace = match (resource.namespaced, said, attributes.namespace.as_str()) {
        (false, "", _) => "",
        (false, _, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "", "") => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "", own) => own,
        (true, said, _) => said,
    };
    let name = text(reference, "name");
    let found: Vec<Value> = if name.is_empty() {
        let labels = Labels::read(&reference["selector"]);
        let all = cluster.store.list(&resource.storage, Some(namespace), None);
        let chosen = all.filter(|object: &&Arc<Object>| labels.matches(object.labels()));
        chosen.map(|object| object.value.clone()).collect()
    } else {
        cluster.store.get(&resource.storage, namespace, name).map(|object| object.value.clone()).into_iter().collect()
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
