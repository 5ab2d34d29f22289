//! What the ServiceAccounts of plugins may read. It is asked for each kind of a version that comes up or serves, and again when
//! a role or a binding changes that may concern the ServiceAccount. A version serves once all is known, and sees what its
//! ServiceAccount may read and nothing else. A kind that it may read nowhere blocks it with a condition (R5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::asking::{AGAIN_MS, Asking};
use super::bindings::{self, Bindings, MAX_BOUND_NAMESPACES, is_rbac};
use super::plugin::{Plugin, Reviewed, Stage, Wanted};
use super::timers::Timer;
use crate::component::Version;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::event::Effect;
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::rights::{Readable, Review, Rights, within};
use crate::scope::Scope;
use crate::service_account::ServiceAccount;
use crate::store::Change;
use crate::tenant;
use crate::watch::WatchError;
use crate::write::WriteError;

/// The reader of the host's own informers.
pub(super) const HOST_READER: &str = "";

/// What a version declares of each kind.
fn declared(manifest: &Manifest) -> BTreeMap<Kind, Scope> {
    let mut declared = BTreeMap::<Kind, Scope>::new();
    for (kind, scope) in manifest.scopes() {
        match declared.get_mut(&kind) {
            Some(known) => *known = std::mem::take(known).union(&scope),
            None => _ = declared.insert(kind, scope),
        }
    }
    declared
}

impl Plugin {
    /// What has to be known, for all of its versions.
    fn wanted(&self) -> BTreeMap<(Arc<ServiceAccount>, Kind), Wanted> {
        let coming = self.candidate.as_ref().and_then(|it| match &it.stage {
            // Its definitions are served, so the API server knows the resources of its kinds.
            Stage::Listing { manifest } => Some((&it.version, manifest)),
            Stage::Compiling | Stage::Registering { .. } => None,
        });
        let serving = self.active.as_ref().map(|active| (&active.version, &active.manifest));
        let mut wanted = BTreeMap::<(Arc<ServiceAccount>, Kind), Wanted>::new();
        for (version, manifest) in serving.into_iter().chain(coming) {
            let Some(account) = &version.service_account else { continue };
            for (kind, scope) in declared(manifest) {
                let scope = version.namespaces.as_ref().map_or_else(
                    || scope.clone(),
                    |namespaces| {
                        // Objects without a namespace are asked about in any case.
                        without_none(within(&scope, namespaces))
                    },
                );
                match wanted.get_mut(&(Arc::clone(account), kind.clone())) {
                    Some(known) => known.scope = std::mem::take(&mut known.scope).union(&scope),
                    None => _ = wanted.insert((Arc::clone(account), kind), Wanted { scope, is_dynamic: false }),
                }
            }
        }
        if let Some(account) = serving.and_then(|(version, _)| version.service_account.as_ref()) {
            let dynamic = Wanted { scope: Scope::default(), is_dynamic: true };
            let named = self.dynamic_kinds.keys().map(|kind| ((Arc::clone(account), kind.clone()), dynamic.clone()));
            wanted.extend(named);
        }
        wanted
    }

    /// What a version may read; None while that is not known. Without a ServiceAccount it is not asked.
    pub(super) fn rights(&self, version: &Version, manifest: &Manifest) -> Option<Option<Arc<Rights>>> {
        let Some(account) = &version.service_account else { return Some(None) };
        let readable = |kind: Kind| {
            let known = self.reviews.get(&(Arc::clone(account), kind.clone()))?.readable.clone()?;
            Some((kind, known))
        };
        declared(manifest).into_keys().map(readable).collect::<Option<Rights>>().map(|rights| Some(Arc::new(rights)))
    }

    /// The first kind of the newest version that its ServiceAccount may read nowhere, or of which that is not known.
    pub(super) fn unreadable_kind(&self) -> Option<(Arc<ServiceAccount>, Kind, &Reviewed)> {
        let coming = self.candidate.as_ref().and_then(|it| Some((&it.version, it.stage.manifest()?)));
        let serving = self.active.as_ref().map(|active| (&active.version, &active.manifest));
        let (version, manifest) = coming.or(serving)?;
        let account = version.service_account.as_ref()?;
        declared(manifest).into_iter().find_map(|(kind, scope)| {
            let reviewed = self.reviews.get(&(Arc::clone(account), kind.clone()))?;
            let is_unreadable = match &reviewed.readable {
                Some(readable) => readable.narrow(&scope).is_none(),
                None => reviewed.asking.failed.is_some(),
            };
            is_unreadable.then(|| (Arc::clone(account), kind, reviewed))
        })
    }

