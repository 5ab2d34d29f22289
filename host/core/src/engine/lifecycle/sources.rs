//! Which source each plugin has. A Plugin object may name one, with a digest and a configuration of its own; a source that
//! none names is the plugin of its own name. What sources offer and what Plugin objects want comes in; offers of plugins,
//! or why there are none, come out. It must not know how a version comes up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use crate::component::{Offer, Unreadable};
use crate::digest::Digest;
use crate::engine::context::{Context, remove_member};
use crate::engine::message::ToReconciler;
use crate::observation::Observation;
use crate::plugin_object::{self, SOURCE_NOT_FOUND, Spec};
use crate::refusal::Refusal;
use crate::service_account::ServiceAccount;
use crate::tenant::{self, TenantSource};

/// Of a DNS label.
const MAX_NAME_BYTES: usize = 63;

/// What a source has.
pub(super) type Offered = Result<Offer, Unreadable>;

#[derive(Debug, Default)]
pub(super) struct Sources {
    offered: BTreeMap<Arc<str>, Offered>,
    /// What Plugin objects want, of this host and of people.
    specs: BTreeMap<Arc<str>, Spec>,
    /// The plugins whose objects name a source.
    named: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The sources of plugins that belong to a host that lacks them, by plugin.
    lacking: BTreeMap<Arc<str>, Arc<str>>,
}

/// What a plugin has of its source.
enum Resolved {
    Offer(Offer),
    Unreadable(Arc<str>, Refusal, Option<Arc<TenantSource>>),
    /// It has another digest than may serve.
    Mismatch(Offer, Refusal),
    /// What its Plugin object wants of it cannot be read: its plugin ends.
    Closed(Arc<str>, Refusal, Option<Arc<TenantSource>>),
    /// It is no more, and its plugin ends; what somebody wants of that stays.
    Gone(Arc<str>, Refusal),
    /// Its source may still be listed.
    Unknown,
    NoPlugin,
}

fn place(offered: &Offered) -> &Arc<str> {
    match offered {
        Ok(offer) => &offer.source,
        Err(unreadable) => &unreadable.source,
    }
}

fn only_named(offered: &Offered) -> bool {
    match offered {
        Ok(offer) => offer.only_named,
        Err(unreadable) => unreadable.only_named,
    }
}

pub(super) fn tenant_of(offered: &Offered) -> Option<&Arc<TenantSource>> {
    match offered {
        Ok(offer) => offer.tenant.as_ref(),
        Err(unreadable) => unreadable.tenant.as_ref(),
    }
}

impl Sources {
    /// Replaces what a Plugin object wants. Returns the plugins that this may change.
    fn want(&mut self, name: &Arc<str>, spec: Option<Spec>) -> BTreeSet<Arc<str>> {
        let before = self.specs.remove(name);
        let mut affected = BTreeSet::from([Arc::clone(name)]);
        if let Some(before) = before.filter(|before| before.names_source) {
            remove_member(&mut self.named, &before.source, name);
            affected.insert(tenant::plugin_of(&before.source));
        }
        if let Some(spec) = spec {
            if spec.names_source {
                self.named.entry(Arc::clone(&spec.source)).or_default().insert(Arc::clone(name));
                affected.insert(tenant::plugin_of(&spec.source));
            }
            self.specs.insert(Arc::clone(name), spec);
        }
        affected
    }

