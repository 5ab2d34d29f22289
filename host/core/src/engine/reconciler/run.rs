//! From a checked outcome to a run: which writes are missing, their order (X1), and whether the breaker admits them
//! (X9). `writes.rs` sends them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::{Ending, Run, Stage, StalledReason};
use super::requests::NO_ROOM_DELAY_MS;
use super::turn::RESYNC_MS;
use super::{Reconciler, cost, rejections};
use crate::breaker::{Breaker, CHANGING, FOLLOWING, HEALING};
use crate::engine::context::Context;
use crate::finalizer;
use crate::object::{Object, ObjectRef};
use crate::observation::{Observation, ReconcileResult};
use crate::plan::{self, ActionDiff, Diff, Prepared};
use crate::successor_mark;
use crate::text::EXCERPT;
use crate::workqueue::Key;
use crate::write::WriteOp;

/// The writes of a plan that are missing.
struct Missing {
    /// Adds the finalizer.
    finalizer: Option<WriteOp>,
    /// Marks the object before its first child with a successor.
    mark: Option<WriteOp>,
    children: Diff,
    actions: ActionDiff,
    /// What the guest should know of what is rejected has changed.
    rejects: bool,
    /// Some of it was not compared, since that takes long.
    is_unfinished: bool,
}

impl Missing {
    fn stall(&self, primary: &Object) -> Option<StalledReason> {
        let taken = StalledReason::children_exist(&self.children.taken, &primary.kind);
        let reserved = || StalledReason::actions_are_reserved(&self.actions.reserved);
        let sources = || StalledReason::actions_are_on_sources(&self.actions.sources);
        taken.or_else(reserved).or_else(sources).or_else(|| StalledReason::nothing_to_patch(&self.actions.missing))
    }

    /// Whether it changes the primary or children, so that the key has to return to the queue.
    fn changes_what_is_read(&self) -> bool {
        self.finalizer.is_some()
            || self.mark.is_some()
            || self.children.changes_what_is_read()
            || self.actions.more
            || self.rejects
    }

    fn only_creates(&self) -> bool {
        let Self { finalizer: _, mark: _, children, actions, rejects: _, is_unfinished: _ } = self;
        let is_create = |op: &WriteOp| matches!(op, WriteOp::Create { .. });
        children.deletes.is_empty()
            && children.children.iter().all(is_create)
            && actions.changes.is_empty()
            && actions.removals.is_empty()
    }

    /// X1: finalizer, mark, children, deletes of children, actions.
    fn stages(self) -> Vec<Stage> {
        let Self { finalizer, mark, children, actions, rejects: _, is_unfinished: _ } = self;
        let stages =
            [(children.children, true), (children.deletes, false), (actions.changes, false), (actions.removals, false)];
        let stage = |(writes, slow_start): (Vec<WriteOp>, bool)| {
            (!writes.is_empty()).then(|| Stage { writes: writes.into(), slow_start })
        };
        finalizer.into_iter().chain(mark).map(Stage::of_one).chain(stages.into_iter().filter_map(stage)).collect()
    }
}

/// Whether the plugin has cleaned up, so that the object may be deleted.
fn is_finalized(primary: &Object, prepared: &Prepared) -> bool {
    primary.deleting && prepared.finalized
}

