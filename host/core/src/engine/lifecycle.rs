//! The Lifecycle brings plugins up and removes them. It owns plugins and components, the owners of kinds, informers,
//! CustomResourceDefinitions, webhooks and Plugin objects. It does not know keys or calls: it sends the Reconciler the
//! serving versions, and receives their denied permissions and faults.
//!
//! A change of a plugin calls [`Lifecycle::mark_dirty`]. After each event and message, [`Lifecycle::sync_dirty`]
//! updates what dirty plugins require, and writes their Plugin objects if they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config::Config;
use super::context::Context;
use super::message::{PluginWrite, ToLifecycle};
use crate::audit::Audits;
use crate::digest::Digest;
use crate::object::Kind;
use crate::plugin_object;
use crate::scope::Slice;
use crate::store::Change;

mod admission;
mod asking;
mod attempts;
mod audits;
mod bindings;
mod claims;
mod component;
mod condition;
mod conditions;
mod conversion;
mod costliest;
mod crds;
mod dynamic_kinds;
mod faults;
mod granted;
mod health;
mod identities;
mod informer;
mod informers;
mod kind_owners;
mod kind_ownership;
mod leftovers;
mod names;
mod orphans;
mod other_hosts;
mod plugin;
mod plugin_status;
mod requirements;
mod restores;
mod reviews;
mod rollout;
mod sources;
mod tenants;
mod timers;

use attempts::{Attempts, Place};
use bindings::{Bindings, is_rbac};
use claims::Claims;
use component::Component;
use crds::{HostCrd, Registration};
use informer::Informer;
use kind_owners::KindOwners;
use orphans::Orphan;
use other_hosts::ShownKinds;
use plugin::Plugin;
use restores::Restores;
use sources::Sources;
use tenants::Tenants;
use timers::{Timer, Timers};

#[derive(Debug)]
pub(super) struct Lifecycle {
    /// The namespace of its plugins, which distinguishes this host from the cluster's other hosts.
    namespace: Arc<str>,
    /// Plugins may send HTTP requests.
    allows_http: bool,
    /// A plugin serves only as a ServiceAccount that its Plugin object names.
    requires_service_account: bool,
    sources: Sources,
    /// Whom the cluster's roles concern.
    bindings: Bindings,
    last_review: u64,
    plugins: BTreeMap<Arc<str>, Plugin>,
    components: BTreeMap<Digest, Component>,
    kind_owners: KindOwners,
    claims: Claims,
    /// What other hosts' Plugin objects show.
    other_hosts: ShownKinds,
    /// What those of this host show. It counts until a plugin is up again after a restart.
    this_host: ShownKinds,
    informers: BTreeMap<Kind, Informer>,
    audits: Audits,
    /// Which plugins bring the CRD of a kind.
    definitions: BTreeMap<Kind, BTreeSet<Arc<str>>>,
    /// CRD registrations in flight, by plugin and name.
    registrations: BTreeMap<Place, Registration>,
    /// Those that failed.
    attempts: Attempts,
    host_crd: HostCrd,
    /// Plugin objects that are being deleted because their plugins are gone.
    orphans: BTreeMap<Arc<str>, Orphan>,
    restores: Restores,
    timers: Timers,
    sources_listed: bool,
    tenants: Tenants,
    /// Plugins that have changed during this event or message.
    dirty: BTreeSet<Arc<str>>,
}

impl Lifecycle {
    pub fn new(config: &Config) -> Self {
        Self {
            namespace: Arc::clone(&config.namespace),
            allows_http: config.http_requests_per_minute.is_some(),
            requires_service_account: config.require_service_account,
            sources: Sources::default(),
            bindings: Bindings::default(),
            last_review: 0,
            plugins: BTreeMap::new(),
            components: BTreeMap::new(),
            kind_owners: KindOwners::default(),
            claims: Claims::default(),
            other_hosts: ShownKinds::default(),
            this_host: ShownKinds::default(),
            informers: BTreeMap::new(),
            audits: Audits::new(config.audit_interval_ms),
            definitions: BTreeMap::new(),
            registrations: BTreeMap::new(),
            attempts: Attempts::default(),
            host_crd: HostCrd::default(),
            orphans: BTreeMap::new(),
            restores: Restores::default(),
            timers: Timers::default(),
            sources_listed: false,
            tenants: Tenants::new(config.tenants.clone()),
            dirty: BTreeSet::new(),
        }
    }

