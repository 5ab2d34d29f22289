//! The HTTP requests of keys between the plan that wants them and the Outbox that sends them. `exchanges.rs` decides when.

use std::sync::Arc;

use super::Reconciler;
use super::key::Run;
use crate::engine::context::Context;
use crate::engine::message::ToOutbox;
use crate::event::Sending;
use crate::http::{HttpId, Sent};
use crate::manifest::http::{HttpRule, rule_of};
use crate::workqueue::{ControllerId, Key, Lane};

impl Reconciler {
    /// Begins the requests of an outcome when everything else of it is written.
    pub(super) fn request(&mut self, key: &Key, run: &Run, cx: &Context<'_>) {
        if run.requests.is_empty() || !run.stages.is_empty() {
            return;
        }
        if let Some(plugin) = self.plugin_of(key) {
            self.exchanges.want(&plugin, key, &run.requests, cx.now.mono_ms);
        }
    }

    /// A version that takes over may declare less than the one before.
    pub(super) fn drop_undeclared(&mut self, id: ControllerId, rules: &[HttpRule]) {
        for key in self.keys.of(id) {
            self.exchanges.keep(&key, |request| {
                let rule = rule_of(rules, &request.origin).filter(|rule| rule.methods.contains(&request.method));
                let has = |secret: &Arc<str>| rule.is_some_and(|rule| rule.secrets.contains(secret));
                rule.is_some() && request.secret_headers.iter().all(|header| has(&header.secret))
            });
        }
    }

    /// Sends the requests that are due.
    pub fn run_requests(&mut self, cx: &mut Context<'_>) {
        for (id, key, request) in self.exchanges.run(cx.now.mono_ms, cx.may_write && !cx.draining) {
            let cause = self.cause(&key).expect("a key's requests are dropped before its controller");
            let sending = Sending { id, cause, request, not_after_ms: None };
            cx.notify_outbox(ToOutbox::Request(Box::new(sending)));
        }
    }

    /// A reply is an input of the next call. A key that did not read it is looked at for nothing (W2).
    pub fn on_http_done(&mut self, id: HttpId, sent: Sent, cx: &mut Context<'_>) {
        if let Some(key) = self.exchanges.on_done(id, sent, cx.now) {
            self.wake(&key, Lane::Live, cx);
        }
    }
}
