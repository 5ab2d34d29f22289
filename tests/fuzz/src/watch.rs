//! The bytes of a watch to its events. An input is the stream, read as one that begins with a list and as one that does
//! not, or says what objects to make.

use bytes::Bytes;
use mortise_core::generated;
use mortise_core::object::{Interner, Kind, Object};
use mortise_core::watch::WatchEvent;
use mortise_core::watch_stream::{Decoded, Decoder, End};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cost::{self, Bound};
use crate::worst::Maker;

/// Of each byte of a stream while it is read, beside what is kept of it: a copy of the line, a copy without its managedFields, and
/// members of an object, which are a name and a reference in five bytes each.
const READ_FACTOR: usize = 24;
/// Object types of which a stream has one; the second is the kind whose values the host may hide.
const KINDS: [(&str, &str); 2] = [("v1", "Pod"), ("v1", "Secret")];

pub(crate) fn run(input: &[u8]) {
    match Maker::of(input) {
        Some(mut maker) => read_stream(made(&mut maker).as_bytes()),
        None => read_stream(input),
    }
}

fn made(maker: &mut Maker<'_>) -> String {
    let (api_version, kind) = KINDS[maker.up_to(1)];
    let frame = |maker: &mut Maker<'_>| {
        let (word, object) =
            (maker.one(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), maker.object(api_version, kind));
        format!("{{\"type\":\"{word}\",\"object\":{object}}}\n")
    };
    (0..=maker.up_to(3)).map(|_| frame(maker)).collect()
}

fn read_stream(input: &[u8]) {
    let is_of_secrets = input.windows(b"Secret".len()).any(|window| window == b"Secret");
    let (api_version, kind) = KINDS[usize::from(is_of_secrets)];
    let kind = Kind::new(api_version, kind);
    for is_listing in [false, true] {
        let whole = read(&kind, is_listing, std::iter::once(input));
        let by_lines = read(&kind, is_listing, input.split_inclusive(|byte| *byte == b'\n'));
        assert_eq!(whole, by_lines, "cut at the ends of lines");
        assert_eq!(whole, read(&kind, is_listing, input.chunks(1)), "cut at every byte");
        let length = input.len() / 3 + 1;
        assert_eq!(whole, read(&kind, is_listing, input.chunks(length)), "cut at every {length} bytes");
        check_lines(&kind, is_listing, input);
        check_cost(&kind, is_listing, input);
    }
}

/// What the cache counts for the objects of a stream is what they take. Texts that objects share are there before.
fn check_cost(kind: &Kind, is_listing: bool, input: &[u8]) {
    let mut interner = Interner::default();
    let mut decode = || {
        let mut decoder = Decoder::new(kind.clone(), is_listing);
        decoder.push(Bytes::copy_from_slice(input));
        let mut all = Vec::new();
        while let Ok(Some(decoded)) = decoder.next(&mut interner) {
            all.push(decoded);
        }
        all
    };
    let kept = bytes_of(&decode());
    let bound = Bound { input: input.len(), peak: kept + READ_FACTOR * input.len() };
    cost::within("reading a stream", bound, decode, bytes_of);
}

fn bytes_of(all: &Vec<Decoded>) -> usize {
    let of_one = |decoded: &Decoded| match decoded {
        Decoded::Listed(object) => object.bytes(),
        Decoded::Event(WatchEvent::Applied(object) | WatchEvent::Deleted(object)) => object.bytes(),
        Decoded::Event(WatchEvent::Undecodable { message }) => message.capacity(),
        Decoded::Event(_) => 0,
    };
    all.capacity() * size_of::<Decoded>() + all.iter().map(of_one).sum::<usize>()
}

/// The events of a stream as text, with its end.
fn read<'a>(kind: &Kind, is_listing: bool, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut decoder, mut interner) = (Decoder::new(kind.clone(), is_listing), Interner::default());
    let mut shown = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next(&mut interner) {
                Ok(Some(decoded)) => shown.push(text_of(&decoded)),
                Ok(None) => break,
                Err(end) => {
                    shown.push(format!("{end:?}"));
                    return shown;
                }
            }
        }
    }
    shown
}

fn text_of(decoded: &Decoded) -> String {
    let objects = match decoded {
        Decoded::Listed(object) => vec![object],
        Decoded::Event(WatchEvent::Applied(object) | WatchEvent::Deleted(object)) => vec![&**object],
        Decoded::Event(_) => vec![],
    };
    let texts = objects.into_iter().map(|object| {
        let Object { labels, controller, child_key, desired, generated, own_fields, deleting, generation, uid, .. } =
            object;
        let header = format!("{labels:?} {controller:?} {child_key:?} {desired:?} {generated:?} {own_fields:?}");
        format!("{uid} {generation} {deleting} {header} {}", object.json())
    });
    format!("{decoded:?} {}", texts.collect::<String>())
}