    pub fn take(&mut self, message: ToLifecycle, cx: &mut Context<'_>) {
        match message {
            ToLifecycle::Denied { plugin, permission, message } => {
                self.on_denied(plugin, permission, message, cx);
            }
            ToLifecycle::Permitted { plugin, permission } => self.on_permitted(plugin, &permission, cx),
            ToLifecycle::Faulted { plugin, message } => self.on_faulted(plugin, message),
            ToLifecycle::Recovered { plugin } => self.on_recovered(plugin, cx),
            ToLifecycle::NotGranted { plugin, message } => self.on_not_granted(plugin, message, cx),
            ToLifecycle::Throttled { plugin, message } => self.on_throttled(plugin, message, cx),
            ToLifecycle::Costliest { plugin, bytes } => self.on_costliest(plugin, bytes, cx),
            ToLifecycle::Wrote { write: PluginWrite::Object(name), op, result } => {
                self.on_object_wrote(&name, &op, result, cx);
            }
            ToLifecycle::Wrote { write: PluginWrite::Orphan(name), op, result } => {
                self.on_orphan_deleted(&name, &op, result, cx);
            }
            ToLifecycle::MayWrite => self.catch_up(cx),
            ToLifecycle::KindsReleased => self.retry_waiting(cx),
            ToLifecycle::Named { plugin, kind } => self.on_kind_named(&plugin, kind, cx),
            ToLifecycle::Released { plugin, kind } => self.on_kind_released(&plugin, &kind, cx),
        }
        self.sync_dirty(cx);
    }

    /// Whether a watch shows this slice.
    pub fn watches(&self, slice: &Slice) -> bool {
        self.informers.get(&slice.kind).is_some_and(|informer| informer.shows(slice))
    }

    /// The kinds that have an informer.
    pub fn watched(&self) -> impl Iterator<Item = &Kind> {
        self.informers.keys()
    }

    pub fn is_registering(&self) -> bool {
        !self.registrations.is_empty()
    }

    /// When the next timer or audit is due.
    pub fn next_due_ms(&self) -> Option<u64> {
        [self.timers.next_due_ms(), self.audits.next_due_ms()].into_iter().flatten().min()
    }

    pub fn run_timers(&mut self, cx: &mut Context<'_>) {
        while let Some(timer) = self.timers.take_due(cx.now.mono_ms) {
            match timer {
                Timer::RegisterCrd(plugin, crd) => self.register_crd(&plugin, &crd, cx),
                Timer::Status(plugin) => self.mark_dirty(&plugin),
                Timer::Throttled(plugin) => self.end_throttled(&plugin, cx),
                Timer::Costly(plugin) => self.on_costly_due(&plugin, cx),
                Timer::Orphan(name) => self.delete_orphan(&name, cx),
                Timer::Refused(plugin) => self.retry_refused(&plugin, cx),
                Timer::Review(plugin) => self.run_reviews(&plugin, cx),
                Timer::Restored => self.on_restore_due(cx),
                Timer::Unlisted(namespace) => self.on_tenant_unlisted(&namespace, cx),
                Timer::DynamicKinds(plugin) => {
                    self.drop_released_kinds(&plugin, cx);
                    self.begin_named_kinds(&plugin, cx);
                }
            }
        }
        self.sync_dirty(cx);
    }

    /// Handles changes of Plugin objects, by this host or others, and of roles and their bindings.
    pub fn on_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        if change.object().is_some_and(|object| is_rbac(&object.kind)) {
            self.on_tenant_change(change, cx);
            return self.on_rbac_change(change, cx);
        }
        self.on_namespace_change(change, cx);
        let Some(object) = change.object().filter(|object| object.kind == plugin_object::kind()) else { return };
        let name = Arc::clone(&object.name.name);
        let lacks_source = !self.has_source(&plugin_object::spec(object).source);
        self.claims.follow(change, &self.namespace, lacks_source, cx.now.mono_ms);
        self.on_owned_kinds_changed(&name, change, cx);
        self.on_wanted(&name, cx);
        if self.plugins.contains_key(&name) {
            self.retry_name(&name, cx);
            self.mark_dirty(&name);
        } else {
            self.delete_orphan(&name, cx);
        }
        self.sync_dirty(cx);
    }

    /// Sets a timer. If it is set already, the earlier time counts.
    fn arm(&mut self, delay_ms: u64, timer: Timer, cx: &Context<'_>) {
        self.timers.arm(cx.now.mono_ms.saturating_add(delay_ms), timer);
    }

    fn mark_dirty(&mut self, name: &Arc<str>) {
        self.dirty.insert(Arc::clone(name));
    }

    fn sync_dirty(&mut self, cx: &mut Context<'_>) {
        while let Some(name) = self.dirty.pop_first() {
            self.require(&name, cx);
            self.sync_identities(&name, cx);
            self.sync_reviews(&name, cx);
            self.sync_readiness(&name, cx);
            self.sync_dynamic_kinds(&name, cx);
            self.write_status(&name, cx);
            self.plugins.get_mut(&name).map(|plugin| plugin.health.take());
        }
    }
}

#[cfg(test)]
mod tests;
