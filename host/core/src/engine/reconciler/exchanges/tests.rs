//! The exchanges alone, with the results of a server as the tests say.

use super::in_flight::MAX_IN_FLIGHT;
use super::*;
use crate::http::Method;
use crate::object::Name;
use crate::workqueue::ControllerId;

/// Exchanges, and what is in flight.
struct Alone {
    exchanges: Exchanges,
    now: Now,
    sent: Vec<(HttpId, Key, Arc<OutgoingRequest>)>,
}

fn key(name: &str) -> Key {
    Key { controller: ControllerId(1), name: Name::new("default", name) }
}

fn request(name: &str, content: u128) -> Arc<OutgoingRequest> {
    Arc::new(OutgoingRequest::sample(name, content))
}

/// A request that changes something, with so many bytes of body.
fn post(name: &str, content: u128, bytes: usize) -> Arc<OutgoingRequest> {
    let body = vec![0; bytes].into();
    Arc::new(OutgoingRequest { method: Method::Post, body, ..OutgoingRequest::sample(name, content) })
}

fn response(status: u16) -> Sent {
    Sent::Response(Response { status, headers: Vec::new(), body: Arc::default() })
}

fn large(bytes: usize) -> Sent {
    Sent::Response(Response { status: 200, headers: Vec::new(), body: vec![0; bytes].into() })
}

fn failed(class: FailureClass) -> Sent {
    Sent::Failed(Failure { class, message: "no".into() })
}

impl Alone {
    fn new(per_minute: u32) -> Self {
        Self {
            exchanges: Exchanges::new(per_minute),
            now: Now { mono_ms: 1_000, unix_ms: 1_700_000_000_000 },
            sent: Vec::new(),
        }
    }

    fn run(&mut self) {
        self.sent.extend(self.exchanges.run(self.now.mono_ms, true));
    }

    fn want(&mut self, plugin: &str, name: &str, wanted: &[Arc<OutgoingRequest>]) {
        self.exchanges.want(&plugin.into(), &key(name), wanted, self.now.mono_ms);
        self.run();
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now.mono_ms += milliseconds;
        self.now.unix_ms += milliseconds;
        self.run();
    }

    /// The first request in flight ends. Whether its key has another reply.
    fn ends(&mut self, sent: Sent) -> bool {
        let (id, ..) = self.sent.remove(0);
        let woken = self.exchanges.on_done(id, sent, self.now).is_some();
        self.run();
        woken
    }

    /// The contents of the requests in flight.
    fn in_flight(&self) -> Vec<u128> {
        self.sent.iter().map(|(.., request)| request.fingerprint).collect()
    }

    /// The contents with their replies: a status, or the class of a failure.
    fn replies(&self, name: &str) -> Vec<(u128, String)> {
        let text = |replied: &Replied| match &replied.reply.result {
            Ok(response) => response.status.to_string(),
            Err(failure) => failure.class.as_str().to_owned(),
        };
        self.exchanges.replies(&key(name)).iter().map(|replied| (replied.fingerprint, text(replied))).collect()
    }

    /// Time passes until the next try. How long that took.
    fn until_sent(&mut self) -> u64 {
        self.until_sent_beside(&[])
    }

    fn until_sent_beside(&mut self, in_flight: &[u128]) -> u64 {
        let due_ms = self.exchanges.next_due_ms().expect("something is due");
        let wait_ms = due_ms - self.now.mono_ms;
        self.pass(wait_ms - 1);
        assert_eq!(self.in_flight(), in_flight, "not before it is due");
        self.pass(1);
        wait_ms
    }

    fn is_empty(&self) -> bool {
        let Exchanges { of_key, keys, due, parked, in_flight, held, denials, kept, .. } = &self.exchanges;
        of_key.is_empty()
            && keys.is_empty()
            && due.is_empty()
            && parked.is_empty()
            && in_flight.is_empty()
            && held.is_empty()
            && denials.is_empty()
            && kept.total() == 0
    }
}

#[test]
fn a_request_is_sent_once_for_as_long_as_outcomes_contain_it() {
    let mut alone = Alone::new(600);
    alone.want("dns", "a", &[request("zone", 1)]);
    alone.want("dns", "a", &[request("zone", 1)]);
    assert_eq!((alone.in_flight(), alone.replies("a")), (vec![1], vec![]));
    assert!(alone.ends(response(404)), "also 404 is a response");
    assert_eq!(alone.replies("a"), [(1, "404".to_owned())]);
    alone.want("dns", "a", &[request("zone", 1), request("record", 2)]);
    alone.pass(86_400_000);
    assert_eq!((alone.in_flight(), alone.exchanges.next_due_ms()), (vec![2], None));
    alone.want("dns", "a", &[]);
    assert_eq!(alone.replies("a"), []);
    assert!(!alone.ends(response(200)) && alone.is_empty(), "the result of a request that is not wanted is dropped");
    alone.want("dns", "a", &[request("zone", 1)]);
    assert_eq!(alone.in_flight(), [1], "it is another request when it comes back");
}

