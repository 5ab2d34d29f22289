//! Whether the host may act as the ServiceAccounts of plugins. The API server says so, before a version has anything of the
//! cluster and again when a role or a binding changes that may let somebody act: a plugin is shown what its ServiceAccount may
//! read, so those who bring one would read with rights that nobody lent to the host. Until the answer is yes, and from when it is
//! no, or has not come for minutes, the plugin has no definition, no informer and no call.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Lifecycle;
use super::asking::{AGAIN_MS, UNANSWERED_MS};
use super::bindings;
use super::conditions::REVIEW_FAILED;
use super::plugin::{Plugin, Refused, RefusedBy};
use crate::component::Version;
use crate::engine::context::Context;
use crate::event::Effect;
use crate::manifest::Manifest;
use crate::permission::acting_text;
use crate::refusal::Refusal;
use crate::rights::IdentityReview;
use crate::service_account::ServiceAccount;
use crate::store::Change;
use crate::tenant;
use crate::write::WriteError;

impl Plugin {
    /// Whom its offered and its serving version act as.
    pub(super) fn accounts(&self) -> BTreeSet<Arc<ServiceAccount>> {
        let offered = self.offer.as_ref().and_then(|offer| offer.service_account.as_ref());
        let serving = self.active.as_ref().and_then(|active| active.version.service_account.as_ref());
        offered.into_iter().chain(serving).cloned().collect()
    }

    /// One of these of which it is not known whether the host may act as it, with the reason.
    pub(super) fn unknown_identity(&self) -> Option<(&Arc<ServiceAccount>, &WriteError)> {
        let is_unknown = self.identities.iter().find(|(_, identity)| identity.may_act.is_none());
        is_unknown.and_then(|(account, identity)| Some((account, identity.asking.failed.as_ref()?)))
    }

    /// Whether the host may send the requests of a version; None while that is not known. Without a ServiceAccount they
    /// are its own.
    fn may_act(&self, version: &Version) -> Option<bool> {
        let Some(account) = &version.service_account else { return Some(true) };
        self.identities.get(account)?.may_act
    }
}

impl Lifecycle {
    /// Asks about those as whom a plugin's versions act, and forgets the others. Once roles and bindings are listed, so
    /// that no change after the review is missed.
    pub(super) fn sync_identities(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let accounts = plugin.accounts();
        plugin.identities.retain(|account, _| accounts.contains(account));
        if plugin.identities.len() == accounts.len() || !self.knows_bindings(cx) {
            return;
        }
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        for account in accounts {
            let identity = plugin.identities.entry(account).or_default();
            if !identity.asking.has_begun() {
                identity.asking = identity.asking.anew(cx.now.mono_ms);
            }
        }
        self.run_reviews(name, cx);
    }

