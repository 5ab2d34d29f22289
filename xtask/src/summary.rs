//! The summary of a test run: one line per step, and the totals. Reads the test harness's output.

use std::time::Duration;

use crate::terminal::time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Tests {
    /// Adds the numbers of a line such as `test result: ok. 17 passed; 0 failed; 0 ignored; ...`; ignores other lines.
    pub(crate) fn count(&mut self, line: &str) {
        let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for part in numbers.split("; ") {
            match part.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed
    }
}

/// The result of one step. A step without tests, such as formatting, counts as one check.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) tests: Option<Tests>,
    pub(crate) error: Option<String>,
    pub(crate) elapsed: Duration,
}

#[derive(Default)]
pub(crate) struct Summary {
    lines: Vec<Line>,
}

impl Summary {
    pub(crate) fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub(crate) fn failed(&self) -> bool {
        self.lines.iter().any(|line| line.error.is_some())
    }

    /// The table, the totals and, as the last line, `N passed, N failed`.
    pub(crate) fn text(&self, wall: Duration) -> String {
        let mut text = String::new();
        let (mut sum, mut checks) = (Tests::default(), 0);
        for line in &self.lines {
            let state = if line.error.is_some() { "FAILED" } else { "ok" };
            let tests = line.tests.map_or(String::new(), |tests| format!("{} tests", tests.ran()));
            text.push_str(&format!("{:<22} {state:<7} {tests:>10} {:>13}\n", line.name, time(line.elapsed)));
            let tests = line.tests.unwrap_or_default();
            sum.passed += tests.passed;
            sum.failed += tests.failed;
            if line.tests.is_none() {
                checks += 1;
                sum.passed += usize::from(line.error.is_none());
            }
            // A step can fail without a failed test: a build error, or a crash.
            sum.failed += usize::from(line.error.is_some() && tests.failed == 0);
        }
        for line in &self.lines {
            if let Some(error) = &line.error {
                text.push_str(&format!("{} failed: {error}\n", line.name));
            }
        }
        let ran: usize = self.lines.iter().filter_map(|line| line.tests).map(Tests::ran).sum();
        text.push_str(&format!(
            "steps: {}, tests: {ran}, other checks: {checks}, wall time: {}\n",
            self.lines.len(),
            time(wall)
        ));
        text.push_str(&format!("{} passed, {} failed\n", sum.passed, sum.failed));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(passed: usize, failed: usize) -> Tests {
        Tests { passed, failed }
    }

    #[test]
    fn result_lines_are_counted_and_others_are_not() {
        let mut counted = Tests::default();
        for line in [
            "running 3 tests",
            "test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.50s",
            "test a::result ... ok",
        ] {
            counted.count(line);
        }
        assert_eq!(counted, tests(19, 1));
    }

    #[test]
    fn the_last_line_counts_tests_checks_and_failed_steps() {
        let mut summary = Summary::default();
        let mut add = |name: &str, tests, error: Option<&str>| {
            summary.add(Line {
                name: name.to_owned(),
                tests,
                error: error.map(str::to_owned),
                elapsed: Duration::ZERO,
            });
        };
        add("fmt", None, None);
        add("unit", Some(tests(5, 2)), Some("2 tests failed"));
        add("plugins", Some(tests(0, 0)), Some("it does not compile"));
        let text = summary.text(Duration::from_secs(3));
        assert!(
            text.ends_with("steps: 3, tests: 7, other checks: 1, wall time: 3.0 s\n6 passed, 3 failed\n"),
            "{text}"
        );
        assert!(text.contains("plugins failed: it does not compile"), "{text}");
        assert!(summary.failed());
    }
}
