//! ResourceQuota: what an object uses is added to its namespace's quotas, or is too much. Input: a create or an update.
//! Output: quotas with more in use, or a refusal. It must not know how use is counted again: a controller does that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::reading::{array, forbidden, kind, text};
use crate::Cluster;
use crate::amounts::{Quantities, add, needs, quantities};
use crate::attributes::Attributes;
use crate::halt::Halt;
use crate::quantity::Quantity;
use crate::resource::Storage;
use crate::store::Object;

/// Resources that each container must say when a quota counts them.
const DEMANDED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
/// Kinds that a quota counts by their plural besides `count/`.
const COUNTED: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

/// Adds what the object uses to all quotas that count it.
pub(super) fn charge(
    cluster: &mut Cluster,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Halt> {
    let what = kind(attributes);
    let updates = matches!(what, ("", "services" | "persistentvolumeclaims"));
    if attributes.namespace.is_empty() || old.is_some() && !updates || what.1 == "events" {
        return Ok(());
    }
    let storage = Storage::new("", "resourcequotas");
    let quotas: Vec<Arc<Object>> = cluster.store.list(&storage, Some(&attributes.namespace), None).cloned().collect();
    if quotas.is_empty() {
        return Ok(());
    }
    let used = usage(attributes, object);
    let before = old.map(|old| usage(attributes, old)).unwrap_or_default();
    for quota in quotas {
        let hard = quantities(&quota.value["status"]["hard"]);
        let counted: Quantities =
            used.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(k, v)| (k.clone(), *v)).collect();
        let relevant: Vec<&String> = hard.keys().filter(|name| counts(what, name)).collect();
        if relevant.is_empty() || !in_scope(&quota.value["spec"], what, object) {
            continue;
        }
        let name = quota.name();
        if let Some(missing) = undemanded(what, &relevant, object) {
            return Err(forbidden(attributes, object, &format!("failed quota: {name}: must specify {missing}")));
        }
        let in_use = quantities(&quota.value["status"]["used"]);
        if relevant.iter().any(|resource| !in_use.contains_key(*resource)) {
            let resources: Vec<&str> = relevant.iter().map(|resource| resource.as_str()).collect();
            let why = format!("status unknown for quota: {name}, resources: {}", resources.join(","));
            return Err(forbidden(attributes, object, &why));
        }
        let mut more = Quantities::new();
        for (resource, amount) in counted {
            let less = before.get(&resource).map_or(0, |amount| amount.nano);
            let mut rest = amount;
            rest.nano -= less;
            if rest.nano > 0 {
                more.insert(resource, rest);
            }
        }
        let mut total = in_use.clone();
        add(&mut total, &more);
        let exceeded = |resource: &&String| total.get(*resource).is_some_and(|sum| sum.nano > hard[*resource].nano);
        let exceeded: Vec<&String> = more.keys().filter(exceeded).collect();
        if !exceeded.is_empty() {
            let list = |amounts: &Quantities| {
                let one =
                    |name: &&String| format!("{name}={}", amounts.get(*name).map_or("0".to_owned(), |a| a.text()));
                exceeded.iter().map(one).collect::<Vec<_>>().join(",")
            };
            let (requested, used, limited) = (list(&more), list(&in_use), list(&hard));
            let why = format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}");
            return Err(forbidden(attributes, object, &why));
        }
        if !more.is_empty() {
            let mut changed = quota.value.clone();
            for resource in more.keys() {
                changed["status"]["used"][resource.as_str()] = json!(total[resource].text());
            }
            cluster.store.put(&storage, changed);
        }
    }
    Ok(())
}

/// Whether a quota's resource is about a kind.
fn counts(what: (&str, &str), resource: &str) -> bool {
    let (group, plural) = what;
    if resource == count_name(group, plural) {
        return true;
    }
    let extended = resource.strip_prefix("requests.").is_some_and(|name| name.contains('/'));
    match what {
        ("", "pods") => {
            let compute = DEMANDED.contains(&resource) || resource.ends_with("ephemeral-storage");
            resource == "pods" || compute || extended || resource.contains("hugepages-")
        }
        ("", "services") => matches!(resource, "services" | "services.loadbalancers" | "services.nodeports"),
        ("", "persistentvolumeclaims") => {
            let by_class = |name: &str| resource.ends_with(&format!(".storageclass.storage.k8s.io/{name}"));
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
                || by_class("persistentvolumeclaims")
                || by_class("requests.storage")
        }
        ("", plural) => COUNTED.contains(&plural) && resource == plural,
        _ => false,
    }
}

fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// What an object uses.
fn usage(attributes: &Attributes, object: &Value) -> Quantities {
    let (group, plural) = kind(attributes);
    let mut used = Quantities::new();
    let mut count = |name: &str, number: usize| {
        if let Ok(amount) = Quantity::parse(&number.to_string()) {
            used.insert(name.to_owned(), amount);
        }
    };
    count(&count_name(group, plural), 1);
    let spec = &object["spec"];
    match (group, plural) {
        ("", "pods") => {
            if matches!(text(&object["status"], "phase"), "Succeeded" | "Failed") {
                return used;
            }
            count("pods", 1);
            used.extend(compute(&needs(object, "requests"), &needs(object, "limits")));
        }
        ("", "services") => {
            count("services", 1);
            let ports = array(spec, "ports");
            let kind = text(spec, "type");
            let chosen = ports.iter().filter(|port| port["nodePort"].as_u64().is_some_and(|port| port > 0)).count();
            let allocates = spec["allocateLoadBalancerNodePorts"] != false;
            match kind {
                "NodePort" => count("services.nodeports", ports.len()),
                "LoadBalancer" => {
                    count("services.nodeports", if allocates { ports.len() } else { chosen });
                    count("services.loadbalancers", 1);
                }
                _ => {}
            }
        }
        ("", "persistentvolumeclaims") => {
            count("persistentvolumeclaims", 1);
            let class = text(spec, "storageClassName");
            let by_class = |name: &str| format!("{class}.storageclass.storage.k8s.io/{name}");
            if !class.is_empty() {
                count(&by_class("persistentvolumeclaims"), 1);
            }
            if let Some(storage) = quantities(&spec["resources"]["requests"]).get("storage") {
                used.insert("requests.storage".to_owned(), *storage);
                if !class.is_empty() {
                    used.insert(by_class("requests.storage"), *storage);
                }
            }
        }
        ("", plural) if COUNTED.contains(&plural) => count(plural, 1),
        _ => {}
    }
    used
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Quantities, limits: &Quantities) -> Quantities {
    let mut used = Quantities::new();
    for (name, amount) in requests {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if plain {
            used.insert(name.clone(), *amount);
        }
        used.insert(format!("requests.{name}"), *amount);
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

/// Which containers do not say what the quota demands: `cpu for: a,b; memory for: a`.
fn undemanded(what: (&str, &str), relevant: &[&String], pod: &Value) -> Option<String> {
    if what != ("", "pods") || pod["spec"]["resources"].is_object() {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in array(&pod["spec"], list) {
            let resources = &container["resources"];
            let said = compute(&quantities(&resources["requests"]), &quantities(&resources["limits"]));
            for demanded in DEMANDED.iter().filter(|name| relevant.iter().any(|known| known == *name)) {
                if !said.contains_key(*demanded) {
                    missing.entry(demanded).or_default().insert(text(container, "name"));
                }
            }
        }
    }
    let one = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    let all: Vec<String> = missing.into_iter().map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Whether the quota's scopes have the object; only Pods have scopes.
fn in_scope(spec: &Value, what: (&str, &str), pod: &Value) -> bool {
    let plain = array(spec, "scopes").iter().filter_map(Value::as_str).map(|scope| (scope, "Exists", &Value::Null));
    let selected = array(&spec["scopeSelector"], "matchExpressions").iter();
    let selected = selected.map(|one| (text(one, "scopeName"), text(one, "operator"), &one["values"]));
    plain.chain(selected).all(|(scope, operator, values)| {
        if what != ("", "pods") {
            return false;
        }
        let limited = pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
        let class = text(&pod["spec"], "priorityClassName");
        let has = array(&json!({"values": values}), "values").iter().any(|value| value == class);
        match scope {
            "Terminating" => limited,
            "NotTerminating" => !limited,
            "BestEffort" => best_effort(pod),
            "NotBestEffort" => !best_effort(pod),
            "PriorityClass" => match operator {
                "In" => has,
                "NotIn" => !has,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            },
            _ => false,
        }
    })
}

fn best_effort(pod: &Value) -> bool {
    let says = |container: &Value| {
        let resources = &container["resources"];
        ["requests", "limits"].iter().any(|key| {
            let some = quantities(&resources[*key]);
            some.iter().any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && amount.nano > 0)
        })
    };
    let lists = ["containers", "initContainers"];
    !lists.iter().any(|list| array(&pod["spec"], list).iter().any(says))
}
