//! The words that ARCHITECTURE.md's glossary replaced. They are looked for in all text that people write here: comments, messages,
//! documents, and the parts of identifiers.

/// Words that mortise does not use, with those that it does.
const REPLACED: [(&str, &str); 18] = [
    ("told", "reported, sent or notified"),
    ("stands", "say what it is"),
    ("stood", "say what it was"),
    ("goes", "is sent, is deleted or continues"),
    ("whoever", "name the caller"),
    ("happening", "event or observation"),
    ("happenings", "events or observations"),
    ("neighbour", "another plugin"),
    ("neighbours", "other plugins"),
    ("tally", "counts"),
    ("grave", "tombstone"),
    ("graves", "tombstones"),
    ("rooms", "capacity"),
    ("question", "query, read, request or review"),
    ("questions", "queries, reads, requests or reviews"),
    ("trouble", "name the error"),
    ("driver", "engine"),
    ("moot", "obsolete"),
];

/// Fields of Kubernetes' API that have such a name.
const FIELDS: [&str; 2] = ["\"driver\"", "\"spec.driver\""];

/// Every replaced word of a line with what to say instead.
pub fn replaced(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let line = FIELDS.iter().fold(line.to_owned(), |line, field| line.replace(field, ""));
    let words: Vec<String> = words(&line).collect();
    REPLACED.into_iter().filter(move |(word, _)| words.iter().any(|found| found == word))
}

/// The words of a line in lower case: `WorkQueue::take_next` has four.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|name| {
        let mut words: Vec<String> = Vec::new();
        let mut after_lower = true;
        for c in name.chars() {
            if c.is_ascii_uppercase() && after_lower || words.is_empty() {
                words.push(String::new());
            }
            after_lower = c.is_ascii_lowercase();
            words.last_mut().expect("the first character began a word").push(c.to_ascii_lowercase());
        }
        words
    })
}

#[test]
fn words_are_found_in_prose_and_in_names() {
    let found = |line| replaced(line).map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(found("the guest is told."), ["told"]);
    assert_eq!(found("let is_moot = true;"), ["moot"]);
    assert_eq!(found("struct LastToldAt;"), ["told"]);
    assert_eq!(found("the driver of (\"spec.driver\", \"driver\")"), ["driver"]);
    assert_eq!(found("(\"spec.driver\", \"driver\")"), [""; 0], "fields of Kubernetes keep their names");
    assert_eq!(found("the untold tolds"), [""; 0], "whole words only");
    assert_eq!(words("WorkQueue::take_next UID").collect::<Vec<_>>(), ["work", "queue", "take", "next", "uid"]);
}
