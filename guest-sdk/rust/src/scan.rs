//! Finds requested fields in JSON text in one pass and parses these alone. Nearly all bytes of a reconcile's input are
//! skipped, and a general parser spends a multiple of the work on them. The text comes from the host, so skipped values
//! are not validated.

use std::ops::Range;

use serde::Deserialize;

#[cfg(test)]
mod tests;

/// A position in a JSON text.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    model: Option<Model>,
}

/// A requested value, as its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<'a> {
    pub(crate) json: &'a str,
    /// It is a string without escapes, so its value is the text between the quotes.
    pub(crate) is_plain: bool,
}

/// The places of the requested values in an object. The objects of a list mostly differ in these values alone, so the
/// next object is compared with this one: where the bytes between two values are equal, the next value is at the same
/// place.
struct Model {
    wanted: &'static [Wanted],
    start: usize,
    values: Vec<Place>,
    end: usize,
}

/// A requested value: its number and its bytes.
struct Place {
    number: usize,
    start: usize,
    end: usize,
}

/// Why a text could not be read.
pub type Reason = String;

/// A type that can be read from JSON text. [`derive@crate::Projection`] and [`derive@crate::CustomResource`] implement
/// it; every type that serde can deserialize implements it, too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from JSON",
    note = "derive `Projection` or `CustomResource` for it, or serde's `Deserialize`"
)]
pub trait FromJson<'a>: Sized {
    /// Reads the value at the scanner's position and advances behind it.
    ///
    /// # Errors
    /// Where and why the value does not fit.
    fn from_json(input: &mut Scanner<'a>) -> Result<Self, Reason>;
}

impl<'a, T: Deserialize<'a>> FromJson<'a> for T {
    fn from_json(input: &mut Scanner<'a>) -> Result<Self, Reason> {
        parse(input.value()?)
    }
}

/// Reads a whole text.
pub(crate) fn read<'a, T: FromJson<'a>>(text: &'a str) -> Result<T, Reason> {
    T::from_json(&mut Scanner::new(text))
}

/// Reads a JSON array.
pub(crate) fn read_list<'a, T: FromJson<'a>>(text: &'a str) -> Result<Vec<T>, Reason> {
    let mut input = Scanner::new(text);
    let mut list = Vec::new();
    input.expect(b'[')?;
    if input.takes(b']') {
        return Ok(list);
    }
    loop {
        list.push(T::from_json(&mut input)?);
        if input.takes(b']') {
            return Ok(list);
        }
        input.expect(b',')?;
    }
}

/// Requested fields, as a tree of names.
pub struct Wanted {
    /// The name of the field.
    pub name: &'static str,
    /// What is requested of it.
    pub part: Part,
}

/// What is requested of a field.
pub enum Part {
    /// Its value, under this number.
    Whole(usize),
    /// Fields inside it.
    Fields(&'static [Wanted]),
}

impl<'a> Scanner<'a> {
    /// A scanner at the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, model: None }
    }

