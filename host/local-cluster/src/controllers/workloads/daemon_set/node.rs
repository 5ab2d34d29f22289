//! Whether a node may run a Pod of a DaemonSet: its name, labels and taints. It must not know what else runs there.

use serde_json::{Value, json};

use super::super::field::{fields, list, text};
use crate::controllers::taint;
use crate::store::Object;

/// The taints that every Pod of a DaemonSet tolerates; the last one on the host's network only.
const TOLERATED: [(&str, &str); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ("node.kubernetes.io/network-unavailable", "NoSchedule"),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The spec of a DaemonSet's Pods, with their tolerations.
pub(super) fn spec(template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    let mut all = list(&spec["tolerations"]).to_vec();
    let count = if spec["hostNetwork"] == true { TOLERATED.len() } else { TOLERATED.len() - 1 };
    for (key, effect) in TOLERATED.iter().take(count) {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    if spec.is_object() {
        spec["tolerations"] = all.into();
    }
    spec
}

/// Binds a spec to a node by its affinity, so that the scheduler places it there; other terms are replaced.
pub(super) fn bind(spec: &mut Value, node: &str) {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let required = fields(spec)
        .and_then(|spec| fields(spec.entry("affinity").or_insert(Value::Null)))
        .and_then(|affinity| fields(affinity.entry("nodeAffinity").or_insert(Value::Null)));
    if let Some(required) = required {
        required.insert(REQUIRED.to_owned(), json!({"nodeSelectorTerms": [term]}));
    }
}

/// The node that a Pod is on, or is bound to.
pub(super) fn target(pod: &Value) -> Option<&str> {
    let name = text(&pod["spec"]["nodeName"]);
    if !name.is_empty() {
        return Some(name);
    }
    let terms = list(&pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]);
    let mut fields = terms.iter().flat_map(|term| list(&term["matchFields"]));
    let field = fields.find(|field| field["key"] == "metadata.name" && field["operator"] == "In")?;
    match list(&field["values"]) {
        [only] => only.as_str(),
        _ => None,
    }
}

/// Whether a Pod of this spec shall run on a node, and whether one that runs there may go on.
pub(super) fn runs(spec: &Value, node: &Object) -> (bool, bool) {
    let name = text(&spec["nodeName"]);
    if !name.is_empty() && name != node.name() || !selects(spec, &node.value) {
        return (false, false);
    }
    let intolerable = |effects: &[&str]| {
        let taints = list(&node.value["spec"]["taints"]).iter();
        let mut taints = taints.filter(|taint| effects.contains(&text(&taint["effect"])));
        taints.any(|taint| !taint::is_tolerated(taint, &spec["tolerations"]))
    };
    if intolerable(&["NoSchedule", "NoExecute"]) { (false, !intolerable(&["NoExecute"])) } else { (true, true) }
}

/// Whether the node selector and the required affinity of a spec select a node.
fn selects(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut pairs = spec["nodeSelector"].as_object().into_iter().flatten();
    if !pairs.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = &spec["affinity"]["nodeAffinity"][REQUIRED];
    let term = |term: &Value| {
        let (expressions, fields) = (list(&term["matchExpressions"]), list(&term["matchFields"]));
        let name = &node["metadata"]["name"];
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|one| requires(one, labels.get(text(&one["key"]))))
            && fields.iter().all(|one| one["key"] == "metadata.name" && requires(one, Some(name)))
    };
    required.is_null() || list(&required["nodeSelectorTerms"]).iter().any(term)
}

fn requires(requirement: &Value, found: Option<&Value>) -> bool {
    let values = list(&requirement["values"]);
    let number = |value: &Value| text(value).parse::<i64>().ok();
    let compared = || Some((found.and_then(number)?, number(values.first()?)?));
    match text(&requirement["operator"]) {
        "In" => found.is_some_and(|found| values.contains(found)),
        "NotIn" => found.is_none_or(|found| !values.contains(found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, bound)| found > bound),
        "Lt" => compared().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_runs_what_its_name_labels_and_taints_allow() {
        let node = json!({
            "metadata": {"name": "a", "labels": {"zone": "1", "cores": "8"}},
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        });
        let node = Object::new(node, 1);
        let tolerations = json!([{"key": "k", "operator": "Equal", "value": "v"}]);
        let required = |term: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}});
        let expression = |operator: &str, values: Value| {
            required(json!({"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]}))
        };
        for (mut spec, expected) in [
            (json!({}), (true, true)),
            (json!({"tolerations": []}), (false, true)),
            (json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}), (false, true)),
            (json!({"nodeName": "b"}), (false, false)),
            (json!({"nodeSelector": {"zone": "1"}}), (true, true)),
            (json!({"nodeSelector": {"zone": "2"}}), (false, false)),
            (json!({"affinity": required(json!({}))}), (false, false)),
            (json!({"affinity": expression("Gt", json!(["4"]))}), (true, true)),
            (json!({"affinity": expression("NotIn", json!(["8"]))}), (false, false)),
        ] {
            if spec["tolerations"].is_null() {
                spec["tolerations"] = tolerations.clone();
            }
            assert_eq!(runs(&spec, &node), expected, "{spec}");
        }
    }

    #[test]
    fn a_bound_pod_says_its_node_before_it_is_scheduled() {
        let mut spec = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}});
        bind(&mut spec, "a");
        assert_eq!(target(&json!({"spec": spec})), Some("a"));
        assert_eq!(target(&json!({"spec": {"nodeName": "b"}})), Some("b"));
        assert_eq!(target(&json!({"spec": {}})), None);
    }
}
