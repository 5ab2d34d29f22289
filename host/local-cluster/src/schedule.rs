//! Cron schedules as kube-controller-manager reads them: five fields or a macro, in a time zone. Input: the text and an
//! instant. Output: the next instant at which it fires. It must not know CronJobs.
//!
//! A wall time that a zone's clock skips does not fire; one that it repeats may fire twice.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

/// How many days ahead a fire is looked for: the real parser gives up after five years, which is what 30 February needs.
const MAX_DAYS: usize = 5 * 366;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// Bits of minutes, hours, days, months and weekdays.
    Fields { minutes: u64, hours: u64, days: Days, months: u64, zone: TimeZone },
    /// `@every`: so long after the last.
    Every(SignedDuration),
}

/// Days of the month and of the week. If neither is `*`, one of both is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Days {
    of_month: u64,
    of_week: u64,
    either: bool,
}

impl Schedule {
    /// Reads a schedule; the error is what the real parser says.
    pub(crate) fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let (zone, text) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => rest.split_once(' ').map(|(zone, rest)| (Some(zone), rest)).unwrap_or((zone, rest)),
            None => (zone, text),
        };
        let name = zone.unwrap_or("UTC");
        let zone = TimeZone::get(name).map_err(|_| format!("provided bad location {name}"))?;
        let text = text.trim();
        if let Some(period) = text.strip_prefix("@every ") {
            let period = period.parse::<SignedDuration>();
            let period = period.map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            return Ok(Self::Every(SignedDuration::from_secs(period.as_secs().max(1))));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
            other => other,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minutes, hours, of_month, months, of_week] = fields.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let star = |field: &str| field.split(',').any(|part| matches!(part, "*" | "?" | "*/1" | "?/1"));
        // The first field that is wrong is the one that is named.
        let (minutes, hours) = (bits(minutes, (0, 59), &[])?, bits(hours, (0, 23), &[])?);
        let either = !star(of_month) && !star(of_week);
        let of_month = bits(of_month, (1, 31), &[])?;
        let months = bits(months, (1, 12), &MONTHS)?;
        let days = Days { of_month, of_week: bits(of_week, (0, 6), &WEEKDAYS)?, either };
        Ok(Self::Fields { minutes, hours, days, months, zone })
    }

    /// The first instant after another at which it fires, if there is one within five years.
    pub(crate) fn next(&self, from: Timestamp) -> Option<Timestamp> {
        let (minutes, hours, days, months, zone) = match self {
            Self::Every(period) => {
                let whole = Timestamp::from_second(from.as_second()).ok()?;
                return whole.checked_add(*period).ok();
            }
            Self::Fields { minutes, hours, days, months, zone } => (minutes, hours, days, months, zone),
        };
        let first = zone.to_datetime(from).date();
        let mut date = first;
        for _ in 0..MAX_DAYS {
            if bit(*months, date.month()) && days.has(date) {
                let start = date.to_zoned(zone.clone()).ok()?.timestamp();
                let start = if date == first { start.max(next_minute(from)?) } else { start };
                if let Some(found) = within(date, start, (*minutes, *hours), zone) {
                    return Some(found);
                }
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

impl Days {
    fn has(self, date: Date) -> bool {
        let of_week = bit(self.of_week, date.weekday().since(Weekday::Sunday));
        let of_month = bit(self.of_month, date.day());
        if self.either { of_month || of_week } else { of_month && of_week }
    }
}

fn bit(bits: u64, at: i8) -> bool {
    u32::try_from(at).is_ok_and(|at| bits.checked_shr(at).unwrap_or(0) & 1 == 1)
}

/// The whole minute after an instant.
fn next_minute(from: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second((from.as_second().div_euclid(60) + 1) * 60).ok()
}

/// The first instant of a date, from another on, whose wall time fits: by whole hours, then by minutes.
fn within(date: Date, start: Timestamp, (minutes, hours): (u64, u64), zone: &TimeZone) -> Option<Timestamp> {
    let mut at = start;
    loop {
        let wall = zone.to_datetime(at);
        if wall.date() != date {
            return None;
        }
        let step = match (bit(hours, wall.hour()), bit(minutes, wall.minute())) {
            (true, true) => return Some(at),
            (true, false) => 1,
            (false, _) => 60 - i64::from(wall.minute()),
        };
        at = at.checked_add(SignedDuration::from_mins(step)).ok()?;
    }
}

/// What is wrong with the schedule of a CronJob, whose time zone has a field of its own.
pub(crate) fn wrong(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = Schedule::parse(text, None).err().into_iter().collect();
    if text.contains("TZ") {
        wrong.push("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    wrong
}

/// The bits of a field: a list of `*`, numbers, names, ranges, each with a step. The names count from the lowest number.
fn bits(field: &str, (low, high): (u32, u32), names: &[&str]) -> Result<u64, String> {
    let mut bits = 0;
    for part in field.split(',').filter(|part| !part.is_empty()) {
        for at in range(part, (low, high), names)? {
            bits |= 1 << at;
        }
    }
    Ok(bits)
}

fn range(text: &str, (low, high): (u32, u32), names: &[&str]) -> Result<impl Iterator<Item = u32> + use<>, String> {
    let (span, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [span] => (*span, None),
        [span, step] => (*span, Some(*step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let value = |part: &str| match names.iter().zip(low..).find(|(name, _)| name.eq_ignore_ascii_case(part)) {
        Some((_, at)) => Ok(at),
        None => number(part),
    };
    let (first, last) = match span.split('-').collect::<Vec<_>>().as_slice() {
        ["*" | "?"] => (low, high),
        // `N/step` continues to the end.
        [one] if step.is_some() => (value(one)?, high),
        [one] => (value(one)?, value(one)?),
        [first, last] => (value(first)?, value(last)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step.map_or(Ok(1), number)?;
    if first < low {
        return Err(format!("beginning of range ({first}) below minimum ({low}): {text}"));
    }
    if last > high {
        return Err(format!("end of range ({last}) above maximum ({high}): {text}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok((first..=last).step_by(step as usize))
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_fire_when_their_fields_fit() {
        for (text, zone, from, expected) in [
            ("* * * * *", None, "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", None, "2026-01-01T00:01:30Z", "2026-01-01T00:15:00Z"),
            ("5/20 3 * * *", None, "2026-01-01T03:05:00Z", "2026-01-01T03:25:00Z"),
            ("0 9 * * mon-fri", Some("Europe/Berlin"), "2026-07-03T08:00:00Z", "2026-07-06T07:00:00Z"),
            // The month's day or the week's day, if both are given.
            ("0 0 13 * FRI", None, "2026-02-07T00:00:00Z", "2026-02-13T00:00:00Z"),
            ("0 0 1 * 1", None, "2026-01-02T00:00:00Z", "2026-01-05T00:00:00Z"),
            ("0 0 29 2 *", None, "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("@weekly", None, "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@every 1h30m", None, "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00Z"),
            ("TZ=Asia/Tokyo 0 0 * * *", None, "2026-01-01T00:00:00Z", "2026-01-01T15:00:00Z"),
            // 02:30 is skipped on 29 March 2026, and comes twice on 25 October.
            ("30 2 * * *", Some("Europe/Berlin"), "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 2 * * *", Some("Europe/Berlin"), "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ] {
            let schedule = Schedule::parse(text, zone).unwrap();
            let next = schedule.next(from.parse().unwrap()).map(|at| at.to_string());
            assert_eq!(next.as_deref(), Some(expected), "{text} from {from}");
        }
        let never = Schedule::parse("0 0 30 2 *", None).unwrap();
        assert_eq!(never.next(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_schedule_that_is_wrong_is_refused() {
        for (text, zone, expected) in [
            ("* * * *", None, "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", None, "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", None, "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", None, "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", None, "step of range should be a positive number: */0"),
            ("x * * * *", None, "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("-1 * * * *", None, "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1-2-3 * * * *", None, "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", None, "too many slashes: 1/2/3"),
            ("@often", None, "unrecognized descriptor: @often"),
            ("* * * * *", Some("Nowhere"), "provided bad location Nowhere"),
        ] {
            assert_eq!(Schedule::parse(text, zone).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn a_time_zone_is_no_part_of_the_field() {
        for text in ["*/5 * * * *", "0 0 1,15 jan-MAR mon", "@hourly", "@every 1h30m", "5-10/2 ? * * 0"] {
            assert_eq!(wrong(text), [""; 0], "{text}");
        }
        assert_eq!(wrong("TZ=UTC * * * * *"), ["cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]);
    }
}
