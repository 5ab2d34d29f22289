//! `cargo xtask sbom`: the software bill of materials of the binary mortise, as CycloneDX 1.6 JSON. cargo's tree of its
//! dependencies and Cargo.lock come in, one document comes out, the same for the same commit: it has neither a time nor a serial
//! number. It knows nothing of what else is in an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::checkout::{Checkout, line};

const PACKAGE: &str = "mortise";
/// What the image is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The edges of the binary: what is linked, and what runs while it is built.
const ALL: &str = "normal,build";
/// Without procedural macros, which run in the compiler.
const LINKED: &str = "normal,no-proc-macro";
/// Depth, package, licence and repository of a line of the tree; no license expression has the separator.
const FORMAT: &str = "|{p}|{l}|{r}";

/// One line of cargo's tree.
struct Entry<'a> {
    depth: usize,
    name: &'a str,
    version: &'a str,
    license: &'a str,
    repository: &'a str,
}

/// Writes the document to a file, or prints it.
pub(crate) fn run(checkout: &Checkout, file: Option<&str>) -> Result<()> {
    let lock = fs::read_to_string(checkout.path("Cargo.lock")).context("read Cargo.lock")?;
    let text = format!("{:#}\n", document(&tree(checkout, ALL)?, &tree(checkout, LINKED)?, &lock)?);
    match file {
        Some(file) => fs::write(file, text).with_context(|| format!("write {file}")),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// With the features of `cargo build -p mortise`, which the whole workspace's would widen.
fn tree(checkout: &Checkout, edges: &str) -> Result<String> {
    let mut command = checkout.cargo();
    command.args(["tree", "--locked", "--package", PACKAGE, "--target", TARGET, "--edges", edges]);
    command.args(["--prefix", "depth", "--format", FORMAT]);
    let output = command.output().with_context(|| format!("run `{}`", line(&command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", line(&command), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("cargo tree writes text")
}

fn entries(tree: &str) -> Result<Vec<Entry<'_>>> {
    let entry = |line| {
        let mut fields = str::split(line, '|');
        let depth = fields.next()?.parse().ok()?;
        let mut package = fields.next()?.split(' ');
        let (name, version) = (package.next()?, package.next()?.strip_prefix('v')?);
        Some(Entry {
            depth,
            name,
            version,
            license: fields.next()?,
            repository: fields.next()?.trim_end_matches(" (*)"),
        })
    };
    let lines = tree.lines().filter(|line| !line.is_empty());
    lines.map(|line| entry(line).with_context(|| format!("cargo tree writes {line:?}"))).collect()
}

fn reference(entry: &Entry<'_>) -> String {
    format!("pkg:cargo/{}@{}", entry.name, entry.version)
}

fn document(all: &str, linked: &str, lock: &str) -> Result<Value> {
    let (all, linked) = (entries(all)?, entries(linked)?);
    let linked: BTreeSet<String> = linked.iter().map(reference).collect();
    let checksums = checksums(lock);
    let (mut components, mut edges) = (BTreeMap::new(), BTreeMap::<String, BTreeSet<String>>::new());
    let mut above = Vec::new();
    for entry in &all {
        let own = reference(entry);
        above.truncate(entry.depth);
        edges.entry(own.clone()).or_default();
        if let Some(parent) = above.last() {
            edges.entry(String::clone(parent)).or_default().insert(own.clone());
        }
        above.push(own.clone());
        components.entry(own.clone()).or_insert_with(|| component(entry, &checksums, linked.contains(&own)));
    }
    let root = all.first().map(reference).context("cargo tree writes nothing")?;
    let mut described = components.remove(&root).context("the first line is a component")?;
    described["type"] = "application".into();
    let edges = edges.into_iter().map(|(of, on)| json!({"ref": of, "dependsOn": on}));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described, "tools": {"components": [{"type": "application", "name": "cargo xtask sbom"}]}},
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": edges.collect::<Vec<_>>(),
    }))
}

