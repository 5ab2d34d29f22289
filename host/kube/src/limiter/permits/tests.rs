//! The permits alone, with a simulated clock.

use std::sync::Arc;

use super::super::{READS, WRITES};
use super::*;

type Plugin = Option<Arc<str>>;

const HOST: Plugin = None;

fn plugin(name: impl ToString) -> Plugin {
    Some(name.to_string().into())
}

/// Requests that end when a test says so.
struct Host {
    permits: Permits<Plugin>,
    now: Instant,
    in_flight: Vec<(Plugin, Ticket)>,
    /// Those that have ended and still have their permits, with when they leave.
    ended: Vec<(Instant, Plugin, Ticket)>,
    waiting: Vec<(Plugin, Ticket)>,
}

impl Host {
    fn new() -> Self {
        let (in_flight, ended, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Self { permits: Permits::new(WRITES), now: Instant::now(), in_flight, ended, waiting }
    }

    /// True when it is sent at once.
    fn enter(&mut self, plugin: &Plugin) -> bool {
        let (ticket, granted) = self.permits.enter(self.now, plugin);
        self.waiting.push((plugin.clone(), ticket));
        self.send(&granted);
        granted.contains(&ticket)
    }

    /// Returns how many of `count` are sent at once.
    fn enter_many(&mut self, plugin: &Plugin, count: usize) -> usize {
        (0..count).filter(|_| self.enter(plugin)).count()
    }

    /// Ends a request of `in_flight`; returns the flows of those that are sent now.
    fn end(&mut self, at: usize) -> Vec<Plugin> {
        let (plugin, ticket) = self.in_flight.remove(at);
        let keeps = self.permits.end(self.now, &plugin, ticket);
        if keeps.is_zero() {
            return self.leave(&plugin, ticket);
        }
        self.ended.push((self.now + keeps, plugin, ticket));
        Vec::new()
    }

    /// Time passes, in which those that have ended leave.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.ended.sort();
        while self.ended.first().is_some_and(|(at, _, _)| *at <= until) {
            let (at, plugin, ticket) = self.ended.remove(0);
            self.now = at;
            self.leave(&plugin, ticket);
        }
        self.now = until;
    }

    fn leave(&mut self, plugin: &Plugin, ticket: Ticket) -> Vec<Plugin> {
        let granted = self.permits.leave(self.now, plugin, ticket);
        self.send(&granted)
    }

    fn send(&mut self, granted: &[Ticket]) -> Vec<Plugin> {
        let (granted, waiting): (Vec<_>, _) = self.waiting.drain(..).partition(|(_, ticket)| granted.contains(ticket));
        self.waiting = waiting;
        self.in_flight.extend(granted.iter().cloned());
        granted.into_iter().map(|(plugin, _)| plugin).collect()
    }

    /// Ends the requests in flight, but not those that are sent because of that.
    fn end_all(&mut self) {
        for _ in 0..self.in_flight.len() {
            self.end(0);
        }
    }

    /// All requests end, after as long each as is said.
    fn finish(&mut self, each: Duration) {
        while !self.in_flight.is_empty() || !self.ended.is_empty() {
            self.pass(each);
            self.end_all();
            self.pass(HANGS);
        }
    }

    /// The permits that a plugin has.
    fn of(&self, plugin: &Plugin) -> usize {
        let ended = self.ended.iter().map(|(_, other, _)| other);
        self.in_flight.iter().map(|(other, _)| other).chain(ended).filter(|other| *other == plugin).count()
    }
}

#[test]
fn q4_beside_a_hundred_plugins_whose_writes_hang_another_writes_and_so_does_the_host() {
    let mut host = Host::new();
    for hung in 0..100 {
        assert!(host.enter_many(&plugin(hung), 100) >= 1, "plugin {hung}");
    }
    assert_eq!(host.in_flight.len(), WRITES.shared + 100);
    assert!(host.enter(&plugin("another")));
    assert_eq!(host.enter_many(&HOST, 9), 8, "its own ones");
}

