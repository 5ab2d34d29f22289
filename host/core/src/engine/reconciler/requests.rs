//! The HTTP requests of keys between the plan that wants them and the Outbox that sends them. `exchanges.rs` decides when.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Reconciler;
use super::key::{Run, StalledReason};
use crate::engine::context::Context;
use crate::engine::message::{ToLifecycle, ToOutbox};
use crate::event::Sending;
use crate::http::{HttpId, OutgoingRequest, Sent};
use crate::workqueue::{Key, Lane};

/// Before an outcome whose requests have no room is compared again: nothing shows that others have less.
pub(super) const NO_ROOM_DELAY_MS: u64 = 60_000;
/// The reason for requests that are not kept.
const NO_ROOM: &str = "NoRoom";

impl Reconciler {
    /// Q4: whether there is room for the requests of an outcome.
    pub(super) fn no_room(&self, key: &Key, requests: &[Arc<OutgoingRequest>]) -> Option<StalledReason> {
        let plugin = &self.controllers.get(&key.controller)?.plugin;
        self.exchanges.refusal(plugin, key, requests).map(|message| StalledReason::new(NO_ROOM, message))
    }

    /// Begins the requests of an outcome when everything else of it is written.
    pub(super) fn request(&mut self, key: &Key, run: &Run, cx: &mut Context<'_>) {
        if run.requests.is_empty() || !run.stages.is_empty() {
            return;
        }
        let Some(controller) = self.controllers.get(&key.controller) else { return };
        // L1: a version that took over during the writes may declare less, and calls for its own requests.
        if !run.of.as_ref().is_some_and(|(_, version)| *version == controller.version) {
            return;
        }
        if !self.exchanges.want(&controller.plugin, key, &run.requests, cx.now.mono_ms) {
            // Others took the room during the writes; the next turn says so.
            self.wake(key, Lane::Retry, cx);
        }
    }

    /// Sends the requests that are due.
    pub fn run_requests(&mut self, cx: &mut Context<'_>) {
        let mut plugins = BTreeSet::new();
        for (id, key, request) in self.exchanges.run(cx.now.mono_ms, cx.may_write && !cx.draining) {
            let (controller, cause) = (self.controllers.get(&key.controller), self.cause(&key));
            let (controller, cause) =
                controller.zip(cause).expect("requests of a controller that is gone are not sent");
            let plugin = Arc::clone(&controller.plugin);
            plugins.insert(Arc::clone(&plugin));
            let service_account = controller.version.service_account.clone();
            // No request without Secrets asks for it.
            let gets_generated = !request.secret_headers.is_empty()
                && controller.version.grants.gives_generated_values_to(&request.origin);
            let sending = Sending { id, plugin, cause, service_account, gets_generated, request, not_after_ms: None };
            cx.notify_outbox(ToOutbox::Request(Box::new(sending)));
        }
        for (plugin, message) in self.exchanges.changed_denials() {
            cx.notify_lifecycle(ToLifecycle::NotGranted { plugin, message });
        }
        for plugin in plugins {
            if let Some(message) = self.exchanges.over_budget(&plugin) {
                cx.notify_lifecycle(ToLifecycle::Throttled { plugin, message });
            }
        }
    }

    /// A reply is an input of the next call. A key that did not read it is looked at for nothing (W2).
    pub fn on_http_done(&mut self, id: HttpId, sent: Sent, cx: &mut Context<'_>) {
        if let Some(key) = self.exchanges.on_done(id, sent, cx.now) {
            self.charge_event(&key);
            self.wake(&key, Lane::Live, cx);
        }
    }
}
