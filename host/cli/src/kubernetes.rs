//! The Kubernetes client of commands that make a few requests, and the default name of a plugin.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use mortise_kube::client::Access;

/// A client for the cluster of a kubeconfig; without one, for the cluster that `mortise run` would use.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let access = Access { kubeconfig: kubeconfig.map(Path::to_owned), context: None };
    let config = access.config().await?;
    let server = config.cluster_url.to_string();
    Client::try_from(config).with_context(|| format!("cannot set up the connection to {server}"))
}

/// Runs a command's requests on this thread.
pub fn block_on<T>(requests: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting I/O")?;
    Ok(runtime.block_on(requests))
}

/// The plugin's name: as typed, else the file's without its extension, with hyphens for cargo's underscores. The caller
/// has to validate it.
pub fn plugin_name(typed: Option<&str>, file: &Path) -> anyhow::Result<String> {
    let stem = || file.file_stem().and_then(|stem| stem.to_str()).map(|stem| stem.replace('_', "-"));
    let name = typed.map(str::to_owned).or_else(stem);
    name.with_context(|| format!("cannot derive a plugin's name from {}; set one with --name", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_named_after_its_file_unless_a_name_is_given() {
        let name = |typed, file: &str| plugin_name(typed, Path::new(file));
        assert_eq!(name(None, "target/plugins/podset.wasm").unwrap(), "podset");
        assert_eq!(name(None, "my_plugin.wasm").unwrap(), "my-plugin");
        assert_eq!(name(Some("mine"), "podset.wasm").unwrap(), "mine");
        let error = name(None, "..").expect_err("a folder").to_string();
        assert!(error.contains("--name"), "{error}");
    }
}
