//! `mortise inspect`: shows a plugin's manifest, imports and sizes, as text or as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use mortise_core::limits::CONFIG_MAP_BYTES;
use mortise_core::manifest::{AdmissionSpec, ControllerSpec, Manifest, Operations, Replace, Update};
use mortise_source::pack::{Compression, PackError, pack};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::component::{self, Component};
use crate::words;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  Show a plugin's manifest, imports and sizes:
      mortise inspect podset.wasm

  Print its digest, for a script:
      mortise inspect podset.wasm -o json | jq -r .digest

Exit status:
  0 when the host would accept the plugin, 1 when it would refuse it; the message is the one that
  `kubectl get plugins -o wide` would show.")]
pub struct InspectArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected<'a> {
    digest: &'a str,
    sizes: Sizes,
    producers: &'a [String],
    imports: &'a [String],
    exports: &'a [String],
    manifest: &'a RawValue,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sizes {
    component_bytes: u64,
    gzip_bytes: u64,
    zstd_bytes: u64,
    code_bytes: u64,
    data_bytes: u64,
    custom_bytes: u64,
}

pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let component = component::load(&args.file, args.cache_dir.clone())?;
    let scanned = component.scan.sizes;
    let sizes = Sizes {
        component_bytes: scanned.component_bytes,
        gzip_bytes: packed_bytes(&component.bytes, Compression::Gzip)?,
        zstd_bytes: packed_bytes(&component.bytes, Compression::Zstd)?,
        code_bytes: scanned.code_bytes,
        data_bytes: scanned.data_bytes,
        custom_bytes: scanned.custom_bytes,
    };
    match args.output {
        Output::Text => words::print(&text(&component, sizes)?),
        Output::Json => {
            let manifest = serde_json::from_str(&component.text).context("reading the manifest")?;
            let inspected = Inspected {
                digest: &component.scan.digest.0,
                sizes,
                producers: &component.scan.producers,
                imports: &component.scan.imports,
                exports: &component.scan.exports,
                manifest,
            };
            words::print(&format!("{}\n", serde_json::to_string_pretty(&inspected).context("writing JSON")?))
        }
    }
}

/// The component's size in a ConfigMap, even if it is too large for one.
fn packed_bytes(component: &[u8], compression: Compression) -> anyhow::Result<u64> {
    match pack("namespace", "plugin", component, None, compression) {
        Ok(packed) => Ok(packed.packed_bytes as u64),
        Err(PackError::TooLarge { packed_bytes, .. }) => Ok(packed_bytes as u64),
        Err(error) => Err(error).context("compressing the component"),
    }
}

fn text(component: &Component, sizes: Sizes) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let manifest = &component.manifest;
    writeln!(text, "{} {}", manifest.name, manifest.version)?;
    writeln!(text, "  digest   {}", component.scan.digest)?;
    let smallest = sizes.component_bytes.min(sizes.gzip_bytes).min(sizes.zstd_bytes);
    // The API server counts a ConfigMap's bytes before base64.
    let fits = if smallest <= CONFIG_MAP_BYTES as u64 { "fits a ConfigMap" } else { "too large for a ConfigMap" };
    writeln!(
        text,
        "  size     {}, gzip {}, zstd {}: {fits}",
        words::size(sizes.component_bytes),
        words::size(sizes.gzip_bytes),
        words::size(sizes.zstd_bytes)
    )?;
    writeln!(
        text,
        "           code {}, data {}, names and debug information {}",
        words::size(sizes.code_bytes),
        words::size(sizes.data_bytes),
        words::size(sizes.custom_bytes)
    )?;
    if !component.scan.producers.is_empty() {
        writeln!(text, "  built by {}", component.scan.producers.join(", "))?;
    }
    describe(&mut text, manifest)?;
    writeln!(text, "\nCapabilities")?;
    for (meaning, imports) in words::capabilities(&component.scan.imports) {
        writeln!(text, "  {meaning}")?;
        for import in imports {
            writeln!(text, "    {import}")?;
        }
    }
    Ok(text)
}

