//! What a JSON text costs as a tree: one scan of the text in, bytes as the allocator gives them out. A tree can take a hundred
//! times its text; the targets allow that where the host builds one. It must not know what the text says.

use mortise_core::heap::{allocation, tree};
use serde_json::Value;

#[cfg(test)]
mod tests;

/// Levels that `serde_json` reads; it refuses deeper texts.
const MAX_DEPTH: usize = 128;
/// A member of an object.
const MEMBER_BYTES: usize = size_of::<String>() + size_of::<Value>();
/// The first capacity of a `Vec<Value>`.
const FIRST_CAPACITY: usize = 4;
/// The most bytes of a tree for a byte of its text: `{"":` and `}` are a node. Lists, strings and longer keys take less.
const WORST_OF_BYTE: usize = 128;
/// `serde_json` reads the string that is a first member with this name as JSON, in any text.
const TEXT_IN_TEXT: &[u8] = b"$serde_json::private::RawValue";

/// An upper bound of the heap that `serde_json::from_slice::<Value>` of this text takes, also when it fails: close to it for
/// the worst texts, and up to twice as much for wide objects. For a moment the largest list takes half as much more, while
/// it grows.
pub(crate) fn tree_bytes(text: &[u8]) -> usize {
    let mut levels: Vec<Level> = Vec::new();
    let (mut bytes, mut at) = (0, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | b':' => {}
            b',' => {
                if let Some(level) = levels.last_mut() {
                    level.values += 1;
                }
            }
            b'{' | b'[' if levels.len() == MAX_DEPTH => break,
            b'{' | b'[' => {
                begins(&mut levels);
                levels.push(Level { is_object: *byte == b'{', values: 0 });
            }
            b'}' | b']' => bytes += levels.pop().map_or(0, Level::bytes),
            b'"' => {
                let is_first = begins(&mut levels);
                let string = StringAt::new(text, at);
                if is_first && levels.last().is_some_and(|level| level.is_object) && string.is_text_in_text() {
                    bytes += WORST_OF_BYTE * (text.len() - at);
                    break;
                }
                bytes += allocation(string.bytes);
                at = string.end;
            }
            _ => {
                begins(&mut levels);
            }
        }
    }
    bytes + levels.into_iter().map(Level::bytes).sum::<usize>()
}

/// Something begins in the innermost object or list. Whether it is the first.
fn begins(levels: &mut [Level]) -> bool {
    let Some(level) = levels.last_mut() else { return false };
    let is_first = level.values == 0;
    level.values = level.values.max(1);
    is_first
}

/// An object or a list.
struct Level {
    is_object: bool,
    values: usize,
}

impl Level {
    fn bytes(self) -> usize {
        match self.values {
            0 => 0,
            values if self.is_object => tree(values, MEMBER_BYTES),
            values => allocation(values.next_power_of_two().max(FIRST_CAPACITY) * size_of::<Value>()),
        }
    }
}

/// A string of the text, between its quotes.
struct StringAt<'a> {
    raw: &'a [u8],
    /// At most, without its escapes.
    bytes: usize,
    /// After its closing quote.
    end: usize,
}

impl<'a> StringAt<'a> {
    fn new(text: &'a [u8], begin: usize) -> Self {
        let (mut at, mut bytes) = (begin, 0);
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => break,
                // Half of a pair takes two bytes, anything else three at most.
                b'\\' if text.get(at + 1) == Some(&b'u') => (at, bytes) = (at + 6, bytes + 3),
                b'\\' => (at, bytes) = (at + 2, bytes + 1),
                _ => (at, bytes) = (at + 1, bytes + 1),
            }
        }
        let end = at.min(text.len());
        Self { raw: &text[begin..end], bytes, end: end + 1 }
    }

    fn is_text_in_text(&self) -> bool {
        if !self.raw.contains(&b'\\') {
            return self.raw == TEXT_IN_TEXT;
        }
        // Every character of it may be written in six.
        let may_be = (TEXT_IN_TEXT.len()..=TEXT_IN_TEXT.len() * 6).contains(&self.raw.len());
        let read = || serde_json::from_slice::<String>(&[b"\"", self.raw, b"\""].concat());
        may_be && read().is_ok_and(|read| read.as_bytes() == TEXT_IN_TEXT)
    }
}
