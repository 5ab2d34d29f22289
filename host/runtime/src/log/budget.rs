//! How many bytes of lines are logged in a minute: of each share, which is a plugin or all plugins of a tenant, of all of
//! them together, and of the host itself. What is over is dropped and counted, so that no plugin has the lines of others
//! rotated away. Sizes come in; whether a line is written comes out. Time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_core::tenant;

pub(super) const MINUTE_MS: u64 = 60_000;
/// Of one share: a thousand lines. At this rate it takes a plugin three hours to fill the 50 MiB that a kubelet keeps of a
/// container by default.
const OF_SHARE: u64 = 256 << 10;
/// Of all shares. At this rate the kubelet keeps an hour.
const OF_SHARES: u64 = 1 << 20;
/// What a share has also when the others have taken all: a fault with its backtrace, or a dozen lines.
const OWN: u64 = 4 << 10;
/// Of the host, which throttles its own lines: room for a line about each of a thousand plugins at the start.
const OF_HOST: u64 = 1 << 20;
/// Shares whose dropped lines are counted apart, in the counters of the process. Those of further ones are counted together.
const MAX_NAMES: usize = 1_024;
/// Who pays for lines that are about no plugin.
pub(crate) const HOST: &str = "mortise";
/// Of whom further shares are counted.
const OTHERS: &str = "others";

/// Lines that were not written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Dropped {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Dropped {
    pub(super) fn add(&mut self, lines: u64, bytes: u64) {
        (self.lines, self.bytes) = (self.lines + lines, self.bytes + bytes);
    }
}

#[derive(Default, Debug)]
struct Minute {
    began_ms: u64,
    /// Written bytes of all shares.
    bytes: u64,
    by_name: BTreeMap<Arc<str>, Spent>,
}

#[derive(Default, Debug)]
struct Spent {
    bytes: u64,
    dropped: Dropped,
}

#[derive(Default, Debug)]
pub(super) struct Budget {
    minute: Minute,
    /// Since the start of the process.
    dropped: BTreeMap<Arc<str>, Dropped>,
}

impl Budget {
    /// Whether a line of this size may be written. It is about `plugin` or one of its controllers, or about none.
    pub(super) fn spend(&mut self, now_ms: u64, plugin: Option<&Arc<str>>, bytes: u64) -> bool {
        let name = plugin.map_or_else(|| HOST.into(), share_of);
        let (most, own) = if plugin.is_some() { (OF_SHARE, OWN) } else { (OF_HOST, OF_HOST) };
        if now_ms.saturating_sub(self.minute.began_ms) >= MINUTE_MS && !self.owes_report() {
            self.minute = Minute { began_ms: now_ms, ..Minute::default() };
        }
        let minute = &mut self.minute;
        let spent = minute.by_name.entry(Arc::clone(&name)).or_default();
        let after = spent.bytes + bytes;
        let fits = after <= own || (after <= most && minute.bytes + bytes <= OF_SHARES);
        if fits {
            spent.bytes = after;
            minute.bytes += if plugin.is_some() { bytes } else { 0 };
        } else {
            spent.dropped.add(1, bytes);
            let is_known = self.dropped.len() < MAX_NAMES || self.dropped.contains_key(&name);
            let name = if is_known { name } else { OTHERS.into() };
            self.dropped.entry(name).or_default().add(1, bytes);
        }
        fits
    }

    /// Whether lines were dropped since the last report.
    fn owes_report(&self) -> bool {
        self.minute.by_name.values().any(|spent| spent.dropped.lines > 0)
    }

    /// When the next report is due; None if nothing was dropped.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.owes_report().then(|| self.minute.began_ms + MINUTE_MS)
    }

    /// What was dropped in the minute that has ended, by share; the next one begins.
    pub(super) fn report(&mut self, now_ms: u64) -> Vec<(Arc<str>, Dropped)> {
        if self.due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return Vec::new();
        }
        let ended = std::mem::replace(&mut self.minute, Minute { began_ms: now_ms, ..Minute::default() });
        let dropped = ended.by_name.into_iter().map(|(name, spent)| (name, spent.dropped));
        dropped.filter(|(_, dropped)| dropped.lines > 0).collect()
    }

    /// What was dropped since the start of the process, by share.
    pub(super) fn dropped(&self) -> Vec<(Arc<str>, Dropped)> {
        self.dropped.iter().map(|(name, dropped)| (Arc::clone(name), *dropped)).collect()
    }
}

