//! The formats of strings. Input: text. Output: whether it fits. It must not know where the text is.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::Date;
use regex::Regex;

/// Formats that definitions may use for strings, by their names without dashes.
const STRINGS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("uri", is_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && (text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok())),
    ("ipv6", |text| text.parse::<Ipv6Addr>().is_ok()),
    ("cidr", is_cidr),
    ("mac", |text| matches(&MAC, text)),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some('3'))),
    ("uuid4", |text| is_uuid(text, Some('4'))),
    ("uuid5", |text| is_uuid(text, Some('5'))),
    ("isbn", |text| is_isbn(text, 10) || is_isbn(text, 13)),
    ("isbn10", |text| is_isbn(text, 10)),
    ("isbn13", |text| is_isbn(text, 13)),
    ("creditcard", is_credit_card),
    ("ssn", |text| text.len() == 11 && matches(&SSN, text)),
    ("hexcolor", |text| matches(&HEX_COLOR, text)),
    ("rgbcolor", |text| matches(&RGB_COLOR, text)),
    ("byte", |text| matches(&BASE64, text)),
    ("password", |_| true),
    ("date", |text| text.len() == 10 && text.parse::<Date>().is_ok()),
    ("duration", |text| matches(&DURATION, text)),
    ("datetime", is_date_time),
    ("k8sshortname", |text| text.len() <= 63 && matches(&SHORT_NAME, text)),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(|part| matches(&SHORT_NAME, part))),
];

type Check = fn(&str) -> bool;
type Pattern = LazyLock<Regex>;

const fn pattern(source: fn() -> Regex) -> Pattern {
    LazyLock::new(source)
}

fn regex(source: &str) -> Regex {
    Regex::new(source).expect("the formats' expressions are right")
}

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.is_match(text)
}

static MAC: Pattern = pattern(|| {
    regex(
        "^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}((:[0-9A-Fa-f]{2}){2}|(:[0-9A-Fa-f]{2}){14})?\
         |[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}((-[0-9A-Fa-f]{2}){2}|(-[0-9A-Fa-f]{2}){14})?\
         |[0-9A-Fa-f]{4}(\\.[0-9A-Fa-f]{4}){2}((\\.[0-9A-Fa-f]{4})|(\\.[0-9A-Fa-f]{4}){7})?)$",
    )
});
static SSN: Pattern = pattern(|| regex(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static HEX_COLOR: Pattern = pattern(|| regex("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: Pattern = pattern(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    regex(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static BASE64: Pattern =
    pattern(|| regex("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static DURATION: Pattern = pattern(|| {
    let units = "ns|us|µs|μs|ms|s|m|h|d|w|nano|micro|milli|sec|min|hr|hour|day|wk|week";
    let one = r"\d+\s*(ns|us|µs|ms|s|m|h|d|w|(nano|micro|milli|sec|min|hr|hour|day|wk|week)[a-z]*)\s*";
    regex(&format!(r"^([-+]?(\d+(\.\d*)?|\.\d+)({units})((\d+(\.\d*)?|\.\d+)({units}))*|[-+]?0|({one})+)$"))
});
static SHORT_NAME: Pattern = pattern(|| regex("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static HOSTNAME: Pattern = pattern(|| {
    regex(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static UUID: Pattern =
    pattern(|| regex("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$"));
static EMAIL: Pattern = pattern(|| {
    let atom = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-\x80-\u{10FFFF}]+";
    let address = format!("{atom}(\\.{atom})*@({atom}(\\.{atom})*|\\[[^\\[\\]\\\\]*\\])");
    regex(&format!("^\\s*({address}|[^<>@,;:]*<{address}>)\\s*$"))
});

/// Whether definitions may use a format for this type; others are ignored.
pub(crate) fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => of(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// The check of a string's format.
pub(crate) fn of(format: &str) -> Option<fn(&str) -> bool> {
    let name = format.replace('-', "");
    STRINGS.iter().find(|(known, _)| *known == name).map(|(_, check)| *check)
}

fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 19 && matches!(bytes[10], b'T' | b't' | b' ') && text.parse::<Timestamp>().is_ok()
}

/// An absolute path, or something with a scheme: what a request line may have.
pub(crate) fn is_uri(text: &str) -> bool {
    if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return false;
    }
    let rest = match text.split_once(':') {
        Some((scheme, rest)) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            if !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')) {
                return text.starts_with('/');
            }
            rest
        }
        _ if text.starts_with('/') => text,
        _ => return false,
    };
    let escapes = rest.split('%').skip(1);
    let mut escapes = escapes.map(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()));
    !rest.is_empty() && escapes.all(|right| right)
}

fn is_email(text: &str) -> bool {
    matches(&EMAIL, text)
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && matches(&HOSTNAME, text) && text.split('.').all(|part| part.len() <= 63)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let Some(found) = UUID.captures(text) else { return false };
    let Some(version) = version else { return true };
    let variant = version == '3' || matches!(&found[2], "8" | "9" | "a" | "b" | "A" | "B");
    found[1].starts_with(version) && variant
}

fn is_isbn(text: &str, length: usize) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ' | '\t' | '\n')).collect();
    let mut sum = 0;
    for (at, digit) in digits.iter().enumerate() {
        let value = match digit.to_digit(10) {
            Some(value) => value,
            None if length == 10 && at == 9 && *digit == 'X' => 10,
            None => return false,
        };
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        sum += if length == 10 { (at + 1) * value } else { (1 + 2 * (at % 2)) * value };
    }
    digits.len() == length && if length == 10 { sum % 11 == 0 } else { sum % 10 == 0 }
}

fn is_credit_card(text: &str) -> bool {
    static CARD: Pattern = pattern(|| {
        regex(
            r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
        )
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = digits.bytes().rev().enumerate().map(|(at, byte)| {
        let digit = u32::from(byte - b'0');
        if at % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 }
    });
    matches(&CARD, &digits) && luhn.sum::<u32>() % 10 == 0
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn strings_fit_their_formats() {
        for (format, right, wrong) in [
            ("date-time", &["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00"][..], &["2026-01-01", "x"][..]),
            ("date", &["2026-02-28"], &["2026-02-30", "26-1-1"]),
            ("duration", &["5s", "1h30m", "22 ns", "3 days", "0", "1.5h"], &["", "5", "x", "5 parsecs"]),
            ("byte", &["YQ==", "YWJj"], &["", "a", "YQ="]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "x"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            ("uri", &["http://a/b", "/a", "mailto:a"], &["a", "", "http://a b", "/%zz"]),
            ("email", &["a@b.c", "A <a@b>"], &["a", "@b"]),
            ("hostname", &["a", "a.example.com"], &["-a", "a..b"]),
            ("uuid", &["01234567-89ab-cdef-0123-456789abcdef"], &["x"]),
            ("uuid4", &["01234567-89ab-4def-8123-456789abcdef"], &["01234567-89ab-5def-8123-456789abcdef"]),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23"]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("hexcolor", &["#fff"], &["#ffff"]),
            ("rgbcolor", &["rgb(1,2,255)"], &["rgb(1,2)"]),
            ("k8s-short-name", &["a-b"], &["A", "a."]),
            ("k8s-long-name", &["a.b-c"], &["a..b"]),
        ] {
            let check = of(format).unwrap();
            for text in right {
                assert!(check(text), "{format}: {text}");
            }
            for text in wrong {
                assert!(!check(text), "{format}: {text}");
            }
        }
    }
}
