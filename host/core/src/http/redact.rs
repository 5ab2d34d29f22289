//! Cuts the values of Secrets that a request carried out of what came back. The values and the result come in, the result
//! without them comes out. It must not know how a request is sent, or which Secrets there are.
//!
//! A value is found as it is, in base64 at any place within other bytes, in hexadecimal digits, and escaped for JSON or a
//! URL. A server that means to show a value to the plugin can write it otherwise, so this is for servers that echo.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use memchr::memmem::Finder;

use super::{Header, MAX_RESPONSE_BYTES, Response};

/// What a plugin reads where a value was. Without characters that JSON or HTML would escape.
pub const REDACTED: &str = "[value of a Secret]";
/// Bytes of the shortest value that is looked for. A response of a MiB has most texts of three characters by chance, and
/// where they were cut out would show the value.
const MIN_BYTES: usize = 4;
/// A text that has values at more places is cut out as a whole: some pages of a log of requests have hundreds.
const MAX_FOUND: usize = 4_096;

/// The values of Secrets that a request carries.
#[derive(Clone, Default)]
pub struct SentValues(Vec<Vec<u8>>);

impl fmt::Debug for SentValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentValues({})", self.0.len())
    }
}

impl SentValues {
    /// Adds the value of a header, with its parts: the token after the scheme ("Bearer TOKEN") and, of credentials in base64,
    /// the text and the password in it.
    pub fn add(&mut self, value: &[u8]) {
        let mut words = value.split(|byte| *byte == b' ');
        let token = match (words.next(), words.next(), words.next()) {
            (Some(_scheme), Some(token), None) => token,
            _ => value,
        };
        let credentials = STANDARD.decode(token).ok().filter(|text| is_text(text)).unwrap_or_default();
        let password = credentials.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
        for part in [value, token, &credentials, password] {
            if part.len() >= MIN_BYTES && !self.0.iter().any(|known| known == part) {
                self.0.push(part.to_vec());
            }
        }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The response without the values. Its `content-length` is that of the body that is left.
    pub fn redact(&self, response: Response) -> Response {
        let (body, length) = match self.cut(&response.body) {
            Cow::Borrowed(_) => (Arc::clone(&response.body), None),
            Cow::Owned(body) => (Arc::from(body.as_slice()), Some(Arc::from(body.len().to_string()))),
        };
        let redacted = |(name, value): &Header| -> Header {
            match &length {
                Some(length) if &**name == "content-length" => (Arc::clone(name), Arc::clone(length)),
                _ => (Arc::clone(name), self.text(value)),
            }
        };
        let headers = response.headers.iter().filter(|(name, _)| !self.is_in_name(name)).map(redacted).collect();
        Response { status: response.status, headers, body }
    }

    /// A text without the values.
    pub fn text(&self, text: &Arc<str>) -> Arc<str> {
        match self.cut(text.as_bytes()) {
            Cow::Borrowed(_) => Arc::clone(text),
            Cow::Owned(cut) => String::from_utf8_lossy(&cut).into(),
        }
    }

    /// The names of headers are in lower case.
    fn is_in_name(&self, name: &str) -> bool {
        self.0.iter().any(|value| Finder::new(&value.to_ascii_lowercase()).find(name.as_bytes()).is_some())
    }

    fn cut<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let mut found = Vec::new();
        for value in &self.0 {
            let finder = Finder::new(value);
            found.extend(finder.find_iter(text).take(MAX_FOUND).map(|at| at..at + value.len()));
        }
        // One after the other, since each takes some times the memory of the text.
        for reading in [Reading::HEX, Reading::BASE64, Reading::JSON, Reading::URL] {
            if let Some(read) = reading.of(text) {
                self.0.iter().for_each(|value| reading.find(value, &read, &mut found));
            }
        }
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let left = if found.len() < MAX_FOUND { without(text, found) } else { Vec::new() };
        let is_fit = (1..=MAX_RESPONSE_BYTES).contains(&left.len());
        Cow::Owned(if is_fit { left } else { REDACTED.into() })
    }
}

/// One way to read a text. Its values are then found as they are in `needles`.
struct Reading {
    /// What of a text's rest the next byte is, and how many bytes of the text it takes; None: it is of no importance.
    next: fn(&[u8]) -> (Option<u8>, usize),
    needles: fn(&[u8]) -> Vec<Needle>,
    /// Without one of these bytes a text reads as it is; None: it never does.
    escapes: Option<[u8; 2]>,
}

/// A form of a value.
struct Needle {
    bytes: Vec<u8>,
    /// Whether the character before it, or after it, has some bits of the value too.
    shares: [bool; 2],
}

/// A text as it was read.
struct Read {
    bytes: Vec<u8>,
    /// Where each byte begins in the text, and where the last one ends.
    places: Vec<usize>,
}

