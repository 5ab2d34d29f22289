//! `mortise manifests`: writes a folder for Git with all that a plugin needs in a cluster. It must not know the cluster.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use mortise_core::grants;
use mortise_core::well_known::{API_VERSION, PLUGIN};
use mortise_runtime::config::Namespace;
use mortise_source::pack::{Compression, pack};
use serde_json::{Value, json};

use crate::rbac::Identified;
use crate::yaml::documents;
use crate::{component, kubernetes, words};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  A folder for Git, and what it makes of the cluster:
      mortise manifests podset.wasm --output deploy/podset
      kubectl diff --server-side -k deploy/podset

  A new build, into the same folder:
      mortise manifests podset.wasm --output deploy/podset

It writes configmap.yaml, plugin.yaml and rbac.yaml anew each time, and kustomization.yaml unless it exists,
so that what you add there stays. The ConfigMap's name has the first digits of the component's digest, and
is never changed: an update is another one, which the Plugin names. Prune what is no longer in the folder,
as Argo CD and Flux do. Read rbac.yaml before you commit it: it is what the plugin can do with objects; and
spec.grants in plugin.yaml: its CustomResourceDefinitions and webhooks, which the host registers. Bounds of
your own, such as maxObjects, belong in a patch of kustomization.yaml.")]
pub struct ManifestsArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// The folder, which is made if it does not exist
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Name of the plugin [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Name of the ServiceAccount that the plugin is to act as [default: the plugin's name]
    #[arg(long, value_name = "NAME", value_parser = kubernetes::service_account)]
    service_account: Option<String>,
    /// Namespace of the host
    #[arg(long, short, value_name = "NAMESPACE", default_value = "mortise-system")]
    namespace: Namespace,
    /// The plugin's configuration, YAML
    #[arg(long, value_name = "FILE.yaml")]
    config: Option<PathBuf>,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

pub fn run(args: &ManifestsArgs) -> anyhow::Result<()> {
    let name = kubernetes::valid_plugin_name(args.name.as_deref(), &args.file)?;
    let manifest = component::load(&args.file, args.cache_dir.clone())?.manifest;
    let (namespace, bytes) = (args.namespace.as_str(), component::read(&args.file)?);
    let packed = pack(namespace, &name, &bytes, None, Compression::Zstd)
        .with_context(|| format!("cannot pack {}", args.file.display()))?;
    let config_map: ConfigMap = serde_json::from_str(&packed.config_map).context("reading the packed ConfigMap")?;
    let config = args.config.as_deref().map(read_config).transpose()?;
    let service_account = args.service_account.as_deref().unwrap_or(&name);
    let identified = Identified { plugin: &name, manifest: &manifest, namespace, service_account };
    let digest = packed.digest.to_string();
    let source = source_name(&name, &digest);
    let mut plugin = plugin(&name, &source, service_account, &digest, config);
    plugin["spec"]["grants"] = json!(grants::asked(&manifest));

    std::fs::create_dir_all(&args.output).with_context(|| format!("cannot make {}", args.output.display()))?;
    let mut said = String::new();
    let mut write = |file: &str, content: &str| {
        let path = args.output.join(file);
        said.push_str(&format!("wrote  {}\n", path.display()));
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    write("configmap.yaml", &documents(&[immutable(config_map, source)])?)?;
    write("plugin.yaml", &documents(&[plugin])?)?;
    write("rbac.yaml", &identified.rights()?)?;
    let kustomization = args.output.join("kustomization.yaml");
    match kustomization.exists() {
        true => said.push_str(&format!("kept   {}\n", kustomization.display())),
        false => write("kustomization.yaml", &documents(&[of_folder()])?)?,
    }
    words::print(&format!("{said}Next: kubectl diff --server-side -k {}\n", args.output.display()))
}

/// The longest name of a source, which is a DNS label, and the digits of the digest in it.
const MAX_NAME: usize = 63;
const DIGITS: usize = 12;

/// "podset-62d7100ce95a".
fn source_name(plugin: &str, digest: &str) -> String {
    let digits: String = digest.trim_start_matches("sha256:").chars().take(DIGITS).collect();
    let room = MAX_NAME - DIGITS - 1;
    format!("{}-{digits}", plugin[..plugin.len().min(room)].trim_end_matches('-'))
}

/// A source that is a plugin only where a Plugin names it, and that nobody changes.
fn immutable(mut config_map: ConfigMap, name: String) -> ConfigMap {
    config_map.metadata.name = Some(name);
    config_map.metadata.labels.get_or_insert_default().insert(PLUGIN.to_owned(), "source".to_owned());
    ConfigMap { immutable: Some(true), ..config_map }
}

/// The Plugin lets this component serve and no other.
fn plugin(name: &str, source: &str, service_account: &str, digest: &str, config: Option<Value>) -> Value {
    let mut plugin = json!({
        "apiVersion": API_VERSION, "kind": "Plugin", "metadata": {"name": name},
        "spec": {"source": {"configMap": source}, "digest": digest, "serviceAccountName": service_account},
    });
    if let Some(config) = config {
        plugin["spec"]["config"] = config;
    }
    plugin
}

fn of_folder() -> Value {
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["rbac.yaml", "configmap.yaml", "plugin.yaml"],
    })
}

fn read_config(path: &Path) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let config: Value = serde_saphyr::from_str(&text).with_context(|| format!("{} is no YAML", path.display()))?;
    anyhow::ensure!(config.is_object(), "{}: a configuration is a map, such as \"limit: 3\"", path.display());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_the_digest_in_its_name_and_is_a_dns_label() {
        let digest = "sha256:62d7100ce95aba5ec97d81059232ac514b75d3933a16f0f5534135215e4dd351";
        assert_eq!(source_name("podset", digest), "podset-62d7100ce95a");
        let longest = source_name(&format!("{}-b", "a".repeat(49)), digest);
        assert_eq!(longest, format!("{}-62d7100ce95a", "a".repeat(49)), "no two hyphens, and 63 bytes at most");
    }
}
