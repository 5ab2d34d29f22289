//! The HTTP requests that the outcomes of keys contain: which is sent when, and the replies, which are inputs of the keys'
//! next calls. Requests, results and the time go in; what to send now, and the key to wake, come out.
//!
//! Nothing here knows a plan, a call or the claim to lead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::denials::Denials;
use self::in_flight::{InFlight, Of};
pub(super) use self::kept::BOUNDS;
use self::kept::{no_room, response_without_room};
use super::ledger::Ledger;
use super::plugin_counts::PluginCounts;
use super::throttled::Throttled;
use crate::backoff::request_delay_ms;
use crate::heap::shared;
use crate::http::{Failure, FailureClass, HttpId, OutgoingRequest, Replied, Reply, Response, Sent};
use crate::manifest::http::{HttpRule, rule_of};
use crate::map::Map;
use crate::object::Name;
use crate::tenant::{share, share_name};
use crate::time::Now;
use crate::token_bucket::TokenBucket;
use crate::workqueue::{ControllerId, Key};

mod denials;
mod in_flight;
mod kept;
#[cfg(test)]
mod tests;

/// Failures in a row that a plugin is not called for: a server restarts within these seconds.
const SILENT_FAILURES: u32 = 2;
/// The longest Retry-After that is honoured. A plugin's object must not wait for a day because of one response.
const MAX_RETRY_AFTER_MS: u64 = 3_600_000;
/// Before a request that this host was not allowed to send is tried again: the claim may have been renewed.
const NOT_SENT_DELAY_MS: u64 = 1_000;
/// With more shares than this in memory, those with full budgets are forgotten: a new one is full as well.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct Exchanges {
    per_minute: u32,
    of_key: BTreeMap<Key, Vec<Exchange>>,
    keys: Map<HttpId, Key>,
    /// Controllers that are gone and of which not all keys are dropped.
    gone: BTreeSet<ControllerId>,
    last_id: u64,
    last_reply: u64,
    /// Those that wait for a time.
    due: BTreeSet<(u64, HttpId)>,
    /// Those that are due and wait for a place in flight or for their share's budget, by share. Some may be dropped.
    parked: BTreeMap<Arc<str>, VecDeque<HttpId>>,
    /// A place in flight was freed.
    freed: bool,
    in_flight: InFlight,
    /// Those that are due and wait for former ones in flight.
    held: BTreeMap<Of, BTreeSet<HttpId>>,
    /// By share.
    budgets: BTreeMap<Arc<str>, TokenBucket>,
    /// Shares that are over their budget, and until when.
    throttled: Throttled,
    /// Those whose last result is that nobody has granted what they carry.
    denials: Denials,
    /// By share.
    kept: Ledger,
    next_due_ms: Option<u64>,
}

/// What a request takes beside its own bytes: an exchange in a list that has grown twofold, a place in a hash table that is less
/// than half full, and places in trees of half-full nodes, with the list's own.
const EXCHANGE_BYTES: usize = 2 * size_of::<Exchange>() + 512;

/// What is kept for a request.
fn of_request(request: &OutgoingRequest) -> usize {
    request.bytes() + EXCHANGE_BYTES
}

/// One request of one key.
#[derive(Debug)]
struct Exchange {
    id: HttpId,
    plugin: Arc<str>,
    request: Arc<OutgoingRequest>,
    /// When it is due; None while it is busy, and when its reply is final.
    due_ms: Option<u64>,
    /// It is parked, held back or in flight.
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

    /// Its last reply is final, and it is not sent again.
    fn is_over(&self) -> bool {
        self.replied_ms.is_some() && !self.request.method.only_reads()
    }

    fn reply_bytes(&self) -> usize {
        self.reply.as_ref().map_or(0, |(_, reply)| reply.bytes())
    }

