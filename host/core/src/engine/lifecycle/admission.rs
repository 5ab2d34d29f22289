//! Admission: the backend changes in the step in which a version takes over, so there is always one.

use std::sync::Arc;

use super::Lifecycle;
use super::condition::{no, unknown, yes};
use super::plugin::Admission;
use crate::admission::AdmissionBackend;
use crate::contract::Condition;
use crate::digest::Digest;
use crate::engine::context::Context;
use crate::event::Effect;
use crate::refusal::Refusal;

/// The condition of plugins that have admission.
pub(super) const ADMITTING: &str = "Admitting";

impl Admission {
    pub fn condition(&self) -> Condition {
        match self {
            Self::Pending => unknown(ADMITTING, "AdmissionPending", "its webhooks are being written"),
            Self::Served => yes(ADMITTING, "Served", "the API server calls its webhooks"),
            Self::Failed(refusal) => no(ADMITTING, refusal.reason, refusal.message.clone()),
        }
    }
}

impl Lifecycle {
    /// A version has taken over.
    pub(super) fn serve_admission(&mut self, name: &Arc<str>, cx: &mut Context<'_>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(active) = &plugin.active else { return };
        if active.manifest.admission.is_empty() {
            if plugin.admission.take().is_some() {
                cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: None });
            }
            return;
        }
        let backend = AdmissionBackend {
            digest: active.version.digest.clone(),
            config: Arc::clone(&active.version.config),
            limits: active.version.grants.bound(active.manifest.limits),
            specs: active.admission_specs().collect(),
        };
        // Webhooks of the previous version now call this one, so Served stays true.
        plugin.admission.get_or_insert(Admission::Pending);
        cx.effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), backend: Some(Arc::new(backend)) });
    }

    pub fn on_admission_served(
        &mut self,
        name: &Arc<str>,
        digest: &Digest,
        result: Result<(), Refusal>,
        cx: &mut Context<'_>,
    ) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let is_served = plugin.active.as_ref().is_some_and(|active| active.version.digest == *digest);
        let Some(admission) = plugin.admission.as_mut().filter(|_| is_served) else { return };
        *admission = result.map_or_else(Admission::Failed, |()| Admission::Served);
        self.mark_dirty(name);
        self.sync_dirty(cx);
    }
}
