//! Conditions: those that a plugin writes, and those that it reads, of its own object or of others.

use serde::Deserialize;

use crate::timestamp::Timestamp;

/// A condition of the reconciled object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Its type, a CamelCase word: "Ready". "Stalled" and "Evicting" are the host's. The host adds "Reconciling" beside
    /// a "Ready" that is not true, unless the outcome has one.
    pub name: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one CamelCase word of letters, digits and underscores, 1 to 128 bytes.
    pub reason: String,
    /// Why, for a person; may be empty.
    pub message: String,
}

impl Condition {
    /// A condition that is true (`true`), false (`false`) or unknown ([`ConditionStatus::Unknown`]).
    pub fn new(
        name: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), status: status.into(), reason: reason.into(), message: message.into() }
    }
}

/// The three states of a condition.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The conditions of an object, `status.conditions`.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::Conditions;
///
/// #[derive(Projection)]
/// #[projection("apps/v1/Deployment")]
/// struct Deployment {
///     #[field("status.conditions")]
///     conditions: Option<Conditions>,
/// }
///
/// impl Deployment {
///     fn is_available(&self) -> bool {
///         self.conditions.as_ref().is_some_and(|conditions| conditions.is_true("Available"))
///     }
/// }
///
/// let found = json!([{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}]);
/// let conditions = Conditions::deserialize(found).unwrap();
/// assert_eq!(conditions.get("Available").unwrap().reason, "MinimumReplicasAvailable");
/// assert!(Deployment { conditions: Some(conditions) }.is_available());
/// ```
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(transparent)]
pub struct Conditions(Vec<ReadCondition>);

/// One condition of an object. What the object does not have is empty.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ReadCondition {
    /// Its type: "Ready", "Available".
    #[serde(rename = "type")]
    pub name: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one CamelCase word.
    #[serde(default)]
    pub reason: String,
    /// Why, for a person.
    #[serde(default)]
    pub message: String,
    /// When its status changed last.
    #[serde(default)]
    pub last_transition_time: Option<Timestamp>,
    /// The generation of the spec that it is about.
    #[serde(default)]
    pub observed_generation: Option<i64>,
}

impl Conditions {
    /// The condition of a type.
    pub fn get(&self, name: &str) -> Option<&ReadCondition> {
        self.0.iter().find(|condition| condition.name == name)
    }

    /// Whether there is a condition of this type and it is true.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// All of them, in the object's order.
    pub fn iter(&self) -> impl Iterator<Item = &ReadCondition> {
        self.0.iter()
    }
}
