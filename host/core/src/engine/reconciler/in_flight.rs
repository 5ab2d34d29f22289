//! Counts of what is under way, by plugin, which decide whether one may begin more beside the others (Q4).

use std::collections::BTreeMap;
use std::sync::Arc;

/// How much each plugin has under way of one thing. Asking costs the same however many plugins there are.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    total: usize,
    /// Plugins that have something under way; none has zero.
    of_plugin: BTreeMap<Arc<str>, usize>,
}

impl InFlight {
    pub fn begin(&mut self, plugin: &Arc<str>) {
        self.total += 1;
        *self.of_plugin.entry(Arc::clone(plugin)).or_default() += 1;
    }

    /// Ends what has begun. A plugin that has nothing under way is not counted below zero.
    pub fn end(&mut self, plugin: &str) {
        let Some(count) = self.of_plugin.get_mut(plugin) else { return };
        self.total -= 1;
        *count -= 1;
        if *count == 0 {
            self.of_plugin.remove(plugin);
        }
    }

    /// Q4: whether a plugin may begin one more. Its first one always: however many plugins hang, each other one goes on. Further
    /// ones come out of what all share, of which it gets three quarters of what the others leave.
    pub fn has_room(&self, plugin: &str, shared: usize) -> bool {
        let own = self.of(plugin);
        let left = shared.saturating_sub(self.total - own);
        own == 0 || (!self.is_full(shared) && own < left * 3 / 4)
    }

    /// Whether no plugin may begin more than its first one.
    pub fn is_full(&self, shared: usize) -> bool {
        self.total >= shared
    }

    pub fn of(&self, plugin: &str) -> usize {
        self.of_plugin.get(plugin).copied().unwrap_or_default()
    }

    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_has_its_own_count_and_together_they_are_the_total() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut in_flight = InFlight::default();
        for plugin in [&a, &a, &b] {
            in_flight.begin(plugin);
        }
        assert_eq!((in_flight.of("a"), in_flight.of("b"), in_flight.of("c"), in_flight.total()), (2, 1, 0, 3));
        for plugin in ["a", "b", "b", "c"] {
            in_flight.end(plugin);
        }
        assert_eq!((in_flight.of("a"), in_flight.of("b"), in_flight.total()), (1, 0, 1));
    }
    #[test]
    fn q4_however_many_plugins_hang_each_other_one_begins_its_first() {
        const SHARED: usize = 64;
        let mut in_flight = InFlight::default();
        let mut counts = Vec::new();
        for number in 0..1_000 {
            let plugin: Arc<str> = number.to_string().into();
            while in_flight.has_room(&plugin, SHARED) {
                in_flight.begin(&plugin);
            }
            counts.push(in_flight.of(&plugin));
        }
        assert_eq!(counts[..6], [48, 12, 3, 1, 1, 1], "what is shared, and then one each");
        assert_eq!((counts.iter().min(), in_flight.total() <= SHARED + 1_000), (Some(&1), true));
        let mut alone = InFlight::default();
        alone.begin(&"a".into());
        assert!(!alone.has_room("a", 1) && alone.has_room("b", 1), "one slot in all is still one of each plugin");
    }
}
