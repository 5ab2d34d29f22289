//! Counts by plugin with their total: calls in flight, keys being written, bytes of what is kept. They decide
//! whether a plugin may have more (Q4). Each operation costs the same however many plugins there are.

use std::sync::Arc;

use crate::map::Map;

#[derive(Debug, Default)]
pub(super) struct PluginCounts {
    total: usize,
    /// None is zero.
    of_plugin: Map<Arc<str>, usize>,
}

impl PluginCounts {
    pub fn add(&mut self, plugin: &Arc<str>, count: usize) {
        if count > 0 {
            self.total += count;
            *self.of_plugin.entry(Arc::clone(plugin)).or_default() += count;
        }
    }

    /// Never counts below zero.
    pub fn subtract(&mut self, plugin: &str, count: usize) {
        let Some(own) = self.of_plugin.get_mut(plugin) else { return };
        let count = count.min(*own);
        self.total -= count;
        *own -= count;
        if *own == 0 {
            self.of_plugin.remove(plugin);
        }
    }

    /// Q4: whether a plugin may begin one more. Its first counts against no bound, so plugins that hang cannot block the
    /// others. Beyond that it gets three quarters of the shared slots that the others leave.
    pub fn has_room(&self, plugin: &str, shared: usize) -> bool {
        let own = self.of(plugin);
        let left = shared.saturating_sub(self.total - own);
        own == 0 || (!self.is_full(shared) && own < left * 3 / 4)
    }

    /// Whether no plugin may begin more than its first.
    pub fn is_full(&self, shared: usize) -> bool {
        self.total >= shared
    }

    pub fn of(&self, plugin: &str) -> usize {
        self.of_plugin.get(plugin).copied().unwrap_or_default()
    }

    /// Those that have any.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.of_plugin.iter().map(|(plugin, count)| (plugin, *count))
    }

    pub fn total(&self) -> usize {
        self.total
    }

    /// How many have any.
    pub fn len(&self) -> usize {
        self.of_plugin.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    #[test]
    fn the_total_is_the_sum_and_no_count_is_below_zero() {
        let mut counts = PluginCounts::default();
        counts.add(&name(1), 2);
        counts.add(&name(2), 1);
        assert_eq!((counts.of("1"), counts.of("2"), counts.of("3"), counts.total()), (2, 1, 0, 3));
        for plugin in ["1", "2", "2", "3"] {
            counts.subtract(plugin, 1);
        }
        assert_eq!((counts.of("1"), counts.of("2"), counts.total(), counts.of_plugin.len()), (1, 0, 1, 1));
    }

    #[test]
    fn q4_however_many_plugins_hang_each_other_one_begins_its_first() {
        const SHARED: usize = 64;
        let mut in_flight = PluginCounts::default();
        let mut counts = Vec::new();
        for plugin in (0..1_000).map(name) {
            while in_flight.has_room(&plugin, SHARED) {
                in_flight.add(&plugin, 1);
            }
            counts.push(in_flight.of(&plugin));
        }
        assert_eq!(counts[..6], [48, 12, 3, 1, 1, 1], "the shared slots, then one each");
        assert_eq!((counts.iter().min(), in_flight.total() <= SHARED + 1_000), (Some(&1), true));
        let mut in_flight = PluginCounts::default();
        in_flight.add(&name(1), 1);
        assert!(
            !in_flight.has_room("1", 1) && in_flight.has_room("2", 1),
            "one slot in all is still one for each plugin"
        );
    }
}