#[test]
fn q4_a_plugin_whose_writes_hang_gets_no_more_of_the_pool_and_again_more_when_they_end_in_time() {
    let mut host = Host::new();
    let (hung, other) = (plugin("hung"), plugin("other"));
    let had = 1 + WRITES.of_one / 2;
    assert_eq!(host.enter_many(&hung, had), had);
    host.pass(HANGS + Duration::from_millis(1));
    assert_eq!((host.enter_many(&hung, 10), host.enter_many(&other, 10)), (0, 1 + WRITES.of_one));
    // All time out after ten seconds.
    host.pass(Duration::from_secs(9));
    host.end_all();
    host.pass(HANGS);
    assert_eq!(host.of(&hung), 1, "its own permit");
    host.pass(Duration::from_secs(30));
    host.end_all();
    host.pass(HANGS - SMALL);
    for in_flight in [2, 3, 5, 9] {
        host.enter_many(&hung, 30);
        while let Some(at) = host.in_flight.iter().position(|(plugin, _)| *plugin == hung) {
            host.pass(Duration::from_millis(1));
            host.end(at);
            if host.of(&hung) >= in_flight {
                break;
            }
        }
        assert!(host.of(&hung) >= in_flight, "{in_flight}");
    }
}

#[test]
fn q4_plugins_whose_writes_hang_again_and_again_leave_the_pool_to_others() {
    let mut host = Host::new();
    for _ in 0..3 {
        for hung in 0..100 {
            host.enter_many(&plugin(hung), 10);
        }
        host.pass(Duration::from_secs(10));
        host.end_all();
    }
    assert_eq!(host.permits.taken, 0, "each has one permit, its own");
    assert_eq!(host.enter_many(&plugin("another"), 100), 1 + WRITES.of_one);
}

/// How long the writes of a plugin are in flight in a minute, together, and how many at most, when more wait and each takes so
/// many milliseconds, by its ticket.
fn in_flight_in_a_minute(host: &mut Host, plugin: &Plugin, ms: impl Fn(Ticket) -> u64) -> (Duration, usize) {
    let (tick, mut in_flight, mut most) = (Duration::from_millis(1), Duration::ZERO, 0);
    let mut since = BTreeMap::new();
    for _ in 0..60_000 {
        host.enter_many(plugin, 20_usize.saturating_sub(host.waiting.len()));
        let now = host.now;
        while let Some(at) = host.in_flight.iter().position(|(_, ticket)| {
            now.duration_since(*since.entry(*ticket).or_insert(now)) >= Duration::from_millis(ms(*ticket))
        }) {
            host.end(at);
        }
        most = most.max(host.in_flight.len());
        in_flight += tick * u32::try_from(host.in_flight.len()).unwrap();
        host.pass(tick);
    }
    (in_flight, most)
}

#[test]
fn q4_a_plugin_has_nine_writes_in_flight_while_they_are_small_or_it_has_time_saved_up_and_then_one_half_of_the_time() {
    let all = 1 + WRITES.of_one;
    let (mut host, small) = (Host::new(), plugin("small"));
    for _ in 0..2 {
        let (in_flight, most) = in_flight_in_a_minute(&mut host, &small, |_| 25);
        assert!(in_flight >= Duration::from_secs(59 * all as u64) && most == all, "{in_flight:?}, {most}");
    }
    for (ms, seconds) in [(125, 38), (700, 32)] {
        let (mut host, large) = (Host::new(), plugin("large"));
        let (first, most) = in_flight_in_a_minute(&mut host, &large, |_| ms);
        // With all in flight at the beginning, of which it knows nothing.
        let more = Duration::from_millis(10 * ms) + Duration::from_secs(2);
        assert!((Duration::from_secs(30)..=Duration::from_secs(seconds) + more).contains(&first), "{ms} ms: {first:?}");
        assert_eq!(most, all, "{ms} ms");
        let (next, most) = in_flight_in_a_minute(&mut host, &large, |_| ms);
        assert!((Duration::from_secs(29)..=Duration::from_secs(seconds)).contains(&next), "{ms} ms: {next:?}");
        assert!(most <= 2, "{ms} ms: {most}");
    }
}

