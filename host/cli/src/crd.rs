//! `mortise crd`: prints the CustomResourceDefinition of Plugin objects.

use anyhow::Context;
use clap::Args;
use mortise_core::well_known::HOST;
use mortise_core::{crd, plugin_object};
use serde_json::Value;

/// `mortise crd` has no arguments.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The host registers this definition by itself when it starts. Apply it beforehand if the host lacks the right to:
      mortise crd | kubectl apply --server-side -f -")]
pub struct CrdArgs {}

/// Prints the CRD with the host's own labels, so that a later version of the host may update it.
pub fn run(_args: &CrdArgs) -> anyhow::Result<()> {
    let prepared = crd::prepare(HOST, plugin_object::CRD, None);
    let definition: Value = serde_json::from_str(&prepared).context("parsing the built-in CRD")?;
    crate::words::print(&crate::yaml::documents(&[definition])?)
}
