//! The way to the cluster for commands that make one or two requests, and what names are allowed there.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use mortise_kube::client::Access;

/// A client for the cluster of a kubeconfig; without one, for the cluster that `mortise run` would find.
///
/// # Errors
/// When there is none, or it cannot be used.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let access = Access { kubeconfig: kubeconfig.map(Path::to_owned), context: None };
    let config = access.config().await?;
    let server = config.cluster_url.to_string();
    Client::try_from(config).with_context(|| format!("cannot set up the connection to {server}"))
}

/// The plugin's name: as typed, else the file's without its ending, with hyphens where cargo writes underscores. Whether it
/// may be one is for the source crate to say.
///
/// # Errors
/// When the file has no name that is text.
pub fn plugin_name(typed: Option<&str>, file: &Path) -> anyhow::Result<String> {
    let stem = || file.file_stem().and_then(|stem| stem.to_str()).map(|stem| stem.replace('_', "-"));
    let name = typed.map(str::to_owned).or_else(stem);
    name.with_context(|| format!("cannot name a plugin after {}; give it a name with --name", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_named_after_its_file_unless_it_is_told_otherwise() {
        let name = |typed, file: &str| plugin_name(typed, Path::new(file));
        assert_eq!(name(None, "target/plugins/podset.wasm").unwrap(), "podset");
        assert_eq!(name(None, "my_plugin.wasm").unwrap(), "my-plugin");
        assert_eq!(name(Some("mine"), "podset.wasm").unwrap(), "mine");
        let error = name(None, "..").expect_err("a folder").to_string();
        assert!(error.contains("--name"), "{error}");
    }
}
