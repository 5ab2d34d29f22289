//! Transcripts: what was typed at a terminal and what it printed. Input: text. Output: steps, and text again. It must not know
//! who answers.
//!
//! A step is `$ COMMAND` for a shell, perhaps with lines `> …` that continue it, and then what was printed: standard output,
//! standard error with `! ` before each line, and `= CODE` if the command failed. Lines `## …` before it are comments; `## differs:
//! REASON` says why the local cluster prints something else.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const COMMENT: &str = "## ";
const DIFFERS: &str = "## differs: ";

#[derive(Debug)]
pub(crate) struct Step {
    comments: Vec<String>,
    pub(crate) command: String,
    pub(crate) printed: String,
}

#[derive(Debug)]
pub(crate) struct Transcript {
    file: PathBuf,
    pub(crate) steps: Vec<Step>,
}

impl Step {
    pub(crate) fn differs(&self) -> bool {
        self.comments.iter().any(|comment| comment.starts_with(DIFFERS))
    }

    fn write(&self, text: &mut String) {
        for comment in &self.comments {
            writeln!(text, "{comment}").unwrap();
        }
        writeln!(text, "$ {}", self.command.replace('\n', "\n> ").replace("\n> \n", "\n>\n")).unwrap();
        text.push_str(&self.printed);
    }
}

impl Transcript {
    /// Those of a folder, by name.
    pub(crate) fn all(folder: &Path) -> Vec<Self> {
        let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|kind| kind == "transcript"));
        files.sort();
        files.into_iter().map(Self::read).collect()
    }

    fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap();
        let (mut steps, mut comments) = (Vec::<Step>::new(), Vec::new());
        for line in text.lines() {
            let last = steps.last_mut().filter(|_| comments.is_empty());
            match (line.strip_prefix("$ "), line.strip_prefix('>'), last) {
                (Some(command), ..) => {
                    let comments = std::mem::take(&mut comments);
                    steps.push(Step { comments, command: command.to_owned(), printed: String::new() });
                }
                _ if line.starts_with(COMMENT) => comments.push(line.to_owned()),
                (_, Some(more), Some(step)) if step.printed.is_empty() => {
                    write!(step.command, "\n{}", more.strip_prefix(' ').unwrap_or(more)).unwrap();
                }
                (.., Some(step)) => writeln!(step.printed, "{line}").unwrap(),
                (.., None) => comments.push(line.to_owned()),
            }
        }
        steps.iter_mut().for_each(|step| step.printed = trimmed(&step.printed));
        Self { file, steps }
    }

    /// Its name, which is also that of the namespace it happens in.
    pub(crate) fn name(&self) -> &str {
        self.file.file_stem().unwrap().to_str().unwrap()
    }

    pub(crate) fn write(&self) {
        let mut text = String::new();
        for step in &self.steps {
            if !text.is_empty() {
                text.push('\n');
            }
            step.write(&mut text);
        }
        fs::write(&self.file, text).unwrap();
    }
}

/// Text without empty lines at its end, which separate steps.
pub(crate) fn trimmed(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}
