//! Which of a tenant's ConfigMaps is read next, and when: events of its watch come in, and come out again at the tenant's pace. The
//! newest state of each is read, in the order in which they first waited, so that one that changes all the time delays no other by
//! more than its turn. Deletions wait for nothing. It must not know how ConfigMaps are read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortise_core::object::Object;
use mortise_core::tenant::MAX_PLUGINS;
use mortise_core::watch::WatchEvent;
use tokio::time::Instant;

/// Between two ConfigMaps of a tenant that are read, once it has used up its burst: a component of 40 MiB takes a fifth of this.
const EACH: Duration = Duration::from_secs(1);
/// Between two of a list beyond those that are read, which are received and refused: at most 14 MB a second. A list of two
/// thousand ends within the 218 seconds that the API server keeps its watch open at least, and the five minutes of a page's token.
/// A longer one begins again after that time and has no end; its first sixteen are read.
const EACH_UNREAD: Duration = Duration::from_millis(100);
/// ConfigMaps that are read at once: all of a tenant's plugins, twice.
const BURST: u32 = 2 * MAX_PLUGINS as u32;
/// ConfigMaps that wait, of up to 1.4 MB of JSON each: all that a tenant may have. With more that change, the watch is not read on.
const WAITING: usize = MAX_PLUGINS;

/// What a tenant's watch has shown and nobody has read.
#[derive(Default)]
pub(super) struct Turns {
    waiting: VecDeque<Waiting>,
    /// Those that the present list has had, up to what is read of one.
    listed: usize,
}

enum Waiting {
    Object {
        object: Box<Object>,
        is_listed: bool,
    },
    /// The end of the list whose objects are before it.
    ListDone(WatchEvent),
}

impl Waiting {
    fn is(&self, other: &Object) -> bool {
        matches!(self, Self::Object { object, .. } if object.name == other.name)
    }
}

impl Turns {
    /// Takes an event. Returns what is passed on at once, and for how long the tenant has to wait for that.
    pub(super) fn take(&mut self, event: WatchEvent) -> Option<(WatchEvent, Duration)> {
        match event {
            WatchEvent::Applied(object) => {
                self.wait(object, false);
                None
            }
            WatchEvent::Listed(objects) => {
                objects.into_iter().for_each(|object| self.wait(object.into(), true));
                None
            }
            WatchEvent::ListDone(_) => {
                self.waiting.push_back(Waiting::ListDone(event));
                None
            }
            WatchEvent::Deleted(object) => {
                self.waiting.retain(|waiting| !waiting.is(&object));
                Some((WatchEvent::Deleted(object), Duration::ZERO))
            }
            WatchEvent::Listing => {
                // It shows again whatever waits.
                *self = Self::default();
                Some((event, EACH))
            }
            event => Some((event, Duration::ZERO)),
        }
    }

    fn wait(&mut self, newest: Box<Object>, is_listed: bool) {
        match self.waiting.iter_mut().find(|waiting| waiting.is(&newest)) {
            Some(Waiting::Object { object, .. }) => *object = newest,
            _ => self.waiting.push_back(Waiting::Object { object: newest, is_listed }),
        }
    }

    /// Whether nothing more of the watch should be read.
    pub(super) fn are_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// How long the first that waits takes; None: nothing waits.
    pub(super) fn work(&self) -> Option<Duration> {
        Some(match self.waiting.front()? {
            Waiting::ListDone(_) => Duration::ZERO,
            Waiting::Object { is_listed: true, .. } if self.listed >= MAX_PLUGINS => EACH_UNREAD,
            Waiting::Object { .. } => EACH,
        })
    }

    /// Takes the first that waits out.
    pub(super) fn next(&mut self) -> Option<WatchEvent> {
        Some(match self.waiting.pop_front()? {
            Waiting::ListDone(event) => event,
            Waiting::Object { object, is_listed: false } => WatchEvent::Applied(object),
            Waiting::Object { object, is_listed: true } => {
                self.listed = (self.listed + 1).min(MAX_PLUGINS);
                WatchEvent::Listed(vec![*object])
            }
        })
    }
}

