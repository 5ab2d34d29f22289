//! Which occurrences of an error that repeats are logged: the first, the tenth, the hundredth and so on, and the next one
//! after ten minutes. A subject and a message come in; how often it occurred comes out. It keeps no text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An error that still repeats after this time is logged again: the first line may have been rotated away.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Different messages of one subject in that time. Guests choose theirs, of up to a KiB each.
const MAX_MESSAGES: usize = 8;
/// Subjects that are remembered, some 200 bytes each. While there are as many recent ones, further ones are not logged.
const MAX_SUBJECTS: usize = 1_024;

/// Decides which errors to log. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    subjects: Arc<Mutex<HashMap<u64, Subject>>>,
}

#[derive(Debug)]
struct Subject {
    since: Instant,
    messages: Vec<Counted>,
    /// Occurrences of further messages.
    others: u64,
}

/// A message, by its hash.
#[derive(Clone, Copy, Debug)]
struct Counted {
    message: u64,
    times: u64,
}

/// An occurrence that is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Occurrence {
    /// The first of this message in a while; with how often it occurred before.
    New {
        /// None: it is new.
        repeated: Option<u64>,
    },
    /// It is the same again, so many times.
    Repeated(u64),
    /// So many messages were not logged, since the subject has a new one each time.
    Others(u64),
}

impl Throttle {
    /// Counts a message about a subject. None when it is not logged.
    pub(crate) fn count(&self, now: Instant, subject: impl Hash, message: impl Hash) -> Option<Occurrence> {
        let (subject, message) = (hash(subject), hash(message));
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |subject: &Subject| now.saturating_duration_since(subject.since) < REPEAT_AFTER;
        if let Some(known) = subjects.get_mut(&subject).filter(|known| is_recent(known)) {
            return known.count(message);
        }
        let before = subjects.get(&subject).and_then(|known| known.messages.iter().find(|it| it.message == message));
        let repeated = before.map(|before| before.times);
        if before.is_none() && subjects.len() >= MAX_SUBJECTS {
            subjects.retain(|_, subject| is_recent(subject));
            if subjects.len() >= MAX_SUBJECTS {
                return None;
            }
        }
        let messages = vec![Counted { message, times: repeated.unwrap_or_default() + 1 }];
        subjects.insert(subject, Subject { since: now, messages, others: 0 });
        Some(Occurrence::New { repeated })
    }
}

impl Subject {
    fn count(&mut self, message: u64) -> Option<Occurrence> {
        if let Some(known) = self.messages.iter_mut().find(|known| known.message == message) {
            known.times += 1;
            return is_power_of_ten(known.times).then_some(Occurrence::Repeated(known.times));
        }
        if self.messages.len() < MAX_MESSAGES {
            self.messages.push(Counted { message, times: 1 });
            return Some(Occurrence::New { repeated: None });
        }
        self.others += 1;
        is_power_of_ten(self.others).then_some(Occurrence::Others(self.others))
    }
}

fn is_power_of_ten(number: u64) -> bool {
    number > 0 && 10_u64.pow(number.ilog10()) == number
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Option<Occurrence> = Some(Occurrence::New { repeated: None });

    #[test]
    fn a_repeated_error_is_logged_when_it_changes_and_after_ten_minutes_with_how_often_it_was_there() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let count = |seconds, subject: &str, message: &str| {
            throttle.count(now + Duration::from_secs(seconds), subject, message)
        };
        assert_eq!((count(0, "a", "forbidden"), count(0, "b", "forbidden")), (NEW, NEW));
        assert_eq!((count(1, "a", "forbidden"), count(599, "a", "forbidden")), (None, None));
        assert_eq!((count(2, "a", "invalid"), count(3, "a", "forbidden")), (NEW, None));
        assert_eq!(count(600, "a", "forbidden"), Some(Occurrence::New { repeated: Some(4) }));
        assert_eq!(count(601, "a", "invalid"), NEW);
    }

    #[test]
    fn an_error_that_occurs_a_thousand_times_has_four_lines_which_count_it() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let logged: Vec<Occurrence> = (0..1_000).filter_map(|_| throttle.count(now, "guest", "trap")).collect();
        let [ten, hundred, thousand] = [10, 100, 1_000].map(Occurrence::Repeated);
        assert_eq!(logged, [Occurrence::New { repeated: None }, ten, hundred, thousand]);
    }

    #[test]
    fn memory_and_log_are_bounded_for_any_number_of_messages_and_subjects() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let logged: Vec<Occurrence> = (0..1_008).filter_map(|message| throttle.count(now, "guest", message)).collect();
        assert_eq!(logged[..MAX_MESSAGES], [Occurrence::New { repeated: None }; MAX_MESSAGES]);
        assert_eq!(logged[MAX_MESSAGES..], [1, 10, 100, 1_000].map(Occurrence::Others));
        let logged = (0..10_000).filter(|subject| throttle.count(now, subject, "").is_some()).count();
        assert_eq!(logged, MAX_SUBJECTS - 1);
        assert_eq!(throttle.subjects.lock().unwrap().len(), MAX_SUBJECTS);
        assert_eq!(throttle.count(now + REPEAT_AFTER, "another", ""), NEW);
    }
}
