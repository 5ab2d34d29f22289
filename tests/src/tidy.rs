//! The repository held to its own rules (STYLE.md): dependency edges, lints, headers, sizes, dead files, banned words.
//! Everything is read from the working tree and from `cargo metadata`; nothing is built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use self::source::{Source, sources};

mod bounds;
mod circles;
mod guide;
mod promises;
mod reach;
mod records;
mod source;
mod words;

/// Longest file, in lines. Most should have less than 250.
const MAX_FILE_LINES: usize = 800;
/// Longest function, in lines.
const MAX_FUNCTION_LINES: usize = 70;
/// Widest line of a comment, in characters. rustfmt breaks code at 120 and leaves comments as they are.
const MAX_COMMENT_WIDTH: usize = 132;
/// ARCHITECTURE.md is a map of two screens.
const MAX_ARCHITECTURE_LINES: usize = 140;

/// The host's crates and the members that each may depend on; members that are not named depend on what they like.
const EDGES: [(&str, &[&str]); 15] = [
    ("mortise-core", &[]),
    ("mortise-cron", &[]),
    ("mortise-pod-security", &[]),
    ("mortise-local-cluster", &["mortise-pod-security"]),
    ("mortise-local-server", &["mortise-local-cluster", "mortise-pod-security"]),
    ("mortise-stories", &["mortise-core", "mortise-local-cluster", "mortise-pod-security"]),
    ("mortise-wasm", &["mortise-core", "mortise-cron"]),
    ("mortise-kube", &["mortise-core"]),
    ("mortise-source", &["mortise-core"]),
    ("mortise-runtime", &["mortise-core", "mortise-cron", "mortise-wasm", "mortise-kube", "mortise-source"]),
    (
        "mortise-dev",
        &["mortise-core", "mortise-cron", "mortise-wasm", "mortise-kube", "mortise-source", "mortise-runtime"],
    ),
    (
        "mortise",
        &[
            "mortise-core",
            "mortise-cron",
            "mortise-dev",
            "mortise-local-cluster",
            "mortise-local-server",
            "mortise-pod-security",
            "mortise-stories",
            "mortise-wasm",
            "mortise-kube",
            "mortise-source",
            "mortise-runtime",
        ],
    ),
    // The last four with the feature `stories`, and never in a component.
    (
        "mortise-sdk",
        &[
            "mortise-sdk-macros",
            "mortise-cron",
            "mortise-core",
            "mortise-local-cluster",
            "mortise-pod-security",
            "mortise-stories",
        ],
    ),
    ("mortise-sdk-macros", &[]),
    ("mortise-control-plane", &[]),
];

/// What the pure core must not reach by any path: runtimes, clients, engines, clocks and sources of chance. (imbl brings
/// a seeded generator, which is none.)
const IMPURE: [&str; 16] = [
    "tokio",
    "mio",
    "async-std",
    "smol",
    "futures-executor",
    "kube",
    "kube-client",
    "kube-runtime",
    "hyper",
    "reqwest",
    "wasmtime",
    "wasmtime-wasi",
    "rand",
    "getrandom",
    "rustix",
    "crossbeam-channel",
];

/// What a guest must not carry.
const NOT_FOR_GUESTS: [&str; 5] = ["tokio", "kube", "wasmtime", "hyper", "getrandom"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests' package lies in the repository").to_owned()
}

