//! What a reconcile wants, as data. Nothing here does anything: the host compares it with what is and performs the
//! difference.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::action::Action;
use crate::json::Json;
use crate::object::ObjectKey;

/// The most children that the host lets one object have. A plugin whose spec holds a count should say so in a
/// condition instead of returning more.
pub const MAX_CHILDREN: usize = 500;

/// What one reconcile wants. Start with [`Outcome::children`], which states the whole desired set, or with
/// [`Outcome::new`], which leaves children alone; then add to it.
///
/// ```
/// use mortise_sdk::prelude::*;
///
/// let outcome = Outcome::children([Child::new("config", &json!({"apiVersion": "v1", "kind": "ConfigMap"}))])
///     .status(&json!({"observed": 1}))
///     .ready(true, "Created", "the ConfigMap is wanted")
///     .requeue_after(Duration::from_secs(60));
/// assert_eq!(outcome.child_keys(), ["config"]);
/// ```
///
/// The host checks an outcome as a whole before it acts on any of it; one that breaks a rule named below changes nothing
/// and is reported as a fault of the plugin. [`crate::testing`] checks the same rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The whole desired set: members are created or updated, owned objects of the declared kinds that are not in it
    /// are deleted. None leaves children alone; an empty set deletes all of them. At most [`crate::MAX_CHILDREN`].
    pub children: Option<Vec<Child>>,
    /// Writes to objects that are no children, at most 500, each declared by `writes(...)` of `#[reconciler]`. See [`Action`].
    pub actions: Vec<Action>,
    /// The status fields that this plugin owns: an object of at most 256 KiB without `conditions` and
    /// `observedGeneration`, which the host writes. None leaves the status alone.
    pub status: Option<Json>,
    /// Merged into status.conditions by type, at most 32 of different types. Those that an earlier outcome stated and this
    /// one does not are removed.
    pub conditions: Vec<Condition>,
    /// Told to whoever looks at the object, at most 16. A list that equals that of the call before is not told again.
    pub events: Vec<Event>,
    /// Reconcile again after this long even if nothing changes, within a second and a day.
    pub requeue_after: Option<Duration>,
    /// On an object that is being deleted, for a reconciler that declares `finalize`: the cleanup is complete.
    pub finalized: bool,
}

impl Outcome {
    /// An outcome that wants nothing changed yet: children, status and conditions stay as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// An outcome with the whole desired set of children. What is owned and not in it gets deleted.
    pub fn children(children: impl IntoIterator<Item = Child>) -> Self {
        Self { children: Some(children.into_iter().collect()), ..Self::default() }
    }

    /// Replaces the status fields that this plugin owns. Conditions come on top; see [`Outcome::condition`].
    #[must_use]
    pub fn status<T: Serialize + ?Sized>(mut self, status: &T) -> Self {
        self.status = Some(Json::new(status));
        self
    }

    /// States a condition. The host keeps its transition time and the generation it was observed at.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// States the condition `Ready`.
    #[must_use]
    pub fn ready(self, ready: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.condition(Condition::new("Ready", ready, reason, message))
    }

    /// Sends an event. The host aggregates repetitions.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Wants a write to an object that is no child: an [`crate::Apply`], [`crate::Patch`] or [`crate::Delete`], or
    /// [`Action::evict`].
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// let node = ObjectKey::new("v1", "Node", None, "worker-1");
    /// let outcome = Outcome::new().action(Patch::merge(node, &json!({"spec": {"unschedulable": true}})));
    /// assert_eq!(outcome.actions.len(), 1);
    /// ```
    #[must_use]
    pub fn action(mut self, action: impl Into<Action>) -> Self {
        self.actions.push(action.into());
        self
    }

    /// Says that the cleanup of an object that is being deleted is complete, for a reconciler that declares `finalize`. Once
    /// the outcome's actions stand, the host lets the object go; its children are collected with it, and nobody is left to
    /// read a status.
    #[must_use]
    pub fn finalized(mut self) -> Self {
        self.finalized = true;
        self
    }

    /// Reconciles again after this long even if nothing changes, clamped by the host to a second at least and a day
    /// at most. Whatever is waited for inside the cluster needs none of this: reading it is enough.
    #[must_use]
    pub fn requeue_after(mut self, delay: Duration) -> Self {
        self.requeue_after = Some(delay);
        self
    }

    /// The keys of the desired set, in its order; none when children are left alone. For tests.
    pub fn child_keys(&self) -> Vec<&str> {
        self.children.iter().flatten().map(|child| child.key.as_str()).collect()
    }

    /// The wanted object under a key, as a tree. For tests.
    pub fn child(&self, key: &str) -> Option<Value> {
        self.children.iter().flatten().find(|child| child.key == key)?.object.value().ok()
    }

    /// The wanted status as a tree; null when the status is left alone. For tests.
    pub fn status_value(&self) -> Value {
        self.status.as_ref().and_then(|status| status.value().ok()).unwrap_or_default()
    }

    /// The condition of a type. For tests.
    pub fn condition_of(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.name == name)
    }
}

/// One member of the desired set.
#[derive(Clone, PartialEq, Debug)]
pub struct Child {
    /// Unique among the children of one kind of one object, and stable: "0", "1", a node's name, "config". 1 to 253 bytes.
    pub key: String,
    /// The fields that this plugin wants to own, in at most 512 KiB. Without metadata.name the host derives a name from the
    /// owner and the key; owner references, finalizers, the namespace, and labels and annotations under `mortise.dev/` are
    /// its business as well, and refused here.
    pub object: Json,
}

impl Child {
    /// A child under a key. Takes anything that can be written as JSON by reference, or a [`Json`] that is written
    /// already and may be shared.
    pub fn new(key: impl Into<String>, object: impl Into<Json>) -> Self {
        Self { key: key.into(), object: object.into() }
    }
}

/// A condition of the reconciled object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Its type, a CamelCase word: "Ready". "Stalled" and "Evicting" are the host's own, and "Reconciling" comes by itself beside
    /// a "Ready" that is not true, unless it is stated.
    pub name: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one CamelCase word of letters, digits and underscores, 1 to 128 bytes.
    pub reason: String,
    /// Why, for a person; may be empty.
    pub message: String,
}

impl Condition {
    /// A condition that holds (`true`), does not (`false`), or cannot be told ([`ConditionStatus::Unknown`]).
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Something that happened, for `kubectl describe`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Normal or Warning.
    pub severity: Severity,
    /// What happened, in one CamelCase word of letters, digits and underscores, 1 to 128 bytes.
    pub reason: String,
    /// What happened, for a person; what is longer than 1024 bytes is cut.
    pub message: String,
    /// What it is about, of a declared kind; None, or an object that the host does not see, is the reconciled object.
    pub regarding: Option<ObjectKey>,
}

/// The two types of Kubernetes' events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Event {
    /// An event about the reconciled object that is as it should be.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason: reason.into(), message: message.into(), regarding: None }
    }

    /// An event about the reconciled object that somebody should look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(reason, message) }
    }

    /// The same about another object.
    #[must_use]
    pub fn regarding(mut self, object: ObjectKey) -> Self {
        self.regarding = Some(object);
        self
    }
}
