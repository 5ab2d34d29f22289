//! `cargo xtask guests`: builds plugins and the tests' guests into components in known places. cargo lists the
//! packages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::checkout::{Checkout, execute, line, start};

/// The target of all guests: cargo's output is a component, and no other tool is needed.
pub(crate) const TARGET: &str = "wasm32-wasip2";

/// The largest podset.wasm, in bytes. A ConfigMap holds about 1 MB, and the size of this plugin is what the SDK adds to every
/// plugin, some 207,000, and the checks of Pods.
const PODSET_LIMIT: u64 = 262_000;

/// The workspaces of guests, and the folders of their components.
const WORKSPACES: &[(&str, &str)] = &[(PLUGINS, "plugins"), (TEST_GUESTS, TEST_OUTPUT)];
pub(crate) const PLUGINS: &str = "plugins";
pub(crate) const TEST_GUESTS: &str = "tests/guests";
const TEST_OUTPUT: &str = "test-guests";

/// Other builds of plugins, for tests and the demo: (package, cargo feature). The component is `PACKAGE-FEATURE.wasm`
/// with the tests' guests.
const VARIANTS: &[(&str, &str)] = &[("podset", "next")];

/// cargo's target directory for guests. Not the host's, which has other profiles and features.
pub(crate) fn target_dir(checkout: &Checkout) -> PathBuf {
    checkout.target("guests")
}

pub(crate) fn plugin(checkout: &Checkout, name: &str) -> PathBuf {
    checkout.target("plugins").join(format!("{name}.wasm"))
}

/// The component of a test's guest, or of a plugin's variant.
pub(crate) fn test_guest(checkout: &Checkout, name: &str) -> PathBuf {
    checkout.target(TEST_OUTPUT).join(format!("{name}.wasm"))
}

/// Builds every guest, copies the components, prints their sizes, and checks podset's.
pub(crate) fn build(checkout: &Checkout) -> Result<()> {
    ensure_target(checkout)?;
    for (workspace, output) in WORKSPACES {
        let built = components(checkout, workspace)?;
        cargo_build(checkout, workspace, &[])?;
        for (name, file) in &built {
            copy(checkout, file, &checkout.target(output).join(format!("{name}.wasm")))?;
        }
        for (package, feature) in VARIANTS {
            if let Some((_, file)) = built.iter().find(|(name, _)| name == package && *workspace == PLUGINS) {
                // The same file: cargo overwrites it with the last build.
                cargo_build(checkout, workspace, &["--package", package, "--features", feature])?;
                copy(checkout, file, &test_guest(checkout, &format!("{package}-{feature}")))?;
            }
        }
    }
    check_size(&plugin(checkout, "podset"))
}

fn check_size(podset: &Path) -> Result<()> {
    let size = fs::metadata(podset).with_context(|| format!("measure {}", podset.display()))?.len();
    if size > PODSET_LIMIT {
        bail!(
            "podset.wasm has {size} bytes, more than its limit of {PODSET_LIMIT}: `cargo bloat` or `twiggy` on {} \
             shows what grew",
            podset.display()
        );
    }
    Ok(())
}

