//! The difference of two values as the API server shows it: a unified difference of their indented JSON. Input: two values.
//! Output: its text. It must not know what the values are.

use serde_json::Value;

/// How many equal lines stand around a change.
const CONTEXT: usize = 3;
/// Longer texts are compared as wholes: the work grows with the product of their lengths.
const MAX_LINES: usize = 600;

/// The unified difference without file names.
pub(super) fn unified(old: &Value, new: &Value) -> String {
    let (old, new) = (pretty(old), pretty(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let steps = steps(&old, &new);
    let mut text = String::from("--- \n+++ \n");
    let changes: Vec<usize> = (0..steps.len()).filter(|at| steps.get(*at).is_some_and(|step| step.0 != ' ')).collect();
    let mut rest = changes.as_slice();
    while let Some(first) = rest.first() {
        // Changes that are near enough share their context.
        let near = rest.windows(2).take_while(|pair| matches!(pair, [a, b] if b - a <= 2 * CONTEXT + 1)).count();
        let last = rest.get(near).unwrap_or(first);
        rest = rest.get(near + 1..).unwrap_or_default();
        let (start, end) = (first.saturating_sub(CONTEXT), (last + CONTEXT + 1).min(steps.len()));
        let count = |range: std::ops::Range<usize>, skip: char| {
            steps.get(range).into_iter().flatten().filter(|step| step.0 != skip).count()
        };
        let span = |skip: char| match count(start..end, skip) {
            1 => (count(0..start, skip) + 1).to_string(),
            0 => format!("{},0", count(0..start, skip)),
            length => format!("{},{length}", count(0..start, skip) + 1),
        };
        text.push_str(&format!("@@ -{} +{} @@\n", span('+'), span('-')));
        for (sign, line) in steps.get(start..end).into_iter().flatten() {
            text.push_str(&format!("{sign}{line}\n"));
        }
    }
    text
}

fn pretty(value: &Value) -> String {
    use serde::Serialize as _;
    let mut bytes = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, form);
    let written = value.serialize(&mut writer);
    debug_assert!(written.is_ok(), "a value is JSON");
    String::from_utf8(bytes).unwrap_or_default()
}

/// The lines of both, each with `-`, `+` or a space, along a longest common subsequence.
fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (head, old) = old.split_at(same);
    let (_, new) = new.split_at(same);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, tail) = old.split_at(old.len() - same);
    let (new, _) = new.split_at(new.len() - same);
    let mut steps: Vec<(char, &str)> = head.iter().map(|line| (' ', *line)).collect();
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        steps.extend(old.iter().map(|line| ('-', *line)));
        steps.extend(new.iter().map(|line| ('+', *line)));
    } else {
        steps.extend(common(old, new));
    }
    steps.extend(tail.iter().map(|line| (' ', *line)));
    steps
}

fn common<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let width = new.len() + 1;
    let mut lengths = vec![0_usize; (old.len() + 1) * width];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let here = i * width + j;
            lengths[here] =
                if a == b { lengths[here + width + 1] + 1 } else { lengths[here + width].max(lengths[here + 1]) };
        }
    }
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    while let (Some(a), Some(b)) = (old.get(i), new.get(j)) {
        let here = i * width + j;
        if a == b {
            steps.push((' ', *a));
            (i, j) = (i + 1, j + 1);
        } else if lengths[here + width] >= lengths[here + 1] {
            steps.push(('-', *a));
            i += 1;
        } else {
            steps.push(('+', *b));
            j += 1;
        }
    }
    steps.extend(old.iter().skip(i).map(|line| ('-', *line)));
    steps.extend(new.iter().skip(j).map(|line| ('+', *line)));
    steps
}
