//! An instant: RFC 3339 text in JSON, Unix milliseconds in memory. It knows no clock and no time zone but UTC; the host
//! evaluates time zones, see [`Context::next_tick`]. No library, because one would take several times this file's size
//! in every component.
//!
//! [`Context::next_tick`]: crate::Context::next_tick

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * HOUR_MS;
const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;
/// Days of 400 years, after which the calendar repeats itself.
const CYCLE_DAYS: u64 = 146_097;
/// From 1 March of the year 0 to 1 January 1970. A year that begins in March has its leap day at its end.
const DAYS_BEFORE_1970: u64 = 719_468;
/// The last instant that has a year of four digits.
const MAX_UNIX_MS: u64 = 253_402_300_799_999;

/// An instant from 1970 to the end of the year 9999, to the millisecond. In a spec or a status it is Kubernetes' Time:
/// a string with the format `date-time`.
///
/// ```
/// use mortise_sdk::Timestamp;
///
/// let tick = Timestamp::from_unix_ms(1_767_225_600_000);
/// assert_eq!(tick.to_string(), "2026-01-01T00:00:00Z");
/// assert_eq!(Timestamp::parse("2026-01-01T01:00:00+01:00"), Some(tick));
/// assert_eq!(serde_json::to_string(&tick).unwrap(), "\"2026-01-01T00:00:00Z\"");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From milliseconds since 1970, such as [`Context::now_unix_ms`]. What is after the year 9999 becomes its last
    /// millisecond.
    ///
    /// [`Context::now_unix_ms`]: crate::Context::now_unix_ms
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        Self(if unix_ms < MAX_UNIX_MS { unix_ms } else { MAX_UNIX_MS })
    }

    /// Milliseconds since 1970.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// Parses RFC 3339 with any offset and any fraction of a second, of which it keeps milliseconds. None for anything
    /// else and for an instant before 1970 or after 9999.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't', ' '])?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let zone = time.find(['Z', 'z', '+', '-'])?;
        let (time, offset) = time.split_at(zone);
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        // A leap second has no Unix time of its own.
        let is_time = hour < 24 && minute < 60 && second <= 60;
        if !is_time || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
            return None;
        }
        let in_day = hour * HOUR_MS + minute * MINUTE_MS + second.min(59) * 1_000 + milliseconds(fraction)?;
        let days = days_to(year, month, day).checked_sub(DAYS_BEFORE_1970)?;
        let local = days * DAY_MS + in_day;
        let unix_ms = match offset.split_at(1) {
            ("+", ahead) => local.checked_sub(offset_ms(ahead)?)?,
            ("-", behind) => local + offset_ms(behind)?,
            (_, rest) => Some(local).filter(|_| rest.is_empty())?,
        };
        (unix_ms <= MAX_UNIX_MS).then_some(Self(unix_ms))
    }
}

/// Groups of digits between separators; each group has its given length.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (found, digits) in found.iter_mut().zip(digits) {
        let part =
            parts.next().filter(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *found = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// The first three digits of a fraction.
fn milliseconds(fraction: &str) -> Option<u64> {
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = fraction.bytes().chain(*b"00").take(3);
    is_fraction.then(|| digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn offset_ms(text: &str) -> Option<u64> {
    let [hours, minutes] = numbers(text, ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(hours * HOUR_MS + minutes * MINUTE_MS)
}

fn days_of(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 March of the year 0 to a date. It is wrong before that day, and the caller refuses everything before
/// 1970.
fn days_to(year: u64, month: u64, day: u64) -> u64 {
    let year = if month > 2 { year } else { year.saturating_sub(1) };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year
}

/// The date this many days after 1 March of the year 0.
fn date_of(days: u64) -> (u64, u64, u64) {
    let (cycle, day) = (days / CYCLE_DAYS, days % CYCLE_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

/// RFC 3339 in UTC; with a fraction only when there is one.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (year, month, day) = date_of(self.0 / DAY_MS + DAYS_BEFORE_1970);
        let (hour, minute) = (self.0 / HOUR_MS % 24, self.0 / MINUTE_MS % 60);
        let (second, ms) = (self.0 / 1_000 % 60, self.0 % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if ms > 0 { write!(f, ".{ms:03}Z") } else { f.write_str("Z") }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(["not a time such as 2026-01-01T00:00:00Z: ", &text].concat()))
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn days_of_eight_thousand_years_are_written_and_read_back() {
        // Every day of the first sixty years, then every 89th.
        for day in (0..22_000).chain((22_000..=2_932_896).step_by(89)) {
            let at = Timestamp::from_unix_ms(day * 86_400_000 + day);
            assert_eq!(Timestamp::parse(&at.to_string()), Some(at), "{at}");
        }
        assert_eq!(Timestamp::from_unix_ms(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (text, unix_ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2026-11-22T01:02:03Z", 1_795_309_323_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
            ("2038-01-19T03:14:07.250Z", 2_147_483_647_250),
        ] {
            assert_eq!(Timestamp::from_unix_ms(unix_ms).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp::from_unix_ms(unix_ms)), "{text}");
        }
    }

    #[test]
    fn offsets_and_fractions_are_parsed_and_invalid_times_are_not() {
        let at = Timestamp::parse("2026-01-01T00:00:00Z");
        for same in ["2026-01-01T05:30:00+05:30", "2025-12-31T19:00:00-05:00", "2026-01-01t00:00:00.0004z"] {
            assert_eq!(Timestamp::parse(same), at, "{same}");
        }
        assert_eq!(Timestamp::parse("2026-01-01T00:00:00.123456Z").unwrap().unix_ms() % 1_000, 123);
        for wrong in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-1-1T0:0:0Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+5:00",
            "2026-01-01T00:00:00Z ",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "2026-01-01T00:00:00ZZ",
            "Z",
            "\u{e9}T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(wrong), None, "{wrong}");
        }
    }
}
