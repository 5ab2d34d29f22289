//! Decodes a stream of the API server: the bytes of a watch in, the objects of its list and its events out. It performs no
//! I/O and knows neither how a stream is opened nor what follows its end. How the bytes are cut into chunks makes no
//! difference.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use self::frames::{FrameKind, Line, Lines, MAX_LINE_BYTES, split, split_any_form};
use crate::object::{Interner, Kind, Object, ResourceVersion};
use crate::response::{Refused, chain};
use crate::watch::WatchEvent;

mod frames;

/// The annotation of the bookmark that ends a streaming list.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Bytes of a line in a message: the type and the object's apiVersion, kind and name.
const SHOWN_BYTES: usize = 100;

/// What a line says.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the objects of a list are moved into a vector; a box for each would cost more"
)]
pub enum Decoded {
    /// An object of the list that the stream begins with.
    Listed(Object),
    /// An event; [`WatchEvent::ListDone`] ends the list.
    Event(WatchEvent),
}

/// Why a stream cannot be read further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The API server ended it with an error.
    Refused(Refused),
    /// It sent what is no frame of a watch; a sentence.
    Unreadable(String),
}

/// The decoder of one stream.
#[derive(Debug)]
pub struct Decoder {
    kind: Kind,
    lines: Lines,
    is_listing: bool,
}

#[derive(Deserialize)]
struct Bookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl Decoder {
    /// The decoder of a stream of one kind, which begins with a list or does not.
    pub fn new(kind: Kind, is_listing: bool) -> Self {
        Self { kind, lines: Lines::default(), is_listing }
    }

    /// Whether the list is not complete yet.
    pub fn is_listing(&self) -> bool {
        self.is_listing
    }

    /// Adds the next chunk. Everything of the previous one must be taken first.
    pub fn push(&mut self, chunk: Bytes) {
        self.lines.push(chunk);
    }

    /// What the next line says; None when more bytes are needed.
    ///
    /// # Errors
    /// The stream ends here.
    pub fn next(&mut self, interner: &mut Interner) -> Result<Option<Decoded>, End> {
        while let Some(line) = self.lines.pop() {
            let decoded = match line {
                Line::Whole(line) => self.frame(&line, interner)?,
                Line::TooLong { start } => Some(Decoded::Event(self.too_long(&start))),
            };
            if decoded.is_some() {
                return Ok(decoded);
            }
        }
        Ok(None)
    }

    /// None: a bookmark within a list.
    fn frame(&mut self, line: &[u8], interner: &mut Interner) -> Result<Option<Decoded>, End> {
        let Some((kind, text)) = split(line) else {
            let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).into_owned();
            return Err(End::Unreadable(format!("a line is not a frame of a watch: {start}")));
        };
        match self.read(kind, text, interner) {
            // The API server writes the object last. Of other servers the text may have more members after it.
            failed if is_unreadable(&failed) => match split_any_form(line).filter(|(_, alone)| *alone != text) {
                Some((kind, alone)) => self.read(kind, alone, interner),
                None => failed,
            },
            read => read,
        }
    }

    fn read(&mut self, kind: FrameKind, text: &[u8], interner: &mut Interner) -> Result<Option<Decoded>, End> {
        match kind {
            FrameKind::Bookmark => return Ok(self.bookmark(text)?.map(Decoded::Event)),
            FrameKind::Error => return Err(End::Refused(Refused::from_status(text).unwrap_or_default())),
            FrameKind::Added | FrameKind::Modified | FrameKind::Deleted => {}
        }
        let event = match object(&self.kind, text, interner) {
            Ok(object) if self.is_listing && kind != FrameKind::Deleted => return Ok(Some(Decoded::Listed(object))),
            Ok(object) if kind == FrameKind::Deleted => WatchEvent::Deleted(Box::new(object)),
            Ok(object) => WatchEvent::Applied(Box::new(object)),
            Err(message) => WatchEvent::Undecodable { message },
        };
        Ok(Some(Decoded::Event(event)))
    }

    fn bookmark(&mut self, text: &[u8]) -> Result<Option<WatchEvent>, End> {
        let bookmark: Bookmark<'_> = serde_json::from_slice(text)
            .map_err(|error| End::Unreadable(format!("a bookmark cannot be read: {error}")))?;
        let version = version(&self.kind, &bookmark.metadata.resource_version).map_err(End::Unreadable)?;
        if !self.is_listing {
            return Ok(Some(WatchEvent::Progress(version)));
        }
        let ends = bookmark.metadata.annotations.is_some_and(|all| all.contains_key(INITIAL_EVENTS_END));
        self.is_listing = !ends;
        Ok(ends.then_some(WatchEvent::ListDone(version)))
    }

    fn too_long(&self, start: &[u8]) -> WatchEvent {
        let (kind, start) = (&self.kind, String::from_utf8_lossy(start));
        let message = format!(
            "an object of {kind} is larger than {MAX_LINE_BYTES} bytes and is not in the view; it begins {start}"
        );
        WatchEvent::Undecodable { message }
    }
}

