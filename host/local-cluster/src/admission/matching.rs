//! Which requests a webhook or a policy is about: rules, selectors, equivalent versions. Input: attributes and objects. Output:
//! whether they match, and in which version. It must not know what follows.

use std::sync::Arc;

use serde_json::Value;

use super::reading::{array, kind, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::{Halt, Status};
use crate::resource::{Resource, Storage};
use crate::selector::Labels;

pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// The objects of a request.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) new: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
}

impl Objects<'_> {
    pub(super) fn operation(&self) -> &'static str {
        match (self.new, self.old) {
            (None, _) => "DELETE",
            (_, None) => "CREATE",
            _ => "UPDATE",
        }
    }
}

/// Admission configurations are never sent to webhooks, which could refuse their own repair.
pub(super) fn is_exempt(attributes: &Attributes) -> bool {
    is_policy(attributes) || matches!(kind(attributes), (GROUP, plural) if plural.contains("webhookconfiguration"))
}

/// Policies and their bindings are not subject to policies. Webhook configurations are.
pub(super) fn is_policy(attributes: &Attributes) -> bool {
    matches!(kind(attributes), (GROUP, plural) if plural.contains("admissionpolic"))
}

/// The namespace of a request, which of a Namespace is the Namespace itself.
pub(super) fn namespace<'a>(attributes: &'a Attributes, objects: Objects<'a>) -> &'a str {
    if kind(attributes) != ("", "namespaces") {
        return &attributes.namespace;
    }
    let name = objects.new.or(objects.old).map_or("", |object| text(&object["metadata"], "name"));
    if attributes.name.is_empty() { name } else { &attributes.name }
}

/// Whether a `namespaceSelector` and an `objectSelector` select the request.
pub(super) fn selects(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    selectors: &Value,
) -> Result<bool, Halt> {
    let of_object = Labels::read(&selectors["objectSelector"]);
    let has = |object: Option<&Value>| object.is_some_and(|object| of_object.matches(&object["metadata"]["labels"]));
    if !of_object.0.is_empty() && !has(objects.new) && !has(objects.old) {
        return Ok(false);
    }
    let of_namespace = Labels::read(&selectors["namespaceSelector"]);
    let name = namespace(attributes, objects);
    if of_namespace.0.is_empty() || name.is_empty() {
        return Ok(true);
    }
    if let (("", "namespaces"), "", Some(new)) = (kind(attributes), attributes.subresource.as_str(), objects.new) {
        return Ok(of_namespace.matches(&new["metadata"]["labels"]));
    }
    let found = cluster.store.get(&Storage::new("", "namespaces"), "", name);
    let found = found.ok_or_else(|| Status::not_found("", "namespaces", name))?;
    Ok(of_namespace.matches(found.labels()))
}

/// The resource, in the version that one of the rules has: the request's own, or by `matchPolicy: Equivalent` another one.
pub(super) fn matching(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    rules: &[Value],
    policy: &Value,
) -> Option<Arc<Resource>> {
    let own = &attributes.resource;
    let rules: Vec<&Value> = rules.iter().filter(|rule| rule_fits(rule, attributes, objects)).collect();
    if rules.is_empty() {
        return None;
    }
    let fits = |resource: &Resource| {
        let has = |rule, key, wanted| array(rule, key).iter().any(|known| known == "*" || known == wanted);
        rules
            .iter()
            .any(|rule| has(rule, "apiGroups", &*resource.group) && has(rule, "apiVersions", &*resource.version))
    };
    if fits(own) {
        return Some(own.clone());
    }
    if policy == "Exact" {
        return None;
    }
    let mut others = cluster.resources().filter(|other| other.storage == own.storage && other.version != own.version);
    others.find(|other| fits(other)).cloned()
}

/// Whether a rule is about the request in some group and version.
fn rule_fits(rule: &Value, attributes: &Attributes, objects: Objects<'_>) -> bool {
    let (_, plural) = kind(attributes);
    let in_namespace = kind(attributes) != ("", "namespaces") && !attributes.namespace.is_empty();
    let scope = match text(rule, "scope") {
        "Namespaced" => in_namespace,
        "Cluster" => !in_namespace,
        _ => true,
    };
    let resources = array(rule, "resources").iter().filter_map(Value::as_str).any(|known| {
        let (of, subresource) = known.split_once('/').unwrap_or((known, ""));
        (of == "*" || of == plural) && (subresource == "*" || subresource == attributes.subresource)
    });
    let operations = array(rule, "operations").iter().any(|known| known == "*" || known == objects.operation());
    let names = array(rule, "resourceNames");
    scope && resources && operations && (names.is_empty() || names.iter().any(|known| *known == attributes.name))
}
