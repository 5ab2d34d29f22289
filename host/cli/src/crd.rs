//! `mortise crd`: prints the CustomResourceDefinition of Plugin objects, or those that a plugin brings.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use mortise_core::well_known::HOST;
use mortise_core::{crd, plugin_object};
use serde_json::Value;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The host registers the definition of Plugins by itself when it starts. Apply it beforehand if the host lacks the right to:
      mortise crd | kubectl apply --server-side -f -

It registers the CustomResourceDefinitions of plugins in its own namespace too, and none of a tenant's. Apply these for
tenants:
      mortise crd podset.wasm | kubectl apply --server-side -f -
If the host has registered them once, and no plugin of its namespace brings them any more, add --force-conflicts.")]
pub struct CrdArgs {
    /// A plugin whose CustomResourceDefinitions are printed instead
    #[arg(value_name = "FILE.wasm")]
    file: Option<PathBuf>,
    /// Name of the plugin in the cluster [default: the file's name]
    #[arg(long, value_name = "NAME", requires = "file")]
    name: Option<String>,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Prints definitions with the labels that the host gives them, so that a later version of the host or of the plugin may update
/// them.
pub fn run(args: &CrdArgs) -> anyhow::Result<()> {
    let prepared = match &args.file {
        None => vec![crd::prepare(HOST, plugin_object::CRD, None)],
        Some(file) => {
            let name = crate::kubernetes::plugin_name(args.name.as_deref(), file)?;
            let component = crate::component::load(file, args.cache_dir.clone())?;
            let crds = component.manifest.custom_resources.iter();
            crds.map(|brought| crd::prepare(&name, &brought.body, None)).collect()
        }
    };
    let parse = |text: &std::sync::Arc<str>| serde_json::from_str(text).context("parsing a definition");
    let definitions: Vec<Value> = prepared.iter().map(parse).collect::<anyhow::Result<_>>()?;
    crate::words::print(&crate::yaml::documents(&definitions)?)
}
