//! The sources of tenants: a watch of labelled ConfigMaps for each namespace that the engine names. They have a reading thread of
//! their own, and each tenant has turns: however often somebody changes ConfigMaps, others' are read. It must not know which
//! namespaces are tenants.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;

use anyhow::Context;
use mortise_core::event::Event;
use mortise_core::object::Kind;
use mortise_core::watch::WatchEvent;
use mortise_kube::client::ApiServer;
use mortise_kube::watch::{self, Objects};
use mortise_source::SourceEvent;
use mortise_source::configmap::TENANT_SELECTOR;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::listing::Listing;
use super::turns::{Pace, Turns};
use crate::input::Input;
use crate::inputs::Inputs;
use crate::supervise::Supervisor;
use crate::tenancy::Tenancy;

/// ConfigMaps between the watches and the reader, of up to 1.4 MB of JSON each. The watches wait while there are as many.
const WAITING: usize = 4;
/// ConfigMaps of one page of a list, which is in memory while the watch waits: six MB at most, and not the 64 MiB that a response
/// may have. A list of sixteen, all that a tenant may have, is four requests, and streaming lists have no pages.
const PAGE: usize = 4;
/// A tenant's watch has this to say; None: it has ended.
type Watched = (Tenancy, Option<WatchEvent>);

/// The watches of tenants' ConfigMaps.
pub(crate) struct TenantSources {
    api: ApiServer,
    supervisor: Supervisor,
    sink: mpsc::Sender<Watched>,
    watches: BTreeMap<Arc<str>, TenantWatch>,
}

struct TenantWatch {
    tenancy: Tenancy,
    task: AbortHandle,
    pace: Pace,
}

impl TenantSources {
    /// Starts the reader.
    pub(crate) fn start(api: &ApiServer, inputs: &Inputs, supervisor: &Supervisor) -> anyhow::Result<Self> {
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
            page_objects: Some(PAGE),
        };
        let (sink, events) = mpsc::channel(1);
        let watch = watch::run(self.api.clone(), objects, sink, |event| event);
        let (tenancy, pace) = match self.watches.get(&namespace) {
            Some(earlier) => (earlier.tenancy.clone(), earlier.pace.clone()),
            None => (Tenancy::new(Arc::clone(&namespace)), Pace::new(Instant::now())),
        };
        let paced = send_on(events, pace.clone(), tenancy.clone(), self.sink.clone());
        let task = self.supervisor.task(format!("the watch of the plugins of {namespace}"), async {
            tokio::join!(watch, paced);
            Ok(())
        });
        if let Some(earlier) = self.watches.insert(namespace, TenantWatch { tenancy, task, pace }) {
            earlier.task.abort();
        }
    }

    /// The event loop takes nothing more of this tenant, also nothing that was read before.
    pub(crate) fn stop(&mut self, namespace: &Arc<str>) {
        let Some(watch) = self.watches.remove(namespace) else { return };
        watch.tenancy.end();
        watch.task.abort();
        let (sink, ended) = (self.sink.clone(), (watch.tenancy, None));
        self.supervisor.spawn("the end of a tenant", async move {
            // An error means that the reader has ended.
            let _ = sink.send(ended).await;
        });
    }
}

/// Sends a tenant's events on, no faster than its pace.
async fn send_on(mut events: mpsc::Receiver<WatchEvent>, pace: Pace, tenancy: Tenancy, sink: mpsc::Sender<Watched>) {
    let mut turns = Turns::default();
    loop {
        let work = turns.work();
        let turn = async {
            let Some(work) = work else { return pending().await };
            if let Some(later) = pace.due(Instant::now(), work) {
                sleep_until(later).await;
            }
            (sink.reserve().await, work)
        };
        let sent = tokio::select! {
            event = events.recv(), if !turns.are_full() => {
                let Some(event) = event else { return };
                let Some((event, work)) = turns.take(event) else { continue };
                pace.add(Instant::now(), work);
                sink.send((tenancy.clone(), Some(event))).await.is_ok()
            }
            (place, work) = turn => {
                pace.add(Instant::now(), work);
                place.map(|place| place.send((tenancy.clone(), turns.next()))).is_ok()
            }
        };
        if !sent {
            return;
        }
    }
}

fn read_all(mut events: mpsc::Receiver<Watched>, inputs: &Inputs) -> anyhow::Result<()> {
    let mut listings = Listings::default();
    while let Some((tenancy, event)) = events.blocking_recv() {
        for event in listings.take(&tenancy, event) {
            inputs.blocking_send(input(&tenancy, event)).context("the event loop has ended")?;
        }
    }
    Ok(())
}

