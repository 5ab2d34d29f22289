//! Which keys begin their turn now, by what every plugin has under way (Q4).

use std::sync::Arc;

use super::Reconciler;
use crate::engine::context::Context;
use crate::observation::Observation;
use crate::workqueue::Lane;

/// Keys that may be between their first and their last write at once. The API server's own budget for one client is
/// some hundred requests in flight; more keys would only wait there instead of here, where they are sorted.
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
        let most_calls = most_calls_of_a_plugin(self.call_slots);
        let may_begin = !cx.draining && cx.may_write;
        while may_begin && self.calls.len() < self.call_slots && self.writing.total() < MAX_KEYS_WRITING {
            let may_write = |plugin: &str| {
                let writing = self.writing.of(plugin);
                writing < most_keys_writing_of_a_plugin(self.writing.total() - writing)
            };
            let may_run = |id| {
                self.controllers.get(&id).is_some_and(|controller| {
                    controller.ready
                        && controller.calls < controller.spec.concurrency
                        && self.calling.of(&controller.plugin) < most_calls
                        && may_write(&controller.plugin)
                })
            };
            let Some(taken) = self.queue.take(cx.now.mono_ms, may_run) else { break };
            self.begin(taken, cx);
        }
    }
}

/// Q4: three quarters of the slots. A plugin whose calls all spin leaves the others some to go on with, and one that is
/// alone loses little, because there are more slots than workers.
fn most_calls_of_a_plugin(slots: usize) -> usize {
    (slots * 3 / 4).max(1)
}

/// Q4: half of what the others leave. However many plugins wait for writes that hang, there is room for one more.
fn most_keys_writing_of_a_plugin(of_others: usize) -> usize {
    (MAX_KEYS_WRITING.saturating_sub(of_others) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_plugins_whose_writes_hang_leave_room_for_one_more() {
        let mut hanging = 0;
        for plugin in 1..=6 {
            let share = most_keys_writing_of_a_plugin(hanging);
            assert!(share >= 1 && hanging + share < MAX_KEYS_WRITING, "plugin {plugin} gets {share} beside {hanging}");
            hanging += share;
        }
        assert_eq!(most_keys_writing_of_a_plugin(0), MAX_KEYS_WRITING / 2);
    }
}
