//! Live reads: one request for an object however many keys want to know of it, and what each learns from the result.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Reconciler;
use super::key::{RunFailure, StalledReason, Work};
use crate::engine::context::Context;
use crate::event::Effect;
use crate::expectation::Expectation;
use crate::object::{Object, ObjectRef};
use crate::plan;
use crate::workqueue::{Key, Lane};
use crate::write::{WriteError, WriteErrorClass};

/// What a key wants to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reason {
    /// Whose object its create has met (X3); its plan waits for the result.
    Exists,
    /// Whether its own write is still there, which the view does not show (R2).
    Lagging,
    /// The current state of an object whose last write has an unknown result (X1).
    Unknown,
}

/// A live read that is under way.
#[derive(Debug, Default)]
pub(super) struct LiveRead {
    asked_ms: u64,
    by: BTreeSet<(Key, Reason)>,
    is_void: bool,
}

impl LiveRead {
    /// It was sent before etcd was restored.
    pub fn make_void(&mut self) {
        self.is_void = true;
    }
}

type Found = Result<Option<Arc<Object>>, WriteError>;

impl Reconciler {
    pub(super) fn read_live(&mut self, key: &Key, target: ObjectRef, why: Reason, cx: &mut Context<'_>) {
        let read = self.live_reads.entry(target.clone()).or_insert_with(|| {
            cx.effects.push(Effect::ReadLive(target));
            LiveRead { asked_ms: cx.now.mono_ms, ..LiveRead::default() }
        });
        read.by.insert((key.clone(), why));
    }

    pub fn on_live_read(&mut self, target: &ObjectRef, result: &Found, cx: &mut Context<'_>) {
        let LiveRead { asked_ms, by, is_void } = self.live_reads.remove(target).unwrap_or_default();
        let undone = Err(WriteError::undone());
        let result = if is_void { &undone } else { result };
        for (key, why) in by {
            match why {
                Reason::Exists => {
                    self.on_existing_read(&key, target, result, cx);
                    self.write_answered(&key, cx);
                }
                Reason::Lagging => self.on_lagging_read(&key, target, result, cx),
                Reason::Unknown => self.on_unknown_read(&key, target, asked_ms, result, cx),
            }
        }
    }

    /// The object of a create that exists already: ours, somebody else's, or deleted again.
    fn on_existing_read(&mut self, key: &Key, target: &ObjectRef, result: &Found, cx: &Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let snapshot = cx.store.snapshot();
        let owner_uid = snapshot.get(&controller.spec.primary, &key.name).map(|primary| Arc::clone(&primary.uid));
        let Some(state) = self.keys.get_mut(key) else { return };
        let failure = match result {
            Ok(Some(live)) => {
                if owner_uid.is_some_and(|uid| plan::is_child(&controller.spec, &uid, live)) {
                    state.expectations.pending.push(Expectation {
                        target: target.clone(),
                        uid: Arc::clone(&live.uid),
                        version: Some(live.resource_version),
                    });
                    return;
                }
                let stall = Some(StalledReason::child_exists(target, &controller.spec.primary));
                RunFailure { class: WriteErrorClass::Conflict, stall, of_status: false }
            }
            // It existed and is gone again.
            Ok(None) => RunFailure { class: WriteErrorClass::Conflict, stall: None, of_status: false },
            Err(error) => RunFailure { class: error.class, stall: None, of_status: false },
        };
        if let Work::Writing(run) = &mut state.turn.work {
            run.failed.get_or_insert(failure);
        }
    }

    /// R2's last resort: a write of which even the API server knows nothing any more is not waited for. One that it knows
    /// of is: then it is the view that is behind.
    fn on_lagging_read(&mut self, key: &Key, target: &ObjectRef, result: &Found, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let Ok(live) = result else { return };
        state.expectations.pending.retain(|write| {
            let same = live.as_ref().filter(|live| live.uid == write.uid);
            let still_holds = match write.version {
                // An older state than the write made means that it was undone.
                Some(version) => same.is_some_and(|live| live.resource_version >= version),
                None => same.is_none_or(|live| live.deleting),
            };
            write.target != *target || still_holds
        });
        self.wake(key, Lane::Retry, cx);
    }

    /// The state of an object whose last write has an unknown result: the key goes on when the view shows it.
    fn on_unknown_read(&mut self, key: &Key, target: &ObjectRef, asked_ms: u64, result: &Found, cx: &mut Context<'_>) {
        let snapshot = cx.store.snapshot();
        let Some(state) = self.keys.get_mut(key).filter(|state| state.unknown_writes.targets.contains(target)) else {
            return;
        };
        match result {
            // A write may have landed behind what was read. It is asked again when the key comes back.
            Ok(_) if asked_ms < state.unknown_writes.until_ms => {}
            Ok(live) => {
                state.unknown_writes.targets.remove(target);
                state.unknown_writes.unread = 0;
                let seen = |object: &Arc<Object>, version| Expectation {
                    target: target.clone(),
                    uid: Arc::clone(&object.uid),
                    version,
                };
                let shown = match live {
                    Some(live) => Some(seen(live, Some(live.resource_version))),
                    None => snapshot.get(&target.kind, &target.name).map(|gone| seen(gone, None)),
                };
                state.expectations.pending.extend(shown.filter(|write| !write.is_met_by(&snapshot)));
                self.wake(key, Lane::Retry, cx);
            }
            Err(error) => {
                state.unknown_writes.unread = state.unknown_writes.unread.saturating_add(1);
                if state.unknown_writes.unread == 1
                    && let Some(primary) = self.primary_of(key, cx)
                {
                    let note = format!("it stays until {target} can be read: {}", error.message);
                    self.record(key, &primary, true, "Finalizing", &note, cx);
                }
            }
        }
    }
}
