//! Nobody grants what he does not hold: the check of written roles and bindings. Input: the object of a create or an update.
//! Output: a refusal that lists what is missing. It must not know how objects are stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::action::Action;
use super::rbac::{self, GROUP};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};

/// One permission that cannot be divided: what an owner's rule covers wholly or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Permission<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str>, verb: &'a str },
    Url { url: &'a str, verb: &'a str },
}

pub(crate) fn check(
    cluster: &Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Halt> {
    let resource = &attributes.resource;
    if !cluster.options.rbac || &*resource.group != GROUP || rbac::is_master(&context.user) {
        return Ok(());
    }
    let forbidden = |why: &str| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Err(Status::forbidden(GROUP, &resource.plural, name, why).into())
    };
    let same = |key: &str| old.is_some_and(|old| old[key] == object[key]);
    let allowed = |verb: &str, kind: &str, name: &str| {
        let namespace = &attributes.namespace;
        let action = Action { verb, group: GROUP, resource: kind, namespace, name, ..Action::default() };
        rbac::decide(cluster, &context.user, &action).allowed
    };
    let rules = match &*resource.plural {
        "roles" | "clusterroles" => {
            if same("rules") && same("aggregationRule") || allowed("escalate", &resource.plural, &attributes.name) {
                return Ok(());
            }
            if !object["aggregationRule"].is_null() && !holds_everything(cluster, context) {
                return forbidden("must have cluster-admin privileges to use the aggregationRule");
            }
            rbac::array(object, "rules").to_vec()
        }
        "rolebindings" | "clusterrolebindings" => {
            let reference = &object["roleRef"];
            let name = reference["name"].as_str().unwrap_or_default();
            let kind = if reference["kind"] == "Role" { "roles" } else { "clusterroles" };
            if same("roleRef") && same("subjects") || allowed("bind", kind, name) {
                return Ok(());
            }
            let role = rbac::referred(cluster, reference, &attributes.namespace);
            let role = role.map_err(|_| Status::not_found(GROUP, kind, name))?;
            rbac::array(&role.value, "rules").to_vec()
        }
        _ => return Ok(()),
    };
    let held = rbac::rules(cluster, &context.user, &attributes.namespace);
    let missing: Vec<_> =
        rules.iter().flat_map(permissions).filter(|wanted| !held.iter().any(|rule| covers(rule, wanted))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (user, groups) = (&context.user.name, quoted(context.user.groups.iter().map(String::as_str)));
    let message = format!(
        "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
        describe(&missing)
    );
    forbidden(&message)
}

fn holds_everything(cluster: &Cluster, context: &Context<'_>) -> bool {
    let all = Action { verb: "*", group: "*", resource: "*", ..Action::default() };
    rbac::decide(cluster, &context.user, &all).allowed
}

fn permissions(rule: &Value) -> Vec<Permission<'_>> {
    let mut found = Vec::new();
    let limits: Vec<Option<&str>> = match rbac::texts(rule, "resourceNames").map(Some).collect::<Vec<_>>() {
        none if none.is_empty() => vec![None],
        names => names,
    };
    for group in rbac::texts(rule, "apiGroups") {
        for resource in rbac::texts(rule, "resources") {
            for verb in rbac::texts(rule, "verbs") {
                found.extend(limits.iter().map(|name| Permission::Resource { group, resource, name: *name, verb }));
            }
        }
    }
    for url in rbac::texts(rule, "nonResourceURLs") {
        found.extend(rbac::texts(rule, "verbs").map(|verb| Permission::Url { url, verb }));
    }
    found
}

fn covers(rule: &Value, wanted: &Permission<'_>) -> bool {
    match wanted {
        Permission::Url { url, verb } => {
            rbac::names(rule, "verbs", verb)
                && rbac::texts(rule, "nonResourceURLs").any(|own| rbac::url_covers(own, url))
        }
        Permission::Resource { group, resource, name, verb } => {
            let any_of = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
            let mut own = rbac::texts(rule, "resources");
            let mut limits = rbac::texts(rule, "resourceNames").peekable();
            rbac::names(rule, "verbs", verb)
                && rbac::names(rule, "apiGroups", group)
                && own.any(|own| own == "*" || own == *resource || Some(own) == any_of.as_deref())
                && (limits.peek().is_none() || name.is_some_and(|name| limits.any(|own| own == name)))
        }
    }
}

/// The missing permissions, a line for each resource with its verbs, in the order of the text.
fn describe(missing: &[Permission<'_>]) -> String {
    let mut verbs: BTreeMap<(&str, &str, Option<&str>), Vec<&str>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for permission in missing {
        match permission {
            Permission::Resource { group, resource, name, verb } => {
                verbs.entry((group, resource, *name)).or_default().push(verb);
            }
            Permission::Url { url, verb } => {
                lines.insert(format!("{{NonResourceURLs:[{url:?}], Verbs:[{verb:?}]}}"));
            }
        }
    }
    for ((group, resource, name), verbs) in verbs {
        let name = name.map_or(String::new(), |name| format!("ResourceNames:[{name:?}], "));
        let verbs = quoted(verbs.into_iter());
        lines.insert(format!("{{APIGroups:[{group:?}], Resources:[{resource:?}], {name}Verbs:{verbs}}}"));
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// `["a" "b"]`, as the API server prints lists of strings.
fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}