/// Everything that a test finds wrong, at once.
#[track_caller]
fn expect_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// `cargo metadata`, resolved for this platform, without asking any registry.
fn metadata() -> Value {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs where cargo does");
    let version = String::from_utf8(version.stdout).expect("rustc writes text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc -vV names its host");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The packages of the dependency graph, by their ids.
struct Graph {
    names: BTreeMap<String, String>,
    members: BTreeSet<String>,
    /// What each package needs to be built and run; what only its tests need is left out.
    needs: BTreeMap<String, Vec<String>>,
}

impl Graph {
    fn read() -> Self {
        let metadata = metadata();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let names = list(&metadata["packages"])
            .iter()
            .map(|package| (text(&package["id"]).to_owned(), text(&package["name"]).to_owned()))
            .collect();
        let members = list(&metadata["workspace_members"]).iter().map(|id| text(id).to_owned()).collect();
        let is_normal = |dependency: &&Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let needs = list(&metadata["resolve"]["nodes"])
            .iter()
            .map(|node| {
                let needs = list(&node["deps"]);
                let needs = needs.iter().filter(is_normal).map(|dependency| text(&dependency["pkg"]).to_owned());
                (text(&node["id"]).to_owned(), needs.collect())
            })
            .collect();
        Self { names, members, needs }
    }

    fn member(&self, name: &str) -> String {
        let found = self.members.iter().find(|id| self.names[*id] == name);
        found.unwrap_or_else(|| panic!("there is no member {name}")).clone()
    }

    /// Every package that one reaches, by name.
    fn reached(&self, from: &str) -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(id) = open.pop() {
            for next in self.needs.get(&id).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        seen.into_iter().map(|id| self.names[&id].clone()).collect()
    }
}

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let graph = Graph::read();
    let members: BTreeSet<&String> = graph.members.iter().map(|id| &graph.names[id]).collect();
    let mut wrong = Vec::new();
    for (name, allowed) in EDGES {
        let reached = graph.reached(&graph.member(name));
        let of_ours = reached.iter().filter(|found| members.contains(found));
        let too_many = of_ours.filter(|found| !allowed.contains(&found.as_str()));
        wrong.extend(too_many.map(|found| format!("{name} depends on {found}")));
    }
    expect_none("edges that ARCHITECTURE.md does not draw", wrong);
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let mut crates: BTreeMap<PathBuf, Vec<Source>> = BTreeMap::new();
    for source in sources() {
        let is_ours =
            ["host", "cron", "pod-security", "guest-sdk", "xtask"].iter().any(|folder| source.path.starts_with(folder));
        let src = source.path.ancestors().find(|folder| folder.ends_with("src")).map(Path::to_owned);
        if let Some(src) = src.filter(|_| is_ours) {
            crates.entry(src).or_default().push(source);
        }
    }
    let mut wrong = Vec::new();
    for (src, sources) in &crates {
        let place = |source: &Source| circles::module_of(source.path.strip_prefix(src).ok()?);
        let modules = sources.iter().filter_map(|source| Some((place(source)?, source.text.as_str())));
        let modules = circles::Crate::read(modules).expect("what compiles can be parsed");
        wrong.extend(modules.circles().into_iter().map(|circle| format!("{}:\n    {circle}", src.display())));
    }
    expect_none("modules that import what imports them", wrong);
}

#[test]
fn the_core_is_pure_and_a_guest_is_small() {
    let graph = Graph::read();
    let mut wrong = Vec::new();
    for (name, banned) in [
        ("mortise-core", &IMPURE[..]),
        ("mortise-cron", &IMPURE[..]),
        ("mortise-pod-security", &IMPURE[..]),
        ("mortise-pod-security", &NOT_FOR_GUESTS[..]),
        ("mortise-local-cluster", &IMPURE[..]),
        ("mortise-stories", &IMPURE[..]),
        ("mortise-sdk", &NOT_FOR_GUESTS[..]),
    ] {
        let reached = graph.reached(&graph.member(name));
        wrong.extend(banned.iter().filter(|banned| reached.contains(**banned)).map(|found| format!("{name}: {found}")));
    }
    expect_none("dependencies that a pure crate must not reach", wrong);
}

#[test]
fn every_member_takes_the_workspaces_lints() {
    let mut wrong = Vec::new();
    for manifest in source::files_named(&root(), "Cargo.toml") {
        let text = fs::read_to_string(root().join(&manifest)).unwrap();
        let is_workspace_root = text.contains("[workspace]") && !text.contains("[package]");
        if !is_workspace_root && !text.contains("[lints]\nworkspace = true") {
            wrong.push(manifest.display().to_string());
        }
    }
    expect_none("packages without `[lints] workspace = true`", wrong);
}

