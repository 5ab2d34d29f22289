//! Results of stories for other programs: JUnit's XML. Results come in, text comes out.

use std::fmt::Write as _;
use std::time::Duration;

/// The result of one story.
#[derive(Clone, Debug)]
pub struct Case {
    /// The plugin.
    pub plugin: String,
    /// The story's file, without its extension.
    pub story: String,
    /// How long all of its runs took.
    pub elapsed: Duration,
    /// What does not hold.
    pub failures: Vec<String>,
}

/// A JUnit document: a test case for each story, in one suite for all.
///
/// ```
/// use mortise_stories::report::{Case, junit};
///
/// let result = Case {
///     plugin: "podset".into(),
///     story: "scaled".into(),
///     elapsed: std::time::Duration::from_millis(12),
///     failures: vec!["a < b".into()],
/// };
/// assert!(junit(&[result]).contains("<testcase classname=\"podset\" name=\"scaled\" time=\"0.012\">"));
/// ```
pub fn junit(results: &[Case]) -> String {
    let failed = results.iter().filter(|result| !result.failures.is_empty()).count();
    let total: Duration = results.iter().map(|result| result.elapsed).sum();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        text,
        "<testsuite name=\"stories\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" time=\"{:.3}\">",
        results.len(),
        total.as_secs_f64()
    );
    for result in results {
        let (plugin, story) = (escaped(&result.plugin), escaped(&result.story));
        let seconds = result.elapsed.as_secs_f64();
        let _ = write!(text, "  <testcase classname=\"{plugin}\" name=\"{story}\" time=\"{seconds:.3}\"");
        if result.failures.is_empty() {
            text.push_str("/>\n");
            continue;
        }
        text.push_str(">\n");
        for failure in &result.failures {
            let first = escaped(failure.lines().next().unwrap_or_default());
            let _ = writeln!(text, "    <failure message=\"{first}\">{}</failure>", escaped(failure));
        }
        text.push_str("  </testcase>\n");
    }
    text.push_str("</testsuite>\n");
    text
}

/// Text as XML has it; without the control characters that it cannot have.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(char),
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
