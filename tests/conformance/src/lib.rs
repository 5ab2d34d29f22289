//! Holds the local cluster to a real control plane: both are asked the same, and their answers are compared. Input: the cases in
//! `cases/*.http`. The answers of the real one are recorded beside them, so that the comparison needs no control plane;
//! another test asks the real one whether it still answers so.
//!
//! Differences that stay are listed in `cases/differences.txt` with a reason each.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod case;
mod local;
mod normal;
mod real;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::case::{Case, Step};

/// A server that answers requests.
trait Server {
    /// The HTTP status, the body and the `Warning` headers of a request; of a watch, its frames until it ends.
    fn ask(&mut self, step: &Step) -> (u16, String, Vec<String>);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

fn cases() -> Vec<Case> {
    let listed = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = listed.filter(|path| path.extension().is_some_and(|kind| kind == "http")).collect();
    files.sort();
    files.iter().map(|file| Case::read(file)).collect()
}

/// The answers to all steps of a case, by title, normalised.
fn answers(case: &Case, server: &mut dyn Server) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    let mut names = normal::Names::default();
    let mut captured = BTreeMap::from([("ns".to_owned(), case.namespace())]);
    let namespace = Step::create_namespace(&case.namespace());
    server.ask(&namespace);
    for step in &case.steps {
        let filled = step.filled(&captured);
        let (status, body, warnings) = server.ask(&filled);
        step.capture(&body, &mut captured);
        let warnings = warnings.iter().filter(|_| step.shows_warnings).map(|warning| format!("Warning: {warning}\n"));
        let warnings = warnings.collect::<String>();
        answers.insert(step.title.clone(), format!("{status}\n{warnings}{}", normal::text(&body, &mut names)));
    }
    answers
}

/// Recorded answers: a line `### TITLE` before each.
fn recorded(case: &Case) -> BTreeMap<String, String> {
    let text = fs::read_to_string(case.file.with_extension("answers")).unwrap_or_default();
    let parts = text.split("### ").filter(|part| !part.is_empty());
    let pair = |part: &str| part.split_once('\n').map(|(title, body)| (title.to_owned(), body.trim_end().to_owned()));
    parts.filter_map(pair).collect()
}

fn record(case: &Case, answers: &BTreeMap<String, String>) {
    let mut text = String::new();
    for step in &case.steps {
        writeln!(text, "### {}\n{}", step.title, answers[&step.title].trim_end()).unwrap();
    }
    fs::write(case.file.with_extension("answers"), text).unwrap();
}

/// Known differences: `FILE: TITLE: REASON`.
fn known() -> BTreeMap<(String, String), String> {
    let text = fs::read_to_string(folder().join("differences.txt")).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (file, rest) = line.split_once(": ").unwrap();
        let (title, reason) = rest.rsplit_once(": ").unwrap_or((rest, ""));
        assert!(!reason.trim().is_empty(), "a difference needs a reason: {line}");
        ((file.to_owned(), title.to_owned()), reason.to_owned())
    };
    lines.map(entry).collect()
}

#[test]
fn the_local_cluster_answers_as_the_real_one_did() {
    let known = known();
    let (mut wrong, mut mended, mut steps) = (String::new(), Vec::new(), 0);
    for case in cases() {
        let mut local = local::Local::new(case.mode);
        let (recorded, answered) = (recorded(&case), answers(&case, &mut local));
        for step in &case.steps {
            steps += 1;
            let (is, should) = (answered[&step.title].trim_end(), recorded.get(&step.title).map_or("", String::as_str));
            let listed = known.contains_key(&(case.name(), step.title.clone()));
            match (is == should, listed) {
                (true, true) => mended.push(format!("{}: {}", case.name(), step.title)),
                (false, false) => {
                    let diff = TextDiff::from_lines(should, is);
                    let diff = diff.unified_diff().context_radius(3).to_string();
                    writeln!(wrong, "--- {}: {} ({} {})\n{diff}", case.name(), step.title, step.method, step.target)
                        .unwrap();
                }
                _ => {}
            }
        }
    }
    let count = wrong.matches("\n--- ").count() + usize::from(wrong.starts_with("--- "));
    println!("{steps} steps, {count} unlisted differences, {} listed", known.len());
    assert!(mended.is_empty(), "no difference any more, remove from differences.txt: {mended:#?}");
    assert!(wrong.is_empty(), "{count} of {steps} steps differ (- real, + local):\n{wrong}");
}

/// With `MORTISE_RECORD=1` the answers are recorded instead; with `MORTISE_RECORD=CASE,CASE` those of these cases.
#[test]
fn the_real_one_answers_as_recorded() {
    let (mut servers, known) = (BTreeMap::new(), known());
    let mut wrong = String::new();
    let recording = std::env::var("MORTISE_RECORD").unwrap_or_default();
    let named: Vec<&str> = recording.split(',').filter(|name| !matches!(*name, "" | "1")).collect();
    for case in cases().iter().filter(|case| named.is_empty() || named.contains(&&*case.name())) {
        let real = servers.entry(case.mode).or_insert_with(|| real::Real::start(case.mode));
        let answered = answers(case, real);
        if !recording.is_empty() {
            record(case, &answered);
            continue;
        }
        let recorded = recorded(case);
        for step in &case.steps {
            let (is, should) = (answered[&step.title].trim_end(), recorded.get(&step.title).map_or("", String::as_str));
            // A listed step may have an order or an address that the real one gives anew each time.
            if is != should && !known.contains_key(&(case.name(), step.title.clone())) {
                let diff = TextDiff::from_lines(should, is);
                writeln!(wrong, "--- {}: {}\n{}", case.name(), step.title, diff.unified_diff()).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "the recorded answers are old; MORTISE_RECORD=1 records them:\n{wrong}");
}
