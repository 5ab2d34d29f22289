//! What is kept of each key's last call, within bounds for each plugin and for all: its reads, which wake the key (W1),
//! and its outcome, which makes a call needless whose inputs are as before (W2).
//!
//! Outcomes take half of the room at most. A key without one is called whenever it wakes. A key without its reads wakes
//! with any change of the kinds that it read, so these are given up last.

use std::sync::Arc;

use super::Reconciler;
use super::controller::Controller;
use super::dynamic_kinds::Named;
use super::key::{CallOutcome, LastCall};
use super::plugin_counts::PluginCounts;
use crate::engine::context::Context;
use crate::workqueue::Key;

/// Bytes of one plugin. Half of them are 30,000 outcomes of the size of a PodSet's with three Pods, or sixty of the
/// largest; the other half are the reads of 100,000 keys that read a few lists each, or of 130 that read the most.
const MAX_PLUGIN_BYTES: usize = 64 << 20;
/// Bytes of all plugins: a quarter of the memory limit of the Deployment in deploy/.
const MAX_TOTAL_BYTES: usize = 512 << 20;
/// Bytes that a plugin has to itself, so that eight others that read very much do not make it work more (Q4): the reads
/// of 10,000 keys.
const OWN_BYTES: usize = 4 << 20;
/// The part that outcomes may fill.
const OF_OUTCOMES: usize = 2;

/// Whether a plugin may keep so many more bytes in the `part`th of its room.
fn fits(kept: &PluginCounts, plugin: &str, bytes: usize, part: usize) -> bool {
    let (own, total) = (kept.of(plugin) + bytes, kept.total() + bytes);
    own <= MAX_PLUGIN_BYTES / part && (total <= MAX_TOTAL_BYTES / part || own <= OWN_BYTES / part)
}

impl Reconciler {
    pub(super) fn remember_call(&mut self, key: &Key, mut call: LastCall, cx: &mut Context<'_>) {
        let Some(Controller { plugin, share, .. }) = self.controllers.get(&key.controller) else { return };
        let (plugin, share) = (&Arc::clone(plugin), Arc::clone(share));
        let Some(state) = self.keys.get_mut(key) else { return };
        let before = state.last.take();
        self.kept_bytes.subtract(&share, before.as_ref().map_or(0, LastCall::bytes));
        self.wanted_objects.subtract(plugin, before.as_ref().map_or(0, |before| before.objects));
        self.wanted_objects.add(plugin, call.objects);
        if !fits(&self.kept_bytes, &share, call.bytes(), OF_OUTCOMES) {
            call.outcome = CallOutcome::Absent;
        }
        if !fits(&self.kept_bytes, &share, call.reads.bytes(), 1) {
            call.reads.collapse();
        }
        let before = before.as_ref().map(|before| &before.reads);
        self.index.replace(&share, key, before, &mut call.reads);
        self.kept_bytes.add(&share, call.bytes());
        let reads = &state.last.insert(call).reads;
        let kinds = Named::of(before, Some(reads));
        self.name_kinds(key, plugin, kinds, cx);
    }

    pub(super) fn forget_call(&mut self, key: &Key, cx: &mut Context<'_>) {
        let Some(Controller { plugin, share, .. }) = self.controllers.get(&key.controller) else { return };
        let (plugin, share) = (&Arc::clone(plugin), Arc::clone(share));
        let Some(last) = self.keys.get_mut(key).and_then(|state| state.last.take()) else { return };
        self.index.remove(&share, key, &last.reads);
        self.kept_bytes.subtract(&share, last.bytes());
        self.wanted_objects.subtract(plugin, last.objects);
        self.name_kinds(key, plugin, Named::of(Some(&last.reads), None), cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_by_plugin_and_in_all_and_each_plugin_has_some_of_its_own() {
        let mut kept = PluginCounts::default();
        let mut add = |plugin: &str, bytes: usize, part: usize| {
            let fits = fits(&kept, plugin, bytes, part);
            kept.add(&plugin.into(), if fits { bytes } else { 0 });
            fits
        };
        assert!(add("0", MAX_PLUGIN_BYTES / 2, OF_OUTCOMES) && !add("0", 1, OF_OUTCOMES), "half is for outcomes");
        assert!(add("0", MAX_PLUGIN_BYTES / 2, 1) && !add("0", 1, 1), "over the plugin's bound");
        let full = (1..20).filter(|number| add(&number.to_string(), MAX_PLUGIN_BYTES, 1)).count();
        assert_eq!(full, MAX_TOTAL_BYTES / MAX_PLUGIN_BYTES - 1);
        assert!(add("30", OWN_BYTES, 1) && !add("30", 1, 1), "over the total bound");
        kept.subtract("0", 2 * OWN_BYTES);
        assert!(fits(&kept, "30", 1, 1));
    }
}
