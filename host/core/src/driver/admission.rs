//! A plugin's version that serves is also the one that the API server's questions go to: who answers changes in the step in
//! which a version takes over, so there is no moment in which nobody does. How it came out is part of the plugin's report.

use std::sync::Arc;

use super::Driver;
use super::report::{no, unknown, yes};
use crate::admission::AdmissionBackend;
use crate::contract::Condition;
use crate::digest::Digest;
use crate::event::Effect;
use crate::refusal::Refusal;

/// The condition of plugins that have admission.
pub(super) const ADMITTING: &str = "Admitting";

/// How far it is that the API server asks a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Admitting {
    /// Its webhooks are being written.
    Pending,
    /// The API server asks.
    Served,
    /// It does not, or not as this version wants.
    Troubled(Refusal),
}

impl Admitting {
    /// The condition that tells of it.
    pub fn condition(&self) -> Condition {
        match self {
            Self::Pending => unknown(ADMITTING, "AdmissionPending", "its webhooks are being written"),
            Self::Served => yes(ADMITTING, "Served", "the API server asks it before it stores objects"),
            Self::Troubled(refusal) => no(ADMITTING, refusal.reason, refusal.message.clone()),
        }
    }
}

impl Driver {
    /// A version has taken over.
    pub(super) fn serve_admission(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(active) = &plugin.active else { return };
        if active.manifest.admission.is_empty() {
            if plugin.admission.take().is_some() {
                effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), serving: None });
            }
            return;
        }
        let serving = AdmissionBackend {
            digest: active.digest.clone(),
            config: Arc::clone(&active.config),
            limits: active.manifest.limits,
            specs: active.manifest.admission.as_slice().into(),
        };
        // The webhooks of the version before ask this one until they are changed, so that it is asked stays true.
        plugin.admission.get_or_insert(Admitting::Pending);
        effects.push(Effect::ServeAdmission { plugin: Arc::clone(name), serving: Some(Arc::new(serving)) });
    }

    pub(super) fn on_admission_served(
        &mut self,
        name: &Arc<str>,
        digest: &Digest,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let is_served = plugin.active.as_ref().is_some_and(|active| active.digest == *digest);
        let Some(admitting) = plugin.admission.as_mut().filter(|_| is_served) else { return };
        let found = result.map_or_else(Admitting::Troubled, |()| Admitting::Served);
        if *admitting != found {
            *admitting = found;
            self.report(name, effects);
        }
    }
}