#[test]
fn q4_small_writes_among_large_ones_let_no_more_of_these_into_flight() {
    for each in [2, 3, 10] {
        let (mut host, mixed) = (Host::new(), plugin("mixed"));
        let ms = |ticket: Ticket| if ticket.is_multiple_of(each) { 600 } else { 10 };
        for at_most in [45, 40] {
            let (in_flight, _) = in_flight_in_a_minute(&mut host, &mixed, ms);
            assert!(in_flight <= Duration::from_secs(at_most), "one in {each} is large: {in_flight:?}");
        }
    }
}

#[test]
fn q4_after_a_pause_and_a_small_write_a_plugin_of_large_ones_has_no_more_in_flight_than_it_has_time_for() {
    let (mut host, large) = (Host::new(), plugin("large"));
    in_flight_in_a_minute(&mut host, &large, |_| 700);
    host.finish(Duration::from_millis(700));
    host.pass(Duration::from_secs(60));
    assert!(host.enter(&large));
    host.pass(Duration::from_millis(1));
    host.end_all();
    host.enter_many(&large, 20);
    assert!(host.of(&large) <= 2, "{}", host.of(&large));
}

#[test]
fn q4_one_write_that_hangs_again_and_again_leaves_time_to_others_of_its_plugin() {
    let (mut host, hung) = (Host::new(), plugin("hung"));
    for _ in 0..10 {
        host.enter_many(&hung, 1);
        host.pass(Duration::from_secs(10));
        host.end_all();
    }
    host.pass(HANGS);
    for _ in 0..20 {
        host.enter_many(&hung, 5);
        host.pass(Duration::from_millis(1));
        host.end_all();
    }
    host.enter_many(&hung, 5);
    assert_eq!(host.of(&hung), 1 + WRITES.of_one);
}

#[test]
fn the_hosts_own_writes_are_not_counted_in_time() {
    let mut host = Host::new();
    for _ in 0..1_000 {
        assert_eq!(host.enter_many(&HOST, 12), 12);
        host.pass(Duration::from_millis(900));
        host.end_all();
    }
}

#[test]
fn of_those_that_wait_for_the_pool_the_one_with_the_least_of_it_is_next_and_then_the_first() {
    let mut host = Host::new();
    for busy in 0..WRITES.shared / WRITES.of_one {
        host.enter_many(&plugin(busy), 100);
    }
    assert_eq!(host.permits.taken, WRITES.shared);
    assert_eq!(host.enter_many(&plugin("d"), 3), 1);
    assert_eq!(host.enter_many(&plugin("e"), 3), 1);
    let mut end_of = |busy: i32| {
        let first = host.in_flight.iter().position(|(of, _)| *of == plugin(busy));
        host.end(first.expect("it has several in flight"))
    };
    let granted: Vec<Plugin> = (0..4).flat_map(&mut end_of).collect();
    assert_eq!(granted, ["d", "e", "d", "e"].map(plugin));
}

#[test]
fn the_requests_of_a_flow_are_sent_in_the_order_in_which_they_came() {
    let mut host = Host::new();
    let one = plugin("one");
    host.enter_many(&one, 1_000);
    let mut sent = Vec::new();
    while !host.in_flight.is_empty() {
        sent.push(host.in_flight[0].1);
        host.end(0);
    }
    assert_eq!(sent, (1..=1_000).collect::<Vec<_>>());
    assert!(host.permits.flows.is_empty() && host.permits.ready.is_empty());
    assert_eq!(host.permits.taken, 0);
}

