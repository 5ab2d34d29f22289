//! The Outbox alone: messages in, effects and messages to the other machines out.

use std::collections::VecDeque;

use super::*;
use crate::engine::message::{EventFlow, Message, PluginWrite};
use crate::http::{HttpId, OutgoingRequest};
use crate::object::tests::Sample;
use crate::object::{Kind, Name, ObjectRef};
use crate::store::Store;
use crate::write::{Cause, Precondition, WriteErrorClass};

mod events;

/// An Outbox with the effects and messages it has sent so far.
struct Alone {
    outbox: Outbox,
    now: Now,
    draining: bool,
    store: Store,
    effects: Vec<Effect>,
    messages: VecDeque<Message>,
}

impl Alone {
    fn new(leader_election: bool) -> Self {
        let outbox = Outbox::new("host-0".into(), leader_election, WriteBudget::default());
        let (now, store, effects, messages) = Default::default();
        Self { outbox, now, draining: false, store, effects, messages }
    }

    /// One with a budget of a single create a minute, and ten writes.
    fn with_one_create() -> Self {
        let budget = WriteBudget { writes_per_minute: 10, creates_per_minute: 1 };
        Self { outbox: Outbox::new("host-0".into(), false, budget), ..Self::new(false) }
    }

    fn with(&mut self, run: impl FnOnce(&mut Outbox, &mut Context<'_>)) {
        self.outbox.check_claim(self.now);
        let mut cx = Context {
            now: self.now,
            store: &self.store,
            may_write: self.outbox.may_write(self.now),
            draining: self.draining,
            effects: &mut self.effects,
            messages: &mut self.messages,
        };
        run(&mut self.outbox, &mut cx);
    }

    fn claim(&mut self, until_ms: Option<u64>) {
        self.with(|outbox, cx| outbox.on_lease_changed(until_ms, cx));
    }

    fn send(&mut self, owner: Owner) {
        let propagation = crate::contract::Propagation::Background;
        self.send_as(None, WriteOp::Delete { target: target(), uid: "1".into(), propagation }, owner);
    }

    /// An action of a plugin that applies an object. Whether the plugin is over its budget then.
    fn apply(&mut self, target: ObjectRef) -> bool {
        let op = WriteOp::Apply { target, body: "{}".into(), force: false, only_if: Precondition::None, draws: None };
        self.send_as(Some("podset".into()), op, of_plugin());
        let is_throttled = |message| matches!(message, Message::ToReconciler(ToReconciler::Throttle { .. }));
        self.messages.drain(..).any(is_throttled)
    }

    fn send_as(&mut self, plugin: Option<Arc<str>>, op: WriteOp, owner: Owner) {
        let outgoing = Outgoing { by: Sender { plugin, ..Sender::default() }, cause: None, op, owner };
        self.with(|outbox, cx| outbox.take(ToOutbox::Send(Box::new(outgoing)), cx));
    }

    fn last_write(&self) -> &Write {
        let sent = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Write(write) => Some(&**write),
            _ => None,
        });
        sent.expect("a write was sent")
    }

    /// The names of the messages sent since the last time.
    fn messages(&mut self) -> Vec<&'static str> {
        let name = |message| match message {
            Message::ToReconciler(ToReconciler::Resync) => "Resync",
            Message::ToReconciler(ToReconciler::Wrote { .. }) => "Wrote to the Reconciler",
            Message::ToLifecycle(ToLifecycle::MayWrite) => "MayWrite",
            Message::ToLifecycle(ToLifecycle::Wrote { .. }) => "Wrote to the Lifecycle",
            _ => "another",
        };
        self.messages.drain(..).map(name).collect()
    }
}

fn target() -> ObjectRef {
    ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("default", "a") }
}

fn of_plugin() -> Owner {
    Owner::Lifecycle(PluginWrite::Object("podset".into()))
}

#[test]
fn x7_a_write_carries_the_time_until_which_it_may_be_sent() {
    let mut alone = Alone::new(true);
    alone.claim(Some(25_000));
    alone.send(of_plugin());
    assert_eq!(alone.last_write().not_after_ms, Some(15_000), "ten seconds are for the write itself");
    let mut alone = Alone::new(false);
    alone.send(of_plugin());
    assert_eq!(alone.last_write().not_after_ms, None);
}

#[test]
fn x7_a_request_carries_the_time_until_which_it_may_be_sent() {
    let mut alone = Alone::new(true);
    alone.claim(Some(25_000));
    let cause = Cause { controller: "dns/Zone".into(), object: target(), digest: crate::digest::of(b"1") };
    let sending = Sending {
        id: HttpId(1),
        plugin: "dns".into(),
        cause,
        service_account: None,
        gets_generated: false,
        request: Arc::new(OutgoingRequest::sample("zone", 1)),
        not_after_ms: None,
    };
    alone.with(|outbox, cx| outbox.take(ToOutbox::Request(Box::new(sending.clone())), cx));
    let sent = alone.effects.iter().find_map(|effect| match effect {
        Effect::Http(sending) => Some((**sending).clone()),
        _ => None,
    });
    assert_eq!(sent, Some(Sending { not_after_ms: Some(15_000), ..sending }));
}