    /// The sources of a tenant, with their places.
    pub fn of_tenant(&self, namespace: &str) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        let first: Arc<str> = format!("{namespace}/").into();
        let of_tenant = self.offered.range(Arc::clone(&first)..);
        of_tenant.take_while(move |(source, _)| source.starts_with(&*first)).map(|(source, it)| (source, place(it)))
    }

    /// Whether a source is known.
    pub fn has(&self, source: &str) -> bool {
        self.offered.contains_key(source)
    }

    /// Whether a source has this component.
    pub fn offers(&self, digest: &Digest) -> bool {
        self.offered.values().any(|offered| offered.as_ref().is_ok_and(|offer| offer.digest == *digest))
    }

    /// The plugins that a source is or may be the source of.
    fn plugins_of(&self, source: &Arc<str>) -> BTreeSet<Arc<str>> {
        self.named.get(source).into_iter().flatten().cloned().chain([tenant::plugin_of(source)]).collect()
    }

    fn resolve(&self, name: &Arc<str>, namespace: &Arc<str>, listed: bool) -> Resolved {
        let spec = self.specs.get(name);
        let own = tenant::source_of(name);
        let source = spec.map_or(&own, |spec| &spec.source);
        // One of the host's with a dot in its name is refused under that name.
        let source =
            if !self.has(source) && tenant::of_plugin(name).is_some() && self.has(name) { name } else { source };
        let is_named = spec.is_some_and(|spec| spec.names_source);
        let is_kept = is_named || spec.is_some_and(|spec| spec.is_written);
        if is_named && !is_plugin_name(name) {
            return invalid_name(name, source, namespace);
        }
        if let Some(why) = spec.and_then(|spec| spec.unreadable.as_ref()) {
            let tenant = self.offered.get(source).and_then(tenant_of).cloned();
            return Resolved::Closed(config_map(namespace, source), invalid_spec(name, why), tenant);
        }
        let is_free = |offered: &&Offered| !only_named(offered) && !self.named.contains_key(source);
        match self.offered.get(source).filter(|offered| is_named || is_free(offered)) {
            Some(Ok(offer)) => wanted(name, offer, spec, namespace),
            Some(Err(Unreadable { source, refusal, tenant, .. })) => {
                Resolved::Unreadable(Arc::clone(source), refusal.clone(), tenant.clone())
            }
            None if is_kept && !listed => Resolved::Unknown,
            None if is_named && tenant::of_source(source).is_none() => {
                let (place, refusal) = not_found(source, namespace);
                Resolved::Unreadable(place, refusal, None)
            }
            None if is_kept => {
                let (place, refusal) = not_found(source, namespace);
                Resolved::Gone(place, refusal)
            }
            None => Resolved::NoPlugin,
        }
    }
}

/// The offer of a source as a Plugin object wants it.
fn wanted(name: &Arc<str>, offer: &Offer, spec: Option<&Spec>, namespace: &Arc<str>) -> Resolved {
    let mut offer = Offer { name: Arc::clone(name), ..offer.clone() };
    if let Some(config) = spec.and_then(|spec| spec.config.as_ref()) {
        offer.config = Arc::clone(config);
    }
    offer.grants = spec.map(|spec| Arc::clone(&spec.grants)).unwrap_or_default();
    offer.namespaces = match &offer.tenant {
        Some(tenant) => Some(tenant.namespaces()),
        None => spec.and_then(|spec| spec.namespaces.clone()),
    };
    offer.service_account = account(offer.tenant.as_deref(), spec, namespace);
    match spec.and_then(|spec| spec.digest.as_ref()).filter(|pin| **pin != offer.digest) {
        Some(pin) => {
            let message = format!(
                "{} holds {}, and spec.digest of the Plugin {name} lets {pin} serve alone: change one of the two",
                offer.source, offer.digest
            );
            Resolved::Mismatch(offer, Refusal::new("DigestMismatch", message))
        }
        None => Resolved::Offer(offer),
    }
}

/// Whom a plugin acts as.
fn account(tenant: Option<&TenantSource>, spec: Option<&Spec>, namespace: &Arc<str>) -> Option<Arc<ServiceAccount>> {
    let named = spec.and_then(|spec| spec.service_account.as_ref());
    let of_host = |name: &Arc<str>| ServiceAccount { namespace: Arc::clone(namespace), name: Arc::clone(name) };
    tenant.map(|tenant| tenant.account(named)).or_else(|| named.map(of_host)).map(Arc::new)
}

/// Whether a Plugin object's name can be a plugin's: it is in labels and field managers. That of a tenant's has one dot.
fn is_plugin_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && name.matches('.').count() <= 1
}

fn invalid_spec(name: &str, why: &str) -> Refusal {
    let message = format!(
        "what is wanted of the Plugin {name} cannot be read, so nothing of it serves: {why}. `kubectl explain plugin.spec` says what \
         each field may be"
    );
    Refusal::new("InvalidSpec", message)
}

fn invalid_name(name: &Arc<str>, source: &Arc<str>, namespace: &str) -> Resolved {
    let message = format!(
        "a plugin's name has at most {MAX_NAME_BYTES} letters, digits and hyphens, and that of a tenant's plugin one dot, and \
         {name:?} has others or more: give the Plugin another name"
    );
    Resolved::Unreadable(config_map(namespace, source), Refusal::new("InvalidName", message), None)
}

