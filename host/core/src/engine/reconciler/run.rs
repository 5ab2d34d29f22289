//! From a checked outcome to the run that carries it out: what is missing, in which order it is written (X1), and whether it
//! may be written at all (X9). `writes.rs` sends it.

use std::sync::Arc;

use super::Reconciler;
use super::key::{Ending, Run, Stage, StalledReason};
use crate::breaker::{Breaker, CHANGING, HEALING};
use crate::engine::context::Context;
use crate::finalizer;
use crate::object::Object;
use crate::observation::{Observation, ReconcileResult};
use crate::plan::{self, ActionDiff, Diff, Prepared};
use crate::workqueue::Key;
use crate::write::WriteOp;

/// Bytes of a status that are shown when it is fought over.
const MAX_SHOWN_BYTES: usize = 512;

/// What a plan comes to.
struct Missing {
    /// Puts the finalizer on, before anything else is done.
    finalizer: Option<WriteOp>,
    children: Diff,
    actions: ActionDiff,
}

impl Missing {
    /// Why the status stays as it is: a name that is somebody else's, or nothing to patch.
    fn stall(&self, primary: &Object) -> Option<StalledReason> {
        let taken = self.children.taken.first().map(|target| StalledReason::child_exists(target, &primary.kind));
        taken.or_else(|| self.actions.missing.first().map(StalledReason::nothing_to_patch))
    }

    /// Whether it changes what the guest is given or may read of its own, so that the key has to be looked at again.
    fn changes_what_is_read(&self) -> bool {
        self.finalizer.is_some() || self.children.changes_what_is_read() || self.actions.more
    }

    fn only_creates(&self) -> bool {
        let Self { finalizer: _, children, actions } = self;
        let is_create = |op: &WriteOp| matches!(op, WriteOp::Create { .. });
        children.deletes.is_empty()
            && children.children.iter().all(is_create)
            && actions.changes.is_empty()
            && actions.removals.is_empty()
    }

    /// X1: finalizer, children, what is deleted of them, actions. Each begins when the one before is through.
    fn stages(self) -> Vec<Stage> {
        let Self { finalizer, children, actions } = self;
        let stages =
            [(children.children, true), (children.deletes, false), (actions.changes, false), (actions.removals, false)];
        let stage = |(writes, slow_start): (Vec<WriteOp>, bool)| {
            (!writes.is_empty()).then(|| Stage { writes: writes.into(), slow_start })
        };
        finalizer.map(Stage::of_one).into_iter().chain(stages.into_iter().filter_map(stage)).collect()
    }
}

/// Whether the plugin has done what there was to do before an object may go.
fn is_over(primary: &Object, prepared: &Prepared) -> bool {
    primary.deleting && prepared.finalized
}

impl Reconciler {
    /// Compares what is wanted with what is there and begins to write the difference.
    pub(super) fn carry_out(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        prepared: &Arc<Prepared>,
        generation: i64,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        let Some(missing) = self.missing(key, primary, prepared, skipped, cx) else { return };
        let stall = missing.stall(primary);
        // A status may well say that the child was made, or that the object was patched: only Stalled is written beside it.
        let told = stall.is_none().then_some(prepared);
        match stall {
            Some(stall) => self.stall(key, primary, stall, cx),
            None => self.clear_stall(key),
        }
        let look_again = missing.changes_what_is_read();
        let defer = self.defers_status(key, missing.finalizer.is_some() || missing.children.changes_children(), cx);
        let only_creates = missing.only_creates();
        let is_cleaned = is_over(primary, prepared) && told.is_some() && !missing.actions.more;
        // A write that was given up may land behind the one that took it back; the object stays until it cannot any more.
        let lands_ms =
            self.keys.get(key).map_or(0, |state| state.unknown_writes.until_ms.saturating_sub(cx.now.mono_ms));
        let goes = is_cleaned && lands_ms == 0 && self.is_sure(key, prepared, cx);
        let stays_ms = if lands_ms > 0 { lands_ms } else { self.looks_again_ms(key) };
        let requeue_ms = if is_cleaned && !goes { Some(stays_ms) } else { prepared.requeue_after_ms };
        let result = if requeue_ms.is_some() { ReconcileResult::RequeueAfter } else { ReconcileResult::Success };
        let mut stages = missing.stages();
        // An object that goes has nobody left to read its status.
        let last = match goes {
            true => finalizer::remove(primary, &self.controllers[&key.controller].finalizer),
            false if defer || is_cleaned => None,
            false => self.settled_status_patch(key, primary, told, generation, cx),
        };
        let cost = if only_creates && last.is_none() { HEALING } else { CHANGING };
        stages.extend(last.map(Stage::of_one));
        self.record_finalizing(key, primary, cx);
        let first = stages.first().and_then(|stage| stage.writes.front()).cloned();
        self.record_guest_events(key, primary, prepared, first.is_some(), cx);
        if let Some(first) = first
            && !self.admitted_by_breaker(key, primary, &first, cost, cx)
        {
            return;
        }
        let mut run = Run::new(stages, Ending::new(result, requeue_ms), skipped);
        run.look_again = look_again;
        self.begin_run(key, run, cx);
    }

