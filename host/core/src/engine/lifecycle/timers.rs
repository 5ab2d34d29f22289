//! The Lifecycle's timers. (Delayed keys wait in the Reconciler's work queue.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The retry delay of a version that the cluster's state keeps from serving. A person who changes that state should see
/// the effect while watching.
pub(super) const REFUSED_RETRY_MS: u64 = 15_000;
/// The same of a tenant with too many bytes, of which each retry lists as many as it may have.
pub(super) const BYTES_RETRY_MS: u64 = 600_000;

/// What is due, by plugin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// Register the plugin's CRD of this name.
    RegisterCrd(Arc<str>, Arc<str>),
    /// Write the Plugin object.
    Status(Arc<str>),
    /// Check whether the plugin is below its budgets.
    Throttled(Arc<str>),
    /// Check whether the plugin that was the costliest may come up, or has behaved.
    Costly(Arc<str>),
    /// Delete the orphan.
    Orphan(Arc<str>),
    /// Load the refused version again.
    Refused(Arc<str>),
    /// Ask again what its ServiceAccount may read.
    Review(Arc<str>),
    /// Stop the informers of dynamic kinds that its keys name no more, and start those that waited.
    DynamicKinds(Arc<str>),
    /// List every kind anew, for a restore that was noticed earlier.
    Restored,
    /// Show that the ConfigMaps of a tenant are not listed.
    Unlisted(Arc<str>),
}

/// The timers that are set, each once.
#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(u64, Timer)>,
    due_ms: BTreeMap<Timer, u64>,
}

impl Timers {
    /// Sets a timer. If it is set already, the earlier time counts.
    pub fn arm(&mut self, due_ms: u64, timer: Timer) {
        if let Some(before_ms) = self.due_ms.get_mut(&timer) {
            if *before_ms <= due_ms {
                return;
            }
            self.by_time.remove(&(*before_ms, timer.clone()));
        }
        self.due_ms.insert(timer.clone(), due_ms);
        self.by_time.insert((due_ms, timer));
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(due_ms, _)| *due_ms)
    }

    pub fn take_due(&mut self, now_ms: u64) -> Option<Timer> {
        if self.next_due_ms()? > now_ms {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.due_ms.remove(&timer);
        Some(timer)
    }

    /// Cancels a removed plugin's timers, except the one that deletes its Plugin object.
    pub fn forget_plugin(&mut self, plugin: &Arc<str>) {
        let of_crds = self.due_ms.range(Timer::RegisterCrd(Arc::clone(plugin), "".into())..);
        let mut gone: Vec<Timer> = of_crds
            .map(|(timer, _)| timer)
            .take_while(|timer| matches!(timer, Timer::RegisterCrd(of, _) if of == plugin))
            .cloned()
            .collect();
        gone.extend(
            [Timer::Status, Timer::Refused, Timer::Throttled, Timer::Costly, Timer::DynamicKinds, Timer::Review]
                .map(|timer| timer(Arc::clone(plugin))),
        );
        for timer in gone {
            if let Some(due_ms) = self.due_ms.remove(&timer) {
                self.by_time.remove(&(due_ms, timer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_once_at_the_earliest_time_it_was_set_for() {
        let (a, b) = (Timer::Status("a".into()), Timer::Status("b".into()));
        let mut timers = Timers::default();
        for due_ms in [30, 10, 20] {
            timers.arm(due_ms, a.clone());
        }
        timers.arm(15, b.clone());
        assert_eq!((timers.next_due_ms(), timers.take_due(9)), (Some(10), None));
        let taken = [(); 3].map(|()| timers.take_due(30));
        assert_eq!(taken, [Some(a.clone()), Some(b), None]);
        // It can be set again, for later too.
        timers.arm(40, a.clone());
        assert_eq!((timers.take_due(39), timers.take_due(40), timers.next_due_ms()), (None, Some(a), None));
    }

    #[test]
    fn a_removed_plugin_leaves_only_the_timer_that_deletes_its_object() {
        let mut timers = Timers::default();
        for plugin in ["a", "b", "ab"] {
            let plugin: Arc<str> = plugin.into();
            timers.arm(1, Timer::RegisterCrd(Arc::clone(&plugin), "x.example.com".into()));
            timers.arm(2, Timer::RegisterCrd(Arc::clone(&plugin), "y.example.com".into()));
            timers.arm(3, Timer::Status(Arc::clone(&plugin)));
            timers.arm(4, Timer::Refused(Arc::clone(&plugin)));
            timers.arm(5, Timer::Orphan(plugin));
        }
        timers.forget_plugin(&"a".into());
        timers.forget_plugin(&"ab".into());
        let left: Vec<Timer> = std::iter::from_fn(|| timers.take_due(5)).collect();
        assert_eq!(
            left,
            [
                Timer::RegisterCrd("b".into(), "x.example.com".into()),
                Timer::RegisterCrd("b".into(), "y.example.com".into()),
                Timer::Status("b".into()),
                Timer::Refused("b".into()),
                Timer::Orphan("a".into()),
                Timer::Orphan("ab".into()),
                Timer::Orphan("b".into()),
            ]
        );
        assert_eq!(timers.due_ms.len(), 0);
    }
}