/// A crate. What only the build needs is not in the binary: CycloneDX calls its scope "excluded".
fn component(entry: &Entry<'_>, checksums: &BTreeMap<(&str, &str), &str>, is_linked: bool) -> Value {
    let mut component = json!({
        "type": "library", "name": entry.name, "version": entry.version, "purl": reference(entry), "bom-ref": reference(entry),
        "scope": if is_linked { "required" } else { "excluded" },
    });
    if !entry.license.is_empty() {
        // Older manifests separate alternatives by a slash, which SPDX does not know.
        let expression = entry.license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(checksum) = checksums.get(&(entry.name, entry.version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !entry.repository.is_empty() {
        component["externalReferences"] = json!([{"type": "vcs", "url": entry.repository}]);
    }
    component
}

/// The checksums of Cargo.lock, of the crates as they were downloaded, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").filter_map(|package| {
        let value = |key: &str| package.lines().find_map(|line| line.strip_prefix(key)?.trim_matches('"').into());
        Some(((value("name = ")?, value("version = ")?), value("checksum = ")?))
    });
    packages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_the_binary_has_its_licence_and_its_checksum() {
        let all = "0|mortise v0.1.0 (/a/host/cli)|Apache-2.0|\n1|zstd v0.13.3|MIT/Apache-2.0|https://a.example/zstd\n\
                   2|cc v1.2.0|MIT|\n1|derive v2.0.0 (proc-macro)|MIT|\n1|zstd v0.13.3|MIT/Apache-2.0|https://a.example/zstd (*)\n";
        let linked =
            "0|mortise v0.1.0 (/a/host/cli)|Apache-2.0|\n1|zstd v0.13.3|MIT/Apache-2.0|https://a.example/zstd\n";
        let lock = "[[package]]\nname = \"zstd\"\nversion = \"0.13.3\"\nsource = \"s\"\nchecksum = \"e91e\"\n";
        let found = document(all, linked, lock).unwrap();
        let zstd = &found["components"][2];
        assert_eq!(zstd["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(zstd["hashes"][0], json!({"alg": "SHA-256", "content": "e91e"}));
        assert_eq!(
            (&zstd["scope"], &zstd["externalReferences"][0]["url"]),
            (&json!("required"), &json!("https://a.example/zstd"))
        );
        let scope = |at: usize| found["components"][at]["scope"].as_str().unwrap();
        assert_eq!((scope(0), scope(1)), ("excluded", "excluded"), "cc and the macro run while it is built");
        assert_eq!(found["metadata"]["component"]["purl"], "pkg:cargo/mortise@0.1.0");
        let of_root =
            found["dependencies"].as_array().unwrap().iter().find(|it| it["ref"] == "pkg:cargo/mortise@0.1.0");
        assert_eq!(of_root.unwrap()["dependsOn"], json!(["pkg:cargo/derive@2.0.0", "pkg:cargo/zstd@0.13.3"]));
        assert!(document("0|mortise|", linked, lock).is_err());
    }

    #[test]
    fn the_binary_has_wasmtime_and_neither_its_tests_nor_unknown_licences() {
        let checkout = Checkout::here().unwrap();
        let lock = fs::read_to_string(checkout.path("Cargo.lock")).unwrap();
        let found = document(&tree(&checkout, ALL).unwrap(), &tree(&checkout, LINKED).unwrap(), &lock).unwrap();
        let components = found["components"].as_array().unwrap();
        let named = |name: &str| components.iter().filter(|it| it["name"] == name).collect::<Vec<_>>();
        assert_eq!(named("wasmtime")[0]["scope"], "required");
        assert!(named("expect-test").is_empty() && named("mortise-tests").is_empty());
        for component in components {
            let is_ours = component["name"].as_str().unwrap().starts_with("mortise-");
            assert!(component["licenses"].is_array() && (is_ours || component["hashes"].is_array()), "{component}");
        }
    }
}
