//! What is expected and what was found, as lines with - and +. Two texts come in.

use similar::{ChangeTag, TextDiff};

/// Lines around a difference.
const CONTEXT: usize = 3;

/// The lines that differ, with some around them.
pub(crate) fn diff(expected: &str, found: &str) -> String {
    let diff = TextDiff::from_lines(expected, found);
    let mut text = String::new();
    for group in diff.grouped_ops(CONTEXT) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            text.push(sign);
            text.push_str(change.value().trim_end_matches('\n'));
            text.push('\n');
        }
    }
    text
}
