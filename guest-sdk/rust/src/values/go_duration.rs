//! metav1.Duration: a length of time as Go writes it, "1h30m".

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::ValueError;

/// The units and their nanoseconds; of two that a text may begin with, the longer comes first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A length of time in a spec, in Kubernetes' syntax: "90s", "1h30m", "1.5h", "300ms". It is never negative. The schema
/// has the syntax as a pattern, so that the API server refuses anything else.
///
/// ```
/// use std::time::Duration;
/// use mortise_sdk::GoDuration;
///
/// let period: GoDuration = "1h30m".parse().unwrap();
/// assert_eq!(Duration::from(period), Duration::from_secs(5_400));
/// assert_eq!(GoDuration::from(Duration::from_millis(90_500)).to_string(), "1m30.5s");
/// assert_eq!("5".parse::<GoDuration>().unwrap_err().message(), "\"5\" is no duration such as \"90s\" or \"1h30m\"");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GoDuration(pub Duration);

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.0
    }
}

impl FromStr for GoDuration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError(format!("{text:?} is no duration such as \"90s\" or \"1h30m\""));
        if text == "0" {
            return Ok(Self::default());
        }
        let (mut nanos, mut rest) = (0_u64, text);
        loop {
            let (part, after) = part(rest).ok_or_else(wrong)?;
            // Go counts nanoseconds in 63 bits, some 292 years.
            nanos = nanos.checked_add(part).filter(|nanos| *nanos <= i64::MAX as u64).ok_or_else(wrong)?;
            rest = after;
            if rest.is_empty() {
                return Ok(Self(Duration::from_nanos(nanos)));
            }
        }
    }
}

/// The nanoseconds of a number with its unit, and what follows. A fraction of a nanosecond is dropped.
fn part(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, rest) = text.split_at(end);
    let (name, unit) = UNITS.iter().find(|(name, _)| rest.starts_with(name))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(*unit)?;
    let mut scale = *unit;
    for digit in fraction.bytes() {
        // What is lost of a unit that is no power of ten is less than a nanosecond for each digit.
        scale /= 10;
        nanos = nanos.checked_add(u64::from(digit - b'0') * scale)?;
    }
    Some((nanos, rest.strip_prefix(name)?))
}

/// As Go writes it: "1h30m0s", "90.5s" as "1m30.5s", "300ms".
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 && nanos > 0 {
            let (unit, digits) = match nanos {
                1_000_000.. => ("ms", 6),
                1_000.. => ("\u{b5}s", 3),
                _ => ("ns", 0),
            };
            return write!(f, "{}{unit}", decimal(u64::from(nanos), digits));
        }
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(seconds % 60 * 1_000_000_000 + u64::from(nanos), 9))
    }
}

/// A number of 10^-digits without trailing zeros.
fn decimal(number: u64, digits: u32) -> String {
    let scale = 10_u64.pow(digits);
    let fraction = format!("{:0width$}", number % scale, width = digits as usize);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{}{dot}{fraction}", number / scale)
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|\u{b5}s|\u{3bc}s|ms|s|m|h))+)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<u128> {
        text.parse::<GoDuration>().ok().map(|duration| duration.0.as_nanos())
    }

    #[test]
    fn every_form_that_go_reads_is_read() {
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("7\u{b5}s", 7_000),
            ("7\u{3bc}s", 7_000),
            ("1m1m", 120_000_000_000),
            ("9223372036854775807ns", i64::MAX as u128),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
        assert_eq!(nanos("9223372036854775807ns1ns"), None);
        for text in
            ["", "s", "5", "-1s", "+1s", ".s", "1..5s", "1 s", "1d", "1sx", "99999999999999h", "5000000h", "1.5"]
        {
            assert_eq!(nanos(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_written_as_go_writes_it() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5\u{b5}s"),
            (300_000_000, "300ms"),
            (1_000_000_000, "1s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_430_500_000_000, "1h30m30.5s"),
        ] {
            let text = GoDuration(Duration::from_nanos(nanos)).to_string();
            assert_eq!(text, expected);
            assert_eq!(text.parse(), Ok(GoDuration(Duration::from_nanos(nanos))));
        }
        let json = serde_json::to_string(&GoDuration(Duration::from_secs(5))).unwrap();
        assert_eq!(
            (json.as_str(), serde_json::from_str(&json).ok()),
            ("\"5s\"", Some(GoDuration(Duration::from_secs(5))))
        );
    }
}