fn describe(text: &mut String, manifest: &Manifest) -> std::fmt::Result {
    for controller in &manifest.controllers {
        describe_controller(text, controller)?;
    }
    if !manifest.writes.is_empty() {
        writeln!(text, "\nWrites objects that are not children")?;
        for rule in manifest.writes.iter() {
            let verbs: Vec<&str> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
            write!(text, "  {:<7} {}", verbs.join(", "), words::kind(&rule.kind))?;
            match rule.subresources.as_slice() {
                [] => writeln!(text)?,
                subresources => writeln!(text, " and its {}", subresources.join(", "))?,
            }
        }
    }
    if !manifest.http.is_empty() {
        writeln!(text, "\nSends HTTP requests, if the host runs with --allow-http")?;
        for rule in manifest.http.iter() {
            let methods: Vec<&str> = rule.methods.iter().map(|method| method.as_str()).collect();
            write!(text, "  {} to {}", methods.join(", "), rule.origin)?;
            match rule.secrets.as_slice() {
                [] => writeln!(text)?,
                secrets => writeln!(text, ", with values of the Secrets {}", secrets.join(", "))?,
            }
        }
    }
    if !manifest.custom_resources.is_empty() {
        writeln!(text, "\nCustomResourceDefinitions")?;
        for crd in &manifest.custom_resources {
            let scope = if crd.namespaced { "namespaced" } else { "cluster-scoped" };
            let versions: Vec<&str> = crd.kinds.iter().map(|kind| kind.version()).collect();
            write!(text, "  {} ({scope}; {})", crd.name, versions.join(", "))?;
            let is_converted = manifest.conversion.iter().any(|spec| spec.crd == crd.name);
            writeln!(text, "{}", if is_converted { ", converted between versions" } else { "" })?;
        }
    }
    for spec in &manifest.admission {
        describe_admission(text, spec)?;
    }
    let limits = &manifest.limits;
    writeln!(text, "\nLimits of one call")?;
    writeln!(text, "  {} of memory, {} ms", words::size(limits.memory_bytes), limits.deadline_ms)
}

fn describe_admission(text: &mut String, spec: &AdmissionSpec) -> std::fmt::Result {
    let Operations { create, update, delete } = spec.operations;
    let operations = [(create, "create"), (update, "update"), (delete, "delete")];
    let operations: Vec<&str> = operations.into_iter().filter_map(|(is_on, word)| is_on.then_some(word)).collect();
    writeln!(text, "\nAdmission of {}, on {}", words::kind(&spec.kind), operations.join(", "))?;
    if spec.mutate {
        writeln!(text, "  sets defaults")?;
    }
    if spec.validate {
        let otherwise = if spec.is_own() { "refuses" } else { "admits" };
        writeln!(text, "  validates; while no host responds, the API server {otherwise} these writes")?;
    }
    Ok(())
}

fn describe_controller(text: &mut String, controller: &ControllerSpec) -> std::fmt::Result {
    writeln!(text, "\nReconciles {}, {} at once", words::kind(&controller.primary), controller.concurrency)?;
    if !controller.selection.is_everything() {
        writeln!(text, "  where  {}", controller.selection)?;
    }
    if controller.finalize {
        writeln!(text, "  cleans up before their deletion, by a finalizer")?;
    } else if controller.has_finalizer() {
        writeln!(text, "  a finalizer holds them until the host has deleted their children in other namespaces")?;
    }
    for owned in &controller.owns {
        let how = match owned.update {
            Update::Apply => "updated in place".to_owned(),
            Update::Recreate => "replaced when changed".to_owned(),
            Update::RollingRecreate { max_unavailable } => {
                format!("replaced when changed, at most {max_unavailable} unavailable")
            }
            Update::OnDelete => "replaced once it has been deleted".to_owned(),
        };
        let place = match (owned.tracked, owned.scope.is_everything()) {
            (false, _) => String::new(),
            (true, true) => ", in any namespace".to_owned(),
            (true, false) => format!(", {}", owned.scope),
        };
        let adopts = if owned.adopt { "; adopts existing ones" } else { "" };
        let when = if owned.replace == Replace::AtOnce { "; has a successor while it terminates" } else { "" };
        writeln!(text, "  owns   {}{place}, {how}{when}{adopts}", words::kind(&owned.kind))?;
    }
    for read in &controller.reads {
        let scope = if read.scope.is_everything() { String::new() } else { format!(", {}", read.scope) };
        writeln!(text, "  reads  {}{scope}", words::kind(&read.kind))?;
    }
    for pattern in &controller.patterns {
        writeln!(text, "  reads  {pattern}, the kinds that its objects name")?;
    }
    Ok(())
}
