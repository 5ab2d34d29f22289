//! docs/promises.md has a row for every number, and each row names tests that exist in the place that it names, or says why
//! there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::records::named;
use super::source::{Source, sources};
use super::{expect_none, root};

/// The letters of the tables, each with its last number.
const TABLES: [(&str, usize); 4] = [("P", 27), ("H", 34), ("F", 35), ("W", 14)];

/// The places that rows name, with the beginnings of the paths that they mean.
const PLACES: [(&str, &str); 20] = [
    ("core", "host/core/"),
    ("wasm", "host/wasm/"),
    ("kube", "host/kube/"),
    ("runtime", "host/runtime/"),
    ("source", "host/source/"),
    ("stories", "host/stories/"),
    ("local-cluster", "host/local-cluster/"),
    ("local-server", "host/local-server/"),
    ("cli", "host/cli/"),
    ("dev", "host/dev/"),
    ("cron", "cron/"),
    ("pod-security", "pod-security/"),
    ("podset", "plugins/podset/"),
    ("outcomes", "tests/src/outcomes"),
    ("scenarios", "tests/src/scenarios"),
    ("simulation", "tests/src/simulation/"),
    ("local", "tests/src/local/"),
    ("e2e", "tests/src/e2e/"),
    ("conformance", "tests/conformance/"),
    ("tidy", "tests/src/tidy"),
];

/// One line of a table: its number, what is promised, and what holds it.
pub(super) struct Row<'a> {
    pub(super) number: &'a str,
    pub(super) promise: &'a str,
    pub(super) held_by: &'a str,
}

pub(super) fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [number, promise, held_by] = cells[..] else { return None };
        let (letter, digits) = number.split_at_checked(1)?;
        let is_number = TABLES.iter().any(|(known, _)| *known == letter) && digits.parse::<usize>().is_ok();
        is_number.then_some(Row { number, promise, held_by })
    })
}

/// The tests that a row names, each with its place: "core: `a_b_c_d`, `e_f_g_h`; kube: `i_j_k_l`".
pub(super) fn placed(held_by: &str) -> Vec<(&str, &str)> {
    let (mut place, mut found) = ("", Vec::new());
    for (at, part) in held_by.split('`').enumerate() {
        if at % 2 == 1 {
            found.extend(is_test_name(part).then_some((place, part)));
        } else if let Some(label) = part.trim_end().strip_suffix(':') {
            place = label.rsplit([' ', ';']).next().unwrap_or_default();
        }
    }
    found
}

/// As in decision records.
fn is_test_name(word: &str) -> bool {
    named(&format!("`{word}`")).next().is_some()
}

/// All tests of the repository, by name, with the files that have them.
pub(super) struct Tests(BTreeMap<String, Vec<String>>);

impl Tests {
    pub(super) fn all() -> Self {
        let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for source in sources() {
            for test in Source::tests(&source) {
                tests.entry(test).or_default().push(source.name());
            }
        }
        Self(tests)
    }

    /// Whether a test is in the place that a row names.
    pub(super) fn has(&self, place: &str, name: &str) -> bool {
        let folder = PLACES.iter().find(|(known, _)| *known == place).map(|(_, folder)| *folder);
        let files = self.0.get(name);
        folder.zip(files).is_some_and(|(folder, files)| files.iter().any(|file| file.starts_with(folder)))
    }
}

#[test]
fn every_promise_has_a_row_with_tests_that_exist_or_with_a_reason() {
    let text = fs::read_to_string(root().join("docs/promises.md")).expect("the promises are written down");
    let tests = Tests::all();
    let (mut wrong, mut seen, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for Row { number, held_by, .. } in rows(&text) {
        let found = placed(held_by);
        count += found.len();
        let missing = found.iter().filter(|(place, name)| !tests.has(place, name));
        wrong.extend(missing.map(|(place, name)| format!("{number}: {place:?} has no test {name}")));
        let has_reason = held_by.contains("Not ");
        wrong.extend((found.is_empty() && !has_reason).then(|| format!("{number}: neither a test nor a reason")));
        wrong.extend((!seen.insert(number.to_owned())).then(|| format!("{number} has two rows")));
    }
    for (letter, last) in TABLES {
        let numbers = (1..=last).map(|number| format!("{letter}{number}"));
        wrong.extend(numbers.filter(|number| !seen.contains(number)).map(|number| format!("{number} has no row")));
    }
    assert!(count > 150, "{count} names were found");
    expect_none("rows of docs/promises.md", wrong);
}

#[test]
fn a_row_is_read_with_the_place_of_each_test() {
    let line = "| P1 | Nothing is lost. | core: `a_b_c_d`, `e_f_g_h`; kube: `i_j_k_l`. Not more: `x.y`. |";
    let text = format!("# P\n\n| # | x | y |\n|---|---|---|\n{line}\n| Q1 | no | row |\n");
    let all: Vec<Row<'_>> = rows(&text).collect();
    let [row] = &all[..] else { panic!("{} rows", all.len()) };
    assert_eq!(row.number, "P1");
    assert_eq!(placed(row.held_by), [("core", "a_b_c_d"), ("core", "e_f_g_h"), ("kube", "i_j_k_l")]);
}
