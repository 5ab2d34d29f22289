//! Dynamic kinds: which keys name which, within the bound of each plugin, and their states, which the Lifecycle sends. A
//! call that names a kind without a view of it ended there, and its key waits: a new state wakes it.
//!
//! A key names what its last call read, so a kind that no key names any more is released.

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
use crate::permission::{Permission, missing_text};
use crate::workqueue::{Key, Lane};

/// The reason for a kind beyond the bound.
const TOO_MANY_KINDS: &str = "TooManyKinds";
/// The reason for a kind that the API server does not list for now.
const UNAVAILABLE: &str = "KindUnavailable";

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
    /// Keys that name a kind beyond the bound. They wake when another is released.
    over: BTreeSet<Key>,
}

impl OfPlugin {
    /// Whether there is room for the kind, and whether it is new.
    fn add(&mut self, kind: &Kind, key: &Key) -> (bool, bool) {
        let is_new = !self.named.contains_key(kind);
        let has_room = !is_new || self.named.len() < MAX_DYNAMIC_KINDS;
        if has_room {
            self.named.entry(kind.clone()).or_default().insert(key.clone());
        } else {
            self.over.insert(key.clone());
        }
        (has_room, is_new)
    }

    /// Whether it was the last key.
    fn remove(&mut self, kind: &Kind, key: &Key) -> bool {
        let is_last = remove_member(&mut self.named, kind, key);
        if is_last {
            Arc::make_mut(&mut self.states).remove(kind);
        }
        is_last
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
    /// A key's last call is replaced by another, or dropped.
    pub(super) fn name_kinds(&mut self, key: &Key, plugin: &Arc<str>, named: Named, cx: &mut Context<'_>) {
        let Named { before, after } = named;
        if before.is_empty() && after.is_empty() {
            return;
        }
        let of_plugin = self.dynamic_kinds.plugins.entry(Arc::clone(plugin)).or_default();
        of_plugin.over.remove(key);
        let mut woken = BTreeSet::new();
        for kind in before.difference(&after) {
            if of_plugin.remove(kind, key) {
                woken.append(&mut of_plugin.over);
                cx.notify_lifecycle(ToLifecycle::Released { plugin: Arc::clone(plugin), kind: kind.clone() });
            }
        }
        for kind in &after {
            self.name_kind(key, plugin, kind, cx);
        }
        if self.dynamic_kinds.plugins.get(plugin).is_some_and(|it| it.named.is_empty() && it.over.is_empty()) {
            self.dynamic_kinds.plugins.remove(plugin);
        }
        for key in woken {
            self.wake(&key, Lane::Live, cx);
        }
    }

    /// Whether the plugin has room for a kind that the key names.
    fn name_kind(&mut self, key: &Key, plugin: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) -> bool {
        let of_plugin = self.dynamic_kinds.plugins.entry(Arc::clone(plugin)).or_default();
        let (has_room, is_new) = of_plugin.add(kind, key);
        if has_room && is_new {
            cx.notify_lifecycle(ToLifecycle::Named { plugin: Arc::clone(plugin), kind: kind.clone() });
        }
        has_room
    }

    /// A new state wakes the keys that name the kind (W1).
    pub(super) fn set_kind_state(&mut self, plugin: &Arc<str>, kind: Kind, state: KindState, cx: &mut Context<'_>) {
        let Some(of_plugin) = self.dynamic_kinds.plugins.get_mut(plugin) else { return };
        let Some(keys) = of_plugin.named.get(&kind).cloned() else { return };
        Arc::make_mut(&mut of_plugin.states).insert(kind, state);
        for key in keys {
            self.wake(&key, Lane::Live, cx);
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
            stall_of(kind, self.dynamic_kinds.states(&plugin).get(kind))
        } else {
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

fn stall_of(kind: &Kind, state: Option<&KindState>) -> Option<StalledReason> {
    match state? {
        KindState::Denied(message) => {
            let permission = Permission { kind: kind.clone(), verb: "list", subresource: None, namespace: None };
            let rule = missing_text(message, &permission);
            Some(StalledReason::new(FORBIDDEN, format!("the host may not read {kind}: {message}\n{rule}")))
        }
        KindState::Failing(message) => {
            Some(StalledReason::new(UNAVAILABLE, format!("{kind} cannot be listed: {message}; the host tries again")))
        }
        KindState::Unlisted | KindState::Current | KindState::NotServed(_) => None,
    }
}
