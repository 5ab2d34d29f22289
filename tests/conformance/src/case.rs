//! Cases: sequences of requests in a file. Input: text. Output: steps. It must not know who answers.
//!
//! A step is `### TITLE`, then `METHOD TARGET`, then header lines, then after an empty line the body. `$ns` is a namespace
//! of the file's own, and `capture: NAME=POINTER` keeps a part of the answer as `$NAME` for later steps. `until: POINTER=VALUE`
//! asks again until the answer has that, since the real one learns of policies some time later; `show: warnings` puts the warnings
//! before the answer; `letters: NAME=COUNT` makes `$NAME` in the body that many letters. `credentials: none` or a token are sent
//! instead of the administrator's. A file that begins with `# AlwaysAllow` is asked of a server in that authorization mode, and
//! others of one with RBAC.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) title: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    captures: Vec<(String, String)>,
    letters: Vec<(String, usize)>,
    until: Option<(String, String)>,
    pub(crate) shows_warnings: bool,
    pub(crate) credentials: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) file: PathBuf,
    pub(crate) mode: &'static str,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let parts = text.split("\n### ").map(|part| part.strip_prefix("### ").unwrap_or(part));
        let steps: Vec<Step> =
            parts.filter(|part| !part.starts_with('#') && !part.trim().is_empty()).map(Step::read).collect();
        for (at, step) in steps.iter().enumerate() {
            let before = &steps[..at];
            assert!(
                before.iter().all(|other| other.title != step.title),
                "{}: two steps {:?}",
                file.display(),
                step.title
            );
        }
        let mode = if text.starts_with("# AlwaysAllow") { "AlwaysAllow" } else { "RBAC" };
        Self { file: file.to_owned(), mode, steps }
    }

    pub(crate) fn name(&self) -> String {
        self.file.file_stem().unwrap().to_str().unwrap().to_owned()
    }

    pub(crate) fn namespace(&self) -> String {
        format!("case-{}", self.name().replace('_', "-"))
    }
}

impl Step {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let title = lines.next().unwrap().trim();
        let request = lines.next().unwrap_or_else(|| panic!("{title:?} has no request"));
        let (method, target) = request.split_once(' ').unwrap_or_else(|| panic!("{title:?}: METHOD TARGET is missing"));
        let mut step = Self { title: title.to_owned(), method: method.to_owned(), ..Self::get(target.trim()) };
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let (key, value) = line.split_once(": ").unwrap_or_else(|| panic!("{title:?}: {line:?} is no header"));
            match (key, value.split_once('=')) {
                ("capture", Some((name, pointer))) => step.captures.push((name.to_owned(), pointer.to_owned())),
                ("letters", Some((name, count))) => step.letters.push((name.to_owned(), count.parse().unwrap())),
                ("until", Some((pointer, wanted))) => step.until = Some((pointer.to_owned(), wanted.to_owned())),
                ("show", _) => step.shows_warnings = true,
                ("credentials", _) => step.credentials = Some(value.to_owned()),
                _ => step.headers.push((key.to_lowercase(), value.to_owned())),
            }
        }
        Self { body: body.trim().to_owned(), ..step }
    }

    pub(crate) fn create_namespace(name: &str) -> Self {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let target = "/api/v1/namespaces".to_owned();
        Self { method: "POST".to_owned(), body: body.to_string(), target, ..Self::get("") }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self {
            title: String::new(),
            method: "GET".to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: String::new(),
            captures: Vec::new(),
            letters: Vec::new(),
            until: None,
            shows_warnings: false,
            credentials: None,
        }
    }

    /// Whether an answer is the one that is waited for.
    pub(crate) fn is_answered_by(&self, body: &str) -> bool {
        let Some((pointer, wanted)) = &self.until else { return true };
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        let found = answer.pointer(pointer);
        found.is_some_and(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned) == *wanted)
    }

    /// The step with `$NAME` replaced; longer names first.
    pub(crate) fn filled(&self, values: &BTreeMap<String, String>) -> Self {
        let mut names: Vec<&String> = values.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let fill = |text: &str| {
            names.iter().fold(text.to_owned(), |text, name| text.replace(&format!("${name}"), &values[*name]))
        };
        let mut step = Self { target: fill(&self.target), body: fill(&self.body), ..self.clone() };
        for (name, count) in &self.letters {
            step.body = step.body.replace(&format!("${name}"), &"x".repeat(*count));
        }
        if !step.body.is_empty() && !step.headers.iter().any(|(key, _)| key == "content-type") {
            step.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        if !step.headers.iter().any(|(key, _)| key == "user-agent") {
            step.headers.push(("user-agent".to_owned(), "conformance/1".to_owned()));
        }
        step
    }

    pub(crate) fn capture(&self, body: &str, values: &mut BTreeMap<String, String>) {
        let answer: Value = serde_json::from_str(body).unwrap_or_default();
        for (name, pointer) in &self.captures {
            let value = answer.pointer(pointer);
            let value = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            values.insert(name.clone(), value.unwrap_or_default());
        }
    }
}
