//! A plugin's component, compiled and loaded into this process as the host does. Knows nothing of the simulation.

use std::sync::OnceLock;

use mortise_wasm::compile::Compiler;
use mortise_wasm::engine::{Engine, EngineOptions};
use mortise_wasm::plugin::Plugin;

use crate::checkout::built;

const COMPILE: &str = "compile-component";

/// crontab, loaded once for all runs.
pub fn crontab() -> &'static Plugin {
    static CRONTAB: OnceLock<Plugin> = OnceLock::new();
    CRONTAB.get_or_init(|| {
        let wasm = std::fs::read(built("plugins/crontab.wasm")).unwrap();
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("cache");
        let compiler = Compiler::new(built("debug/mortise"), vec![COMPILE.into()], &folder, &engine).unwrap();
        // The folder may be deleted: the file is open.
        engine.load(compiler.compile(&wasm).unwrap()).unwrap()
    })
}