    /// Bytes that another reply takes the place of.
    fn freed_bytes(&self, is_temporary: bool) -> usize {
        let is_over = !is_temporary && !self.request.method.only_reads();
        self.reply_bytes() + if is_over { shared(self.request.body.len()) - shared(0) } else { 0 }
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
        Self {
            per_minute,
            of_key: BTreeMap::new(),
            keys: Map::default(),
            gone: BTreeSet::new(),
            last_id: 0,
            last_reply: 0,
            due: BTreeSet::new(),
            parked: BTreeMap::new(),
            freed: false,
            in_flight: InFlight::default(),
            held: BTreeMap::new(),
            budgets: BTreeMap::new(),
            throttled: Throttled::default(),
            denials: Denials::default(),
            kept: Ledger::new(BOUNDS),
            next_due_ms: None,
        }
    }

    /// Drops the requests of a key that its outcome does not contain any more. One in flight is not interrupted; its
    /// result is dropped too, and the key's next requests wait for it if it changes something.
    pub fn keep(&mut self, key: &Key, is_kept: impl Fn(&OutgoingRequest) -> bool) {
        self.retain(key, |exchange| is_kept(&exchange.request));
    }

    /// Returns how many there were.
    pub fn drop_key(&mut self, key: &Key) -> usize {
        self.retain(key, |_| false)
    }

    /// A version that takes over may declare less than the one before.
    pub fn keep_declared(&mut self, id: ControllerId, rules: &[HttpRule]) {
        let first = Key { controller: id, name: Name::new("", "") };
        let of_controller = self.of_key.range(first..).map(|(key, _)| key).take_while(|key| key.controller == id);
        for key in of_controller.cloned().collect::<Vec<_>>() {
            self.keep(&key, |request| {
                let rule = rule_of(rules, &request.origin).filter(|rule| rule.methods.contains(&request.method));
                let has = |secret: &Arc<str>| rule.is_some_and(|rule| rule.secrets.contains(secret));
                rule.is_some() && request.secret_headers.iter().all(|header| has(&header.secret))
            });
        }
    }

    /// A controller is gone: nothing of it is sent, though its keys are dropped later.
    pub fn end(&mut self, id: ControllerId) {
        self.gone.insert(id);
    }

    /// All its keys are dropped.
    pub fn ended(&mut self, id: ControllerId) {
        self.gone.remove(&id);
    }

    /// The key of a request that is wanted.
    fn key_of(&self, id: HttpId) -> Option<&Key> {
        self.keys.get(&id).filter(|key| !self.gone.contains(&key.controller))
    }

    /// After a call without an outcome: what it has read the reply to is sent further on, as for a call that failed because
    /// of it. Nothing else is sent until an outcome wants it, but final replies remain, or it would be sent twice.
    pub fn quiet(&mut self, key: &Key, is_read: impl Fn(u128) -> bool) {
        let is_read = |exchange: &Exchange| is_read(exchange.request.fingerprint);
        self.retain(key, |exchange| is_read(exchange) || (exchange.replied_ms.is_some() && !exchange.is_busy));
        let exchanges = self.of_key.get_mut(key).into_iter().flatten();
        for exchange in exchanges.filter(|exchange| !is_read(exchange)) {
            if let Some(due_ms) = exchange.due_ms.take() {
                self.due.remove(&(due_ms, exchange.id));
            }
        }
    }

    /// Returns how many were dropped.
    fn retain(&mut self, key: &Key, is_kept: impl Fn(&Exchange) -> bool) -> usize {
        let Some(exchanges) = self.of_key.get_mut(key) else { return 0 };
        let before = exchanges.len();
        for dropped in exchanges.extract_if(.., |exchange| !is_kept(exchange)) {
            self.keys.remove(&dropped.id);
            if let Some(due_ms) = dropped.due_ms {
                self.due.remove(&(due_ms, dropped.id));
            }
            if let Some(held) = self.held.get_mut(&(Arc::clone(&dropped.plugin), key.name.clone())) {
                held.remove(&dropped.id);
            }
            self.denials.end(&dropped.plugin, dropped.id);
            self.kept.subtract(&share_name(&dropped.plugin), of_request(&dropped.request) + dropped.reply_bytes());
        }
        let dropped = before - exchanges.len();
        if exchanges.is_empty() {
            self.of_key.remove(key);
        }
        dropped
    }

