//! What a key remembers so that no child is ever doubled though a successor has another name than its predecessor (X3):
//! creates that the cache may not show, its own of unknown result and those that another host may have left. `plan` decides
//! from it which children are created, and under which names.

use std::sync::Arc;

use super::Reconciler;
use crate::engine::context::Context;
use crate::heap::{HeapBytes, tree};
use crate::limits::WRITE_TIMEOUT_MS;
use crate::object::Kind;
use crate::plan::{self, Creates, UnknownCreate, UnknownCreates};
use crate::workqueue::Key;
use crate::write::WriteOp;

/// How long a create may stay unseen: until its timeout the API server may carry it out, and a watch that lags shows it
/// later. Of watches that are not broken, hardly one lags by a second; twenty are those of the simulation.
const UNSEEN_MS: u64 = WRITE_TIMEOUT_MS + 20_000;

#[derive(Debug, Default)]
pub(super) struct Replacements {
    /// Whether another host may have written for the object was decided.
    is_decided: bool,
    /// Until when creates of another host may be carried out, or unseen.
    inherited_until_ms: u64,
    /// The key's own creates of unknown result.
    unknown: UnknownCreates,
}

impl Replacements {
    /// Of an object that this host has seen appear: no other has written for it.
    pub fn of_new() -> Self {
        Self { is_decided: true, ..Self::default() }
    }

    /// At each turn. At the first one another host may have written before.
    pub fn begin(&mut self, now_ms: u64) {
        if !std::mem::replace(&mut self.is_decided, true) {
            self.inherited_until_ms = now_ms + UNSEEN_MS;
        }
    }

    /// Another host may have written for the object.
    pub fn inherit(&mut self) {
        self.is_decided = false;
    }

    /// What a diff has to know.
    pub fn creates(&mut self, now_ms: u64) -> Creates<'_> {
        self.unknown.retain(|_, create| create.until_ms > now_ms);
        Creates { inherited: self.inherited_until_ms > now_ms, unknown: &self.unknown }
    }

    /// How long until a child that waits for time to pass may be created.
    pub fn unsure_ms(&self, now_ms: u64) -> u64 {
        let all = self.unknown.values().map(|create| create.until_ms).chain([self.inherited_until_ms]);
        all.filter(|until_ms| *until_ms > now_ms).min().map_or(0, |until_ms| until_ms - now_ms)
    }

    /// The cache may not show what this write has created, or will.
    pub fn note_unknown(&mut self, op: &WriteOp, now_ms: u64) {
        let creates = op.creates(|_| true);
        if let Some(child) = plan::child_key(op).filter(|_| creates) {
            let target = op.target().clone();
            let create = UnknownCreate { until_ms: now_ms + UNSEEN_MS, target: target.clone() };
            self.unknown.insert((target.kind, target.name.namespace, child), create);
        }
    }
}

impl HeapBytes for Replacements {
    fn heap_bytes(&self) -> usize {
        let creates = self.unknown.iter().map(|((_, namespace, key), create)| {
            namespace.heap_bytes() + key.heap_bytes() + create.target.heap_bytes()
        });
        tree(self.unknown.len(), size_of::<((Kind, Arc<str>, Arc<str>), UnknownCreate)>()) + creates.sum::<usize>()
    }
}

impl Reconciler {
    pub(super) fn unsure_ms(&self, key: &Key, cx: &Context<'_>) -> u64 {
        self.keys.get(key).map_or(0, |state| state.memory.replacements.unsure_ms(cx.now.mono_ms))
    }
}