impl Reconciler {
    /// Compares an outcome with the cache and begins to write the difference.
    pub(super) fn carry_out(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        prepared: &Arc<Prepared>,
        generation: i64,
        skipped: bool,
        cx: &mut Context<'_>,
    ) {
        self.exchanges.keep(key, |known| prepared.requests.iter().any(|each| each.fingerprint == known.fingerprint));
        let Some(mut missing) = self.missing_or_call(key, primary, prepared, skipped, cx) else { return };
        let over = self.withhold_creates(key, primary, prepared, &mut missing, cx);
        let no_room = over.or_else(|| self.no_room(key, &prepared.requests));
        let room_ms = no_room.as_ref().map(|_| NO_ROOM_DELAY_MS);
        let stall = missing.stall(primary).or(no_room);
        // The guest's status may claim that the child was created or the object patched, so a stall replaces it.
        let with_status = stall.is_none().then_some(prepared);
        match stall {
            Some(stall) => self.stall(key, primary, stall, cx),
            None => self.clear_stall(key),
        }
        let requeue = missing.changes_what_is_read();
        let is_outdated = missing.finalizer.is_some() || missing.children.changes_children() || missing.rejects;
        let defer = self.defers_status(key, is_outdated, cx);
        let is_finalized = is_finalized(primary, prepared) && with_status.is_some() && !missing.actions.more;
        let unknown_ms = self.unknown_ms(key, primary, cx);
        let may_remove = is_finalized
            && missing.children.deletes.is_empty()
            && unknown_ms == 0
            && self.nothing_follows(key, prepared, cx);
        let recheck_ms = if unknown_ms > 0 { unknown_ms } else { self.recheck_ms(key) };
        let requeue_ms = if is_finalized && !may_remove { Some(recheck_ms) } else { prepared.requeue_after_ms };
        let unsure_ms = missing.children.unsure.then(|| self.unsure_ms(key, cx));
        let requeue_ms = requeue_ms.into_iter().chain(unsure_ms).min();
        let result = if requeue_ms.is_some() { ReconcileResult::RequeueAfter } else { ReconcileResult::Success };
        // A certificate that is due after the resync is found again then.
        let renew_ms = missing.children.renew_at_ms.map(|at_ms| at_ms.saturating_sub(cx.now.unix_ms));
        let renew_ms = renew_ms.filter(|renew_ms| *renew_ms < RESYNC_MS);
        let requeue_ms = [requeue_ms, renew_ms, room_ms].into_iter().flatten().min();
        let (only_creates, children) = (missing.only_creates(), std::mem::take(&mut missing.children.written));
        let mut stages = missing.stages();
        let last = match may_remove {
            true => finalizer::remove(primary, &self.controllers[&key.controller].finalizer),
            false if defer || is_finalized => None,
            false => self.status_patch_if_changed(key, primary, with_status, generation, cx),
        };
        let cost = self.cost(key, only_creates, stages.is_empty(), last.is_some());
        self.note_creates(key, defer && only_creates);
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
        run.requeue = requeue;
        run.children = children;
        let last = self.keys.get(key).and_then(|state| state.last.as_ref());
        run.of = last.map(|last| (last.edition, last.version.clone()));
        // The next turn writes the status, and then the requests are sent.
        if with_status.is_some() && !defer {
            run.requests.clone_from(&prepared.requests);
        }
        self.begin_run(key, run, cx);
    }

    /// Takes the room that an outcome needs of what the plugin is granted. Without room nothing is created, and nothing is deleted
    /// to be created anew; another key, which has its room, is not concerned.
    fn withhold_creates(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: &Prepared,
        missing: &mut Missing,
        cx: &Context<'_>,
    ) -> Option<StalledReason> {
        let controller = self.controllers.get(&key.controller)?;
        let last = self.keys.get_mut(key)?.last.as_mut()?;
        // Without children in the outcome, those that there are stay.
        let wanted = prepared.objects().max(if prepared.children.is_none() { last.objects } else { 0 });
        let others = self.wanted_objects.of(&controller.plugin).saturating_sub(last.objects);
        let most = controller.version.grants.max_objects.unwrap_or(usize::MAX);
        if primary.deleting || wanted <= last.objects || others.saturating_add(wanted) <= most {
            let before = std::mem::replace(&mut last.objects, wanted);
            self.count_objects(key.controller, before, wanted);
            return None;
        }
        let snapshot = cx.store.snapshot();
        let is_shown = |target: &ObjectRef| snapshot.get(&target.kind, &target.name).is_some();
        let Missing { children, actions, .. } = missing;
        let before = children.children.len() + actions.changes.len();
        children.children.retain(|op| !op.creates(is_shown));
        actions.changes.retain(|op| !op.creates(is_shown));
        let keys: BTreeSet<&str> = prepared.children.iter().flatten().map(|child| &*child.key).collect();
        let is_replaced = |op: &WriteOp| children.written.get(op.target()).is_some_and(|it| keys.contains(&*it.key));
        children.deletes.retain(|op| !is_replaced(op));
        let is_withheld = children.children.len() + actions.changes.len() < before;
        is_withheld.then(|| StalledReason::too_many_objects(&controller.plugin, wanted, others, most))
    }

    /// Whether neither the API server may carry out a write of unknown result after the cleanup, nor another server a request
    /// in flight. Until then the finalizer stays.
    fn nothing_follows(&mut self, key: &Key, prepared: &Prepared, cx: &mut Context<'_>) -> bool {
        !self.exchanges.is_changing(&self.controllers[&key.controller].plugin, key)
            && self.knows_all_writes(key, prepared, cx)
    }

