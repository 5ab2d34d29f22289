//! What an administrator has to give a version before it serves: an identity, where one is required, and grants. What is taken
//! away counts at once, whatever the source offers meanwhile: a version that needs it stops. What a manifest asks for is
//! decided in `grants.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Lifecycle;
use crate::component::Version;
use crate::crd::CrdOwner;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::event::Effect;
use crate::grants::Names;
use crate::manifest::Manifest;
use crate::observation::Observation;
use crate::permission::printed_by;
use crate::plugin_object::Spec;
use crate::refusal::Refusal;
use crate::service_account::ServiceAccount;
use crate::tenant;

impl Lifecycle {
    /// Why the version that comes up may not serve.
    pub(super) fn lacks_rights(&self, name: &Arc<str>, manifest: &Manifest) -> Option<Refusal> {
        let candidate = self.plugins.get(name)?.candidate.as_ref()?;
        self.refusal_for_rights(name, &candidate.version, manifest, &candidate.foreign)
    }

    fn refusal_for_rights(
        &self,
        name: &Arc<str>,
        version: &Version,
        manifest: &Manifest,
        foreign: &Names,
    ) -> Option<Refusal> {
        let required = self.requires_service_account;
        let identity = (required && version.service_account.is_none()).then(|| self.no_service_account(name));
        identity.or_else(|| {
            let lacking = version.grants.lacking(manifest, required, foreign)?;
            Some(lacking.not_granted(name, version.service_account.as_deref(), &self.namespace))
        })
    }

    fn no_service_account(&self, name: &Arc<str>) -> Refusal {
        let account = ServiceAccount { namespace: Arc::clone(&self.namespace), name: Arc::clone(name) };
        let printed_by = printed_by(name, Some(&account), &self.namespace);
        let message = format!(
            "this host runs a plugin as a ServiceAccount of its own alone (--require-service-account), and the Plugin {name} names \
             none. This grants what the plugin asks for, and names it: {printed_by} | kubectl apply -f -"
        );
        Refusal::new("NoServiceAccount", message)
    }

    /// A Plugin object has changed. The version that serves has its grants from now on, or stops.
    pub(super) fn regrant(&mut self, name: &Arc<str>, spec: Option<&Spec>, cx: &mut Context<'_>) {
        let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) else { return };
        let grants = spec.map(|spec| Arc::clone(&spec.grants)).unwrap_or_default();
        let has_account = tenant::of_plugin(name).is_some() || spec.is_some_and(|spec| spec.service_account.is_some());
        let service_account = active.version.service_account.clone().filter(|_| has_account);
        let namespaces = match tenant::of_plugin(name) {
            Some(_) => active.version.namespaces.clone(),
            None => spec.and_then(|spec| spec.namespaces.clone()),
        };
        let granted = Version { grants, service_account, namespaces, ..active.version.clone() };
        if self.refusal_for_rights(name, &granted, &active.manifest, &active.foreign).is_some() {
            return self.stop(name, cx);
        }
        let Some(active) = self.plugins.get_mut(name).and_then(|plugin| plugin.active.as_mut()) else { return };
        if (&active.version.grants, &active.version.namespaces) == (&granted.grants, &granted.namespaces) {
            return;
        }
        (active.version.grants, active.version.namespaces) = (granted.grants, granted.namespaces);
        let version = Version { rights: active.rights.clone(), ..active.version.clone() };
        let manifest = Arc::clone(&active.manifest);
        cx.notify_reconciler(ToReconciler::Serve { plugin: Arc::clone(name), version, manifest });
        self.serve_admission(name, cx);
    }

    /// The version that serves acts as somebody whom the Plugin object names no more, and none comes up to replace it.
    pub(super) fn end_former_account(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        if self.has_former_account(name) {
            self.stop(name, cx);
        }
    }

    /// As above: the version that comes up may read nothing.
    pub(super) fn end_account_of_blind(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let coming = plugin.candidate.as_ref().and_then(|candidate| candidate.version.service_account.as_ref());
        let mut reviews = plugin.reviews.iter().filter(|((account, _), _)| Some(account) == coming);
        if reviews.all(|(_, reviewed)| reviewed.changed_in.as_ref().is_some_and(BTreeSet::is_empty)) {
            self.end_former_account(name, cx);
        }
    }

    /// A definition of the plugin was registered: whom it was made for may have changed while the plugin serves.
    pub(super) fn note_owner(&mut self, name: &Arc<str>, crd: &Arc<str>, owner: CrdOwner, cx: &mut Context<'_>) {
        let Some(active) = self.plugins.get_mut(name).and_then(|plugin| plugin.active.as_mut()) else { return };
        let is_changed = match owner {
            CrdOwner::Another => active.foreign.insert(Arc::clone(crd)),
            CrdOwner::Plugin => active.foreign.remove(crd),
        };
        if !is_changed {
            return;
        }
        let (version, manifest, foreign) =
            (active.version.clone(), Arc::clone(&active.manifest), active.foreign.clone());
        if self.refusal_for_rights(name, &version, &manifest, &foreign).is_none() {
            return self.serve_admission(name, cx);
        }
        self.stop(name, cx);
        // It is refused with the reason.
        self.load(name, cx);
    }

    /// A version that lacks rights from the start, as after a restart, may have webhooks from before.
    pub(super) fn end_ungranted_admission(&mut self, name: &Arc<str>, manifest: &Manifest, cx: &mut Context<'_>) {
        let serves = self.plugins.get(name).is_some_and(|plugin| plugin.active.is_some());
        if !serves && !manifest.admission.is_empty() {
            cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
        }
    }

    /// The version that serves ends. Its CRDs stay, and so does their conversion, without which their objects could not be read.
    pub(super) fn stop(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get(name) else { return };
        self.record_leftovers(name, plugin, cx);
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.active = None;
        (plugin.fault, plugin.throttled) = (None, None);
        plugin.denied.clear();
        let had_admission = plugin.admission.take().is_some();
        cx.observe(Observation::Withdrawn { plugin: Arc::clone(name) });
        cx.notify_reconciler(ToReconciler::Withdraw { plugin: Arc::clone(name) });
        if had_admission {
            cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
        }
        self.require(name, cx);
        self.mark_dirty(name);
    }
}
