//! The HTTP requests that the outcomes of keys contain: which is sent when, and the replies, which are inputs of the keys'
//! next calls. Requests, results and the time go in; what to send now, and the key to wake, come out.
//!
//! Nothing here knows a plan, a call or the claim to lead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::plugin_counts::PluginCounts;
use crate::backoff::request_delay_ms;
use crate::http::{Failure, FailureClass, HttpId, OutgoingRequest, Replied, Reply, Response, Sent};
use crate::map::Map;
use crate::time::Now;
use crate::token_bucket::TokenBucket;
use crate::workqueue::Key;

#[cfg(test)]
mod tests;

/// Requests in flight at once, beside one of each plugin (Q4). Each may hold a response of a MiB.
const MAX_IN_FLIGHT: usize = 64;
/// Failures in a row that a plugin is not called for: a server restarts within these seconds.
const SILENT_FAILURES: u32 = 2;
/// The longest Retry-After that is honoured. A plugin's object must not wait for a day because of one response.
const MAX_RETRY_AFTER_MS: u64 = 3_600_000;
/// Before a request that this host was not allowed to send is tried again: the claim may have been renewed.
const NOT_SENT_DELAY_MS: u64 = 1_000;
/// Bytes of one plugin's replies: sixty-four of the largest.
const MAX_PLUGIN_BYTES: usize = 64 << 20;
/// Bytes of the replies of all plugins: an eighth of the memory limit of the Deployment in deploy/.
const MAX_TOTAL_BYTES: usize = 256 << 20;
/// Bytes that a plugin has to itself, so that others with large replies do not take all.
const OWN_BYTES: usize = 2 << 20;

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    per_minute: u32,
    of_key: BTreeMap<Key, Vec<Exchange>>,
    keys: Map<HttpId, Key>,
    last_id: u64,
    last_reply: u64,
    /// Those that wait for a time.
    due: BTreeSet<(u64, HttpId)>,
    /// Those that are due and wait for a place in flight or for their plugin's budget, by plugin. Some may be dropped.
    parked: BTreeMap<Arc<str>, VecDeque<HttpId>>,
    /// A place in flight was freed.
    freed: bool,
    /// With the plugin; also of those that were dropped since.
    in_flight: Map<HttpId, Arc<str>>,
    counts: PluginCounts,
    budgets: BTreeMap<Arc<str>, TokenBucket>,
    /// Plugins that are over their budget, and until when.
    throttled: BTreeMap<Arc<str>, u64>,
    /// Bytes of replies.
    kept: PluginCounts,
    next_due_ms: Option<u64>,
}

/// One request of one key.
#[derive(Debug)]
struct Exchange {
    id: HttpId,
    plugin: Arc<str>,
    request: Arc<OutgoingRequest>,
    /// When it is due; None while it is parked or in flight, and when its reply is final.
    due_ms: Option<u64>,
    /// It is parked or in flight.
    is_busy: bool,
    /// When its last final reply came, on the monotonic clock.
    replied_ms: Option<u64>,
    /// Failures in a row.
    failures: u32,
    reply: Option<(u64, Arc<Reply>)>,
}

impl Exchange {
    /// When its final reply is too old; for one that has none, now.
    fn refresh_due_ms(&self) -> Option<u64> {
        match self.replied_ms {
            Some(replied_ms) => Some(replied_ms.saturating_add(self.request.refresh_after_ms?)),
            None => self.due_ms,
        }
    }

    /// Whether the last reply is the same failure.
    fn shows(&self, result: &Result<Response, Failure>) -> bool {
        match (self.reply.as_ref().map(|(_, reply)| &reply.result), result) {
            (Some(Ok(shown)), Ok(response)) => shown.is_temporary() && shown.status == response.status,
            (Some(Err(shown)), Err(failure)) => shown.class == failure.class,
            _ => false,
        }
    }
}

