//! Events: which are sent at once, which wait, and which are left out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::allocations::counted;
use crate::engine::outbox::events::{MAX_SENT, MAX_WAITING};
use crate::kube_event::{EventRecord, Words};
use crate::object::Object;
use crate::service_account::ServiceAccount;

const MOST: usize = MAX_SENT + MAX_WAITING;

impl Alone {
    /// Something that a guest of the plugin says about one of its objects. What becomes of it.
    fn says(&mut self, plugin: &str, number: usize) -> &'static str {
        self.records(plugin, number, Words::Guest, "Said")
    }

    fn records(&mut self, plugin: &str, number: usize, words: Words, reason: &str) -> &'static str {
        let account = ServiceAccount { namespace: "default".into(), name: plugin.into() };
        let service_account = (words != Words::Host).then(|| account.into());
        let by = Sender { plugin: Some(plugin.into()), service_account, ..Sender::default() };
        let about = Sample::pod("default", &format!("a-{number}")).uid(&format!("{plugin}/{number}")).build();
        let record = EventRecord { warning: true, reason: reason.to_owned(), note: "something".to_owned(), words };
        let before = self.effects.len();
        self.record(by, about.into(), record);
        match &self.effects[before..] {
            [] => "waits",
            [Effect::Write(_)] => "sent",
            [Effect::Observe(Observation::EventLeftOut { why, .. })] => why.as_str(),
            effects => panic!("{effects:?}"),
        }
    }

    fn record(&mut self, by: Sender, about: Arc<Object>, record: EventRecord) {
        self.with(|outbox, cx| outbox.take(ToOutbox::Record { by, about, record }, cx));
    }

    /// The API server answers the oldest write. How many are sent then.
    fn answer(&mut self) -> usize {
        let oldest = self.outbox.in_flight.keys().copied().min().unwrap();
        let (error, before) = (WriteError::undone(), self.effects.len());
        self.with(|outbox, cx| outbox.on_wrote(oldest, Err(error), cx));
        self.effects[before..].iter().filter(|effect| matches!(effect, Effect::Write(_))).count()
    }

    fn answer_all(&mut self) {
        while !self.outbox.is_empty() {
            self.answer();
        }
    }

    /// The objects of all Events that were sent.
    fn sent(&self) -> Vec<String> {
        let sent = self.effects.iter().filter_map(|effect| match effect {
            Effect::Write(write) => Some(event_of(write)["regarding"]["name"].as_str().unwrap().to_owned()),
            _ => None,
        });
        sent.collect()
    }
}

fn event_of(write: &Write) -> Value {
    let WriteOp::Apply { body, .. } = &write.op else { panic!("{write:?}") };
    serde_json::from_str(body).unwrap()
}

#[test]
fn x10_of_the_events_of_a_share_five_are_in_flight_and_32_wait_and_further_ones_are_left_out() {
    let mut alone = Alone::new(false);
    let said: Vec<_> = (0..MOST + 2).map(|number| alone.says("team-a.loud", number)).collect();
    assert!(said[..MAX_SENT].iter().all(|it| *it == "sent"), "{said:?}");
    assert!(said[MAX_SENT..MOST].iter().all(|it| *it == "waits"), "{said:?}");
    assert!(said[MOST..].iter().all(|it| *it == "waiting"), "{said:?}");
    assert_eq!(alone.says("team-a.other", 0), "waiting", "a tenant is one share");
    assert_eq!(alone.says("quiet", 0), "sent", "another share has its own");
    assert_eq!(alone.answer(), 1, "each answer sends the next one");
    assert_eq!((alone.says("team-a.loud", MOST), alone.says("team-a.loud", MOST + 1)), ("waits", "waiting"));
    alone.answer_all();
    let mut expected: Vec<_> = (0..=MOST).map(|number| format!("a-{number}")).collect();
    expected.insert(MAX_SENT, "a-0".to_owned());
    assert_eq!(alone.sent(), expected, "in the order in which they were said");
    assert_eq!(alone.says("team-a.loud", MOST + 1), "sent", "what was left out may be said again");
}

#[test]
fn x10_a_host_that_drains_sends_no_event_that_waits_and_takes_no_further_one() {
    let mut alone = Alone::new(false);
    (0..MOST).for_each(|number| _ = alone.says("podset", number));
    alone.draining = true;
    alone.says("quiet", 0);
    alone.answer_all();
    assert_eq!(alone.sent().len(), MAX_SENT);
}

#[test]
fn x7_events_that_wait_are_not_sent_without_a_claim() {
    let mut alone = Alone::new(true);
    alone.claim(Some(25_000));
    (0..MOST).for_each(|number| _ = alone.says("podset", number));
    alone.now.mono_ms = 15_001;
    alone.answer_all();
    assert_eq!(alone.sent().len(), MAX_SENT);
    alone.claim(Some(45_000));
    assert_eq!(alone.says("podset", MOST), "sent");
}