#[test]
fn every_source_file_begins_by_saying_what_it_is() {
    let has_header = |source: &Source| source.text.starts_with("//! ");
    let wrong = sources().into_iter().filter(|source| !has_header(source));
    expect_none("files without a //! header", wrong.map(|source| source.name()).collect());
}

#[test]
fn files_and_functions_stay_short_enough_to_be_read() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES {
            wrong.push(format!("{} has {lines} lines, the most is {MAX_FILE_LINES}", source.name()));
        }
        for (name, lines) in source.functions().into_iter().filter(|(_, lines)| *lines > MAX_FUNCTION_LINES) {
            wrong.push(format!("{}: fn {name} has {lines} lines, the most is {MAX_FUNCTION_LINES}", source.name()));
        }
    }
    expect_none("too long", wrong);
}

#[test]
fn comments_are_narrow_enough_to_be_read_beside_code() {
    // A row of a table has to be one line.
    let is_wide = |line: &str| {
        let text = line.trim_start();
        let is_row = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
        text.starts_with("//") && !is_row && line.chars().count() > MAX_COMMENT_WIDTH
    };
    let of = |source: &Source| {
        let lines = source.text.lines().zip(1..).filter(|(line, _)| is_wide(line));
        lines.map(|(_, number)| format!("{}:{number}", source.name())).collect::<Vec<_>>()
    };
    expect_none("comments wider than 132 characters", sources().iter().flat_map(of).collect());
}

#[test]
fn every_source_file_belongs_to_a_crate() {
    let sources = sources();
    let by_path: BTreeMap<&Path, &Source> = sources.iter().map(|source| (source.path.as_path(), source)).collect();
    let mut open: Vec<PathBuf> = source::crate_roots(&root()).into_iter().collect();
    let mut reached = BTreeSet::new();
    while let Some(path) = open.pop() {
        let Some(source) = by_path.get(path.as_path()) else { continue };
        if reached.insert(path.clone()) {
            open.extend(source.modules());
        }
    }
    let dead = sources.iter().filter(|source| !reached.contains(&source.path));
    expect_none("files that no `mod` reaches", dead.map(Source::name).collect());
}

/// Needles are put together here, so that this file does not find itself.
fn banned() -> Vec<(String, &'static str)> {
    let joined = |parts: &[&str]| parts.concat();
    vec![
        (joined(&["to", "do!("]), "unfinished code"),
        (joined(&["unimpl", "emented!("]), "unfinished code"),
        (joined(&["db", "g!("]), "a debugging aid"),
        (joined(&["#[ign", "ore"]), "a test that does not run"),
        (joined(&["/ro", "ot/"]), "a path of one machine"),
        (joined(&["/wo", "rk/"]), "a path of one machine"),
        (joined(&["/ho", "me/"]), "a path of one machine"),
        (joined(&["crates", ".io"]), "a registry's host"),
        (joined(&["index.crates", "."]), "a registry's host"),
        (joined(&["proxy.go", "lang"]), "a registry's host"),
        (joined(&["npmjs", ".org"]), "a registry's host"),
        (joined(&["pypi", ".org"]), "a registry's host"),
    ]
}

/// Rust's print macros panic when a disk is full or a pipe is closed.
#[test]
fn f32_the_host_prints_with_nothing_that_panics() {
    let macros = ["print", "println", "eprint", "eprintln"].map(|name| format!("{name}!("));
    let is_printed = |line: &str| {
        let words = line.split(|c: char| !(c.is_alphanumeric() || "_!(".contains(c)));
        let code = !line.trim_start().starts_with("//");
        code && words.into_iter().any(|word| macros.iter().any(|name| word.starts_with(name.as_str())))
    };
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("host")) {
        let (code, _) = source.text.split_once("#[cfg(test)]\nmod ").unwrap_or((&source.text, ""));
        let of_tests = |name: &str| name.starts_with("tests") || name == "testing.rs";
        let is_test = source.path.components().any(|part| of_tests(&part.as_os_str().to_string_lossy()));
        let found = code.lines().enumerate().filter(|(_, line)| !is_test && is_printed(line));
        wrong.extend(found.map(|(at, line)| format!("{}:{}: {}", source.name(), at + 1, line.trim())));
    }
    expect_none("macros that panic when they cannot print", wrong);
}

