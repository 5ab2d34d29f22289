//! The Lifecycle: a plugin from its offer to serving and away. It owns plugins and components, the owners of kinds, informers,
//! CustomResourceDefinitions, webhooks and Plugin objects. It knows nothing of keys and calls: the Reconciler is sent the
//! versions that serve, and sends back what keeps them from their work.
//!
//! Whatever changes a plugin marks it with [`Lifecycle::touch`]. At the end of each event and message, what a marked plugin
//! requires is brought in line, and its Plugin object is written where it differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::Context;
use super::message::{PluginWrite, ToLifecycle};
use crate::audit::Audits;
use crate::digest::Digest;
use crate::object::Kind;
use crate::plugin_object;
use crate::store::Change;

mod admission;
mod audits;
mod component;
mod condition;
mod conditions;
mod conversion;
mod crds;
mod faults;
mod health;
mod informers;
mod kind_owners;
mod leftovers;
mod names;
mod orphans;
mod other_hosts;
mod plugin;
mod plugin_status;
mod requirements;
mod rollout;
mod timers;

use component::Component;
use crds::{HostCrd, Registration};
use informers::Informer;
use kind_owners::KindOwners;
use orphans::Orphan;
use other_hosts::OtherHosts;
use plugin::Plugin;
use timers::{Timer, Timers};

/// The state of all plugins.
#[derive(Debug)]
pub(super) struct Lifecycle {
    /// Where the host looks for plugins: what tells it from the cluster's other hosts.
    namespace: Arc<str>,
    plugins: BTreeMap<Arc<str>, Plugin>,
    components: BTreeMap<Digest, Component>,
    kind_owners: KindOwners,
    other_hosts: OtherHosts,
    informers: BTreeMap<Kind, Informer>,
    audits: Audits,
    /// Which plugins bring the CRD of a kind.
    definitions: BTreeMap<Kind, BTreeSet<Arc<str>>>,
    /// CRDs whose registration is under way, by plugin and name.
    registrations: BTreeMap<(Arc<str>, Arc<str>), Registration>,
    host_crd: HostCrd,
    /// Plugin objects that are being deleted, since their plugins are gone.
    orphans: BTreeMap<Arc<str>, Orphan>,
    timers: Timers,
    sources_listed: bool,
    /// Plugins that have changed during this event or message.
    touched: BTreeSet<Arc<str>>,
}

impl Lifecycle {
    pub fn new(namespace: Arc<str>, audit_interval_ms: u64) -> Self {
        Self {
            namespace,
            plugins: BTreeMap::new(),
            components: BTreeMap::new(),
            kind_owners: KindOwners::default(),
            other_hosts: OtherHosts::default(),
            informers: BTreeMap::new(),
            audits: Audits::new(audit_interval_ms),
            definitions: BTreeMap::new(),
            registrations: BTreeMap::new(),
            host_crd: HostCrd::default(),
            orphans: BTreeMap::new(),
            timers: Timers::default(),
            sources_listed: false,
            touched: BTreeSet::new(),
        }
    }

    pub fn take(&mut self, message: ToLifecycle, cx: &mut Context<'_>) {
        match message {
            ToLifecycle::Denied { plugin, permission, message } => self.on_denied(plugin, permission, message),
            ToLifecycle::Permitted { plugin, permission } => self.on_permitted(plugin, &permission, cx),
            ToLifecycle::Faulted { plugin, message } => self.on_faulted(plugin, message),
            ToLifecycle::Recovered { plugin } => self.on_recovered(plugin, cx),
            ToLifecycle::Throttled { plugin, message } => self.on_throttled(plugin, message, cx),
            ToLifecycle::Wrote { write: PluginWrite::Object(name), op, result } => {
                self.on_object_wrote(&name, &op, result, cx);
            }
            ToLifecycle::Wrote { write: PluginWrite::Orphan(name), op, result } => {
                self.on_orphan_deleted(&name, &op, result, cx);
            }
            ToLifecycle::MayWrite => self.catch_up(cx),
            ToLifecycle::KindsReleased => self.retry_waiting(cx),
        }
        self.settle_touched(cx);
    }

    /// Whether the kind has an informer.
    pub fn watches(&self, kind: &Kind) -> bool {
        self.informers.contains_key(kind)
    }

    /// Whether the registration of a CRD is under way.
    pub fn is_registering(&self) -> bool {
        !self.registrations.is_empty()
    }

    /// The kinds that have one.
    pub fn watched(&self) -> impl Iterator<Item = &Kind> {
        self.informers.keys()
    }

    /// When something is due.
    pub fn next_due_ms(&self) -> Option<u64> {
        [self.timers.next_due_ms(), self.audits.next_due_ms()].into_iter().flatten().min()
    }

    pub fn run_timers(&mut self, cx: &mut Context<'_>) {
        while let Some(timer) = self.timers.take_due(cx.now.mono_ms) {
            match timer {
                Timer::RegisterCrd(plugin, crd) => self.register_crd(&plugin, &crd, cx),
                Timer::Status(plugin) => self.touch(&plugin),
                Timer::Throttled(plugin) => self.end_throttled(&plugin, cx),
                Timer::Orphan(name) => self.delete_orphan(&name, cx),
                Timer::Refused(plugin) => self.retry_refused(&plugin, cx),
            }
        }
        self.settle_touched(cx);
    }

    /// A Plugin object has changed: our own write has come, perhaps after its plugin has gone, or somebody else touched it.
    pub fn on_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let Some(object) = change.object().filter(|object| object.kind == plugin_object::kind()) else { return };
        let name = Arc::clone(&object.name.name);
        self.on_claims_changed(&name, change, cx);
        if self.plugins.contains_key(&name) {
            self.retry_name(&name, cx);
            self.touch(&name);
        } else {
            self.delete_orphan(&name, cx);
        }
        self.settle_touched(cx);
    }

    /// Sets a timer; of two moments for the same one the earlier counts.
    fn arm(&mut self, delay_ms: u64, timer: Timer, cx: &Context<'_>) {
        self.timers.arm(cx.now.mono_ms.saturating_add(delay_ms), timer);
    }

    /// Marks a plugin as changed.
    fn touch(&mut self, name: &Arc<str>) {
        self.touched.insert(Arc::clone(name));
    }

    /// Brings what each touched plugin requires in line with what it is now, and its Plugin object with that.
    fn settle_touched(&mut self, cx: &mut Context<'_>) {
        while let Some(name) = self.touched.pop_first() {
            self.require(&name, cx);
            self.settle_readiness(&name, cx);
            self.write_status(&name, cx);
        }
    }
}
