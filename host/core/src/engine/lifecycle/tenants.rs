//! Tenants: the namespaces that a label selector selects. Their ConfigMaps with plugins are watched, each namespace by itself, so
//! that the host needs rights in these namespaces alone. What a tenant's plugin may be is in `tenant.rs` and
//! `manifest/tenant.rs`; here is which tenants there are, and how many plugins each may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use self::bytes::Bytes;
use super::Lifecycle;
use super::reviews::HOST_READER;
use super::sources::{Offered, tenant_of};
use super::timers::Timer;
use crate::engine::context::Context;
use crate::event::Effect;
use crate::kube_event::{EventRecord, Words};
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::observation::Observation;
use crate::plugin_object;
use crate::refusal::Refusal;
use crate::scope::{Scope, Slice};
use crate::selector::Selector;
use crate::store::Change;
use crate::tenant::{self, MAX_PLUGINS, TenantSource};

mod bytes;

/// The tenants of a host.
#[derive(Debug)]
pub(super) struct Tenants {
    /// None: there are none.
    selector: Option<Selector>,
    by_namespace: BTreeMap<Arc<str>, Tenant>,
    /// All namespaces were listed once.
    are_listed: bool,
}

#[derive(Debug, Default)]
struct Tenant {
    /// Its plugins were listed once.
    is_listed: bool,
    /// It has had more plugins than it may.
    has_more: bool,
    bytes: Bytes,
}

/// How long the list of a tenant's ConfigMaps may take before its plugins show that they are not known. The host may be denied it.
const UNLISTED_MS: u64 = 60_000;

fn kind() -> Kind {
    Kind::new("v1", "Namespace")
}

fn is_namespace(kind: &Kind) -> bool {
    &*kind.kind == "Namespace" && &*kind.api_version == "v1"
}

/// What a component's manifest is for a plugin of this name.
pub(super) fn manifest_of(plugin: &str, manifest: &Arc<Manifest>) -> Result<Arc<Manifest>, Refusal> {
    match tenant::of_plugin(plugin) {
        Some(namespace) => manifest.of_tenant(&namespace.into()).map(Arc::new),
        None => Ok(Arc::clone(manifest)),
    }
}

impl Tenants {
    pub fn new(selector: Option<Selector>) -> Self {
        Self { selector, by_namespace: BTreeMap::new(), are_listed: false }
    }

    pub fn has(&self, namespace: &str) -> bool {
        self.by_namespace.contains_key(namespace)
    }

    fn scope(&self) -> Option<Scope> {
        Some(Scope { labels: self.selector.clone()?, ..Scope::default() })
    }
}

impl Lifecycle {
    /// Watches the namespaces of tenants.
    pub(super) fn start_tenants(&mut self, cx: &mut Context<'_>) {
        if let Some(scope) = self.tenants.scope() {
            self.start_informer(&Arc::from(HOST_READER), &kind(), scope, cx);
        }
    }

    /// Whether all sources are known that may be a plugin's.
    pub(super) fn has_listed(&self, plugin: &str) -> bool {
        let Tenants { selector, by_namespace, are_listed } = &self.tenants;
        let of_tenant = tenant::of_plugin(plugin).filter(|_| selector.is_some());
        let is_listed = |namespace| by_namespace.get(namespace).map_or(*are_listed, |tenant| tenant.is_listed);
        self.sources_listed && of_tenant.is_none_or(is_listed)
    }

