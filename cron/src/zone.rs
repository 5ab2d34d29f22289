//! A zone's clock: which wall minutes have come by an instant, and the instant of a wall minute. Knows no expressions.
//!
//! Both directions are one definition, so that they cannot disagree: a wall minute's tick is the first instant at which
//! the clock shows it or has passed it.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase, TimeZoneTransition};
use jiff::{SignedDuration, Timestamp};

use crate::calendar::Walls;

/// No clock is further from UTC; jiff's own bound is a second less.
const FARTHEST: SignedDuration = SignedDuration::from_hours(26);
/// A clock that was set back shows again what it showed before for less than this, the distance from the one farthest zone
/// to the other.
const REPEATED: SignedDuration = SignedDuration::from_hours(52);
/// The smallest step of time.
const INSTANT: SignedDuration = SignedDuration::from_nanos(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How much of a zone's name is quoted; the longest real one has 32 letters.
const QUOTED_CHARS: usize = 60;

/// An IANA time zone.
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// Finds a zone in the database that is part of this program.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
        found.map(Self).ok_or_else(|| {
            let quoted: String = name.chars().take(QUOTED_CHARS).collect();
            format!("{quoted:?} is not a time zone of the IANA database, such as \"UTC\" or \"Europe/Berlin\"")
        })
    }

    /// The first wall minute that ticks after an instant. All earlier ones have ticked by then.
    pub(crate) fn first_later(&self, at: Timestamp) -> DateTime {
        let next = begun(self.0.to_offset(at).to_datetime(at)).saturating_add(MINUTE);
        // What the clock showed before it was set back has ticked, too.
        let recent = self.0.preceding(later(at)).take_while(|jump| at.duration_since(jump.timestamp()) < REPEATED);
        recent.map(|jump| minute_from(self.before(&jump))).fold(next, DateTime::max)
    }

    /// The tick of a wall minute; None when it lies beyond the end of time.
    pub(crate) fn tick_of(&self, wall: DateTime) -> Option<Timestamp> {
        let mut from = Offset::UTC.to_timestamp(wall.saturating_sub(FARTHEST)).ok()?;
        // From one jump to the next, each of which is later, up to one that lies beyond the wall time in every zone.
        loop {
            let tick = self.0.to_offset(from).to_timestamp(wall).ok()?.max(from);
            match self.0.following(from).next() {
                Some(jump) if jump.timestamp() <= tick => from = jump.timestamp(),
                _ => return Some(tick),
            }
        }
    }

    /// For each jump forward of the clock within (after, until], the wall minutes that tick at its very instant.
    pub(crate) fn jumps(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Walls> {
        let within = self.0.following(after).take_while(move |jump| jump.timestamp() <= until);
        let forward = within.filter(|jump| jump.offset() > self.0.to_offset(earlier(jump.timestamp())));
        forward.map(|jump| self.first_later(earlier(jump.timestamp()))..self.first_later(jump.timestamp()))
    }

    /// What the clock would have shown at a jump, had it not jumped.
    fn before(&self, jump: &TimeZoneTransition<'_>) -> DateTime {
        self.0.to_offset(earlier(jump.timestamp())).to_datetime(jump.timestamp())
    }
}

/// The minute that a wall time lies in.
fn begun(wall: DateTime) -> DateTime {
    wall.date().at(wall.hour(), wall.minute(), 0, 0)
}

/// The first whole minute at or after a wall time.
fn minute_from(wall: DateTime) -> DateTime {
    let begun = begun(wall);
    if begun == wall { wall } else { begun.saturating_add(MINUTE) }
}

fn earlier(at: Timestamp) -> Timestamp {
    at.saturating_sub(INSTANT).unwrap_or(Timestamp::MIN)
}

fn later(at: Timestamp) -> Timestamp {
    at.saturating_add(INSTANT).unwrap_or(Timestamp::MAX)
}
