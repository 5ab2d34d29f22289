//! resource.Quantity: an amount of CPU, memory or storage, "500m", "1Gi".

use std::borrow::Cow;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul, Sub};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::ValueError;

/// The smallest amount, in ones: a billionth.
const NANOS: i128 = 1_000_000_000;
/// The largest amount, 10^27: a billion times the largest suffix. Kubernetes has no bound for decimal amounts.
const MOST: i128 = 10_i128.pow(27) * NANOS;
/// Kubernetes caps an amount with a binary suffix at 2^63 - 1.
const MOST_BINARY: i128 = i64::MAX as i128 * NANOS;
/// Decimal suffixes, from a billionth on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes, each 1024 times the one before.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// What the API server accepts.
const PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

/// An amount, compared and added exactly, and written as Kubernetes writes it. A fraction of a billionth is rounded away
/// from zero. As in Kubernetes, a text with a binary suffix is 2^63 - 1 at most, whatever it says ("8Ei").
/// Beyond 10^27 a text is refused, and sums and products stay there.
///
/// ```
/// use mortise_sdk::Quantity;
///
/// let [cpu, more]: [Quantity; 2] = ["500m", "1.5"].map(|text| text.parse().unwrap());
/// assert_eq!((cpu + more).to_string(), "2");
/// assert_eq!((cpu * 3).to_string(), "1500m");
/// let memory: Quantity = "1024Mi".parse().unwrap();
/// assert_eq!((memory.to_string().as_str(), memory.value()), ("1Gi", 1 << 30));
/// assert!(memory > "1G".parse().unwrap());
/// assert_eq!("1 Gi".parse::<Quantity>().unwrap_err().message(), "\"1 Gi\" is no quantity such as \"500m\" or \"1Gi\"");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The suffixes that it is written with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Format {
    #[default]
    Decimal,
    Binary,
    Exponent,
}

impl Quantity {
    /// A number of whole units: CPUs, bytes.
    pub const fn from_value(value: i64) -> Self {
        Self { nanos: value as i128 * NANOS, format: Format::Decimal }
    }

    /// A number of thousandths: `from_millis(500)` is half a CPU.
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis as i128 * (NANOS / 1_000), format: Format::Decimal }
    }

    /// The number of whole units. As in Kubernetes, a fraction is rounded away from zero.
    pub fn value(self) -> i64 {
        self.scaled_down(NANOS)
    }

    /// The number of thousandths, a fraction rounded away from zero.
    pub fn millis(self) -> i64 {
        self.scaled_down(NANOS / 1_000)
    }

    fn scaled_down(self, unit: i128) -> i64 {
        let away = self.nanos.signum() * i128::from(self.nanos % unit != 0);
        saturated(self.nanos / unit + away)
    }

    fn of(nanos: i128, format: Format) -> Self {
        Self { nanos: nanos.clamp(-MOST, MOST), format }
    }

    /// As Kubernetes: an amount of nothing has no format of its own.
    fn format_beside(self, other: Self) -> Format {
        if self.nanos == 0 { other.format } else { self.format }
    }
}

fn saturated(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::of(self.nanos + other.nanos, self.format_beside(other))
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::of(self.nanos - other.nanos, self.format_beside(other))
    }
}

impl Mul<i64> for Quantity {
    type Output = Self;

    fn mul(self, times: i64) -> Self {
        Self::of(self.nanos.saturating_mul(i128::from(times)), self.format)
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::default(), Add::add)
    }
}

impl FromStr for Quantity {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError(format!("{text:?} is no quantity such as \"500m\" or \"1Gi\""));
        let (sign, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (-1, &text[1..]),
            Some(b'+') => (1, &text[1..]),
            _ => (1, text),
        };
        let end = unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (unit, format) = unit(suffix).ok_or_else(wrong)?;
        let nanos = scaled(number, unit).ok_or_else(wrong)?;
        if format == Format::Binary {
            // As Kubernetes: a fraction of one is decimal.
            let format = if (1..NANOS).contains(&nanos) { Format::Decimal } else { format };
            return Ok(Self { nanos: sign * nanos.min(MOST_BINARY), format });
        }
        if nanos > MOST {
            return Err(ValueError(format!("{text:?} is more than 10^27, the largest quantity")));
        }
        Ok(Self { nanos: sign * nanos, format })
    }
}

