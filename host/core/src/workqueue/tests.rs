//! Order, coalescing, fairness and delays of the queue.

use super::*;
use crate::allocations::{Count, counted};

fn key(controller: u32, name: &str) -> Key {
    Key { controller: ControllerId(controller), name: Name::new("default", name) }
}

fn take(queue: &mut WorkQueue, now_ms: u64) -> Option<String> {
    queue.take(now_ms, |_| MayRun::Yes).map(|taken| taken.key.name.name.to_string())
}

#[test]
fn q1_a_burst_for_one_key_is_one_entry() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    assert!(queue.add(0, &plugin, key(0, "a"), Lane::Live));
    for now_ms in 1..100 {
        assert!(!queue.add(now_ms, &plugin, key(0, "a"), Lane::Live));
    }
    assert_eq!(queue.take(100, |_| MayRun::Yes), Some(Taken { key: key(0, "a"), queued_ms: 100 }));
    assert_eq!(take(&mut queue, 100), None);
}

#[test]
fn q2_live_comes_before_retry_before_resync() {
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
    assert_eq!(queue.take(30, |_| MayRun::Yes), Some(Taken { key: key(0, "a"), queued_ms: 30 }));
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
    // A late plugin comes first once, not a thousand times.
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
fn q4_a_controller_that_may_not_run_delays_no_other() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add(0, &plugin, key(0, "full"), Lane::Live);
    queue.add(0, &plugin, key(1, "free"), Lane::Live);
    let may_run = |controller| if controller == ControllerId(1) { MayRun::Yes } else { MayRun::NotThisController };
    let taken = queue.take(0, may_run).unwrap();
    assert_eq!(&*taken.key.name.name, "free");
    assert_eq!(take(&mut queue, 0), None);
    queue.unpark(ControllerId(0));
    assert_eq!(take(&mut queue, 0).as_deref(), Some("full"));
}

#[test]
fn delayed_keys_are_added_when_due_and_the_earlier_time_wins() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    queue.add_at(1_000, &plugin, key(0, "a"), Lane::Retry);
    queue.add_at(500, &plugin, key(0, "a"), Lane::Retry);
    queue.add_at(900, &plugin, key(0, "a"), Lane::Retry);
    assert_eq!(queue.next_due_ms(), Some(500));
    assert!(queue.release(499, 10).is_empty());
    assert_eq!(queue.release(500, 10), [(key(0, "a"), Lane::Retry)]);
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
    assert!(queue.shares.is_empty() && queue.controllers.is_empty());
}

#[test]
fn q2_a_plugin_runs_for_a_quantum_and_those_of_equal_used_time_take_turns() {
    let mut queue = WorkQueue::default();
    let plugins = ["a", "b", "c"];
    for (controller, plugin) in (0..).zip(plugins) {
        for name in 0..6 {
            queue.add(0, &plugin.into(), key(controller, &format!("{plugin}{name}")), Lane::Live);
        }
    }
    let mut order = String::new();
    while let Some(taken) = queue.take(0, |_| MayRun::Yes) {
        order.push_str(&taken.key.name.name[..1]);
        queue.charge(plugins[taken.key.controller.0 as usize], QUANTUM_US / 2);
    }
    assert_eq!(order, "aabbccaabbccaabbcc");
}

/// A hundred plugins with resyncs, of which `rounds` keys each were taken.
fn busy(rounds: usize) -> WorkQueue {
    let mut queue = WorkQueue::default();
    add_to_all(&mut queue, Lane::Resync);
    (0..100 * rounds).for_each(|_| _ = run(&mut queue));
    queue
}

fn add_to_all(queue: &mut WorkQueue, lane: Lane) {
    for controller in 0..100 {
        let plugin: Arc<str> = format!("p{controller}").into();
        (0..100).for_each(|name| _ = queue.add(0, &plugin, key(controller, &name.to_string()), lane));
    }
}

/// Takes a key and charges its plugin about a tenth of a turn. Returns its controller.
fn run(queue: &mut WorkQueue) -> u32 {
    let controller = queue.take(0, |_| MayRun::Yes).unwrap().key.controller.0;
    queue.charge(&format!("p{controller}"), QUANTUM_US / 10 + u64::from(controller));
    controller
}

#[test]
fn q2_a_live_key_comes_before_the_resyncs_of_all_plugins_also_of_one_that_just_had_its_turn() {
    for rounds in [0, 1, 25] {
        for controller in (0..=100).step_by(10) {
            let mut queue = busy(rounds);
            queue.add(0, &format!("p{controller}").into(), key(controller, "live"), Lane::Live);
            assert_eq!(run(&mut queue), controller, "after {rounds} rounds");
        }
    }
}

