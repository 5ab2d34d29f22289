//! The answers to queries that many calls ask: evaluated by one call for all, until their kind changes. This file does
//! not know how an answer is made.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use crate::heap::shared;
use crate::map::Map;
use crate::object::Kind;
use crate::query::CompiledQuery;

/// Objects from which on an answer is kept. Fewer take little longer than to find the answer, and most queries that
/// name the reconciled object, which no other call asks, select few.
const FROM_OBJECTS: usize = 16;
/// Budget units from which on an answer is kept, however few objects it has: no index led to them.
const FROM_LOOKS: u64 = 1_024;
/// Bytes of one answer that is kept: five fields of some thousand Nodes. A larger one takes most of its time in the
/// guest.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes of all answers, which belong to no plugin. When they are full they are dropped, and the next calls evaluate
/// again.
const ANSWERS_BYTES: usize = 16 << 20;
/// Bytes of an entry beside its query and its text, in a table that is less than half full after it has grown.
const ENTRY_BYTES: usize = 16 * (size_of::<(Arc<CompiledQuery>, KeptAnswer)>() + 1) / 7;

/// The objects that a query selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// One JSON array.
    pub text: &'a str,
    pub hash: u64,
    /// The number of its objects.
    pub objects: usize,
    /// Budget units that it took.
    pub looks: u64,
}

/// An answer that another call has had.
#[derive(Clone, Debug)]
pub(crate) struct KeptAnswer {
    pub text: Arc<str>,
    pub hash: u64,
    pub looks: u64,
}

/// A state of a kind: its changes so far, and its indexes that were completed so far, on which the looks depend. Later
/// states are greater.
pub(super) type State = (u64, u64);

/// The answers to queries in the last state of each kind that was asked.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    kinds: Map<Kind, OfKind>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct OfKind {
    state: State,
    answers: Map<Arc<CompiledQuery>, KeptAnswer>,
    bytes: usize,
}

impl Answers {
    /// The answer in a state of the kind.
    pub(super) fn get(&self, query: &CompiledQuery, state: State) -> Option<KeptAnswer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.kinds.get(&query.kind).filter(|known| known.state == state)?.answers.get(query).cloned()
    }

    /// Keeps an answer that is worth it. Answers in earlier states are dropped.
    pub(super) fn keep(&self, query: &Arc<CompiledQuery>, state: State, answer: Answer) {
        let bytes = query.bytes() + query.fields.bytes() + shared(answer.text.len()) + ENTRY_BYTES;
        if (answer.objects < FROM_OBJECTS && answer.looks < FROM_LOOKS) || bytes > ANSWER_BYTES {
            return;
        }
        let answer = KeptAnswer { text: answer.text.into(), hash: answer.hash, looks: answer.looks };
        // Freed after the lock is released.
        let (mut outdated, mut all) = (None, Kept::default());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.kinds.get(&query.kind).map(|known| known.state) {
            Some(known) if known > state => return,
            Some(known) if known < state => outdated = kept.remove(&query.kind),
            _ => {}
        }
        if kept.bytes + bytes > ANSWERS_BYTES {
            all = std::mem::take(&mut *kept);
        }
        kept.add(query, state, answer, bytes);
        drop(kept);
        drop((outdated, all));
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Drops the answers of a kind. What is returned takes long to be freed.
    pub(super) fn forget(&self, kind: &Kind) -> impl Send + 'static + use<> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(kind)
    }
}

impl Kept {
    fn remove(&mut self, kind: &Kind) -> Option<OfKind> {
        let removed = self.kinds.remove(kind)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }

    fn add(&mut self, query: &Arc<CompiledQuery>, state: State, answer: KeptAnswer, bytes: usize) {
        let of_kind = self.kinds.entry(query.kind.clone()).or_default();
        of_kind.state = state;
        // Two calls that ask at the same time both evaluate.
        if let Entry::Vacant(entry) = of_kind.answers.entry(Arc::clone(query)) {
            entry.insert(answer);
            of_kind.bytes += bytes;
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn query(kind: &str, limit: u32) -> Arc<CompiledQuery> {
        Arc::new(Query { limit: Some(limit), ..Query::all(Kind::new("v1", kind)) }.compile().unwrap())
    }

    fn answer(text: &str) -> Answer<'_> {
        Answer { text, hash: 7, objects: FROM_OBJECTS, looks: 1 }
    }

    #[test]
    fn an_answer_counts_for_its_query_in_one_state_of_the_kind() {
        let answers = Answers::default();
        let [node, other] = [1, 2].map(|limit| query("Node", limit));
        answers.keep(&node, (5, 0), answer("[]"));
        assert_eq!(answers.get(&node, (5, 0)).map(|known| known.hash), Some(7));
        assert!(answers.get(&other, (5, 0)).is_none() && answers.get(&query("Pod", 1), (5, 0)).is_none());
        assert!(answers.get(&node, (6, 0)).is_none() && answers.get(&node, (5, 1)).is_none());
    }

    #[test]
    fn a_later_state_drops_the_answers_of_its_kind_and_an_earlier_one_changes_nothing() {
        let answers = Answers::default();
        for (kind, limit) in [("Node", 1), ("Node", 2), ("Pod", 1)] {
            answers.keep(&query(kind, limit), (5, 0), answer("[]"));
        }
        answers.keep(&query("Node", 1), (5, 1), answer("[1]"));
        answers.keep(&query("Node", 1), (4, 9), answer("[]"));
        answers.keep(&query("Node", 2), (4, 9), answer("[]"));
        assert_eq!(answers.get(&query("Node", 1), (5, 1)).map(|known| known.text), Some("[1]".into()));
        assert!(answers.get(&query("Node", 2), (5, 1)).is_none() && answers.get(&query("Pod", 1), (5, 0)).is_some());
        [query("Node", 1), query("Pod", 1)].iter().for_each(|query| drop(answers.forget(&query.kind)));
        let kept = answers.0.lock().unwrap();
        assert!(kept.kinds.is_empty() && kept.bytes == 0);
    }

    #[test]
    fn an_answer_of_few_objects_is_kept_only_if_it_took_long() {
        let answers = Answers::default();
        let few = Answer { objects: FROM_OBJECTS - 1, ..answer("[]") };
        answers.keep(&query("Node", 1), (1, 0), Answer { looks: FROM_LOOKS - 1, ..few });
        answers.keep(&query("Node", 2), (1, 0), Answer { looks: FROM_LOOKS, ..few });
        assert!(answers.get(&query("Node", 1), (1, 0)).is_none());
        assert!(answers.get(&query("Node", 2), (1, 0)).is_some());
    }

    #[test]
    fn answers_are_bounded_one_by_one_and_in_all() {
        let answers = Answers::default();
        // The next size that an allocator has is a MiB.
        let largest = "x".repeat((896 << 10) - 24);
        answers.keep(&query("Node", 0), (1, 0), answer(&format!("{largest}x")));
        assert!(answers.get(&query("Node", 0), (1, 0)).is_none());
        for number in 1..=100 {
            answers.keep(&query("Node", number), (1, 0), answer(&largest));
            answers.keep(&query("Node", number), (1, 0), answer(&largest));
            let kept = answers.0.lock().unwrap();
            let entries: usize = kept.kinds.values().map(|of_kind| of_kind.answers.len()).sum();
            assert!((entries * largest.len()..=ANSWERS_BYTES).contains(&kept.bytes), "{} bytes", kept.bytes);
        }
        assert!(answers.get(&query("Node", 100), (1, 0)).is_some());
    }
}
