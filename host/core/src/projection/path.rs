//! The syntax of field paths: text to member names. See `projection.rs` for what a path means.

use thiserror::Error;

/// Longest path in bytes. The deepest paths of the built-in kinds have some 150.
const MAX_PATH_BYTES: usize = 1_024;

/// Why a field path cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the field path {path:?} is invalid at byte {at}: {problem}")]
pub struct InvalidPath {
    /// The path as it was given.
    pub path: String,
    /// Where in it.
    pub at: usize,
    /// What is wrong there.
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

/// The member in `["..."]`, and the length of the whole. `quoted` is what follows the bracket at `at`.
fn bracketed(path: &str, at: usize, quoted: &str) -> Result<(String, usize), InvalidPath> {
    let Some(inner) = quoted.strip_prefix('"') else {
        let problem = "only [\"name\"] stands in brackets; a path goes through all elements of an array by itself";
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
                _ => return Err(invalid(path, inner_at + offset, "a backslash stands only before \" and \\")),
            },
            _ => member.push(character),
        }
    }
    Err(invalid(path, path.len(), "the closing quote is missing"))
}

/// An error that carries no more of a path than a person reads.
pub(super) fn invalid(path: &str, at: usize, problem: &'static str) -> InvalidPath {
    let path = if path.len() > MAX_PATH_BYTES { path.chars().take(64).collect() } else { path.to_owned() };
    InvalidPath { path, at, problem }
}