#[test]
fn q4_a_plugin_that_was_idle_waits_for_one_turn_of_another_at_most_and_a_parked_one_keeps_its_turn() {
    let mut queue = busy(25);
    add_to_all(&mut queue, Lane::Live);
    (0..500).for_each(|_| _ = run(&mut queue));
    queue.add(0, &"p100".into(), key(100, "late"), Lane::Live);
    let before = (0..).take_while(|_| run(&mut queue) != 100).count();
    assert!(before <= 10, "{before} live keys of others came first, more than one turn");

    let running = run(&mut queue);
    let taken = queue.take(0, |id| if id.0 == running { MayRun::NotThisShare(ParkedFor::Calls) } else { MayRun::Yes });
    assert_ne!(taken.unwrap().key.controller.0, running);
    queue.unpark_share(&format!("p{running}"));
    assert_eq!(run(&mut queue), running);
}

#[test]
fn q4_a_plugin_that_could_not_run_for_long_keeps_the_credit_of_one_turn() {
    let mut queue = WorkQueue::default();
    for controller in [0, 1] {
        let plugin: Arc<str> = format!("p{controller}").into();
        (0..1_000).for_each(|name| _ = queue.add(0, &plugin, key(controller, &name.to_string()), Lane::Resync));
    }
    let not_ready = |id: ControllerId| if id.0 == 0 { MayRun::NotThisController } else { MayRun::Yes };
    for _ in 0..500 {
        assert_eq!(queue.take(0, not_ready).unwrap().key.controller.0, 1);
        queue.charge("p1", QUANTUM_US / 10);
    }
    queue.unpark(ControllerId(0));
    let ran: Vec<u32> = (0..60).map(|_| run(&mut queue)).collect();
    let of_late = ran.iter().filter(|controller| **controller == 0).count();
    assert!((30..=45).contains(&of_late), "{of_late} of 60: {ran:?}");
}

#[test]
fn q4_a_plugin_that_was_idle_keeps_the_credit_of_one_turn_also_after_a_resync() {
    let (mut queue, busy, resync): (_, Arc<str>, Arc<str>) = (WorkQueue::default(), "p0".into(), "p1".into());
    (0..1_000).for_each(|name| _ = queue.add(0, &busy, key(0, &name.to_string()), Lane::Live));
    (0..1_000).for_each(|name| _ = queue.add(0, &resync, key(1, &name.to_string()), Lane::Resync));
    while run(&mut queue) == 0 {}
    let idle: Arc<str> = "p2".into();
    (0..1_000).for_each(|name| _ = queue.add(0, &idle, key(2, &name.to_string()), Lane::Live));
    let ran: Vec<u32> = (0..60).map(|_| run(&mut queue)).collect();
    let of_idle = ran.iter().take_while(|controller| **controller == 2).count();
    assert!((1..=15).contains(&of_idle), "{of_idle} in a row: {ran:?}");
}

#[test]
fn q4_a_parked_plugin_waits_with_all_its_controllers_until_it_is_unparked() {
    let mut queue = WorkQueue::default();
    let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
    queue.add(0, &greedy, key(0, "a"), Lane::Live);
    queue.add(0, &greedy, key(1, "b"), Lane::Live);
    queue.add(0, &other, key(2, "c"), Lane::Live);
    let mut checked = Vec::new();
    let taken = queue.take(0, |controller| {
        checked.push(controller.0);
        if controller.0 < 2 { MayRun::NotThisShare(ParkedFor::Calls) } else { MayRun::Yes }
    });
    assert_eq!((taken.unwrap().key, checked), (key(2, "c"), vec![0, 2]));
    queue.charge("greedy", 10);
    queue.add(1, &greedy, key(0, "d"), Lane::Live);
    queue.unpark(ControllerId(0));
    queue.unpark_share("other");
    assert_eq!(take(&mut queue, 1), None);
    queue.unpark_share("greedy");
    assert_eq!(queue.take(1, |_| MayRun::NotThisShare(ParkedFor::Calls)), None);
    queue.unpark_shares(ParkedFor::Writes, |_| true);
    assert_eq!(queue.take(1, |_| MayRun::Yes), None, "it had used up its calls, not its writes");
    queue.unpark_shares(ParkedFor::Calls, |plugin| plugin != "greedy");
    assert_eq!(queue.take(1, |_| MayRun::Yes), None, "it still may not run");
    queue.unpark_shares(ParkedFor::Calls, |_| true);
    let order: Vec<_> = std::iter::from_fn(|| take(&mut queue, 1)).collect();
    assert_eq!(order, ["a", "b", "d"]);
}

/// A thousand controllers with `keys` keys each; a plugin has `of_plugin` of them.
fn full(of_plugin: u32, keys: u32) -> WorkQueue {
    let mut queue = WorkQueue::default();
    for controller in 0..1_000 {
        let plugin: Arc<str> = format!("p{}", controller / of_plugin).into();
        (0..keys).for_each(|name| _ = queue.add(0, &plugin, key(controller, &name.to_string()), Lane::Resync));
    }
    queue
}