fn not_found(source: &Arc<str>, namespace: &str) -> (Arc<str>, Refusal) {
    let place = config_map(namespace, source);
    let message = match tenant::of_source(source) {
        Some(tenant) => format!(
            "{place} is not there, or lacks the label mortise.dev/plugin=true, or the namespace {tenant} is no tenant \
             (--tenant-namespaces); a Plugin with a dot in its name is that of a tenant"
        ),
        None => format!(
            "{place} is not there, or lacks the label mortise.dev/plugin=source; make it, or let spec.source name another one"
        ),
    };
    (place, Refusal::new(SOURCE_NOT_FOUND, message))
}

fn config_map(namespace: &str, source: &str) -> Arc<str> {
    match tenant::of_source(source) {
        Some(_) => format!("ConfigMap {source}").into(),
        None => format!("ConfigMap {namespace}/{source}").into(),
    }
}

impl Lifecycle {
    pub fn on_source_found(&mut self, offer: Offer, cx: &mut Context<'_>) {
        let source = Arc::clone(&offer.name);
        if let Some(Ok(first)) = self.sources.offered.get(&source) {
            if first.source != offer.source {
                let message =
                    format!("{} offers a plugin named {source:?}, but {} came first", offer.source, first.source);
                let refusal = Refusal::new("NameTaken", message);
                return cx.observe(Observation::Refused { plugin: source, refusal });
            }
            if *first == offer {
                return; // A relist, or a change of something else.
            }
        }
        self.offered(&source, Ok(offer), cx);
    }

    pub fn on_source_unreadable(&mut self, unreadable: Unreadable, cx: &mut Context<'_>) {
        let source = Arc::clone(&unreadable.name);
        if let Some(Ok(offer)) = self.sources.offered.get(&source)
            && offer.source != unreadable.source
        {
            return;
        }
        self.offered(&source, Err(unreadable), cx);
    }

