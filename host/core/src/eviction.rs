//! Evictions that a PodDisruptionBudget blocks: when each is tried again, and a message for people. A blocked eviction
//! is no failure, so its delay grows to a minute and not to a quarter of an hour.

use std::collections::BTreeMap;

use crate::heap::HeapBytes;
use crate::object::ObjectRef;

/// The first delay, as in `kubectl drain`.
const FIRST_RETRY_MS: u64 = 5_000;
/// The longest delay, reached by doubling. The delays start anew when something that the plugin reads changes.
const LONGEST_RETRY_MS: u64 = 60_000;
/// Budgets that a message names.
const MAX_SHOWN: usize = 3;

/// The blocked evictions of one reconciled object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocked {
    pods: BTreeMap<ObjectRef, Wait>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Wait {
    /// The API server's message, which names the budget.
    message: String,
    refusals: u32,
    tried_ms: u64,
    again_ms: u64,
}

impl HeapBytes for Blocked {
    fn heap_bytes(&self) -> usize {
        self.pods.heap_bytes()
    }
}

impl HeapBytes for Wait {
    fn heap_bytes(&self) -> usize {
        self.message.heap_bytes()
    }
}

impl Blocked {
    /// Records that the API server refused an eviction.
    pub fn refuse(&mut self, pod: &ObjectRef, message: &str, now_ms: u64) {
        let refusals = self.pods.get(pod).map_or(0, |wait| wait.refusals).saturating_add(1);
        let delay_ms = FIRST_RETRY_MS.saturating_mul(1 << (refusals - 1).min(16)).min(LONGEST_RETRY_MS);
        let wait = Wait { message: message.to_owned(), refusals, tried_ms: now_ms, again_ms: now_ms + delay_ms };
        self.pods.insert(pod.clone(), wait);
    }

    /// Removes a Pod that was evicted or deleted.
    pub fn forget(&mut self, pod: &ObjectRef) {
        self.pods.remove(pod);
    }

    /// Removes the Pods that are not to be evicted any more.
    pub fn keep(&mut self, is_wanted: impl Fn(&ObjectRef) -> bool) {
        self.pods.retain(|pod, _| is_wanted(pod));
    }

    /// Resets all delays to the first one, because something that the plugin reads has changed, perhaps the budget.
    pub fn hurry(&mut self) {
        for wait in self.pods.values_mut() {
            wait.refusals = 0;
            wait.again_ms = wait.again_ms.min(wait.tried_ms + FIRST_RETRY_MS);
        }
    }

    /// Whether this Pod's eviction is due.
    pub fn may_try(&self, pod: &ObjectRef, now_ms: u64) -> bool {
        self.pods.get(pod).is_none_or(|wait| wait.again_ms <= now_ms)
    }

    /// When the next eviction is due.
    pub fn next_ms(&self) -> Option<u64> {
        self.pods.values().map(|wait| wait.again_ms).min()
    }

    /// A message for people; None when no eviction is blocked.
    pub fn message(&self) -> Option<String> {
        let mut budgets: BTreeMap<&str, (&ObjectRef, usize)> = BTreeMap::new();
        for (pod, wait) in &self.pods {
            budgets.entry(&wait.message).or_insert((pod, 0)).1 += 1;
        }
        let shown = budgets.iter().take(MAX_SHOWN).map(|(message, (pod, count))| match count {
            1 => format!("{pod}: {message}"),
            _ => format!("{pod} and {} more: {message}", count - 1),
        });
        let rest = budgets.len().saturating_sub(MAX_SHOWN);
        let shown: Vec<String> = shown.chain((rest > 0).then(|| format!("and {rest} more budgets"))).collect();
        (!shown.is_empty()).then(|| shown.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, Name};

    fn pod(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("default", name) }
    }

    #[test]
    fn a_refused_eviction_is_tried_again_after_5_s_with_delays_that_double_up_to_a_minute() {
        let mut blocked = Blocked::default();
        let mut now_ms = 0;
        for expected_ms in [5_000, 10_000, 20_000, 40_000, 60_000, 60_000] {
            assert!(blocked.may_try(&pod("a"), now_ms));
            blocked.refuse(&pod("a"), "the budget web", now_ms);
            assert_eq!(blocked.next_ms(), Some(now_ms + expected_ms));
            assert!(!blocked.may_try(&pod("a"), now_ms + expected_ms - 1) && blocked.may_try(&pod("b"), now_ms));
            now_ms += expected_ms;
        }
        blocked.refuse(&pod("a"), "the budget web", now_ms);
        blocked.hurry();
        assert_eq!(blocked.next_ms(), Some(now_ms + 5_000));
        blocked.forget(&pod("a"));
        assert_eq!((blocked.next_ms(), blocked.message()), (None, None));
    }

    #[test]
    fn the_message_names_each_budget_once_and_one_of_its_pods() {
        let mut blocked = Blocked::default();
        for (name, budget) in [("a", "web"), ("b", "db"), ("c", "web")] {
            blocked.refuse(&pod(name), &format!("The disruption budget {budget} needs 2"), 0);
        }
        let expected = "Pod default/b: The disruption budget db needs 2; Pod default/a and 1 more: The disruption budget web \
                        needs 2";
        assert_eq!(blocked.message().as_deref(), Some(expected));
        blocked.keep(|of| *of == pod("b"));
        assert_eq!(blocked.message().as_deref(), Some("Pod default/b: The disruption budget db needs 2"));
    }
}
