//! The scanner finds requested fields in any JSON, and reports an error for anything else.

use serde_json::{Value, json};

use super::{Found, Part, Scanner, Wanted, optional_text, read, read_list, required, required_text};

const WANTED: &[Wanted] = &[
    Wanted { name: "metadata", part: Part::Fields(&[Wanted { name: "name", part: Part::Whole(0) }]) },
    Wanted {
        name: "status",
        part: Part::Fields(&[
            Wanted { name: "phase", part: Part::Whole(1) },
            Wanted { name: "list", part: Part::Whole(2) },
        ]),
    },
];

fn found(text: &str) -> [Option<&str>; 3] {
    let mut found = [None; 3];
    Scanner::new(text).fields(WANTED, &mut found).unwrap();
    found.map(|found| found.map(|found| found.json))
}

/// A value, as the scanner finds it.
fn value(json: &str) -> Option<Found<'_>> {
    Scanner::new(json).found(0)
}

#[test]
fn requested_fields_are_found_among_any_others() {
    let text = r#"{"a":[{"name":"x"},"}\"]"],"metadata":{"labels":{"name":"no"},"name":"web"},"n":-1.5e+3,
        "status" : { "phase" : "Running" , "list" : [1, {"a": "]"}] }, "t":true}"#;
    assert_eq!(found(text), [Some("\"web\""), Some("\"Running\""), Some("[1, {\"a\": \"]\"}]")]);
}

#[test]
fn missing_and_null_parents_leave_their_fields_missing() {
    for text in ["{}", " { } ", r#"{"status":null,"metadata":[]}"#, r#"{"status":{},"metadata":{}}"#] {
        assert_eq!(found(text), [None; 3], "{text}");
    }
}

#[test]
fn strings_end_at_their_own_quote_at_any_offset() {
    for length in 0..40 {
        let name = "n".repeat(length);
        let escaped = format!("{name}\\\\\\\"{name}");
        for value in [name.clone(), escaped] {
            let text = format!(r#"{{"x":"{value}","metadata":{{"name":"{value}"}}}}"#);
            let quoted = format!("\"{value}\"");
            assert_eq!(found(&text)[0], Some(quoted.as_str()), "{text}");
        }
    }
}

#[test]
fn objects_of_a_list_are_read_as_each_of_them_alone() {
    let objects = [
        r#"{"metadata":{"name":"a","x":1},"status":{"phase":"Running","list":[]}}"#,
        r#"{"metadata":{"name":"longer","x":1},"status":{"phase":null,"list":[{"name":"}"}]}}"#,
        r#"{"metadata":{"name":"a","x":2},"status":{"phase":"Running","list":[]}}"#,
        r#"{"metadata":{"name": "a","x":1},"status":{"phase":"Running","list":[]}}"#,
        r#"{"metadata":{"name":"a","x":1},"status":{"phase":"Running"}}"#,
        r#"{"status":{"list":12,"phase":"Failed"},"metadata":{"name":"\"b"}}"#,
        "{}",
        r#"{"metadata":{"name":"a","x":1},"status":{"phase":"Running","list":[]},"more":{}}"#,
    ];
    for first in objects {
        for second in objects {
            let text = format!("{first},{second},{first}");
            let mut scanner = Scanner::new(&text);
            for (each, object) in [first, second, first].into_iter().enumerate() {
                let mut together = [None; 3];
                scanner.fields(WANTED, &mut together).unwrap();
                let together = together.map(|found| found.map(|found| found.json));
                assert_eq!(together, found(object), "object {each} of {text}");
                assert_eq!(scanner.takes(b','), each < 2);
            }
        }
    }
}

#[test]
fn an_object_that_is_truncated_after_one_like_it_is_an_error_at_every_length() {
    let object = r#"{"metadata":{"name":"web"},"status":{"phase":"Running","list":[1,[]]}}"#;
    for end in 0..object.len() {
        let text = format!("{object}{}", &object[..end]);
        let mut scanner = Scanner::new(&text);
        scanner.fields(WANTED, &mut [None; 3]).unwrap();
        assert!(scanner.fields(WANTED, &mut [None; 3]).is_err(), "{}", &object[..end]);
    }
}

#[test]
fn truncated_text_is_an_error_at_every_length() {
    let text = r#"{"metadata":{"name":"web\"","n":12},"status":{"phase":"Running","list":[1,[]]}}"#;
    for end in 0..text.len() {
        let mut found = [None; 3];
        assert!(Scanner::new(&text[..end]).fields(WANTED, &mut found).is_err(), "{}", &text[..end]);
    }
}

#[test]
fn nonsense_is_an_error_and_no_panic() {
    for text in ["", "[]", "1", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{]", "{\"a\":]}", "nul", "\u{e9}", "{\"\u{e9}"] {
        assert!(Scanner::new(text).fields(WANTED, &mut [None; 3]).is_err(), "{text}");
        assert!(read_list::<Value>(text).is_err() || text == "[]", "{text}");
    }
}

#[test]
fn strings_are_borrowed_and_copied_if_they_have_escapes() {
    assert_eq!(required_text(value("\"web\""), "a"), Ok("web"));
    assert_eq!(optional_text(value("null"), "a"), Ok(None));
    assert_eq!(required_text(None, "metadata.name"), Err("metadata.name is missing".into()));
    assert_eq!(required_text(value(r#""a\nb""#), "a"), Ok("a\nb"));
    assert_eq!(optional_text(value(r#""\u00e9""#), "a"), Ok(Some("\u{e9}")));
    let refused = required_text(value("1"), "status.message").unwrap_err();
    assert!(refused.starts_with("status.message: invalid type: integer `1`, expected a string"), "{refused}");
    assert_eq!(required::<String>(value(r#""a\nb""#), "a"), Ok("a\nb".into()));
    assert!(required::<u8>(value("300"), "spec.n").unwrap_err().starts_with("spec.n: "));
}

#[test]
fn lists_and_values_read_as_serde_reads_them() {
    let list = json!([{"a": 1}, "b", null, [2], 3.5, true]);
    for text in [list.to_string(), serde_json::to_string_pretty(&list).unwrap()] {
        assert_eq!(Value::Array(read_list(&text).unwrap()), list);
        assert_eq!(read::<Value>(&text).unwrap(), list);
    }
    assert_eq!(read_list::<u8>(" [ ] "), Ok(vec![]));
}
