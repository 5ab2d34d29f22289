//! `mortise push`: writes a component into a labelled ConfigMap of the host's namespace, or of a tenant's.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use mortise_core::well_known::PLUGIN;
use mortise_runtime::config::Namespace;
use mortise_source::configmap::CONFIG_KEY;
use mortise_source::pack::{Compression, pack};

use crate::{component, kubernetes, words};

/// The field manager of what this command writes.
const MANAGER: &str = "mortise-push";

/// The namespace of a host, unless it runs elsewhere.
const HOST_NAMESPACE: &str = "mortise-system";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  Put a plugin into the cluster, or replace it by a new build:
      mortise push target/plugins/podset.wasm

  With its configuration, under another name, smaller:
      mortise push podset.wasm --name web-podset --config web.yaml --zstd

  As a manifest for a repository, without a cluster:
      mortise push podset.wasm --dry-run > podset.yaml

A running host compiles the new build while the old one serves, and switches between two calls. If it
refuses the new build, the old one keeps serving, and `kubectl get plugins -o wide` says why. To wait
for the new one: `kubectl wait --for=jsonpath='{.status.digest}'=DIGEST plugin/NAME`. Without --config,
an existing configuration stays.")]
pub struct PushArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// Name of the ConfigMap, which is the plugin's [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Namespace of the host, or of a tenant, whose plugin it is then
    #[arg(long, short, value_name = "NAMESPACE", default_value = HOST_NAMESPACE)]
    namespace: Namespace,
    /// Kubeconfig to reach the API server; without it, $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Compress with zstd instead of gzip
    #[arg(long)]
    zstd: bool,
    /// The plugin's configuration, YAML
    #[arg(long, value_name = "FILE.yaml")]
    config: Option<PathBuf>,
    /// Print the ConfigMap as YAML instead of sending it
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &PushArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let name = kubernetes::plugin_name(args.name.as_deref(), &args.file)?;
    let bytes = component::read(&args.file)?;
    mortise_wasm::scan::prescan(&bytes).map_err(|refusal| component::refused(refusal, &args.file))?;
    let config = args.config.as_ref().map(|path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))
    });
    let compression = if args.zstd { Compression::Zstd } else { Compression::Gzip };
    let packed = pack(args.namespace.as_str(), &name, &bytes, config.transpose()?.as_deref(), compression)
        .with_context(|| match args.name {
            Some(_) => format!("cannot push {file}"),
            None => format!("cannot push {file} as {name}, which is the file's name; --name gives it another"),
        })?;
    let config_map: ConfigMap = serde_json::from_str(&packed.config_map).context("reading the packed ConfigMap")?;
    if args.dry_run {
        return words::print(&crate::yaml::documents(&[config_map])?);
    }
    let done = kubernetes::block_on(send(args, config_map))?
        .map_err(|error| in_words(error, args.namespace.as_str()))
        .with_context(|| format!("cannot push {file} to ConfigMap {}/{name}", args.namespace))?;
    words::print(&format!(
        "ConfigMap {}/{name} {done}\n  digest  {}\n  size    {}, packed {}\nNext: {}\n",
        args.namespace,
        packed.digest,
        words::size(packed.component_bytes as u64),
        words::size(packed.packed_bytes as u64),
        next(args.namespace.as_str(), &name),
    ))
}

/// Where the plugin's state is shown. A tenant may read no Plugins, and sees the Events of its ConfigMap.
fn next(namespace: &str, name: &str) -> String {
    let of_host = format!("kubectl get plugins {name} -o wide");
    match namespace {
        HOST_NAMESPACE => of_host,
        _ => format!(
            "kubectl events -n {namespace} --for configmap/{name}\n      (in the namespace of a host: {of_host})"
        ),
    }
}