    fn offered(&mut self, source: &Arc<str>, offered: Offered, cx: &mut Context<'_>) {
        if !self.takes(source, &offered, cx) {
            return offered.iter().for_each(|offer| self.unload(&offer.digest, cx));
        }
        let before = self.sources.offered.insert(Arc::clone(source), offered);
        let is_new = before.is_none();
        self.resolve_instead(source, before, cx);
        if is_new {
            let lacking = self.sources.lacking.iter().filter(|(_, lacked)| *lacked == source);
            for name in lacking.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
                self.on_wanted(&name, cx);
            }
        }
    }

    /// Resolves the plugins of a source. What it offered before is forgotten if no plugin took it.
    fn resolve_instead(&mut self, source: &Arc<str>, before: Option<Offered>, cx: &mut Context<'_>) {
        let untaken = before.and_then(Result::ok).filter(|offer| !self.is_required(&offer.digest));
        self.resolve_all(self.sources.plugins_of(source), cx);
        untaken.iter().for_each(|offer| self.unload(&offer.digest, cx));
    }

    /// Whether a source of this host has the name, readable or not.
    pub(super) fn has_source(&self, name: &str) -> bool {
        self.sources.has(name)
    }

    pub fn on_source_gone(&mut self, source: &Arc<str>, at: &Arc<str>, cx: &mut Context<'_>) {
        if self.sources.offered.get(source).map(place) == Some(at) {
            let gone = self.sources.offered.remove(source);
            self.resolve_instead(source, gone, cx);
            self.has_room(source, cx);
        }
    }

    /// Whether a plugin acts as somebody else than its Plugin object says.
    pub(super) fn has_former_account(&self, name: &Arc<str>) -> bool {
        let Some(plugin) = self.plugins.get(name) else { return false };
        let is_known = tenant::of_plugin(name).is_none() || plugin.tenant.is_some();
        let named = || account(plugin.tenant.as_deref(), self.sources.specs.get(name), &self.namespace);
        is_known && plugin.active.as_ref().is_some_and(|active| active.version.service_account != named())
    }

    /// A Plugin object has changed.
    pub(super) fn on_wanted(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let target = plugin_object::of(name);
        let snapshot = cx.store.snapshot();
        let live = snapshot.get(&target.kind, &target.name);
        let anothers = live.filter(|live| self.is_of_another_host(live));
        let lacks = anothers.filter(|live| plugin_object::claim(live).is_some_and(|claim| claim.lacks_source));
        match lacks.map(|live| plugin_object::spec(live).source) {
            Some(source) => _ = self.sources.lacking.insert(Arc::clone(name), source),
            None => _ = self.sources.lacking.remove(name),
        }
        let spec = live.filter(|_| anothers.is_none()).map(|live| plugin_object::spec(live));
        if self.sources.specs.get(name) != spec.as_ref() {
            if spec.as_ref().is_none_or(|spec| spec.unreadable.is_none()) {
                self.regrant(name, spec.as_ref(), cx);
            }
            let affected = self.sources.want(name, spec);
            self.resolve_all(affected, cx);
        }
    }

    /// Plugins whose sources are not there, now that all are listed.
    pub(super) fn resolve_named(&mut self, cx: &mut Context<'_>) {
        let named = self.sources.named.values().flatten().cloned().collect();
        self.resolve_all(named, cx);
    }

    pub(super) fn resolve_all(&mut self, names: BTreeSet<Arc<str>>, cx: &mut Context<'_>) {
        let resolve = |name| (self.sources.resolve(&name, &self.namespace, self.has_listed(&name)), name);
        let mut all: Vec<(Resolved, Arc<str>)> = names.into_iter().map(resolve).collect();
        // A plugin that is removed leaves its kinds to the one that names its source.
        all.sort_by_key(|(resolved, _)| !matches!(resolved, Resolved::NoPlugin));
        for (resolved, name) in all {
            match resolved {
                Resolved::Offer(offer) => self.take_offer(&name, offer, cx),
                Resolved::Unreadable(source, refusal, tenant) => {
                    self.take_unreadable(&name, source, refusal, tenant, cx);
                }
                Resolved::Gone(source, refusal) => self.close(&name, source, refusal, None, cx),
                Resolved::Closed(source, refusal, tenant) => self.close(&name, source, refusal, tenant, cx),
                Resolved::Mismatch(offer, refusal) => self.refuse_mismatch(&name, offer, refusal, cx),
                Resolved::Unknown => {
                    self.plugins.entry(Arc::clone(&name)).or_default();
                    self.mark_dirty(&name);
                }
                Resolved::NoPlugin => self.remove(&name, cx),
            }
            self.suspend(&name, cx);
        }
        self.sync_dirty(cx);
    }

    /// Another component is there than is pinned. What serves continues if it is the pinned one, and ends else.
    fn refuse_mismatch(&mut self, name: &Arc<str>, offer: Offer, refusal: Refusal, cx: &mut Context<'_>) {
        let (source, tenant) = (Arc::clone(&offer.source), offer.tenant.clone());
        let pin = self.sources.specs.get(name).and_then(|spec| spec.digest.clone());
        let plugin = self.plugins.entry(Arc::clone(name)).or_default();
        plugin.read = Some(offer);
        let serves_another = plugin.active.as_ref().is_some_and(|active| Some(&active.version.digest) != pin.as_ref());
        if serves_another {
            self.close(name, source, refusal, tenant, cx);
        } else {
            self.take_unreadable(name, source, refusal, tenant, cx);
        }
    }

    /// What serves of a plugin ends, and nothing comes up.
    fn close(
        &mut self,
        name: &Arc<str>,
        source: Arc<str>,
        refusal: Refusal,
        tenant: Option<Arc<TenantSource>>,
        cx: &mut Context<'_>,
    ) {
        if self.plugins.get(name).is_some_and(|plugin| plugin.active.is_some()) {
            self.stop(name, cx);
        }
        self.take_unreadable(name, source, refusal, tenant, cx);
    }

    fn suspend(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let suspended = self.sources.specs.get(name).is_some_and(|spec| spec.suspend);
        let Some(plugin) = self.plugins.get_mut(name).filter(|plugin| plugin.suspended != suspended) else { return };
        plugin.suspended = suspended;
        if plugin.active.is_some() {
            cx.notify_reconciler(ToReconciler::Suspend { plugin: Arc::clone(name), suspended });
        }
        self.mark_dirty(name);
    }
}
