//! Kubernetes Events, which `kubectl describe` shows. Repeated ones are counted in one Event.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::digest::{fingerprint, name_hash};
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::tenant;
use crate::text::EVENT_NOTE;
use crate::time::{self, Now};
use crate::token_bucket::TokenBucket;
use crate::well_known::PREFIX;
use crate::write::{Precondition, WriteOp};

/// client-go's window: an equal event within ten minutes is a repetition.
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// client-go's burst per object, and its refill of one event in five minutes.
const BURST: u32 = 25;
const REFILL_MS: u64 = 5 * 60 * 1_000;
/// Remembered Events of one plugin: 20 objects that each use up their burst. An entry takes some 60 bytes in the map,
/// so all take 32 KiB. Beyond that the plugin's oldest are forgotten, and may be sent again.
const MAX_OF_A_PLUGIN: usize = 512;
/// Remembered Events of all plugins, and objects whose bursts are counted: 16 for each of a thousand plugins, 1 MiB.
/// Beyond that every plugin keeps an equal share. Of the objects, one plugin may have all as long as no other needs
/// space: an object whose burst is forgotten gets another one.
const MAX_IN_ALL: usize = 16_384;
/// New Events of a share in a minute, ten a second: half of all that controller-runtime's client sends. A guest makes up as many
/// objects as it wants to say something about. Further ones are left out, since nothing may wait for an Event.
const EVENTS_PER_MINUTE: u32 = 600;
/// New Events in a minute that the host says about a share's plugins: each of a tenant's 16 is refused twice, at its Plugin and
/// at its ConfigMap. Who edits a ConfigMap in a loop has one a second.
const EVENTS_ABOUT_PLUGINS_PER_MINUTE: u32 = 64;
/// With more shares than this in memory, those that have said nothing for a minute are forgotten.
const REMEMBERED_SHARES: usize = 64;
/// The reason of an Event whose reason is not shown.
const WITHHELD: &str = "PluginEvent";
/// The API server's bound of `reportingController`, behind its prefix.
const LABEL_BYTES: usize = 63;

/// The content of an Event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventRecord {
    /// Warning instead of Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// For a person.
    pub note: String,
    /// Who has chosen these.
    pub words: Words,
}

/// Whose words an Event has. Those of a guest may be anything that it has read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Words {
    /// The host's alone, which says what became of a plugin.
    Host,
    /// The note may have a guest's, as the message of a failure or the name of a child.
    Note,
    /// The reason too.
    Guest,
}

/// Why an Event is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// There are as many about its object as a burst has.
    Burst,
    /// Its share has said as many as it may in a minute.
    Budget,
    /// As many of its share wait to be sent as may.
    Waiting,
}

impl LeftOut {
    /// One word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Budget => "budget",
            Self::Waiting => "waiting",
        }
    }
}

impl EventRecord {
    /// As it may be said of an object. An Event about one without a namespace is in the namespace "default", which people may
    /// view who may see nothing of what the plugin has read.
    fn about(self, object: &Object) -> Self {
        if self.words == Words::Host || !object.name.namespace.is_empty() {
            return self;
        }
        let reason = if self.words == Words::Guest { WITHHELD.to_owned() } else { self.reason };
        let note = format!(
            "what the plugin says may be what it has read, so it is not shown here: see the status of {}, and the host's log",
            object.reference()
        );
        Self { reason, note, ..self }
    }
}

#[derive(Clone, Debug)]
struct Series {
    /// The Event's `eventTime`.
    first_unix_ms: u64,
    last_ms: u64,
    count: u32,
}

impl Entry for Series {
    const LIFE_MS: u64 = WINDOW_MS;
    const MAX_OF_A_PLUGIN: usize = MAX_OF_A_PLUGIN;

    fn at_ms(&self) -> u64 {
        self.last_ms
    }
}

#[derive(Clone, Debug)]
struct Bucket {
    tokens: u32,
    refilled_ms: u64,
}

impl Bucket {
    fn refill(&mut self, now_ms: u64) {
        let earned = u32::try_from(now_ms.saturating_sub(self.refilled_ms) / REFILL_MS).unwrap_or(BURST);
        if earned > 0 {
            self.tokens = self.tokens.saturating_add(earned).min(BURST);
            self.refilled_ms = now_ms;
        }
    }
}

impl Entry for Bucket {
    const LIFE_MS: u64 = REFILL_MS * BURST as u64;
    const MAX_OF_A_PLUGIN: usize = MAX_IN_ALL;

