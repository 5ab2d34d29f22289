//! The Kubernetes client of commands that make a few requests, and the names that they take.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use mortise_kube::client::Access;
use mortise_source::{MAX_DNS_LABEL_BYTES, is_dns_label};

/// Kubernetes' limit for the name of an object: a DNS subdomain.
const MAX_OBJECT_NAME_BYTES: usize = 253;

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

/// As [`plugin_name`], and a plugin can have it.
pub fn valid_plugin_name(typed: Option<&str>, file: &Path) -> anyhow::Result<String> {
    let name = plugin_name(typed, file)?;
    anyhow::ensure!(
        is_dns_label(&name),
        "{name:?} cannot be a plugin's name: it must have at most {MAX_DNS_LABEL_BYTES} of the characters a-z, 0-9 and '-', and \
         begin and end with a letter or digit; set another one with --name"
    );
    Ok(name)
}

/// Reads the name of a ServiceAccount from the command line.
pub fn service_account(text: &str) -> Result<String, String> {
    if text.len() <= MAX_OBJECT_NAME_BYTES && text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} is not the name of a ServiceAccount: lower-case letters, digits, '-' and '.', at most \
         {MAX_OBJECT_NAME_BYTES}, each part beginning and ending with a letter or digit"
    ))
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

    #[test]
    fn names_that_no_plugin_or_service_account_can_have_are_refused() {
        for bad in ["", "x.y", "A b", "-a", &"x".repeat(64)] {
            let error = valid_plugin_name(Some(bad), Path::new("podset.wasm")).expect_err(bad).to_string();
            assert!(error.contains("cannot be a plugin's name") && error.contains("--name"), "{error}");
        }
        let longest = "x".repeat(63);
        assert_eq!(valid_plugin_name(Some(&longest), Path::new("podset.wasm")).unwrap(), longest);
        for bad in ["", "A b", "a..b", "a_b", "-a", &"x".repeat(254)] {
            let error = service_account(bad).expect_err(bad);
            assert!(error.contains("is not the name of a ServiceAccount"), "{error}");
        }
        assert_eq!(service_account("sets.web").as_deref(), Ok("sets.web"));
    }
}
