//! Forty zones over ten years against an oracle that checks every wall minute which a zone's clock passes. It shares
//! neither code nor idea with what it checks: it matches expressions by their text, and its time only moves forward.
//!
//! It checks the hours around each jump of a zone's clock and some ordinary days. Counts cover the rest: ten years have
//! as many ticks as their parts.

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use super::{latest, ms, next, rfc3339};

/// Zones with every kind of clock: no jumps, and jumps of an hour, half an hour, two hours and a day, at midnight and
/// in the afternoon, around Ramadan, forward for good and back for good.
const ZONES: &str = "\
    UTC Europe/Berlin Europe/London Europe/Dublin Europe/Lisbon Europe/Moscow Europe/Istanbul Europe/Samara \
    Europe/Chisinau Atlantic/Azores Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Tripoli Africa/Windhoek \
    Africa/Juba America/New_York America/St_Johns America/Los_Angeles America/Caracas America/Sao_Paulo \
    America/Santiago America/Havana America/Asuncion America/Nuuk America/Argentina/San_Luis America/Port-au-Prince \
    Antarctica/Troll Antarctica/Casey Asia/Tehran Asia/Amman Asia/Gaza Asia/Pyongyang Asia/Kolkata Asia/Dhaka \
    Asia/Ulaanbaatar Australia/Lord_Howe Pacific/Apia Pacific/Chatham Pacific/Fiji";

/// Ten years in which Samoa skipped a day, Caracas and Pyongyang moved by half an hour, and Casablanca's clocks went
/// back for Ramadan.
const YEARS: [&str; 2] = ["2007-06-01T00:00:00Z", "2017-06-01T00:00:00Z"];

/// Every minute, some of every hour, at night where clocks jump, at the ends of days, rare days, and irregular ones.
const EXPRESSIONS: [&str; 7] =
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "15,45 0-3 * * *", "0 0,12 * * *", "59 23 1,15 * 0", "20 */2 */3 * 1-5"];

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// The window around a jump: longer than any of these clocks is set back.
const AROUND: SignedDuration = SignedDuration::from_hours(4);

#[test]
fn forty_zones_over_ten_years_have_no_duplicate_and_no_silent_miss() {
    let mut ticks = 0;
    for name in ZONES.split(' ') {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        for (from, until) in windows(&zone) {
            ticks += check(&zone, name, from, until);
        }
    }
    assert!(ticks > 500_000, "{ticks} ticks");
}

#[test]
fn the_count_of_ten_years_is_the_sum_of_its_parts() {
    let [from, until] = YEARS.map(ms);
    for zone in ZONES.split(' ') {
        for expression in EXPRESSIONS {
            let count = |from, until| latest(expression, zone, from, until).unwrap().map_or(0, |(_, count)| count);
            // Parts of about five weeks.
            let ends: Vec<u64> = (0..=100).map(|part| from + (until - from) / 100 * part).collect();
            let parts: u64 = ends.windows(2).map(|part| count(part[0], part[1])).sum();
            assert_eq!(count(ends[0], ends[100]), parts, "{expression} in {zone}");
        }
    }
}

/// The windows around each jump, and six days at different times of different years.
fn windows(zone: &TimeZone) -> Vec<(Timestamp, Timestamp)> {
    let [from, until] = YEARS.map(|at| at.parse::<Timestamp>().unwrap());
    let jumps = zone.following(from).map(|jump| jump.timestamp()).take_while(|at| *at < until);
    let around = jumps.map(|at| (at - AROUND, at + AROUND));
    let apart = SignedDuration::from_hours(607 * 24 + 5);
    let days = (0..6).map(|n| from + apart * n).map(|at| (at, at + SignedDuration::from_hours(24)));
    around.chain(days).collect()
}

/// Checks every expression within a window. Returns the number of ticks.
fn check(zone: &TimeZone, name: &str, from: Timestamp, until: Timestamp) -> usize {
    let passed = passed(zone, from, until);
    let (from, until) = (from.as_millisecond() as u64, until.as_millisecond() as u64);
    let mut ticks = 0;
    for expression in EXPRESSIONS {
        let mut expected: Vec<u64> =
            passed.iter().filter(|(_, wall)| is_meant(expression, *wall)).map(|(at, _)| *at).collect();
        expected.dedup();
        let (mut found, mut after) = (Vec::new(), from);
        while let Some(tick) = next(expression, name, after).unwrap().filter(|tick| *tick <= until) {
            assert!(tick > after, "{expression} in {name}: {} comes after {}", rfc3339(tick), rfc3339(after));
            found.push(tick);
            after = tick;
        }
        let different = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        let report = |(found, expected): (&u64, &u64)| format!("{} instead of {}", rfc3339(*found), rfc3339(*expected));
        assert_eq!(different.map(report), None, "{expression} in {name}");
        assert_eq!(found.len(), expected.len(), "{expression} in {name} from {from} to {until}");
        let last = expected.last().map(|last| (*last, expected.len() as u64));
        assert_eq!(latest(expression, name, from, until), Ok(last), "{expression} in {name} from {from} to {until}");
        ticks += found.len();
    }
    ticks
}

/// The wall minutes that a zone's clock passes for the first time within (from, until], each with the instant. Starts
/// earlier, to know which minutes the clock has shown already.
fn passed(zone: &TimeZone, from: Timestamp, until: Timestamp) -> Vec<(u64, DateTime)> {
    let mut at = from - AROUND;
    let mut shown = zone.to_datetime(at);
    let mut passed = Vec::new();
    while at < until {
        at += MINUTE;
        let now = zone.to_datetime(at);
        while shown < now {
            shown += MINUTE;
            if at > from {
                passed.push((at.as_millisecond() as u64, shown));
            }
        }
    }
    passed
}

/// Whether an expression matches a wall minute, by its text.
fn is_meant(expression: &str, wall: DateTime) -> bool {
    let fields: Vec<&str> = expression.split(' ').collect();
    let weekday = wall.weekday().to_sunday_zero_offset();
    let day = field_means(fields[2], wall.day(), 1);
    let weekday = field_means(fields[4], weekday, 0) || field_means(fields[4], weekday + 7, 0) && weekday == 0;
    let open = fields[2].starts_with('*') || fields[4].starts_with('*');
    field_means(fields[0], wall.minute(), 0)
        && field_means(fields[1], wall.hour(), 0)
        && field_means(fields[3], wall.month(), 1)
        && if open { day && weekday } else { day || weekday }
}

fn field_means(field: &str, value: i8, min: i8) -> bool {
    field.split(',').any(|item| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
            None if range == "*" => (min, i8::MAX),
            None => (range.parse().unwrap(), range.parse().unwrap()),
        };
        (first..=last).contains(&value) && (value - first) % step.parse::<i8>().unwrap() == 0
    })
}