    fn at_ms(&self) -> u64 {
        self.refilled_ms
    }
}

/// What an Event may have as its controller's name. That of a plugin that is refused for its length is cut.
fn reporter(plugin: &str) -> &str {
    plugin.get(..LABEL_BYTES).unwrap_or(plugin).trim_end_matches(|end: char| !end.is_ascii_alphanumeric())
}

/// A hash of an Event's content and object, because a guest may write notes of any length.
type Fingerprint = u128;

/// The Events of the last minutes. What guests say and what the host says about plugins are in logs of their own, so that no
/// guest takes the host's words away.
#[derive(Clone, Debug)]
pub struct EventLog {
    instance: Arc<str>,
    series: Shares<Series>,
    /// By object.
    buckets: Shares<Bucket>,
    /// How many each share may still send.
    budgets: BTreeMap<Arc<str>, TokenBucket>,
    per_minute: u32,
}

/// What a log remembers for a time.
trait Entry {
    /// An older one is of no use.
    const LIFE_MS: u64;
    const MAX_OF_A_PLUGIN: usize;

    fn at_ms(&self) -> u64;
}

/// Entries by plugin; the host's own are under "".
#[derive(Clone, Debug)]
struct Shares<V> {
    of_plugin: BTreeMap<Arc<str>, BTreeMap<Fingerprint, V>>,
    /// Entries of all plugins.
    len: usize,
}

impl EventLog {
    /// An empty log of what guests say; `instance` becomes the Events' `reportingInstance`.
    pub fn of_guests(instance: Arc<str>) -> Self {
        Self::new(instance, EVENTS_PER_MINUTE)
    }

    /// The same of what the host says about plugins.
    pub fn of_the_host(instance: Arc<str>) -> Self {
        Self::new(instance, EVENTS_ABOUT_PLUGINS_PER_MINUTE)
    }

    fn new(instance: Arc<str>, per_minute: u32) -> Self {
        Self { instance, series: Shares::new(), buckets: Shares::new(), budgets: BTreeMap::new(), per_minute }
    }

    /// Forgets all Events, but not the bursts.
    pub fn forget(&mut self) {
        self.series = Shares::new();
    }

    /// Records an Event about an object, and returns its write, unless it is a repetition that is not written or exceeds the
    /// bounds (X10). Without room to send it, nothing is recorded that would be written.
    pub fn record(
        &mut self,
        now: Now,
        plugin: Option<&str>,
        about: &Object,
        record: EventRecord,
        has_room: bool,
    ) -> Result<Option<WriteOp>, LeftOut> {
        let EventRecord { warning, reason, note, .. } = record.about(about);
        let note = EVENT_NOTE.own(note);
        let type_ = if warning { "Warning" } else { "Normal" };
        let key = fingerprint(&[&about.uid, type_, &reason, &note]);
        let share = plugin.map(tenant::share_name).unwrap_or_default();
        let share = &*share;
        let known = self.series.get_mut(share, &key);
        let series = match known.filter(|series| is_recent(*series, now.mono_ms)) {
            Some(series) => {
                // A repetition is written only when the count has doubled.
                let is_written = (series.count + 1).is_power_of_two();
                if is_written && !has_room {
                    return Err(LeftOut::Waiting);
                }
                series.count += 1;
                series.last_ms = now.mono_ms;
                if !is_written {
                    return Ok(None);
                }
                series.clone()
            }
            None if !has_room => return Err(LeftOut::Waiting),
            None => {
                self.spend(now.mono_ms, share, fingerprint(&[&about.uid]))?;
                let series = Series { first_unix_ms: now.unix_ms, last_ms: now.mono_ms, count: 1 };
                self.series.insert(now.mono_ms, share, key, series.clone());
                series
            }
        };
        Ok(Some(self.body(now, plugin, about, (type_, &reason, &note), &series)))
    }

    /// Takes a place in the burst of an object and one among the new Events that its share sends in a minute; if there is one
    /// of them alone, neither.
    fn spend(&mut self, now_ms: u64, share: &str, object: Fingerprint) -> Result<(), LeftOut> {
        let Self { buckets, budgets, per_minute, .. } = self;
        let mut bucket = buckets.get_mut(share, &object);
        if let Some(bucket) = &mut bucket {
            bucket.refill(now_ms);
        }
        if bucket.as_ref().is_some_and(|bucket| bucket.tokens == 0) {
            return Err(LeftOut::Burst);
        }
        if !take(budgets, now_ms, share, *per_minute) {
            return Err(LeftOut::Budget);
        }
        match bucket {
            Some(bucket) => bucket.tokens -= 1,
            None => buckets.insert(now_ms, share, object, Bucket { tokens: BURST - 1, refilled_ms: now_ms }),
        }
        Ok(())
    }