    /// Why it does not see all that its ServiceAccount may read: RoleBindings name that in too many namespaces.
    pub(super) fn too_many_namespaces(&self) -> Option<String> {
        let is_cut = |reviewed: &Reviewed| {
            reviewed.has_more && !reviewed.wanted.is_dynamic && matches!(reviewed.readable, Some(Readable::In(_)))
        };
        let ((account, _), _) = self.reviews.iter().find(|(_, reviewed)| is_cut(reviewed))?;
        Some(format!(
            "RoleBindings name the ServiceAccount {account} in more than {MAX_BOUND_NAMESPACES} namespaces, of which the first \
             {MAX_BOUND_NAMESPACES} by name count, and the plugin sees nothing in the others: give it a ClusterRoleBinding, or \
             name its namespaces in spec.namespaces of the Plugin"
        ))
    }
}

impl Reviewed {
    /// Where to ask now: whether about all namespaces, and which by themselves. After a change in some namespaces it is about
    /// these, since what is known of the others stays. Where it may read everywhere, asking for all is three requests.
    fn next_places(
        &mut self,
        account: &ServiceAccount,
        bindings: &Bindings,
        now_ms: u64,
    ) -> (bool, BTreeSet<Arc<str>>) {
        let declared = &self.wanted.scope.namespaces;
        let (namespaces, has_more) =
            if declared.is_empty() { bindings.namespaces_of(account) } else { (declared.clone(), false) };
        self.has_more = has_more;
        let known = std::mem::replace(&mut self.namespaces, namespaces.clone());
        let is_due = now_ms >= self.all_sent_ms + AGAIN_MS;
        let changed = self.changed_in.as_ref().filter(|changed| !changed.is_empty() && !is_due);
        match (&self.readable, changed) {
            (Some(Readable::In(_)), Some(changed)) => {
                let is_asked = |namespace: &Arc<str>| changed.contains(namespace) || !known.contains(namespace);
                (false, namespaces.into_iter().filter(is_asked).collect())
            }
            _ => {
                self.all_sent_ms = now_ms;
                (true, namespaces)
            }
        }
    }

    /// The answer to a review of some namespaces, with what is known of the others that still count.
    fn merged(&self, answer: Readable, asked: &BTreeSet<Arc<str>>) -> Readable {
        match (answer, &self.readable) {
            (Readable::In(mut readable), Some(Readable::In(known))) => {
                let stays = |namespace: &&Arc<str>| self.namespaces.contains(*namespace) && !asked.contains(*namespace);
                readable.extend(known.iter().filter(stays).cloned());
                Readable::In(readable)
            }
            (answer, _) => answer,
        }
    }

    /// Somebody changes a role or a binding in a namespace, or for all of them.
    fn on_change(&mut self, place: Option<&Arc<str>>, now_ms: u64, is_paced: bool) {
        match (place, &mut self.changed_in) {
            (Some(place), Some(changed)) if changed.len() < MAX_BOUND_NAMESPACES => {
                _ = changed.insert(Arc::clone(place))
            }
            _ => self.changed_in = None,
        }
        self.asking.on_change(now_ms, is_paced);
    }
}

fn without_none(mut scope: Scope) -> Scope {
    scope.namespaces.retain(|namespace| !namespace.is_empty());
    scope
}

/// Whether a version sees some of each of these.
pub(super) fn sees_some(rights: Option<&Rights>, scopes: &[(Kind, Scope)]) -> bool {
    let sees = |rights: &Rights| {
        scopes.iter().all(|(kind, scope)| rights.get(kind).is_some_and(|readable| readable.narrow(scope).is_some()))
    };
    rights.is_none_or(sees)
}

