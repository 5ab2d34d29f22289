//! The status of an object, its Stalled condition and its Events, and when each is written.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use super::key::{Ending, FORBIDDEN, NOT_FOUND, Run, Stage, StalledReason};
use super::{Reconciler, cost};
use crate::engine::context::Context;
use crate::kube_event::{EventRecord, Words};
use crate::limits::STATUS_DEFER_MS;
use crate::object::{Object, ResourceVersion};
use crate::observation::Observation;
use crate::plan::Prepared;
use crate::status::{self, Wanted};
use crate::workqueue::{Key, Lane};
use crate::write::{WriteError, WriteErrorClass, WriteOp};

impl Reconciler {
    /// X11: a status whose plan also changes what it was computed from waits for the next call, at most
    /// [`STATUS_DEFER_MS`].
    pub(super) fn defers_status(&mut self, key: &Key, is_outdated: bool, cx: &Context<'_>) -> bool {
        let now_ms = cx.now.mono_ms;
        let controller = &self.controllers[&key.controller];
        if controller.spec.builtin {
            return false; // It has no status write.
        }
        let share = Arc::clone(&controller.share);
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
        self.queue.add_at(due_ms, &share, key.clone(), Lane::Retry);
        true
    }

    /// Whether the status of a key shows what only creates have changed, as when it replaces what others delete.
    pub(super) fn follows_creates(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| state.status.follows_creates)
    }

    pub(super) fn note_creates(&mut self, key: &Key, follows: bool) {
        if let Some(state) = self.keys.get_mut(key) {
            state.status.follows_creates = follows;
        }
    }

    /// [`Self::status_patch`], unless the status was in sync with this very outcome at this version of the object.
    pub(super) fn status_patch_if_changed(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: Option<&Arc<Prepared>>,
        generation: i64,
        cx: &Context<'_>,
    ) -> Option<WriteOp> {
        let (Some(state), Some(wanted)) = (self.keys.get(key), prepared) else {
            return self.status_patch(key, primary, None, None, generation, cx);
        };
        let version = primary.resource_version;
        let is_in_sync = |(at, in_sync): &(ResourceVersion, Weak<Prepared>)| {
            *at == version && in_sync.as_ptr() == Arc::as_ptr(wanted) && state.stalled.is_none()
        };
        if state.status.in_sync.as_ref().is_some_and(is_in_sync) {
            return None;
        }
        let patch = self.status_patch(key, primary, Some(wanted), None, generation, cx);
        if let Some(state) = self.keys.get_mut(key) {
            let is_in_sync = patch.is_none() && state.stalled.is_none();
            state.status.in_sync = is_in_sync.then(|| (version, Arc::downgrade(wanted)));
        }
        patch
    }

    fn status_patch(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: Option<&Prepared>,
        retrying: Option<&str>,
        generation: i64,
        cx: &Context<'_>,
    ) -> Option<WriteOp> {
        let controller = self.controllers.get(&key.controller)?;
        let text = prepared.and_then(|prepared| prepared.status.as_deref());
        let fields: usize = primary.own_fields.iter().map(|own| own.fields.len()).sum();
        let bytes = primary.json().len() + fields + text.map_or(0, str::len);
        self.charges.add(&mut self.queue, &controller.share, cost::of_text(bytes));
        let fields = text.map(|text| serde_json::from_str(text).expect("prepare has parsed this text"));
        let stalled = self.keys.get(key).and_then(|state| state.stalled.as_ref());
        let waits = self.keys.get(key).and_then(|state| state.memory.blocked.message());
        let wanted = Wanted {
            is_whole: false,
            fields: fields.as_ref(),
            conditions: prepared.map(|prepared| prepared.conditions.as_slice()),
            stalled: stalled.map(|stall| (stall.reason.as_str(), stall.message.as_str())),
            retrying,
            // Without condition types the host could not find its own condition again to remove it.
            reports_progress: controller.shape.conditions_by_type,
            evicting: waits.as_deref(),
            generation,
            at_version: false,
        };
        let body = status::patch(primary, &controller.field_manager, controller.shape, &wanted, cx.now)?;
        Some(WriteOp::PatchStatus { target: primary.reference(), body })
    }

    /// Sets the Stalled condition, and records it once as an Event: not after a restart, when the object already has
    /// it.
    pub(super) fn stall(&mut self, key: &Key, primary: &Arc<Object>, stall: StalledReason, cx: &mut Context<'_>) {
        let has_conditions =
            self.controllers.get(&key.controller).is_some_and(|controller| controller.shape.conditions);
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.stalled.replace(stall.clone());
        let is_shown = has_conditions && status::shows_stalled(primary, &stall.reason, &stall.message);
        if before.as_ref() != Some(&stall) && !is_shown {
            self.record(key, primary, true, &stall.reason, &stall.message, cx);
        }
    }

    pub(super) fn clear_stall(&mut self, key: &Key) {
        if let Some(state) = self.keys.get_mut(key) {
            state.stalled = None;
        }
    }

    /// A run that writes the Stalled condition and nothing else.
    pub(super) fn write_stall_only(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        ending: Ending,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        let patch = self.status_patch(key, primary, None, None, primary.generation, cx);
        let stage = patch.map(Stage::of_one);
        self.begin_run(key, Run::new(stage, ending, skipped), cx);
    }

    /// A run that keeps an object that was stalled unready, and writes nothing else.
    pub(super) fn write_retry_only(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        message: &str,
        ending: Ending,
        cx: &mut Context<'_>,
    ) {
        self.clear_stall(key);
        let message = StalledReason::new("Retry", message).message;
        let patch = self.status_patch(key, primary, None, Some(&message), primary.generation, cx);
        self.begin_run(key, Run::new(patch.map(Stage::of_one), ending, false), cx);
    }

    pub(super) fn record(
        &self,
        key: &Key,
        about: &Arc<Object>,
        warning: bool,
        reason: &str,
        note: &str,
        cx: &mut Context<'_>,
    ) {
        let record = EventRecord { warning, reason: reason.to_owned(), note: note.to_owned(), words: Words::Note };
        self.send_record(key, about, record, cx);
    }

    /// What an Event about an object without a namespace does not say, the log does.
    fn send_record(&self, key: &Key, about: &Arc<Object>, record: EventRecord, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        if about.name.namespace.is_empty() && cx.may_write {
            let (reason, note) = (record.reason.clone(), record.note.clone());
            cx.observe(Observation::Withheld { cause: controller.cause(key), reason, note });
        }
        cx.record(controller.sender(), about, record);
    }

    /// Records the guest's events when they differ from the last ones. After a restart of the host they are recorded
    /// only if the plan has writes: they may have been recorded before.
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
            let (warning, reason, note) = (event.warning, event.reason.clone(), event.message.clone());
            self.send_record(key, &about, EventRecord { warning, reason, note, words: Words::Guest }, cx);
        }
    }

    /// The Stalled condition of a write error that only a person can resolve.
    pub(super) fn stall_of(op: &WriteOp, error: &WriteError) -> Option<StalledReason> {
        let reason = match error.class {
            // Of a create it is the namespace that does not exist.
            WriteErrorClass::NotFound if matches!(op, WriteOp::Patch { .. }) || op.creates(|_| true) => NOT_FOUND,
            WriteErrorClass::Invalid => "Invalid",
            WriteErrorClass::Denied => FORBIDDEN,
            WriteErrorClass::FieldConflict => "FieldConflict",
            _ => return None,
        };
        let message = format!("{} of {} was refused: {}", op.verb(), op.target(), error.message);
        Some(StalledReason::new(reason, message))
    }
}