    pub(super) fn on_namespace_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let (Some(object), Some(selector)) = (change.object(), &self.tenants.selector) else { return };
        if !object.name.namespace.is_empty() {
            return self.on_tenant_change(change, cx);
        }
        // The host's own has its plugins, with other rights.
        if !is_namespace(&object.kind) || object.name.name == self.namespace {
            return;
        }
        let is_selected = change.after.as_ref().is_some_and(|after| selector.matches(&after.labels));
        let namespace = Arc::clone(&object.name.name);
        match (is_selected, self.tenants.by_namespace.contains_key(&namespace)) {
            (true, false) => {
                self.tenants.by_namespace.insert(Arc::clone(&namespace), Tenant::default());
                cx.effects.push(Effect::WatchTenant(Arc::clone(&namespace)));
                self.arm(UNLISTED_MS, Timer::Unlisted(namespace), cx);
            }
            (false, true) => {
                self.tenants.by_namespace.remove(&namespace);
                let sources = self.sources.of_tenant(&namespace);
                let gone: Vec<_> = sources.map(|(source, place)| (Arc::clone(source), Arc::clone(place))).collect();
                gone.iter().for_each(|(source, place)| self.on_source_gone(source, place, cx));
                cx.effects.push(Effect::StopTenant(namespace));
            }
            (true, true) | (false, false) => {}
        }
    }

    /// The namespaces may be listed.
    pub(super) fn on_namespaces_served(&mut self, slice: &Slice, cx: &mut Context<'_>) {
        let scope = self.tenants.scope().filter(|_| is_namespace(&slice.kind) && !self.tenants.are_listed);
        if scope.is_some_and(|scope| self.is_readable(&slice.kind, &scope, cx)) {
            self.tenants.are_listed = true;
            self.on_sources_known(cx);
        }
    }

    pub fn on_tenant_listed(&mut self, namespace: &Arc<str>, cx: &mut Context<'_>) {
        if let Some(tenant) = self.tenants.by_namespace.get_mut(namespace) {
            tenant.is_listed = true;
            let of_tenant = self.plugins.keys().filter(|name| tenant::of_plugin(name) == Some(&**namespace));
            self.resolve_all(of_tenant.cloned().collect(), cx);
            self.on_sources_known(cx);
        }
    }

    /// Those Plugins of a tenant that served before a restart say that their ConfigMaps cannot be read.
    pub(super) fn on_tenant_unlisted(&mut self, namespace: &Arc<str>, cx: &mut Context<'_>) {
        if self.tenants.by_namespace.get(namespace).is_none_or(|tenant| tenant.is_listed) {
            return;
        }
        let (snapshot, kind, any) = (cx.store.snapshot(), plugin_object::kind(), Selector::default());
        let all = snapshot.list(&kind, None, &any);
        let of_tenant = all.filter(|live| tenant::of_plugin(&live.name.name) == Some(&**namespace));
        for live in of_tenant.filter(|live| !self.is_of_another_host(live)).cloned().collect::<Vec<_>>() {
            let name = &live.name.name;
            if !self.sources.has(&tenant::source_of(name)) {
                let place = format!("ConfigMap {}", tenant::source_of(name)).into();
                let message = format!(
                    "the ConfigMaps of the namespace {namespace} could not be listed for a minute: the host's log says why. \
                     `mortise rbac FILE.wasm --tenant {namespace}` prints the Role that lets it"
                );
                self.take_unreadable(name, place, Refusal::new("SourceUnknown", message), None, cx);
            }
        }
        self.sync_dirty(cx);
    }

    /// Whether a source may be a plugin's: of a tenant, only within its bound.
    pub(super) fn takes(&mut self, source: &Arc<str>, offered: &Offered, cx: &mut Context<'_>) -> bool {
        let Some(namespace) = tenant::of_source(source) else { return true };
        let Some(tenant) = self.tenants.by_namespace.get_mut(namespace) else { return false };
        if self.sources.has(source) || self.sources.of_tenant(namespace).count() < MAX_PLUGINS {
            return true;
        }
        tenant.has_more = true;
        if let Some(of_tenant) = tenant_of(offered) {
            refuse(of_tenant, cx);
        }
        false
    }

    /// A source of a tenant is gone: those that were not taken are read again.
    pub(super) fn has_room(&mut self, source: &str, cx: &mut Context<'_>) {
        let Some(namespace) = tenant::of_source(source) else { return };
        let Some(tenant) = self.tenants.by_namespace.get_mut(namespace) else { return };
        if std::mem::take(&mut tenant.has_more) {
            cx.effects.push(Effect::WatchTenant(namespace.into()));
        }
    }
}

fn refuse(source: &TenantSource, cx: &mut Context<'_>) {
    let (plugin, refusal) = (tenant::plugin_of(&source.source()), source.too_many());
    if let Some(about) = source.object() {
        let (reason, note) = (refusal.reason.to_owned(), refusal.message.clone());
        let record = EventRecord { warning: true, reason, note, words: Words::Host };
        cx.say(&plugin, &Arc::new(about), record);
    }
    // Names of what is no plugin would be series of metrics without end.
    cx.observe(Observation::Refused { plugin: tenant::share(&plugin), refusal });
}