    /// Why the new ones of these requests cannot be kept, if so.
    pub fn refusal(&self, plugin: &str, key: &Key, wanted: &[Arc<OutgoingRequest>]) -> Option<String> {
        let known = || self.of_key.get(key).into_iter().flatten();
        let is_new =
            |request: &&Arc<OutgoingRequest>| known().all(|known| known.request.fingerprint != request.fingerprint);
        let bytes = wanted.iter().filter(is_new).map(|request| of_request(request)).sum();
        (!self.kept.fits(&share_name(plugin), bytes, 1)).then(|| no_room("its HTTP requests"))
    }

    /// Adds the requests of an outcome that are new, due now. The others get their new times. Returns false if there is no
    /// room for one.
    pub fn want(&mut self, plugin: &Arc<str>, key: &Key, wanted: &[Arc<OutgoingRequest>], now_ms: u64) -> bool {
        self.keep(key, |known| wanted.iter().any(|wanted| wanted.fingerprint == known.fingerprint));
        let mut all_fit = true;
        for request in wanted {
            let mut exchanges = self.of_key.get_mut(key).into_iter().flatten();
            match exchanges.find(|known| known.request.fingerprint == request.fingerprint) {
                Some(known) if known.is_over() => {}
                Some(known) => {
                    let has_new_age = known.request.refresh_after_ms != request.refresh_after_ms;
                    known.request = Arc::clone(request);
                    if (has_new_age || known.due_ms.is_none()) && !known.is_busy && known.failures == 0 {
                        if let Some(due_ms) = known.due_ms {
                            self.due.remove(&(due_ms, known.id));
                        }
                        known.due_ms = known.refresh_due_ms();
                        self.due.extend(known.due_ms.map(|due_ms| (due_ms, known.id)));
                    }
                }
                None if self.kept.fits(&share_name(plugin), of_request(request), 1) => {
                    self.add(plugin, key, request, now_ms)
                }
                None => all_fit = false,
            }
        }
        all_fit
    }

    fn add(&mut self, plugin: &Arc<str>, key: &Key, request: &Arc<OutgoingRequest>, now_ms: u64) {
        self.last_id += 1;
        let id = HttpId(self.last_id);
        self.kept.add(&share(plugin), of_request(request));
        self.of_key.entry(key.clone()).or_default().push(Exchange {
            id,
            plugin: Arc::clone(plugin),
            request: Arc::clone(request),
            due_ms: Some(now_ms),
            is_busy: false,
            replied_ms: None,
            failures: 0,
            reply: None,
        });
        self.keys.insert(id, key.clone());
        self.due.insert((now_ms, id));
    }

    /// Bytes that are kept for a share.
    pub fn kept_of(&self, share: &str) -> usize {
        self.kept.of(share)
    }

    /// Whether a request that changes something may be carried out now, wanted or not.
    pub fn is_changing(&self, plugin: &Arc<str>, key: &Key) -> bool {
        self.in_flight.changing(&(Arc::clone(plugin), key.name.clone())).next().is_some()
    }

    /// Whether one is in flight that nobody wants any more. If a successor overtook it, the server would end with the former.
    fn is_held_back(&self, of: &Of) -> bool {
        self.in_flight.changing(of).any(|id| self.key_of(id).is_none())
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
        let mut shares: BTreeSet<Arc<str>> = BTreeSet::new();
        while let Some((_, id)) = self.due.first().copied().filter(|(due_ms, _)| *due_ms <= now_ms) {
            self.due.pop_first();
            let Some(exchange) = self.exchange_mut(id) else { continue };
            exchange.due_ms = None;
            exchange.is_busy = true;
            let share = share(&exchange.plugin);
            let parked = self.parked.entry(Arc::clone(&share)).or_default();
            if parked.len() == parked.capacity() {
                parked.retain(|id| self.keys.contains_key(id));
            }
            parked.push_back(id);
            shares.insert(share);
        }
        shares.extend(std::iter::from_fn(|| self.throttled.take_due(now_ms)));
        if std::mem::take(&mut self.freed) {
            shares.extend(self.parked.keys().cloned());
        }
        let mut sent = Vec::new();
        for share in shares {
            self.send_parked(&share, now_ms, &mut sent);
        }
        let due_ms = self.due.first().map(|(due_ms, _)| *due_ms);
        self.next_due_ms = self.throttled.next_due_ms().into_iter().chain(due_ms).min();
        sent
    }

