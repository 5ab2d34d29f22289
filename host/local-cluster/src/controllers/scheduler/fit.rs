//! Whether a Pod fits a node, in the order and words of kube-scheduler's plugins. Input: a Pod, a node and what is on it.
//! Output: the reasons why not. It must not know other nodes.

use serde_json::Value;

use crate::amounts::{self, Amounts};
use crate::controllers::taint;
use crate::placement::Load;
use crate::selector::{Labels, Requirement};
use crate::store::Object;

/// What the preemption of other Pods would come to.
pub(super) const HELPLESS: &str = "Preemption is not helpful for scheduling";
pub(super) const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// Why a Pod does not fit a node.
pub(super) struct Reason {
    pub(super) text: String,
    /// Whether it would fit, if other Pods were not there.
    pub(super) resolvable: bool,
}

/// What a Pod wants of a node.
pub(super) struct Wanted<'a> {
    pod: &'a Value,
    requests: Amounts,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(pod: &'a Object) -> Self {
        Self { pod: &pod.value, requests: amounts::of_pod(&pod.value, "requests") }
    }

    fn terms(&self) -> &'a Value {
        let affinity = &self.pod["spec"]["affinity"]["nodeAffinity"];
        &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    }

    /// The only node that the affinity allows, if it names one.
    pub(super) fn named_node(&self) -> Option<&'a str> {
        let [term] = self.terms().as_array()?.as_slice() else { return None };
        let field = term["matchFields"].as_array()?.iter().find(|field| field["key"] == "metadata.name")?;
        match (field["operator"].as_str()?, field["values"].as_array()?.as_slice()) {
            ("In", [name]) => name.as_str(),
            _ => None,
        }
    }

    /// Why the Pod does not fit; the first plugin that refuses decides.
    pub(super) fn misfits(&self, node: &Object, load: &Load) -> Vec<Reason> {
        let tolerations = &self.pod["spec"]["tolerations"];
        let cordon = taint::new("node.kubernetes.io/unschedulable", "NoSchedule");
        let never = |text: &str| vec![Reason { text: text.to_owned(), resolvable: false }];
        if node.value["spec"]["unschedulable"] == true && !taint::is_tolerated(&cordon, tolerations) {
            return never("node(s) were unschedulable");
        }
        let taints = node.value["spec"]["taints"].as_array().into_iter().flatten();
        let mut keeps_out = taints.filter(|taint| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")));
        if keeps_out.any(|taint| !taint::is_tolerated(taint, tolerations)) {
            return never("node(s) had untolerated taint(s)");
        }
        if !self.selects(node) {
            return never("node(s) didn't match Pod's node affinity/selector");
        }
        self.lacks(&node.value["status"]["allocatable"], load)
    }

    fn selects(&self, node: &Object) -> bool {
        let labels = node.labels();
        let selector = self.pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
        let plain = selector.into_iter().all(|(key, value)| labels.get(key) == Some(value));
        // The terms are alternatives; one without requirements selects nothing.
        let term = |term: &Value| {
            let has = |field: &str| term[field].as_array().is_some_and(|list| !list.is_empty());
            let fields = serde_json::json!({"metadata.name": node.name()});
            (has("matchExpressions") || has("matchFields"))
                && requirements(&term["matchExpressions"]).matches(labels)
                && requirements(&term["matchFields"]).matches(&fields)
        };
        plain && self.terms().as_array().is_none_or(|terms| terms.iter().any(term))
    }

    /// What the node has too little of.
    fn lacks(&self, allocatable: &Value, load: &Load) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let room = amounts::parse(&allocatable["pods"]).unwrap_or(0) / 1000;
        if i64::from(load.pods) >= room {
            reasons.push(Reason { text: "Too many pods".to_owned(), resolvable: true });
        }
        for (name, amount) in self.requests.iter().filter(|(_, amount)| **amount > 0) {
            let total = allocatable.get(name).and_then(amounts::parse).unwrap_or(0);
            let used = load.requests.get(name).copied().unwrap_or(0);
            if *amount > total.saturating_sub(used) {
                reasons.push(Reason { text: format!("Insufficient {name}"), resolvable: *amount <= total });
            }
        }
        reasons
    }
}

/// The requirements of a node selector's term: those of labels, and `Gt` and `Lt` besides.
fn requirements(list: &Value) -> Labels {
    let mut labels = Labels::read(&serde_json::json!({"matchExpressions": list}));
    for (requirement, expression) in labels.0.iter_mut().zip(list.as_array().into_iter().flatten()) {
        let key = expression["key"].as_str().unwrap_or_default().into();
        let bound = || expression["values"][0].as_str().and_then(|text| text.parse().ok());
        match (expression["operator"].as_str(), bound()) {
            (Some("Gt"), Some(bound)) => *requirement = Requirement::Greater(key, bound),
            (Some("Lt"), Some(bound)) => *requirement = Requirement::Less(key, bound),
            _ => {}
        }
    }
    labels
}
