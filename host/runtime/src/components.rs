//! Components between their source and their calls: bytes under their digest until they are compiled, then what was
//! loaded, until the driver needs it no longer. Compiling runs on threads of its own, each with one child process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, unbounded};
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_wasm::plugin::Plugin;
use tokio::sync::mpsc;

use crate::event_loop::Input;
use crate::loader::Loader;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

/// Components that compile at once. Each compiler takes what cores it can get and some hundred MiB, so more of them
/// would finish no sooner; a second one lets a cached component pass one that takes long.
const COMPILERS: usize = 2;

/// A component that was compiled and tried, or why not.
pub(crate) type Loaded = Result<(Arc<Plugin>, Compiled), Refusal>;

/// Every component that the driver refers to.
#[derive(Debug)]
pub(crate) struct Components {
    states: HashMap<Digest, State>,
    /// One entry per digest that is [`State::Compiling`], which are as many as plugins that the sources offer.
    jobs: Sender<(Digest, Arc<[u8]>)>,
}

#[derive(Debug)]
enum State {
    /// Offered, or refused once: the driver may ask again.
    Bytes(Arc<[u8]>),
    /// A compiler has it; the bytes stay until it is known to have worked.
    Compiling(Arc<[u8]>),
    /// Ready to be called. The bytes are gone: native code is mapped from the compile cache.
    Loaded(Arc<Plugin>),
}

impl Components {
    /// Starts the compile threads.
    pub(crate) fn start(
        loader: &Arc<Loader>,
        inputs: &mpsc::Sender<Input>,
        metrics: &Arc<Metrics>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let (jobs, queue) = unbounded();
        for _ in 0..COMPILERS {
            let (loader, queue) = (Arc::clone(loader), queue.clone());
            let (inputs, metrics) = (inputs.clone(), Arc::clone(metrics));
            supervisor.thread("mortise-compile", move || compile_all(&loader, &queue, &inputs, &metrics))?;
        }
        Ok(Self { states: HashMap::new(), jobs })
    }

    /// Keeps a component's bytes, unless it is further than that.
    pub(crate) fn keep(&mut self, digest: Digest, bytes: Arc<[u8]>) {
        self.states.entry(digest).or_insert(State::Bytes(bytes));
    }

    /// Has a component compiled. What comes back at once is the answer when there is nothing to compile.
    pub(crate) fn compile(&mut self, digest: &Digest) -> Option<Event> {
        let bytes = match self.states.get(digest) {
            Some(State::Bytes(bytes) | State::Compiling(bytes)) => bytes.clone(),
            Some(State::Loaded(_)) | None => {
                let message = format!("the bytes of {digest} are no longer here; change or touch the plugin's source");
                return Some(Event::Compiled(digest.clone(), Err(Refusal::of_bytes("ComponentLost", message))));
            }
        };
        self.states.insert(digest.clone(), State::Compiling(bytes.clone()));
        // The threads hold their end as long as the process.
        self.jobs.send((digest.clone(), bytes)).expect("the compile threads never end");
        None
    }

    /// Takes in what a compile thread made, and says so to the driver.
    pub(crate) fn loaded(&mut self, digest: Digest, loaded: Loaded) -> Event {
        let state = self.states.remove(&digest);
        match (loaded, state) {
            (Ok((plugin, compiled)), Some(_)) => {
                self.states.insert(digest.clone(), State::Loaded(plugin));
                Event::Compiled(digest, Ok(compiled))
            }
            // Unloaded while it compiled: nobody will call it.
            (Ok((_, compiled)), None) => Event::Compiled(digest, Ok(compiled)),
            (Err(refusal), state) => {
                if let Some(State::Bytes(bytes) | State::Compiling(bytes)) = state {
                    self.states.insert(digest.clone(), State::Bytes(bytes));
                }
                Event::Compiled(digest, Err(refusal))
            }
        }
    }

    /// What calls run, once it is loaded.
    pub(crate) fn get(&self, digest: &Digest) -> Option<&Arc<Plugin>> {
        match self.states.get(digest) {
            Some(State::Loaded(plugin)) => Some(plugin),
            _ => None,
        }
    }

    /// Has plugins that were not called for this long give back the memory that calls need.
    pub(crate) fn release_unused(&self, unused_for: Duration) {
        for state in self.states.values() {
            if let State::Loaded(plugin) = state {
                plugin.release(unused_for);
            }
        }
    }

    /// Forgets a component. Calls that run keep it until they end.
    pub(crate) fn unload(&mut self, digest: &Digest) {
        self.states.remove(digest);
    }
}

fn compile_all(
    loader: &Loader,
    queue: &Receiver<(Digest, Arc<[u8]>)>,
    inputs: &mpsc::Sender<Input>,
    metrics: &Metrics,
) -> anyhow::Result<()> {
    for (digest, bytes) in queue {
        let loaded = loader.load(&bytes).map(|component| (Arc::new(component.plugin), component.compiled));
        if let Ok((_, compiled)) = &loaded {
            metrics.compiled(compiled.compile_ms, compiled.cached);
        }
        inputs.blocking_send(Input::Loaded(digest, loaded)).context("the event loop has ended")?;
    }
    Ok(())
}
