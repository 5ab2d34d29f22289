//! What is printed without what differs between two runs: UIDs, versions, times, ages, drawn names, hashes, addresses, and the
//! width of columns. Input: text. Output: text to compare. It must not know which text is right.

use std::sync::LazyLock;

use regex::Regex;

/// What to look for, in this order, with what takes its place. Names are drawn, and hashes written, with consonants and digits
/// that spell no words.
const RULES: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    (r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}", "<time>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}( [A-Z]{3})?", "<time>"),
    (r"(?m)^(! )?[IWEF]\d{4} [0-9:.]+ +\d+ [a-z_]+\.go:\d+\]", "$1<log>"),
    (r#"(resourceVersion"?: ?)"\d+""#, "$1\"<version>\""),
    (r"Resource Version: +\d+", "Resource Version:  <version>"),
    // kwok's nodes say their own.
    (r"\b(kwok-[0-9.]+|v1\.\d+\.\d+)\b", "<version>"),
    (r"https://127\.0\.0\.1:\d+", "<server>"),
    (r"\b(10|172|192|196)(\.\d+){3}\b", "<address>"),
    (r"\b(LIVE|MERGED)-\d+", "$1-<drawn>"),
    (r"(pod-template-hash|controller-revision-hash)(=|: )\S+", "$1$2<hash>"),
    (r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}\b", "-<hash>"),
    (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<drawn>"),
    (r"-\d{8}\b", "-<minute>"),
    (r"\b3[0-2]\d{3}\b", "<port>"),
    (r" \(x\d+ over [^)]*\)", ""),
    (r"(?m)(^|[ (])(\d{1,3}s|\d{1,2}m(\d+s)?)($|[ ),])", "$1<age>$4"),
    (r"(?m)(\S) {2,}", "$1  "),
    (r"(?m) +$", ""),
];

static COMPILED: LazyLock<Vec<(Regex, &str)>> =
    LazyLock::new(|| RULES.iter().map(|(rule, by)| (Regex::new(rule).unwrap(), *by)).collect());

pub(crate) fn text(printed: &str) -> String {
    COMPILED.iter().fold(printed.to_owned(), |text, (rule, by)| rule.replace_all(&text, *by).into_owned())
}

#[test]
fn what_differs_between_runs_is_replaced_and_what_was_asked_stays() {
    for (printed, expected) in [
        (
            "web-5d8f9c7b6d-x2x4z   1/1     Running   0     12s   10.244.0.3",
            "web-<hash>-<drawn>  1/1  Running  0  <age>  <address>",
        ),
        ("AGE\n5s  \n2m10s\n", "AGE\n<age>\n<age>\n"),
        ("    resourceVersion: \"12\"", "    resourceVersion: \"<version>\""),
        ("  - name: nginx-plain\n    periodSeconds: 10", "  - name: nginx-plain\n    periodSeconds: 10"),
        ("Controlled By:  ReplicaSet/web-5d8f9c7b6d", "Controlled By:  ReplicaSet/web-<hash>"),
    ] {
        assert_eq!(text(printed), expected);
    }
}
