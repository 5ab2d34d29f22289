//! Counts of what is under way, by plugin: what decides whether one may begin more beside the others (Q4). It knows names
//! and numbers, and not what is counted.

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

    pub fn of(&self, plugin: &str) -> usize {
        self.of_plugin.get(plugin).copied().unwrap_or_default()
    }

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
}