    /// Sends those reviews that are due.
    pub(super) fn run_identities(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name).filter(|_| !cx.draining) else { return };
        for (account, identity) in &mut plugin.identities {
            if identity.asking.begin(self.last_review + 1, cx.now.mono_ms) {
                self.last_review += 1;
                let (id, plugin, account) = (self.last_review, Arc::clone(name), Arc::clone(account));
                cx.effects.push(Effect::ReviewIdentity(IdentityReview { id, plugin, account }));
            }
        }
    }

    pub fn on_identity_reviewed(
        &mut self,
        review: IdentityReview,
        result: Result<bool, WriteError>,
        cx: &mut Context<'_>,
    ) {
        let IdentityReview { id, plugin: name, account } = review;
        let identity = self.plugins.get_mut(&name).and_then(|plugin| plugin.identities.get_mut(&account));
        let Some(identity) = identity else { return };
        if !identity.asking.ends(id) {
            return;
        }
        let now_ms = cx.now.mono_ms;
        match result {
            Ok(may_act) => {
                // Roles are often applied together with the Plugin, and the API server may not know them yet.
                let is_early = identity.may_act.is_none() && !may_act;
                identity.may_act = Some(may_act);
                identity.asking.answered(is_early, now_ms + AGAIN_MS, now_ms);
                match may_act {
                    true => self.begin_acting(&name, cx),
                    false => self.end_acting(&name, &account, self.may_not_act(&name, &account), cx),
                }
            }
            Err(error) => {
                let refusal = unanswered(&account, &error);
                if identity.asking.failed(error, now_ms) && identity.may_act.take_if(|may_act| *may_act).is_some() {
                    self.end_acting(&name, &account, refusal, cx);
                }
            }
        }
        self.arm_reviews(&name, cx);
        self.mark_dirty(&name);
        self.sync_dirty(cx);
    }

    fn begin_acting(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let is_refused = |plugin: &Plugin| matches!(plugin.refused, Some(Refused { by: RefusedBy::Identity, .. }));
        match self.plugins.get(name).is_some_and(is_refused) {
            true => self.load(name, cx),
            false => self.advance(name, cx),
        }
    }

    /// What acts as the ServiceAccount ends, and what comes up is refused.
    fn end_acting(&mut self, name: &Arc<str>, account: &Arc<ServiceAccount>, why: Refusal, cx: &mut Context<'_>) {
        let acts = |version: &Version| version.service_account.as_ref() == Some(account);
        let Some(plugin) = self.plugins.get(name) else { return };
        let serves = plugin.active.as_ref().is_some_and(|active| acts(&active.version));
        let was_refused = plugin.refused.as_ref().is_some_and(|refused| refused.by == RefusedBy::Identity);
        let comes_up =
            plugin.candidate.as_ref().map(|candidate| (acts(&candidate.version), candidate.stage.manifest()));
        let is_refused = match comes_up {
            Some((acts, manifest)) => acts && manifest.is_some(),
            None => (serves || was_refused) && plugin.offer.as_ref().is_some_and(|offer| acts(&offer.version())),
        };
        if serves {
            self.stop(name, cx);
        }
        match is_refused {
            true => self.refuse(name, RefusedBy::Identity, why, cx),
            // One that is compiled is refused there.
            false => self.advance(name, cx),
        }
    }

    /// Whether the host may act as the version that comes up: if not, that is refused; if it is not known, that waits.
    pub(super) fn acts(&mut self, name: &Arc<str>, manifest: &Manifest, cx: &mut Context<'_>) -> bool {
        let Some(plugin) = self.plugins.get_mut(name) else { return false };
        let Some(version) = plugin.candidate.as_ref().map(|candidate| candidate.version.clone()) else { return false };
        let may_act = plugin.may_act(&version);
        let account = version.service_account.filter(|_| may_act != Some(true));
        if let Some(candidate) = &mut plugin.candidate {
            let waits = |account| {
                format!("the API server has not said whether the host may act as the ServiceAccount {account}")
            };
            candidate.waits_for = account.as_ref().map(waits);
        }
        if let Some(account) = account.as_ref().filter(|_| may_act == Some(false)) {
            self.end_ungranted_admission(name, manifest, cx);
            self.refuse(name, RefusedBy::Identity, self.may_not_act(name, account), cx);
        }
        account.is_none()
    }

    fn may_not_act(&self, name: &Arc<str>, account: &ServiceAccount) -> Refusal {
        let add = acting_text(account, &self.printed_by(name, Some(account)));
        let message = format!(
            "the host may not act as the ServiceAccount {account}, so the plugin is not called and nothing is read for it; {add}"
        );
        Refusal::new("Forbidden", message)
    }

    /// Somebody changes a role or a binding, which may let the host act as somebody, or not any more. Whom it concerns is not
    /// looked at: the host does not know as which user and groups the API server knows it.
    pub(super) fn on_acting_change(&mut self, change: &Change, cx: &mut Context<'_>) {
        let place = bindings::place(change);
        let is_there = |account: &ServiceAccount| place.as_ref().is_none_or(|place| *place == account.namespace);
        // Most roles are of namespaces where no plugin acts as somebody, and are not parsed.
        if !self.plugins.values().flat_map(|plugin| plugin.identities.keys()).any(|account| is_there(account)) {
            return;
        }
        let acting = bindings::acting_change(change, &cx.store.snapshot());
        if acting.is_nobody() {
            return;
        }
        let by_tenant = self.is_of_tenant(place.as_ref());
        let mut changed = Vec::new();
        for (name, plugin) in &mut self.plugins {
            let is_paced = by_tenant || tenant::of_plugin(name).is_some();
            for (account, identity) in &mut plugin.identities {
                if is_there(account) && acting.has(&account.name) {
                    identity.asking.on_change(cx.now.mono_ms, is_paced);
                    changed.push(Arc::clone(name));
                }
            }
        }
        changed.iter().for_each(|name| self.arm_reviews(name, cx));
    }

    /// A request of a plugin was refused since the host may not act as its ServiceAccount: it is asked again at once.
    pub(super) fn on_acting_denied(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let is_paced = tenant::of_plugin(name).is_some();
        plugin.identities.values_mut().for_each(|identity| identity.asking.on_change(cx.now.mono_ms, is_paced));
        self.arm_reviews(name, cx);
    }
}

fn unanswered(account: &ServiceAccount, error: &WriteError) -> Refusal {
    let minutes = UNANSWERED_MS / 60_000;
    let message = format!(
        "for {minutes} minutes the API server has not said whether the host may act as the ServiceAccount {account}, so the plugin is \
         not called and nothing is read for it until it does: {}",
        error.message
    );
    Refusal::new(REVIEW_FAILED, message)
}