#[test]
fn a_take_checks_only_the_controller_of_its_key() {
    for of_plugin in [1, 1_000] {
        let mut queue = full(of_plugin, 100);
        let (mut checked, mut taken) = (0, 0);
        while let Some(next) = queue.take(1, |_| {
            checked += 1;
            MayRun::Yes
        }) {
            taken += 1;
            queue.charge(&format!("p{}", next.key.controller.0 / of_plugin), 100);
        }
        assert_eq!((checked, taken), (100_000, 100_000));
    }
}

#[test]
fn a_controller_that_may_not_run_is_checked_once() {
    for of_plugin in [1, 1_000] {
        let mut queue = full(of_plugin, 10);
        let (mut checked, mut taken) = (0, 0);
        let mut may_run = |controller: ControllerId| {
            checked += 1;
            if controller.0 == 999 { MayRun::Yes } else { MayRun::NotThisController }
        };
        while queue.take(1, &mut may_run).is_some() {
            taken += 1;
        }
        assert_eq!((checked, taken), (999 + 10, 10));
        queue.unpark(ControllerId(5));
        assert_eq!(queue.take(1, |_| MayRun::Yes).map(|taken| taken.key.controller), Some(ControllerId(5)));
    }
}

#[test]
fn an_empty_queue_and_a_delayed_key_take_little_memory() {
    const CONTROLLERS: u32 = 1_000;
    let plugins: Vec<Arc<str>> = (0..CONTROLLERS).map(|number| format!("p{number}").into()).collect();
    let names: Vec<Name> = (0..100).map(|number| Name::new("default", &number.to_string())).collect();
    let mut queue = WorkQueue::default();
    let each = |work: &mut dyn FnMut(&Arc<str>, Key)| {
        for (number, plugin) in (0..).zip(&plugins) {
            names.iter().for_each(|name| work(plugin, Key { controller: ControllerId(number), name: name.clone() }));
        }
    };
    let (Count { held_bytes, .. }, ()) = counted(|| {
        each(&mut |plugin, key| _ = queue.add(0, plugin, key, Lane::Resync));
        while queue.take(1, |_| MayRun::Yes).is_some() {}
    });
    let of_controller = held_bytes / 1_000;
    let (Count { held_bytes, .. }, ()) = counted(|| {
        each(&mut |plugin, key| queue.add_at(u64::from(key.controller.0) * 7_919 % 1_000, plugin, key, Lane::Resync));
    });
    let of_key = held_bytes / 100_000;
    assert!(of_controller <= 550 && of_key <= 200, "{of_controller} and {of_key} bytes");
}

#[test]
fn a_controller_is_occupied_exactly_while_it_has_a_key() {
    let (mut queue, plugin) = (WorkQueue::default(), Arc::from("p"));
    for name in ["a", "b", "c"] {
        queue.add(0, &plugin, key(0, name), Lane::Resync);
    }
    queue.add(0, &plugin, key(0, "a"), Lane::Live);
    queue.add(0, &plugin, key(1, "d"), Lane::Live);
    assert_eq!(queue.shares["p"].occupied, 2);
    queue.remove(&key(0, "b"));
    for expected in ["a", "d", "c"] {
        assert!(!queue.is_empty());
        assert_eq!(take(&mut queue, 1).as_deref(), Some(expected));
    }
    queue.remove(&key(0, "c"));
    assert!(queue.is_empty() && queue.shares["p"].occupied == 0);
    queue.add(2, &plugin, key(0, "c"), Lane::Live);
    queue.remove_controller(ControllerId(0));
    assert!(queue.is_empty() && queue.shares["p"].occupied == 0, "the other controller is still queued");
}

#[test]
fn q4_keys_that_are_due_together_are_released_in_pieces_and_as_many_of_each_controller() {
    let mut queue = WorkQueue::default();
    for number in 0..1_000 {
        queue.add_at(100, &"greedy".into(), key(1, &number.to_string()), Lane::Retry);
    }
    queue.add_at(500, &"honest".into(), key(2, "a"), Lane::Retry);
    let released = queue.release(1_000, 100);
    let of = |id| released.iter().filter(|(key, _)| key.controller == ControllerId(id)).count();
    assert_eq!((of(1), of(2)), (50, 1));
    assert_eq!(queue.next_due_ms(), Some(100), "the others are still due");
    let mut left = 0;
    while queue.next_due_ms().is_some() {
        let released = queue.release(1_000, 100).len();
        assert!((1..=100).contains(&released));
        left += released;
    }
    assert_eq!(left, 950);
}
