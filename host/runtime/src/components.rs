//! Components between their source and their calls: where they were found until they are compiled, then what was loaded, until
//! the driver needs it no longer. Compiling runs on threads of its own, each with one child process.
//!
//! Nobody keeps a component's bytes. A compile thread reads them when it compiles them, and not at all when the compile cache
//! knows their digest. So what is in memory at most is, for each compile thread, one component of
//! [`mortise_core::limits::MAX_COMPONENT_BYTES`] and what it was packed into, however many are offered, wait or were refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_kube::client::ApiServer;
use mortise_source::Origin;
use mortise_wasm::plugin::Plugin;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::jobs::{Job, Jobs};
use self::origin::{NotLoaded, Origins};
use crate::event_loop::Input;
use crate::loader::Loader;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

mod jobs;
mod origin;
#[cfg(test)]
mod tests;

/// Components that compile at once. Each compiler takes what cores it can get and some hundred MiB, so more of them
/// would finish no sooner; a second one lets a cached component pass one that takes long.
const COMPILERS: usize = 2;
/// Pause of a compile thread after the API server did not tell what a ConfigMap holds. Others that wait are in the same
/// trouble, mostly.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(5);

/// A component that was compiled and tried, or why not.
pub(crate) type Loaded = Result<(Arc<Plugin>, Compiled), NotLoaded>;

/// Every component that the driver refers to.
#[derive(Debug)]
pub(crate) struct Components {
    known: HashMap<Digest, Known>,
    jobs: Arc<Jobs>,
}

#[derive(Debug)]
struct Known {
    /// Where it was found last.
    origin: Origin,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Offered, or refused: the driver may ask for it.
    Offered,
    /// It waits for a compile thread, or has one. When it was offered again meanwhile, it may be somewhere else.
    Compiling { offered_again: bool },
    /// It was to be compiled and not there any more: it is compiled when it is offered again.
    Missing,
    /// Ready to be called. Native code is mapped from the compile cache.
    Loaded(Arc<Plugin>),
}

impl Components {
    /// Starts the compile threads.
    pub(crate) fn start(
        loader: Loader,
        api: &ApiServer,
        inputs: &mpsc::Sender<Input>,
        metrics: &Arc<Metrics>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let (origins, metrics) = (Origins { api: api.clone(), io: Handle::current() }, Arc::clone(metrics));
        let load = move |job: &Job| {
            let component = loader.load(&job.digest, || origins.read(&job.origin, &job.digest))?;
            metrics.compiled(component.compiled.compile_ms, component.compiled.cached);
            Ok((Arc::new(component.plugin), component.compiled))
        };
        Self::start_with(Arc::new(load), inputs, supervisor)
    }

    fn start_with(
        load: Arc<dyn Fn(&Job) -> Loaded + Send + Sync>,
        inputs: &mpsc::Sender<Input>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let jobs = Arc::new(Jobs::default());
        for _ in 0..COMPILERS {
            let (load, jobs, inputs) = (Arc::clone(&load), Arc::clone(&jobs), inputs.clone());
            supervisor.thread("mortise-compile", move || compile_all(&*load, &jobs, &inputs))?;
        }
        Ok(Self { known: HashMap::new(), jobs })
    }

    /// Notes where a component was found. Comes before the driver hears of it.
    pub(crate) fn offered(&mut self, digest: Digest, origin: Origin) {
        let known = match self.known.entry(digest.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(Known { origin, stage: Stage::Offered });
                return;
            }
        };
        known.origin = origin;
        match &mut known.stage {
            Stage::Offered | Stage::Loaded(_) => {}
            Stage::Compiling { offered_again } => *offered_again = true,
            Stage::Missing => known.compile(digest, &self.jobs),
        }
    }

    /// Has a component compiled. What comes back at once is the answer when nobody knows where it is.
    pub(crate) fn compile(&mut self, digest: &Digest) -> Option<Event> {
        let Some(known) = self.known.get_mut(digest) else {
            let message = format!("no source has {digest} any more; change or touch the plugin's source");
            return Some(Event::Compiled(digest.clone(), Err(Refusal::of_bytes("ComponentLost", message))));
        };
        known.compile(digest.clone(), &self.jobs);
        None
    }

    /// Takes in what a compile thread made; what comes out is for the driver. Nothing when it waits for nothing any more: it
    /// has unloaded the component, or another thread was faster.
    pub(crate) fn loaded(&mut self, digest: Digest, loaded: Loaded) -> Option<Event> {
        let known = self.known.get_mut(&digest)?;
        let Stage::Compiling { offered_again } = known.stage else { return None };
        let compiled = match loaded {
            Ok((plugin, compiled)) => {
                known.stage = Stage::Loaded(plugin);
                Ok(compiled)
            }
            Err(NotLoaded::Refused(refusal)) => {
                known.stage = Stage::Offered;
                Err(refusal)
            }
            Err(NotLoaded::Changed) if !offered_again => {
                tracing::info!(%digest, "a component was not compiled, since its source has changed");
                known.stage = Stage::Missing;
                return None;
            }
            Err(NotLoaded::Changed | NotLoaded::Unreachable(_)) => {
                known.compile(digest, &self.jobs);
                return None;
            }
        };
        Some(Event::Compiled(digest, compiled))
    }

    /// What calls run, once it is loaded.
    pub(crate) fn get(&self, digest: &Digest) -> Option<&Arc<Plugin>> {
        match &self.known.get(digest)?.stage {
            Stage::Loaded(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// Has plugins that were not called for this long give back the memory that calls need.
    pub(crate) fn release_unused(&self, unused_for: Duration) {
        for known in self.known.values() {
            if let Stage::Loaded(plugin) = &known.stage {
                plugin.release(unused_for);
            }
        }
    }

    /// Forgets a component; if it waits to be compiled, it is not. Calls that run keep it until they end.
    pub(crate) fn unload(&mut self, digest: &Digest) {
        self.known.remove(digest);
        self.jobs.withdraw(digest);
    }
}

impl Known {
    fn compile(&mut self, digest: Digest, jobs: &Jobs) {
        self.stage = Stage::Compiling { offered_again: false };
        jobs.push(Job { digest, origin: self.origin.clone() });
    }
}

fn compile_all(load: &dyn Fn(&Job) -> Loaded, jobs: &Jobs, inputs: &mpsc::Sender<Input>) -> anyhow::Result<()> {
    loop {
        let job = jobs.take();
        let loaded = load(&job);
        let unreachable = match &loaded {
            Err(NotLoaded::Unreachable(why)) => Some(why.clone()),
            Err(NotLoaded::Changed) => None,
            Ok(_) | Err(NotLoaded::Refused(_)) => {
                // It may have been unloaded and asked for again while it was compiled: this result answers both.
                jobs.withdraw(&job.digest);
                None
            }
        };
        inputs.blocking_send(Input::Loaded(job.digest, loaded)).context("the event loop has ended")?;
        if let Some(why) = unreachable {
            let pause_s = UNREACHABLE_PAUSE.as_secs();
            tracing::warn!(pause_s, "a component cannot be read again to be compiled, trying once more: {why}");
            thread::sleep(UNREACHABLE_PAUSE);
        }
    }
}
