//! Patches between texts, applied by another implementation.

use serde_json::{Value, json};

use super::*;
use crate::allocations::counted;

fn patch_of(before: &str, after: &str) -> String {
    let raw = |text| -> &RawValue { serde_json::from_str(text).unwrap() };
    let mut patch = Patch::new(before.len() + after.len());
    patch.within("a/b~", |patch| patch.between(raw(before), raw(after)));
    patch.into_text().unwrap_or_else(|| "[]".to_owned())
}

/// The patch, which makes the one of the other.
fn check(before: &str, after: &str) -> String {
    let text = patch_of(before, after);
    let patch: json_patch::Patch = serde_json::from_str(&text).unwrap();
    let tree = |text: &str| json!({"a/b~": serde_json::from_str::<Value>(text).unwrap()});
    let mut patched = tree(before);
    json_patch::patch(&mut patched, &patch).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(patched, tree(after), "by {text}");
    text
}

#[test]
fn a_patch_says_what_differs_and_nothing_else() {
    for (before, after, patch) in [
        (r#"{"a":1,"b":[1,{"c":"\u0041"}]}"#, r#"{ "b" : [1, {"c":"A"}], "a" : 1 }"#, "[]"),
        (
            r#"{"one":{"name":"a very long text that is not repeated"},"two":1}"#,
            r#"{"one":{"name":"a very long text that is not repeated","x":2},"two":1}"#,
            r#"[{"op":"add","path":"/a~1b~0/one/x","value":2}]"#,
        ),
        (r#"{"a":1}"#, "7", r#"[{"op":"replace","path":"/a~1b~0","value":7}]"#),
    ] {
        assert_eq!(check(before, after), patch);
    }
}

#[test]
fn any_text_becomes_any_other() {
    let long = "x".repeat(200);
    let texts = [
        "null",
        "[]",
        "{}",
        "[1,2,3]",
        "[1,[2],{}]",
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":{"c":[{"d":1},{"e":2}]}}}"#,
        r#"{"a":{"b":{"c":[{"d":1},{"e":3},{}]}},"":{"~":1,"/":2,"é\"":3}}"#,
        &format!(r#"{{"a":"{long}","b":{{"c":"{long}"}},"c":["{long}",{{"x":"{long}"}},"{long}"]}}"#),
        &format!(r#"{{"a":"{long}","b":{{"d":"{long}"}},"c":["{long}",{{"x":"{long}","y":0}}]}}"#),
        &format!(r#"{{"b":{{"c":"{long}","d":1}},"c":["{long}",{{"x":"{long}"}},"{long}",1,2]}}"#),
    ];
    for before in texts {
        for after in texts {
            check(before, after);
        }
    }
}

/// Two texts, and the most that a patch and its making take for each of their bytes.
#[test]
fn a_patch_and_its_making_are_linear_in_the_texts() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
    let below = |keys: &[String], value: &str| {
        let open: String = keys.iter().map(|key| format!(r#"{{"{key}":"#)).collect();
        format!("{open}{value}{}", "}".repeat(keys.len()))
    };
    let keys: Vec<String> = (0..50).map(|_| "k".repeat(1_000)).collect();
    let deep: Vec<String> = vec![String::new(); 5_000];
    let wide = |value: &str| {
        let members: Vec<_> = (0..70_000).map(|number| format!(r#""{number}":{value}"#)).collect();
        format!("{{{}}}", members.join(","))
    };
    let control = [r"\u0001".repeat(2_000)];
    for (name, before, after) in [
        (
            "a long key",
            below(&["k".repeat(40_000)], &list("0", 40_000)),
            below(&["k".repeat(40_000)], &list("1", 40_000)),
        ),
        ("long keys", below(&keys, &list("{}", 20_000)), below(&keys, &list(r#"{"a":1}"#, 20_000))),
        ("many removed", below(&keys, &list("0", 20_000)), below(&keys, "[]")),
        ("many added", below(&keys, "[]"), below(&keys, &list("0", 20_000))),
        ("deep", below(&deep, "0"), below(&deep, "1")),
        ("wide", wide("0"), wide("1")),
        ("escapes", below(&control, &list("0", 9_000)), below(&control, &list("1", 9_000))),
        ("empty maps", list(r#"{"":0}"#, 30_000), list(r#"{"":1}"#, 30_000)),
    ] {
        let bytes = before.len() + after.len();
        let (count, patch) = counted(|| patch_of(&before, &after));
        assert!(patch.len() <= 3 * bytes, "{name}: {} for {bytes}", patch.len());
        assert!(count.allocated_bytes <= 50 * bytes, "{name}: {} for {bytes}", count.allocated_bytes);
        if bytes < 1 << 20 && name != "deep" {
            check(&before, &after);
        }
    }
}