pub(crate) fn ensure_target(checkout: &Checkout) -> Result<()> {
    let mut rustc = checkout.tool("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = start(&mut rustc)?.wait_with_output().with_context(|| format!("run `{}`", line(&rustc)))?;
    let installed = output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir();
    if installed {
        return Ok(());
    }
    execute(checkout.tool("rustup").args(["target", "add", TARGET]))
        .with_context(|| format!("add the Rust target {TARGET} for plugins"))
}

fn cargo_build(checkout: &Checkout, workspace: &str, more: &[&str]) -> Result<()> {
    let mut cargo = checkout.cargo();
    cargo.args(["build", "--release", "--locked", "--target", TARGET]).arg("--target-dir").arg(target_dir(checkout));
    cargo.arg("--config").arg(remapped(&checkout.path("."), &cargo_home()?)?);
    // The user's flags, such as a linker for the host, do not fit this target.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    execute(cargo.args(more).current_dir(checkout.path(workspace)))
        .with_context(|| format!("build the guests in {workspace}/"))
}

/// Remaps this machine's paths in a component, whose panics name source files. As a setting, since `RUSTFLAGS` would
/// replace the flags of the workspace's own .cargo/config.toml.
fn remapped(checkout: &Path, cargo_home: &Path) -> Result<String> {
    let mut flags = Vec::new();
    for (folder, name) in [(checkout, "/mortise"), (cargo_home, "/cargo")] {
        // As rustc gets them: without a dot or a slash at the end.
        let folder = fs::canonicalize(folder).with_context(|| format!("find {}", folder.display()))?;
        let folder = folder.to_str().with_context(|| format!("{} is not UTF-8", folder.display()))?;
        flags.push(format!("--remap-path-prefix={folder}={name}"));
    }
    // A JSON list of strings is also TOML.
    Ok(format!("target.{TARGET}.rustflags={}", Value::from(flags)))
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = env::home_dir().context("find the home directory, in which cargo keeps its sources; set CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// The packages of a workspace that become components, and cargo's output files.
fn components(checkout: &Checkout, workspace: &str) -> Result<Vec<(String, PathBuf)>> {
    let dir = checkout.path(workspace);
    if !dir.join("Cargo.toml").is_file() {
        bail!("{workspace}/Cargo.toml is missing: the guests of {workspace}/ cannot be built");
    }
    let mut cargo = checkout.cargo();
    cargo.args(["metadata", "--no-deps", "--locked", "--format-version=1"]).current_dir(dir).stdout(Stdio::piped());
    let output = start(&mut cargo)?.wait_with_output().with_context(|| format!("run `{}`", line(&cargo)))?;
    if !output.status.success() {
        bail!("`{}` failed in {workspace}/ ({})", line(&cargo), output.status);
    }
    let metadata = serde_json::from_slice(&output.stdout).context("parse the output of `cargo metadata`")?;
    let release = target_dir(checkout).join(TARGET).join("release");
    Ok(artifacts(&metadata).into_iter().map(|(name, file)| (name, release.join(file))).collect())
}

/// (name, cargo's output file) of each component library and each program.
fn artifacts(metadata: &Value) -> Vec<(String, String)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            let is = |kind: &str| list(&target["kind"]).iter().any(|value| value == kind);
            let Some(target) = target["name"].as_str() else { continue };
            if is("cdylib") {
                // By target, since two versions of one plugin are two packages of the same name; with hyphens, since
                // Kubernetes names have no underscores.
                found.push((target.replace('_', "-"), format!("{}.wasm", target.replace('-', "_"))));
            } else if is("bin") {
                found.push((target.to_owned(), format!("{target}.wasm")));
            }
        }
    }
    found
}

/// Replaces the file atomically, since a host may be watching the directory; keeps an unchanged one.
fn copy(checkout: &Checkout, from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("read {}, which cargo should have built", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return report(checkout, to, bytes.len(), "unchanged");
    }
    let dir = to.parent().context("a component's path has no directory")?;
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let partial = to.with_extension("wasm.partial");
    fs::write(&partial, &bytes)
        .and_then(|()| fs::rename(&partial, to))
        .with_context(|| format!("write {}", to.display()))?;
    report(checkout, to, bytes.len(), "built")
}

fn report(checkout: &Checkout, to: &Path, size: usize, state: &str) -> Result<()> {
    println!("{:<44} {:>8.1} KB  {state}", checkout.shown(to).to_string(), size as f64 / 1000.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_in_cargo_metadata() {
        let metadata = serde_json::json!({"packages": [
            {"name": "pod-set", "targets": [{"name": "pod_set", "kind": ["cdylib", "rlib"]}, {"name": "t", "kind": ["test"]}]},
            {"name": "tools", "targets": [{"name": "tools", "kind": ["lib"]}]},
            {"name": "loops", "targets": [{"name": "endless-loop", "kind": ["bin"]}]},
        ]});
        let expected = [("pod-set", "pod_set.wasm"), ("endless-loop", "endless-loop.wasm")];
        assert_eq!(artifacts(&metadata), expected.map(|(name, file)| (name.to_owned(), file.to_owned())));
    }

    #[test]
    fn paths_of_this_machine_are_remapped() {
        let home = tempfile::tempdir().unwrap();
        let home_path = fs::canonicalize(home.path()).unwrap();
        let setting = remapped(&home.path().join("."), home.path()).unwrap();
        let expected = format!(
            r#"target.wasm32-wasip2.rustflags=["--remap-path-prefix={0}=/mortise","--remap-path-prefix={0}=/cargo"]"#,
            home_path.display()
        );
        assert_eq!(setting, expected);
        assert!(remapped(&home.path().join("none"), home.path()).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn a_podset_over_its_limit_is_refused_with_size_and_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(PODSET_LIMIT).unwrap();
        assert!(check_size(file.path()).is_ok());
        file.as_file().set_len(PODSET_LIMIT + 1).unwrap();
        let text = check_size(file.path()).unwrap_err().to_string();
        assert!(text.contains("262001") && text.contains("262000"), "{text}");
    }
}
