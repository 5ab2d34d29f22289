//! What users of the queue rely on: order, coalescing, fairness, delays.

use super::*;

fn key(controller: u32, name: &str) -> Key {
    Key { controller: ControllerId(controller), name: Name::new("default", name) }
}

fn take(queue: &mut WorkQueue, now_ms: u64) -> Option<String> {
    queue.take(now_ms, |_| true).map(|taken| taken.key.name.name.to_string())
}

#[test]
fn q1_a_burst_for_one_key_is_one_entry() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    assert!(queue.add(0, &plugin, key(0, "a"), Lane::Live));
    for now_ms in 1..100 {
        assert!(!queue.add(now_ms, &plugin, key(0, "a"), Lane::Live));
    }
    assert_eq!(queue.take(100, |_| true), Some(Taken { key: key(0, "a"), queued_ms: 100 }));
    assert_eq!(take(&mut queue, 100), None);
}

#[test]
fn q2_live_goes_before_retry_before_resync() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "resync"), Lane::Resync);
    queue.add(1, &plugin, key(0, "retry"), Lane::Retry);
    queue.add(2, &plugin, key(0, "live"), Lane::Live);
    let order: Vec<_> = std::iter::from_fn(|| take(&mut queue, 3)).collect();
    assert_eq!(order, ["live", "retry", "resync"]);
}

#[test]
fn q2_a_key_is_promoted_to_a_higher_lane_and_keeps_its_age() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "a"), Lane::Resync);
    queue.add(10, &plugin, key(0, "b"), Lane::Retry);
    queue.add(20, &plugin, key(0, "a"), Lane::Live);
    assert_eq!(queue.take(30, |_| true), Some(Taken { key: key(0, "a"), queued_ms: 30 }));
    assert_eq!(take(&mut queue, 30).as_deref(), Some("b"));
    assert_eq!(take(&mut queue, 30), None);
}

#[test]
fn q2_a_lower_lane_is_never_starved_by_steady_live_work() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "resync"), Lane::Resync);
    for now_ms in 0..AGEING_MS {
        queue.add(now_ms, &plugin, key(0, "live"), Lane::Live);
        assert_eq!(take(&mut queue, now_ms).as_deref(), Some("live"));
    }
    queue.add(AGEING_MS, &plugin, key(0, "live"), Lane::Live);
    assert_eq!(take(&mut queue, AGEING_MS).as_deref(), Some("resync"));
}

#[test]
fn q2_plugins_share_by_measured_time_and_idleness_earns_no_credit() {
    let mut queue = WorkQueue::default();
    let (slow, quick): (Arc<str>, Arc<str>) = (Arc::from("slow"), Arc::from("quick"));
    let mut taken = BTreeMap::from([("slow", 0), ("quick", 0)]);
    for round in 0..1_000 {
        queue.add(round, &slow, key(0, "s"), Lane::Live);
        queue.add(round, &quick, key(1, "q"), Lane::Live);
        let name = take(&mut queue, round).unwrap();
        let (plugin, cost_us) = if name == "s" { ("slow", 900) } else { ("quick", 100) };
        queue.charge(plugin, cost_us);
        *taken.get_mut(plugin).unwrap() += 1;
    }
    assert!((880..=920).contains(&taken["quick"]), "{taken:?}");
    // One that comes late goes first once, not a thousand times.
    let late: Arc<str> = Arc::from("late");
    queue.add(2_000, &late, key(2, "l"), Lane::Live);
    assert!(queue.shares["late"].used_us >= 80_000, "{:?}", queue.shares);
}

#[test]
fn q2_lanes_hold_among_the_controllers_of_one_plugin_too() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "resync"), Lane::Resync);
    queue.add(1, &plugin, key(1, "live"), Lane::Live);
    assert_eq!(take(&mut queue, 2).as_deref(), Some("live"));
    queue.add(3, &plugin, key(1, "later"), Lane::Live);
    assert_eq!(take(&mut queue, AGEING_MS).as_deref(), Some("resync"));
    assert_eq!(take(&mut queue, AGEING_MS).as_deref(), Some("later"));
}

#[test]
fn q4_a_controller_that_may_not_run_does_not_hold_up_others() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "full"), Lane::Live);
    queue.add(0, &plugin, key(1, "free"), Lane::Live);
    let taken = queue.take(0, |controller| controller == ControllerId(1)).unwrap();
    assert_eq!(&*taken.key.name.name, "free");
    assert_eq!(take(&mut queue, 0).as_deref(), Some("full"));
}

#[test]
fn delayed_keys_come_when_due_and_the_earlier_moment_wins() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add_at(1_000, &plugin, key(0, "a"), Lane::Retry);
    queue.add_at(500, &plugin, key(0, "a"), Lane::Retry);
    queue.add_at(900, &plugin, key(0, "a"), Lane::Retry);
    assert_eq!(queue.next_due_ms(), Some(500));
    assert!(queue.release(499).is_empty());
    assert_eq!(queue.release(500), [(key(0, "a"), Lane::Retry)]);
    assert_eq!(queue.next_due_ms(), None);
    assert_eq!(take(&mut queue, 500).as_deref(), Some("a"));
}

#[test]
fn a_removed_controller_leaves_nothing_behind() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "a"), Lane::Live);
    queue.add_at(10, &plugin, key(0, "b"), Lane::Retry);
    queue.remove_controller(ControllerId(0));
    assert!(queue.is_empty() && queue.next_due_ms().is_none());
    assert!(queue.shares.is_empty() && queue.lines.is_empty());
}

#[test]
fn lines_are_occupied_exactly_while_somebody_stands_in_them() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    for name in ["a", "b", "c"] {
        queue.add(0, &plugin, key(0, name), Lane::Resync);
    }
    queue.add(0, &plugin, key(0, "a"), Lane::Live);
    queue.add(0, &plugin, key(1, "d"), Lane::Live);
    assert_eq!((queue.occupied.len(), queue.shares["p"].occupied), (2, 2));
    queue.remove(&key(0, "b"));
    for expected in ["a", "d", "c"] {
        assert!(!queue.is_empty());
        assert_eq!(take(&mut queue, 1).as_deref(), Some(expected));
    }
    queue.remove(&key(0, "c"));
    assert!(queue.is_empty() && queue.shares["p"].occupied == 0);
    queue.add(2, &plugin, key(0, "c"), Lane::Live);
    queue.remove_controller(ControllerId(0));
    assert!(queue.is_empty() && queue.shares["p"].occupied == 0, "the other controller's line is still there");
}