    /// Why a plugin's further requests wait, if they do because there were too many.
    pub fn over_budget(&self, plugin: &str) -> Option<String> {
        let share = share_name(plugin);
        self.throttled.has(&share).then(|| {
            format!(
                "{share} is over its budget of {} HTTP requests a minute, so further ones wait; if it needs more, raise \
                 --plugin-requests-per-minute of `mortise run`",
                self.per_minute
            )
        })
    }

    /// When [`Self::run`] has something to do though nothing happens before.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.next_due_ms
    }

    fn send_parked(&mut self, share: &Arc<str>, now_ms: u64, sent: &mut Vec<(HttpId, Key, Arc<OutgoingRequest>)>) {
        while !self.throttled.has(share) && self.in_flight.has_room(share) {
            let Some(id) = self.parked.get_mut(share).and_then(VecDeque::pop_front) else { break };
            let Some(key) = self.key_of(id).cloned() else { continue };
            let Some(exchange) = self.exchange_mut(id) else { continue };
            let (of, request) = ((Arc::clone(&exchange.plugin), key.name.clone()), Arc::clone(&exchange.request));
            if self.is_held_back(&of) {
                self.held.entry(of).or_default().insert(id);
                continue;
            }
            if let Some(wait_ms) = self.spend(share, now_ms) {
                self.throttled.hold(share, now_ms + wait_ms);
            }
            self.in_flight.begin(id, of, !request.method.only_reads());
            sent.push((id, key, request));
        }
        if self.parked.get(share).is_some_and(VecDeque::is_empty) {
            self.parked.remove(share);
        }
    }

    /// Counts a request of a share. How long its next one has to wait.
    fn spend(&mut self, share: &Arc<str>, now_ms: u64) -> Option<u64> {
        let per_minute = self.per_minute;
        if self.budgets.len() > REMEMBERED && !self.budgets.contains_key(share) {
            self.budgets.retain(|_, bucket| !bucket.is_full(now_ms, per_minute));
        }
        let bucket = self.budgets.entry(Arc::clone(share)).or_insert_with(|| TokenBucket::full(now_ms, per_minute));
        bucket.spend(now_ms, per_minute)
    }

    /// The result of a request. Returns the key if it has another reply now.
    pub fn on_done(&mut self, id: HttpId, sent: Sent, now: Now) -> Option<Key> {
        let of = self.in_flight.end(id)?;
        self.freed = true;
        self.release(&of);
        let (plugin, key) = (of.0, self.key_of(id)?.clone());
        self.exchange_mut(id)?.is_busy = false;
        match &sent {
            Sent::NotSent => {}
            Sent::NotGranted(_) => self.denials.begin(&plugin, id),
            Sent::Response(_) | Sent::Failed(_) => self.denials.end(&plugin, id),
        }
        let reply = |result| Reply { result, received_unix_ms: now.unix_ms };
        let (reply, is_temporary) = match sent {
            Sent::NotSent => {
                self.wait(id, now.mono_ms + NOT_SENT_DELAY_MS);
                return None;
            }
            Sent::Response(response) => {
                let (is_temporary, reply_of_it) = (response.is_temporary(), reply(Ok(response)));
                let freed = self.exchange_mut(id)?.freed_bytes(is_temporary);
                let bytes = reply_of_it.bytes();
                if bytes <= freed || self.kept.fits(&share_name(&plugin), bytes - freed, 1) {
                    (reply_of_it, is_temporary)
                } else {
                    // There is room again when others have less.
                    (reply(Err(response_without_room())), true)
                }
            }
            Sent::Failed(failure) => {
                let is_temporary = failure.class != FailureClass::TooLarge;
                (reply(Err(failure)), is_temporary)
            }
            Sent::NotGranted(message) => (reply(Err(Failure { class: FailureClass::Secret, message })), true),
        };
        let is_shown = self.schedule(id, &key, &reply.result, is_temporary, now)?;
        if is_shown {
            self.store(id, &plugin, reply);
        }
        if !is_temporary {
            self.drop_body(id, &plugin);
        }
        is_shown.then_some(key)
    }

    /// When a request is sent again, and whether its result is a reply. One that is not granted is shown at once: only a
    /// person ends it.
    fn schedule(
        &mut self,
        id: HttpId,
        key: &Key,
        result: &Result<Response, Failure>,
        is_temporary: bool,
        now: Now,
    ) -> Option<bool> {
        let plugin = Arc::clone(&self.exchange_mut(id)?.plugin);
        let is_denied = self.denials.has(&plugin, id);
        let exchange = self.exchange_mut(id)?;
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
        let is_hidden = match &exchange.reply {
            Some((_, shown)) if is_denied => shown.result == *result,
            _ if is_denied => false,
            _ => is_temporary && (exchange.failures <= SILENT_FAILURES || exchange.shows(result)),
        };
        if let Some(due_ms) = due_ms {
            self.wait(id, due_ms);
        }
        Some(!is_hidden)
    }

    fn wait(&mut self, id: HttpId, due_ms: u64) {
        if let Some(exchange) = self.exchange_mut(id) {
            exchange.due_ms = Some(due_ms);
            self.due.insert((due_ms, id));
        }
    }

    /// Plugins of which something else is shown now: why a request of theirs is not sent, or that all are.
    pub fn changed_denials(&mut self) -> Vec<(Arc<str>, Option<Arc<str>>)> {
        let changed = self.denials.changed().into_iter();
        let mut message =
            |id| self.exchange_mut(id)?.reply.as_ref()?.1.result.as_ref().err().map(|it| it.message.clone());
        changed.map(|(plugin, first)| (plugin, first.and_then(&mut message))).collect()
    }

    /// Sends again what was not granted to a plugin: perhaps it is now.
    pub fn retry_denied(&mut self, plugin: &str, now_ms: u64) {
        for id in self.denials.of(plugin) {
            let Some(exchange) = self.exchange_mut(id) else { continue };
            if let Some(due_ms) = exchange.due_ms.take() {
                self.due.remove(&(due_ms, id));
                self.wait(id, now_ms);
            }
        }
    }

    /// Parks what waited for a former request.
    fn release(&mut self, of: &Of) {
        if self.is_held_back(of) {
            return;
        }
        if let Some(held) = self.held.remove(of) {
            self.parked.entry(share(&of.0)).or_default().extend(held);
        }
    }

    /// Keeps a reply in place of the last one.
    fn store(&mut self, id: HttpId, plugin: &Arc<str>, reply: Reply) {
        self.last_reply += 1;
        let number = self.last_reply;
        let Some(exchange) = self.exchange_mut(id) else { return };
        let (before, after) = (exchange.reply_bytes(), reply.bytes());
        exchange.reply = Some((number, Arc::new(reply)));
        self.kept.subtract(&share_name(plugin), before);
        self.kept.add(&share(plugin), after);
    }

    /// A request that is not sent again needs its identity alone.
    fn drop_body(&mut self, id: HttpId, plugin: &Arc<str>) {
        let Some(exchange) = self.exchange_mut(id).filter(|exchange| exchange.is_over()) else { return };
        let before = exchange.request.bytes();
        exchange.request = Arc::new(exchange.request.without_body());
        let after = exchange.request.bytes();
        self.kept.subtract(&share_name(plugin), before - after);
    }

    fn exchange_mut(&mut self, id: HttpId) -> Option<&mut Exchange> {
        let key = self.keys.get(&id).filter(|key| !self.gone.contains(&key.controller))?;
        self.of_key.get_mut(key)?.iter_mut().find(|exchange| exchange.id == id)
    }

    /// Bytes of all requests and replies.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        self.kept.total()
    }
}