/// The API server's message, with what to do where that is known.
fn in_words(error: anyhow::Error, namespace: &str) -> anyhow::Error {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if status.code == 404 && status.message.contains("namespaces") => {
            anyhow::anyhow!("{}; create it with: kubectl create namespace {namespace}", status.message)
        }
        Some(kube::Error::Api(status)) => anyhow::anyhow!("{}", status.message),
        _ => error,
    }
}

/// Creates the ConfigMap, or replaces the existing one. The replacement carries the resourceVersion that was read: of
/// two pushes at once one gets a conflict.
async fn send(args: &PushArgs, mut wanted: ConfigMap) -> anyhow::Result<&'static str> {
    let client = kubernetes::client(args.kubeconfig.as_deref()).await?;
    let api: Api<ConfigMap> = Api::namespaced(client, args.namespace.as_str());
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let name = wanted.metadata.name.clone().context("the packed ConfigMap has no name")?;
    let Some(live) = api.get_opt(&name).await? else {
        api.create(&params, &wanted).await?;
        return Ok("created");
    };
    if live.metadata.labels.as_ref().and_then(|labels| labels.get(PLUGIN)).map(String::as_str) != Some("true") {
        bail!(
            "it exists and is not a plugin: it has no label {PLUGIN}=true; choose another name with --name, or label it with \
             kubectl -n {} label configmap {name} {PLUGIN}=true",
            args.namespace
        );
    }
    take_over(&mut wanted, live);
    api.replace(&name, &params, &wanted).await?;
    Ok("replaced")
}

/// Keeps other labels and annotations, and the configuration if none is given.
fn take_over(wanted: &mut ConfigMap, live: ConfigMap) {
    let mut metadata = live.metadata;
    metadata.managed_fields = None;
    metadata.labels.get_or_insert_default().extend(wanted.metadata.labels.take().unwrap_or_default());
    wanted.metadata = metadata;
    if wanted.data.is_none() {
        let config = live.data.unwrap_or_default().remove_entry(CONFIG_KEY);
        wanted.data = config.map(|entry| [entry].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(json: serde_json::Value) -> ConfigMap {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn what_comes_next_is_a_command_that_a_tenant_may_run_unless_it_is_the_hosts_namespace() {
        assert_eq!(next("mortise-system", "podset"), "kubectl get plugins podset -o wide");
        let next = next("team-a", "podset");
        assert!(next.starts_with("kubectl events -n team-a --for configmap/podset\n"), "{next}");
        assert!(next.ends_with("(in the namespace of a host: kubectl get plugins podset -o wide)"), "{next}");
    }

    #[test]
    fn a_push_replaces_the_component_and_keeps_labels_and_configuration() {
        let live = config_map(serde_json::json!({
            "metadata": {"name": "podset", "resourceVersion": "7", "labels": {"team": "web", PLUGIN: "true"}},
            "data": {CONFIG_KEY: "a: 1", "plugin.wasm": "text"},
            "binaryData": {"plugin.wasm.gz": "AA=="},
        }));
        let mut wanted = config_map(serde_json::json!({
            "metadata": {"name": "podset", "labels": {PLUGIN: "true"}},
            "binaryData": {"plugin.wasm.zst": "AAA="},
        }));
        take_over(&mut wanted, live.clone());
        assert_eq!(wanted.metadata.resource_version.as_deref(), Some("7"), "a concurrent change is a conflict");
        assert_eq!(wanted.metadata.labels.as_ref().unwrap().len(), 2);
        assert_eq!(wanted.data.as_ref().unwrap().keys().collect::<Vec<_>>(), [CONFIG_KEY]);
        assert_eq!(wanted.binary_data.as_ref().unwrap().keys().collect::<Vec<_>>(), ["plugin.wasm.zst"]);

        wanted.data = Some([(CONFIG_KEY.to_owned(), "a: 2".to_owned())].into());
        take_over(&mut wanted, live);
        assert_eq!(wanted.data.unwrap()[CONFIG_KEY], "a: 2");
    }
}