/// Whether the text of a frame is not what its type says.
fn is_unreadable(read: &Result<Option<Decoded>, End>) -> bool {
    match read {
        Ok(Some(Decoded::Event(WatchEvent::Undecodable { .. }))) | Err(End::Unreadable(_)) => true,
        Err(End::Refused(refused)) => *refused == Refused::default(),
        Ok(_) => false,
    }
}

/// Decodes an object of a frame, or of a page of a list.
///
/// # Errors
/// A sentence that names the object.
pub fn object(kind: &Kind, text: &[u8], interner: &mut Interner) -> Result<Object, String> {
    Object::decode_as(kind, text, interner).map_err(|error| chain(&error))
}

/// The version of a bookmark or of a page.
///
/// # Errors
/// A sentence.
pub fn version(kind: &Kind, text: &str) -> Result<ResourceVersion, String> {
    text.parse()
        .map(ResourceVersion)
        .map_err(|_| format!("{kind} has the resourceVersion {text:?}; only numbers can be compared"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"5"}}"#;

    /// The events of one stream.
    fn decoded(stream: &str) -> Result<Vec<String>, End> {
        let (mut decoder, mut interner) = (Decoder::new(Kind::new("v1", "Pod"), false), Interner::default());
        decoder.push(Bytes::copy_from_slice(stream.as_bytes()));
        let mut events = Vec::new();
        while let Some(event) = decoder.next(&mut interner)? {
            events.push(format!("{event:?}"));
        }
        Ok(events)
    }

    #[test]
    fn members_after_the_object_of_a_frame_are_not_read() {
        let bookmark = r#"{"metadata":{"resourceVersion":"7"}}"#;
        let expired = r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#;
        let frame =
            |kind: &str, object: &str, more: &str| format!("{{\"type\":\"{kind}\",\"object\":{object}{more}}}\n");
        for more in ["", r#","extra":{"a":1}"#, r#" , "extra": []"#] {
            let stream = frame("ADDED", POD, more) + &frame("BOOKMARK", bookmark, more) + &frame("DELETED", POD, more);
            let events =
                ["Event(Applied(v1/Pod a@5))", "Event(Progress(ResourceVersion(7)))", "Event(Deleted(v1/Pod a@5))"];
            assert_eq!(decoded(&stream).unwrap(), events, "{more:?}");
            let Err(End::Refused(refused)) = decoded(&frame("ERROR", expired, more)) else { panic!("no error") };
            assert!(refused.is_expired(), "{more:?}: {refused:?}");
        }
    }

    #[test]
    fn what_is_no_frame_ends_a_stream_and_what_is_no_object_does_not() {
        for wrong in
            ["\n", "{}\n", "[]\n", "{\"type\":\"NEW\",\"object\":{}}\n", "{\"type\":\"BOOKMARK\",\"object\":{}}\n"]
        {
            assert!(matches!(decoded(wrong), Err(End::Unreadable(_))), "{wrong:?}");
        }
        let stream = format!("{{\"type\":\"ADDED\",\"object\":{{}}}}\n{{\"type\":\"ADDED\",\"object\":{POD}}}\n");
        let events = decoded(&stream).unwrap();
        assert!(events[0].contains("Undecodable") && events[1].contains("a@5"), "{events:?}");
    }
}