#[test]
fn the_late_response_of_a_former_request_is_dropped() {
    let mut alone = Alone::new(600);
    alone.want("dns", "a", &[request("zone", 1)]);
    alone.want("dns", "a", &[request("zone", 2)]);
    assert_eq!(alone.in_flight(), [1, 2]);
    alone.sent.reverse();
    assert!(alone.ends(response(202)));
    assert!(!alone.ends(response(201)));
    assert_eq!(alone.replies("a"), [(2, "202".to_owned())]);
}

#[test]
fn x1_a_successor_waits_for_a_former_request_that_changes_something() {
    for sent in [response(200), response(503), failed(FailureClass::Timeout), Sent::NotSent] {
        let mut alone = Alone::new(600);
        alone.want("dns", "a", &[post("record", 1, 0), request("zone", 2)]);
        alone.want("dns", "a", &[post("record", 3, 0), request("zone", 2)]);
        alone.want("dns", "b", &[post("record", 4, 0)]);
        assert_eq!(alone.in_flight(), [1, 2, 4], "another object's does not wait");
        alone.exchanges.drop_key(&key("a"));
        alone.want("dns", "a", &[post("record", 5, 0), request("zone", 6)]);
        assert_eq!(
            alone.in_flight(),
            [1, 2, 4],
            "and neither the end of the object nor another one of its name ends that"
        );
        assert!(alone.exchanges.is_changing(&"dns".into(), &key("a")));
        assert!(!alone.ends(sent.clone()));
        assert_eq!(alone.in_flight(), [2, 4, 5, 6], "{sent:?}");
        alone.exchanges.drop_key(&key("a"));
        alone.exchanges.drop_key(&key("b"));
        while !alone.sent.is_empty() {
            alone.ends(response(200));
        }
        assert!(alone.is_empty() && !alone.exchanges.is_changing(&"dns".into(), &key("a")));
    }
}

#[test]
fn x1_a_request_that_waits_for_a_place_waits_for_a_former_one_too() {
    let mut alone = Alone::new(6_000);
    for number in 100..100 + MAX_IN_FLIGHT as u128 * 3 / 4 - 1 {
        alone.want("dns", &number.to_string(), &[request("zone", number)]);
    }
    alone.want("dns", "a", &[post("former", 1, 0), post("latter", 2, 0)]);
    alone.want("dns", "a", &[post("latter", 2, 0)]);
    assert!(alone.ends(response(200)), "a place is freed");
    assert_eq!(alone.in_flight().last(), Some(&1));
    let former = alone.sent.len() - 1;
    alone.sent.swap(0, former);
    alone.ends(response(200));
    assert_eq!(alone.in_flight().last(), Some(&2));
}

#[test]
fn after_a_terminal_failure_only_what_it_has_read_is_sent_and_final_replies_remain() {
    let mut alone = Alone::new(600);
    let refreshed = Arc::new(OutgoingRequest { refresh_after_ms: Some(60_000), ..(*request("zone", 1)).clone() });
    let wanted = [refreshed, post("failing", 2, 0), post("hanging", 3, 0)];
    alone.want("dns", "a", &wanted);
    assert!(alone.ends(response(404)) && !alone.ends(response(503)));
    alone.exchanges.quiet(&key("a"), |_| true);
    assert_eq!(alone.until_sent_beside(&[3]) / 1_000, 1, "it was read");
    alone.exchanges.quiet(&key("a"), |_| false);
    alone.ends(response(503));
    alone.ends(response(503));
    alone.pass(600_000);
    assert_eq!((alone.in_flight(), alone.replies("a")), (vec![], vec![(1, "404".to_owned())]));
    alone.want("dns", "a", &wanted);
    assert_eq!(alone.in_flight(), [1, 2, 3], "that reply is too old by now");
}