impl Exchanges {
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, ..Self::default() }
    }

    /// Drops the requests of a key that its outcome does not contain any more. One in flight is not interrupted; its
    /// result is dropped too.
    pub fn keep(&mut self, key: &Key, is_kept: impl Fn(&OutgoingRequest) -> bool) {
        let Some(exchanges) = self.of_key.get_mut(key) else { return };
        for dropped in exchanges.extract_if(.., |exchange| !is_kept(&exchange.request)) {
            self.keys.remove(&dropped.id);
            if let Some(due_ms) = dropped.due_ms {
                self.due.remove(&(due_ms, dropped.id));
            }
            self.kept.subtract(&dropped.plugin, dropped.reply.map_or(0, |(_, reply)| reply.bytes()));
        }
        if exchanges.is_empty() {
            self.of_key.remove(key);
        }
    }

    pub fn drop_key(&mut self, key: &Key) {
        self.keep(key, |_| false);
    }

    /// Adds the requests of an outcome that are new, due now. The others get their new times.
    pub fn want(&mut self, plugin: &Arc<str>, key: &Key, wanted: &[Arc<OutgoingRequest>], now_ms: u64) {
        self.keep(key, |known| wanted.iter().any(|wanted| wanted.fingerprint == known.fingerprint));
        for request in wanted {
            let exchanges = self.of_key.entry(key.clone()).or_default();
            match exchanges.iter_mut().find(|known| known.request.fingerprint == request.fingerprint) {
                Some(known) => {
                    let has_new_age = known.request.refresh_after_ms != request.refresh_after_ms;
                    known.request = Arc::clone(request);
                    if has_new_age && !known.is_busy && known.failures == 0 {
                        if let Some(due_ms) = known.due_ms {
                            self.due.remove(&(due_ms, known.id));
                        }
                        known.due_ms = known.refresh_due_ms();
                        self.due.extend(known.due_ms.map(|due_ms| (due_ms, known.id)));
                    }
                }
                None => {
                    self.last_id += 1;
                    let id = HttpId(self.last_id);
                    let (plugin, request) = (Arc::clone(plugin), Arc::clone(request));
                    exchanges.push(Exchange {
                        id,
                        plugin,
                        request,
                        due_ms: Some(now_ms),
                        is_busy: false,
                        replied_ms: None,
                        failures: 0,
                        reply: None,
                    });
                    self.keys.insert(id, key.clone());
                    self.due.insert((now_ms, id));
                }
            }
        }
    }

    /// The replies to a key's requests.
    pub fn replies(&self, key: &Key) -> Arc<[Replied]> {
        let Some(exchanges) = self.of_key.get(key) else { return Arc::default() };
        let replied = |exchange: &Exchange| {
            let (number, reply) = exchange.reply.as_ref()?;
            Some(Replied { fingerprint: exchange.request.fingerprint, number: *number, reply: Arc::clone(reply) })
        };
        exchanges.iter().filter_map(replied).collect()
    }

    /// What to send now, with the key of each.
    pub fn run(&mut self, now_ms: u64, may_send: bool) -> Vec<(HttpId, Key, Arc<OutgoingRequest>)> {
        self.next_due_ms = None;
        if !may_send {
            return Vec::new();
        }
        let mut plugins: BTreeSet<Arc<str>> = BTreeSet::new();
        while let Some((_, id)) = self.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.due.pop_first();
            let Some(exchange) = self.exchange_mut(id) else { continue };
            exchange.due_ms = None;
            exchange.is_busy = true;
            let plugin = Arc::clone(&exchange.plugin);
            self.parked.entry(Arc::clone(&plugin)).or_default().push_back(id);
            plugins.insert(plugin);
        }
        plugins.extend(self.throttled.extract_if(.., |_, until_ms| *until_ms <= now_ms).map(|(plugin, _)| plugin));
        if std::mem::take(&mut self.freed) {
            plugins.extend(self.parked.keys().cloned());
        }
        let mut sent = Vec::new();
        for plugin in plugins {
            self.send_parked(&plugin, now_ms, &mut sent);
        }
        let due_ms = self.due.first().map(|(due_ms, _)| *due_ms);
        self.next_due_ms = self.throttled.values().copied().chain(due_ms).min();
        sent
    }

    /// When [`Self::run`] has something to do though nothing happens before.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.next_due_ms
    }

    fn send_parked(&mut self, plugin: &Arc<str>, now_ms: u64, sent: &mut Vec<(HttpId, Key, Arc<OutgoingRequest>)>) {
        while !self.throttled.contains_key(plugin) && self.counts.has_room(plugin, MAX_IN_FLIGHT) {
            let Some(id) = self.parked.get_mut(plugin).and_then(VecDeque::pop_front) else { break };
            let (Some(key), Some(exchange)) = (self.keys.get(&id).cloned(), self.exchange_mut(id)) else { continue };
            let request = Arc::clone(&exchange.request);
            let per_minute = self.per_minute;
            let bucket =
                self.budgets.entry(Arc::clone(plugin)).or_insert_with(|| TokenBucket::full(now_ms, per_minute));
            if let Some(wait_ms) = bucket.spend(now_ms, per_minute) {
                self.throttled.insert(Arc::clone(plugin), now_ms + wait_ms);
            }
            self.counts.add(plugin, 1);
            self.in_flight.insert(id, Arc::clone(plugin));
            sent.push((id, key, request));
        }
        if self.parked.get(plugin).is_some_and(VecDeque::is_empty) {
            self.parked.remove(plugin);
        }
    }

    /// The result of a request. Returns the key if it has another reply now.
    pub fn on_done(&mut self, id: HttpId, sent: Sent, now: Now) -> Option<Key> {
        let plugin = self.in_flight.remove(&id)?;
        self.counts.subtract(&plugin, 1);
        self.freed = true;
        let key = self.keys.get(&id)?.clone();
        self.exchange_mut(id)?.is_busy = false;
        let result = match sent {
            Sent::NotSent => {
                self.wait(id, now.mono_ms + NOT_SENT_DELAY_MS);
                return None;
            }
            Sent::Response(response) => Ok(response),
            Sent::Failed(failure) => Err(failure),
        };
        let exchange = self.exchange_mut(id)?;
        let is_temporary = match &result {
            Ok(response) => response.is_temporary(),
            Err(failure) => failure.class != FailureClass::TooLarge,
        };
        exchange.replied_ms = (!is_temporary).then_some(now.mono_ms);
        exchange.failures = if is_temporary { exchange.failures.saturating_add(1) } else { 0 };
        let due_ms = if is_temporary {
            let retry_after_ms = result.as_ref().ok().and_then(Response::retry_after_ms).unwrap_or_default();
            let name = format!("{} {}", key.name, exchange.request.key);
            let delay_ms = request_delay_ms(exchange.failures, &name).max(retry_after_ms.min(MAX_RETRY_AFTER_MS));
            Some(now.mono_ms.saturating_add(delay_ms))
        } else {
            exchange.refresh_due_ms()
        };
        let is_hidden = is_temporary && (exchange.failures <= SILENT_FAILURES || exchange.shows(&result));
        if let Some(due_ms) = due_ms {
            self.wait(id, due_ms);
        }
        if is_hidden {
            return None;
        }
        self.store(id, &plugin, Reply { result, received_unix_ms: now.unix_ms });
        Some(key)
    }

    fn wait(&mut self, id: HttpId, due_ms: u64) {
        if let Some(exchange) = self.exchange_mut(id) {
            exchange.due_ms = Some(due_ms);
            self.due.insert((due_ms, id));
        }
    }

    /// Keeps a reply in place of the last one, if there is room.
    fn store(&mut self, id: HttpId, plugin: &Arc<str>, reply: Reply) {
        self.last_reply += 1;
        let number = self.last_reply;
        let Some(exchange) = self.exchange_mut(id) else { return };
        let before = exchange.reply.take().map_or(0, |(_, reply)| reply.bytes());
        self.kept.subtract(plugin, before);
        let reply = if self.fits(plugin, reply.bytes()) { reply } else { no_room(reply.received_unix_ms) };
        self.kept.add(plugin, reply.bytes());
        if let Some(exchange) = self.exchange_mut(id) {
            exchange.reply = Some((number, Arc::new(reply)));
        }
    }

    fn fits(&self, plugin: &str, bytes: usize) -> bool {
        let (own, total) = (self.kept.of(plugin) + bytes, self.kept.total() + bytes);
        own <= OWN_BYTES || (own <= MAX_PLUGIN_BYTES && total <= MAX_TOTAL_BYTES)
    }

    fn exchange_mut(&mut self, id: HttpId) -> Option<&mut Exchange> {
        let key = self.keys.get(&id)?;
        self.of_key.get_mut(key)?.iter_mut().find(|exchange| exchange.id == id)
    }

    /// Forgets what concerns a plugin that was removed, after its keys.
    pub fn withdraw(&mut self, plugin: &str) {
        self.parked.remove(plugin);
        self.throttled.remove(plugin);
        self.budgets.remove(plugin);
    }
}

fn no_room(received_unix_ms: u64) -> Reply {
    let message = format!(
        "there is no room for the response: those to one plugin may have {} MiB together, and {} MiB those to all; \
         request less at once, or for fewer objects",
        MAX_PLUGIN_BYTES >> 20,
        MAX_TOTAL_BYTES >> 20
    );
    Reply { result: Err(Failure { class: FailureClass::TooLarge, message: message.into() }), received_unix_ms }
}
