//! Responses by HTTP: that of a plugin's server without the values of Secrets which its request carried, and a Status of the API
//! server. An input is a value on one line and the response on the other, or says what to make of both.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use mortise_core::http::redact::{REDACTED, SentValues};
use mortise_core::http::{MAX_RESPONSE_BYTES, Response};
use mortise_core::response::Refused;

use crate::cost::{self, Bound};
use crate::worst::Maker;

/// Bytes of the shortest value that is looked for.
const MIN_BYTES: usize = 4;
/// Of each byte of a body while it is searched: it is read in another form with the place of each byte, nine bytes each.
const SEARCH_FACTOR: usize = 10;
/// Places where a value is found, each a range: at most 4,096 in each of seven forms, in a list that grows by doubling. What
/// replaces them takes less.
const FOUND_BYTES: usize = 3 * 7 * 4_096 * size_of::<std::ops::Range<usize>>();
/// A value is looked for with its parts: the token after the scheme, credentials in base64, and the password in them.
const PARTS: usize = 4;
/// Of each byte of a Status: causes of a byte or two each, which are three texts.
const STATUS_FACTOR: usize = 96;

pub(crate) fn run(input: &[u8]) {
    if let Some(mut maker) = Maker::of(input) {
        let status = status(&mut maker);
        let (value, body) = echo(&mut maker);
        read(status.as_bytes());
        search(value.as_bytes(), body.as_bytes());
    } else {
        let (value, body) = crate::two_lines(input);
        read(input);
        search(value, body);
    }
}

/// The Status of a refused write, with many causes.
fn status(maker: &mut Maker<'_>) -> String {
    let causes = match maker.up_to(2) {
        0 => crate::worst::list("{}", maker.count(3)),
        1 => crate::worst::list(r#"{"reason":"FieldValueInvalid","message":"","field":"spec"}"#, maker.count(60)),
        _ => maker.value(),
    };
    let message = serde_json::Value::from(maker.text().repeat(maker.up_to(64)));
    let code = 400 + maker.up_to(199);
    let details = format!(r#"{{"name":"web","kind":"pods","causes":{causes}}}"#);
    format!(r#"{{"kind":"Status","code":{code},"reason":"Invalid","message":{message},"details":{details}}}"#)
}

/// A value, and a body that has it in some form again and again.
fn echo(maker: &mut Maker<'_>) -> (String, String) {
    let value = maker.one(&["aaaa", "Bearer token-1", "Basic dXNlcjpwYXNzd29yZA", "\"\\/+ %", "0000000000"]);
    let form = match maker.up_to(5) {
        0 => value.to_owned(),
        1 => value.bytes().map(|byte| format!("{byte:02x}")).collect(),
        2 => STANDARD_NO_PAD.encode(value),
        3 => value.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
        4 => value.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        _ => value.chars().take(1 + maker.up_to(3)).collect(),
    };
    let between = maker.one(&["", " ", ",", "\n"]);
    let count = maker.count(form.len() + between.len());
    (value.to_owned(), vec![form; count].join(between))
}

fn search(value: &[u8], body: &[u8]) {
    let mut values = SentValues::default();
    values.add(value);
    let header = (Arc::from("x-echo"), Arc::from(String::from_utf8_lossy(&body[..body.len().min(256)])));
    let response = Response { status: 200, headers: vec![header], body: Arc::from(body) };
    let input = value.len() + body.len();
    let peak = SEARCH_FACTOR * input + PARTS * FOUND_BYTES;
    let search = || values.redact(response.clone());
    let redacted = cost::within("searching a response", Bound { input, peak }, search, |left: &Response| {
        left.body.len() + left.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    });
    assert!((body.is_empty() && redacted.body.is_empty()) || (1..=MAX_RESPONSE_BYTES).contains(&redacted.body.len()));
    assert_eq!((redacted.status, redacted.headers.len()), (200, 1));
    if value.len() >= MIN_BYTES && !REDACTED.as_bytes().windows(value.len()).any(|part| part == value) {
        // Byte by byte: a byte that is no UTF-8 is not the character that a lossy reading puts there.
        let (body, value) = (latin(&redacted.body), str::from_utf8(value).map(|_| latin(value)));
        let is_in = |part: &str| value.as_ref().is_ok_and(|value| part.contains(value));
        assert!(!body.split(REDACTED).any(is_in), "{value:?} is in {body:?}");
    }
    if values.is_empty() {
        assert_eq!(*redacted.body, *body, "without a value nothing is cut");
    }
}

/// Each byte as a character.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn read(text: &[u8]) {
    let bound = Bound { input: text.len(), peak: STATUS_FACTOR * text.len() };
    let kept = |refused: &Option<Refused>| {
        refused.as_ref().map_or(0, |Refused { reason, message, summary, .. }| {
            reason.capacity() + message.capacity() + summary.capacity()
        })
    };
    let Some(refused) = cost::within("reading a Status", bound, || Refused::from_status(text), kept) else { return };
    crate::check_message(&refused.to_write_error().message);
    crate::check_message(&refused.summary);
    _ = (refused.is_expired(), refused.is_starting(), refused.to_watch_error());
}