/// A power of ten or of two.
#[derive(Clone, Copy)]
enum Unit {
    Ten(i32),
    Two(u32),
}

fn unit(suffix: &str) -> Option<(Unit, Format)> {
    if let Some(thousands) = DECIMAL.iter().position(|name| *name == suffix) {
        return Some((Unit::Ten(3 * thousands as i32 - 9), Format::Decimal));
    }
    if let Some(kibis) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Unit::Two(10 * kibis as u32), Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Unit::Ten(exponent.parse().ok()?), Format::Exponent))
}

/// A decimal number of units in billionths, rounded away from zero. Saturates far above [`MOST`]. None for no number.
fn scaled(number: &str, unit: Unit) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (power, doublings) = match unit {
        Unit::Ten(power) => (power.saturating_add(9), 0),
        Unit::Two(power) => (9, power),
    };
    let mut power = power.saturating_sub(i32::try_from(fraction.len()).ok()?);
    // Twice a number with so many digits fits. What is cut changes an amount by less than a billionth.
    const DIGITS: u32 = 37;
    let (mut mantissa, mut is_cut) = (0_i128, false);
    for digit in whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0')) {
        if mantissa < 10_i128.pow(DIGITS - 1) {
            mantissa = mantissa * 10 + digit;
        } else {
            power = power.saturating_add(1);
            is_cut |= digit != 0;
        }
    }
    while mantissa > 0 && power < -DIGITS.cast_signed() {
        is_cut |= mantissa % 10 != 0;
        (mantissa, power) = (mantissa / 10, power + 1);
    }
    if mantissa == 0 {
        return Some(i128::from(is_cut));
    }
    let ten = 10_i128.checked_pow(power.unsigned_abs());
    let (mut quotient, mut rest, divisor) = match ten {
        Some(ten) if power < 0 => (mantissa / ten, mantissa % ten, ten),
        ten => (ten.and_then(|ten| mantissa.checked_mul(ten)).unwrap_or(i128::MAX), 0, 1),
    };
    for _ in 0..doublings {
        quotient = quotient.saturating_mul(2).saturating_add(2 * rest / divisor);
        rest = 2 * rest % divisor;
    }
    Some(quotient.saturating_add(i128::from(rest != 0 || is_cut)))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // As Kubernetes: what a binary suffix cannot say without a fraction has a decimal one.
        if self.format == Format::Binary && self.nanos.abs() >= 1_024 * NANOS && self.nanos % NANOS == 0 {
            let mut number = self.nanos / NANOS;
            let mut kibis = 0;
            while number % 1_024 == 0 && kibis + 1 < BINARY.len() {
                number /= 1_024;
                kibis += 1;
            }
            return write!(f, "{number}{}", BINARY[kibis]);
        }
        let is_exponent = self.format == Format::Exponent;
        let (mut number, mut thousands) = (self.nanos, 0);
        while number % 1_000 == 0 && (is_exponent || thousands + 1 < DECIMAL.len()) {
            number /= 1_000;
            thousands += 1;
        }
        match 3 * thousands as i32 - 9 {
            0 => write!(f, "{number}"),
            power if is_exponent => write!(f, "{number}e{power}"),
            _ => write!(f, "{number}{}", DECIMAL[thousands]),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads numbers too, which the API server accepts in manifests.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<'a> {
            Integer(i64),
            Float(f64),
            #[serde(borrow)]
            Text(Cow<'a, str>),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Integer(number) => return Ok(Self::from_value(number)),
            Written::Float(number) => Cow::Owned(number.to_string()),
            Written::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn quantities_are_written_in_kubernetes_canonical_form() {
        for (text, canonical) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1.50", "1500m"),
            ("+2", "2"),
            ("-1", "-1"),
            ("1000", "1k"),
            ("1000k", "1M"),
            ("1024", "1024"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1n", "1n"),
            ("1u", "1u"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("1500Ki", "1500Ki"),
            ("1e3", "1e3"),
            ("12E1", "120"),
            ("1E", "1E"),
            ("5e-3", "5e-3"),
            (".5", "500m"),
            ("5.", "5"),
            ("9223372036854775807", "9223372036854775807"),
            ("0.0000000001", "1n"),
            ("0.00000000000000000000000000000000001", "1n"),
            ("1e-40", "1e-9"),
            ("-1.5Gi", "-1536Mi"),
            ("0.1Gi", "107374182400m"),
            ("-0.1Gi", "-107374182400m"),
            ("1.0001Ki", "1024102400u"),
            ("8Ei", "9223372036854775807"),
            ("-99999999999999999999999999999999999999999999Ki", "-9223372036854775807"),
            ("10E", "10E"),
            ("1e19", "10e18"),
            ("1e21", "1e21"),
            ("1000E", "1000E"),
            ("9223372036854775808", "9223372036854775808"),
            // Digits beyond what is kept.
            ("123456789012.1234567890123456789012345678", "123456789012123456790n"),
            ("1.0000000000000000000000000000000000000000Gi", "1Gi"),
            ("0.00000000000000000000000000000000000000000000000000000000000000001Ei", "1n"),
            ("0.00000000001234567890123456789012345678901234567890Ei", "14233598694204364n"),
            ("100000000000000000000000000000000000000000000000000e-45", "100e3"),
        ] {
            assert_eq!(quantity(text).to_string(), canonical, "{text}");
            assert_eq!(quantity(canonical).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_an_error_with_the_text() {
        for text in ["", "-", ".", "m", "Gi", "1K", "1ki", "1 Gi", "1Gi ", "1.2.3", "1e", "0x1", "1e1.5", "\u{e9}"] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(error.message().starts_with(&format!("{text:?} is no quantity")), "{error}");
        }
        for text in ["1000000000.1E", "1e28", "1e2000000000", "9999999999999999999999999999999999999999999"] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(error.message().contains("is more than 10^27"), "{text}: {error}");
        }
    }

    #[test]
    fn they_are_compared_and_added_exactly() {
        assert_eq!(quantity("1Ki"), quantity("1024"));
        assert!(quantity("999m") < quantity("1") && quantity("-1") < quantity("0"));
        assert_eq!(["100m", "200m", "1"].map(quantity).into_iter().sum::<Quantity>(), quantity("1300m"));
        assert_eq!((quantity("1Gi") - quantity("512Mi")).to_string(), "512Mi");
        assert_eq!((Quantity::default() + quantity("1Gi")).to_string(), "1Gi");
        assert_eq!((quantity("4Ei") * i64::MAX).value(), i64::MAX);
        assert_eq!((quantity("1m").value(), quantity("-1m").value(), quantity("1u").millis()), (1, -1, 1));
        assert_eq!((quantity("-1.5").value(), quantity("-2").value(), quantity("10E").value()), (-2, -2, i64::MAX));
        assert_eq!(quantity("0.0001Ki") + quantity("1Ki"), quantity("1024.1024"));
        assert_eq!((quantity("0.0001Ki") + quantity("1023.8976Ki")).to_string(), "1048471244800u");
        assert_eq!((Quantity::from_millis(1_500), Quantity::from_value(-2)), (quantity("1.5"), quantity("-2")));
    }

    #[test]
    fn numbers_are_read_too_and_text_is_written() {
        for (json, expected) in [("5", "5"), ("0.5", "500m"), ("\"1Gi\"", "1Gi"), ("\"\\u0031\"", "1"), ("-3", "-3")] {
            let read: Quantity = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), expected);
        }
        assert!(serde_json::from_str::<Quantity>("true").is_err());
    }
}