#[test]
fn l5_what_the_host_says_of_a_plugin_is_sent_when_its_guests_have_said_all_that_they_may() {
    let mut alone = Alone::new(false);
    for number in 0..600 {
        assert_eq!(alone.says("podset", number), "sent");
        alone.answer_all();
    }
    assert_eq!(alone.says("podset", 600), "budget");
    assert_eq!(alone.records("podset", 600, Words::Host, "InvalidManifest"), "sent");
    alone.answer_all();
    alone.now.mono_ms = 60_000;
    (0..MOST).for_each(|number| _ = alone.says("podset", 1_000 + number));
    assert_eq!(alone.says("podset", 2_000), "waiting");
    assert_eq!(alone.last_write().plugin.as_deref(), Some("podset"));
    assert_eq!(alone.records("podset", 1_000, Words::Host, "Trap"), "sent", "of what its guest speaks of too");
    let write = alone.last_write();
    assert_eq!((&write.plugin, &write.service_account), (&None, &None), "it is the host's write, in its own flow");
    let event = event_of(write);
    assert_eq!([&event["reason"], &event["reportingController"]], ["Trap", "mortise.dev/podset"]);
}

#[test]
fn q4_the_host_says_64_things_of_a_shares_plugins_in_a_minute_and_as_many_of_each_other_share() {
    let mut alone = Alone::new(false);
    let mut says = |plugin: &str, at: u64, number: usize| {
        alone.now.mono_ms = at;
        let said = alone.records(plugin, number, Words::Host, "TooManyPlugins");
        alone.answer_all();
        said
    };
    let edited = ["team-a.a", "team-a.b"];
    assert!((0..64).all(|number| says(edited[number % 2], 0, number) == "sent"));
    assert_eq!((says("team-a.a", 0, 64), says("team-a.c", 0, 65)), ("budget", "budget"));
    assert_eq!(says("team-b.a", 0, 0), "sent", "another tenant has its own");
    assert_eq!((says("team-a.a", 1_000, 66), says("team-a.a", 1_000, 67)), ("sent", "budget"), "one a second");
}

#[test]
fn q4_of_what_the_host_says_of_a_share_one_is_in_flight_and_32_wait() {
    let mut alone = Alone::new(false);
    let mut says = |plugin: &str, number: usize| alone.records(plugin, number, Words::Host, "TooManyPlugins");
    let said: Vec<_> = (0..MAX_WAITING + 2).map(|number| says("team-a.a", number)).collect();
    assert_eq!((said[0], said[MAX_WAITING + 1]), ("sent", "waiting"), "one is in flight");
    assert!(said[1..=MAX_WAITING].iter().all(|it| *it == "waits"), "{said:?}");
    assert_eq!(says("team-b.a", 0), "sent", "another share has its own");
    assert_eq!(alone.says("team-a.a", 0), "sent", "and the guests have theirs");
}

#[test]
fn q4_an_event_that_its_plugin_may_not_write_makes_room_for_the_next_one() {
    let mut alone = Alone::new(false);
    for number in 0..2 * MOST {
        let namespaces = Some(BTreeSet::from(["team-a".into()]).into());
        let by = Sender { plugin: Some("podset".into()), namespaces, ..Sender::default() };
        let about = Sample::pod("team-b", "a").uid(&number.to_string()).build();
        let (reason, note) = ("Said".to_owned(), String::new());
        alone.record(by, about.into(), EventRecord { warning: false, reason, note, words: Words::Guest });
    }
    let is_denied = |effect: &&Effect| matches!(effect, Effect::Observe(Observation::EventFailed { .. }));
    assert_eq!(alone.effects.iter().filter(is_denied).count(), 2 * MOST, "none is sent, waits or is left out");
}

/// Of an Event of the most bytes that waits or is in flight, with what the log remembers of it.
const EVENT_BYTES: usize = 5 << 10;

#[test]
fn q4_as_many_events_of_a_share_as_wait_have_the_bytes_that_are_counted() {
    let mut alone = Alone::new(false);
    let events: Vec<_> = (0..MOST + 1)
        .map(|number| {
            let name = format!("{number:03}{}", "a".repeat(250));
            let about = Sample::pod("default", &name).uid(&format!("{number:036}")).build();
            let note = "\"".repeat(1_024);
            (Arc::new(about), EventRecord { warning: true, reason: "R".repeat(128), note, words: Words::Guest })
        })
        .collect();
    let (count, ()) = counted(|| {
        for (about, record) in &events {
            let by = Sender { plugin: Some("podset".into()), ..Sender::default() };
            alone.record(by, about.clone(), record.clone());
        }
    });
    let (counted, allocated) = (MOST * EVENT_BYTES, count.held_bytes.unsigned_abs());
    println!("Events of a share that wait: counted {counted}, allocated {allocated}");
    assert!(allocated <= counted, "{allocated}");
}
