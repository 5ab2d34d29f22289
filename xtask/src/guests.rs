//! `cargo xtask guests`: plugins and the tests' guest programs, from Rust packages to components in known places. Which
//! packages there are, cargo itself tells; nothing here lists them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::checkout::{Checkout, execute, line, start};

/// The only target that a plugin is built for: its output is a component, with nothing else to install.
const TARGET: &str = "wasm32-wasip2";

/// The largest podset.wasm, in bytes. A plugin travels in a ConfigMap, of which etcd takes about 1 MB; the simplest plugin
/// must leave most of that to the others, and its size is what the SDK adds to every plugin.
const PODSET_LIMIT: u64 = 250_000;

/// A workspace of guests, and where its components go.
const WORKSPACES: &[(&str, &str)] = &[(PLUGINS, "plugins"), (TEST_GUESTS, TEST_OUTPUT)];
pub(crate) const PLUGINS: &str = "plugins";
pub(crate) const TEST_GUESTS: &str = "tests/guests";
const TEST_OUTPUT: &str = "test-guests";

/// A plugin built another way, for tests and the demo: (package, cargo feature). It becomes `PACKAGE-FEATURE.wasm`
/// beside the tests' guests.
const VARIANTS: &[(&str, &str)] = &[("podset", "next")];

/// Where cargo builds all guests, apart from the host, whose profiles and features are others.
pub(crate) fn target_dir(checkout: &Checkout) -> PathBuf {
    checkout.target("guests")
}

/// The component of a plugin.
pub(crate) fn plugin(checkout: &Checkout, name: &str) -> PathBuf {
    checkout.target("plugins").join(format!("{name}.wasm"))
}

/// The component of a test's guest, or of a plugin's variant.
pub(crate) fn test_guest(checkout: &Checkout, name: &str) -> PathBuf {
    checkout.target(TEST_OUTPUT).join(format!("{name}.wasm"))
}

/// Builds every guest, copies the components, prints their sizes, and refuses a podset that has grown too large.
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
                // The same file as before: cargo puts whichever build came last in its place.
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
            "podset.wasm has {size} bytes, more than the {PODSET_LIMIT} that it may have: `cargo bloat` or `twiggy` on {} \
             shows what grew",
            podset.display()
        );
    }
    Ok(())
}

fn ensure_target(checkout: &Checkout) -> Result<()> {
    let mut rustc = checkout.tool("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = start(&mut rustc)?.wait_with_output().with_context(|| format!("run `{}`", line(&rustc)))?;
    let installed = output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir();
    if installed {
        return Ok(());
    }
    execute(checkout.tool("rustup").args(["target", "add", TARGET]))
        .with_context(|| format!("add the Rust target {TARGET}, which plugins are built for"))
}

fn cargo_build(checkout: &Checkout, workspace: &str, more: &[&str]) -> Result<()> {
    let mut cargo = checkout.cargo();
    cargo.args(["build", "--release", "--locked", "--target", TARGET]).arg("--target-dir").arg(target_dir(checkout));
    cargo.arg("--config").arg(remapped(&checkout.path("."), &cargo_home()?)?);
    // Flags of the user's own, such as a linker for the host, do not fit this target.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    execute(cargo.args(more).current_dir(checkout.path(workspace)))
        .with_context(|| format!("build the guests in {workspace}/"))
}

/// The setting that keeps this machine's folders out of a component, whose panics name source files. Cargo adds it to the
/// flags of the workspace's own .cargo/config.toml, where `RUSTFLAGS` would take their place.
fn remapped(checkout: &Path, cargo_home: &Path) -> Result<String> {
    let mut flags = Vec::new();
    for (folder, name) in [(checkout, "/mortise"), (cargo_home, "/cargo")] {
        // As rustc is given them: without a dot or a slash at the end.
        let folder = fs::canonicalize(folder).with_context(|| format!("find {}", folder.display()))?;
        let folder = folder.to_str().with_context(|| format!("{} is not UTF-8", folder.display()))?;
        flags.push(format!("--remap-path-prefix={folder}={name}"));
    }
    // A JSON list of such texts is TOML as well.
    Ok(format!("target.{TARGET}.rustflags={}", Value::from(flags)))
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = env::home_dir().context("find the home directory, in which cargo keeps its sources; set CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// The packages of a workspace that become components, and the files that cargo leaves for them.
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
    let metadata = serde_json::from_slice(&output.stdout).context("parse what `cargo metadata` printed")?;
    let release = target_dir(checkout).join(TARGET).join("release");
    Ok(artifacts(&metadata).into_iter().map(|(name, file)| (name, release.join(file))).collect())
}

/// (name, file that cargo leaves) of each library that is a component and each program.
fn artifacts(metadata: &Value) -> Vec<(String, String)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            let is = |kind: &str| list(&target["kind"]).iter().any(|value| value == kind);
            let Some(target) = target["name"].as_str() else { continue };
            if is("cdylib") {
                // Named by the target, since two versions of one plugin are two packages of the same name. Its dashes have
                // become underscores, which no Kubernetes name may hold.
                found.push((target.replace('_', "-"), format!("{}.wasm", target.replace('-', "_"))));
            } else if is("bin") {
                found.push((target.to_owned(), format!("{target}.wasm")));
            }
        }
    }
    found
}

/// Puts a whole new file in place of the old one, since a host may be watching the directory; one that would be the same
/// is left alone.
fn copy(checkout: &Checkout, from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("read {}, which cargo should have built", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return report(checkout, to, bytes.len(), "unchanged");
    }
    let dir = to.parent().context("a component goes into a directory")?;
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
    fn components_are_found_by_what_cargo_says_of_their_packages() {
        let metadata = serde_json::json!({"packages": [
            {"name": "pod-set", "targets": [{"name": "pod_set", "kind": ["cdylib", "rlib"]}, {"name": "t", "kind": ["test"]}]},
            {"name": "tools", "targets": [{"name": "tools", "kind": ["lib"]}]},
            {"name": "loops", "targets": [{"name": "endless-loop", "kind": ["bin"]}]},
        ]});
        let expected = [("pod-set", "pod_set.wasm"), ("endless-loop", "endless-loop.wasm")];
        assert_eq!(artifacts(&metadata), expected.map(|(name, file)| (name.to_owned(), file.to_owned())));
    }

    #[test]
    fn folders_of_this_machine_get_names_that_are_the_same_everywhere() {
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
    fn a_podset_over_its_limit_is_refused_with_both_numbers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(PODSET_LIMIT).unwrap();
        assert!(check_size(file.path()).is_ok());
        file.as_file().set_len(PODSET_LIMIT + 1).unwrap();
        let text = check_size(file.path()).unwrap_err().to_string();
        assert!(text.contains("250001") && text.contains("250000"), "{text}");
    }
}
