//! The bound beside what the allocator gave.

use super::*;
use crate::allocations::counted;

/// The bound and the bytes that the tree holds.
fn check(text: &str) -> (usize, usize) {
    let (count, parsed) = counted(|| serde_json::from_slice::<Value>(text.as_bytes()).unwrap());
    drop(parsed);
    let held = usize::try_from(count.held_bytes).unwrap();
    let bound = tree_bytes(text.as_bytes());
    let excerpt: String = text.chars().take(60).collect();
    assert!(bound >= held, "{excerpt}: {bound} are counted, {held} held");
    let most = WORST_OF_BYTE * text.len() + tree(1, MEMBER_BYTES);
    assert!(bound <= most, "{excerpt}: {bound} for {} bytes of text", text.len());
    (bound, held)
}

fn list(value: &str, count: usize) -> String {
    format!("[{}]", vec![value; count].join(","))
}

fn object(keys: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", keys.map(|key| format!("{key:?}:0")).collect::<Vec<_>>().join(","))
}

#[test]
fn the_bound_of_the_worst_texts_is_what_the_allocator_gives_and_two_thirds_more_at_most() {
    let nested = format!("{}0{}", r#"{"":"#.repeat(120), "}".repeat(120));
    let lists = format!("{}0{}", "[".repeat(120), "]".repeat(120));
    let texts = [
        list(r#"{"":0}"#, 10_000),
        list(r#"{"a":{"b":[]}}"#, 1_000),
        list("[]", 65_537),
        list("[0]", 10_000),
        list("{}", 4_096),
        list("0", 4_097),
        list(r#""a""#, 10_000),
        list(r#""""#, 10_000),
        list(r#"{"a":"b","c":1.5,"d":null,"e":true,"":{}}"#, 1_000),
        list(&nested, 100),
        list(&lists, 100),
        object((0..30_000).map(|number| format!("{number:05}"))),
        object((0..30_000).rev().map(|number| format!("{number:05}"))),
        object((0..30_000_u32).map(|number| format!("{}", number.wrapping_mul(2_654_435_761)))),
        object((0..1_000).map(|number| format!("{}{number}", "k".repeat(1_000)))),
        object((0..12).map(|number| number.to_string())),
        list(&object((0..11).map(|number| number.to_string())), 1_000),
        list(&object((0..12).map(|number| number.to_string())), 1_000),
        format!("\"{}\"", "x".repeat(100_000)),
    ];
    for text in texts {
        let (bound, held) = check(&text);
        // Of short texts glibc takes 32 bytes for each, which is counted, and jemalloc 8 or 16.
        assert!(bound * 3 <= held * 5, "{}: {bound} are counted, {held} held", &text[..60.min(text.len())]);
    }
}

#[test]
fn the_bound_holds_for_any_notation() {
    for text in [
        "0",
        "null",
        " [ ] ",
        " { } ",
        r#" [ "a" , 1 , "\"]," , { "x" : [ ] } ] "#,
        r#"{"a":"\u0041\ud83d\ude00\n\\","a":"","a":"é😀"}"#,
        r#"["\\","\\\"",",[{"]"#,
        r#"{"a\u0062":{"":[[[]]]},"c":[{},{}]}"#,
    ] {
        check(text);
    }
    // A key that is written twice is one member.
    check(&list(r#"{"a":1,"a":2,"a":3,"a":4,"a":5,"a":6,"a":7,"a":8,"a":9,"a":10,"a":11,"a":12}"#, 100));
}

#[test]
fn a_string_that_the_parser_reads_as_json_is_counted_as_json() {
    let inner = list(r#"{"":0}"#, 1_000).replace('"', r#"\""#);
    for key in ["$serde_json::private::RawValue", r"\u0024serde_json::private::Raw\u0056alue"] {
        for text in [format!(r#"{{"{key}":"{inner}"}}"#), format!(r#"{{"a":[{{ "{key}" : "{inner}" }}]}}"#)] {
            let (_, held) = check(&text);
            assert!(held > 640_000, "the parser has read it: {held}");
        }
    }
    let (bound, held) = check(&format!(r#"{{"a":0,"$serde_json::private::RawValue":"{inner}"}}"#));
    assert!(bound < inner.len() * 2 && held < inner.len() * 2, "{bound} {held}");
}

#[test]
fn the_bound_holds_for_what_is_built_before_a_text_fails() {
    let deep = format!("[{},{}", list(r#"{"":0}"#, 1_000), "[".repeat(200));
    let broken = format!("{},,", &list(r#"{"":0}"#, 1_000)[..7_000]);
    for text in [&*deep, &*broken, "{", "[\"", "[\"\\", "[\"\\u1", "]", "}}", ",", "\"", "[0,", "{\"a\":\"b"] {
        let bytes = text.as_bytes();
        let (count, error) =
            counted(|| serde_json::from_slice::<Value>(bytes).map(drop).map_err(|error| error.to_string()));
        assert!(error.is_err());
        // Rust counts what was allocated, without the allocator's rounding, also what lists had before they grew.
        assert!(count.allocated_bytes <= 2 * tree_bytes(bytes) + 1_024, "{text:.40}: {}", count.allocated_bytes);
    }
}
