//! What a reconcile may ask: the cluster as it was frozen for this call, the time, schedules, and the plugin's configuration.
//! Every question is recorded by the host, because what a call asked is what wakes it again.

use std::cell::OnceCell;

use serde::de::DeserializeOwned;

use crate::error::{Failure, ReadError, ScheduleError};
use crate::object::{ObjectKey, Resource};
use crate::query::Query;
use crate::scan::{self, FromJson};
use crate::view::{Questions, View};

/// The inputs of one call besides the object itself. Answers live as long as the context, so types may borrow from
/// them (`&'a str` in a projection costs nothing).
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// /// One ConfigMap for each Node with a label, for as many as the configuration admits.
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
/// #[reconciler(owns("v1/ConfigMap"), reads(Node<'static>))]
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
    texts: Texts,
}

impl Context {
    pub(crate) fn new(view: View) -> Self {
        Self { view, texts: Texts::default() }
    }

    /// The objects of the kind of `T` that the reconciled object controls, ordered by name.
    ///
    /// # Errors
    /// When the kind is not declared in `owns(...)`, may not be read, or does not fit `T`.
    pub fn owned<'cx, T: Resource + FromJson<'cx>>(&'cx self) -> Result<Vec<T>, ReadError> {
        self.owned_of_kind(T::API_VERSION, T::KIND, T::FIELDS)
    }

    /// The same for a kind that is named by text, with the fields to keep (none: whole objects); for types that know
    /// nothing of mortise and for [`crate::Object`].
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

    /// One object by namespace (none for cluster-scoped kinds) and name, or nothing. Reads the whole object.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, or does not fit `T`. That it does not exist is no error.
    pub fn get<'cx, T: Resource + FromJson<'cx>>(
        &'cx self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReadError> {
        self.get_key(&ObjectKey::of::<T>(namespace, name))
    }

    /// One object of any kind, or nothing.
    ///
    /// # Errors
    /// As [`Context::get`].
    pub fn get_key<'cx, T: FromJson<'cx>>(&'cx self, key: &ObjectKey) -> Result<Option<T>, ReadError> {
        match self.view.get(key)? {
            Some(text) => {
                let object = scan::read(self.texts.keep(text)).map_err(|reason| shape(&key.kind, reason))?;
                Ok(Some(object))
            }
            None => Ok(None),
        }
    }

    /// Objects that match a query, ordered by namespace and name.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, the selector is malformed, or an object does not fit `T`.
    pub fn list<'cx, T: FromJson<'cx>>(&'cx self, query: &Query<T>) -> Result<Vec<T>, ReadError> {
        let text = self.view.list(query)?;
        scan::read_list(self.texts.keep(text)).map_err(|reason| shape(&query.kind, reason))
    }

    /// Which objects match a query, without reading them: the cheapest way to know what exists.
    ///
    /// # Errors
    /// When the kind is not declared, may not be read, or the selector is malformed.
    pub fn keys<T>(&self, query: &Query<T>) -> Result<Vec<ObjectKey>, ReadError> {
        self.view.keys(query)
    }

    /// Milliseconds since 1970, the same for the whole call. A plugin that asks is called again as time passes only
    /// when it says so: [`crate::Outcome::requeue_after`].
    pub fn now_unix_ms(&self) -> u64 {
        self.view.now_unix_ms()
    }

    /// When a cron expression fires next: the first instant strictly after the given one, in milliseconds since 1970; None
    /// when it never does again. Asking makes nothing an input of the call, and how long ago the instant is costs nothing.
    ///
    /// An expression has five fields (minute, hour, day of month, month, day of week) of numbers, names, ranges, steps and
    /// lists, or is one of `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and `@hourly`. A day fires
    /// that is in both day fields, or in either when neither begins with `*`. The zone is one of the IANA database.
    ///
    /// A wall time fires at the first instant at which the zone's clock shows it or has passed it. So one that comes twice
    /// fires the first time only, and one that is skipped when the clock is set forward fires right after the jump.
    ///
    /// ```
    /// use mortise_sdk::prelude::*;
    /// use mortise_sdk::testing::Cluster;
    ///
    /// /// Something that is due at times.
    /// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// #[resource(group = "example.com", version = "v1", kind = "Alarm", status = AlarmStatus)]
    /// #[serde(rename_all = "camelCase")]
    /// struct AlarmSpec { schedule: String, time_zone: String }
    ///
    /// #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// struct AlarmStatus { next: Option<Timestamp> }
    ///
    /// #[reconciler]
    /// fn reconcile(alarm: &Alarm, cx: &Context) -> Result<Outcome, Failure> {
    ///     let now = cx.now_unix_ms();
    ///     match cx.next_tick(&alarm.spec.schedule, &alarm.spec.time_zone, now) {
    ///         Ok(Some(next)) => Ok(Outcome::new()
    ///             .status(&AlarmStatus { next: Some(Timestamp::from_unix_ms(next)) })
    ///             .requeue_after(Duration::from_millis(next - now))),
    ///         Ok(None) => Ok(Outcome::new().ready(false, "NeverFires", "no day is meant by spec.schedule")),
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
    /// When the expression or the zone means nothing.
    pub fn next_tick(&self, expression: &str, zone: &str, after_unix_ms: u64) -> Result<Option<u64>, ScheduleError> {
        self.view.next_tick(expression, zone, after_unix_ms).map_err(ScheduleError)
    }

    /// The newest instant at or before `until_unix_ms` and strictly after `after_unix_ms` at which a cron expression fires,
    /// and how many such instants there are; None when there is none. What has been missed, that is: with the last tick that
    /// was acted upon and the time. Otherwise as [`Context::next_tick`].
    ///
    /// # Errors
    /// When the expression or the zone means nothing.
    pub fn latest_tick(
        &self,
        expression: &str,
        zone: &str,
        after_unix_ms: u64,
        until_unix_ms: u64,
    ) -> Result<Option<LatestTick>, ScheduleError> {
        let found = self.view.latest_tick(expression, zone, after_unix_ms, until_unix_ms).map_err(ScheduleError)?;
        Ok(found.map(|(unix_ms, count)| LatestTick { unix_ms, count }))
    }

    /// The plugin's configuration, which an administrator wrote beside it; `{}` when there is none.
    ///
    /// # Errors
    /// Terminal, when it does not fit `T`.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.view.config())
            .map_err(|error| Failure::terminal(format!("the plugin's configuration is not valid: {error}")))
    }
}

/// The newest of some ticks of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestTick {
    /// When it was, in milliseconds since 1970.
    pub unix_ms: u64,
    /// How many ticks there were, this one included.
    pub count: u64,
}

fn shape(kind: &str, reason: String) -> ReadError {
    ReadError::Shape { kind: kind.to_owned(), reason }
}

/// Answers, kept where they are until the call ends: a list that only grows at its end.
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
