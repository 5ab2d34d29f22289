//! What is said about an object: its status, its Stalled condition and Events, and when each is worth a write. What the
//! object wants to be is decided elsewhere.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::Reconciler;
use super::key::{Ending, Run, Stage, StalledReason};
use crate::engine::context::Context;
use crate::kube_event::EventRecord;
use crate::limits::STATUS_DEFER_MS;
use crate::object::{Object, ResourceVersion};
use crate::plan::Prepared;
use crate::status::{self, Wanted};
use crate::workqueue::{Key, Lane};
use crate::write::{WriteError, WriteErrorClass, WriteOp};

impl Reconciler {
    /// X11: a status that was computed from a view which the writes of its own plan outdate waits for them, but not for ever.
    pub(super) fn defers_status(&mut self, key: &Key, is_outdated: bool, cx: &Context<'_>) -> bool {
        let now_ms = cx.now.mono_ms;
        let controller = &self.controllers[&key.controller];
        if controller.spec.builtin {
            // Nothing is written that could be outdated.
            return false;
        }
        let plugin = Arc::clone(&controller.plugin);
        let Some(state) = self.keys.get_mut(key) else { return false };
        if !is_outdated {
            state.status.deferred_since_ms = None;
            return false;
        }
        let since_ms = *state.status.deferred_since_ms.get_or_insert(now_ms);
        let due_ms = since_ms + STATUS_DEFER_MS;
        if due_ms <= now_ms {
            return false;
        }
        self.queue.add_at(due_ms, &plugin, key.clone(), Lane::Retry);
        true
    }

    /// [`Self::status_patch`], without looking again at a status that was found as wanted: neither the object nor what is
    /// wanted of it has changed since.
    pub(super) fn settled_status_patch(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: Option<&Arc<Prepared>>,
        generation: i64,
        cx: &Context<'_>,
    ) -> Option<WriteOp> {
        let (Some(state), Some(wanted)) = (self.keys.get(key), prepared) else {
            return self.status_patch(key, primary, None, generation, cx);
        };
        let version = primary.resource_version;
        let is_settled = |(at, settled): &(ResourceVersion, Arc<Prepared>)| {
            *at == version && Arc::ptr_eq(settled, wanted) && state.stalled.is_none()
        };
        if state.status.settled.as_ref().is_some_and(is_settled) {
            return None;
        }
        let patch = self.status_patch(key, primary, Some(wanted), generation, cx);
        if let Some(state) = self.keys.get_mut(key) {
            let is_settled = patch.is_none() && state.stalled.is_none();
            state.status.settled = is_settled.then(|| (version, Arc::clone(wanted)));
        }
        patch
    }

    fn status_patch(
        &self,
        key: &Key,
        primary: &Object,
        prepared: Option<&Prepared>,
        generation: i64,
        cx: &Context<'_>,
    ) -> Option<WriteOp> {
        let controller = self.controllers.get(&key.controller)?;
        let stalled = self.keys.get(key).and_then(|state| state.stalled.as_ref());
        let waits = self.keys.get(key).and_then(|state| state.memory.blocked.message());
        let wanted = Wanted {
            fields: prepared.and_then(|prepared| prepared.status.as_ref()),
            conditions: prepared.map(|prepared| prepared.conditions.as_slice()),
            stalled: stalled.map(|stall| (stall.reason.as_str(), stall.message.as_str())),
            // One that could not be told from others' would stay for ever.
            tells_progress: controller.shape.conditions_by_type,
            evicting: waits.as_deref(),
            generation,
        };
        let body = status::patch(primary, &controller.field_manager, controller.shape, &wanted, cx.now)?;
        Some(WriteOp::PatchStatus { target: primary.reference(), body })
    }

    /// Says on the object why it gets no further, and tells it once: not when the object says so already, which it does
    /// after a restart too.
    pub(super) fn stall(&mut self, key: &Key, primary: &Arc<Object>, stall: StalledReason, cx: &mut Context<'_>) {
        let can_say = self.controllers.get(&key.controller).is_some_and(|controller| controller.shape.conditions);
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.stalled.replace(stall.clone());
        let says = can_say && status::says_stalled(primary, &stall.reason, &stall.message);
        if before.as_ref() != Some(&stall) && !says {
            self.record(key, primary, true, &stall.reason, &stall.message, cx);
        }
    }

    pub(super) fn clear_stall(&mut self, key: &Key) {
        if let Some(state) = self.keys.get_mut(key) {
            state.stalled = None;
        }
    }

    /// Writes the Stalled condition where it does not stand yet, and nothing else.
    pub(super) fn write_stall_only(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        ending: Ending,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        let patch = self.status_patch(key, primary, None, primary.generation, cx);
        let stage = patch.map(Stage::of_one);
        self.begin_run(key, Run::new(stage, ending, skipped), cx);
    }

    /// Records an Event about an object.
    pub(super) fn record(
        &self,
        key: &Key,
        about: &Arc<Object>,
        warning: bool,
        reason: &str,
        note: &str,
        cx: &mut Context<'_>,
    ) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let record = EventRecord { warning, reason: reason.to_owned(), note: note.to_owned() };
        cx.record(Some(Arc::clone(&controller.plugin)), about, record);
    }

    /// The guest's events are told when they differ from the last ones. The first call after a start tells them only
    /// beside writes: a restart is no news.
    pub(super) fn record_guest_events(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        prepared: &Prepared,
        writes: bool,
        cx: &mut Context<'_>,
    ) {
        let mut hasher = DefaultHasher::new();
        for event in &prepared.events {
            (event.warning, &event.reason, &event.message).hash(&mut hasher);
        }
        let hash = hasher.finish();
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.recorded.guest_events.replace(hash);
        if before == Some(hash) || (before.is_none() && !writes) {
            return;
        }
        let snapshot = cx.store.snapshot();
        for event in &prepared.events {
            let regarding = event.regarding.as_ref().and_then(|target| snapshot.get(&target.kind, &target.name));
            let about = regarding.unwrap_or(primary).clone();
            self.record(key, &about, event.warning, &event.reason, &event.message, cx);
        }
    }

    /// How a write error reads on the object, or None when it is nothing that a person has to mend.
    pub(super) fn stall_of(op: &WriteOp, error: &WriteError) -> Option<StalledReason> {
        let what = format!("{} of {} was refused: {}", op.verb(), op.target(), error.message);
        match error.class {
            // Nobody waits for an object that is to be patched but the object that wants it patched.
            WriteErrorClass::NotFound if matches!(op, WriteOp::Patch { .. }) => {
                Some(StalledReason::new("NotFound", what))
            }
            WriteErrorClass::Invalid => Some(StalledReason::new("Invalid", what)),
            WriteErrorClass::Denied => Some(StalledReason::new("Forbidden", what)),
            WriteErrorClass::FieldConflict => Some(StalledReason::new("FieldConflict", what)),
            _ => None,
        }
    }
}
