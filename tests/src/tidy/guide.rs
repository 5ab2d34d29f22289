//! The documents for authors of plugins: chapters whose code is compiled, a cookbook without gaps, and links that lead to
//! files.

use std::fs;
use std::path::Path;

use super::source::{files_named, text_files};
use super::{expect_none, root};

/// The chapters, as (file name, text).
fn chapters() -> Vec<(String, String)> {
    let folder = fs::read_dir(root().join("docs/guide")).expect("there is a guide");
    let paths = folder.map(|entry| entry.expect("the folder can be read").path());
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.map(|path| (name(&path), fs::read_to_string(&path).expect("a chapter is text"))).collect()
}

#[test]
fn every_chapter_is_in_the_index_and_its_code_is_compiled() {
    let compiled = fs::read_to_string(root().join("guest-sdk/rust/src/guide.rs")).expect("the SDK compiles the guide");
    let index = fs::read_to_string(root().join("docs/guide/README.md")).expect("the guide has an index");
    let (mut missing, mut with_code) = (Vec::new(), 0);
    for (file, text) in chapters() {
        if text.contains("```rust") {
            with_code += 1;
            missing.extend((!compiled.contains(&format!("docs/guide/{file}"))).then(|| format!("{file} in guide.rs")));
        }
        let is_listed = file == "README.md" || index.contains(&format!("]({file})"));
        missing.extend((!is_listed).then(|| format!("{file} in the index")));
    }
    assert!(with_code > 8, "{with_code} chapters have code");
    expect_none("chapters that are missing", missing);
}

#[test]
fn the_cookbook_has_every_plugin() {
    let cookbook = fs::read_to_string(root().join("docs/guide/cookbook.md")).expect("the guide has a cookbook");
    let samples = files_named(&root(), "sample.yaml");
    let plugins =
        samples.iter().filter_map(|sample| sample.parent()?.to_str().filter(|path| path.starts_with("plugins/")));
    let missing: Vec<String> =
        plugins.filter(|path| !cookbook.contains(&format!("(../../{path})"))).map(str::to_owned).collect();
    assert!(samples.len() >= 10, "{} samples", samples.len());
    expect_none("plugins that the cookbook lacks", missing);
}

/// The targets of a document's links to other files, without anchors.
fn links(text: &str) -> Vec<&str> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        let is_file = |target: &&str| !is_code && !target.contains("://") && !target.starts_with('#');
        found.extend(targets.filter(is_file).map(|target| target.split('#').next().unwrap_or(target)));
    }
    found
}

#[test]
fn every_link_between_documents_leads_to_a_file() {
    let (mut dead, mut count) = (Vec::new(), 0);
    for path in text_files(&root()).into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let text = fs::read_to_string(root().join(&path)).expect("a document is text");
        let folder = root().join(path.parent().unwrap_or(Path::new("")));
        for target in links(&text) {
            count += 1;
            dead.extend((!folder.join(target).exists()).then(|| format!("{}: {target}", path.display())));
        }
    }
    assert!(count > 50, "{count} links");
    expect_none("links that lead nowhere", dead);
}

#[test]
fn links_are_read_from_prose_and_not_from_code() {
    let text = "a [b](c.md#d), [e](https://f) [g](#h) ![i](../j.png)\n```text\n[k](l)\n```\n[m](n/)";
    assert_eq!(links(text), ["c.md", "../j.png", "n/"]);
}