#[test]
fn x7_a_new_claim_causes_a_resync_and_a_renewal_does_not() {
    let mut alone = Alone::new(true);
    alone.claim(Some(15_000));
    assert_eq!(alone.messages(), ["Resync", "MayWrite"]);
    alone.now.mono_ms = 3_000;
    alone.claim(Some(18_000));
    assert_eq!(alone.messages(), [""; 0]);
    // The claim was too short for a write, but it did not end: only writes that were held back are missing.
    alone.now.mono_ms = 17_000;
    alone.claim(Some(32_000));
    assert_eq!(alone.messages(), ["MayWrite"]);
    alone.now.mono_ms = 40_000;
    alone.claim(Some(55_000));
    assert_eq!(alone.messages(), ["Resync", "MayWrite"], "another host may have led for eight seconds");
}

#[test]
fn each_result_is_sent_once_to_the_owner_of_its_write() {
    let mut alone = Alone::new(false);
    let error = WriteError { class: WriteErrorClass::Conflict, message: "no".to_owned() };
    let of_event = Owner::Event(EventFlow { share: "podset".into(), is_hosts: false });
    for (owner, expected) in [(of_plugin(), &["Wrote to the Lifecycle"][..]), (of_event, &[])] {
        alone.send(owner);
        let id = alone.last_write().id;
        assert!(!alone.outbox.is_empty());
        for expected in [expected, &[]] {
            let failed = error.clone();
            alone.with(|outbox, cx| outbox.on_wrote(id, Err(failed), cx));
            assert_eq!(alone.messages(), expected, "the second time, the write is not in flight");
            assert!(alone.outbox.is_empty());
        }
    }
    let failures = alone.effects.iter().filter(|effect| matches!(effect, Effect::Observe(_))).count();
    assert_eq!(failures, 1, "an Event that could not be written is counted");
}

#[test]
fn q4_an_action_that_applies_an_object_which_the_cache_does_not_show_is_a_create() {
    let mut alone = Alone::with_one_create();
    let absent = |name: &str| ObjectRef { name: Name::new("default", name), ..target() };
    assert_eq!([alone.apply(absent("b")), alone.apply(absent("c"))], [false, true]);
    let mut alone = Alone::with_one_create();
    alone.store.apply(Sample::pod("default", "a").build());
    assert!(!(0..10).any(|_| alone.apply(target())), "the object exists, so these are not creates");
    assert!(alone.apply(target()), "but writes");
}

/// A create of a ConfigMap by a plugin that acts in team-a alone. How many writes are sent.
fn create_in(alone: &mut Alone, plugin: &str, namespace: &str) -> usize {
    let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new(namespace, "a") };
    let op = WriteOp::Create { target, body: "{}".into() };
    let namespaces = Some(std::collections::BTreeSet::from(["team-a".into()]).into());
    let by = Sender { plugin: Some(plugin.into()), namespaces, ..Sender::default() };
    let owner = Owner::Lifecycle(PluginWrite::Object(plugin.into()));
    let outgoing = Outgoing { by, cause: None, op, owner };
    alone.effects.clear();
    alone.with(|outbox, cx| outbox.take(ToOutbox::Send(Box::new(outgoing)), cx));
    alone.effects.iter().filter(|effect| matches!(effect, Effect::Write(_))).count()
}

#[test]
fn g9_a_write_outside_of_a_plugins_namespaces_is_refused_and_not_sent() {
    let mut alone = Alone::new(false);
    let sent = ["team-a", "", "team-b"].map(|namespace| create_in(&mut alone, "podset", namespace));
    assert_eq!(sent, [1, 1, 0]);
    let refused = alone.messages.iter().find_map(|message| match message {
        Message::ToLifecycle(ToLifecycle::Wrote { result: Err(error), .. }) => Some(error.clone()),
        _ => None,
    });
    let error = refused.expect("its owner gets the refusal");
    assert_eq!(error.class, WriteErrorClass::Denied);
    assert!(
        error.message.contains("spec.namespaces of the Plugin podset does not have \"team-b\""),
        "{}",
        error.message
    );
}

#[test]
fn g11_a_tenants_plugin_writes_its_namespace_alone_and_no_object_without_one() {
    let mut alone = Alone::new(false);
    let sent =
        ["team-a", "team-b", "team-a.podset", "kube-system", ""].map(|it| create_in(&mut alone, "team-a.podset", it));
    assert_eq!(sent, [1, 0, 0, 0, 0], "whatever its ServiceAccount may");
}
