//! Which plugins a folder has. Input: folders. Output: the packages that are plugins, with their samples. It must not
//! build them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// The library that makes a package a plugin.
const SDK: &str = "mortise-sdk";

/// One plugin in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    /// The name that it is served by: the package's, with hyphens.
    pub(crate) name: String,
    /// The package's folder.
    pub(crate) folder: PathBuf,
    /// The file that cargo makes, below the target folder.
    pub(crate) artifact: String,
    /// Its workspace's target folder.
    pub(crate) target: PathBuf,
    /// Objects to apply when it serves: `sample.yaml` and `samples/*.yaml`.
    pub(crate) samples: Vec<PathBuf>,
    /// The folders whose files count as its sources: its own and those of the path dependencies.
    pub(crate) sources: Vec<PathBuf>,
}

/// The plugins of these folders; of a folder that is no plugin itself, those in its workspace.
pub(crate) fn find(folders: &[PathBuf]) -> anyhow::Result<Vec<Plugin>> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for folder in folders {
        let folder = folder.canonicalize().with_context(|| format!("cannot open the folder {}", folder.display()))?;
        let found = in_folder(&folder)?;
        if found.is_empty() {
            bail!(
                "{} has no plugin: a plugin is a package with crate-type = [\"cdylib\"] that depends on {SDK}; `mortise new NAME` makes one",
                folder.display()
            );
        }
        for plugin in found {
            if !plugins.iter().any(|known| known.folder == plugin.folder) {
                plugins.push(plugin);
            }
        }
    }
    let mut names = BTreeSet::new();
    for plugin in &plugins {
        if !names.insert(&plugin.name) {
            bail!("two folders have a plugin {}; give one of the packages another name", plugin.name);
        }
    }
    Ok(plugins)
}

fn in_folder(folder: &Path) -> anyhow::Result<Vec<Plugin>> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        bail!(
            "{} does not exist: name the folder of a plugin, or make one with `mortise new NAME`",
            manifest.display()
        );
    }
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps", "--manifest-path"])
        .arg(&manifest)
        .stdin(Stdio::null())
        .output()
        .context("cannot run cargo: install Rust with rustup")?;
    if !output.status.success() {
        bail!("cargo cannot read {}:\n{}", manifest.display(), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    Ok(read(&metadata, folder))
}

/// The plugins among the packages of a workspace: the one in the folder, or all when the folder is none's.
fn read(metadata: &Value, folder: &Path) -> Vec<Plugin> {
    let target = PathBuf::from(metadata["target_directory"].as_str().unwrap_or("target"));
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let plugins: Vec<Plugin> = packages.filter_map(|package| plugin(package, &target)).collect();
    let here: Vec<Plugin> = plugins.iter().filter(|plugin| plugin.folder == folder).cloned().collect();
    if here.is_empty() { plugins } else { here }
}

fn plugin(package: &Value, target: &Path) -> Option<Plugin> {
    let dependencies = package["dependencies"].as_array()?;
    if !dependencies.iter().any(|dependency| dependency["name"] == SDK) {
        return None;
    }
    let library = package["targets"].as_array()?.iter().find(|target| {
        target["crate_types"].as_array().is_some_and(|types| types.iter().any(|kind| kind == "cdylib"))
    })?;
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
    let paths = dependencies.iter().filter(|dependency| dependency["name"] != SDK);
    let paths = paths.filter_map(|dependency| dependency["path"].as_str()).map(PathBuf::from);
    Some(Plugin {
        name: package["name"].as_str()?.replace('_', "-"),
        artifact: format!("{}.wasm", library["name"].as_str()?.replace('-', "_")),
        target: target.to_owned(),
        samples: samples(&folder),
        sources: std::iter::once(folder.clone()).chain(paths).collect(),
        folder,
    })
}

fn samples(folder: &Path) -> Vec<PathBuf> {
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let listed = std::fs::read_dir(folder.join("samples")).into_iter().flatten();
    let mut samples: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).filter(is_yaml).collect();
    samples.sort();
    let single = folder.join("sample.yaml");
    if single.is_file() {
        samples.insert(0, single);
    }
    samples
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_plugin_of_a_folder_is_found_or_all_of_its_workspace() {
        let package = |name: &str, kind: &str, dependencies: Value| {
            json!({"name": name, "manifest_path": format!("/w/{name}/Cargo.toml"), "dependencies": dependencies,
                   "targets": [{"name": name, "crate_types": [kind]}]})
        };
        let sdk = json!([{"name": "mortise-sdk", "path": "/sdk"}, {"name": "common", "path": "/w/common"}]);
        let metadata = json!({"target_directory": "/w/target", "packages": [
            package("pod_set", "cdylib", sdk.clone()), package("other", "cdylib", sdk.clone()),
            package("common", "lib", json!([])), package("tool", "bin", sdk)]});
        let here = read(&metadata, Path::new("/w/pod_set"));
        assert_eq!(here.len(), 1);
        assert_eq!((here[0].name.as_str(), here[0].artifact.as_str()), ("pod-set", "pod_set.wasm"));
        assert_eq!(here[0].sources, [Path::new("/w/pod_set"), Path::new("/w/common")]);
        assert_eq!(read(&metadata, Path::new("/w")).len(), 2);
    }

    #[test]
    fn a_folder_without_a_package_says_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        let error = find(&[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("mortise new NAME"), "{error}");
    }
}