#[test]
fn a_request_that_stops_waiting_leaves_its_place_to_the_next() {
    let mut host = Host::new();
    let one = plugin("one");
    host.enter_many(&one, 1 + WRITES.of_one + 2);
    let (_, ticket) = host.waiting.remove(0);
    let (_, second) = host.waiting[0];
    assert_eq!(host.leave(&one, ticket), []);
    host.end(0);
    assert_eq!(host.in_flight.last(), Some(&(one, second)));
}

#[test]
fn plugins_that_write_no_more_are_forgotten_and_of_those_whose_writes_hung_all_but_some() {
    let mut host = Host::new();
    for number in 0..=2 * REMEMBERED_PLUGINS {
        host.enter(&plugin(number));
        host.pass(Duration::from_millis(5));
        host.end(0);
    }
    assert!(host.permits.flows.len() <= REMEMBERED_PLUGINS);
    host.pass(Duration::from_secs(1));
    let hung = plugin("hung");
    host.enter(&hung);
    host.pass(Duration::from_secs(10));
    host.end(0);
    (0..=REMEMBERED_PLUGINS).for_each(|number| {
        host.enter(&plugin(number));
        host.pass(Duration::from_millis(5));
        host.end(0);
    });
    assert!(host.permits.flows.contains_key(&hung), "it was forgotten before those that cost nothing");
    for number in 0..=REMEMBERED_PLUGINS {
        host.enter(&plugin(number));
        host.pass(Duration::from_secs(10));
        host.end(0);
    }
    assert!(host.permits.flows.len() <= REMEMBERED_PLUGINS);
}

#[test]
fn ten_thousand_live_reads_at_once_leave_a_permit_to_each_other_kind() {
    let mut permits = Permits::new(READS);
    let kind = |kind: usize| mortise_core::object::Kind::new("example.com/v1", &format!("Kind{kind}"));
    let now = Instant::now();
    for of in 0..5 {
        let sent = (0..10_000).filter(|_| !permits.enter(now, &kind(of)).1.is_empty()).count();
        assert_eq!(sent, [1 + READS.of_one, 1 + READS.of_one, 1, 1, 1][of], "{of}");
    }
}

/// Pseudorandom numbers (xorshift), the same in each run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    }
}

#[test]
fn q4_in_any_order_of_events_the_bounds_hold_and_every_request_is_sent() {
    for seed in 1..=50 {
        let mut random = numbers(seed);
        let mut host = Host::new();
        let plugins: Vec<Plugin> = (0..8).map(plugin).chain([HOST]).collect();
        for _ in 0..2_000 {
            match random(8) {
                0..4 => drop(host.enter(&plugins[random(plugins.len())])),
                4 => host.pass(Duration::from_millis(random(3_000) as u64)),
                5 if !host.waiting.is_empty() => {
                    let (plugin, ticket) = host.waiting.remove(random(host.waiting.len()));
                    host.leave(&plugin, ticket);
                }
                _ if !host.in_flight.is_empty() => drop(host.end(random(host.in_flight.len()))),
                _ => {}
            }
            let own = |plugin: &Plugin| (WRITES.own)(plugin);
            let taken: Vec<usize> = plugins.iter().map(|plugin| host.of(plugin).saturating_sub(own(plugin))).collect();
            assert!(taken.iter().all(|taken| *taken <= WRITES.of_one), "seed {seed}: {taken:?}");
            assert_eq!(host.permits.taken, taken.iter().sum::<usize>(), "seed {seed}");
            assert!(host.permits.taken <= WRITES.shared, "seed {seed}");
            let waits = |plugin: &Plugin| host.waiting.iter().any(|(other, _)| other == plugin);
            let idle = plugins.iter().find(|plugin| waits(plugin) && host.of(plugin) < own(plugin));
            assert_eq!(idle, None, "seed {seed}: it waits beside a permit of its own");
        }
        host.finish(Duration::ZERO);
        assert_eq!(host.waiting, [], "seed {seed}");
        assert_eq!(host.permits.taken, 0, "seed {seed}");
    }
}