    /// Scans the object at this position and puts the requested values under their numbers.
    ///
    /// # Errors
    /// When there is no object.
    pub fn fields(&mut self, wanted: &'static [Wanted], found: &mut [Option<Found<'a>>]) -> Result<(), Reason> {
        if let Some(model) = &self.model
            && std::ptr::eq(model.wanted, wanted)
        {
            if let Some(end) = self.like(model, found) {
                self.at = end;
                return Ok(());
            }
            found.fill(None);
        }
        let start = self.at;
        let mut values = Vec::with_capacity(found.len());
        let end = self.walk(start, wanted, &mut values).ok_or_else(|| self.malformed())?;
        for value in &values {
            let place = found.get_mut(value.number).ok_or_else(|| self.malformed())?;
            *place = self.found(value.start);
        }
        self.at = end;
        self.model = Some(Model { wanted, start, values, end });
        Ok(())
    }

    /// Where the object at this position ends, if it differs from the model in the requested values alone. Puts these
    /// under their numbers; it may have put some of them when it returns None.
    fn like(&self, model: &Model, found: &mut [Option<Found<'a>>]) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let (mut from, mut at) = (model.start, self.at);
        for value in &model.values {
            at = after_same(bytes, from..value.start, at)?;
            let this = self.found(at)?;
            at += this.json.len();
            *found.get_mut(value.number)? = Some(this);
            from = value.end;
        }
        after_same(bytes, from..model.end, at)
    }

    /// The value that begins at `at`.
    #[inline]
    fn found(&self, at: usize) -> Option<Found<'a>> {
        let bytes = self.text.as_bytes();
        if bytes.get(at) == Some(&b'"') {
            let end = special(bytes, at + 1)?;
            if bytes.get(end) == Some(&b'"') {
                return Some(Found { json: self.text.get(at..=end)?, is_plain: true });
            }
        }
        let end = value_end(bytes, at)?;
        Some(Found { json: self.text.get(at..end)?, is_plain: false })
    }

    /// The text of the value at this position.
    fn value(&mut self) -> Result<&'a str, Reason> {
        let start = self.after_blanks(self.at);
        self.at = value_end(self.text.as_bytes(), start).ok_or_else(|| self.malformed())?;
        self.text.get(start..self.at).ok_or_else(|| self.malformed())
    }

    /// Whether this byte is next; if so, advances behind it.
    #[inline(always)]
    fn takes(&mut self, wanted: u8) -> bool {
        let at = self.after(self.at, wanted);
        self.at = at.unwrap_or(self.at);
        at.is_some()
    }

    #[inline(always)]
    fn expect(&mut self, wanted: u8) -> Result<(), Reason> {
        if self.takes(wanted) { Ok(()) } else { Err(self.malformed()) }
    }

    /// Where the object that begins at `at` ends. Lists its requested values. None when there is no complete object.
    #[inline(never)]
    fn walk(&self, at: usize, wanted: &[Wanted], values: &mut Vec<Place>) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = self.after(at, b'{')?;
        if let Some(end) = self.after(at, b'}') {
            return Some(end);
        }
        loop {
            let start = self.after(at, b'"')?;
            at = text_end(bytes, start)?;
            // No requested name has escapes.
            let name = bytes.get(start..at - 1)?;
            at = self.after_blanks(self.after(at, b':')?);
            at = match wanted.iter().find(|wanted| wanted.name.as_bytes() == name).map(|wanted| &wanted.part) {
                Some(Part::Whole(number)) => {
                    let end = value_end(bytes, at)?;
                    values.push(Place { number: *number, start: at, end });
                    end
                }
                Some(Part::Fields(inner)) if bytes.get(at) == Some(&b'{') => self.walk(at, inner, values)?,
                _ => value_end(bytes, at)?,
            };
            if let Some(next) = self.after(at, b',') {
                at = next;
            } else {
                return self.after(at, b'}');
            }
        }
    }

    /// The position behind this byte, if it is the next one that is not white space.
    #[inline(always)]
    fn after(&self, at: usize, wanted: u8) -> Option<usize> {
        if self.text.as_bytes().get(at) == Some(&wanted) {
            return Some(at + 1);
        }
        let at = self.after_blanks(at);
        (self.text.as_bytes().get(at) == Some(&wanted)).then_some(at + 1)
    }

    fn after_blanks(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.as_bytes().get(at) {
            at += 1;
        }
        at
    }

    #[cold]
    fn malformed(&self) -> Reason {
        ["unexpected JSON near byte ", &self.at.to_string()].concat()
    }
}