    fn body(
        &self,
        now: Now,
        plugin: Option<&str>,
        about: &Object,
        (type_, reason, note): (&str, &str, &str),
        series: &Series,
    ) -> WriteOp {
        // kubectl looks for Events about cluster-scoped objects in the namespace "default".
        let namespace = if about.name.namespace.is_empty() { "default" } else { &about.name.namespace };
        let hash = name_hash(&[&about.uid, type_, reason, note, &series.first_unix_ms.to_string()]);
        let stem: String = about.name.name.chars().take(240).collect();
        let name = Name::new(namespace, &format!("{stem}.{hash}"));
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": &*name.name, "namespace": namespace},
            "eventTime": time::micros(series.first_unix_ms),
            "reportingController": format!("{PREFIX}{}", reporter(plugin.unwrap_or("host"))),
            "reportingInstance": &*self.instance,
            "action": "Reconcile",
            "reason": reason,
            "note": note,
            "type": type_,
            "regarding": {
                "apiVersion": &*about.kind.api_version,
                "kind": &*about.kind.kind,
                "name": &*about.name.name,
                "uid": &*about.uid,
            },
        });
        if !about.name.namespace.is_empty() {
            body["regarding"]["namespace"] = json!(&*about.name.namespace);
        }
        if series.count > 1 {
            body["series"] = json!({"count": series.count, "lastObservedTime": time::micros(now.unix_ms)});
        }
        let target = ObjectRef { kind: Kind::new("events.k8s.io/v1", "Event"), name };
        WriteOp::Apply { target, body: body.to_string().into(), force: true, only_if: Precondition::None, draws: None }
    }
}

impl<V: Entry> Shares<V> {
    fn new() -> Self {
        Self { of_plugin: BTreeMap::new(), len: 0 }
    }

    fn get_mut(&mut self, plugin: &str, key: &Fingerprint) -> Option<&mut V> {
        self.of_plugin.get_mut(plugin)?.get_mut(key)
    }

    /// Adds an entry, and makes space for it at the bounds.
    fn insert(&mut self, now_ms: u64, plugin: &str, key: Fingerprint, entry: V) {
        if self.len >= MAX_IN_ALL {
            let is_new = !self.of_plugin.contains_key(plugin);
            let share = keep(MAX_IN_ALL) / (self.of_plugin.len() + usize::from(is_new));
            self.of_plugin.values_mut().for_each(|entries| keep_newest(entries, now_ms, share));
            self.of_plugin.retain(|_, entries| !entries.is_empty());
            self.len = self.of_plugin.values().map(BTreeMap::len).sum();
        }
        let own = self.of_plugin.entry(Arc::from(plugin)).or_default();
        self.len -= own.len();
        if own.len() >= V::MAX_OF_A_PLUGIN {
            keep_newest(own, now_ms, keep(V::MAX_OF_A_PLUGIN));
        }
        own.insert(key, entry);
        self.len += own.len();
    }
}

/// Takes a place among the new Events that a share sends in a minute, if there is one.
fn take(budgets: &mut BTreeMap<Arc<str>, TokenBucket>, now_ms: u64, share: &str, per_minute: u32) -> bool {
    if let Some(budget) = budgets.get_mut(share) {
        return budget.take(now_ms, per_minute);
    }
    if budgets.len() >= REMEMBERED_SHARES {
        budgets.retain(|_, budget| !budget.is_full(now_ms, per_minute));
    }
    let mut budget = TokenBucket::full(now_ms, per_minute);
    let is_within = budget.take(now_ms, per_minute);
    budgets.insert(share.into(), budget);
    is_within
}

fn is_recent<V: Entry>(entry: &V, now_ms: u64) -> bool {
    now_ms.saturating_sub(entry.at_ms()) < V::LIFE_MS
}

/// What is kept at a bound. A quarter is removed at once, so that a flood does not search for the oldest each time.
fn keep(most: usize) -> usize {
    most - most / 4
}