impl Reading {
    const HEX: Self = Self {
        next: |rest| (Some(rest[0].to_ascii_lowercase()), 1),
        needles: |value| vec![Needle::of(value.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())],
        escapes: None,
    };
    const BASE64: Self = Self { next: next_of_base64, needles: in_base64, escapes: None };
    const JSON: Self =
        Self { next: next_of_json, needles: |value| vec![Needle::of(value.to_vec())], escapes: Some([b'\\'; 2]) };
    /// With a plus sign for a space, as in forms.
    const URL: Self = Self {
        next: |rest| match rest {
            [b'%', high, low, ..] => hex(&[*high, *low]).map_or((Some(b'%'), 1), |byte| (Some(unplus(byte)), 3)),
            _ => (Some(unplus(rest[0])), 1),
        },
        needles: |value| vec![Needle::of(value.iter().copied().map(unplus).collect())],
        escapes: Some([b'%', b'+']),
    };

    /// None: the text reads as it is.
    fn of(&self, text: &[u8]) -> Option<Read> {
        if self.escapes.is_some_and(|[one, another]| memchr::memchr2(one, another, text).is_none()) {
            return None;
        }
        let mut read = Read { bytes: Vec::with_capacity(text.len()), places: Vec::with_capacity(text.len() + 1) };
        let mut at = 0;
        while at < text.len() {
            let (byte, length) = (self.next)(&text[at..]);
            if let Some(byte) = byte {
                read.bytes.push(byte);
                read.places.push(at);
            }
            at += length;
        }
        read.places.push(text.len());
        Some(read)
    }

    fn find(&self, value: &[u8], read: &Read, found: &mut Vec<Range<usize>>) {
        for Needle { bytes, shares: [before, after] } in (self.needles)(value) {
            let finder = Finder::new(&bytes);
            for at in finder.find_iter(&read.bytes).take(MAX_FOUND) {
                let end = at + bytes.len();
                let shares = |at: Option<usize>| at.and_then(|at| read.bytes.get(at)).is_some_and(|it| is_base64(*it));
                let from = at - usize::from(before && shares(at.checked_sub(1)));
                let to = end + usize::from(after && shares(Some(end)));
                found.push(read.places[from]..read.places[to]);
            }
        }
    }
}

impl Needle {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, shares: [false; 2] }
    }
}

/// The characters of base64 that the value alone decides, when none, one or two bytes precede it in their group of three.
fn in_base64(value: &[u8]) -> Vec<Needle> {
    let after = |before: usize| {
        let bytes = [&[0; 2][..before], value].concat();
        let (first, end) = ((8 * before).div_ceil(6), 8 * bytes.len() / 6);
        let characters = STANDARD_NO_PAD.encode(&bytes).into_bytes();
        Needle { bytes: characters[first..end].to_vec(), shares: [before > 0, !bytes.len().is_multiple_of(3)] }
    };
    (0..3).map(after).collect()
}

/// Both alphabets are one, lines are joined, and the slash and plus sign may be escaped for JSON or a URL.
fn next_of_base64(rest: &[u8]) -> (Option<u8>, usize) {
    match rest {
        [b'\r' | b'\n', ..] => (None, 1),
        [b'\\', b'r' | b'n', ..] => (None, 2),
        [b'\\', ..] => (None, 1),
        [b'-', ..] | [b'%', b'2', b'b' | b'B', ..] => (Some(b'+'), if rest[0] == b'-' { 1 } else { 3 }),
        [b'_', ..] | [b'%', b'2', b'f' | b'F', ..] => (Some(b'/'), if rest[0] == b'_' { 1 } else { 3 }),
        _ => (Some(rest[0]), 1),
    }
}

/// A character beyond ASCII that is written by its number reads as its last byte in Latin-1, as headers are.
fn next_of_json(rest: &[u8]) -> (Option<u8>, usize) {
    match rest {
        [b'\\', b'u', number @ ..] if number.len() >= 4 && hex(&number[..2]).is_some() => {
            hex(&number[2..4]).map_or((None, 1), |byte| (Some(byte), 6))
        }
        [b'\\', b't', ..] => (Some(b'\t'), 2),
        [b'\\', escaped, ..] => (Some(*escaped), 2),
        _ => (Some(rest[0]), 1),
    }
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

fn unplus(byte: u8) -> u8 {
    if byte == b'+' { b' ' } else { byte }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// The text with [`REDACTED`] in place of these parts, which may overlap.
fn without(text: &[u8], mut parts: Vec<Range<usize>>) -> Vec<u8> {
    parts.sort_unstable_by_key(|part| part.start);
    let mut left = Vec::with_capacity(text.len());
    let mut end = 0;
    for part in parts {
        if part.start >= end {
            left.extend_from_slice(&text[end..part.start]);
            left.extend_from_slice(REDACTED.as_bytes());
        }
        end = end.max(part.end);
    }
    left.extend_from_slice(&text[end..]);
    left
}

#[cfg(test)]
mod tests;