/// The position behind the bytes at `at`, if they equal those of `part`. It compares eight bytes at a time, the last
/// eight perhaps overlapping the ones before; the C library's comparison for WebAssembly compares single bytes.
#[inline(always)]
fn after_same(bytes: &[u8], part: Range<usize>, at: usize) -> Option<usize> {
    let end = at.checked_add(part.len())?;
    let (model, other) = (bytes.get(part)?, bytes.get(at..end)?);
    let is_same = match (model.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(model_end), Some(other_end)) => {
            let (model, other) = (model.as_chunks::<8>().0, other.as_chunks::<8>().0);
            model_end == other_end && model.iter().zip(other).all(|(one, other)| one == other)
        }
        _ => model.iter().eq(other),
    };
    is_same.then_some(end)
}

/// Where the value that begins at `at` ends; None when it does not end.
fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        match byte {
            b'"' => at = text_end(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                continue;
            }
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return None,
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => continue,
            // A number, true, false or null.
            _ => {
                while bytes
                    .get(at)
                    .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-'))
                {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The position behind the closing quote of the string whose opening quote is just before `at`.
fn text_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = special(bytes, at)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        // A backslash and the byte that it escapes.
        at += 2;
    }
}

/// The position of the next quote or backslash, from `at` on. Compares eight bytes at a time: most of an object is
/// strings.
#[inline(always)]
fn special(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest bit that is set belongs to the first byte that is zero; borrows only reach bytes behind it.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let hits = zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += chunk.len();
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|offset| at + offset)
}

/// The value of a requested field, read by serde.
///
/// # Errors
/// When it is missing or does not fit.
pub fn required<'a, T: Deserialize<'a>>(found: Option<Found<'a>>, path: &str) -> Result<T, Reason> {
    match found {
        Some(found) => at(path, parse(found.json)),
        None => Err(missing(path)),
    }
}

/// As [`required`], for a field that may be missing.
///
/// # Errors
/// When it does not fit.
pub fn optional<'a, T: Deserialize<'a>>(found: Option<Found<'a>>, path: &str) -> Result<Option<T>, Reason> {
    found.map_or(Ok(None), |found| at(path, parse(found.json)))
}

/// The string in a requested field, borrowed from the text, or, if it has escapes, from a copy that is never freed: the
/// instance ends with the call.
///
/// # Errors
/// When it is missing or no string.
#[inline]
pub fn required_text<'a>(found: Option<Found<'a>>, path: &str) -> Result<&'a str, Reason> {
    match found {
        Some(found) => found.plain().map_or_else(|| unescaped(found, path), Ok),
        None => Err(missing(path)),
    }
}

/// As [`required_text`], for a field that may be missing.
///
/// # Errors
/// When it is no string.
#[inline]
pub fn optional_text<'a>(found: Option<Found<'a>>, path: &str) -> Result<Option<&'a str>, Reason> {
    match found {
        None | Some(Found { json: "null", .. }) => Ok(None),
        found => required_text(found, path).map(Some),
    }
}

/// A string that may have escapes; None when it is missing or null.
pub(crate) fn owned_text(found: Option<Found<'_>>, path: &str) -> Result<Option<String>, Reason> {
    match found.and_then(Found::plain) {
        Some(text) => Ok(Some(text.to_owned())),
        None => optional::<Option<String>>(found, path).map(Option::flatten),
    }
}

impl<'a> Found<'a> {
    #[inline]
    fn plain(self) -> Option<&'a str> {
        if self.is_plain { self.json.get(1..self.json.len() - 1) } else { None }
    }
}

#[cold]
fn missing(path: &str) -> Reason {
    [path, " is missing"].concat()
}

#[inline(always)]
fn at<T>(path: &str, result: Result<T, Reason>) -> Result<T, Reason> {
    result.map_err(|reason| named(path, &reason))
}

#[cold]
fn named(path: &str, reason: &str) -> Reason {
    [path, ": ", reason].concat()
}

#[cold]
fn unescaped<'a>(found: Found<'_>, path: &str) -> Result<&'a str, Reason> {
    at(path, parse::<String>(found.json)).map(|text| &*text.leak())
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Reason> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}
