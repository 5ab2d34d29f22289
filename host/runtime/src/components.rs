//! The components that the engine refers to: their origins until they are compiled, then the loaded plugins, until the
//! engine unloads them. Compilations run on their own threads, each with one child process.
//!
//! A component's bytes are not kept: a compile thread reads them when it compiles them, and not at all on a hit of the
//! compile cache. So memory holds, for each compile thread, at most one component of
//! [`mortise_core::limits::MAX_COMPONENT_BYTES`] and its packed form, for any number of components.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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

use self::jobs::{Job, Jobs, tenant_of};
use self::origin::Origins;
use crate::input::{Input, Loaded, NotLoaded};
use crate::inputs::Inputs;
use crate::loader::Loader;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

mod jobs;
mod origin;
#[cfg(test)]
mod tests;

/// Pause of a compile thread after the API server did not return a ConfigMap: the next job would most likely fail too.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(5);
/// The first pause before a component is compiled again that the machine could not compile (no process, disk space or processor
/// time); each further one is twice as long, up to the longest. Meanwhile others are compiled.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Components {
    known: HashMap<Digest, Known>,
    jobs: Arc<Jobs>,
}

#[derive(Debug)]
struct Known {
    /// Where it was found. The last one is read; one that has it no more is removed. Those of tenants come before the host's,
    /// each tenant's together, its newest last: no more than it may have plugins, since the names of its ConfigMaps have no end.
    /// A new tenant comes before the others, and so does one again whose ConfigMap could not be read. So a tenant that offers
    /// the component of another again and again, and denies reading it, is not read instead of that one.
    origins: Vec<Origin>,
    stage: Stage,
    /// How often in succession the machine could not compile it.
    failures: u32,
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
        loader: Arc<Loader>,
        api: &ApiServer,
        inputs: &Inputs,
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
        inputs: &Inputs,
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
                unknown.insert(Known { origins: vec![origin], stage: Stage::Offered, failures: 0 });
                return;
            }
        };
        let lost_at = matches!(known.stage, Stage::Missing).then(|| known.origin().clone());
        known.found(origin);
        if let Some(at) = lost_at {
            known.tries_last(&at);
        }
        match &mut known.stage {
            Stage::Offered | Stage::Loaded(_) => {}
            Stage::Compiling { offered_again } => {
                *offered_again = true;
                // If it still waits, it is read where the host has it too, or from the newest of the same tenant. Another tenant's
                // origin is not the last one, so it cannot move the job into its own turn.
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
                (known.stage, known.failures) = (Stage::Loaded(plugin), 0);
                Ok(compiled)
            }
            Err(NotLoaded::Refused(refusal)) => {
                known.stage = Stage::Offered;
                Err(refusal)
            }
            Err(NotLoaded::Unavailable(message)) => {
                known.stage = Stage::Compiling { offered_again: false };
                let pause = FIRST_PAUSE.saturating_mul(1 << known.failures.min(6)).min(LONGEST_PAUSE);
                known.failures += 1;
                tracing::warn!(%digest, pause_s = pause.as_secs(), "could not compile, will retry: {message}");
                self.jobs
                    .push_later(Job { digest: digest.clone(), origin: known.origin().clone() }, Instant::now() + pause);
                return Some(Event::CompileDelayed(digest, message));
            }
            Err(NotLoaded::Changed(at)) if !offered_again && known.loses(&at) => {
                tracing::info!(%digest, "a component was not compiled, since its source has changed");
                known.stage = Stage::Missing;
                return None;
            }
            Err(not_loaded) => {
                if let NotLoaded::Changed(at) = not_loaded {
                    known.tries_last(&at);
                }
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
        let Some(tenant) = tenant_of(&origin) else {
            self.origins.retain(|known| *known != origin);
            return self.origins.push(origin);
        };
        let of_tenant = self.of_tenant(tenant);
        let earlier = self.origins[of_tenant.clone()].iter().position(|known| *known == origin);
        let oldest = (of_tenant.len() == MAX_PLUGINS).then_some(0);
        self.origins.insert(of_tenant.end, origin);
        if let Some(replaced) = earlier.or(oldest) {
            self.origins.remove(of_tenant.start + replaced);
        }
    }

    /// Where the origins of a tenant are. One that has none is before all others.
    fn of_tenant(&self, tenant: &str) -> Range<usize> {
        let is_its = |known: &Origin| tenant_of(known).is_some_and(|of| **of == *tenant);
        let start = self.origins.iter().position(is_its).unwrap_or_default();
        start..start + self.origins.iter().filter(|known| is_its(known)).count()
    }

    /// Reads the tenant of this origin after the others.
    fn tries_last(&mut self, at: &Origin) {
        let Some(tenant) = tenant_of(at) else { return };
        let of_tenant = self.of_tenant(tenant);
        self.origins[..of_tenant.end].rotate_right(of_tenant.len());
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

fn compile_all(load: &dyn Fn(&Job) -> Loaded, jobs: &Jobs, inputs: &Inputs) -> anyhow::Result<()> {
    loop {
        let job = jobs.take();
        let loaded = load(&job);
        let unreachable = match &loaded {
            Err(NotLoaded::Unreachable(why)) => Some(why.clone()),
            Err(NotLoaded::Changed(_) | NotLoaded::Unavailable(_)) => None,
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