    /// The missing writes of an outcome; None if a call is made instead, whose worker compares what takes long. After a call
    /// there is no other: what has changed meanwhile counts as different, and an apply may change nothing.
    fn missing_or_call(
        &mut self,
        key: &Key,
        primary: &Arc<Object>,
        prepared: &Prepared,
        skipped: bool,
        cx: &mut Context<'_>,
    ) -> Option<Missing> {
        let missing = self.missing(key, primary, prepared, skipped, cx)?;
        if missing.is_unfinished && skipped {
            self.call(key, Arc::clone(primary), cx);
            return None;
        }
        Some(missing)
    }

    /// The missing writes of an outcome. Indexes name conflicts, so that their end wakes the key.
    fn missing(
        &mut self,
        key: &Key,
        primary: &Object,
        prepared: &Prepared,
        skipped: bool,
        cx: &Context<'_>,
    ) -> Option<Missing> {
        let most = self.most_rejections(key);
        let controller = &self.controllers[&key.controller];
        let (spec, manager) = (&controller.spec, &controller.field_manager);
        let snapshot = cx.store.snapshot();
        let state = self.keys.get_mut(key)?;
        let left_out = state.last.as_ref().map_or(&[][..], |last| last.reads.left_out());
        let finalizer = if spec.has_finalizer() && !primary.deleting {
            finalizer::add(primary, &controller.finalizer)
        } else {
            None
        };
        // The garbage collector deletes the other children.
        let children = if is_finalized(primary, prepared) {
            plan::deletes_of_tracked(spec, primary, &snapshot)
        } else {
            plan::diff(
                prepared,
                spec,
                primary,
                manager,
                &snapshot,
                state.memory.of_plan(left_out, cx.now.mono_ms),
                cx.now.unix_ms,
            )
        };
        let mark = children.unmarked.then(|| successor_mark::mark(primary));
        state.forget_unwanted(prepared, &snapshot, skipped);
        let actions = plan::diff_actions(
            &prepared.actions,
            spec,
            manager,
            &snapshot,
            state.memory.of_plan(&[], cx.now.mono_ms),
            cx.now.mono_ms,
        );
        let rejected = rejections::seen(&children, &actions, &spec.primary);
        let parsed_bytes = children.parsing.bytes + actions.parsing.bytes;
        self.charges.add(&mut self.queue, &controller.share, cost::of_diff(prepared, parsed_bytes, rejected.len()));
        let of = state.last.as_ref().map(|last| (last.edition, last.version.clone()));
        let rejects = of.is_some_and(|of| state.reject(&of, rejected, most));
        let taken = children.taken.iter().chain(&children.skipped).map(|taken| &taken.target);
        let conflicts = taken.chain(&actions.missing).chain(&actions.sources).cloned().collect();
        self.index_conflicts(key, conflicts);
        let is_unfinished = children.parsing.is_unfinished || actions.parsing.is_unfinished;
        Some(Missing { finalizer, mark, children, actions, rejects, is_unfinished })
    }

    /// What the breaker takes for a run. A status alone has no children or actions before it.
    fn cost(&self, key: &Key, only_creates: bool, is_alone: bool, has_status: bool) -> f64 {
        if only_creates && (!has_status || (is_alone && self.follows_creates(key))) {
            HEALING
        } else if is_alone && self.keys.get(key).is_some_and(|state| state.turn.follows_children) {
            FOLLOWING
        } else {
            CHANGING
        }
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
                format!("patch of the status with {}", EXCERPT.text(body))
            }
            op => format!("{} of {}", op.verb(), op.target()),
        };
        let message = format!(
            "{} is written again and again though its spec did not change; the next write would be a {what}. Something \
             undoes what {} wants, so the host pauses it for {} s. `kubectl get {} {} --show-managed-fields -o yaml` shows \
             who else writes",
            primary.reference(),
            controller.label,
            (until_ms - now_ms) / 1_000,
            first.target().kind.kind.to_lowercase(),
            first.target().name.name,
        );
        cx.observe(Observation::BreakerOpened { cause: controller.cause(key), message: message.clone() });
        self.stall(key, primary, StalledReason::new("Fighting", message), cx);
        let ending = Ending::new(ReconcileResult::Error, Some(until_ms - now_ms));
        self.write_stall_only(key, primary, ending, true, cx);
        false
    }
}
