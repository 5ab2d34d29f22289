//! Cron: an expression, an IANA zone and instants in Unix milliseconds in, the instants at which it fires out. [`next`]
//! and [`latest`] are the contract's interface `schedule`; the host serves guests with them, and the SDK native tests.
//! Pure: no clock, no I/O, and the same time zone database everywhere.
//!
//! # When it fires
//!
//! An expression is a set of wall minutes. A zone's clock jumps, so a wall minute may come twice or never; either way
//! it fires once, **at the first instant at which the clock shows it or has passed it**. Hence a repeated wall time
//! runs the first time only, also that of `* * * * *`; skipped ones run together at the first instant after the jump.
//! Each wall time has one instant, so nothing can run twice.
//!
//! # Why the matching is our own
//!
//! Cron libraries walk from one occurrence to the next: ten years of a schedule of minutes are five million steps, and
//! a guest chooses how many. Here both functions are arithmetic on bits: a month is a word with a bit for each day, so
//! costs grow with the months and with the jumps of a zone's clock between two instants, never with missed ticks.
//! (croner, the best maintained of them, also runs schedules with wildcards in both passes of a repeated hour.)
//! Calendar and zones are jiff's.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

use jiff::Timestamp;

use crate::expression::Expression;
use crate::zone::Zone;

mod calendar;
mod expression;
#[cfg(test)]
mod tests;
mod zone;

/// The first instant strictly after `after_ms` at which the expression fires in the IANA zone; None when there is none.
/// Nothing fires after the year 9999.
///
/// ```
/// // From midnight to nine o'clock on 1 July 2026, a Wednesday.
/// assert_eq!(mortise_cron::next("0 9 * * mon-fri", "Europe/Berlin", 1_782_856_800_000), Ok(Some(1_782_889_200_000)));
/// assert_eq!(mortise_cron::next("0 0 30 2 *", "UTC", 0), Ok(None));
/// ```
///
/// # Errors
/// The expression or the zone is invalid; the sentence quotes it and says what is wrong and where.
pub fn next(expression: &str, zone: &str, after_ms: u64) -> Result<Option<u64>, String> {
    let (expression, zone) = (Expression::parse(expression)?, Zone::named(zone)?);
    let Some(after) = timestamp(after_ms) else { return Ok(None) };
    let wall = expression.first_from(zone.first_later(after));
    Ok(wall.and_then(|wall| zone.tick_of(wall)).map(milliseconds))
}

/// The last instant at or before `until_ms` and strictly after `after_ms` at which the expression fires in the IANA
/// zone, and the number of such instants; None when there is none. Nothing fires after the year 9999.
///
/// ```
/// let (hour, day) = (3_600_000, 86_400_000);
/// assert_eq!(mortise_cron::latest("@hourly", "UTC", 0, day + 1), Ok(Some((day, 24))));
/// assert_eq!(mortise_cron::latest("@daily", "UTC", 0, hour), Ok(None));
/// ```
///
/// # Errors
/// As [`next`].
pub fn latest(expression: &str, zone: &str, after_ms: u64, until_ms: u64) -> Result<Option<(u64, u64)>, String> {
    let (expression, zone) = (Expression::parse(expression)?, Zone::named(zone)?);
    let Some(after) = timestamp(after_ms) else { return Ok(None) };
    let until = timestamp(until_ms).unwrap_or(Timestamp::MAX);
    if until <= after {
        return Ok(None);
    }
    let (from, to) = (zone.first_later(after), zone.first_later(until));
    let Some(wall) = expression.last_before(to).filter(|wall| *wall >= from) else { return Ok(None) };
    let Some(tick) = zone.tick_of(wall) else { return Ok(None) };
    // The wall minutes that one jump skips fire together.
    let merged = |skipped: calendar::Walls| expression.count(skipped).saturating_sub(1);
    let count = expression.count(from..to) - zone.jumps(after, until).map(merged).sum::<u64>();
    Ok(Some((milliseconds(tick), count)))
}

/// None is later than any tick.
fn timestamp(unix_ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()
}

fn milliseconds(tick: Timestamp) -> u64 {
    u64::try_from(tick.as_millisecond()).expect("a tick is later than the start, which is not before 1970")
}