#[test]
fn nothing_unfinished_and_nothing_of_one_machine_is_left_behind() {
    let banned = banned();
    let mut wrong = Vec::new();
    for path in source::text_files(&root()) {
        let Ok(content) = fs::read_to_string(root().join(&path)) else { continue };
        for (at, line) in content.lines().enumerate() {
            let found = banned.iter().filter(|(needle, _)| line.contains(needle.as_str()));
            wrong.extend(found.map(|(needle, why)| format!("{}:{}: {needle:?} is {why}", path.display(), at + 1)));
        }
    }
    expect_none("banned words", wrong);
}

#[test]
fn the_words_are_those_of_the_glossary() {
    let list = Path::new("tests/src/tidy/words.rs");
    let mut wrong = Vec::new();
    for path in source::text_files(&root()).into_iter().filter(|path| path != list) {
        let Ok(content) = fs::read_to_string(root().join(&path)) else { continue };
        for (at, line) in content.lines().enumerate() {
            let found = words::replaced(line);
            wrong.extend(found.map(|(word, say)| format!("{}:{}: {word:?}: {say}", path.display(), at + 1)));
        }
    }
    expect_none("words that the glossary of ARCHITECTURE.md replaces", wrong);
}

#[test]
fn the_architecture_has_a_few_pages() {
    if let Ok(text) = fs::read_to_string(root().join("ARCHITECTURE.md")) {
        let lines = text.lines().count();
        assert!(lines <= MAX_ARCHITECTURE_LINES, "ARCHITECTURE.md has {lines} lines");
    }
}

/// The rules that a test's name carries: `r1_…` one, `w2_w3_…` two. What follows the numbers says what the test shows.
fn rules_in<'a>(test: &'a str, rules: &'a BTreeSet<String>) -> Vec<&'a String> {
    let found: Vec<&String> = test.split('_').map_while(|part| rules.get(part)).collect();
    if found.len() == test.split('_').count() { Vec::new() } else { found }
}

/// "**R1**" in the text is a rule; a test whose name begins with its number is a test of it.
#[test]
fn every_rule_of_the_architecture_has_a_test_that_carries_its_number() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the architecture is written down");
    let rules = text.split("**").filter(|word| {
        let (letter, number) = word.split_at_checked(1).unwrap_or_default();
        letter.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u8>().is_ok()
    });
    let rules: BTreeSet<String> = rules.map(str::to_lowercase).collect();
    assert!(rules.len() > 30, "{} rules were found", rules.len());
    let tests: Vec<String> = sources().iter().flat_map(Source::tests).collect();
    let tested: BTreeSet<String> = tests.iter().flat_map(|test| rules_in(test, &rules)).cloned().collect();
    expect_none("rules without a test", rules.difference(&tested).cloned().collect());
}

#[test]
fn a_rule_is_tested_by_a_name_that_begins_with_it_and_continues() {
    let rules: BTreeSet<String> = ["w2", "w3", "x1"].map(str::to_owned).into();
    let found = |test| rules_in(test, &rules).into_iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(found("x1_children_come_first"), ["x1"]);
    assert_eq!(found("w2_w3_unchanged_inputs"), ["w2", "w3"]);
    assert_eq!(found("children_come_first_x1"), [""; 0]);
    assert_eq!(found("x1"), [""; 0], "a number alone says nothing");
    assert_eq!(found("x11_status"), [""; 0]);
}
