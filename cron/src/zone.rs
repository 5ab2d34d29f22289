//! A zone's clock: which wall minutes have ticked by an instant, and the instant of a wall minute. Knows no
//! expressions.
//!
//! Both follow from one definition: a wall minute ticks at the first instant at which the clock shows it or has passed
//! it.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase, TimeZoneTransition};
use jiff::{SignedDuration, Timestamp};

use crate::calendar::Walls;

/// No clock is further from UTC; jiff's own bound is a second less.
const FARTHEST: SignedDuration = SignedDuration::from_hours(26);
/// A clock that was set back repeats wall times for less than this, the distance between the two farthest zones.
const REPEATED: SignedDuration = SignedDuration::from_hours(52);
const INSTANT: SignedDuration = SignedDuration::from_nanos(1);
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How much of a zone's name an error quotes; the longest real one has 32 letters.
const QUOTED_CHARS: usize = 60;

pub(crate) struct Zone(TimeZone);

impl Zone {
    /// Finds a zone in the database that is compiled in.
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
        // Minutes that the clock showed before it was set back have ticked as well.
        let recent = self.0.preceding(later(at)).take_while(|jump| at.duration_since(jump.timestamp()) < REPEATED);
        recent.map(|jump| minute_from(self.before(&jump))).fold(next, DateTime::max)
    }

    /// The tick of a wall minute; None beyond the last representable instant.
    pub(crate) fn tick_of(&self, wall: DateTime) -> Option<Timestamp> {
        let mut from = Offset::UTC.to_timestamp(wall.saturating_sub(FARTHEST)).ok()?;
        // Terminates: each jump is later, up to one beyond the wall time in every zone.
        loop {
            let tick = self.0.to_offset(from).to_timestamp(wall).ok()?.max(from);
            match self.0.following(from).next() {
                Some(jump) if jump.timestamp() <= tick => from = jump.timestamp(),
                _ => return Some(tick),
            }
        }
    }

    /// For each jump forward of the clock within (after, until], the wall minutes that tick at its instant.
    pub(crate) fn jumps(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Walls> {
        let within = self.0.following(after).take_while(move |jump| jump.timestamp() <= until);
        let forward = within.filter(|jump| jump.offset() > self.0.to_offset(earlier(jump.timestamp())));
        forward.map(|jump| self.first_later(earlier(jump.timestamp()))..self.first_later(jump.timestamp()))
    }

    /// What the clock would show at a jump without it.
    fn before(&self, jump: &TimeZoneTransition<'_>) -> DateTime {
        self.0.to_offset(earlier(jump.timestamp())).to_datetime(jump.timestamp())
    }
}

/// The whole minute of a wall time.
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
