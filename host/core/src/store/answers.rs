//! The answers to queries that many calls ask: the first call evaluates one for all, until its kind changes. This file
//! does not know how an answer is made.

use std::sync::{Arc, Mutex, PoisonError};

use crate::map::Map;
use crate::query::CompiledQuery;

/// Looks at objects from which on an answer is kept. Fewer take little longer than to find the answer, and most queries
/// that name the reconciled object, which no other call asks, select few.
const FROM_LOOKS: u64 = 16;
/// Bytes of one answer that is kept: five fields of some thousand Nodes. A larger one takes most of its time in the
/// guest.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes of all answers, which belong to no plugin. When they are full they are dropped, and the next calls evaluate
/// again.
const ANSWERS_BYTES: usize = 16 << 20;

/// The objects that a query selects.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// One JSON array.
    pub text: Arc<str>,
    pub hash: u64,
    /// Looks at objects that it took.
    pub looks: u64,
}

/// The last answer to each query, with the number of the kind's changes then.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    answers: Map<Arc<CompiledQuery>, (u64, Answer)>,
    bytes: usize,
}

impl Answers {
    /// The answer in a state of the kind.
    pub(super) fn get(&self, query: &CompiledQuery, changes: u64) -> Option<Answer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.answers.get(query).filter(|(at, _)| *at == changes).map(|(_, answer)| answer.clone())
    }

    pub(super) fn keep(&self, query: &Arc<CompiledQuery>, changes: u64, answer: &Answer) {
        let bytes = query.bytes() + answer.text.len();
        if answer.looks < FROM_LOOKS || bytes > ANSWER_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The equal query that is kept may take other bytes than this one.
        if let Some((known, (_, before))) = kept.answers.remove_entry(query) {
            kept.bytes -= known.bytes() + before.text.len();
        }
        if kept.bytes + bytes > ANSWERS_BYTES {
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        kept.answers.insert(Arc::clone(query), (changes, answer.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;
    use crate::query::Query;

    fn query(limit: u32) -> Arc<CompiledQuery> {
        Arc::new(Query { limit: Some(limit), ..Query::all(Kind::new("v1", "Node")) }.compile().unwrap())
    }

    fn answer(bytes: usize) -> Answer {
        Answer { text: "x".repeat(bytes).into(), hash: 7, looks: FROM_LOOKS }
    }

    #[test]
    fn an_answer_counts_for_its_query_in_one_state_of_the_kind() {
        let answers = Answers::default();
        answers.keep(&query(1), 5, &answer(3));
        assert_eq!(answers.get(&query(1), 5).map(|known| known.hash), Some(7));
        assert!(answers.get(&query(2), 5).is_none() && answers.get(&query(1), 6).is_none());
        answers.keep(&query(2), 5, &Answer { looks: FROM_LOOKS - 1, ..answer(3) });
        assert!(answers.get(&query(2), 5).is_none());
    }

    #[test]
    fn answers_are_bounded_one_by_one_and_in_all() {
        let answers = Answers::default();
        answers.keep(&query(0), 1, &answer(ANSWER_BYTES));
        assert!(answers.get(&query(0), 1).is_none());
        let largest = ANSWER_BYTES - query(1).bytes();
        for number in 1..=100 {
            answers.keep(&query(number), 1, &answer(largest));
            answers.keep(&query(number), 2, &answer(largest));
            let kept = answers.0.lock().unwrap();
            assert_eq!(kept.bytes, kept.answers.len() * ANSWER_BYTES);
            assert!(kept.bytes <= ANSWERS_BYTES);
        }
        assert!(answers.get(&query(100), 2).is_some());
    }
    #[test]
    fn an_equal_query_that_takes_other_bytes_replaces_the_answer_and_its_bytes() {
        let [less, more] = ["metadata.name", r#"metadata["name"]"#].map(|field| {
            let query = Query { fields: vec![field.to_owned()], ..Query::all(Kind::new("v1", "Node")) };
            Arc::new(query.compile().unwrap())
        });
        assert!(less == more && less.bytes() < more.bytes());
        let answers = Answers::default();
        answers.keep(&less, 1, &answer(0));
        answers.keep(&more, 2, &answer(0));
        assert_eq!(answers.0.lock().unwrap().bytes, more.bytes());
    }
}
