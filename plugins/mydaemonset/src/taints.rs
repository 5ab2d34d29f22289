//! Taints of Nodes and what Pods tolerate of them, as Kubernetes has it. Knows neither Nodes nor Pods.

use mortise_sdk::prelude::*;

/// What keeps Pods off a Node.
#[derive(Deserialize)]
pub struct Taint<'a> {
    key: &'a str,
    #[serde(default)]
    value: &'a str,
    effect: &'a str,
}

/// What of a Node's taints a Pod puts up with.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; with the operator Exists and no key, every taint is tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Exists, whatever the taint's value, or Equal, which it is unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// The taint's value, for Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The taint's effect; every effect unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// How long a NoExecute taint is put up with; for ever unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a toleration meets a taint.
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
    /// No new Pods, if they have anywhere else to go.
    PreferNoSchedule,
    /// No new Pods, and those that are there go.
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

/// What the Pods of a DaemonSet tolerate: troubles of a Node that its daemons are there to see through. Kubernetes taints
/// such a Node with more than one effect, hence all of them.
const OF_DAEMONS: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];

/// The tolerations that every daemon's Pod has.
pub fn daemon_tolerations() -> Vec<Toleration> {
    let of = |key: &&str| Toleration {
        key: Some((*key).to_owned()),
        operator: Some(Operator::Exists),
        ..Toleration::default()
    };
    OF_DAEMONS.iter().map(of).collect()
}

/// Whether a Pod with these tolerations belongs on a Node with these taints.
pub fn is_tolerated(taints: &[Taint], tolerations: &[Toleration]) -> bool {
    let keeps_off = |taint: &&Taint| matches!(taint.effect, "NoSchedule" | "NoExecute");
    taints.iter().filter(keeps_off).all(|taint| tolerations.iter().any(|toleration| toleration.meets(taint)))
}

impl Toleration {
    fn meets(&self, taint: &Taint) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        let exists = self.operator == Some(Operator::Exists);
        let same_key = if key.is_empty() { exists } else { key == taint.key };
        let same_value = exists || self.value.as_deref().unwrap_or_default() == taint.value;
        same_key && same_value && self.effect.is_none_or(|effect| effect.as_str() == taint.effect)
    }
}
