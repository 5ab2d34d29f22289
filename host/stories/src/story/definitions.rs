//! Registers the plugin's definitions, and looks whether they are established.

use std::sync::Arc;

use mortise_core::crd::CrdError;
use mortise_core::event::Event;

use super::Story;
use super::due::Due;

/// How often it is looked whether a definition is established, and for how long.
const LOOK_MS: u64 = 25;
const DEADLINE_MS: u64 = 30_000;

impl Story {
    pub(super) fn register(&mut self, plugin: Arc<str>, crd: Arc<str>, body: &str) {
        match self.api.define(&crd, body) {
            Ok(()) => {
                let until_ms = self.now_ms() + DEADLINE_MS;
                self.look_for_definition(plugin, crd, until_ms);
            }
            Err(error) => self.respond_with(Event::CrdRegistered { plugin, crd, result: Err(error) }),
        }
    }

    /// Responds when a definition is established, or looks again.
    pub(super) fn look_for_definition(&mut self, plugin: Arc<str>, crd: Arc<str>, until_ms: u64) {
        let result = match self.api.established(&plugin, &crd) {
            Some(result) => result,
            None if self.now_ms() < until_ms => {
                let incarnation = self.incarnation;
                return self.schedule(LOOK_MS, Due::Established { incarnation, plugin, crd, until_ms });
            }
            None => Err(CrdError::Unavailable(format!("CRD {crd}: the API server does not serve it"))),
        };
        self.respond_with(Event::CrdRegistered { plugin, crd, result });
    }
}
