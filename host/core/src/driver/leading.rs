//! Whether this host may write (X7), and what begins when it may. A host that may not keeps everything else up: it watches,
//! compiles plugins and takes them as far as they come without a write, so that it can take over at once.
//!
//! Every write goes through `Driver::send`, and whoever calls it asks [`Driver::may_write`] first. What is left undone for
//! want of the right is not remembered one by one: when the right comes back, everything is looked at that could have been.

use std::sync::Arc;

use super::plugins::{Candidate, HOST, Stage};
use super::{Driver, Timer};
use crate::event::Effect;
use crate::lease::Claim;
use crate::plugin_object;
use crate::workqueue::ControllerId;

impl Driver {
    /// X7: whether a write that is sent now ends while this host still has the right to it.
    pub(super) fn may_write(&self) -> bool {
        self.claim.allows_writes(self.now.mono_ms)
    }

    /// Whether this host leads; None when it takes part in no election.
    pub(super) fn leads(&self) -> Option<bool> {
        (self.claim != Claim::Everlasting).then(|| self.claim.lasts(self.now.mono_ms))
    }

    pub(super) fn on_lease_changed(&mut self, claim_until_ms: Option<u64>, effects: &mut Vec<Effect>) {
        if !self.config.leader_election {
            return;
        }
        // A claim that has run out before it was renewed was not renewed: another host may have led meanwhile.
        let led = self.claim.lasts(self.now.mono_ms);
        self.claim = Claim::of(claim_until_ms);
        if !self.may_write() {
            self.held_back = true;
            return;
        }
        if !led {
            self.look_at_everything(effects);
        }
        if std::mem::take(&mut self.held_back) {
            self.catch_up(effects);
        }
    }

    /// A new leader looks at every object once: what has woken its keys so far led to nothing, and what the last leader has
    /// left half done wakes nobody.
    fn look_at_everything(&mut self, effects: &mut Vec<Effect>) {
        let controllers: Vec<ControllerId> = self.controllers.keys().copied().collect();
        for (key, state) in &mut self.keys {
            if self.controllers.get(&key.controller).is_some_and(|controller| controller.spec.finalize) {
                state.inherit(self.now.mono_ms);
            }
        }
        for controller in controllers {
            self.enqueue_all(controller, effects);
        }
    }

    /// What the host itself has to say and to register, and could not.
    fn catch_up(&mut self, effects: &mut Vec<Effect>) {
        if !self.host_crd_established {
            self.arm(0, Timer::RegisterCrd(Arc::from(HOST), Arc::from(plugin_object::CRD_NAME)));
        }
        let names: Vec<Arc<str>> = self.plugins.keys().cloned().collect();
        for name in names {
            let coming = self.plugins.get_mut(&name).and_then(|plugin| plugin.candidate.as_mut());
            if let Some(Candidate { stage: Stage::Registering { missing, .. }, since_ms, waits_for, .. }) = coming {
                // That it waited for a leader is nothing to tell of any more.
                *since_ms = self.now.mono_ms;
                *waits_for = None;
                for crd in missing.clone() {
                    self.arm(0, Timer::RegisterCrd(Arc::clone(&name), crd));
                }
            }
            self.report(&name, effects);
        }
        self.delete_orphans(effects);
    }
}
