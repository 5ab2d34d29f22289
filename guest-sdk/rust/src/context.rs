//! What a reconcile can read: the cluster as it was frozen for this call, the time, schedules, and the plugin's
//! configuration. The host records every read except those of schedules: a change of what a call read causes the next
//! call.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::error::{Failure, ReadError, ScheduleError};
use crate::http::{Request, RequestFailure, Response};
use crate::object::{CHILD_KEY_ANNOTATION, ObjectKey, Resource};
use crate::query::Query;
use crate::rejection::Rejection;
use crate::scan::{self, FromJson, Part, Reason, Scanner, Wanted};
use crate::view::{Inputs, View};

/// What [`Context::children`] reads of a child beside its fields.
struct ChildHeader<'a> {
    key: Option<&'a str>,
    deleted_at: Option<&'a str>,
}

impl ChildHeader<'_> {
    const FIELDS: [&'static str; 2] = ["metadata.annotations[\"mortise.dev/child\"]", "metadata.deletionTimestamp"];
    const WANTED: &'static [Wanted] = &[Wanted {
        name: "metadata",
        part: Part::Fields(&[
            Wanted {
                name: "annotations",
                part: Part::Fields(&[Wanted { name: CHILD_KEY_ANNOTATION, part: Part::Whole(0) }]),
            },
            Wanted { name: "deletionTimestamp", part: Part::Whole(1) },
        ]),
    }];
}

impl<'a> FromJson<'a> for ChildHeader<'a> {
    fn from_json(input: &mut Scanner<'a>) -> Result<Self, Reason> {
        let mut found = [None; 2];
        input.fields(Self::WANTED, &mut found)?;
        let [key, deleted_at] = found;
        let [key_path, deletion_path] = Self::FIELDS;
        let key = scan::optional_text(key, key_path)?;
        Ok(Self { key, deleted_at: scan::optional_text(deleted_at, deletion_path)? })
    }
}

/// The inputs of one call besides the object itself. What a read returns lives as long as the context, so types may
/// borrow from it (`&'a str` in a projection costs nothing).
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// /// One ConfigMap for each Node with a label, up to the number in the configuration.
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Census")]
/// struct CensusSpec {
///     label: String,
/// }
///
/// #[derive(Deserialize)]
/// struct Config {
///     most: u32,
/// }
///
/// #[derive(Projection)]
/// #[projection("v1/Node")]
/// struct Node<'a> {
///     #[field("metadata.name")]
///     name: &'a str,
/// }
///
/// #[reconciler(owns("v1/ConfigMap"), reads(Node))]
/// fn reconcile(census: &Census, cx: &Context) -> Result<Outcome, Failure> {
///     let config: Config = cx.config()?;
///     let nodes = cx.list(&Query::<Node>::new().selector(&census.spec.label).limit(config.most))?;
///     let config_map = Json::of_kind("v1", "ConfigMap", &json!({}));
///     Ok(Outcome::children(nodes.iter().map(|node| Child::new(node.name, config_map.clone()))))
/// }
///
/// let mut cluster = Cluster::of(&PLUGIN);
/// cluster.set_config(json!({"most": 1}));
/// for name in ["a", "b"] {
///     cluster.add(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"gpu": "1"}}}));
/// }
/// let census = Census::new("gpus", CensusSpec { label: "gpu".into() });
/// assert_eq!(cluster.reconcile(&census).unwrap().child_keys(), ["a"]);
/// ```
pub struct Context {
    view: View,
    inputs: Inputs,
    texts: Texts,
}

impl Context {
    pub(crate) fn new(view: View, inputs: Inputs) -> Self {
        Self { view, inputs, texts: Texts::default() }
    }

