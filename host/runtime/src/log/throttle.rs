//! Which occurrences of an error that repeats are logged: the first, the tenth, the hundredth and so on, and the next
//! one after ten minutes. Whom it is about, a subject and a message come in; how often it occurred comes out. It keeps
//! no text.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_core::tenant::share_name;

use super::budget::HOST;

/// An error that still repeats after this time is logged again: the first line may have been rotated away.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// How often those that are not recent are looked for, where there is no room.
const SWEEP: Duration = Duration::from_secs(1);
/// Different messages of one subject in that time. Guests choose theirs, of up to a KiB each.
const MAX_MESSAGES: usize = 8;
/// Subjects that are remembered, 300 bytes each at most. While there are as many recent ones, further ones are not logged.
const MAX_SUBJECTS: usize = 1_024;
/// Those of one share. An object whose writes fail is a subject, and some plugins have thousands.
const OF_SHARE: usize = 256;
/// What a share has also when the others have all: the first lines of what fails first.
const OWN: usize = 16;

/// Decides which errors to log. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By the hashes of share and subject.
    subjects: HashMap<(u64, u64), Subject>,
    by_share: BTreeMap<u64, usize>,
    /// When those that are not recent were last forgotten.
    swept: Option<Instant>,
}

impl State {
    fn has_room(&self, share: u64) -> bool {
        let of_share = self.by_share.get(&share).copied().unwrap_or_default();
        of_share < OWN || (of_share < OF_SHARE && self.subjects.len() < MAX_SUBJECTS)
    }

    /// Looks at all of them once a second at most, since a plugin may come here with every write.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP) {
            return;
        }
        self.swept = Some(now);
        self.subjects.retain(|_, subject| subject.is_recent(now));
        self.by_share.clear();
        for (share, _) in self.subjects.keys() {
            *self.by_share.entry(*share).or_default() += 1;
        }
    }
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
    /// Counts a message about a subject, which is a plugin's or one of its controllers', or of the host. None when it
    /// is not logged.
    pub(crate) fn count(
        &self,
        now: Instant,
        about: Option<&str>,
        subject: impl Hash,
        message: impl Hash,
    ) -> Option<Occurrence> {
        let plugin = about.map(|about| about.split_once('/').map_or(about, |(plugin, _)| plugin));
        let share = plugin.map_or_else(|| hash(HOST), |plugin| hash(&*share_name(plugin)));
        let (subject, message) = ((share, hash(subject)), hash(message));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = state.subjects.get_mut(&subject).filter(|known| known.is_recent(now)) {
            return known.count(message);
        }
        let before = state.subjects.get(&subject);
        let same = before.and_then(|known| known.messages.iter().find(|it| it.message == message));
        let repeated = same.map(|same| same.times);
        if before.is_none() {
            if !state.has_room(share) {
                state.sweep(now);
                if !state.has_room(share) {
                    return None;
                }
            }
            *state.by_share.entry(share).or_default() += 1;
        }
        let messages = vec![Counted { message, times: repeated.unwrap_or_default() + 1 }];
        state.subjects.insert(subject, Subject { since: now, messages, others: 0 });
        Some(Occurrence::New { repeated })
    }
}

impl Subject {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < REPEAT_AFTER
    }

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
    use crate::allocations::counted;
    use crate::testing::check_counted;

    const NEW: Option<Occurrence> = Some(Occurrence::New { repeated: None });

    #[test]
    fn a_repeated_error_is_logged_when_it_changes_and_after_ten_minutes_with_how_often_it_was_there() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let count = |seconds, subject: &str, message: &str| {
            throttle.count(now + Duration::from_secs(seconds), None, subject, message)
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
        let logged: Vec<Occurrence> = (0..1_000).filter_map(|_| throttle.count(now, None, "guest", "trap")).collect();
        let [ten, hundred, thousand] = [10, 100, 1_000].map(Occurrence::Repeated);
        assert_eq!(logged, [Occurrence::New { repeated: None }, ten, hundred, thousand]);
    }

    #[test]
    fn memory_and_log_are_bounded_for_any_number_of_messages_and_subjects() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let count = |about, subject: usize, message: usize| throttle.count(now, about, subject, message);
        let logged: Vec<Occurrence> = (0..1_008).filter_map(|message| count(None, 0, message)).collect();
        assert_eq!(logged[..MAX_MESSAGES], [Occurrence::New { repeated: None }; MAX_MESSAGES]);
        assert_eq!(logged[MAX_MESSAGES..], [1, 10, 100, 1_000].map(Occurrence::Others));
        let logged = (0..10_000).filter(|subject| count(None, *subject, 0).is_some()).count();
        assert_eq!(logged, OF_SHARE - 1);
        assert_eq!(throttle.state.lock().unwrap().subjects.len(), OF_SHARE);
        assert_eq!(throttle.count(now + REPEAT_AFTER, None, "another", ""), NEW);
    }

    #[test]
    fn q4_subjects_have_so_many_bytes_however_many_messages_they_have() {
        let (count, throttle) = counted(|| {
            let (throttle, now) = (Throttle::default(), Instant::now());
            for share in 0..100 {
                let about = format!("loud-{share}");
                for subject in 0..OF_SHARE {
                    (0..MAX_MESSAGES).for_each(|message| _ = throttle.count(now, Some(&about), subject, message));
                }
            }
            throttle
        });
        let subjects = throttle.state.lock().unwrap().subjects.len();
        check_counted(&format!("errors that repeat, {subjects} subjects"), subjects * 300, &count);
    }

    /// Its thousand failing writes were all that could be remembered for ten minutes.
    #[test]
    fn q4_a_plugin_whose_errors_have_ever_new_subjects_silences_no_first_error_of_another() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let new = |about: Option<&str>, subjects: usize| {
            (0..subjects).filter(|subject| throttle.count(now, about, subject, "forbidden") == NEW).count()
        };
        assert_eq!(new(Some("loud/PodSet"), 10_000), OF_SHARE);
        assert_eq!(new(Some("loud/CronTab"), 10), 0, "its controllers are one");
        assert_eq!((new(Some("quiet"), 100), new(None, 100)), (100, 100));
        let others: Vec<usize> = (0..100).map(|number| new(Some(&format!("loud-{number}")), 1_000)).collect();
        assert!(others[..2] == [OF_SHARE; 2] && others[10..].iter().all(|logged| *logged == OWN), "{others:?}");
        assert_eq!((new(Some("team.one"), OWN), new(Some("team.two/Foo"), 100)), (OWN, 0), "a tenant is one");
        let state = throttle.state.lock().unwrap();
        assert!(state.subjects.len() <= MAX_SUBJECTS + OWN * state.by_share.len());
    }
}
