//! Kubernetes Events: what is told to a person who types `kubectl describe`. Repeated ones are counted, not repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::digest::name_hash;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::time;
use crate::time::Now;
use crate::well_known::PREFIX;
use crate::write::{Precondition, WriteOp};

/// The API server refuses longer notes.
const MAX_NOTE_BYTES: usize = 1_024;
/// client-go's own window: the same event within ten minutes is a repetition.
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// client-go's own burst per object, and its refill of one event in five minutes.
const BURST: u32 = 25;
const REFILL_MS: u64 = 5 * 60 * 1_000;
/// What is remembered at most, with notes as they are sent: some 5 MiB. Beyond that the oldest is forgotten, which costs a
/// repetition.
const MAX_REMEMBERED: usize = 4_096;

/// What happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventRecord {
    /// Warning instead of Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// For a person.
    pub note: String,
}

#[derive(Clone, Debug)]
struct Series {
    /// In Unix time: it stands in the Event.
    first_unix_ms: u64,
    last_ms: u64,
    count: u32,
}

#[derive(Clone, Debug)]
struct Bucket {
    tokens: u32,
    refilled_ms: u64,
}

/// The events that were sent a short while ago.
#[derive(Clone, Debug)]
pub struct EventLog {
    instance: Arc<str>,
    series: BTreeMap<(Arc<str>, EventRecord), Series>,
    buckets: BTreeMap<Arc<str>, Bucket>,
}

impl EventLog {
    /// An empty log of the host that calls itself `instance`.
    pub fn new(instance: Arc<str>) -> Self {
        Self { instance, series: BTreeMap::new(), buckets: BTreeMap::new() }
    }

    /// Forgets what was sent.
    pub fn forget(&mut self) {
        self.series.clear();
    }

    /// The write that tells of something about an object, or None when it was told often enough (X10).
    pub fn tell(&mut self, now: Now, plugin: Option<&str>, about: &Object, record: EventRecord) -> Option<WriteOp> {
        self.forget_old(now.mono_ms);
        let EventRecord { warning, reason, mut note } = record;
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        let record = EventRecord { warning, reason, note };
        let key = (Arc::clone(&about.uid), record);
        // What happens again after a while is news again: the API server has forgotten the old Event by then.
        if self.series.get(&key).is_some_and(|series| now.mono_ms.saturating_sub(series.last_ms) >= WINDOW_MS) {
            self.series.remove(&key);
        }
        let series = match self.series.get_mut(&key) {
            Some(series) => {
                series.count += 1;
                series.last_ms = now.mono_ms;
                // A repetition is worth a request only when the count has doubled.
                if !series.count.is_power_of_two() {
                    return None;
                }
                series.clone()
            }
            None => {
                if !self.spend(now.mono_ms, &about.uid) {
                    return None;
                }
                let series = Series { first_unix_ms: now.unix_ms, last_ms: now.mono_ms, count: 1 };
                self.series.insert(key.clone(), series.clone());
                series
            }
        };
        Some(self.body(now, plugin, about, &key.1, &series))
    }

    fn spend(&mut self, now_ms: u64, uid: &Arc<str>) -> bool {
        let bucket = self.buckets.entry(Arc::clone(uid)).or_insert(Bucket { tokens: BURST, refilled_ms: now_ms });
        let earned = u32::try_from(now_ms.saturating_sub(bucket.refilled_ms) / REFILL_MS).unwrap_or(BURST);
        if earned > 0 {
            bucket.tokens = bucket.tokens.saturating_add(earned).min(BURST);
            bucket.refilled_ms = now_ms;
        }
        if bucket.tokens == 0 {
            return false;
        }
        bucket.tokens -= 1;
        true
    }

    fn forget_old(&mut self, now_ms: u64) {
        if self.series.len() >= MAX_REMEMBERED {
            self.series.retain(|_, series| now_ms.saturating_sub(series.last_ms) < WINDOW_MS);
            keep_newest(&mut self.series, |series| series.last_ms);
        }
        if self.buckets.len() >= MAX_REMEMBERED {
            self.buckets.retain(|_, bucket| now_ms.saturating_sub(bucket.refilled_ms) < REFILL_MS * u64::from(BURST));
            keep_newest(&mut self.buckets, |bucket| bucket.refilled_ms);
        }
    }

    fn body(&self, now: Now, plugin: Option<&str>, about: &Object, record: &EventRecord, series: &Series) -> WriteOp {
        let EventRecord { warning, reason, note } = record;
        let type_ = if *warning { "Warning" } else { "Normal" };
        // Events live in namespaces; those about cluster-scoped objects in "default", where kubectl looks for them.
        let namespace = if about.name.namespace.is_empty() { "default" } else { &about.name.namespace };
        let hash = name_hash(&[&about.uid, type_, reason, note, &series.first_unix_ms.to_string()]);
        let stem: String = about.name.name.chars().take(240).collect();
        let name = Name::new(namespace, &format!("{stem}.{hash}"));
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": &*name.name, "namespace": namespace},
            "eventTime": time::micros(series.first_unix_ms),
            "reportingController": format!("{PREFIX}{}", plugin.unwrap_or("host")),
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
        WriteOp::Apply { target, body: body.to_string().into(), force: true, only_if: Precondition::None }
    }
}