/// The share of a plugin, or of a controller "plugin/Kind".
fn share_of(about: &Arc<str>) -> Arc<str> {
    match about.split_once('/') {
        Some((plugin, _)) => tenant::share(&plugin.into()),
        None => tenant::share(about),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn written(budget: &mut Budget, now_ms: u64, plugin: Option<&str>, lines: u64) -> u64 {
        let plugin = plugin.map(Arc::from);
        (0..lines).filter(|_| budget.spend(now_ms, plugin.as_ref(), KIB)).count() as u64
    }

    #[test]
    fn q4_a_plugin_logs_a_quarter_of_a_mib_in_a_minute_and_takes_no_line_of_anothers() {
        let mut budget = Budget::default();
        assert_eq!(written(&mut budget, 0, Some("a/PodSet"), OF_SHARE / KIB), 256);
        assert_eq!(written(&mut budget, 0, Some("a/CronTab"), 1), 0, "one byte beyond, of its other controller");
        assert_eq!(written(&mut budget, 0, Some("b"), 100), 100);
        assert_eq!(written(&mut budget, 0, None, 1_024), 1_024, "the host has its own");
        assert_eq!(written(&mut budget, 0, None, 1), 0);
        assert_eq!(written(&mut budget, MINUTE_MS, None, 1), 0, "until the report");
        budget.report(MINUTE_MS);
        assert_eq!(written(&mut budget, MINUTE_MS, Some("a"), 300), 256);
    }

    #[test]
    fn q4_when_others_have_logged_all_that_plugins_may_each_still_has_a_few_lines() {
        let mut budget = Budget::default();
        let all: u64 = (0..10).map(|plugin| written(&mut budget, 0, Some(&format!("loud-{plugin}")), 1_000)).sum();
        assert_eq!(all, (OF_SHARES + 6 * OWN) / KIB);
        assert_eq!(written(&mut budget, 0, Some("quiet"), 100), OWN / KIB);
        assert_eq!(written(&mut budget, 0, None, 100), 100);
    }

    #[test]
    fn the_plugins_of_a_tenant_have_one_budget() {
        let mut budget = Budget::default();
        assert_eq!(written(&mut budget, 0, Some("team-a.one/Foo"), 200), 200);
        assert_eq!(written(&mut budget, 0, Some("team-a.two"), 200), 56);
    }

    #[test]
    fn what_is_dropped_is_reported_once_a_minute_by_share_and_counted_for_ever() {
        let mut budget = Budget::default();
        assert_eq!(budget.due_ms(), None);
        written(&mut budget, 0, Some("a"), 300);
        assert_eq!((budget.due_ms(), budget.report(MINUTE_MS - 1)), (Some(MINUTE_MS), Vec::new()));
        let dropped = Dropped { lines: 44, bytes: 44 * KIB };
        assert_eq!(budget.report(MINUTE_MS), [("a".into(), dropped)]);
        assert_eq!((budget.due_ms(), budget.report(3 * MINUTE_MS)), (None, Vec::new()));
        assert_eq!(budget.dropped(), [("a".into(), dropped)]);
    }

    #[test]
    fn the_counters_have_a_bound_on_their_names() {
        let mut budget = Budget::default();
        for plugin in 0..MAX_NAMES as u64 + 10 {
            written(&mut budget, 0, Some(&plugin.to_string()), 1);
            budget.spend(0, Some(&plugin.to_string().into()), 1 << 30);
        }
        let counted = budget.dropped();
        assert_eq!(counted.len(), MAX_NAMES + 1);
        assert!(counted.iter().any(|(name, dropped)| **name == *OTHERS && dropped.lines == 10));
    }
}
