//! Audits of the informers, and the reset of everything that waits for a version after a restore of etcd.

use super::Lifecycle;
use super::timers::Timer;
use crate::audit::{Act, Response};
use crate::engine::context::Context;
use crate::engine::message::Message;
use crate::event::Effect;
use crate::observation::Observation;
use crate::plugin_object;
use crate::scope::Slice;

impl Lifecycle {
    pub fn on_audit(&mut self, slice: &Slice, response: Response, cx: &mut Context<'_>) {
        self.audits.on_response(cx.now.mono_ms, slice, response, cx.store);
    }

    /// Begins the audits that are due, and relists the kinds whose cache differs.
    pub fn run_audits(&mut self, cx: &mut Context<'_>) {
        while let Some(act) = self.audits.step(cx.now.mono_ms, cx.store) {
            match act {
                Act::List(slice) => cx.effects.push(Effect::Audit(slice)),
                Act::Report(report) => {
                    let kind = report.slice.kind.clone();
                    let undone = || "an audit found that a version in the cache was undone".to_owned();
                    let is_restored =
                        report.is_of_a_restore() && self.notice_restore(&report.slice, false, undone(), cx);
                    if !is_restored && !report.differences.is_empty() {
                        cx.effects.push(Effect::Relist(report.slice));
                    }
                    cx.observe(Observation::Audited { kind, differences: report.differences });
                }
            }
        }
    }

    /// A watch or an audit has noticed that versions went backwards. Whether every kind is relisted for it now; else they are
    /// when its wait is over, and only the watch that noticed it lists before. `lists`: it does so by itself.
    pub fn notice_restore(&mut self, slice: &Slice, lists: bool, message: String, cx: &mut Context<'_>) -> bool {
        let noticed = self.restores.notice(cx.now.mono_ms, slice, &message);
        match noticed {
            Ok(()) => cx.messages.push_back(Message::Restored { slice: slice.clone(), lists, message }),
            Err(due_ms) => self.timers.arm(due_ms, Timer::Restored),
        }
        noticed.is_ok()
    }

    pub(super) fn on_restore_due(&mut self, cx: &mut Context<'_>) {
        if let Some((slice, message)) = self.restores.take_held(cx.now.mono_ms) {
            cx.messages.push_back(Message::Restored { slice, lists: false, message });
        }
    }

    /// Relists every kind. Until then none counts as listed (R4).
    pub fn on_restored(&mut self, slice: Slice, lists: bool, message: String, cx: &mut Context<'_>) {
        for (kind, informer) in &mut self.informers {
            informer.watches.values_mut().for_each(|watch| watch.listed = false);
            let others = informer.slices(kind).filter(|other| !lists || *other != slice);
            cx.effects.extend(others.map(Effect::Relist));
        }
        for plugin in self.plugins.values_mut() {
            plugin.object.expected = None;
        }
        self.orphans.clear();
        // The restore may have undone CRDs. Registrations in flight end before the retry.
        self.attempts.clear();
        for kind in self.definitions.keys().cloned().chain([plugin_object::kind()]).collect::<Vec<_>>() {
            self.restore_crd(&kind, false, cx);
        }
        self.dirty.extend(self.plugins.keys().cloned());
        self.sync_dirty(cx);
        cx.observe(Observation::Restored { kind: slice.kind, message });
    }
}
