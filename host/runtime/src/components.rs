//! The components that the engine refers to: their origins until they are compiled, then the loaded plugins, until the
//! engine unloads them. Compilations run on their own threads, each with one child process.
//!
//! A component's bytes are not kept: a compile thread reads them when it compiles them, and not at all on a hit of the
//! compile cache. So memory holds, for each compile thread, at most one component of
//! [`mortise_core::limits::MAX_COMPONENT_BYTES`] and its packed form, for any number of components.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_core::tenant::MAX_PLUGINS;
use mortise_kube::client::ApiServer;
use mortise_source::Origin;
use mortise_wasm::compile::COMPILERS;
use mortise_wasm::plugin::Plugin;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::jobs::{Job, Jobs};
use self::origin::Origins;
use crate::input::{Input, Loaded, NotLoaded};
use crate::loader::Loader;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

mod jobs;
mod origin;
#[cfg(test)]
mod tests;

/// Pause of a compile thread after the API server did not return a ConfigMap: the next job would most likely fail too.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Components {
    known: HashMap<Digest, Known>,
    jobs: Arc<Jobs>,
}

#[derive(Debug)]
struct Known {
    /// Where it was found: the newest last, and those of tenants first. The last one is read; one that has it no more is
    /// removed, so that a tenant that has the component of another plugin too, and loses it, delays nobody. Of a tenant no
    /// more than it may have plugins: the names of its ConfigMaps have no end.
    origins: Vec<Origin>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Offered, or refused.
    Offered,
    /// Queued for a compile thread, or on one. When it was offered again meanwhile, its origin may have changed.
    Compiling {
        offered_again: bool,
    },
    /// Its origin had lost it when it should be compiled; it is compiled once it is offered again.
    Missing,
    Loaded(Arc<Plugin>),
}

impl Components {
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

    /// Records the origin of a component, before the engine's event.
    pub(crate) fn offered(&mut self, digest: Digest, origin: Origin) {
        let known = match self.known.entry(digest.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(Known { origins: vec![origin], stage: Stage::Offered });
                return;
            }
        };
        known.found(origin);
        match &mut known.stage {
            Stage::Offered | Stage::Loaded(_) => {}
            Stage::Compiling { offered_again } => {
                *offered_again = true;
                // If it still waits, it waits no longer for what other tenants have.
                self.jobs.replace(Job { digest, origin: known.origin().clone() });
            }
            Stage::Missing => known.compile(digest, &self.jobs),
        }
    }

    /// Queues a component. Returns a refusal if its origin is unknown.
    pub(crate) fn compile(&mut self, digest: &Digest) -> Option<Event> {
        let Some(known) = self.known.get_mut(digest) else {
            let message = format!("no source has {digest} any more; change or touch the plugin's source");
            return Some(Event::Compiled(digest.clone(), Err(Refusal::of_bytes("ComponentLost", message))));
        };
        known.compile(digest.clone(), &self.jobs);
        None
    }

    /// Takes the result of a compile thread; returns the engine's event. None when the engine has unloaded the
    /// component, or another thread was faster.
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
            Err(NotLoaded::Changed(at)) if !offered_again && known.loses(&at) => {
                tracing::info!(%digest, "a component was not compiled, since its source has changed");
                known.stage = Stage::Missing;
                return None;
            }
            Err(NotLoaded::Changed(_) | NotLoaded::Unreachable(_)) => {
                known.compile(digest, &self.jobs);
                return None;
            }
        };
        Some(Event::Compiled(digest, compiled))
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<&Arc<Plugin>> {
        match &self.known.get(digest)?.stage {
            Stage::Loaded(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// Frees the memory for calls of plugins that were not called for this long.
    pub(crate) fn release_unused(&self, unused_for: Duration) {
        for known in self.known.values() {
            if let Stage::Loaded(plugin) = &known.stage {
                plugin.release(unused_for);
            }
        }
    }

    /// Drops a component, also from the queue. Calls in progress keep it until they end.
    pub(crate) fn unload(&mut self, digest: &Digest) {
        self.known.remove(digest);
        self.jobs.withdraw(digest);
    }
}

impl Known {
    fn origin(&self) -> &Origin {
        self.origins.last().expect("the last one is never removed")
    }

    fn found(&mut self, origin: Origin) {
        self.origins.retain(|known| *known != origin);
        let Origin::Tenant(name) = &origin else { return self.origins.push(origin) };
        let is_same_tenants =
            |known: &Origin| matches!(known, Origin::Tenant(other) if other.namespace == name.namespace);
        if self.origins.iter().filter(|known| is_same_tenants(known)).count() == MAX_PLUGINS {
            let oldest = self.origins.iter().position(is_same_tenants);
            oldest.map(|oldest| self.origins.remove(oldest));
        }
        let of_tenants = self.origins.partition_point(|known| matches!(known, Origin::Tenant(_)));
        self.origins.insert(of_tenants, origin);
    }

    /// Removes an origin that has it no more. Whether there is no other.
    fn loses(&mut self, at: &Origin) -> bool {
        if self.origins.len() > 1 {
            self.origins.retain(|known| known != at);
            return false;
        }
        self.origin() == at
    }

    fn compile(&mut self, digest: Digest, jobs: &Jobs) {
        self.stage = Stage::Compiling { offered_again: false };
        jobs.push(Job { digest, origin: self.origin().clone() });
    }
}

fn compile_all(load: &dyn Fn(&Job) -> Loaded, jobs: &Jobs, inputs: &mpsc::Sender<Input>) -> anyhow::Result<()> {
    loop {
        let job = jobs.take();
        let loaded = load(&job);
        let unreachable = match &loaded {
            Err(NotLoaded::Unreachable(why)) => Some(why.clone()),
            Err(NotLoaded::Changed(_)) => None,
            Ok(_) | Err(NotLoaded::Refused(_)) => {
                // If it was unloaded and queued again while it was compiled, this result is for both.
                jobs.withdraw(&job.digest);
                None
            }
        };
        inputs.blocking_send(Input::Loaded(job.digest.clone(), loaded)).context("the event loop has ended")?;
        if let Some(why) = unreachable {
            let pause_s = UNREACHABLE_PAUSE.as_secs();
            tracing::warn!(pause_s, "cannot read a component to compile it, will retry: {why}");
            thread::sleep(UNREACHABLE_PAUSE);
        }
        jobs.ended(&job);
    }
}