impl Lifecycle {
    /// Asks what a plugin's versions need to know, and forgets what they do not.
    pub(super) fn sync_reviews(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let wanted = plugin.wanted();
        let before = plugin.reviews.len();
        plugin.reviews.retain(|place, _| wanted.contains_key(place));
        let has_forgotten = plugin.reviews.len() < before;
        let is_asked = |(place, wanted): (&(Arc<ServiceAccount>, Kind), &Wanted)| {
            plugin.reviews.get(place).is_some_and(|reviewed| reviewed.wanted == *wanted)
        };
        if !wanted.iter().all(is_asked) && self.knows_bindings(cx) {
            let Some(plugin) = self.plugins.get_mut(name) else { return };
            for (place, wanted) in wanted {
                let reviewed = plugin.reviews.entry(place).or_default();
                if !reviewed.asking.has_begun() || reviewed.wanted != wanted {
                    // An answer to less says nothing of the rest.
                    let asking = reviewed.asking.anew(cx.now.mono_ms);
                    *reviewed = Reviewed { wanted, asking, ..Reviewed::default() };
                }
            }
            self.run_reviews(name, cx);
        }
        if has_forgotten {
            self.apply_rights(name, cx);
        }
    }

    /// Sends the reviews that are due.
    pub(super) fn run_reviews(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        self.run_identities(name, cx);
        let Some(plugin) = self.plugins.get_mut(name).filter(|_| !cx.draining) else { return };
        let now_ms = cx.now.mono_ms;
        for ((account, kind), reviewed) in &mut plugin.reviews {
            if !reviewed.asking.begin(self.last_review + 1, now_ms) {
                continue;
            }
            self.last_review += 1;
            let had_more = reviewed.has_more;
            let (everywhere, namespaces) = reviewed.next_places(account, &self.bindings, now_ms);
            if reviewed.has_more != had_more {
                self.dirty.insert(Arc::clone(name));
            }
            cx.effects.push(Effect::Review(Box::new(Review {
                id: self.last_review,
                plugin: Arc::clone(name),
                account: Arc::clone(account),
                kind: kind.clone(),
                // A tenant's plugin reads its namespace alone, also where its ServiceAccount may read more.
                everywhere: everywhere && tenant::of_plugin(name).is_none(),
                namespaces,
                is_dynamic: reviewed.wanted.is_dynamic,
            })));
        }
        self.arm_reviews(name, cx);
    }

    /// A kind is served: where it was not, the API server could not say who may read it.
    pub(super) fn review_served(&mut self, name: &Arc<str>, kind: &Kind, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let mut is_due = false;
        for ((_, of), reviewed) in &mut plugin.reviews {
            is_due |= of == kind && reviewed.asking.retry(cx.now.mono_ms);
        }
        if is_due {
            self.run_reviews(name, cx);
        }
    }

    pub(super) fn arm_reviews(&mut self, name: &Arc<str>, cx: &Context<'_>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let reviews = plugin.reviews.values().map(|reviewed| &reviewed.asking);
        let asking = reviews.chain(plugin.identities.values().map(|identity| &identity.asking));
        if let Some(due_ms) = asking.filter_map(Asking::due_ms).min() {
            self.arm(due_ms.saturating_sub(cx.now.mono_ms), Timer::Review(Arc::clone(name)), cx);
        }
    }

    pub fn on_reviewed(&mut self, review: Review, result: Result<Readable, WriteError>, cx: &mut Context<'_>) {
        let Review { id, plugin: name, account, kind, namespaces, .. } = review;
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let Some(reviewed) = plugin.reviews.get_mut(&(account, kind)) else { return };
        if !reviewed.asking.ends(id) {
            return;
        }
        let now_ms = cx.now.mono_ms;
        match result {
            Ok(answer) => {
                let readable = reviewed.merged(answer, &namespaces);
                // Roles are often applied together with the Plugin, and the API server may not know them yet.
                let is_early = reviewed.readable.is_none() && readable != Readable::Everywhere;
                reviewed.readable = Some(readable);
                if reviewed.asking.answered(is_early, reviewed.all_sent_ms + AGAIN_MS, now_ms) {
                    reviewed.changed_in = Some(BTreeSet::new());
                }
            }
            Err(error) => {
                if reviewed.asking.failed(error, now_ms) && reviewed.readable.is_some() {
                    reviewed.readable = Some(Readable::In(BTreeSet::new()));
                }
                reviewed.changed_in = None;
            }
        }
        self.arm_reviews(&name, cx);
        self.advance(&name, cx);
        self.apply_rights(&name, cx);
        self.sync_dirty(cx);
    }

