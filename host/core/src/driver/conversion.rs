//! A definition whose objects a plugin converts is registered when the host can answer for it, and not before: without its
//! webhook the API server would convert by leaving out what the other version does not know. Who answers changes in the step
//! in which a version begins to be registered, and goes back when it is refused.

use std::sync::Arc;

use super::Driver;
use super::plugins::PluginState;
use super::report::{no, plugin_object_of, unknown, yes};
use crate::contract::Condition;
use crate::conversion::ConversionBackend;
use crate::digest::Digest;
use crate::event::Effect;
use crate::kube_event::EventRecord;
use crate::manifest::Manifest;
use crate::observation::Observation;
use crate::refusal::Refusal;
use crate::webhook::Endpoint;

/// The condition of plugins that convert.
const CONVERTING: &str = "Converting";

/// Who converts for a plugin, and how far that is.
#[derive(Debug)]
pub(super) struct Converting {
    /// The version that answers.
    digest: Digest,
    config: Arc<str>,
    state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// The server, or its certificate, is on its way.
    Pending,
    /// The host answers, and this is how it is found.
    Served(Arc<Endpoint>),
    /// It does not.
    Troubled(Refusal),
}

impl Converting {
    /// The condition that tells of it.
    pub fn condition(&self) -> Condition {
        match &self.state {
            State::Pending => {
                let text = "its definitions are registered when the host answers for their versions";
                unknown(CONVERTING, "ConversionPending", text)
            }
            State::Served(_) => yes(CONVERTING, "Served", "the API server has it convert between versions"),
            State::Troubled(refusal) => no(CONVERTING, refusal.reason, refusal.message.clone()),
        }
    }
}

impl PluginState {
    /// The version whose definitions stand in the cluster, or are about to: the one on its way, else the one that serves.
    fn registered(&self) -> Option<(&Arc<Manifest>, &Digest, &Arc<str>)> {
        let coming = self.candidate.as_ref().and_then(|it| Some((it.stage.manifest()?, &it.digest, &it.config)));
        coming.or(self.active.as_ref().map(|it| (&it.manifest, &it.digest, &it.config)))
    }

    /// How the API server finds whoever converts, once the host answers.
    pub fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        match &self.conversion.as_ref()?.state {
            State::Served(endpoint) => Some(endpoint),
            State::Pending | State::Troubled(_) => None,
        }
    }

    /// Whether a definition is registered by `registered` with this plugin as its webhook.
    pub fn converts(&self, crd: &str) -> bool {
        self.registered().is_some_and(|(manifest, ..)| manifest.conversion.iter().any(|spec| *spec.crd == *crd))
    }
}

impl Driver {
    /// Another version begins to be registered, or does so no longer.
    pub(super) fn serve_conversion(&mut self, name: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some((manifest, digest, config)) = plugin.registered() else { return };
        let (manifest, digest, config) = (Arc::clone(manifest), digest.clone(), Arc::clone(config));
        if manifest.conversion.is_empty() {
            // Until it serves, the version before may have to answer.
            if plugin.candidate.is_none() && plugin.conversion.take().is_some() {
                effects.push(Effect::ServeConversion { plugin: Arc::clone(name), serving: None });
            }
            return;
        }
        if plugin.conversion.as_ref().is_some_and(|it| it.digest == digest && it.config == config) {
            return;
        }
        let serving = ConversionBackend {
            digest: digest.clone(),
            config: Arc::clone(&config),
            limits: manifest.limits,
            specs: manifest.conversion.as_slice().into(),
        };
        // Where the host is does not change with who answers.
        let state = plugin.conversion.take().map_or(State::Pending, |before| before.state);
        plugin.conversion = Some(Converting { digest, config, state });
        effects.push(Effect::ServeConversion { plugin: Arc::clone(name), serving: Some(Arc::new(serving)) });
    }

    pub(super) fn on_conversion_served(
        &mut self,
        name: &Arc<str>,
        digest: &Digest,
        result: Result<Endpoint, Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(plugin) = self.plugins.get_mut(name) else { return };
        let Some(converting) = plugin.conversion.as_mut().filter(|converting| converting.digest == *digest) else {
            return;
        };
        let found = result.map_or_else(State::Troubled, |endpoint| State::Served(Arc::new(endpoint)));
        if converting.state == found {
            return;
        }
        converting.state = found;
        if plugin.endpoint().is_some() {
            let crds = plugin.registered().map(|(manifest, ..)| manifest.conversion.clone()).unwrap_or_default();
            for spec in crds {
                self.register_crd(name, &spec.crd, effects);
            }
        }
        self.report(name, effects);
    }

    /// L3: definitions stay when their plugin goes, and with them objects that nobody can convert once this host has ended.
    pub(super) fn tell_of_conversion(&mut self, name: &Arc<str>, plugin: &PluginState, effects: &mut Vec<Effect>) {
        if plugin.conversion.is_none() {
            return;
        }
        let crds = plugin.registered().map(|(manifest, ..)| manifest.conversion.as_slice()).unwrap_or_default();
        let crds: Vec<String> =
            crds.iter().map(|spec| format!("{} ({})", spec.crd, spec.versions.join(", "))).collect();
        let message = format!(
            "the plugin {name:?} is gone, and the API server still has it convert {}: this host goes on until it ends, and \
             from then on objects can be read and written in the version alone that they are stored in. Offer the plugin \
             again, or delete the definitions when nobody needs their objects",
            crds.join(", ")
        );
        let target = plugin_object_of(name);
        if let Some(about) = self.store.snapshot().get(&target.kind, &target.name).cloned() {
            let record = EventRecord { warning: true, reason: "ConversionLeft".to_owned(), note: message.clone() };
            self.send_event(None, &about, record, effects);
        }
        effects.push(Effect::Observe(Observation::ConversionLeft { plugin: Arc::clone(name), message }));
    }
}
