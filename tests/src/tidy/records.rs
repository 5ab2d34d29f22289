//! The decision records name tests that exist. Names are read from their text: words in backticks, in snake_case with
//! three underscores at least, which no crate, type or field has.

use std::collections::BTreeSet;
use std::fs;

use super::source::{Source, sources};
use super::{expect_none, root};

/// The names of tests in a record.
pub fn named(record: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    record.split('`').skip(1).step_by(2).filter(is_name)
}

#[test]
fn the_tests_that_decision_records_name_exist() {
    let tests: BTreeSet<String> = sources().iter().flat_map(Source::tests).collect();
    let folder = root().join("docs/decisions");
    let (mut wrong, mut found) = (Vec::new(), 0);
    for entry in fs::read_dir(folder).expect("there are decision records") {
        let path = entry.expect("the folder can be read").path();
        let record = fs::read_to_string(&path).expect("a record is text");
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found += named(&record).count();
        wrong.extend(named(&record).filter(|name| !tests.contains(*name)).map(|name| format!("{file}: {name}")));
    }
    assert!(found > 50, "{found} names were found");
    expect_none("tests that a decision record names and that do not exist", wrong);
}

#[test]
fn names_of_tests_are_words_in_backticks_with_three_underscores() {
    let record =
        "Holds it: R1. `r1_a_view_is_frozen`, `host/cli/src/a_b_c_d.rs`, `one_two`, a_bare_name_here, `x_y_z_1`.";
    assert_eq!(named(record).collect::<Vec<_>>(), ["r1_a_view_is_frozen", "x_y_z_1"]);
}