    /// What is missing of an outcome, with what is in the way of it put down as what the key waits for.
    fn missing(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: &Prepared,
        skipped: bool,
        cx: &Context<'_>,
    ) -> Option<Missing> {
        let controller = &self.controllers[&key.controller];
        let (spec, manager) = (&controller.spec, &controller.field_manager);
        let snapshot = cx.store.snapshot();
        let state = self.keys.get_mut(key)?;
        let finalizer =
            if spec.finalize && !primary.deleting { finalizer::add(primary, &controller.finalizer) } else { None };
        // Children of an object that goes are collected through their owner reference.
        let children = if is_over(primary, prepared) {
            Diff::default()
        } else {
            plan::diff(prepared, spec, primary, manager, &snapshot, &mut state.memory.applied)
        };
        state.forget_actions(&prepared.actions, &snapshot, skipped);
        let actions =
            plan::diff_actions(&prepared.actions, spec, manager, &snapshot, state.memory.of_actions(), cx.now.mono_ms);
        let in_the_way = [children.taken.as_slice(), &actions.missing].concat();
        self.index.replace_conflicts(key, &state.name_conflicts, &in_the_way);
        state.name_conflicts = in_the_way;
        Some(Missing { finalizer, children, actions })
    }

    fn admitted_by_breaker(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        first: &WriteOp,
        cost: f64,
        cx: &mut Context<'_>,
    ) -> bool {
        let (now_ms, generation) = (cx.now.mono_ms, primary.generation);
        let controller = &self.controllers[&key.controller];
        let Some(state) = self.keys.get_mut(key) else { return false };
        let breaker = state.breaker.get_or_insert_with(|| Breaker::new(now_ms, generation));
        if breaker.admit(now_ms, generation, cost) {
            return true;
        }
        let until_ms = breaker.open_until_ms(now_ms, generation).unwrap_or(now_ms);
        let what = match first {
            WriteOp::PatchStatus { body, .. } => {
                let shown = &body[..body.floor_char_boundary(MAX_SHOWN_BYTES)];
                format!("patch of the status with {shown}")
            }
            op => format!("{} of {}", op.verb(), op.target()),
        };
        let message = format!(
            "{} is written again and again though its spec did not change; the next write would be a {what}. Something \
             undoes what {} wants, so it is left alone for {} s. `kubectl get {} {} --show-managed-fields -o yaml` shows \
             who else writes",
            primary.reference(),
            controller.label,
            (until_ms - now_ms) / 1_000,
            first.target().kind.kind.to_lowercase(),
            first.target().name.name,
        );
        cx.observe(Observation::BreakerOpened {
            controller: Arc::clone(&controller.label),
            object: primary.reference(),
            message: message.clone(),
        });
        self.stall(key, primary, StalledReason::new("Fighting", message), cx);
        let ending = Ending::new(ReconcileResult::Error, Some(until_ms - now_ms));
        self.write_stall_only(key, primary, ending, true, cx);
        false
    }
}
