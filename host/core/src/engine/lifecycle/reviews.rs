//! What the ServiceAccounts of plugins may read. It is asked for each kind of a version that comes up or serves, and again when
//! a role or a binding changes that may concern the ServiceAccount. A version serves once all is known, and sees what its
//! ServiceAccount may read and nothing else. A kind that it may read nowhere blocks it with a condition (R5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Lifecycle;
use super::bindings::{self, is_rbac};
use super::plugin::{Plugin, Reviewed, Stage};
use super::timers::Timer;
use crate::component::Version;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::event::Effect;
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::rights::{Readable, Review, Rights};
use crate::scope::Scope;
use crate::service_account::ServiceAccount;
use crate::store::Change;
use crate::watch::WatchError;
use crate::write::WriteError;

/// Between a change of a role or a binding and the next review: the API server learns of it by a watch too, and a tool that
/// applies roles changes several at once.
const CHANGED_MS: u64 = 1_000;
/// Between two reviews when one has failed.
const FAILED_MS: u64 = 5_000;
/// Between two reviews without a change: of what other authorizers than RBAC say, no watch tells.
const AGAIN_MS: u64 = 60 * 60_000;

/// The reader of the host's own informers.
const HOST_READER: &str = "";

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
    /// What has to be known, and what is declared of it.
    fn reviewed(&self) -> BTreeMap<(Arc<ServiceAccount>, Kind), Scope> {
        let coming = self.candidate.as_ref().and_then(|it| match &it.stage {
            // Its definitions are served, so the API server knows the resources of its kinds.
            Stage::Listing { manifest } => Some((&it.version, manifest)),
            Stage::Compiling | Stage::Registering { .. } => None,
        });
        let serving = self.active.as_ref().map(|active| (&active.version, &active.manifest));
        let mut reviewed = BTreeMap::new();
        for (version, manifest) in serving.into_iter().chain(coming) {
            let Some(account) = &version.service_account else { continue };
            reviewed.extend(declared(manifest).into_iter().map(|(kind, scope)| ((Arc::clone(account), kind), scope)));
        }
        if let Some(account) = serving.and_then(|(version, _)| version.service_account.as_ref()) {
            let named = self.dynamic_kinds.keys().map(|kind| ((Arc::clone(account), kind.clone()), Scope::default()));
            reviewed.extend(named);
        }
        reviewed
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
        let newest = self.candidate.as_ref().map(|it| &it.version).or(self.active.as_ref().map(|it| &it.version))?;
        let account = newest.service_account.as_ref()?;
        let declared = self.reviewed().into_iter().filter(|((of, _), _)| of == account);
        let mut all = declared.filter_map(|(place, scope)| Some((self.reviews.get(&place)?, place, scope)));
        let (reviewed, (account, kind), _) = all.find(|(reviewed, _, scope)| match &reviewed.readable {
            Some(readable) => readable.narrow(scope).is_none(),
            None => reviewed.failed.is_some(),
        })?;
        Some((account, kind, reviewed))
    }
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
        let needed = plugin.reviewed();
        plugin.reviews.retain(|place, _| needed.contains_key(place));
        if needed.len() == plugin.reviews.len() || !self.knows_bindings(cx) {
            return;
        }
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        for (place, scope) in needed {
            let reviewed = plugin.reviews.entry(place.clone()).or_default();
            if reviewed.readable.is_none() && !reviewed.in_flight && reviewed.failed.is_none() {
                ask(name, place, &scope, reviewed, &self.bindings, cx);
            }
        }
    }

    /// Asks again about all that a plugin's versions read.
    pub(super) fn review_again(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name).filter(|_| !cx.draining) else { return };
        for (place, scope) in plugin.reviewed() {
            let Some(reviewed) = plugin.reviews.get_mut(&place) else { continue };
            if reviewed.in_flight {
                reviewed.is_stale = true;
            } else {
                ask(name, place, &scope, reviewed, &self.bindings, cx);
            }
        }
    }

    pub fn on_reviewed(&mut self, review: Review, result: Result<Readable, WriteError>, cx: &mut Context<'_>) {
        let Review { plugin: name, account, kind, .. } = review;
        let Some(plugin) = self.plugins.get_mut(&name) else { return };
        let Some(reviewed) = plugin.reviews.get_mut(&(account, kind)) else { return };
        reviewed.in_flight = false;
        let delay_ms = match result {
            Ok(readable) => {
                (reviewed.readable, reviewed.failed) = (Some(readable), None);
                if std::mem::take(&mut reviewed.is_stale) { CHANGED_MS } else { AGAIN_MS }
            }
            Err(error) => {
                reviewed.failed = Some(error.message);
                FAILED_MS
            }
        };
        self.arm(delay_ms, Timer::Review(Arc::clone(&name)), cx);
        self.advance(&name, cx);
        self.apply_rights(&name, cx);
        self.sync_dirty(cx);
    }

    /// The serving version sees more or less from now on. Answers that were asked for together count together.
    fn apply_rights(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let is_known = |plugin: &&Plugin| !plugin.reviews.values().any(|reviewed| reviewed.in_flight);
        let Some(plugin) = self.plugins.get(name).filter(is_known) else { return };
        let Some(active) = &plugin.active else { return };
        let Some(rights) = plugin.rights(&active.version, &active.manifest).filter(|rights| *rights != active.rights)
        else {
            return;
        };
        let version = Version { rights: rights.clone(), ..active.version.clone() };
        let manifest = Arc::clone(&active.manifest);
        if let Some(active) = self.plugins.get_mut(name).and_then(|plugin| plugin.active.as_mut()) {
            active.rights = rights;
        }
        cx.notify_reconciler(ToReconciler::Serve { plugin: Arc::clone(name), version, manifest });
    }

    /// Somebody changes a role or a binding.
    pub(super) fn on_rbac_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let concerned = self.bindings.on_change(change);
        if concerned.is_empty() || !self.knows_bindings(cx) {
            return;
        }
        let is_concerned = |plugin: &Plugin| {
            let accounts: BTreeSet<_> = plugin.reviews.keys().map(|(account, _)| account).collect();
            accounts.into_iter().any(|account| concerned.iter().any(|subject| subject.has(account)))
        };
        let stale: Vec<Arc<str>> =
            self.plugins.iter().filter(|(_, plugin)| is_concerned(plugin)).map(|(name, _)| Arc::clone(name)).collect();
        for name in stale {
            self.arm(CHANGED_MS, Timer::Review(name), cx);
        }
    }

    /// Whether the bindings are listed, so that it is known where to ask. The first plugin with a ServiceAccount starts their
    /// watches. Without the right to read them the host asks about namespaces that manifests name, and does not notice changes.
    fn knows_bindings(&mut self, cx: &mut Context<'_>) -> bool {
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
            let waits = |plugin: &Plugin| plugin.reviews.is_empty() && !plugin.reviewed().is_empty();
            let waiting = self.plugins.iter().filter(|(_, plugin)| waits(plugin));
            let names: Vec<Arc<str>> = waiting.map(|(name, _)| Arc::clone(name)).collect();
            self.dirty.extend(names);
        }
    }
}

fn ask(
    plugin: &Arc<str>,
    (account, kind): (Arc<ServiceAccount>, Kind),
    declared: &Scope,
    reviewed: &mut Reviewed,
    bindings: &bindings::Bindings,
    cx: &mut Context<'_>,
) {
    (reviewed.in_flight, reviewed.is_stale) = (true, false);
    let namespaces = match declared.namespaces.is_empty() {
        true => bindings.namespaces_of(&account),
        false => declared.namespaces.clone(),
    };
    cx.effects.push(Effect::Review(Box::new(Review { plugin: Arc::clone(plugin), account, kind, namespaces })));
}
