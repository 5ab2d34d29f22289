//! The podset plugin, compiled and loaded into this process as by the host.

use std::sync::Arc;

use anyhow::{Context, Result};
use mortise_core::call::{Call, CallDone};
use mortise_core::component::{Compiled, Offer};
use mortise_core::digest::Digest;
use mortise_core::limits::CallLimits;
use mortise_core::object::Kind;
use mortise_core::view::Access;
use mortise_wasm::compile::Compiler;
use mortise_wasm::engine::{Engine, EngineOptions};
use mortise_wasm::plugin::Plugin;

use super::cycle::Guests;
use crate::{COMPILE, programs};
pub(crate) struct Podset {
    pub(crate) plugin: Plugin,
    pub(crate) pooled: bool,
    pub(crate) component_bytes: usize,
    pub(crate) artifact_bytes: u64,
}

impl Podset {
    /// Compiles it, with the host's engine or with one that counts fuel.
    pub(crate) fn compile(fuel: bool) -> Result<Self> {
        let wasm = programs::own_component("plugins/podset.wasm")?;
        let engine = Engine::new(EngineOptions { fuel, ..EngineOptions::default() })?;
        let cache = tempfile::tempdir().context("create a folder for the compiled plugin")?;
        let compiler =
            Compiler::new(programs::compiler()?, vec![COMPILE.into()], &cache.path().join("cache"), &engine)?;
        let artifact = compiler.compile(&wasm).context("compile podset.wasm")?;
        let artifact_bytes = artifact.file.metadata().context("measure the compiled plugin")?.len();
        // The folder may be deleted: a loaded plugin stays mapped.
        let plugin = engine.load(artifact).context("load podset.wasm")?;
        Ok(Self { plugin, pooled: engine.pooled(), component_bytes: wasm.len(), artifact_bytes })
    }
}

impl Guests for Podset {
    fn offers(&self) -> Vec<Offer> {
        let digest = self.plugin.digest().clone();
        vec![Offer::new("podset", "file podset.wasm", digest, "{}")]
    }

    fn compiled(&self, _: &Digest) -> Compiled {
        let manifest = self.plugin.manifest().clone();
        Compiled { manifest, component_bytes: self.component_bytes as u64, compile_ms: 0, cached: true }
    }

    fn call(&self, call: Call) -> CallDone {
        let report = self.plugin.call(call.object.json(), call.view, &call.limits);
        let elapsed_us = report.stats.elapsed.as_micros() as u64;
        let conclusion = call.check.conclude(&call.object, report.result);
        CallDone { conclusion, reads: report.reads, elapsed_us }
    }
}

pub(crate) fn pod_set() -> Kind {
    Kind::new("app.example.com/v1alpha1", "PodSet")
}

pub(crate) fn pod() -> Kind {
    Kind::new("v1", "Pod")
}

/// The kinds that the plugin's manifest declares.
pub(crate) fn access() -> Arc<Access> {
    Arc::new(Access::new(vec![pod_set(), pod()], CallLimits::default().read_bytes))
}
