//! Quantities such as `500m` and `1Gi`. Input: a text or a number. Output: its value, and its canonical text. It must not know
//! what is measured.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// What the API server says of text that is no quantity.
pub(crate) const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NANO: i128 = 1_000_000_000;
/// No binary quantity is greater than this many units.
const MOST: i128 = i64::MAX as i128;
const DECIMAL: &[(&str, i32)] =
    &[("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// How a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity, in billionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    pub(crate) nano: i128,
    form: Form,
}

// How a quantity is written does not count: 1000m is 1.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text())
    }
}

impl Quantity {
    /// Reads a text, or a number as JSON has it.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(NO_QUANTITY.to_owned()),
        }
    }

    /// Reads a text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + part.len() == 0 || part.contains('.') || !suffix.is_ascii() {
            return Err(NO_QUANTITY.to_owned());
        }
        let (factor, power, form) = unit(suffix)?;
        let digits: String = [whole, part].concat();
        let digits = digits.trim_start_matches('0');
        // More than 27 digits are above the bound, or below a billionth.
        let kept = digits.get(..27).unwrap_or(digits);
        let places = i32::try_from(part.len()).unwrap_or(i32::MAX);
        let dropped = i32::try_from(digits.len() - kept.len()).unwrap_or(i32::MAX);
        let value: i128 = if kept.is_empty() { 0 } else { kept.parse().map_err(|_| NO_QUANTITY.to_owned())? };
        let scale = power.saturating_add(9).saturating_sub(places).saturating_add(dropped);
        let exact = scaled(value.saturating_mul(factor), scale);
        let nano = if form == Form::Binary { exact.min(MOST * NANO) } else { exact };
        Ok(Self { nano: if text.starts_with('-') { -nano } else { nano }, form })
    }

    /// The sum, written as the first one.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano), ..self }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_sub(other.nano), ..self }
    }

    pub(crate) fn of(number: i64) -> Self {
        Self { nano: i128::from(number) * NANO, form: Form::Decimal }
    }

    pub(crate) fn of_thousandths(number: i64, binary: bool) -> Self {
        let form = if binary { Form::Binary } else { Form::Decimal };
        Self { nano: i128::from(number) * (NANO / 1000), form }
    }

    /// In thousandths, rounded up; what is too large is the largest.
    pub(crate) fn thousandths(self) -> i64 {
        let step = NANO / 1000;
        let exact = self.nano.div_euclid(step) + i128::from(self.nano.rem_euclid(step) != 0);
        i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
    }

    pub(crate) fn sign(self) -> i64 {
        i64::try_from(self.nano.signum()).unwrap_or_default()
    }

    pub(crate) fn is_integer(self) -> bool {
        self.nano % NANO == 0
    }

    pub(crate) fn as_integer(self) -> Option<i64> {
        if self.nano % NANO == 0 { i64::try_from(self.nano / NANO).ok() } else { None }
    }

    pub(crate) fn approximate(self) -> f64 {
        // Quantities are compared exactly; only this is not.
        #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
        let nano = self.nano as f64;
        nano / 1e9
    }

    /// The text that the API server sends.
    pub(crate) fn text(self) -> String {
        let units = self.nano / NANO;
        if self.form == Form::Binary && self.nano % NANO == 0 && units.abs() >= 1024 {
            let (mut value, mut at) = (units, 0);
            while value % 1024 == 0 && at + 1 < BINARY.len() {
                (value, at) = (value / 1024, at + 1);
            }
            return format!("{value}{}", BINARY.get(at).unwrap_or(&""));
        }
        if self.nano == 0 {
            return "0".to_owned();
        }
        let (mut value, mut power) = (self.nano, -9);
        while value % 1000 == 0 && power < 18 {
            (value, power) = (value / 1000, power + 3);
        }
        match DECIMAL.iter().find(|(_, of)| *of == power) {
            Some((suffix, _)) if self.form != Form::Exponent || power == 0 => format!("{value}{suffix}"),
            _ => format!("{value}e{power}"),
        }
    }
}

/// A field's quantity as the API server writes it; none if it is written so already, or is no quantity.
pub(crate) fn canonical(value: &Value) -> Option<String> {
    let canonical = Quantity::read(value).ok()?.text();
    Some(canonical).filter(|canonical| value.as_str() != Some(canonical))
}

/// The factor and the power of ten that a suffix means.
fn unit(suffix: &str) -> Result<(i128, i32, Form), String> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((1, *power, Form::Decimal));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Ok((1 << (10 * at), 0, Form::Binary));
    }
    let wrong = || {
        let known = |c: char| "eEinumkKMGTP".contains(c);
        let tail = suffix.trim_start_matches(known).trim_start_matches(['+', '-']);
        let fits = tail.chars().all(|c| c.is_ascii_digit());
        if fits { "unable to parse quantity's suffix".to_owned() } else { NO_QUANTITY.to_owned() }
    };
    let power = suffix.strip_prefix(['e', 'E']).ok_or_else(wrong)?;
    let power: i32 = power.parse().map_err(|_| wrong())?;
    Ok((1, power, Form::Exponent))
}

/// A value times a power of ten; what is below one is rounded up, what is too great stays at the bound.
fn scaled(value: i128, scale: i32) -> i128 {
    if value == 0 {
        return 0;
    }
    let power = 10_i128.checked_pow(scale.unsigned_abs());
    match power {
        Some(power) if scale >= 0 => value.saturating_mul(power),
        Some(power) => value / power + i128::from(value % power != 0),
        None if scale >= 0 => i128::MAX,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_become_canonical() {
        let cases = [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1500", "1500"),
            ("1000", "1k"),
            ("100Mi", "100Mi"),
            ("1e3", "1e3"),
            ("-2", "-2"),
            ("0.1Ki", "102400m"),
            ("512", "512"),
            ("12E", "12E"),
            ("16Ei", "9223372036854775807"),
            ("1n", "1n"),
        ];
        for (text, wanted) in cases {
            assert_eq!(Quantity::parse(text).unwrap().text(), wanted, "{text}");
        }
        for text in ["", "a", "1.2.3", "1 Gi", "ä", "1Gib"] {
            assert_eq!(Quantity::parse(text).unwrap_err(), NO_QUANTITY, "{text}");
        }
        assert_eq!(Quantity::parse("1mm").unwrap_err(), "unable to parse quantity's suffix");
        assert!(Quantity::parse("1e999999999999").is_err());
        assert!(Quantity::parse(&"9".repeat(400)).unwrap().nano > 0);
    }
}
