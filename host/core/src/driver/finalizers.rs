//! Objects that are being deleted and wait for their plugin: what is told of it, and what becomes of them when the plugin
//! finalizes no more. That a finalizer is put on and taken off in its turn is `carry_out.rs`' business.

use std::sync::Arc;

use super::keys::{Ending, Run, Stage};
use super::plugins::Active;
use super::report::plugin_object_of;
use super::{Driver, ReadFor};
use crate::backoff::{Patience, delay_ms};
use crate::dependencies::Dependency;
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::finalizer;
use crate::kube_event::EventRecord;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::plan::Prepared;
use crate::selector::Selector;
use crate::workqueue::{Key, Lane};
use crate::write::WriteError;

/// Objects that are named one by one when their plugin goes; the command that releases them lists all.
const MAX_NAMED: usize = 10;

/// When it is asked anew what has become of an object, should no answer have come; later and later when it cannot be read.
const LOOK_AGAIN_MS: u64 = 1_000;

impl Driver {
    /// Whether the view shows all that may have been written for an object that is to go. A write that nobody has heard of may
    /// have landed unseen by a watch that lags, so what it was about is read live, once it cannot land any more.
    pub(super) fn is_sure(&mut self, key: &Key, prepared: &Prepared, effects: &mut Vec<Effect>) -> bool {
        let Some(controller) = self.controllers.get(&key.controller) else { return false };
        let Some(state) = self.keys.get_mut(key) else { return false };
        if std::mem::take(&mut state.has_inherited) {
            // The other host's writes were about what this one's guest would write, or has looked at.
            let read =
                state.last.iter().flat_map(|last| last.reads.iter()).filter_map(|(dependency, _)| match dependency {
                    Dependency::Get(target) => Some(target.clone()),
                    _ => None,
                });
            state.unsure.extend(read.chain(prepared.actions.iter().map(|action| action.target.clone())));
        }
        let unsure: Vec<ObjectRef> = state.unsure.iter().cloned().collect();
        for target in &unsure {
            if controller.access.readable.contains(&target.kind) {
                continue;
            }
            // What has no view is said once more.
            state.unsure.remove(target);
            state.applied.remove(target);
            state.sent.retain(|(of, _), _| of != target);
        }
        for target in state.unsure.clone() {
            self.read_live(key, target, ReadFor::Landed, effects);
        }
        unsure.is_empty()
    }

    /// When the key of an object that stays looks again.
    pub(super) fn looks_again_ms(&self, key: &Key) -> u64 {
        let unread = self.keys.get(key).map_or(0, |state| state.unread);
        delay_ms(unread, &key.name.to_string(), Patience::Denied).max(LOOK_AGAIN_MS)
    }

    /// An object that an unheard-of write may have changed: the key goes on when the view shows it as it is.
    pub(super) fn on_landed_read(
        &mut self,
        key: &Key,
        target: &ObjectRef,
        asked_ms: u64,
        result: &Result<Option<Arc<Object>>, WriteError>,
        effects: &mut Vec<Effect>,
    ) {
        let snapshot = self.store.snapshot();
        let Some(state) = self.keys.get_mut(key).filter(|state| state.unsure.contains(target)) else { return };
        match result {
            // A write may have landed behind what was read. It is asked again when the key comes back.
            Ok(_) if asked_ms < state.may_land_until_ms => {}
            Ok(live) => {
                state.unsure.remove(target);
                state.unread = 0;
                let seen = |object: &Arc<Object>, version| Expectation {
                    target: target.clone(),
                    uid: Arc::clone(&object.uid),
                    version,
                };
                let shown = match live {
                    Some(live) => Some(seen(live, Some(live.resource_version))),
                    None => snapshot.get(&target.kind, &target.name).map(|gone| seen(gone, None)),
                };
                state.expectations.extend(shown.filter(|write| !write.is_met_by(&snapshot)));
                self.wake(key, Lane::Retry, effects);
            }
            Err(error) => {
                state.unread = state.unread.saturating_add(1);
                if state.unread == 1
                    && let Some(primary) = self.primary_of(key)
                {
                    let note = format!("it stays until {target} can be read: {}", error.message);
                    self.tell(key, &primary, true, "Finalizing", &note, effects);
                }
            }
        }
    }

    /// Tells once that an object waits for its plugin.
    pub(super) fn tell_of_finalizing(&mut self, key: &Key, primary: &Arc<Object>, effects: &mut Vec<Effect>) {
        let Some(state) = self.keys.get_mut(key).filter(|_| primary.deleting) else { return };
        if std::mem::replace(&mut state.told_finalizing, true) {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let note = format!("it goes when its plugin has cleaned up and {} is taken off", controller.finalizer);
        self.tell(key, primary, false, "Finalizing", &note, effects);
    }

    /// A version of the plugin that finalizes no more holds up no deletion: what an earlier one has put on is taken off.
    pub(super) fn release_finalizer(&mut self, key: &Key, primary: &Object, effects: &mut Vec<Effect>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let stage = finalizer::remove(primary, &controller.finalizer).map(Stage::of_one);
        self.begin_run(key, Run::new(stage, Ending::new(ReconcileResult::Success, None), true), effects);
    }

    /// L3: objects that a plugin which goes leaves with its finalizer cannot be deleted any more, and only a person knows
    /// whether it comes back.
    pub(super) fn tell_of_finalizers(&mut self, name: &Arc<str>, active: Option<&Active>, effects: &mut Vec<Effect>) {
        let controllers = active.into_iter().flat_map(|active| &active.manifest.controllers);
        let snapshot = self.store.snapshot();
        let (finalizer, all) = (finalizer::name(name), Selector::default());
        let mut held: Vec<ObjectRef> = Vec::new();
        for kind in controllers.filter(|controller| controller.finalize).map(|controller| &controller.primary) {
            let objects = snapshot.list(kind, None, &all).filter(|object| finalizer::is_on(object, &finalizer));
            held.extend(objects.map(|object| object.reference()));
        }
        if held.is_empty() {
            return;
        }
        let count = held.len();
        let mut objects: Vec<String> = held.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        if count > MAX_NAMED {
            objects.push(format!("{} more", count - MAX_NAMED));
        }
        let message = format!(
            "{count} objects keep the finalizer {finalizer} and cannot be deleted until the plugin is back or they are \
             released with: mortise finalizers release {name}\n{}",
            objects.join(", ")
        );
        let target = plugin_object_of(name);
        if let Some(about) = snapshot.get(&target.kind, &target.name).cloned() {
            let record = EventRecord { warning: true, reason: "FinalizersLeft".to_owned(), note: message.clone() };
            self.send_event(None, &about, record, effects);
        }
        effects.push(Effect::Observe(Observation::FinalizersLeft { plugin: Arc::clone(name), message }));
    }
}
