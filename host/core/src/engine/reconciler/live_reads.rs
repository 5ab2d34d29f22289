//! Live reads: one request for each object and reader, however many keys need it, and what each key does with the result.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Reconciler;
use super::key::{RunFailure, StalledReason};
use crate::engine::context::Context;
use crate::event::{Effect, LiveTarget};
use crate::expectation::Expectation;
use crate::object::{Object, ObjectRef, ResourceVersion};
use crate::plan::{self, Taken};
use crate::workqueue::{Key, Lane};
use crate::write::{WriteError, WriteErrorClass};

/// Why a key reads an object live.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reason {
    /// Its create failed with AlreadyExists (X3). The run waits for the result.
    Exists,
    /// The cache does not show its write for too long (R2).
    Lagging,
    /// Its last write of the object has an unknown result (X1).
    Unknown,
}

/// A live read in flight.
#[derive(Debug, Default)]
pub(super) struct LiveRead {
    sent_ms: u64,
    by: BTreeSet<(Key, Reason)>,
    is_void: bool,
}

impl LiveRead {
    /// etcd was restored after it was sent.
    pub fn make_void(&mut self) {
        self.is_void = true;
    }
}

type Found = Result<Option<Arc<Object>>, WriteError>;

impl Reconciler {
    pub(super) fn read_live(&mut self, key: &Key, object: ObjectRef, why: Reason, cx: &mut Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let target = LiveTarget { object, service_account: controller.version.service_account.clone() };
        let read = self.live_reads.entry(target.clone()).or_insert_with(|| {
            cx.effects.push(Effect::ReadLive(target));
            LiveRead { sent_ms: cx.now.mono_ms, ..LiveRead::default() }
        });
        read.by.insert((key.clone(), why));
    }

    pub fn on_live_read(&mut self, target: &LiveTarget, result: &Found, cx: &mut Context<'_>) {
        let LiveRead { sent_ms, by, is_void } = self.live_reads.remove(target).unwrap_or_default();
        let target = &target.object;
        let undone = Err(WriteError::undone());
        let result = if is_void { &undone } else { result };
        for (key, why) in by {
            self.charge_event(&key);
            match why {
                Reason::Exists => {
                    self.on_existing_read(&key, target, result, cx);
                    self.write_ended(&key, cx);
                }
                Reason::Lagging => self.on_lagging_read(&key, target, result, cx),
                Reason::Unknown => self.on_unknown_read(&key, target, sent_ms, result, cx),
            }
        }
    }

    /// X3: success if the object is ours, else a failure of the run.
    fn on_existing_read(&mut self, key: &Key, target: &ObjectRef, result: &Found, cx: &Context<'_>) {
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        let snapshot = cx.store.snapshot();
        let owner = snapshot.get(&controller.spec.primary, &key.name);
        let Some(state) = self.keys.get_mut(key) else { return };
        let child = state.run_mut().and_then(|run| run.children.get(target)).cloned();
        let is_seen = controller.spec.sees(&target.kind, &target.name.namespace);
        let (class, stall) = match result {
            Ok(Some(live)) if owner.is_some_and(|owner| plan::is_child(&controller.spec, owner, live)) => {
                state.expectations.pending.push(expectation(live, Some(live.resource_version)));
                return;
            }
            // The cache does not show it yet.
            Ok(Some(_)) if is_seen && child.as_ref().is_some_and(|child| child.may_share_name) => {
                (WriteErrorClass::Conflict, None)
            }
            Ok(Some(live)) => {
                let taken = Taken::new(live, child.map(|child| child.key).unwrap_or_default());
                let stall = StalledReason::children_exist(&[taken], &controller.spec.primary);
                (WriteErrorClass::Conflict, stall)
            }
            // It was deleted since.
            Ok(None) => (WriteErrorClass::Conflict, None),
            // The create was allowed, and a right to read is not what it lacks: tried again as any taken name.
            Err(error) if error.class == WriteErrorClass::Denied => {
                (WriteErrorClass::Conflict, Some(StalledReason::exists_unread(target, &error.message)))
            }
            Err(error) => (error.class, None),
        };
        if let Some(run) = state.run_mut() {
            run.failed.get_or_insert(RunFailure { class, stall, of_status: false });
        }
    }

    /// R2: the key waits on for a write that the API server still has. One that was undone is not waited for.
    fn on_lagging_read(&mut self, key: &Key, target: &ObjectRef, result: &Found, cx: &mut Context<'_>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let Ok(live) = result else { return };
        state.expectations.pending.retain(|write| {
            let same = live.as_ref().filter(|live| live.uid == write.uid);
            let still_holds = match write.version {
                // An older version than the write created: it was undone.
                Some(version) => same.is_some_and(|live| live.resource_version >= version),
                None => same.is_none_or(|live| live.deleting),
            };
            write.target != *target || still_holds
        });
        self.wake(key, Lane::Retry, cx);
    }

    /// X1: the key waits until the cache shows the state that was read, when no write can follow it any more.
    fn on_unknown_read(&mut self, key: &Key, target: &ObjectRef, sent_ms: u64, result: &Found, cx: &mut Context<'_>) {
        let snapshot = cx.store.snapshot();
        let Some(state) = self.keys.get_mut(key).filter(|state| state.unknown_writes.targets.contains(target)) else {
            return;
        };
        match result {
            // The API server may have carried out the write after the read. The key's next turn reads again.
            Ok(_) if sent_ms < state.unknown_writes.until_ms => {}
            Ok(live) => {
                state.unknown_writes.targets.remove(target);
                state.unknown_writes.unread = 0;
                let shown = match live {
                    Some(live) => Some(expectation(live, Some(live.resource_version))),
                    None => snapshot.get(&target.kind, &target.name).map(|deleted| expectation(deleted, None)),
                };
                state.expectations.pending.extend(shown.filter(|write| !write.is_met_by(&snapshot)));
                self.wake(key, Lane::Retry, cx);
            }
            Err(error) => {
                state.unknown_writes.unread = state.unknown_writes.unread.saturating_add(1);
                if state.unknown_writes.unread == 1
                    && let Some(primary) = self.primary_of(key, cx)
                {
                    let note = format!("it keeps its finalizer until {target} can be read: {}", error.message);
                    self.record(key, &primary, true, "Finalizing", &note, cx);
                }
            }
        }
    }
}

fn expectation(object: &Object, version: Option<ResourceVersion>) -> Expectation {
    Expectation { target: object.reference(), uid: Arc::clone(&object.uid), version }
}