    /// The serving version sees more or less from now on.
    fn apply_rights(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let Some(active) = &plugin.active else { return };
        let Some(rights) = plugin.rights(&active.version, &active.manifest).filter(|rights| *rights != active.rights)
        else {
            return;
        };
        let version = Version { rights: rights.clone(), ..active.version.clone() };
        let manifest = Arc::clone(&active.manifest);
        if let Some(plugin) = self.plugins.get_mut(name) {
            // Every call is made again, and reports what is still so.
            plugin.denied.clear();
            plugin.fault = None;
            plugin.active.iter_mut().for_each(|active| active.rights.clone_from(&rights));
        }
        self.mark_dirty(name);
        cx.notify_reconciler(ToReconciler::Serve { plugin: Arc::clone(name), version, manifest });
    }

    /// Somebody changes a role or a binding.
    pub(super) fn on_rbac_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        self.on_acting_change(change, cx);
        let concerned = self.bindings.on_change(change);
        if concerned.is_empty() {
            return;
        }
        let (now_ms, place) = (cx.now.mono_ms, bindings::place(change));
        let by_tenant = self.is_of_tenant(place.as_ref());
        let mut changed = Vec::new();
        for (name, plugin) in &mut self.plugins {
            let is_paced = by_tenant || tenant::of_plugin(name).is_some();
            // The reviews of an account follow each other.
            let mut known = None;
            for ((account, _), reviewed) in &mut plugin.reviews {
                let is_wanted = place.as_ref().is_none_or(|place| reviewed.wanted.scope.has_namespace(place));
                if known.is_none_or(|(other, _)| other != account) {
                    known = Some((account, bindings::mean(&concerned, account)));
                }
                if is_wanted && known.is_some_and(|(_, is_concerned)| is_concerned) {
                    reviewed.on_change(place.as_ref(), now_ms, is_paced);
                    changed.push(Arc::clone(name));
                }
            }
        }
        changed.dedup();
        changed.iter().for_each(|name| self.arm_reviews(name, cx));
    }

    pub(super) fn is_of_tenant(&self, place: Option<&Arc<str>>) -> bool {
        place.is_some_and(|place| self.tenants.has(place))
    }

    /// Whether the bindings are listed, so that it is known where to ask. The first plugin with a ServiceAccount starts their
    /// watches. Without the right to read them the host asks about namespaces that manifests name, and does not notice changes.
    pub(super) fn knows_bindings(&mut self, cx: &mut Context<'_>) -> bool {
        let reader = Arc::from(HOST_READER);
        bindings::kinds().iter().filter(|kind| self.knows(kind, &reader, cx)).count() == bindings::kinds().len()
    }

    fn knows(&mut self, kind: &Kind, reader: &Arc<str>, cx: &mut Context<'_>) -> bool {
        if !self.informers.get(kind).is_some_and(|informer| informer.readers.contains_key(reader)) {
            self.start_informer(reader, kind, Scope::default(), cx);
        }
        let error = self.informers.get(kind).and_then(|informer| informer.error_in(&None));
        error.is_some_and(WatchError::is_denied_or_gone) || cx.store.has_listed(&kind.into(), None)
    }

    /// A list of roles or bindings is complete, or denied.
    pub(super) fn on_rbac_served(&mut self, kind: &Kind) {
        if is_rbac(kind) {
            let waits = |plugin: &Plugin| {
                plugin.wanted().len() != plugin.reviews.len() || plugin.accounts().len() != plugin.identities.len()
            };
            let waiting = self.plugins.iter().filter(|(_, plugin)| waits(plugin));
            let names: Vec<Arc<str>> = waiting.map(|(name, _)| Arc::clone(name)).collect();
            self.dirty.extend(names);
        }
    }
}
