//! Which keys begin their turn now, by what every plugin has under way (Q4).

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use crate::engine::context::Context;
use crate::observation::Observation;
use crate::workqueue::{Lane, MayRun};

/// Keys that may be between their first and their last write at once, beside one of each plugin. The API server's own budget
/// for one client is some hundred requests in flight; more keys would only wait there instead of here, where they are sorted.
const MAX_KEYS_WRITING: usize = 64;

impl Reconciler {
    /// Takes keys as long as there is room for their calls and writes.
    pub fn run_queue(&mut self, cx: &mut Context<'_>) {
        for (key, lane) in self.queue.release(cx.now.mono_ms) {
            if let Some(controller) = self.controllers.get(&key.controller) {
                let controller = Arc::clone(&controller.label);
                cx.observe(Observation::Enqueued { controller, retry: lane == Lane::Retry });
            }
        }
        let throttled = self.throttled.len();
        self.throttled.retain(|_, until_ms| *until_ms > cx.now.mono_ms);
        if self.throttled.len() < throttled {
            self.queue.unpark_plugins();
        }
        while !cx.draining && cx.may_write {
            let may_run = |id| {
                let is_free =
                    |controller: &&Controller| controller.ready && controller.calls < controller.spec.concurrency;
                let Some(Controller { plugin, .. }) = self.controllers.get(&id).filter(is_free) else {
                    return MayRun::NotThisController;
                };
                let has_room = !self.throttled.contains_key(plugin)
                    && self.calling.has_room(plugin, self.call_slots)
                    && self.writing.has_room(plugin, MAX_KEYS_WRITING);
                if has_room { MayRun::Yes } else { MayRun::NotThisPlugin }
            };
            let Some(taken) = self.queue.take(cx.now.mono_ms, may_run) else { break };
            self.begin(taken, cx);
        }
    }
}
