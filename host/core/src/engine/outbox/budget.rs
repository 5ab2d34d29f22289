//! How many writes, and creates among them, each plugin may send in a minute: two token buckets for each share, which is
//! a plugin, or all plugins of a tenant; and two for each of a tenant's plugins that is granted a number. Plans that have begun
//! are finished, so a bucket can become negative; then the plugin's keys wait until it is refilled to zero. A write of much
//! text counts as several.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tenant;
use crate::token_bucket::TokenBucket;

/// With more plugins than this in memory, those with full buckets are forgotten: a new bucket is full as well.
const REMEMBERED: usize = 64;

/// The text that a token pays for. Most objects of controllers have less. What an API server does for an apply grows with its
/// text: one that was busy took 0.19 s for an Event, and 0.63 s for a ConfigMap of 25 KB with small members.
const BYTES_OF_A_TOKEN: usize = 4 << 10;

/// How much every plugin may write in a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBudget {
    /// Writes of any kind, each for 4 KiB of its text.
    pub writes_per_minute: u32,
    /// Creates among them.
    pub creates_per_minute: u32,
}

impl Default for WriteBudget {
    /// Two hundred writes a second, ten times what controller-runtime's default rate limiter lets a whole controller
    /// send, and half as many creates. The burst is one minute's worth.
    fn default() -> Self {
        Self { writes_per_minute: 12_000, creates_per_minute: 6_000 }
    }
}

/// The budgets of all plugins.
#[derive(Debug)]
pub(super) struct Budgets {
    most: WriteBudget,
    /// By share, or by plugin.
    accounts: BTreeMap<Arc<str>, Account>,
}

/// What a write takes of the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    creates: bool,
    tokens: u32,
}

impl Cost {
    /// Of a write with so much text, which `creates` an object or does not.
    pub fn of(creates: bool, text_bytes: usize) -> Self {
        let tokens = u32::try_from(text_bytes.div_ceil(BYTES_OF_A_TOKEN)).unwrap_or(u32::MAX);
        Self { creates, tokens: tokens.max(1) }
    }
}

/// A plugin is over its budget: until when its keys wait, and why.
#[derive(Debug)]
pub(super) struct Debt {
    pub until_ms: u64,
    pub message: String,
}

#[derive(Debug)]
struct Account {
    writes: TokenBucket,
    creates: TokenBucket,
    /// How fast they fill.
    most: WriteBudget,
}

impl Budgets {
    pub fn new(most: WriteBudget) -> Self {
        Self { most, accounts: BTreeMap::new() }
    }

    /// Counts a write of a plugin. Returns why the next one has to wait. A `granted` number of writes a minute replaces the
    /// host's, and bounds the creates too. A tenant's share stays what it is.
    pub fn spend(&mut self, now_ms: u64, plugin: &Arc<str>, cost: Cost, granted: Option<u32>) -> Option<Debt> {
        let of_grant = granted.map(|granted| WriteBudget { writes_per_minute: granted, creates_per_minute: granted });
        let share = tenant::share(plugin);
        let of_plugin = of_grant.and_then(|most| self.spend_of(now_ms, plugin, cost, most));
        let has_share = of_grant.is_none() || share != *plugin;
        let of_share = has_share.then_some(self.most).and_then(|most| self.spend_of(now_ms, &share, cost, most));
        let ((wait_ms, most, what), whose) =
            of_plugin.map(|debt| (debt, plugin)).max(of_share.map(|debt| (debt, &share)))?;
        let raise = match of_grant {
            Some(_) if whose == plugin => format!("spec.grants.writesPerMinute of the Plugin {plugin}"),
            _ => format!("--plugin-{what}-per-minute of `mortise run`"),
        };
        let message = format!(
            "{whose} is over its budget of {most} {what} a minute, of 4 KiB each, so its objects wait {} s; if it needs more, raise \
             {raise}; if not, look for a plugin that undoes its own or another's writes",
            wait_ms.div_ceil(1_000)
        );
        Some(Debt { until_ms: now_ms + wait_ms, message })
    }