    /// The objects of the kind of `T` whose controller (owner reference) is the reconciled object, ordered by name. When
    /// others have marked so many that a read cannot return all, those of the fullest other namespaces are left out.
    ///
    /// # Errors
    /// When the kind is not declared in `owns(...)`, may not be read, or does not fit `T`.
    pub fn owned<'cx, T: Resource + FromJson<'cx>>(&'cx self) -> Result<Vec<T>, ReadError> {
        self.owned_of_kind(T::API_VERSION, T::KIND, T::FIELDS)
    }

    /// The children of the kind of `T` by their keys in the outcome. Of two children with one key, a new one and its
    /// predecessor that is being deleted, it has the new one. Objects that are not of the host's making have no key.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    ///
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "BlueGreen")]
    /// struct BlueGreenSpec {}
    ///
    /// #[derive(Projection)]
    /// #[projection("apps/v1/ReplicaSet")]
    /// struct ReplicaSet {
    ///     #[field("status.readyReplicas")]
    ///     ready: Option<u32>,
    /// }
    ///
    /// #[reconciler(owns(ReplicaSet))]
    /// fn reconcile(_: &BlueGreen, cx: &Context) -> Result<Outcome, Failure> {
    ///     let sets = cx.children::<ReplicaSet>()?;
    ///     let is_green_up = sets.get("green").is_some_and(|green| green.ready.is_some_and(|ready| ready > 0));
    ///     Ok(Outcome::new().ready(is_green_up, "Green", "see the ReplicaSets"))
    /// }
    ///
    /// let mut cluster = mortise_sdk::testing::Cluster::of(&PLUGIN);
    /// let owner = BlueGreen::new("web", BlueGreenSpec {});
    /// let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "status": {"readyReplicas": 1}});
    /// cluster.add_child(&owner, "green", &set);
    /// assert!(cluster.reconcile(&owner).unwrap().is_ready());
    /// ```
    ///
    /// # Errors
    /// As [`Context::owned`].
    pub fn children<'cx, T: Resource + FromJson<'cx>>(&'cx self) -> Result<BTreeMap<&'cx str, T>, ReadError> {
        let mut fields = T::FIELDS.to_vec();
        if !fields.is_empty() {
            fields.extend(ChildHeader::FIELDS.iter().filter(|field| !T::FIELDS.contains(field)));
        }
        let text = self.texts.keep(self.view.owned(T::API_VERSION, T::KIND, &fields)?);
        let headers: Vec<ChildHeader> = scan::read_list(text).map_err(|reason| shape(T::KIND, reason))?;
        let objects: Vec<T> = scan::read_list(text).map_err(|reason| shape(T::KIND, reason))?;
        let (old, new): (Vec<_>, Vec<_>) =
            headers.iter().zip(objects).partition(|(header, _)| header.deleted_at.is_some());
        Ok(old.into_iter().chain(new).filter_map(|(header, object)| Some((header.key?, object))).collect())
    }

    /// As [`Context::owned`], with the kind as text and the fields to keep (none: whole objects); for types that do not
    /// implement [`Resource`], and for [`crate::Object`].
    ///
    /// # Errors
    /// As [`Context::owned`].
    pub fn owned_of_kind<'cx, T: FromJson<'cx>>(
        &'cx self,
        api_version: &str,
        kind: &str,
        fields: &[&str],
    ) -> Result<Vec<T>, ReadError> {
        let text = self.view.owned(api_version, kind, fields)?;
        scan::read_list(self.texts.keep(text)).map_err(|reason| shape(kind, reason))
    }

    /// One object by namespace (none for cluster-scoped kinds) and name, with the fields that `T` reads; None when there
    /// is no such object.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, or does not fit `T`.
    pub fn get<'cx, T: Resource + FromJson<'cx>>(
        &'cx self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReadError> {
        self.get_key_fields(&ObjectKey::of::<T>(namespace, name), T::FIELDS)
    }

    /// One object of any kind, as a whole; None when there is no such object.
    ///
    /// # Errors
    /// As [`Context::get`].
    pub fn get_key<'cx, T: FromJson<'cx>>(&'cx self, key: &ObjectKey) -> Result<Option<T>, ReadError> {
        self.get_key_fields(key, &[])
    }

    /// These fields of one object of any kind, also of one that another object names at run time; None when there is no such
    /// object.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    /// use mortise_sdk::{ReadError, testing::Cluster};
    ///
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Watchdog")]
    /// struct WatchdogSpec { api_version: String, kind: String, name: String }
    ///
    /// #[reconciler(reads("apps/v1/*", "*.example.com/*"))]
    /// fn reconcile(dog: &Watchdog, cx: &Context) -> Result<Outcome, Failure> {
    ///     let WatchdogSpec { api_version, kind, name } = &dog.spec;
    ///     let key = ObjectKey::new(api_version, kind, Some("default"), name);
    ///     match cx.get_key_fields::<Object>(&key, &["status.readyReplicas"]) {
    ///         Ok(Some(target)) => {
    ///             let is_up = target.at("status.readyReplicas").is_some_and(|ready| *ready != json!(0));
    ///             Ok(Outcome::new().ready(is_up, "Watched", "see its status"))
    ///         }
    ///         Ok(None) => Ok(Outcome::new().ready(false, "NotFound", format!("there is no {kind} {name}"))),
    ///         // Its CRD may come later, and causes another call then.
    ///         Err(ReadError::NotServed(why)) => Ok(Outcome::new().ready(false, "NotServed", why)),
    ///         Err(error) => Err(error)?,
    ///     }
    /// }
    ///
    /// let spec = WatchdogSpec { api_version: "apps/v1".into(), kind: "StatefulSet".into(), name: "db".into() };
    /// let mut cluster = Cluster::of(&PLUGIN);
    /// cluster.add(&json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "status": {"readyReplicas": 1},
    ///                     "metadata": {"name": "db", "namespace": "default"}}));
    /// assert!(cluster.reconcile(&Watchdog::new("a", spec.clone())).unwrap().is_ready());
    /// let other = WatchdogSpec { api_version: "a.example.com/v1".into(), kind: "Db".into(), ..spec };
    /// cluster.set_not_served("a.example.com/v1", "Db");
    /// assert!(!cluster.reconcile(&Watchdog::new("b", other)).unwrap().is_ready());
    /// ```
    ///
    /// # Errors
    /// As [`Context::get`]; [`ReadError::NotServed`] when a pattern has the kind and the API server does not serve it.
    pub fn get_key_fields<'cx, T: FromJson<'cx>>(
        &'cx self,
        key: &ObjectKey,
        fields: &[&str],
    ) -> Result<Option<T>, ReadError> {
        match self.view.get(key, fields)? {
            Some(text) => {
                let object = scan::read(self.texts.keep(text)).map_err(|reason| shape(&key.kind, reason))?;
                Ok(Some(object))
            }
            None => Ok(None),
        }
    }

    /// The objects that match a query, ordered by namespace and name.
    ///
    /// # Errors
    /// When the kind is not declared or may not be read, a selector or path is malformed, or an object does not fit
    /// `T`.
    pub fn list<'cx, T: FromJson<'cx>>(&'cx self, query: &Query<T>) -> Result<Vec<T>, ReadError> {
        let text = self.view.list(query)?;
        scan::read_list(self.texts.keep(text)).map_err(|reason| shape(&query.kind, reason))
    }

    /// The keys of the objects that match a query: the cheapest way to know what exists.
    ///
    /// # Errors
    /// When the kind is not declared or may not be read, or a selector is malformed.
    pub fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        self.view.keys(query)
    }

    /// The number of objects that match a query, or its limit if there are more. Only a change of the number causes
    /// another call.
    ///
    /// # Errors
    /// As [`Context::keys`].
    pub fn count<T>(&self, query: &Query<T>) -> Result<usize, ReadError> {
        self.view.count(query, query.limit)
    }

    /// Whether any object matches a query. Only a change of that causes another call.
    ///
    /// # Errors
    /// As [`Context::keys`].
    pub fn exists<T>(&self, query: &Query<T>) -> Result<bool, ReadError> {
        Ok(self.view.count(query, Some(1))? > 0)
    }

    /// What of the object's earlier outcomes could not be written, ordered by kind, namespace and name, at most 100. A
    /// change of it causes another call, so a plugin can do without what it cannot have.
    ///
    /// A rejection is forgotten when its write succeeds, when the name is free or the object to patch exists, when the
    /// object's spec, the plugin or its configuration changes, and when the host restarts. It stays while later outcomes
    /// do without the write; otherwise the plugin would try again at once.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    /// use mortise_sdk::{Rejection, testing::Cluster};
    ///
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Share")]
    /// struct ShareSpec {}
    ///
    /// /// Wants a ConfigMap with a name of its own, and does without where another owner has it.
    /// #[reconciler(owns("v1/ConfigMap"))]
    /// fn reconcile(_: &Share, cx: &Context) -> Result<Outcome, Failure> {
    ///     let taken = cx.rejected().iter().any(|rejected| rejected.reason == "ChildExists");
    ///     let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "share"}});
    ///     let message = if taken { "another object has the name" } else { "see ConfigMap share" };
    ///     Ok(Outcome::children([Child::new("share", config).or_skip()]).ready(!taken, "Shared", message))
    /// }
    ///
    /// let mut cluster = Cluster::of(&PLUGIN);
    /// let share = Share::new("a", ShareSpec {});
    /// assert!(cluster.reconcile(&share).unwrap().is_ready());
    /// cluster.set_rejected(vec![Rejection {
    ///     target: ObjectKey::new("v1", "ConfigMap", Some("default"), "share"),
    ///     child: Some("share".into()),
    ///     reason: "ChildExists".into(),
    ///     message: "ConfigMap default/share exists already".into(),
    /// }]);
    /// assert!(!cluster.reconcile(&share).unwrap().is_ready());
    /// ```
    pub fn rejected(&self) -> Vec<Rejection> {
        self.view.rejected()
    }

    /// The response to a request of the object's earlier outcomes with the same content; None while the host tries, and for
    /// a request that no outcome contained. It causes another call when a response comes. [`Request`] has an example.
    ///
    /// # Errors
    /// Why there is none, from the third failure in a row on. The host continues to try.
    pub fn response(&self, request: &Request) -> Result<Option<Response>, RequestFailure> {
        self.view.response(request).transpose()
    }

    /// Milliseconds since 1970, the same for the whole call. The passage of time alone causes no further call; for that
    /// there is [`crate::Outcome::requeue_after`].
    pub fn now_unix_ms(&self) -> u64 {
        self.inputs.now_unix_ms()
    }

    /// When a cron expression fires next: the first instant strictly after the given one, in milliseconds since 1970;
    /// None when it never fires again. The result depends on the arguments alone, and so does not cause a further call.
    /// An instant long ago costs no more than a recent one.
    ///
    /// An expression has five fields (minute, hour, day of month, month, day of week) of numbers, names, ranges, steps
    /// and lists, or is one of `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and `@hourly`. It
    /// fires on days that match both day fields, or either of them when neither begins with `*`. The zone is one of the
    /// IANA database.
    ///
    /// A wall time fires at the first instant at which the zone's clock shows it or a later time. So a wall time that
    /// is repeated fires once, and one that is skipped when the clock is set forward fires right after the jump.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    /// use mortise_sdk::testing::Cluster;
    ///
    /// /// Something that is due on a schedule.
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Alarm", status = AlarmStatus)]
    /// #[serde(rename_all = "camelCase")]
    /// struct AlarmSpec { schedule: String, time_zone: String }
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// struct AlarmStatus { next: Option<Timestamp> }
    ///
    /// #[reconciler]
    /// fn reconcile(alarm: &Alarm, cx: &Context) -> Result<Outcome<AlarmStatus>, Failure> {
    ///     let now = cx.now_unix_ms();
    ///     match cx.next_tick(&alarm.spec.schedule, &alarm.spec.time_zone, now) {
    ///         Ok(Some(next)) => Ok(Outcome::new()
    ///             .status(&AlarmStatus { next: Some(Timestamp::from_unix_ms(next)) })
    ///             .requeue_after(Duration::from_millis(next - now))),
    ///         Ok(None) => Ok(Outcome::new().ready(false, "NeverFires", "spec.schedule matches no day")),
    ///         Err(error) => Ok(Outcome::new().ready(false, "InvalidSchedule", error.message())),
    ///     }
    /// }
    ///
    /// let spec = AlarmSpec { schedule: "30 7 * * mon-fri".into(), time_zone: "Europe/Berlin".into() };
    /// let mut alarm = Alarm::new("a", spec);
    /// let mut cluster = Cluster::of(&PLUGIN);
    /// cluster.set_now_unix_ms(1_767_225_600_000); // the first Thursday of 2026
    /// assert_eq!(cluster.reconcile(&alarm).unwrap().status_value()["next"], "2026-01-01T06:30:00Z");
    ///
    /// alarm.spec.schedule = "30 25 * * *".into();
    /// let why = "\"30 25 * * *\" is not a cron expression: hour \"25\": 25 is not within 0 and 23";
    /// assert_eq!(cluster.reconcile(&alarm).unwrap().condition_of("Ready").unwrap().message, why);
    /// ```
    ///
    /// # Errors
    /// When the expression or the zone is invalid.
    pub fn next_tick(&self, expression: &str, zone: &str, after_unix_ms: u64) -> Result<Option<u64>, ScheduleError> {
        self.inputs.next_tick(expression, zone, after_unix_ms).map_err(ScheduleError)
    }

    /// The newest instant at or before `until_unix_ms` and strictly after `after_unix_ms` at which a cron expression
    /// fires, and how many such instants there are; None when there is none. Called with the last tick that was handled
    /// and the current time, it finds missed ticks. Otherwise as [`Context::next_tick`].
    ///
    /// # Errors
    /// When the expression or the zone is invalid.
    pub fn latest_tick(
        &self,
        expression: &str,
        zone: &str,
        after_unix_ms: u64,
        until_unix_ms: u64,
    ) -> Result<Option<LatestTick>, ScheduleError> {
        let found = self.inputs.latest_tick(expression, zone, after_unix_ms, until_unix_ms).map_err(ScheduleError)?;
        Ok(found.map(|(unix_ms, count)| LatestTick { unix_ms, count }))
    }

    /// The plugin's configuration, `config.yaml` of its ConfigMap, as JSON; `{}` when there is none.
    ///
    /// # Errors
    /// Terminal, when it does not fit `T`.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.inputs.config())
            .map_err(|error| Failure::terminal(format!("the plugin's configuration is not valid: {error}")))
    }
}

/// The result of [`Context::latest_tick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestTick {
    /// The newest tick, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The number of ticks, this one included.
    pub count: u64,
}

fn shape(kind: &str, reason: String) -> ReadError {
    ReadError::Shape { kind: kind.to_owned(), reason }
}

/// What reads returned, kept until the call ends: a linked list, so that no text moves while types borrow from it.
#[derive(Default)]
struct Texts {
    first: OnceCell<Box<Kept>>,
}

struct Kept {
    text: String,
    next: OnceCell<Box<Kept>>,
}

impl Texts {
    fn keep(&self, text: String) -> &str {
        let mut end = &self.first;
        while let Some(kept) = end.get() {
            end = &kept.next;
        }
        &end.get_or_init(|| Box::new(Kept { text, next: OnceCell::new() })).text
    }
}
