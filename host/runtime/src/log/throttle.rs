//! What was logged lately, so that an error that comes back with each retry is logged when it changes and not each time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An error that still comes back after so long is logged again: by then the first line may be rotated away.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Different messages of one subject in that time. A guest makes up its own, and each may have 8 KiB.
const MAX_MESSAGES: usize = 8;
/// Subjects that are remembered, some 100 bytes each. While that many are new, further ones are not logged.
const MAX_SUBJECTS: usize = 1_024;

/// Decides which errors are news. Clones share their memory.
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
    /// Whether this message about a subject is news.
    pub(crate) fn is_news(&self, now: Instant, subject: impl Hash, message: impl Hash) -> bool {
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
        let is_news = subject.messages.len() < MAX_MESSAGES && !subject.messages.contains(&message);
        if is_news {
            subject.messages.push(message);
        }
        is_news
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
    fn what_comes_back_is_news_when_it_changes_and_after_ten_minutes() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let is_news = |seconds, subject: &str, message: &str| {
            throttle.is_news(now + Duration::from_secs(seconds), subject, message)
        };
        assert!(is_news(0, "a", "forbidden") && is_news(0, "b", "forbidden"));
        assert!(!is_news(1, "a", "forbidden") && !is_news(599, "a", "forbidden"));
        assert!(is_news(2, "a", "invalid") && !is_news(3, "a", "forbidden"));
        assert!(is_news(600, "a", "forbidden"));
    }

    #[test]
    fn messages_and_subjects_without_end_take_a_bounded_memory_and_a_bounded_log() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let told = (0..1_000).filter(|message| throttle.is_news(now, "guest", message)).count();
        assert_eq!(told, MAX_MESSAGES);
        let told = (0..10_000).filter(|subject| throttle.is_news(now, subject, "")).count();
        assert_eq!(told, MAX_SUBJECTS - 1);
        assert_eq!(throttle.subjects.lock().unwrap().len(), MAX_SUBJECTS);
        assert!(throttle.is_news(now + REPEAT_AFTER, "another", ""));
    }
}
