//! What a reconcile wants, as data. The host compares it with the cluster and writes the difference.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::action::Action;
use crate::conditions::Condition;
use crate::conversion::NoStatus;
use crate::generated::Generated;
use crate::http::Request;
use crate::json::Json;
use crate::object::{ObjectKey, Resource};

/// The most children of one object. A plugin whose spec has a count should report a larger one in a condition instead
/// of returning more children.
pub const MAX_CHILDREN: usize = 5_000;

/// The result of one reconcile. Start with [`Outcome::children`], which states the whole desired set, or with
/// [`Outcome::new`], which does not change children; then add to it.
///
/// `S` is the type of the kind's status, `status = PodSetStatus` of its [`derive@crate::CustomResource`]. A kind without
/// one has conditions alone, and its function returns `Outcome`.
///
/// ```
/// use mortise_sdk::prelude::*;
///
/// #[derive(Serialize)]
/// struct NoteStatus {
///     observed: u32,
/// }
///
/// let outcome = Outcome::children([Child::new("config", json!({"apiVersion": "v1", "kind": "ConfigMap"}))])
///     .status(&NoteStatus { observed: 1 })
///     .ready(true, "Created", "there is one ConfigMap")
///     .requeue_after(Duration::from_secs(60));
/// assert_eq!(outcome.child_keys(), ["config"]);
/// ```
///
/// The host checks an outcome as a whole before it writes anything. An outcome that breaks a rule below changes nothing
/// and is reported as a fault of the plugin. [`crate::testing`] checks the same rules.
#[derive(Debug)]
pub struct Outcome<S = NoStatus> {
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
    /// For an object that is being deleted, of a controller with `finalize = true`: the cleanup is complete.
    pub finalized: bool,
    /// HTTP requests, at most 16, each declared by `http(...)` of `#[reconciler]`. None with `finalized`.
    pub requests: Vec<Request>,
    of: PhantomData<fn(S)>,
}

// Derived, these would need the same of `S`.
impl<S> Default for Outcome<S> {
    fn default() -> Self {
        Outcome::<Value> {
            children: None,
            actions: Vec::new(),
            status: None,
            conditions: Vec::new(),
            events: Vec::new(),
            requeue_after: None,
            finalized: false,
            requests: Vec::new(),
            of: PhantomData,
        }
        .of_status()
    }
}

impl<S> Clone for Outcome<S> {
    fn clone(&self) -> Self {
        Self {
            children: self.children.clone(),
            actions: self.actions.clone(),
            status: self.status.clone(),
            conditions: self.conditions.clone(),
            events: self.events.clone(),
            requeue_after: self.requeue_after,
            finalized: self.finalized,
            requests: self.requests.clone(),
            of: PhantomData,
        }
    }
}

impl<S> PartialEq for Outcome<S> {
    fn eq(&self, other: &Self) -> bool {
        self.children == other.children
            && self.actions == other.actions
            && self.status == other.status
            && self.conditions == other.conditions
            && self.events == other.events
            && self.requeue_after == other.requeue_after
            && self.finalized == other.finalized
            && self.requests == other.requests
    }
}

impl<S> Outcome<S> {
    /// An outcome that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same outcome for a kind with another type of status.
    pub(crate) fn of_status<T>(self) -> Outcome<T> {
        let Self { children, actions, status, conditions, events, requeue_after, finalized, requests, of: _ } = self;
        Outcome { children, actions, status, conditions, events, requeue_after, finalized, requests, of: PhantomData }
    }

    /// An outcome with the whole desired set of children. The host deletes owned objects that are not in it.
    pub fn children(children: impl IntoIterator<Item = Child>) -> Self {
        Self { children: Some(children.into_iter().collect()), ..Self::default() }
    }

