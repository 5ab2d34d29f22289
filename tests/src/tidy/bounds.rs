//! docs/bounds.md has a row for each structure that grows: its bound, who pays, what happens at the bound, and tests that exist in
//! the places that the row names.

use std::fs;

use super::promises::{Tests, placed};
use super::{expect_none, root};

/// The columns of the tables.
const COLUMNS: [&str; 5] = ["structure", "bound", "who pays", "at the bound", "held by"];

#[test]
fn every_bound_has_a_row_with_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/bounds.md")).expect("the bounds are written down");
    let tests = Tests::all();
    let (mut wrong, mut rows) = (Vec::new(), 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [structure, bound, payer, _, held_by] = cells[..] else {
            wrong.push(format!("{} columns: {line}", cells.len()));
            continue;
        };
        if cells == COLUMNS {
            continue;
        }
        rows += 1;
        let is_complete = [structure, bound, payer].iter().all(|cell| !cell.is_empty());
        wrong.extend((!is_complete).then(|| format!("a column is empty: {line}")));
        let found = placed(held_by);
        wrong.extend(found.is_empty().then(|| format!("{structure}: no test")));
        let missing = found.iter().filter(|(place, name)| !tests.has(place, name));
        wrong.extend(missing.map(|(place, name)| format!("{structure}: {place:?} has no test {name}")));
    }
    assert!(rows > 15, "{rows} rows were found");
    expect_none("rows of docs/bounds.md", wrong);
}
