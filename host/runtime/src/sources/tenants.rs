//! The sources of tenants: a watch of labelled ConfigMaps for each namespace that the engine names. They have a reading thread of
//! their own, and each tenant a pace: however often somebody changes ConfigMaps, others' are read. It must not know which namespaces
//! are tenants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use mortise_core::event::Event;
use mortise_core::object::Kind;
use mortise_core::tenant::MAX_PLUGINS;
use mortise_core::watch::WatchEvent;
use mortise_kube::client::ApiServer;
use mortise_kube::watch::{self, Objects};
use mortise_source::SourceEvent;
use mortise_source::configmap::TENANT_SELECTOR;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::listing::Listing;
use crate::input::Input;
use crate::supervise::Supervisor;

/// ConfigMaps between the watches and the reader, of up to 1.4 MB of JSON each. The watches wait while there are as many.
const WAITING: usize = 4;
/// Between two ConfigMaps of a tenant that are read, once it has used up its burst: a component of 40 MiB takes a fifth of this.
const EACH: Duration = Duration::from_secs(1);
/// ConfigMaps that are read at once: all of a tenant's plugins, twice.
const BURST: u32 = 2 * MAX_PLUGINS as u32;

/// A tenant's watch has this to say; None: it has ended.
type Watched = (Arc<str>, Option<WatchEvent>);

/// The watches of tenants' ConfigMaps.
pub(crate) struct TenantSources {
    api: ApiServer,
    supervisor: Supervisor,
    sink: mpsc::Sender<Watched>,
    watches: BTreeMap<Arc<str>, TenantWatch>,
}

struct TenantWatch {
    task: AbortHandle,
    pace: Pace,
}

/// Until when the ConfigMaps that were read take, at a tenant's pace. It outlives a watch that begins anew.
#[derive(Clone)]
struct Pace(Arc<Mutex<Instant>>);

impl Pace {
    fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Adds ConfigMaps. When they may be read; None: now.
    fn add(&self, now: Instant, objects: usize) -> Option<Instant> {
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        // A change is one store, so a panic under the lock leaves it whole.
        let mut paid_until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *paid_until = (*paid_until).max(now) + EACH.saturating_mul(objects);
        paid_until.checked_sub(EACH * BURST)
    }
}

impl TenantSources {
    /// Starts the reader.
    pub(crate) fn start(
        api: &ApiServer,
        inputs: &mpsc::Sender<Input>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let (sink, events) = mpsc::channel(WAITING);
        let inputs = inputs.clone();
        supervisor.thread("mortise-tenants", move || read_all(events, &inputs))?;
        Ok(Self { api: api.clone(), supervisor: supervisor.clone(), sink, watches: BTreeMap::new() })
    }

    /// Watches a namespace, anew if it is watched already.
    pub(crate) fn watch(&mut self, namespace: Arc<str>) {
        let objects = Objects {
            kind: Kind::new("v1", "ConfigMap"),
            namespace: Some(Arc::clone(&namespace)),
            selector: Some(TENANT_SELECTOR.into()),
            name: None,
        };
        let (sink, events) = mpsc::channel(1);
        let watch = watch::run(self.api.clone(), objects, sink, |event| event);
        let known = self.watches.get(&namespace).map(|earlier| earlier.pace.clone());
        let pace = known.unwrap_or_else(|| Pace::new(Instant::now()));
        let paced = send_on(events, pace.clone(), Arc::clone(&namespace), self.sink.clone());
        let task = self.supervisor.task(format!("the watch of the plugins of {namespace}"), async {
            tokio::join!(watch, paced);
            Ok(())
        });
        if let Some(earlier) = self.watches.insert(namespace, TenantWatch { task, pace }) {
            earlier.task.abort();
        }
    }

    pub(crate) fn stop(&mut self, namespace: &Arc<str>) {
        if let Some(watch) = self.watches.remove(namespace) {
            watch.task.abort();
        }
        let (sink, ended) = (self.sink.clone(), (Arc::clone(namespace), None));
        self.supervisor.spawn("the end of a tenant", async move {
            // An error means that the reader has ended.
            let _ = sink.send(ended).await;
        });
    }
}

/// Sends a tenant's events on, no faster than its pace.
async fn send_on(mut events: mpsc::Receiver<WatchEvent>, pace: Pace, namespace: Arc<str>, sink: mpsc::Sender<Watched>) {
    while let Some(event) = events.recv().await {
        let objects = match &event {
            WatchEvent::Applied(_) | WatchEvent::Listing => 1,
            WatchEvent::Listed(objects) => objects.len().min(MAX_PLUGINS),
            _ => 0,
        };
        if let Some(later) = pace.add(Instant::now(), objects) {
            sleep_until(later).await;
        }
        if sink.send((Arc::clone(&namespace), Some(event))).await.is_err() {
            return;
        }
    }
}

fn read_all(mut events: mpsc::Receiver<Watched>, inputs: &mpsc::Sender<Input>) -> anyhow::Result<()> {
    let mut listings = BTreeMap::new();
    while let Some((namespace, event)) = events.blocking_recv() {
        let Some(event) = event else {
            listings.remove(&namespace);
            continue;
        };
        let listing = listings.entry(Arc::clone(&namespace)).or_insert_with(|| Listing::new(&namespace, true));
        for event in listing.take(event) {
            inputs.blocking_send(input(&namespace, event)).context("the event loop has ended")?;
        }
    }
    Ok(())
}

/// No other source has the names of a tenant's plugins.
fn input(namespace: &Arc<str>, event: SourceEvent) -> Input {
    let (event, component) = match event {
        SourceEvent::Found { offer, origin } => {
            let found = (offer.digest.clone(), origin);
            (Event::PluginFound(offer), Some(found))
        }
        SourceEvent::Unreadable(unreadable) => (Event::PluginUnreadable(unreadable), None),
        SourceEvent::Gone(name) => {
            let source = format!("ConfigMap {name}").into();
            (Event::PluginGone { name, source }, None)
        }
        SourceEvent::Listed => (Event::TenantListed(Arc::clone(namespace)), None),
    };
    Input::Tenant(event.into(), component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_config_maps_that_change_all_the_time_are_read_at_a_pace_after_a_burst() {
        let began = Instant::now();
        let pace = Pace::new(began);
        for read in 1..=BURST {
            assert!(pace.add(began, 1).is_none_or(|at| at <= began), "the burst, with {read}");
        }
        for beyond in 1..=60 {
            assert_eq!(pace.add(began, 1), Some(began + beyond * EACH));
        }
        // A watch that begins anew has the same pace, and no new burst.
        let (again, later) = (pace.clone(), began + 60 * EACH);
        assert_eq!(again.add(later, 1), Some(later + EACH));
        let rested = later + (BURST + 1) * EACH;
        assert!(again.add(rested, MAX_PLUGINS).is_none_or(|at| at <= rested), "after a rest all are read at once");
    }
}