    /// Adds children that are written after those before: when these are as wanted and available, which is, for a kind
    /// with the conditions `Ready` or `Available`, when they are true. What is not wanted any more is deleted at any
    /// time, and a child that exists is not deleted because one before it fails.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// let secret = Child::new("secret", json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}}));
    /// let app = Child::new("app", json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}));
    /// let outcome: Outcome = Outcome::children([secret]).then([app]);
    /// assert_eq!(outcome.child_keys(), ["secret", "app"]);
    /// ```
    #[must_use]
    pub fn then(mut self, children: impl IntoIterator<Item = Child>) -> Self {
        let all = self.children.get_or_insert_default();
        let group = all.last().map_or(0, |last| last.group + 1);
        all.extend(children.into_iter().map(|child| Child { group, ..child }));
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
    /// let outcome: Outcome = Outcome::new().action(Patch::merge(node, json!({"spec": {"unschedulable": true}})));
    /// assert_eq!(outcome.actions.len(), 1);
    /// ```
    #[must_use]
    pub fn action(mut self, action: impl Into<Action>) -> Self {
        self.actions.push(action.into());
        self
    }

    /// Adds an HTTP request, which is sent when everything else of the outcome is written. [`Context::response`] reads its
    /// response in a later call.
    ///
    /// [`Context::response`]: crate::Context::response
    #[must_use]
    pub fn request(mut self, request: Request) -> Self {
        self.requests.push(request);
        self
    }

    /// Reports that the cleanup of an object that is being deleted is complete, for a controller with
    /// `finalize = true`. The host carries the outcome's actions out and removes the finalizer. It does not write the status
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

impl<S: Serialize> Outcome<S> {
    /// Replaces the status fields that this plugin owns, other than conditions; see [`Outcome::condition`].
    ///
    /// The type is that of the kind's status, so a field that the kind's schema lacks cannot be written:
    ///
    /// ```compile_fail
    /// use mortise_sdk::prelude::*;
    ///
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Note")]
    /// struct NoteSpec {}
    ///
    /// #[reconciler]
    /// fn reconcile(note: &Note, _cx: &Context) -> Result<Outcome, Failure> {
    ///     Ok(Outcome::new().status(&json!({"lines": 1}))) // the kind has no status
    /// }
    /// ```
    #[must_use]
    pub fn status(mut self, status: &S) -> Self {
        self.status = Some(Json::new(status));
        self
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
    /// What the host does with it.
    pub handling: Handling,
    /// See [`Child::or_skip`].
    pub or_skip: bool,
    /// See [`Child::adopt`].
    pub adopt: bool,
    /// See [`Outcome::then`]; 0 is the first group.
    pub group: u32,
    /// See [`Child::exact`].
    pub exact: Vec<String>,
    /// Places and values; see [`Child::generate`].
    pub generated: Vec<(String, Generated)>,
}

impl Child {
    /// A child under a key. Takes [`crate::json!`], a reference to anything that serializes, or a [`Json`], which children
    /// may share.
    pub fn new(key: impl Into<String>, object: impl Into<Json>) -> Self {
        let (key, object) = (key.into(), object.into());
        let (exact, generated) = (Vec::new(), Vec::new());
        Self { key, object, handling: Handling::Managed, or_skip: false, adopt: false, group: 0, exact, generated }
    }

    /// The child of a kind under a key stays as it is: the host neither changes nor deletes it, and does not create it.
    /// For a child of an earlier outcome that this one cannot or need not make again.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// let children = [Child::new("new", json!({"apiVersion": "v1", "kind": "Pod"})), Child::keep("old", "v1", "Pod")];
    /// let outcome: Outcome = Outcome::children(children);
    /// # let _ = outcome;
    /// ```
    pub fn keep(key: impl Into<String>, api_version: &str, kind: &str) -> Self {
        let object = Json::of_kind(api_version, kind, &json!({}));
        Self { handling: Handling::Keep, ..Self::new(key, object) }
    }

    /// [`Child::keep`] for the kind of `T`.
    pub fn keep_of<T: Resource>(key: impl Into<String>) -> Self {
        Self::keep(key, T::API_VERSION, T::KIND)
    }

    /// Created while it does not exist, and never changed.
    #[must_use]
    pub fn create_once(self) -> Self {
        Self { handling: Handling::CreateOnce, ..self }
    }

    /// Left out while another owner's object has its name, instead of the condition `Stalled`.
    #[must_use]
    pub fn or_skip(self) -> Self {
        Self { or_skip: true, ..self }
    }

    /// Makes an object that exists already under this child's name a child, if nothing controls it; the owner is
    /// `Stalled` otherwise, or, with [`Child::or_skip`], does without it. The object needs a metadata.name, the kind
    /// `adopt = true` in `owns(...)`. From then on it is a child like any other: changed by force, and deleted when it
    /// is not wanted any more or its owner is deleted. To adopt by labels, query the kind and name what is found:
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// /// Takes over the ConfigMaps that are labelled with its name.
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Shelf")]
    /// struct ShelfSpec {}
    ///
    /// #[derive(Projection)]
    /// #[projection("v1/ConfigMap")]
    /// struct Book {
    ///     #[field("metadata.name")]
    ///     name: String,
    /// }
    ///
    /// #[reconciler(owns("v1/ConfigMap", adopt = true))]
    /// fn reconcile(shelf: &Shelf, cx: &Context) -> Result<Outcome, Failure> {
    ///     let label = format!("shelf={}", shelf.metadata.name);
    ///     let books = cx.list(&Query::<Book>::new().namespace_of(&shelf.metadata).selector(label))?;
    ///     Ok(Outcome::children(books.iter().map(|book| {
    ///         let wanted = json!({"metadata": {"name": book.name, "labels": {"shelf": shelf.metadata.name}}});
    ///         Child::new(book.name.as_str(), Json::of_kind("v1", "ConfigMap", &wanted)).adopt().or_skip()
    ///     })))
    /// }
    ///
    /// let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
    /// let metadata = json!({"name": "moby-dick", "namespace": "default", "labels": {"shelf": "novels"}});
    /// cluster.add(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    /// let outcome = cluster.reconcile(&Shelf::new("novels", ShelfSpec {})).unwrap();
    /// assert_eq!(outcome.child_keys(), ["moby-dick"]);
    /// ```
    #[must_use]
    pub fn adopt(self) -> Self {
        Self { adopt: true, ..self }
    }

    /// The map at this path, "data", belongs to this plugin as a whole: the host removes members that the child does
    /// not have, also those of other managers; one that the API server sets again, its default, stays. At most 16 of 16
    /// names each. For a kind that is updated in place, and not within metadata and status. The path is written as in
    /// [`crate::Query::fields`].
    #[must_use]
    pub fn exact(mut self, path: impl Into<String>) -> Self {
        self.exact.push(path.into());
        self
    }

    /// The host makes this value and writes it into the data of this child, a v1 Secret: `data.password`,
    /// `data["db.password"]`, or `data` for a certificate. The plugin never sees it: in its views, and in those of every
    /// plugin, the value is an empty string. At most 32 values, whose keys the object itself does not have.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// let month = Duration::from_secs(30 * 24 * 3_600);
    /// let secret = Child::new("login", json!({"apiVersion": "v1", "kind": "Secret", "data": {"user": "YXBw"}}))
    ///     .generate("data.password", Generated::alphanumeric(32).rotation("2026-07"))
    ///     .generate("data", Generated::tls(["db.default.svc"], month));
    /// # assert_eq!(secret.generated.len(), 2);
    /// ```
    ///
    /// The Secret is created with its values. The host keeps a value as long as outcomes have the child and the value,
    /// also when the rest of the child changes, and after a restart. It makes another when the arguments change, when
    /// somebody removes the value from the Secret, and before a certificate expires. A value that somebody sets is kept
    /// and not shown. The annotation `mortise.dev/generated` says what was made and when, and changes with each new
    /// value: its [`crate::stable_hash`] in an annotation of a Pod template restarts the Pods that use it. A person who
    /// removes the annotation causes all values to be made anew, and shows the old ones to plugins until then.
    ///
    /// The child is updated in place, or [`Child::create_once`], whose values are never made again and which has no
    /// certificates. It is not adopted. A child that becomes [`Child::keep`] keeps its values; its certificate is not
    /// renewed.
    #[must_use]
    pub fn generate(mut self, at: impl Into<String>, value: Generated) -> Self {
        self.generated.push((at.into(), value));
        self
    }
}

/// What the host does with a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// Creates it, and changes it as `update` of its kind says.
    Managed,
    /// See [`Child::create_once`].
    CreateOnce,
    /// See [`Child::keep`].
    Keep,
}

/// An Event, as `kubectl describe` shows it. About an object without a namespace it shows neither reason nor message,
/// since it is in the namespace `default`, which others may read: the host's log has them.
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
