//! Kubernetes Events: what is told to a person who types `kubectl describe`. Repeated ones are counted, not repeated.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::digest::name_hash;
use crate::event::{Now, WriteOp};
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::time;

/// The API server refuses longer notes.
const MAX_NOTE_BYTES: usize = 1_024;
/// client-go's own window: the same event within ten minutes is a repetition.
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// client-go's own burst per object, and its refill of one event in five minutes.
const BURST: u32 = 25;
const REFILL_MS: u64 = 5 * 60 * 1_000;
/// What is remembered at most; beyond that the oldest is forgotten, which costs a repetition.
const MAX_REMEMBERED: usize = 4_096;

/// What happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Happening {
    /// Warning instead of Normal.
    pub warning: bool,
    /// CamelCase, one word.
    pub reason: String,
    /// For a person.
    pub note: String,
}

#[derive(Clone, Debug)]
struct Series {
    first_ms: u64,
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
    series: BTreeMap<(Arc<str>, Happening), Series>,
    buckets: BTreeMap<Arc<str>, Bucket>,
}

impl EventLog {
    /// An empty log of the host that calls itself `instance`.
    pub fn new(instance: Arc<str>) -> Self {
        Self { instance, series: BTreeMap::new(), buckets: BTreeMap::new() }
    }

    /// The write that tells of something about an object, or None when it was told often enough (X10).
    pub fn tell(&mut self, now: Now, plugin: Option<&str>, about: &Object, happening: Happening) -> Option<WriteOp> {
        self.forget_old(now.mono_ms);
        let key = (Arc::clone(&about.uid), happening);
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
                let series = Series { first_ms: now.unix_ms, last_ms: now.mono_ms, count: 1 };
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
        if self.series.len() < MAX_REMEMBERED {
            return;
        }
        self.series.retain(|_, series| now_ms.saturating_sub(series.last_ms) < WINDOW_MS);
        self.buckets.retain(|_, bucket| now_ms.saturating_sub(bucket.refilled_ms) < REFILL_MS * u64::from(BURST));
        while self.series.len() >= MAX_REMEMBERED {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last_ms).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.series.remove(&key));
        }
    }

    fn body(&self, now: Now, plugin: Option<&str>, about: &Object, happening: &Happening, series: &Series) -> WriteOp {
        let Happening { warning, reason, note } = happening;
        let type_ = if *warning { "Warning" } else { "Normal" };
        // Events live in namespaces; those about cluster-scoped objects in "default", where kubectl looks for them.
        let namespace = if about.name.namespace.is_empty() { "default" } else { &about.name.namespace };
        let hash = name_hash(&[&about.uid, type_, reason, note, &series.first_ms.to_string()]);
        let stem: String = about.name.name.chars().take(240).collect();
        let name = Name::new(namespace, &format!("{stem}.{hash}"));
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": &*name.name, "namespace": namespace},
            "eventTime": time::micros(series.first_ms),
            "reportingController": plugin.map_or_else(|| "mortise.dev/host".to_owned(), |name| format!("mortise.dev/{name}")),
            "reportingInstance": &*self.instance,
            "action": "Reconcile",
            "reason": reason,
            "note": cut(note, MAX_NOTE_BYTES),
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
        WriteOp::Apply { target, body: body.to_string().into(), force: true }
    }
}

/// The longest beginning of a text that has at most this many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}
