//! Taints and tolerations, by Kubernetes' rules. This file must know neither Nodes nor Pods.

use mortise_sdk::prelude::*;

/// A taint of a Node.
#[derive(Deserialize)]
pub struct Taint<'a> {
    key: &'a str,
    #[serde(default)]
    value: &'a str,
    effect: &'a str,
}

/// A toleration of a Pod.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; the operator Exists without a key tolerates every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Exists, for any value of the taint, or Equal, the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// The taint's value, for Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint's effect; every effect unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// How long a NoExecute taint is tolerated; for ever unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a toleration matches a taint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// By its key.
    Exists,
    /// By its key and value.
    Equal,
}

/// What a taint does.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// No new Pods.
    NoSchedule,
    /// No new Pods, if another Node can take them.
    PreferNoSchedule,
    /// No new Pods, and existing ones are evicted.
    NoExecute,
}

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// What the Pods of a DaemonSet tolerate, with every effect: Kubernetes taints such a Node with more than one.
const OF_DAEMONS: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];

/// The tolerations of every Pod of a DaemonSet.
pub fn daemon_tolerations() -> Vec<Toleration> {
    let of = |key: &&str| Toleration {
        key: Some((*key).to_owned()),
        operator: Some(Operator::Exists),
        ..Toleration::default()
    };
    OF_DAEMONS.iter().map(of).collect()
}

/// Whether a Pod with these tolerations may run on a Node with these taints.
pub fn is_tolerated(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let repels = |taint: &&Taint| matches!(taint.effect, "NoSchedule" | "NoExecute");
    taints.iter().filter(repels).all(|taint| tolerations.iter().any(|toleration| toleration.matches(taint)))
}

impl Toleration {
    fn matches(&self, taint: &Taint) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        let exists = self.operator == Some(Operator::Exists);
        let same_key = if key.is_empty() { exists } else { key == taint.key };
        let same_value = exists || self.value.as_deref().unwrap_or_default() == taint.value;
        same_key && same_value && self.effect.is_none_or(|effect| effect.as_str() == taint.effect)
    }
}