/// Removes what is of no use any more, and then the oldest.
fn keep_newest<V: Entry>(entries: &mut BTreeMap<Fingerprint, V>, now_ms: u64, most: usize) {
    entries.retain(|_, entry| is_recent(entry, now_ms));
    if entries.len() <= most {
        return;
    }
    let mut times: Vec<u64> = entries.values().map(V::at_ms).collect();
    let mut excess = times.len() - most;
    let newest_removed = *times.select_nth_unstable(excess - 1).1;
    entries.retain(|_, entry| {
        let is_removed = excess > 0 && entry.at_ms() <= newest_removed;
        excess -= usize::from(is_removed);
        !is_removed
    });
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::object::tests::Sample;

    fn record(note: &str) -> EventRecord {
        EventRecord { warning: true, reason: "Trap".to_owned(), note: note.to_owned(), words: Words::Note }
    }

    /// The name, count and note of the Event, if it is sent.
    fn send(log: &mut EventLog, mono_ms: u64, about: &Object, note: &str) -> Option<(String, u64, String)> {
        send_of(log, "podset", mono_ms, about, note)
    }

    fn send_of(
        log: &mut EventLog,
        plugin: &str,
        mono_ms: u64,
        about: &Object,
        note: &str,
    ) -> Option<(String, u64, String)> {
        let now = Now { mono_ms, unix_ms: 1_700_000_000_000 + mono_ms };
        let op = log.record(now, Some(plugin), about, record(note), true).ok()??;
        let WriteOp::Apply { target, body, force: true, .. } = op else { panic!("{op:?}") };
        let body: Value = serde_json::from_str(&body).unwrap();
        let note = body["note"].as_str().unwrap().to_owned();
        Some((target.name.name.to_string(), body["series"]["count"].as_u64().unwrap_or(1), note))
    }

    fn log() -> EventLog {
        EventLog::of_guests("mortise-0".into())
    }

    #[test]
    fn x10_repetitions_are_one_event_that_is_written_again_when_its_count_has_doubled() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let sent: Vec<_> = (0..100).filter_map(|second| send(&mut log, second * 1_000, &pod, "boom")).collect();
        assert_eq!(sent.iter().map(|(_, count, _)| *count).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
        assert!(sent.iter().all(|(name, ..)| *name == sent[0].0), "{sent:?}");
    }

    #[test]
    fn an_equal_event_after_the_window_is_another_one() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let (first, ..) = send(&mut log, 0, &pod, "boom").unwrap();
        let (second, count, _) = send(&mut log, WINDOW_MS, &pod, "boom").unwrap();
        assert_eq!(count, 1);
        assert_ne!(first, second);
    }

    #[test]
    fn x10_an_object_has_a_burst_of_events_and_one_more_every_five_minutes() {
        let (mut log, pod, other) = (log(), Sample::pod("a", "x").build(), Sample::pod("a", "y").uid("other").build());
        let sent = |log: &mut EventLog, from: u64, at: u64| {
            (from..from + 40).filter(|number| send(log, at, &pod, &format!("note {number}")).is_some()).count()
        };
        assert_eq!(sent(&mut log, 0, 0), 25);
        assert_eq!(sent(&mut log, 100, REFILL_MS - 1), 0);
        assert!(send(&mut log, REFILL_MS - 1, &other, "boom").is_some(), "each object has its own burst");
        assert_eq!(sent(&mut log, 200, REFILL_MS), 1);
    }

    #[test]
    fn a_note_is_one_line_that_is_cut_between_characters_to_what_the_api_server_accepts() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let mut note_of = |note: &str| send(&mut log, 0, &pod, note).unwrap().2;
        assert_eq!(note_of(&"ä".repeat(512)), "ä".repeat(512), "1,024 bytes");
        assert_eq!(note_of(&"ä".repeat(513)), format!("{}…", "ä".repeat(510)));
        assert_eq!(note_of(&format!("x{}", "ä".repeat(512))), format!("x{}…", "ä".repeat(510)));
        assert_eq!(note_of("fine\n  Normal  Forged  1s  other\u{1b}[2J"), "fine   Normal  Forged  1s  other");
    }

    #[test]
    fn g6_an_event_about_an_object_without_a_namespace_has_no_word_of_a_guest() {
        let (mut log, node, pod) = (log(), Sample::new("Node", "", "n1").build(), Sample::pod("default", "x").build());
        let mut said = |about: &Object, words: Words, secret: &str| {
            let record = EventRecord { warning: true, reason: secret.to_owned(), note: secret.to_owned(), words };
            log.record(Now { mono_ms: 0, unix_ms: 0 }, Some("podset"), about, record, true).unwrap().map(|op| {
                let WriteOp::Apply { target, body, .. } = op else { panic!("{op:?}") };
                let body: Value = serde_json::from_str(&body).unwrap();
                let text = |field: &str| body[field].as_str().unwrap().to_owned();
                ([&*target.name.namespace, &target.name.name].join("/"), text("reason"), text("note"))
            })
        };
        let where_to_look = "what the plugin says may be what it has read, so it is not shown here: see the status of Node n1, and \
                             the host's log";
        let (name, reason, note) = said(&node, Words::Guest, "hunter2").unwrap();
        assert_eq!((&*reason, &*note), ("PluginEvent", where_to_look));
        assert!(name.starts_with("default/n1."), "{name}");
        assert_eq!(
            said(&node, Words::Guest, "hunter3").map(|(again, ..)| again),
            Some(name),
            "the name follows from no word"
        );
        let (_, reason, note) = said(&node, Words::Note, "Trap").unwrap();
        assert_eq!((&*reason, &*note), ("Trap", where_to_look));
        let (_, reason, note) = said(&node, Words::Host, "Serving").unwrap();
        assert_eq!((&*reason, &*note), ("Serving", "Serving"));
        let (_, reason, note) = said(&pod, Words::Guest, "Synced").unwrap();
        assert_eq!((&*reason, &*note), ("Synced", "Synced"), "who may view the object's namespace may view the object");
    }

    /// Records one Event about each of `count` objects of a plugin, a millisecond apart.
    fn flood(log: &mut EventLog, plugin: &str, count: usize) {
        for number in 0..count as u64 {
            let about = Sample::pod("a", "x").uid(&format!("{plugin}/{number}")).build();
            let now = Now { mono_ms: number, unix_ms: number };
            let _ = log.record(now, Some(plugin), &about, record(&"x".repeat(1 << 16)), true);
        }
    }

    #[test]
    fn q4_a_plugin_of_many_objects_sends_600_events_in_a_minute_and_then_ten_a_second() {
        let mut log = log();
        let mut sent = |plugin: &str, at: u64, count: u64| {
            let about = |number| Sample::pod("a", "x").uid(&format!("{plugin}/{at}/{number}")).build();
            (0..count).filter(|number| send_of(&mut log, plugin, at, &about(*number), "boom").is_some()).count()
        };
        assert_eq!(sent("loud", 0, 1_000), 600);
        assert_eq!(sent("loud", 1_000, 100), 10);
        assert_eq!(sent("quiet", 1_000, 1), 1, "another one has its own");
        assert_eq!((sent("team.a", 0, 600), sent("team.b", 0, 1)), (600, 0), "a tenant is one share");
        (0..1_000).for_each(|plugin| assert_eq!(sent(&plugin.to_string(), 2_000 + 100 * plugin, 1), 1));
        assert!(log.budgets.len() <= REMEMBERED_SHARES + 1, "{}", log.budgets.len());
    }

    fn why_not(log: &mut EventLog, mono_ms: u64, about: &Object, note: &str, has_room: bool) -> Option<LeftOut> {
        log.record(Now { mono_ms, unix_ms: 0 }, Some("podset"), about, record(note), has_room).err()
    }

    #[test]
    fn q4_an_event_beyond_the_budget_of_its_share_takes_nothing_of_the_burst_of_its_object() {
        let (mut log, pod) = (log(), Sample::pod("a", "honest").build());
        for number in 0..EVENTS_PER_MINUTE {
            let about = Sample::pod("a", "x").uid(&number.to_string()).build();
            assert_eq!(why_not(&mut log, 0, &about, "boom", true), None);
        }
        for number in 0..2 * BURST {
            assert_eq!(why_not(&mut log, 0, &pod, &format!("note {number}"), true), Some(LeftOut::Budget));
        }
        let sent = |number: &u32| send(&mut log, 60_000, &pod, &format!("later {number}")).is_some();
        assert_eq!((0..40).filter(sent).count(), 25, "a minute later it has all of its burst");
    }

    #[test]
    fn q4_an_event_beyond_the_burst_of_its_object_takes_nothing_of_the_budget_of_its_share() {
        let (mut log, pod) = (log(), Sample::pod("a", "loud").build());
        let mut of_loud = |number: u32| why_not(&mut log, 0, &pod, &format!("note {number}"), true);
        assert!((0..BURST).all(|number| of_loud(number).is_none()));
        assert!((BURST..1_000).all(|number| of_loud(number) == Some(LeftOut::Burst)));
        let mut of_another = |number: u32| {
            let about = Sample::pod("a", "x").uid(&number.to_string()).build();
            why_not(&mut log, 0, &about, "boom", true)
        };
        assert!((BURST..600).all(|number| of_another(number).is_none()));
        assert_eq!(of_another(600), Some(LeftOut::Budget));
    }

    #[test]
    fn x10_what_has_no_room_is_recorded_as_if_it_had_not_been_said() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let waits = Some(LeftOut::Waiting);
        assert!((0..1_000).all(|number| why_not(&mut log, 0, &pod, &format!("note {number}"), false) == waits));
        assert_eq!(send(&mut log, 0, &pod, "note 0").map(|(_, count, _)| count), Some(1));
        assert_eq!(why_not(&mut log, 0, &pod, "note 0", false), waits, "the second one would be written");
        assert_eq!(send(&mut log, 0, &pod, "note 0").map(|(_, count, _)| count), Some(2));
        assert_eq!(why_not(&mut log, 0, &pod, "note 0", false), None, "the third one is counted and not written");
        assert_eq!(send(&mut log, 0, &pod, "note 0").map(|(_, count, _)| count), Some(4));
    }

    #[test]
    fn a_plugin_that_floods_loses_its_own_oldest_events_and_no_others() {
        let (mut log, pod) = (EventLog { per_minute: u32::MAX, ..log() }, Sample::pod("a", "x").build());
        send_of(&mut log, "quiet", 0, &pod, "boom").unwrap();
        flood(&mut log, "loud", MAX_OF_A_PLUGIN);
        assert_eq!(log.series.of_plugin["loud"].len(), MAX_OF_A_PLUGIN, "at the bound nothing is forgotten");
        let newest = *log.series.of_plugin["loud"].iter().max_by_key(|(_, series)| series.last_ms).unwrap().0;
        flood(&mut log, "more", MAX_OF_A_PLUGIN + 1);
        assert_eq!(log.series.of_plugin["more"].len(), keep(MAX_OF_A_PLUGIN) + 1);
        flood(&mut log, "loud", 3 * MAX_OF_A_PLUGIN);
        assert!(log.series.of_plugin["loud"].len() <= MAX_OF_A_PLUGIN && log.series.of_plugin["quiet"].len() == 1);
        assert!(!log.series.of_plugin["loud"].contains_key(&newest), "it has become the oldest");
    }

    #[test]
    fn all_plugins_together_have_a_bound_and_equal_shares_at_it() {
        let mut log = EventLog { per_minute: u32::MAX, ..log() };
        let plugins = MAX_IN_ALL / MAX_OF_A_PLUGIN;
        for plugin in 0..plugins {
            flood(&mut log, &plugin.to_string(), MAX_OF_A_PLUGIN);
        }
        let remembered = |log: &EventLog| log.series.of_plugin.values().map(BTreeMap::len).sum::<usize>();
        assert_eq!(remembered(&log), MAX_IN_ALL);
        flood(&mut log, "one more", 1);
        let share = keep(MAX_IN_ALL) / (plugins + 1);
        assert_eq!(remembered(&log), share * plugins + 1);
        assert!(log.series.of_plugin.values().all(|series| series.len() <= share), "each keeps a share at most");
        flood(&mut log, "many objects", 2 * MAX_IN_ALL);
        assert!(log.buckets.len <= MAX_IN_ALL && remembered(&log) <= MAX_IN_ALL);
        assert_eq!(log.series.len, remembered(&log));
    }

    #[test]
    fn q4_a_plugin_that_floods_renews_no_burst_of_another() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let sent = (0..40).filter(|number| send(&mut log, 0, &pod, &format!("note {number}")).is_some()).count();
        flood(&mut log, "loud", MAX_IN_ALL + 1);
        assert_eq!((sent, send(&mut log, 1, &pod, "one more")), (25, None));
        assert_eq!(log.buckets.len, log.buckets.of_plugin.values().map(BTreeMap::len).sum::<usize>());
    }

    #[test]
    fn the_name_of_a_plugin_is_cut_where_that_of_a_controller_ends() {
        assert_eq!(reporter("podset"), "podset");
        assert_eq!(reporter(&format!("team-b.{}", "b".repeat(70))).len(), 63);
        assert_eq!(reporter(&format!("{}--more", "b".repeat(61))), "b".repeat(61));
    }
}