#[derive(Deserialize)]
struct Frame<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Each line says what a parser of the whole line finds in it.
fn check_lines(kind: &Kind, is_listing: bool, input: &[u8]) {
    let (mut decoder, mut interner) = (Decoder::new(kind.clone(), is_listing), Interner::default());
    for line in input.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let was_listing = decoder.is_listing();
        decoder.push(Bytes::copy_from_slice(line));
        let result = decoder.next(&mut interner);
        let frame =
            serde_json::from_slice::<Frame<'_>>(line).ok().filter(|_| line.trim_ascii_start().starts_with(b"{"));
        match &result {
            Ok(Some(decoded)) => check_event(kind, was_listing, line, frame.as_ref(), decoded),
            Ok(None) => assert!(was_listing, "only a bookmark within a list is no event"),
            Err(End::Unreadable(why)) => assert!(!why.is_empty()),
            Err(End::Refused(_)) => assert!(frame.is_none_or(|frame| frame.r#type == "ERROR")),
        }
        if result.is_err() {
            return;
        }
        assert!(matches!(decoder.next(&mut interner), Ok(None)), "one line is one event");
    }
}

fn check_event(kind: &Kind, was_listing: bool, line: &[u8], frame: Option<&Frame<'_>>, decoded: &Decoded) {
    let (types, object): (&[&str], _) = match decoded {
        Decoded::Listed(object) => (&["ADDED", "MODIFIED"], Some(object)),
        Decoded::Event(WatchEvent::Applied(object)) => (&["ADDED", "MODIFIED"], Some(&**object)),
        Decoded::Event(WatchEvent::Deleted(object)) => (&["DELETED"], Some(&**object)),
        Decoded::Event(WatchEvent::Undecodable { .. }) => (&["ADDED", "MODIFIED", "DELETED"], None),
        Decoded::Event(WatchEvent::ListDone(_)) => return assert!(was_listing),
        Decoded::Event(WatchEvent::Progress(_)) => return assert!(!was_listing),
        other => panic!("a stream has no {other:?}"),
    };
    assert!(object.is_none() || was_listing == matches!(decoded, Decoded::Listed(_)) || types == ["DELETED"]);
    // The limit of its nesting is one level less than that of the object alone.
    let Some(frame) = frame else { return };
    assert!(types.contains(&&*frame.r#type), "{decoded:?} of {}", frame.r#type);
    let alone = Object::decode_as(kind, frame.object.get().as_bytes(), &mut Interner::default());
    match (object, alone) {
        (Some(object), Ok(alone)) => {
            assert_eq!(object.json(), alone.json());
            check_object(kind, frame.object.get(), object);
        }
        (None, Err(_)) => {}
        (found, alone) => {
            panic!("{found:?} in the stream, {alone:?} alone: {}", String::from_utf8_lossy(line));
        }
    }
}

/// The decoder's cuts and insertions leave the object that a parser finds.
fn check_object(kind: &Kind, source: &str, object: &Object) {
    let mut wanted: Value = serde_json::from_str(source).expect("it was decoded");
    if object.generated.is_some() {
        wanted = generated::hide(source)
            .map(|(text, _)| serde_json::from_str(&text))
            .expect("it was hidden")
            .expect("as JSON");
    }
    assert!(wanted.is_object(), "an object was decoded from {source}");
    wanted["apiVersion"] = (*kind.api_version).into();
    wanted["kind"] = (*kind.kind).into();
    let metadata = wanted["metadata"].as_object_mut().expect("an object has metadata");
    metadata.remove("managedFields");
    assert_eq!(metadata["name"], *object.name.name);
    assert_eq!(metadata["uid"], *object.uid);
    assert_eq!(metadata["resourceVersion"].as_str().map(str::parse), Some(Ok(object.resource_version.0)));
    let found: Value = crate::json_of(object.json());
    assert_eq!(found, wanted, "of {source}");
    let status = object.status().map_or(Value::Null, crate::json_of);
    assert_eq!(status, found["status"]);
    assert_ne!(object.content_hash(), 0);
    for (key, value) in object.labels.iter() {
        assert!(found["metadata"]["labels"][key].is_string(), "{key}={value}");
    }
}
