//! The informers of dynamic kinds, which the keys of serving plugins name. An informer starts when the first key of a
//! plugin names its kind, and stops a while after none does. A kind that is denied or not served blocks the keys that
//! name it, not their plugin (R5). A plugin whose keys name other kinds all the time waits, so that the host does not list
//! without end.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Lifecycle;
use super::timers::Timer;
use crate::dynamic_kind::{KindState, MAX_DYNAMIC_KINDS};
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::object::Kind;
use crate::rights::Readable;
use crate::scope::Scope;
use crate::token_bucket::TokenBucket;
use crate::watch::WatchError;
use crate::write::WriteErrorClass;

/// How long an informer stays when no key names its kind, so that an object that is replaced, or a kind that is named
/// now and then, does not list the kind anew each time.
const LINGER_MS: u64 = 60_000;

/// Kinds that a plugin's keys may come to name in a minute: twice those that it may have, so that all of its objects may
/// change within one. Each may be a list of all objects of a kind, and of one that lingers a call.
const NAMED_PER_MINUTE: u32 = 32;

/// A dynamic kind of one plugin.
#[derive(Debug, Default)]
pub(super) struct DynamicKind {
    /// The state that the Reconciler was sent last.
    sent: Option<KindState>,
    /// Since when no key names it.
    released_ms: Option<u64>,
}

/// The kinds that the keys of a plugin have come to name.
#[derive(Debug, Default)]
pub(super) struct NamedKinds {
    bucket: Option<TokenBucket>,
    /// It has named too many, so none begins before.
    from_ms: u64,
    /// Those that wait for that, in order; no more than keys may name.
    waiting: VecDeque<Kind>,
}

impl NamedKinds {
    /// The next one that may begin now.
    fn next(&mut self, now_ms: u64) -> Option<Kind> {
        if self.from_ms > now_ms {
            return None;
        }
        let next = self.waiting.pop_front()?;
        let bucket = self.bucket.get_or_insert_with(|| TokenBucket::full(now_ms, NAMED_PER_MINUTE));
        self.from_ms = now_ms + bucket.spend(now_ms, NAMED_PER_MINUTE).unwrap_or_default();
        Some(next)
    }
}

impl Lifecycle {
    pub(super) fn on_kind_named(&mut self, name: &Arc<str>, kind: Kind, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.named_kinds.waiting.push_back(kind.clone());
        self.begin_named_kinds(name, cx);
        if self.plugins.get(name).is_some_and(|plugin| plugin.named_kinds.waiting.contains(&kind)) {
            let message =
                format!("plugin {name} comes to name more than {NAMED_PER_MINUTE} kinds a minute, so they wait");
            let state = KindState::Failing(message);
            cx.notify_reconciler(ToReconciler::SetKind { plugin: Arc::clone(name), kind, state });
        }
    }

    pub(super) fn begin_named_kinds(&mut self, name: &Arc<str>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let now_ms = cx.now.mono_ms;
        while let Some(kind) = plugin.named_kinds.next(now_ms) {
            plugin.dynamic_kinds.insert(kind, DynamicKind::default());
        }
        while plugin.dynamic_kinds.len() > MAX_DYNAMIC_KINDS {
            // Those that are named are within the bound, so one is released.
            let released = plugin.dynamic_kinds.iter().filter_map(|(kind, each)| Some((each.released_ms?, kind)));
            let Some(oldest) = released.min().map(|(_, kind)| kind.clone()) else { break };
            plugin.dynamic_kinds.remove(&oldest);
        }
        if !plugin.named_kinds.waiting.is_empty() {
            let wait_ms = plugin.named_kinds.from_ms - now_ms;
            self.arm(wait_ms, Timer::DynamicKinds(Arc::clone(name)), cx);
        }
        self.mark_dirty(name);
    }

    pub(super) fn on_kind_released(&mut self, name: &Arc<str>, kind: &Kind, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.named_kinds.waiting.retain(|waiting| waiting != kind);
        if let Some(released) = plugin.dynamic_kinds.get_mut(kind) {
            released.released_ms.get_or_insert(cx.now.mono_ms);
            self.arm(LINGER_MS, Timer::DynamicKinds(Arc::clone(name)), cx);
        }
    }

    pub(super) fn drop_released_kinds(&mut self, name: &Arc<str>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let now_ms = cx.now.mono_ms;
        let due_ms = |kind: &DynamicKind| kind.released_ms.map(|released_ms| released_ms + LINGER_MS);
        plugin.dynamic_kinds.retain(|_, kind| due_ms(kind).is_none_or(|due_ms| due_ms > now_ms));
        if let Some(next_ms) = plugin.dynamic_kinds.values().filter_map(due_ms).min() {
            self.arm(next_ms - now_ms, Timer::DynamicKinds(Arc::clone(name)), cx);
        }
        self.mark_dirty(name);
    }

    /// Sends the Reconciler the states that have changed.
    pub(super) fn sync_dynamic_kinds(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let named = plugin.dynamic_kinds.iter().filter(|(_, kind)| kind.released_ms.is_none());
        let states = named.map(|(kind, known)| (kind.clone(), known.sent.clone(), self.kind_state(name, kind, cx)));
        let changed: Vec<_> = states.filter(|(_, sent, state)| sent.as_ref() != Some(state)).collect();
        for (kind, _, state) in changed {
            if let Some(known) = self.plugins.get_mut(name).and_then(|plugin| plugin.dynamic_kinds.get_mut(&kind)) {
                known.sent = Some(state.clone());
            }
            cx.notify_reconciler(ToReconciler::SetKind { plugin: Arc::clone(name), kind, state });
        }
    }

    fn kind_state(&self, name: &Arc<str>, kind: &Kind, cx: &Context<'_>) -> KindState {
        let everything = Scope::default();
        match self.watch_error(kind, &everything).map(|(_, error)| error) {
            Some(WatchError::Denied(message)) => KindState::Denied(message.clone()),
            Some(WatchError::NotServed(message)) => KindState::NotServed(message.clone()),
            error => match self.unreadable_state(name, kind) {
                Some(state) => state,
                None if cx.store.has_listed(&kind.into(), None) => KindState::Current,
                None => error.map_or(KindState::Unlisted, |error| KindState::Failing(error.to_string())),
            },
        }
    }

    /// The state of a kind that the plugin's ServiceAccount may not read, or of which that is not known.
    fn unreadable_state(&self, name: &Arc<str>, kind: &Kind) -> Option<KindState> {
        let plugin = self.plugins.get(name)?;
        let account = plugin.active.as_ref()?.version.service_account.as_ref()?;
        let Some(reviewed) = plugin.reviews.get(&(Arc::clone(account), kind.clone())) else {
            return Some(KindState::Unlisted);
        };
        match (&reviewed.readable, &reviewed.asking.failed) {
            (Some(Readable::Everywhere), _) => None,
            (Some(Readable::In(_)), _) => Some(KindState::Denied(format!(
                "the ServiceAccount {account} may not list and watch it in all namespaces, as a kind that objects name has to be"
            ))),
            (None, Some(error)) if error.class == WriteErrorClass::NotFound => {
                Some(KindState::NotServed(error.message.clone()))
            }
            (None, Some(error)) => Some(KindState::Failing(error.message.clone())),
            (None, None) => Some(KindState::Unlisted),
        }
    }
}
