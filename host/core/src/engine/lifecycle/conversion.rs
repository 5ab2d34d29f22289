//! Conversion between the versions of a plugin's kinds. Their CRD is registered only with its webhook: without, the API
//! server would drop the fields that the other version does not have. The backend changes in the step in which a
//! version begins to be registered, and changes back when that version is refused.

use std::sync::Arc;

use super::Lifecycle;
use super::condition::{no, unknown, yes};
use super::plugin::{Conversion, Converting, Plugin};
use crate::contract::Condition;
use crate::conversion::ConversionBackend;
use crate::digest::Digest;
use crate::engine::context::Context;
use crate::event::Effect;
use crate::refusal::Refusal;
use crate::webhook::Endpoint;

/// The condition of plugins that convert.
const CONVERTING: &str = "Converting";

impl Converting {
    pub fn condition(&self) -> Condition {
        match &self.state {
            Conversion::Pending => {
                let text = "its CRDs are registered when the host serves their conversion webhook";
                unknown(CONVERTING, "ConversionPending", text)
            }
            Conversion::Served(_) => yes(CONVERTING, "Served", "the API server calls its conversion webhook"),
            Conversion::Failed(refusal) => no(CONVERTING, refusal.reason, refusal.message.clone()),
        }
    }
}

impl Lifecycle {
    /// Updates the backend after a change of the version that is registered.
    pub(super) fn serve_conversion(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some((manifest, version)) = plugin.registered() else { return };
        let (manifest, version) = (Arc::clone(manifest), version.clone());
        if manifest.conversion.is_empty() {
            // Until this version serves, the previous one converts.
            if plugin.candidate.is_none() && plugin.conversion.take().is_some() {
                cx.effects.push(Effect::ServeConversion { plugin: Arc::clone(name), backend: None });
            }
            return;
        }
        if plugin.conversion.as_ref().is_some_and(|converting| converting.version == version) {
            return;
        }
        let backend = ConversionBackend {
            digest: version.digest.clone(),
            config: Arc::clone(&version.config),
            limits: version.grants.bound(manifest.limits),
            specs: manifest.conversion.as_slice().into(),
        };
        // The endpoint is the same for all versions.
        let state = plugin.conversion.take().map_or(Conversion::Pending, |before| before.state);
        plugin.conversion = Some(Converting { version, state });
        cx.effects.push(Effect::ServeConversion { plugin: Arc::clone(name), backend: Some(Arc::new(backend)) });
    }

    pub fn on_conversion_served(
        &mut self,
        name: &Arc<str>,
        digest: &Digest,
        result: Result<Endpoint, Refusal>,
        cx: &mut Context<'_>,
    ) {
        let converting = self.plugins.get_mut(name).and_then(|plugin| plugin.conversion.as_mut());
        let Some(converting) = converting.filter(|converting| converting.version.digest == *digest) else { return };
        let state = result.map_or_else(Conversion::Failed, |endpoint| Conversion::Served(Arc::new(endpoint)));
        if converting.state == state {
            return;
        }
        let is_served = matches!(state, Conversion::Served(_));
        converting.state = state;
        let registered = self.plugins.get(name).and_then(Plugin::registered).filter(|_| is_served);
        let crds = registered.map(|(manifest, _)| manifest.conversion.clone()).unwrap_or_default();
        for spec in crds {
            self.register_crd(name, &spec.crd, cx);
        }
        self.mark_dirty(name);
        self.sync_dirty(cx);
    }
}
