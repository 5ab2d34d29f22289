//! Parses field paths into member names. `projection.rs` describes the syntax.

use thiserror::Error;

/// The longest paths of built-in kinds have some 150 bytes.
const MAX_PATH_BYTES: usize = 1_024;

/// Why a field path cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the field path {path:?} is invalid at byte {at}: {problem}")]
pub struct InvalidPath {
    /// The path.
    pub path: String,
    /// The byte.
    pub at: usize,
    /// The error there.
    pub problem: &'static str,
}

/// `metadata.annotations["a.b/c"]` is ["metadata", "annotations", "a.b/c"].
pub(crate) fn parse(path: &str) -> Result<Vec<String>, InvalidPath> {
    if path.len() > MAX_PATH_BYTES {
        return Err(invalid(path, MAX_PATH_BYTES, "it is longer than 1024 bytes"));
    }
    let mut members = Vec::new();
    let mut at = 0;
    loop {
        let rest = &path[at..];
        if let Some(quoted) = rest.strip_prefix('[') {
            let (member, length) = bracketed(path, at, quoted)?;
            members.push(member);
            at += length;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if let Some(wrong) = rest[..end].find(['"', ']', '*', ' ']) {
                return Err(invalid(path, at + wrong, "put a member with this character into [\"...\"]"));
            }
            if end == 0 {
                return Err(invalid(path, at, "a member name is missing"));
            }
            members.push(rest[..end].to_owned());
            at += end;
        }
        match path.as_bytes().get(at) {
            None => return Ok(members),
            Some(b'.') => at += 1,
            Some(b'[') => {}
            Some(_) => return Err(invalid(path, at, "a dot, a bracket or the end is expected")),
        }
    }
}

/// The member in `["..."]`, and the length with brackets. `quoted` follows the bracket at `at`.
fn bracketed(path: &str, at: usize, quoted: &str) -> Result<(String, usize), InvalidPath> {
    let Some(inner) = quoted.strip_prefix('"') else {
        let problem = "brackets hold [\"name\"] only; a path visits all elements of an array without an index";
        return Err(invalid(path, at + 1, problem));
    };
    let inner_at = at + 2;
    let mut member = String::new();
    let mut characters = inner.char_indices();
    while let Some((offset, character)) = characters.next() {
        match character {
            '"' if inner[offset + 1..].starts_with(']') => return Ok((member, offset + 4)),
            '"' => return Err(invalid(path, inner_at + offset + 1, "a closing bracket is expected")),
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => member.push(escaped),
                _ => return Err(invalid(path, inner_at + offset, "a backslash escapes only \" and \\")),
            },
            _ => member.push(character),
        }
    }
    Err(invalid(path, path.len(), "the closing quote is missing"))
}

/// The error, with a shortened path if it is too long.
pub(super) fn invalid(path: &str, at: usize, problem: &'static str) -> InvalidPath {
    let path = if path.len() > MAX_PATH_BYTES { path.chars().take(64).collect() } else { path.to_owned() };
    InvalidPath { path, at, problem }
}
