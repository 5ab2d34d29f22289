//! Dynamic kinds: which keys name which, within the bound of each plugin, and their states, which the Lifecycle sends. A
//! call that names a kind without a view of it ended there, and its key waits: a new state wakes it.
//!
//! A key names what its last call read, so a kind that no key names any more is released. One that finds no room releases
//! what only it names, and waits until all that it is known to need has room, so that no two keys wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use super::key::{Ending, FORBIDDEN, Run, StalledReason};
use crate::dependencies::Dependencies;
use crate::dynamic_kind::{KindState, KindStates, MAX_DYNAMIC_KINDS};
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToLifecycle;
use crate::object::{Kind, Object};
use crate::observation::ReconcileResult;
use crate::permission::{Denial, Permission, missing_text, printed_by};
use crate::workqueue::{ControllerId, Key, Lane};

/// The reason for a kind beyond the bound.
const TOO_MANY_KINDS: &str = "TooManyKinds";
/// The reason for a kind that the API server does not list for now.
const UNAVAILABLE: &str = "KindUnavailable";

/// Keys that one step looks at or wakes, some hundred microseconds.
const MAX_AT_ONCE: usize = 256;

/// The dynamic kinds of each plugin.
#[derive(Debug, Default)]
pub(super) struct DynamicKinds {
    plugins: BTreeMap<Arc<str>, OfPlugin>,
}

#[derive(Debug, Default)]
struct OfPlugin {
    /// The keys whose last calls name a kind.
    named: BTreeMap<Kind, BTreeSet<Key>>,
    states: KindStates,
    /// Keys that wait for room, and the kinds that they are known to need.
    over: BTreeMap<Key, BTreeSet<Kind>>,
}

impl OfPlugin {
    fn has_room(&self) -> bool {
        self.named.len() < MAX_DYNAMIC_KINDS
    }

    /// Whether it was the last key.
    fn remove(&mut self, kind: &Kind, key: &Key) -> bool {
        let is_last = remove_member(&mut self.named, kind, key);
        if is_last {
            Arc::make_mut(&mut self.states).remove(kind);
        }
        is_last
    }

    /// Makes room for a key: of the kinds that others name and nobody reads, one is released, first one that is not
    /// served. Those who name it wait for room; what they know of it does not change before.
    fn make_room(&mut self, key: &Key) -> Option<Kind> {
        let rank = |state: &KindState| match state {
            KindState::NotServed(_) => Some(0),
            KindState::Denied(_) => Some(1),
            KindState::Unlisted | KindState::Current | KindState::Failing(_) => None,
        };
        let is_others = |kind: &Kind| self.named.get(kind).is_some_and(|keys| !keys.contains(key));
        let of_others = self.states.iter().filter(|(kind, _)| is_others(kind));
        let (_, kind) = of_others.filter_map(|(kind, state)| Some((rank(state)?, kind.clone()))).min()?;
        Arc::make_mut(&mut self.states).remove(&kind);
        for key in self.named.remove(&kind).into_iter().flatten() {
            self.over.entry(key).or_default().insert(kind.clone());
        }
        Some(kind)
    }

    /// A key finds no room for a kind. Returns what only it has named, which is released.
    fn give_up(&mut self, key: &Key, kind: &Kind) -> Vec<Kind> {
        let named = self.named.iter().filter(|(_, keys)| keys.contains(key)).map(|(kind, _)| kind.clone());
        let needed: BTreeSet<Kind> = named.chain([kind.clone()]).collect();
        let alone = needed.iter().filter(|kind| self.named.get(kind).is_some_and(|keys| keys.len() == 1));
        let released: Vec<Kind> = alone.cloned().collect();
        released.iter().for_each(|kind| _ = self.remove(kind, key));
        self.over.insert(key.clone(), needed);
        released
    }

    /// The keys for which there is room now. Each of several may be the one that gets it. None: too many wait to be looked at
    /// in one step.
    fn fitting(&self) -> Option<Vec<Key>> {
        if self.over.len() > MAX_AT_ONCE {
            return None;
        }
        let room = MAX_DYNAMIC_KINDS - self.named.len();
        let missing = |needed: &BTreeSet<Kind>| needed.iter().filter(|kind| !self.named.contains_key(kind)).count();
        Some(self.over.iter().filter(|(_, needed)| missing(needed) <= room).map(|(key, _)| key.clone()).collect())
    }
}

/// The kinds that a key's last call and the one before named.
pub(super) struct Named {
    before: BTreeSet<Kind>,
    after: BTreeSet<Kind>,
}

impl Named {
    pub(super) fn of(before: Option<&Dependencies>, after: Option<&Dependencies>) -> Self {
        let kinds =
            |reads: Option<&Dependencies>| reads.into_iter().flat_map(Dependencies::dynamic_kinds).cloned().collect();
        Self { before: kinds(before), after: kinds(after) }
    }
}

impl DynamicKinds {
    pub(super) fn states(&self, plugin: &str) -> KindStates {
        self.plugins.get(plugin).map(|of_plugin| Arc::clone(&of_plugin.states)).unwrap_or_default()
    }
}

impl Reconciler {
    /// The plugin is gone.
    pub(super) fn forget_kinds(&mut self, plugin: &str, cx: &mut Context<'_>) {
        if let Some(of_plugin) = self.dynamic_kinds.plugins.remove(plugin) {
            cx.discard(of_plugin);
        }
    }

