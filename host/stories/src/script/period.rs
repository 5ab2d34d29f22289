//! Periods of time as people write them: "10d", "1h30m", "45s", "250ms".

use serde::{Deserialize, Deserializer, de};

/// A period in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period(pub u64);

const UNITS: [(&str, u64); 5] = [("ms", 1), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

fn parse(text: &str) -> Option<Period> {
    let (mut rest, mut total) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let (unit, ms) = UNITS.into_iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        total = total.checked_add(number.checked_mul(ms)?)?;
        rest = &rest[digits + unit.len()..];
    }
    Some(Period(total))
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no period: write 10d, 1h30m, 45s or 250ms")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units() {
        for (text, ms) in
            [("10d", 864_000_000), ("1h30m", 5_400_000), ("45s", 45_000), ("250ms", 250), ("1m5ms", 60_005)]
        {
            assert_eq!(parse(text), Some(Period(ms)), "{text}");
        }
        for text in ["", "10", "d", "1y", "1h 30m", "99999999999999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