    /// Counts a write in one account. Returns how many milliseconds the next one has to wait, for how many a minute of what.
    fn spend_of(
        &mut self,
        now_ms: u64,
        whose: &Arc<str>,
        Cost { creates, tokens }: Cost,
        most: WriteBudget,
    ) -> Option<(u64, u32, &'static str)> {
        if self.accounts.len() > REMEMBERED && !self.accounts.contains_key(whose) {
            self.accounts.retain(|_, account| {
                let writes_are_full = account.writes.is_full(now_ms, account.most.writes_per_minute);
                !(account.creates.is_full(now_ms, account.most.creates_per_minute) && writes_are_full)
            });
        }
        let account = self.accounts.entry(Arc::clone(whose)).or_insert_with(|| Account {
            writes: TokenBucket::full(now_ms, most.writes_per_minute),
            creates: TokenBucket::full(now_ms, most.creates_per_minute),
            most,
        });
        account.most = most;
        let creates = creates.then_some((&mut account.creates, most.creates_per_minute, "creates"));
        let of_kinds = creates.into_iter().chain([(&mut account.writes, most.writes_per_minute, "writes")]);
        of_kinds.filter_map(|(bucket, most, what)| Some((bucket.spend_many(now_ms, most, tokens)?, most, what))).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: Cost = Cost { creates: true, tokens: 1 };
    const OTHER: Cost = Cost { creates: false, tokens: 1 };

    fn budgets() -> Budgets {
        Budgets::new(WriteBudget { writes_per_minute: 600, creates_per_minute: 60 })
    }

    #[test]
    fn a_minutes_worth_is_sent_at_once_and_the_next_write_waits_for_a_token() {
        let (mut budgets, plugin) = (budgets(), Arc::from("a"));
        let mut spend = |now_ms| budgets.spend(now_ms, &plugin, OTHER, None).map(|debt| debt.until_ms - now_ms);
        for _ in 0..600 {
            assert_eq!(spend(5), None);
        }
        assert_eq!(spend(5), Some(100), "ten a second");
        assert_eq!(spend(5), Some(200), "writes of a plan that has begun add to the debt");
        assert_eq!(spend(205), Some(100));
        assert_eq!(spend(60_305), None, "a minute fills the bucket");
    }

    #[test]
    fn q4_a_write_of_much_text_counts_as_so_many_of_4_kib() {
        let tokens = |bytes| Cost::of(false, bytes).tokens;
        assert_eq!([0, 1, 4 << 10, (4 << 10) + 1, 1 << 20].map(tokens), [1, 1, 1, 2, 256]);
        let (mut budgets, plugin) = (budgets(), Arc::from("a"));
        let mut spend = || budgets.spend(0, &plugin, Cost::of(false, 1 << 20), None);
        assert!(spend().is_none() && spend().is_none(), "512 of 600");
        assert_eq!(spend().expect("it is over the budget").until_ms, 16_800, "168 at ten a second");
    }

    #[test]
    fn creates_have_a_smaller_budget_of_their_own() {
        let (mut budgets, plugin) = (budgets(), Arc::from("a"));
        for _ in 0..60 {
            assert!(budgets.spend(0, &plugin, CREATE, None).is_none());
        }
        let debt = budgets.spend(0, &plugin, CREATE, None).expect("the 61st is over the budget");
        assert_eq!(debt.until_ms, 1_000);
        assert!(
            debt.message.contains("60 creates") && debt.message.contains("--plugin-creates-per-minute"),
            "{debt:?}"
        );
        assert!(budgets.spend(0, &Arc::from("b"), CREATE, None).is_none(), "another plugin has its own budget");
    }

    #[test]
    fn full_buckets_are_forgotten_and_debts_are_not() {
        let mut budgets = budgets();
        let debtor = Arc::from("debtor");
        for _ in 0..62 {
            budgets.spend(0, &debtor, CREATE, None);
        }
        for number in 0..1_000_u64 {
            let granted = (number % 3 == 0).then_some(1 + u32::try_from(number).unwrap() * 1_000);
            budgets.spend(number, &number.to_string().into(), OTHER, granted);
        }
        assert!(budgets.accounts.len() < 300, "{}", budgets.accounts.len());
        assert!(budgets.spend(999, &debtor, CREATE, None).is_some());
    }

    #[test]
    fn g10_a_granted_budget_replaces_the_hosts_also_a_larger_one() {
        for granted in [2, 1_000] {
            let (mut budgets, plugin) = (budgets(), Arc::from("a"));
            let mut spend = |creates| budgets.spend(0, &plugin, creates, Some(granted));
            assert!((0..granted).all(|_| spend(CREATE).is_none()), "{granted} creates");
            let debt = spend(OTHER).expect("one beyond it");
            let expected = format!("budget of {granted} writes a minute");
            assert!(
                debt.message.contains(&expected) && debt.message.contains("spec.grants.writesPerMinute"),
                "{debt:?}"
            );
        }
    }

    #[test]
    fn g11_the_plugins_of_a_tenant_have_one_budget_together() {
        let mut budgets = budgets();
        let plugins: Vec<Arc<str>> = (0..16).map(|number| format!("team-a.p{number}").into()).collect();
        let sent = plugins.iter().cycle().take(60).filter(|plugin| budgets.spend(0, plugin, CREATE, None).is_none());
        assert_eq!(sent.count(), 60);
        let debt = budgets.spend(0, &plugins[7], CREATE, None).expect("one beyond it");
        assert!(debt.message.starts_with("team-a.* is over its budget of 60 creates"), "{}", debt.message);
        assert!(budgets.spend(0, &"team-b.p0".into(), CREATE, None).is_none(), "another tenant has its own");
        assert!(budgets.spend(0, &"podset".into(), CREATE, None).is_none());
    }

    #[test]
    fn g11_a_number_that_one_plugin_of_a_tenant_is_granted_holds_it_and_no_other_of_the_tenant() {
        let mut budgets = budgets();
        let [held, other] = ["team-a.held", "team-a.other"].map(Arc::from);
        let mut sent = 0;
        for _ in 0..100 {
            sent += usize::from(budgets.spend(0, &held, OTHER, Some(30)).is_none());
            assert!(budgets.spend(0, &other, OTHER, None).is_none());
        }
        assert_eq!(sent, 30);
        let debt = budgets.spend(0, &held, OTHER, Some(30)).unwrap();
        assert!(debt.message.starts_with("team-a.held is over its budget of 30 writes"), "{}", debt.message);
        assert_eq!((0..600).filter(|_| budgets.spend(0, &other, OTHER, None).is_none()).count(), 399, "of both");
    }
}
