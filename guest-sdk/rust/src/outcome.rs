//! What a reconcile wants, as data. The host compares it with the cluster and writes the difference.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::action::Action;
use crate::json::Json;
use crate::object::ObjectKey;

/// The most children of one object. A plugin whose spec has a count should report a larger one in a condition instead
/// of returning more children.
pub const MAX_CHILDREN: usize = 500;

/// The result of one reconcile. Start with [`Outcome::children`], which states the whole desired set, or with
/// [`Outcome::new`], which does not change children; then add to it.
///
/// ```
/// use mortise_sdk::prelude::*;
///
/// let outcome = Outcome::children([Child::new("config", &json!({"apiVersion": "v1", "kind": "ConfigMap"}))])
///     .status(&json!({"observed": 1}))
///     .ready(true, "Created", "there is one ConfigMap")
///     .requeue_after(Duration::from_secs(60));
/// assert_eq!(outcome.child_keys(), ["config"]);
/// ```
///
/// The host checks an outcome as a whole before it writes anything. An outcome that breaks a rule below changes nothing
/// and is reported as a fault of the plugin. [`crate::testing`] checks the same rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The whole desired set. The host creates or updates its members, and deletes owned objects of the declared kinds
    /// that are not in it. None does not change children; an empty set deletes all of them. At most
    /// [`crate::MAX_CHILDREN`].
    pub children: Option<Vec<Child>>,
    /// Writes to objects that are not children, at most 500, each declared by `writes(...)` of `#[reconciler]`. See
    /// [`Action`].
    pub actions: Vec<Action>,
    /// The status fields that this plugin owns: an object of at most 256 KiB without `conditions` and
    /// `observedGeneration`, which the host writes. None does not change the status.
    pub status: Option<Json>,
    /// Merged into status.conditions by type, at most 32 of different types. The host removes those that an earlier
    /// outcome had and this one does not have.
    pub conditions: Vec<Condition>,
    /// Events to send, at most 16. A list that equals that of the previous call is not sent again.
    pub events: Vec<Event>,
    /// Reconcile again after this long even if nothing changes; clamped to 1 s and 24 h.
    pub requeue_after: Option<Duration>,
    /// For an object that is being deleted, of a controller that declares `finalize`: the cleanup is complete.
    pub finalized: bool,
}

impl Outcome {
    /// An outcome that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// An outcome with the whole desired set of children. The host deletes owned objects that are not in it.
    pub fn children(children: impl IntoIterator<Item = Child>) -> Self {
        Self { children: Some(children.into_iter().collect()), ..Self::default() }
    }

    /// Replaces the status fields that this plugin owns, other than conditions; see [`Outcome::condition`].
    #[must_use]
    pub fn status<T: Serialize + ?Sized>(mut self, status: &T) -> Self {
        self.status = Some(Json::new(status));
        self
    }

    /// Sets a condition. The host sets its transition time and its observed generation.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Sets the condition `Ready`.
    #[must_use]
    pub fn ready(self, ready: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.condition(Condition::new("Ready", ready, reason, message))
    }

    /// Sends an Event. The host aggregates repetitions.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Adds a write to an object that is not a child: an [`crate::Apply`], [`crate::Patch`] or [`crate::Delete`], or
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

    /// Reports that the cleanup of an object that is being deleted is complete, for a controller that declares
    /// `finalize`. The host carries the outcome's actions out and removes the finalizer. It does not write the status
    /// any more, and children are garbage collected with their owner.
    #[must_use]
    pub fn finalized(mut self) -> Self {
        self.finalized = true;
        self
    }

    /// Reconciles again after this long even if nothing changes, clamped to 1 s and 24 h. A plugin that waits for a
    /// change in the cluster does not need it: a change of what it read causes the next call.
    #[must_use]
    pub fn requeue_after(mut self, delay: Duration) -> Self {
        self.requeue_after = Some(delay);
        self
    }

    /// The keys of the desired set, in its order. For tests.
    pub fn child_keys(&self) -> Vec<&str> {
        self.children.iter().flatten().map(|child| child.key.as_str()).collect()
    }

    /// The desired object under a key, as a tree. For tests.
    pub fn child(&self, key: &str) -> Option<Value> {
        self.children.iter().flatten().find(|child| child.key == key)?.object.value().ok()
    }

    /// The status as a tree; null without one. For tests.
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
    /// Unique among the children of one kind of one object, and stable: "0", "1", a node's name, "config". 1 to 253
    /// bytes.
    pub key: String,
    /// The fields that this plugin owns, in at most 512 KiB. Without metadata.name the host derives a name from the
    /// owner and the key. The host also sets the namespace, the owner reference, and labels and annotations under
    /// `mortise.dev/`, and refuses the latter two here, as it does finalizers.
    pub object: Json,
}

impl Child {
    /// A child under a key. Takes a reference to anything that serializes, or a [`Json`], which children may share.
    pub fn new(key: impl Into<String>, object: impl Into<Json>) -> Self {
        Self { key: key.into(), object: object.into() }
    }
}

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// An Event, as `kubectl describe` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Normal or Warning.
    pub severity: Severity,
    /// What happened, in one CamelCase word of letters, digits and underscores, 1 to 128 bytes.
    pub reason: String,
    /// What happened, for a person; cut at 1024 bytes.
    pub message: String,
    /// The object that it is about, of a declared kind; the reconciled object when None or when there is no such
    /// object.
    pub regarding: Option<ObjectKey>,
}

/// The two types of Kubernetes' events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Nothing to do.
    Normal,
    /// Somebody should look at it.
    Warning,
}

impl Event {
    /// An Event of the type Normal about the reconciled object.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason: reason.into(), message: message.into(), regarding: None }
    }

    /// An Event of the type Warning about the reconciled object.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(reason, message) }
    }

    /// Makes it an Event about another object.
    #[must_use]
    pub fn regarding(mut self, object: ObjectKey) -> Self {
        self.regarding = Some(object);
        self
    }
}
