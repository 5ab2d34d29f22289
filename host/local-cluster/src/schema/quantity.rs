//! Quantities such as `500m` and `1Gi`. Input: text. Output: a number with its canonical text. It must not know fields.

use std::cmp::Ordering;

use serde_json::Value;

/// What the API server says of text that is no quantity.
pub(crate) const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Decimal suffixes by their power of a thousand, beginning with nano.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// No exponent beyond this is read: the largest quantity is below 2^63, the smallest is one nano.
const MAX_EXPONENT: i32 = 36;

/// How a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// A number of nanos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    form: Form,
}

const NANO: i128 = 1_000_000_000;

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !matches!(c, '+' | '-' | '.' | '0'..='9')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (negative, digits) = match number.as_bytes().first()? {
            b'-' => (true, &number[1..]),
            b'+' => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let (form, base, power) = suffix_of(suffix)?;
        let mut mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let mut scale = -i32::try_from(fraction.len()).ok()? + 9;
        if base == 2 {
            mantissa = mantissa.checked_mul(1_i128.checked_shl(u32::try_from(power).ok()?)?)?;
        } else {
            scale += power;
        }
        // What is smaller than one nano is rounded away from zero.
        let nanos = if scale >= 0 {
            mantissa.checked_mul(10_i128.checked_pow(u32::try_from(scale).ok()?)?)?
        } else {
            match 10_i128.checked_pow(u32::try_from(-scale).ok()?) {
                Some(divisor) => mantissa.checked_add(divisor - 1)?.div_euclid(divisor),
                None => i128::from(mantissa != 0),
            }
        };
        // Numbers are capped at the largest int64.
        let nanos = nanos.min(i128::from(i64::MAX) * NANO);
        Some(Self { nanos: if negative { -nanos } else { nanos }, form })
    }

    pub(crate) fn is_integer(self) -> bool {
        self.as_integer().is_some()
    }

    pub(crate) fn as_integer(self) -> Option<i64> {
        if self.nanos % NANO == 0 { i64::try_from(self.nanos / NANO).ok() } else { None }
    }

    pub(crate) fn approximate(self) -> f64 {
        // Quantities are compared exactly; only this is not.
        #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
        let nanos = self.nanos as f64;
        nanos / 1e9
    }

    pub(crate) fn sign(self) -> i64 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        Some(Self { nanos: self.nanos.checked_add(other.nanos)?, ..self })
    }

    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        Some(Self { nanos: self.nanos.checked_sub(other.nanos)?, ..self })
    }

    pub(crate) fn of(number: i64) -> Self {
        Self { nanos: i128::from(number) * NANO, form: Form::Decimal }
    }
}

/// The form, base and power of a suffix.
fn suffix_of(suffix: &str) -> Option<(Form, u8, i32)> {
    if let Some(at) = BINARY.iter().position(|known| *known == suffix).filter(|at| *at > 0) {
        return Some((Form::Binary, 2, i32::try_from(at).ok()? * 10));
    }
    if let Some(at) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((Form::Decimal, 10, (i32::try_from(at).ok()? - 3) * 3));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Form::Exponent, 10, exponent)).filter(|_| exponent.abs() <= MAX_EXPONENT)
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return out.write_str("0");
        }
        if self.form == Form::Binary && self.nanos.abs() >= 1024 * NANO {
            // Binary suffixes have no fractions.
            let mut whole = self.nanos.div_euclid(NANO) + i128::from(self.nanos.rem_euclid(NANO) != 0);
            let mut at = 0;
            while whole % 1024 == 0 && at + 1 < BINARY.len() {
                whole /= 1024;
                at += 1;
            }
            return write!(out, "{whole}{}", BINARY[at]);
        }
        let (mut mantissa, mut at) = (self.nanos, 0);
        while mantissa % 1000 == 0 && at + 1 < DECIMAL.len() {
            mantissa /= 1000;
            at += 1;
        }
        match self.form {
            Form::Exponent if at != 3 => write!(out, "{mantissa}e{}", (i64::try_from(at).unwrap_or(0) - 3) * 3),
            _ => write!(out, "{mantissa}{}", DECIMAL[at]),
        }
    }
}

/// A field's quantity as the API server writes it; none if it is written so already, or is no quantity.
pub(crate) fn canonical(value: &Value) -> Option<String> {
    let given = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let canonical = Quantity::parse(&given)?.to_string();
    Some(canonical).filter(|canonical| value.as_str() != Some(canonical))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_written_in_their_canonical_form() {
        for (given, wanted) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512Ki", "512Ki"),
            ("0Mi", "0"),
            ("1e3", "1e3"),
            ("12E6", "12e6"),
            ("-100m", "-100m"),
            ("0.1n", "1n"),
            ("100Ki", "100Ki"),
            ("1Ki", "1Ki"),
            ("9999999999999999999999", "9223372036854775807"),
        ] {
            assert_eq!(Quantity::parse(given).map(|quantity| quantity.to_string()).as_deref(), Some(wanted), "{given}");
        }
        for wrong in ["", "a", "1x", "1 Gi", "--1", "1.2.3", "Gi", "1e", "1e99", "."] {
            assert_eq!(Quantity::parse(wrong), None, "{wrong}");
        }
        assert_eq!(canonical(&json!(2)), Some("2".to_owned()));
        assert_eq!(canonical(&json!("2")), None);
    }
}
