//! Splits a watch's bytes into frames: lines, and in each line the type and the object. A line within one chunk is not
//! copied.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest line. etcd accepts requests of up to 1.5 MiB, and JSON is longer than what etcd stores; no Kubernetes object is five
/// times as long.
pub(super) const MAX_LINE_BYTES: usize = 8 << 20;

/// One line of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// A line without its end.
    Whole(Bytes),
    /// A line longer than the limit, which was skipped.
    TooLong {
        /// Its beginning, to identify the object.
        start: Bytes,
    },
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The unread rest of the newest chunk.
    chunk: Bytes,
    /// The beginning of an incomplete line.
    carry: BytesMut,
    /// A line that is too long is being skipped.
    skipping: bool,
}

/// How much of a line that is too long is kept: metadata comes first.
const START_BYTES: usize = 512;

impl Lines {
    /// Adds the next chunk. Every line of the previous one must be popped first.
    pub(super) fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.carry.extend_from_slice(&self.chunk);
            self.chunk = chunk;
        }
    }

    /// The next complete line; None when more bytes are needed.
    pub(super) fn pop(&mut self) -> Option<Line> {
        let Some(end) = memchr::memchr(b'\n', &self.chunk) else {
            self.keep_for_later();
            return None;
        };
        let mut line = self.chunk.split_to(end + 1);
        line.truncate(end);
        if self.skipping || self.carry.len() + line.len() > MAX_LINE_BYTES {
            let mut start = std::mem::take(&mut self.carry);
            start.extend_from_slice(&line[..line.len().min(START_BYTES)]);
            start.truncate(START_BYTES);
            self.skipping = false;
            return Some(Line::TooLong { start: start.freeze() });
        }
        if self.carry.is_empty() {
            return Some(Line::Whole(line));
        }
        self.carry.extend_from_slice(&line);
        Some(Line::Whole(self.carry.split().freeze()))
    }

    fn keep_for_later(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        if self.skipping {
            return;
        }
        if self.carry.len() + chunk.len() > MAX_LINE_BYTES {
            // A new buffer, so that the large one is freed.
            let mut start = BytesMut::with_capacity(START_BYTES);
            start.extend_from_slice(&self.carry[..self.carry.len().min(START_BYTES)]);
            let missing = START_BYTES - start.len();
            start.extend_from_slice(&chunk[..chunk.len().min(missing)]);
            self.carry = start;
            self.skipping = true;
            return;
        }
        self.carry.extend_from_slice(&chunk);
    }
}

/// The type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl FrameKind {
    fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            _ => return None,
        })
    }
}

/// Finds a line's type and object. The API server writes them in this order and without blanks, so the object is found
/// without parsing it; other servers may write any valid JSON.
pub(super) fn split(line: &[u8]) -> Option<(FrameKind, &[u8])> {
    split_as_written(line).or_else(|| split_any_form(line))
}

fn split_as_written(line: &[u8]) -> Option<(FrameKind, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let end = memchr::memchr(b'"', rest)?;
    let kind = FrameKind::from_name(&rest[..end])?;
    let object = rest[end..].strip_prefix(br#"","object":"#)?.trim_ascii_end().strip_suffix(b"}")?;
    Some((kind, object))
}

pub(super) fn split_any_form(line: &[u8]) -> Option<(FrameKind, &[u8])> {
    #[derive(Deserialize)]
    struct Frame<'a> {
        r#type: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let frame: Frame<'_> = serde_json::from_slice(line).ok()?;
    Some((FrameKind::from_name(frame.r#type.as_bytes())?, frame.object.get().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(chunks: &[&[u8]]) -> Vec<Line> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = lines.pop() {
                found.push(line);
            }
        }
        found
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lines_are_the_same_wherever_the_stream_is_cut() {
        let text = b"one\ntwo\n\nfour\nrest";
        let expected = [whole("one"), whole("two"), whole(""), whole("four")];
        for first in 0..text.len() {
            for second in first..text.len() {
                let found = lines_of(&[&text[..first], &text[first..second], &text[second..]]);
                assert_eq!(found, expected, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_the_next_one_is_read() {
        let long = vec![b'x'; MAX_LINE_BYTES / 2 + 1];
        let found = lines_of(&[b"start", &long, &long, &long, b"end\nnext\n"]);
        let Line::TooLong { start } = &found[0] else { panic!("not skipped") };
        assert!(start.starts_with(b"startxxx") && start.len() == START_BYTES);
        assert_eq!(found[1..], [whole("next")]);
    }

    #[test]
    fn a_line_over_the_limit_that_ends_in_its_last_chunk_is_skipped_too() {
        let long = vec![b'x'; MAX_LINE_BYTES];
        let found = lines_of(&[&long, b"x\nnext\n"]);
        assert!(matches!(found[0], Line::TooLong { .. }));
        assert_eq!(found[1..], [whole("next")]);
    }

    #[test]
    fn frames_are_split_in_the_api_servers_form_and_in_any_other() {
        let object = br#"{"metadata":{"name":"a\"}"}}"#;
        for line in [
            br#"{"type":"ADDED","object":{"metadata":{"name":"a\"}"}}}"#.as_slice(),
            br#"{ "object": {"metadata":{"name":"a\"}"}}, "type": "ADDED" }"#.as_slice(),
        ] {
            assert_eq!(split(line), Some((FrameKind::Added, object.as_slice())));
        }
        for broken in [&b""[..], b"{", br#"{"type":"ADDED"}"#, br#"{"type":"NEW","object":{}}"#, b"\xff"] {
            assert_eq!(split(broken), None);
        }
    }
}
