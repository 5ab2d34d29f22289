//! The repository's files, and as much of Rust's shape as the tidy tests need. It relies on rustfmt's layout: an item
//! ends with a closing brace at the indentation of its first line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no sources of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", ".cache", ".playground"];
/// Names of text files that people and tools write by hand.
const TEXT: [&str; 14] =
    ["rs", "toml", "md", "yaml", "yml", "json", "wit", "sh", "mod", "js", "py", "go", "txt", "Dockerfile"];
/// Deep enough for every folder there is; a loop of links ends here.
const MAX_DEPTH: usize = 16;

/// How a list of tests begins whose functions a macro writes.
const TEST_LIST: &str = "scenarios! {";

/// One Rust file.
pub struct Source {
    /// Relative to the repository.
    pub path: PathBuf,
    pub text: String,
}

fn walk(root: &Path, folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let path = folder.join(&name);
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            if depth < MAX_DEPTH && !SKIPPED.contains(&name.to_string_lossy().as_ref()) {
                walk(root, &path, depth + 1, found);
            }
        } else if kind.is_file() {
            found.push(path);
        }
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(root, Path::new(""), 0, &mut found);
    found
}

/// Files of this name, relative to the repository.
pub fn files_named(root: &Path, name: &str) -> Vec<PathBuf> {
    files(root).into_iter().filter(|path| path.file_name().is_some_and(|found| found == name)).collect()
}

/// Files that people read, relative to the repository. Lock files are not for people.
pub fn text_files(root: &Path) -> Vec<PathBuf> {
    let is_text = |path: &PathBuf| {
        let name = path.extension().or(path.file_name()).map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| TEXT.contains(&name.as_str()))
    };
    files(root).into_iter().filter(is_text).collect()
}

/// Every Rust file.
pub fn sources() -> Vec<Source> {
    let root = super::root();
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path)).expect("a file that was just found can be read");
        Source { path, text }
    };
    files(&root).into_iter().filter(is_rust).map(read).collect()
}

/// Where crates begin: what cargo finds by itself, and what manifests name.
pub fn crate_roots(root: &Path) -> BTreeSet<PathBuf> {
    let mut roots = BTreeSet::new();
    for manifest in files_named(root, "Cargo.toml") {
        let folder = manifest.parent().unwrap_or(Path::new("")).to_owned();
        for name in ["src/lib.rs", "src/main.rs", "build.rs"] {
            roots.insert(folder.join(name));
        }
        let text = fs::read_to_string(root.join(&manifest)).unwrap_or_default();
        let paths = text.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
        roots.extend(paths.map(|path| folder.join(path)));
        for automatic in ["tests", "examples", "benches", "src/bin"] {
            let Ok(entries) = fs::read_dir(root.join(&folder).join(automatic)) else { continue };
            for entry in entries.filter_map(Result::ok) {
                roots.insert(folder.join(automatic).join(entry.file_name()));
            }
        }
    }
    roots
}

impl Source {
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The files that this file's `mod` lines name, whether they exist or not.
    pub fn modules(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_root = matches!(stem.as_str(), "lib" | "main" | "mod") || !self.path.starts_with_src();
        let own = folder.join(&stem);
        let mut modules = Vec::new();
        for line in self.text.lines() {
            let Some(name) = module_in(line.trim()) else { continue };
            let places = if is_root { vec![folder.to_owned(), own.clone()] } else { vec![own.clone()] };
            for place in places {
                modules.push(place.join(format!("{name}.rs")));
                modules.push(place.join(name).join("mod.rs"));
            }
        }
        modules
    }

    /// The names of the tests: functions under `#[test]` or `#[tokio::test]`, and what a list such as `scenarios! { … }` makes
    /// tests of, one name a line.
    pub fn tests(&self) -> Vec<String> {
        let (mut found, mut is_test, mut in_list) = (Vec::new(), false, false);
        for line in self.text.lines() {
            if in_list {
                in_list = line != "}";
                found.extend(line.trim_start().split_once(": \"").map(|(name, _)| name.to_owned()));
                continue;
            }
            in_list = line == TEST_LIST;
            let line = line.trim_start();
            if line == "#[test]" || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = function_in(line) {
                found.extend(is_test.then(|| name.to_owned()));
                is_test = false;
            }
        }
        found
    }

    /// Every function with its length in lines.
    pub fn functions(&self) -> Vec<(String, usize)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut found = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function_in(line.trim_start()) else { continue };
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            let is_closed = line.trim_end().ends_with([';', '}']);
            let length = lines[at..].iter().position(|line| *line == end).filter(|_| !is_closed);
            found.extend(length.map(|length| (name.to_owned(), length + 1)));
        }
        found
    }
}

trait InSrc {
    fn starts_with_src(&self) -> bool;
}

impl InSrc for PathBuf {
    /// A file under `tests/` or `examples/` of a package is a crate of its own; its modules lie beside it.
    fn starts_with_src(&self) -> bool {
        self.components().any(|part| part.as_os_str() == "src")
    }
}

fn module_in(line: &str) -> Option<&str> {
    let line = without_visibility(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

fn function_in(line: &str) -> Option<&str> {
    let mut rest = without_visibility(line);
    for word in ["const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(line, |(_, rest)| rest.trim_start()),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

#[test]
fn modules_and_functions_are_read_from_the_text() {
    let text = "//! x\nmod one;\npub(crate) mod two;\nmod inline {\n    pub(super) async fn long(\n        a: u8,\n    ) {\n    }\n}\nfn short() {}\n";
    let source = Source { path: "a/src/lib.rs".into(), text: text.to_owned() };
    let modules = source.modules();
    assert!(modules.contains(&"a/src/one.rs".into()) && modules.contains(&"a/src/two/mod.rs".into()), "{modules:?}");
    assert_eq!(source.functions(), [("long".to_owned(), 4)]);
    let below = Source { path: "a/src/one.rs".into(), text: "mod deep;\n".to_owned() };
    assert_eq!(below.modules(), [PathBuf::from("a/src/one/deep.rs"), PathBuf::from("a/src/one/deep/mod.rs")]);
}

#[test]
fn tests_are_functions_that_the_harness_runs_and_nothing_else() {
    let text = [
        "#[test]",
        "fn r1_a_view_is_frozen() {",
        "    let x1 = 0;",
        "}",
        "    #[tokio::test(flavor = \"multi_thread\")]",
        "    #[cfg(unix)]",
        "    async fn x7_a_claim_comes_first() {}",
        "fn l1_is_no_test() {}",
        "scenarios! {",
        "    w2_w3_nothing_new: \"w2-unchanged\",",
        "}",
        "    l2_is_no_name: \"l2\",",
    ];
    let source = Source { path: "a/src/tests.rs".into(), text: text.join("\n") };
    assert_eq!(source.tests(), ["r1_a_view_is_frozen", "x7_a_claim_comes_first", "w2_w3_nothing_new"]);
}
