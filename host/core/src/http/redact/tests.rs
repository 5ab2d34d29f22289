//! Echoes of values, in the forms in which servers write them.

use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};

use super::*;

/// With what is escaped in JSON, in URLs and in forms.
const VALUE: &[u8] = br#"p/ss"w\rd+1 %41~"#;

fn values(all: &[&[u8]]) -> SentValues {
    let mut values = SentValues::default();
    all.iter().for_each(|value| values.add(value));
    values
}

fn body(values: &SentValues, body: impl Into<Vec<u8>>) -> String {
    let response = Response { status: 200, headers: Vec::new(), body: body.into().into() };
    String::from_utf8(values.redact(response).body.to_vec()).unwrap()
}

#[track_caller]
fn is_cut(values: &SentValues, echo: &str) {
    assert_eq!(body(values, format!("<{echo}>")), format!("<{REDACTED}>"), "{echo}");
}

#[test]
fn g8_an_echoed_value_is_cut_out_in_the_forms_in_which_servers_write_it() {
    let values = values(&[VALUE]);
    let text = std::str::from_utf8(VALUE).unwrap();
    let json = serde_json::to_string(text).unwrap();
    let json = json.trim_matches('"');
    let percent = |spared: &[u8], upper: bool| -> String {
        let byte = |byte: &u8| match byte {
            _ if byte.is_ascii_alphanumeric() || spared.contains(byte) => char::from(*byte).to_string(),
            _ if upper => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        };
        VALUE.iter().map(byte).collect()
    };
    let numbers: String = VALUE.iter().map(|byte| format!("\\u{byte:04x}")).collect();
    let digits: String = VALUE.iter().map(|byte| format!("{byte:02x}")).collect();
    for echo in [text, json, &json.replace('/', "\\/"), &json.replace('+', "\\u002B"), &numbers] {
        is_cut(&values, echo);
    }
    for echo in [percent(b"-._~", true), percent(b"", false), percent(b"~", true).replace("%20", "+"), digits.clone()] {
        is_cut(&values, &echo);
    }
    is_cut(&values, &digits.to_uppercase());
    assert_eq!(body(&values, "p/ss"), "p/ss", "a part of it is none");
}

#[test]
fn g8_a_value_in_base64_is_cut_out_wherever_it_begins_with_the_characters_that_share_its_bits() {
    for value in [&b"s3cret-of-some-length"[..], b"\xff\xfe\xfb\xef\xff\xbe", VALUE, b"four"] {
        let values = values(&[value]);
        for before in ["", "a", "ab", "user:"] {
            for after in ["", "z", "yz", "xyz"] {
                let all = [before.as_bytes(), value, after.as_bytes()].concat();
                for text in [STANDARD.encode(&all), URL_SAFE.encode(&all), URL_SAFE_NO_PAD.encode(&all)] {
                    let left = body(&values, text.clone());
                    assert!(left.contains(REDACTED), "{value:?} in {text}: {left}");
                    // What is left are the characters that have no bit of the value.
                    let [head, tail] = left.split(REDACTED).collect::<Vec<_>>()[..] else { panic!("{left}") };
                    let value_ends = 8 * (before.len() + value.len());
                    let (most_before, most_after) =
                        (8 * before.len() / 6, (8 * all.len()).div_ceil(6) - value_ends.div_ceil(6));
                    let length = |text: &str| text.trim_end_matches('=').len();
                    assert_eq!((length(head), length(tail)), (most_before, most_after), "{left}: {value:?}");
                }
            }
        }
    }
}

#[test]
fn g8_base64_in_lines_or_escaped_for_json_or_a_url_is_found() {
    let value = b"\xff\xef\xbe\xfb\xff s3cret";
    let values = values(&[value]);
    let text = STANDARD.encode(value);
    assert!(text.contains('/') && text.contains('+'), "{text}");
    for echo in [
        text.replace('/', "\\/"),
        text.replace('/', "%2F").replace('+', "%2b"),
        format!("{}\r\n{}", &text[..7], &text[7..]),
        format!("{}\\n{}", &text[..7], &text[7..]),
    ] {
        assert!(body(&values, echo.clone()).contains(REDACTED), "{echo}");
    }
}

#[test]
fn g8_the_token_after_a_scheme_and_the_password_of_credentials_are_cut_out_alone_too() {
    let values = values(&[b"Bearer t0ken-1", STANDARD.encode("admin:hunter22").as_bytes()]);
    for echo in ["t0ken-1", "Bearer t0ken-1", "hunter22", "admin:hunter22", &STANDARD.encode("admin:hunter22")] {
        is_cut(&values, echo);
    }
    assert_eq!(body(&values, "Bearer admin"), "Bearer admin");
    assert!(!format!("{values:?}").contains("116"), "{values:?}");
}

#[test]
fn g8_headers_have_no_value_and_the_length_of_the_body_that_is_left() {
    let values = values(&[b"S3cret"]);
    let header = |name: &str, value: &str| -> Header { (name.into(), value.into()) };
    let headers = vec![header("content-length", "8"), header("x-echo", "a S3cret"), header("x-s3cret-1", "1")];
    let response = Response { status: 401, headers: headers.clone(), body: Arc::from(*b"<S3cret>") };
    let Response { status, headers: left, body } = values.redact(response);
    let length = (REDACTED.len() + 2).to_string();
    assert_eq!(left, [header("content-length", &length), header("x-echo", &format!("a {REDACTED}"))]);
    assert_eq!((status, body.len().to_string()), (401, length));
    let untouched = Response { status: 200, headers: headers[..1].to_vec(), body: Arc::from(*b"nothing!") };
    assert_eq!(values.redact(untouched.clone()), untouched);
}

#[test]
fn a_value_of_three_bytes_is_not_looked_for() {
    assert!(values(&[b"abc", b""]).is_empty());
    is_cut(&values(&[b"abcd"]), "abcd");
}

#[test]
fn a_text_that_has_values_at_too_many_places_is_cut_out_as_a_whole() {
    let values = values(&[b"abcd"]);
    let some = "abcd,".repeat(MAX_FOUND - 1);
    assert_eq!(body(&values, some.clone()).matches(REDACTED).count(), MAX_FOUND - 1);
    assert_eq!(body(&values, some + "abcd,"), REDACTED);
    let large = "abcd".to_owned() + &"x".repeat(MAX_RESPONSE_BYTES - 4);
    assert_eq!(body(&values, large), REDACTED, "the text in place of a value is longer than it");
}