/// What the watches of tenants have shown, by namespace.
#[derive(Debug, Default)]
struct Listings(BTreeMap<Arc<str>, (Tenancy, Listing)>);

impl Listings {
    /// Of a tenant that has ended nothing comes out and nothing is kept.
    fn take(&mut self, tenancy: &Tenancy, event: Option<WatchEvent>) -> Vec<SourceEvent> {
        let namespace = &tenancy.namespace;
        let is_known = self.0.get(namespace).is_some_and(|(known, _)| known.is(tenancy));
        let Some(event) = event.filter(|_| !tenancy.has_ended()) else {
            if is_known {
                self.0.remove(namespace);
            }
            return Vec::new();
        };
        let new = || (tenancy.clone(), Listing::new(namespace, true));
        let known = self.0.entry(Arc::clone(namespace)).or_insert_with(new);
        if !is_known {
            *known = new();
        }
        known.1.take(event)
    }
}

/// No other source has the names of a tenant's plugins.
fn input(tenancy: &Tenancy, event: SourceEvent) -> Input {
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
        SourceEvent::Listed => (Event::TenantListed(Arc::clone(&tenancy.namespace)), None),
    };
    Input::Tenant(tenancy.clone(), event.into(), component)
}

#[cfg(test)]
mod tests {
    use mortise_core::object::ResourceVersion;
    use tokio::time::timeout;

    use super::*;
    use crate::sources::listing::tests::{config_map, words};
    use crate::supervise::supervisor;
    use crate::testing::{DEADLINE, api_server};

    #[test]
    fn g11_what_queues_hold_of_a_namespace_that_lost_its_label_is_not_of_the_tenant_that_it_is_again() {
        let (earlier, later) = (Tenancy::new("ns".into()), Tenancy::new("ns".into()));
        let mut listings = Listings::default();
        let mut take = |tenancy: &Tenancy, event| words(listings.take(tenancy, event));
        let nothing: [&str; 0] = [];
        assert_eq!(take(&earlier, Some(WatchEvent::Listing)), nothing);
        assert_eq!(take(&earlier, Some(WatchEvent::Listed(vec![*config_map("podset")]))), ["found ns/podset"]);
        earlier.end();
        assert_eq!(take(&earlier, Some(WatchEvent::Applied(config_map("deleted")))), nothing);
        assert_eq!(take(&later, Some(WatchEvent::Listing)), nothing);
        assert_eq!(take(&earlier, Some(WatchEvent::ListDone(ResourceVersion(1)))), nothing);
        assert_eq!(take(&later, Some(WatchEvent::Listed(vec![*config_map("crontab")]))), ["found ns/crontab"]);
        assert_eq!(take(&earlier, None), nothing, "its end comes late");
        assert_eq!(take(&later, Some(WatchEvent::ListDone(ResourceVersion(2)))), ["listed"]);
        assert_eq!(take(&later, Some(WatchEvent::Listing)), nothing);
        assert_eq!(take(&later, Some(WatchEvent::ListDone(ResourceVersion(3)))), ["gone ns/crontab", "listed"]);
        later.end();
        assert_eq!(take(&later, None), nothing);
        assert!(listings.0.is_empty(), "{listings:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn g11_a_watch_that_begins_anew_is_of_the_same_tenant_and_one_after_its_end_is_not() {
        let ((supervisor, _failures), namespace) = (supervisor(), Arc::<str>::from("team-a"));
        let (sink, mut events) = mpsc::channel(WAITING);
        let api = api_server("127.0.0.1:1").await;
        let mut sources = TenantSources { api, supervisor, sink, watches: BTreeMap::new() };
        let watch = |sources: &mut TenantSources| {
            sources.watch(Arc::clone(&namespace));
            sources.watches[&namespace].tenancy.clone()
        };
        let (first, again) = (watch(&mut sources), watch(&mut sources));
        assert!(first.is(&again) && !first.has_ended());
        sources.stop(&namespace);
        let next = watch(&mut sources);
        assert!(first.has_ended() && !next.has_ended() && !next.is(&first));
        let ended = async {
            loop {
                let (tenancy, event) = events.recv().await.expect("the sources hold the sender");
                if event.is_none() {
                    return tenancy;
                }
            }
        };
        assert!(timeout(DEADLINE, ended).await.expect("the reader gets the end").is(&first));
    }
}