#[test]
fn q3_a_failure_is_repeated_after_a_second_doubled_to_five_minutes_and_shown_from_the_third_on() {
    for sent in [response(503), response(429), failed(FailureClass::Timeout), failed(FailureClass::Secret)] {
        let mut alone = Alone::new(600);
        alone.want("dns", "a", &[request("zone", 1)]);
        let mut waits = Vec::new();
        let mut woken = Vec::new();
        for _ in 0..12 {
            woken.push(alone.ends(sent.clone()));
            waits.push(alone.until_sent() / 1_000);
        }
        assert_eq!(woken.iter().position(|woken| *woken), Some(2), "{sent:?}");
        assert_eq!(woken.iter().filter(|woken| **woken).count(), 1, "the same failure is no reason for a call");
        assert!((1..=2).contains(&waits[0]) && (300..=331).contains(&waits[11]), "{waits:?}");
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1] + 30), "{waits:?}");
        assert!(alone.ends(response(200)));
        assert_eq!((alone.replies("a"), alone.exchanges.next_due_ms()), (vec![(1, "200".to_owned())], None));
    }
}

#[test]
fn g8_what_is_not_granted_is_shown_at_once_repeated_seldom_and_at_once_when_that_may_have_changed() {
    let denied = |content: u128| Sent::NotGranted(format!("no {content}").into());
    let shown = |alone: &mut Alone| -> Vec<String> {
        let changed = alone.exchanges.changed_denials();
        changed.into_iter().map(|(plugin, message)| format!("{plugin}: {message:?}")).collect()
    };
    let mut alone = Alone::new(600);
    alone.want("dns", "a", &[request("zone", 1), request("more", 2)]);
    assert!(alone.ends(denied(1)));
    assert_eq!(
        (shown(&mut alone), alone.replies("a")),
        (vec![r#"dns: Some("no 1")"#.into()], vec![(1, "secret".into())])
    );
    assert!(alone.ends(denied(2)));
    assert_eq!(shown(&mut alone), [""; 0], "the first one is");
    let waits: Vec<u64> = (0..20)
        .map(|_| {
            let wait_ms = alone.until_sent();
            for content in alone.in_flight() {
                assert!(!alone.ends(denied(content)), "the same failure is no reason for a call");
            }
            wait_ms
        })
        .collect();
    assert!(waits.iter().sum::<u64>() > 300_000, "{waits:?}");
    assert_eq!(shown(&mut alone), [""; 0]);
    alone.exchanges.retry_denied("another", alone.now.mono_ms);
    alone.run();
    assert_eq!(alone.in_flight(), [] as [u128; 0]);
    alone.exchanges.retry_denied("dns", alone.now.mono_ms);
    alone.run();
    assert_eq!(alone.in_flight(), [1, 2]);
    assert!(alone.ends(response(200)));
    assert_eq!(shown(&mut alone), [r#"dns: Some("no 2")"#], "that of the other one");
    alone.exchanges.drop_key(&key("a"));
    assert_eq!(shown(&mut alone), ["dns: None"]);
    alone.ends(denied(2));
    assert!(alone.is_empty() && shown(&mut alone).is_empty(), "nobody wants it any more");
}

#[test]
fn retry_after_is_honoured_up_to_an_hour() {
    for (seconds, least_ms, most_ms) in
        [("0", 1_000, 1_101), ("120", 120_000, 120_000), ("86400", 3_600_000, 3_600_000)]
    {
        let mut alone = Alone::new(600);
        alone.want("dns", "a", &[request("zone", 1)]);
        let headers = vec![("retry-after".into(), seconds.into())];
        alone.ends(Sent::Response(Response { status: 429, headers, body: Arc::default() }));
        let wait_ms = alone.until_sent();
        assert!((least_ms..=most_ms).contains(&wait_ms), "{seconds}: {wait_ms}");
    }
}

#[test]
fn a_response_that_is_too_large_is_final() {
    let mut alone = Alone::new(600);
    alone.want("dns", "a", &[request("zone", 1)]);
    assert!(alone.ends(failed(FailureClass::TooLarge)));
    assert_eq!((alone.replies("a"), alone.exchanges.next_due_ms()), (vec![(1, "too_large".to_owned())], None));
}

#[test]
fn a_response_is_refreshed_when_it_is_old_and_a_new_age_counts_from_the_next_one() {
    let mut alone = Alone::new(600);
    let every = |ms| Arc::new(OutgoingRequest { refresh_after_ms: Some(ms), ..(*request("zone", 1)).clone() });
    alone.want("dns", "a", &[request("zone", 1)]);
    assert!(alone.ends(response(200)));
    alone.pass(1_000);
    alone.want("dns", "a", &[every(60_000)]);
    assert_eq!(alone.until_sent(), 59_000);
    alone.want("dns", "a", &[every(86_400_000)]);
    assert!(alone.ends(response(200)), "the same status at another time");
    alone.want("dns", "a", &[every(5_000)]);
    assert_eq!(alone.until_sent(), 5_000);
    let [replied] = &*alone.exchanges.replies(&key("a")) else { panic!("one reply") };
    assert_eq!(replied.reply.received_unix_ms, 1_700_000_060_000);
}

#[test]
fn q4_however_many_requests_of_one_plugin_hang_another_one_sends_its_first() {
    let mut alone = Alone::new(6_000);
    for number in 0..200_u128 {
        alone.want("hanging", &number.to_string(), &[request("zone", number)]);
    }
    let held = alone.in_flight().len();
    assert_eq!(held, MAX_IN_FLIGHT * 3 / 4);
    alone.want("dns", "a", &[request("zone", 1_000)]);
    assert_eq!(alone.in_flight().last(), Some(&1_000));
    alone.sent.rotate_right(1);
    assert!(alone.ends(response(200)) && alone.ends(response(200)));
    assert_eq!(alone.in_flight().len(), held, "a place that is freed is used");
    for number in 0..200 {
        alone.exchanges.drop_key(&key(&number.to_string()));
    }
    while !alone.sent.is_empty() {
        alone.ends(response(200));
    }
    alone.exchanges.drop_key(&key("a"));
    assert!(alone.is_empty());
}

#[test]
fn q4_a_plugin_sends_a_minutes_worth_at_once_and_then_waits() {
    let mut alone = Alone::new(60);
    let mut sent = 0;
    for number in 0..200_u128 {
        alone.want("dns", &number.to_string(), &[request("zone", number)]);
        while !alone.sent.is_empty() {
            alone.ends(response(200));
            sent += 1;
        }
    }
    assert_eq!(sent, 61, "what exceeds the budget is owed");
    assert_eq!(alone.until_sent(), 1_000);
    alone.want("other", "other", &[request("zone", 1_000)]);
    assert_eq!(alone.in_flight(), [61, 1_000], "each plugin has its own budget");
}

#[test]
fn g11_however_many_plugins_a_tenant_has_they_have_one_plugins_requests_in_flight_and_a_minute() {
    let plugins: Vec<String> = (0..16).map(|number| format!("team-a.p{number}")).collect();
    let want = |alone: &mut Alone, requests: u128| {
        for number in 0..requests {
            let plugin = &plugins[usize::try_from(number).unwrap() % plugins.len()];
            alone.want(plugin, &number.to_string(), &[request("zone", number)]);
        }
    };
    let mut alone = Alone::new(6_000);
    want(&mut alone, 200);
    assert_eq!(alone.in_flight().len(), MAX_IN_FLIGHT * 3 / 4, "as of one plugin");
    for (place, other) in ["team-b.dns", "dns"].into_iter().enumerate() {
        alone.want(other, other, &[request("zone", 1_000)]);
        assert_eq!(alone.in_flight().len(), MAX_IN_FLIGHT * 3 / 4 + 1 + place, "{other} has its own place");
    }
    while let Some((.., key, _)) = alone.sent.first() {
        let key = key.clone();
        alone.ends(response(200));
        alone.exchanges.drop_key(&key);
    }
    assert!(alone.is_empty(), "and each of the tenant's gets its turn");

    let mut alone = Alone::new(60);
    want(&mut alone, 48);
    let mut sent = 0;
    for round in 0..4 {
        want(&mut alone, 48);
        while !alone.sent.is_empty() {
            alone.ends(response(200));
            sent += 1;
        }
        (0..48).for_each(|number| {
            if round < 3 {
                alone.exchanges.drop_key(&key(&number.to_string()));
            }
        });
    }
    assert_eq!(sent, 61, "what exceeds the budget is owed, also by a plugin that comes back");
    let message = alone.exchanges.over_budget("team-a.p0").expect("it is reported of each");
    assert!(message.starts_with("team-a.* is over its budget of 60 HTTP requests"), "{message}");
    assert_eq!(alone.exchanges.over_budget("team-b.dns"), None);
    alone.want("team-b.dns", "dns", &[request("zone", 1_000)]);
    assert_eq!(alone.in_flight(), [1_000]);
}

#[test]
fn budgets_of_requests_that_are_full_are_forgotten_and_debts_are_not() {
    let mut alone = Alone::new(600);
    for number in 0..601_u128 {
        alone.want("debtor", &number.to_string(), &[request("zone", number)]);
        alone.ends(response(200));
    }
    for number in 0..1_000 {
        let plugin = format!("p{number}");
        alone.want(&plugin, &plugin, &[request("zone", 1_000)]);
        alone.ends(response(200));
        alone.pass(1);
    }
    let budgets = &alone.exchanges.budgets;
    assert!(budgets.len() < 300 && budgets.contains_key("debtor"), "{}", budgets.len());
}

#[test]
fn x7_nothing_is_sent_without_the_right_to_and_what_was_not_sent_is_tried_again() {
    let mut alone = Alone::new(600);
    alone.exchanges.want(&"dns".into(), &key("a"), &[request("zone", 1)], 1_000);
    assert!(alone.exchanges.run(1_000, false).is_empty());
    assert_eq!(alone.exchanges.next_due_ms(), None, "no timer runs for it");
    alone.run();
    assert!(!alone.ends(Sent::NotSent));
    assert_eq!((alone.until_sent(), alone.replies("a")), (NOT_SENT_DELAY_MS, vec![]));
}

#[test]
fn what_is_kept_is_bounded_by_plugin_and_a_plugin_has_some_of_its_own() {
    let mut alone = Alone::new(60_000);
    const MIB: usize = 1 << 20;
    let fill = |alone: &mut Alone, plugin: &str, count: usize| {
        let mut fitted = 0;
        for number in 0..count {
            let name = format!("{plugin}{number}");
            alone.want(plugin, &name, &[request("zone", 1)]);
            if alone.in_flight().is_empty() {
                continue; // There is not even room for the request.
            }
            alone.ends(large(MIB - 4_096));
            fitted += usize::from(!alone.replies(&name).is_empty());
        }
        fitted
    };
    assert_eq!(fill(&mut alone, "a", 70), 63, "a plugin's bound, with what an allocator adds");
    let others: usize = ["b", "c", "d", "e"].into_iter().map(|plugin| fill(&mut alone, plugin, 64)).sum();
    assert!((2 * 63..=2 * 63 + 4).contains(&others), "the bound of all: {others}");
    assert_eq!(fill(&mut alone, "f", 3), 1, "its own");
}

#[test]
fn q4_bodies_of_requests_are_bounded_by_plugin_and_in_all_until_their_final_reply() {
    const BYTES: usize = 256 << 10;
    let large = post("record", 0, BYTES);
    let fill = |alone: &mut Alone, plugin: &str, count: u128| {
        let wanted = |content| Arc::new(OutgoingRequest { fingerprint: content, ..(*large).clone() });
        let wanted: Vec<_> = (1..=count).map(wanted).collect();
        let is_refused = alone.exchanges.refusal(plugin, &key(plugin), &wanted).is_some();
        let fits = alone.exchanges.want(&plugin.into(), &key(plugin), &wanted, alone.now.mono_ms);
        assert_eq!(is_refused, !fits);
        alone.exchanges.of_key[&key(plugin)].len()
    };
    let mut alone = Alone::new(60_000);
    let (most, own) = (BOUNDS.share / of_request(&large), BOUNDS.own / of_request(&large));
    assert_eq!(fill(&mut alone, "a", 300), most, "a plugin's bound");
    let others = ["b", "c", "d", "e"].map(|plugin| fill(&mut alone, plugin, 300));
    assert_eq!(others[..2], [most; 2]);
    assert!(others[2] < 16 && fill(&mut alone, "f", 300) == own, "the bound of all, and its own: {others:?}");
    alone.run();
    alone.sent.retain(|(_, key, _)| &*key.name.name == "a");
    let answered = alone.sent.len();
    for _ in 0..answered {
        assert!(alone.ends(response(201)));
    }
    for plugin in ["d", "e", "f"] {
        alone.exchanges.drop_key(&key(plugin));
    }
    let filled = fill(&mut alone, "a", 300);
    assert!((most + answered - 1..=most + answered).contains(&filled), "a final reply needs no body: {filled}");
    for plugin in ["a", "b", "c", "d", "e", "f"] {
        alone.exchanges.drop_key(&key(plugin));
    }
    assert_eq!(alone.exchanges.kept.total(), 0);
}

#[test]
fn a_response_for_which_there_is_no_room_is_asked_for_again() {
    let mut alone = Alone::new(60_000);
    const BYTES: usize = (1 << 20) - 4_096;
    for number in 0..63 {
        alone.want("dns", &number.to_string(), &[request("zone", 1)]);
        assert!(alone.ends(large(BYTES)));
    }
    alone.want("dns", "a", &[request("zone", 1)]);
    for woken in [false, false, true, false] {
        assert_eq!(alone.ends(large(BYTES)), woken, "it is a failure as others are");
        alone.until_sent();
    }
    assert_eq!(alone.replies("a"), [(1, "too_large".to_owned())]);
    alone.exchanges.drop_key(&key("0"));
    assert!(alone.ends(large(BYTES)));
    assert_eq!((alone.replies("a"), alone.exchanges.next_due_ms()), (vec![(1, "200".to_owned())], None));
}