    /// A key's last call is replaced by another, or dropped.
    pub(super) fn name_kinds(&mut self, key: &Key, plugin: &Arc<str>, named: Named, cx: &mut Context<'_>) {
        let Named { before, after } = named;
        if before.is_empty() && after.is_empty() {
            return;
        }
        let of_plugin = self.dynamic_kinds.plugins.entry(Arc::clone(plugin)).or_default();
        of_plugin.over.remove(key);
        let released: Vec<Kind> =
            before.difference(&after).filter(|kind| of_plugin.remove(kind, key)).cloned().collect();
        let has_released = !released.is_empty();
        for kind in released {
            cx.notify_lifecycle(ToLifecycle::Released { plugin: Arc::clone(plugin), kind });
        }
        for kind in &after {
            self.name_kind(key, plugin, kind, cx);
        }
        let Some(of_plugin) = self.dynamic_kinds.plugins.get(plugin) else { return };
        if of_plugin.named.is_empty() && of_plugin.over.is_empty() {
            self.dynamic_kinds.plugins.remove(plugin);
        } else if has_released {
            let fitting = of_plugin.fitting();
            self.wake_or_walk(plugin, fitting, cx);
        }
    }

    /// Whether the plugin has room for a kind that the key names.
    fn name_kind(&mut self, key: &Key, plugin: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) -> bool {
        let of_plugin = self.dynamic_kinds.plugins.entry(Arc::clone(plugin)).or_default();
        let is_new = !of_plugin.named.contains_key(kind);
        if is_new && !of_plugin.has_room() {
            let Some(kind) = of_plugin.make_room(key) else { return false };
            cx.notify_lifecycle(ToLifecycle::Released { plugin: Arc::clone(plugin), kind });
        }
        of_plugin.over.remove(key);
        of_plugin.named.entry(kind.clone()).or_default().insert(key.clone());
        if is_new {
            cx.notify_lifecycle(ToLifecycle::Named { plugin: Arc::clone(plugin), kind: kind.clone() });
        }
        true
    }

    /// The plugin has no room for a kind that a key names.
    fn give_up_kinds(&mut self, key: &Key, plugin: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let Some(of_plugin) = self.dynamic_kinds.plugins.get_mut(plugin) else { return };
        let released = of_plugin.give_up(key, kind);
        if released.is_empty() {
            return;
        }
        let fitting = of_plugin.fitting();
        for kind in released {
            cx.notify_lifecycle(ToLifecycle::Released { plugin: Arc::clone(plugin), kind });
        }
        self.wake_or_walk(plugin, fitting, cx);
    }

    /// A new state wakes the keys that name the kind (W1).
    pub(super) fn set_kind_state(&mut self, plugin: &Arc<str>, kind: Kind, state: KindState, cx: &mut Context<'_>) {
        let Some(of_plugin) = self.dynamic_kinds.plugins.get_mut(plugin) else { return };
        let Some(keys) = of_plugin.named.get(&kind) else { return };
        let keys: Option<Vec<Key>> = (keys.len() <= MAX_AT_ONCE).then(|| keys.iter().cloned().collect());
        Arc::make_mut(&mut of_plugin.states).insert(kind, state);
        self.wake_or_walk(plugin, keys, cx);
    }

    /// Wakes keys of a plugin; where they are too many for one step, all that it has, in pieces.
    fn wake_or_walk(&mut self, plugin: &str, keys: Option<Vec<Key>>, cx: &mut Context<'_>) {
        match keys {
            Some(keys) => keys.iter().for_each(|key| self.wake(key, Lane::Live, cx)),
            None => {
                let ids: Vec<ControllerId> = self.controllers_of(plugin).map(|(id, _)| id).collect();
                ids.into_iter().for_each(|id| self.enqueuing.add(id, Lane::Live, cx.now.mono_ms));
            }
        }
    }

    /// The call of a key ended at a kind. It waits without backoff; what only a person can change is a condition.
    pub(super) fn wait_for_kind(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        kind: &Kind,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        let Some(plugin) = self.plugin_of(key) else { return };
        let stall = if self.name_kind(key, &plugin, kind, cx) {
            let printed_by = printed_by(&plugin, self.sender(key).service_account.as_deref(), &self.reserved.namespace);
            stall_of(kind, self.dynamic_kinds.states(&plugin).get(kind), &printed_by)
        } else {
            self.give_up_kinds(key, &plugin, kind, cx);
            let message = format!(
                "it names {kind}, and the objects of plugin {plugin} name {MAX_DYNAMIC_KINDS} other kinds already, which is \
                 the most that a plugin may read beside those that its manifest names; it continues when one of them is \
                 named no more"
            );
            Some(StalledReason::new(TOO_MANY_KINDS, message))
        };
        match stall {
            Some(stall) => {
                self.stall(key, primary, stall, cx);
                let ending = Ending::new(ReconcileResult::Terminal, None);
                self.write_stall_only(key, primary, ending, skipped, cx);
            }
            None => {
                let ending = Ending::new(ReconcileResult::Success, None);
                self.begin_run(key, Run::new(None, ending, skipped), cx);
            }
        }
    }
}

fn stall_of(kind: &Kind, state: Option<&KindState>, printed_by: &str) -> Option<StalledReason> {
    match state? {
        KindState::Denied(message) if Denial::read(message).is_none() => {
            Some(StalledReason::new(FORBIDDEN, format!("{kind} may not be read: {message}")))
        }
        KindState::Denied(message) => {
            let permission = Permission { kind: kind.clone(), verb: "list", subresource: None, namespace: None };
            let rule = missing_text(message, &permission, None, printed_by);
            Some(StalledReason::new(FORBIDDEN, format!("the host may not read {kind}: {message}\n{rule}")))
        }
        KindState::Failing(message) => {
            Some(StalledReason::new(UNAVAILABLE, format!("{kind} cannot be listed: {message}; the host tries again")))
        }
        KindState::Unlisted | KindState::Current | KindState::NotServed(_) => None,
    }
}