/// Until when the ConfigMaps that were read take, at a tenant's pace. It outlives a watch that begins anew.
#[derive(Clone)]
pub(super) struct Pace(Arc<Mutex<Instant>>);

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// When something that takes this long may be read; None: at any time.
    pub(super) fn due(&self, now: Instant, work: Duration) -> Option<Instant> {
        let paid_until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (paid_until.max(now) + work).checked_sub(EACH * BURST)
    }

    /// It is read.
    pub(super) fn add(&self, now: Instant, work: Duration) {
        // A change is one store, so a panic under the lock leaves it whole.
        let mut paid_until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *paid_until = (*paid_until).max(now) + work;
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::object::ResourceVersion;

    use super::*;
    use crate::sources::listing::tests::config_map;

    fn shown(event: &WatchEvent) -> String {
        let names =
            |objects: &[Object]| objects.iter().map(|it| it.name.name.to_string()).collect::<Vec<_>>().join(",");
        match event {
            WatchEvent::Applied(object) => format!("applied {}", object.name.name),
            WatchEvent::Deleted(object) => format!("deleted {}", object.name.name),
            WatchEvent::Listed(objects) => format!("listed {}", names(objects)),
            WatchEvent::Listing => "listing".to_owned(),
            WatchEvent::ListDone(_) => "list done".to_owned(),
            event => format!("{event:?}"),
        }
    }

    impl Turns {
        fn at_once(&mut self, event: WatchEvent) -> String {
            self.take(event).map(|(event, _)| shown(&event)).unwrap_or_default()
        }

        fn turn(&mut self) -> String {
            self.next().as_ref().map(shown).unwrap_or_default()
        }
    }

    fn applied(name: &str) -> WatchEvent {
        WatchEvent::Applied(config_map(name))
    }

    #[test]
    fn g11_of_a_config_map_that_changes_all_the_time_the_newest_is_read_and_it_delays_no_other_by_more_than_a_turn() {
        let mut turns = Turns::default();
        let version = |version: u64| {
            let mut object = config_map("chatty");
            object.resource_version = ResourceVersion(version);
            WatchEvent::Applied(object)
        };
        (0..600).for_each(|number| assert_eq!(turns.at_once(version(number)), ""));
        turns.at_once(applied("new"));
        turns.at_once(version(600));
        let Some(WatchEvent::Applied(read)) = turns.next() else { panic!("nothing waits") };
        assert_eq!(read.resource_version, ResourceVersion(600));
        turns.at_once(version(601));
        assert_eq!([turns.turn(), turns.turn(), turns.turn()], ["applied new", "applied chatty", ""]);
    }

    #[test]
    fn g11_a_deletion_waits_for_nothing_and_what_waits_of_its_config_map_is_not_read() {
        let mut turns = Turns::default();
        turns.at_once(applied("other"));
        turns.at_once(applied("bad"));
        assert_eq!(turns.at_once(WatchEvent::Deleted(config_map("bad"))), "deleted bad");
        assert_eq!([turns.turn(), turns.turn()], ["applied other", ""]);
        turns.at_once(applied("bad"));
        assert_eq!(turns.turn(), "applied bad", "it is there again");
    }

    #[test]
    fn g11_a_list_ends_behind_its_objects_and_a_later_list_replaces_what_waits() {
        let mut turns = Turns::default();
        turns.at_once(applied("a"));
        assert_eq!(turns.at_once(WatchEvent::Listing), "listing");
        turns.at_once(WatchEvent::Listed(vec![*config_map("a"), *config_map("b")]));
        turns.at_once(WatchEvent::ListDone(ResourceVersion(1)));
        assert_eq!(turns.turn(), "listed a");
        turns.at_once(applied("b"));
        turns.at_once(applied("a"));
        assert_eq!([turns.turn(), turns.turn(), turns.turn()], ["listed b", "list done", "applied a"]);
        turns.at_once(WatchEvent::Listed(vec![*config_map("c")]));
        turns.at_once(WatchEvent::ListDone(ResourceVersion(2)));
        assert_eq!(turns.at_once(WatchEvent::Listing), "listing");
        assert_eq!(turns.turn(), "", "the new list shows it again");
    }

    #[test]
    fn g11_as_many_wait_as_a_tenant_may_have_and_those_of_a_list_beyond_them_take_less() {
        let mut turns = Turns::default();
        assert_eq!(turns.take(WatchEvent::Listing).map(|(_, work)| work), Some(EACH));
        for number in 0..MAX_PLUGINS {
            assert!(!turns.are_full(), "{number}");
            turns.at_once(WatchEvent::Listed(vec![*config_map(&number.to_string())]));
        }
        assert!(turns.are_full());
        for _ in 0..MAX_PLUGINS {
            assert_eq!(turns.work(), Some(EACH));
            turns.next();
        }
        assert!(!turns.are_full());
        turns.at_once(WatchEvent::Listed(vec![*config_map("beyond")]));
        assert_eq!(turns.work(), Some(EACH_UNREAD));
        turns.next();
        turns.at_once(WatchEvent::ListDone(ResourceVersion(1)));
        assert_eq!(turns.work(), Some(Duration::ZERO));
        turns.next();
        turns.at_once(applied("0"));
        assert_eq!(turns.work(), Some(EACH));
        turns.at_once(WatchEvent::Listing);
        turns.at_once(WatchEvent::Listed(vec![*config_map("0")]));
        assert_eq!(turns.work(), Some(EACH), "the next list");
    }

    #[test]
    fn g11_config_maps_are_read_at_a_pace_after_a_burst() {
        let began = Instant::now();
        let pace = Pace::new(began);
        for read in 1..=BURST {
            assert!(pace.due(began, EACH).is_none_or(|at| at <= began), "the burst, with {read}");
            pace.add(began, EACH);
        }
        for beyond in 1..=60 {
            assert_eq!(pace.due(began, EACH), Some(began + beyond * EACH));
            pace.add(began, EACH);
        }
        // A watch that begins anew has the same pace, and no new burst.
        let (again, later) = (pace.clone(), began + 60 * EACH);
        assert_eq!(again.due(later, EACH), Some(later + EACH));
        let rested = later + (BURST + 1) * EACH;
        let all = EACH * MAX_PLUGINS as u32;
        assert!(again.due(rested, all).is_none_or(|at| at <= rested), "after a rest all are read at once");
    }
}
