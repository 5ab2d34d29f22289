//! Logs an error that repeats with each retry only when it changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An error that still repeats after this time is logged again: the first line may have been rotated away.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Different messages of one subject in that time. Guests choose theirs, of up to 8 KiB each.
const MAX_MESSAGES: usize = 8;
/// Subjects that are remembered, some 100 bytes each. While there are as many recent ones, further ones are not logged.
const MAX_SUBJECTS: usize = 1_024;

/// Decides which errors to log. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    subjects: Arc<Mutex<HashMap<u64, Subject>>>,
}

#[derive(Debug)]
struct Subject {
    since: Instant,
    messages: Vec<u64>,
}

impl Throttle {
    /// Whether to log this message about a subject.
    pub(crate) fn is_new(&self, now: Instant, subject: impl Hash, message: impl Hash) -> bool {
        let (subject, message) = (hash(subject), hash(message));
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |subject: &Subject| now.saturating_duration_since(subject.since) < REPEAT_AFTER;
        if subjects.get(&subject).is_none_or(|subject| !is_recent(subject)) {
            if subjects.len() >= MAX_SUBJECTS {
                subjects.retain(|_, subject| is_recent(subject));
            }
            if subjects.len() >= MAX_SUBJECTS {
                return false;
            }
            subjects.insert(subject, Subject { since: now, messages: vec![message] });
            return true;
        }
        let Some(subject) = subjects.get_mut(&subject) else { return false };
        let is_new = subject.messages.len() < MAX_MESSAGES && !subject.messages.contains(&message);
        if is_new {
            subject.messages.push(message);
        }
        is_new
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_error_is_logged_when_it_changes_and_after_ten_minutes() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let is_new = |seconds, subject: &str, message: &str| {
            throttle.is_new(now + Duration::from_secs(seconds), subject, message)
        };
        assert!(is_new(0, "a", "forbidden") && is_new(0, "b", "forbidden"));
        assert!(!is_new(1, "a", "forbidden") && !is_new(599, "a", "forbidden"));
        assert!(is_new(2, "a", "invalid") && !is_new(3, "a", "forbidden"));
        assert!(is_new(600, "a", "forbidden"));
    }

    #[test]
    fn memory_and_log_are_bounded_for_any_number_of_messages_and_subjects() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let logged = (0..1_000).filter(|message| throttle.is_new(now, "guest", message)).count();
        assert_eq!(logged, MAX_MESSAGES);
        let logged = (0..10_000).filter(|subject| throttle.is_new(now, subject, "")).count();
        assert_eq!(logged, MAX_SUBJECTS - 1);
        assert_eq!(throttle.subjects.lock().unwrap().len(), MAX_SUBJECTS);
        assert!(throttle.is_new(now + REPEAT_AFTER, "another", ""));
    }
}