/// Makes room for a quarter of what may be remembered, so that a flood does not look for the oldest at every event.
fn keep_newest<K: Ord, V>(map: &mut BTreeMap<K, V>, at_ms: impl Fn(&V) -> u64) {
    let most = MAX_REMEMBERED - MAX_REMEMBERED / 4;
    if map.len() <= most {
        return;
    }
    let mut times: Vec<u64> = map.values().map(&at_ms).collect();
    let cut = times.len() - most;
    let (_, newest_to_go, _) = times.select_nth_unstable(cut - 1);
    let newest_to_go = *newest_to_go;
    let mut excess = cut;
    map.retain(|_, value| {
        let goes = excess > 0 && at_ms(value) <= newest_to_go;
        excess -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::object::tests::Sample;

    /// What was sent: the Event's name, its count and its note.
    fn told(log: &mut EventLog, mono_ms: u64, about: &Object, note: &str) -> Option<(String, u64, String)> {
        let now = Now { mono_ms, unix_ms: 1_700_000_000_000 + mono_ms };
        let record = EventRecord { warning: true, reason: "Trap".to_owned(), note: note.to_owned() };
        let op = log.tell(now, Some("podset"), about, record)?;
        let WriteOp::Apply { target, body, force: true, .. } = op else { panic!("{op:?}") };
        let body: Value = serde_json::from_str(&body).unwrap();
        let note = body["note"].as_str().unwrap().to_owned();
        Some((target.name.name.to_string(), body["series"]["count"].as_u64().unwrap_or(1), note))
    }

    fn log() -> EventLog {
        EventLog::new("mortise-0".into())
    }

    #[test]
    fn x10_repetitions_are_one_event_that_is_sent_again_when_its_count_has_doubled() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let sent: Vec<_> = (0..100).filter_map(|second| told(&mut log, second * 1_000, &pod, "boom")).collect();
        assert_eq!(sent.iter().map(|(_, count, _)| *count).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
        assert!(sent.iter().all(|(name, ..)| *name == sent[0].0), "{sent:?}");
    }

    #[test]
    fn what_happens_again_after_the_window_is_another_event() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let (first, ..) = told(&mut log, 0, &pod, "boom").unwrap();
        let (second, count, _) = told(&mut log, WINDOW_MS, &pod, "boom").unwrap();
        assert_eq!(count, 1);
        assert_ne!(first, second);
    }

    #[test]
    fn x10_an_object_has_a_burst_of_events_and_one_more_every_five_minutes() {
        let (mut log, pod, other) = (log(), Sample::pod("a", "x").build(), Sample::pod("a", "y").uid("other").build());
        let sent = |log: &mut EventLog, from: u64, at: u64| {
            (from..from + 40).filter(|number| told(log, at, &pod, &format!("note {number}")).is_some()).count()
        };
        assert_eq!(sent(&mut log, 0, 0), 25);
        assert_eq!(sent(&mut log, 100, REFILL_MS - 1), 0);
        assert!(told(&mut log, REFILL_MS - 1, &other, "boom").is_some(), "others have bursts of their own");
        assert_eq!(sent(&mut log, 200, REFILL_MS), 1);
    }

    #[test]
    fn a_note_is_cut_to_what_the_api_server_takes_between_two_characters() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        let (_, _, note) = told(&mut log, 0, &pod, &"ä".repeat(600)).unwrap();
        assert_eq!(note, "ä".repeat(512));
        let (_, _, note) = told(&mut log, 0, &pod, &format!("x{}", "ä".repeat(600))).unwrap();
        assert_eq!(note.len(), 1_023);
        told(&mut log, 0, &pod, &"x".repeat(1 << 20));
        let longest = log.series.keys().map(|(_, record)| record.note.len()).max();
        assert_eq!(longest, Some(MAX_NOTE_BYTES), "nor is more of it remembered");
    }

    #[test]
    fn the_log_forgets_the_oldest_first() {
        let (mut log, pod) = (log(), Sample::pod("a", "x").build());
        told(&mut log, 0, &pod, "first");
        let record = |number: u64| EventRecord { warning: true, reason: "Trap".to_owned(), note: number.to_string() };
        for number in 0..u64::try_from(MAX_REMEMBERED).unwrap() + 10 {
            let about = Sample::pod("a", "x").uid(&number.to_string()).build();
            log.tell(Now { mono_ms: 1 + number, unix_ms: 1 + number }, None, &about, record(number));
        }
        assert!(log.series.len() <= MAX_REMEMBERED);
        assert!(!log.series.keys().any(|(_, record)| record.note == "first"));
    }
}
