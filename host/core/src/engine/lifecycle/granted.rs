//! What an administrator has to give a version before it serves: an identity, where one is required, and grants. A version
//! whose rights are taken away stops. What a manifest asks for is decided in `grants.rs`.

use std::sync::Arc;

use super::Lifecycle;
use super::plugin::{Candidate, Stage};
use crate::component::Version;
use crate::engine::context::Context;
use crate::engine::message::ToReconciler;
use crate::event::Effect;
use crate::grants::Names;
use crate::manifest::Manifest;
use crate::refusal::Refusal;

impl Lifecycle {
    /// Why the version that comes up may not serve. `foreign` are those of its CRDs that were not made for it.
    pub(super) fn lacks_rights(&self, name: &Arc<str>, manifest: &Manifest, foreign: &Names) -> Option<Refusal> {
        let candidate = self.plugins.get(name)?.candidate.as_ref()?;
        self.refusal_for_rights(name, &candidate.version, manifest, foreign)
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
        identity.or_else(|| version.grants.refusal(name, manifest, required, foreign))
    }

    fn no_service_account(&self, name: &Arc<str>) -> Refusal {
        let message = format!(
            "this host runs a plugin as a ServiceAccount of its own alone (--require-service-account), and the Plugin {name} names \
             none. This grants what the plugin asks for, and names it: mortise rbac FILE.wasm --name {name} --service-account \
             {name} -n {} | kubectl apply -f -",
            self.namespace
        );
        Refusal::new("NoServiceAccount", message)
    }

    /// A version that was refused for its rights leaves the one before it serving (L1), unless that one lacks them too: what an
    /// administrator takes away counts at once. Its CRDs stay, and so does their conversion, without which their objects could
    /// not be read.
    pub(super) fn stop_unless_granted(&mut self, name: &Arc<str>, refused: &Candidate, cx: &mut Context<'_>) {
        let none = Names::new();
        let foreign = match &refused.stage {
            Stage::Registering { foreign, .. } => foreign,
            Stage::Compiling | Stage::Listing { .. } => &none,
        };
        let Some(active) = self.plugins.get(name).and_then(|plugin| plugin.active.as_ref()) else { return };
        if self.refusal_for_rights(name, &refused.version, &active.manifest, foreign).is_none() {
            return;
        }
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        plugin.active = None;
        let had_admission = plugin.admission.take().is_some();
        cx.notify_reconciler(ToReconciler::Withdraw { plugin: Arc::clone(name) });
        if had_admission {
            cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
        }
        self.require(name, cx);
    }
}
