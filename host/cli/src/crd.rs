//! `mortise crd`: the definition of Plugin objects, which the host keeps for every plugin that it knows.

use anyhow::Context;
use clap::Args;
use mortise_core::well_known::HOST;
use mortise_core::{crd, plugin_object};
use serde_json::Value;

/// What was typed: nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The host registers this definition by itself when it starts. Apply it beforehand where the host may not:
      mortise crd | kubectl apply --server-side -f -")]
pub struct CrdArgs {}

/// Prints the definition as YAML, marked as the host marks it, so that a later host may bring it up to date.
pub fn run(_args: &CrdArgs) -> anyhow::Result<()> {
    let prepared = crd::prepare(HOST, plugin_object::CRD, None);
    let definition: Value = serde_json::from_str(&prepared).context("reading the built-in definition")?;
    crate::words::print(&crate::yaml::documents(&[definition])?)
}
