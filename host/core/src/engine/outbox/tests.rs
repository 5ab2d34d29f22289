//! The Outbox driven alone: messages go in, effects and messages for the other machines come out.

use std::collections::VecDeque;

use super::*;
use crate::engine::message::{Message, PluginWrite};
use crate::object::{Kind, Name, ObjectRef};
use crate::store::Store;
use crate::write::WriteErrorClass;

/// An Outbox with what it has put out so far.
struct Alone {
    outbox: Outbox,
    now: Now,
    store: Store,
    effects: Vec<Effect>,
    messages: VecDeque<Message>,
}

impl Alone {
    fn new(leader_election: bool) -> Self {
        let outbox = Outbox::new("host-0".into(), leader_election, WriteBudget::default());
        Self { outbox, now: Now::default(), store: Store::default(), effects: Vec::new(), messages: VecDeque::new() }
    }

    fn with(&mut self, run: impl FnOnce(&mut Outbox, &mut Context<'_>)) {
        self.outbox.look_at_claim(self.now);
        let mut cx = Context {
            now: self.now,
            store: &self.store,
            may_write: self.outbox.may_write(self.now),
            draining: false,
            effects: &mut self.effects,
            messages: &mut self.messages,
        };
        run(&mut self.outbox, &mut cx);
    }

    fn claim(&mut self, until_ms: Option<u64>) {
        self.with(|outbox, cx| outbox.on_lease_changed(until_ms, cx));
    }

    fn send(&mut self, owner: Owner) {
        let op = WriteOp::Delete {
            target: target(),
            uid: "1".into(),
            propagation: crate::contract::Propagation::Background,
        };
        let outgoing = Outgoing { plugin: None, cause: None, op, owner };
        self.with(|outbox, cx| outbox.take(ToOutbox::Send(Box::new(outgoing)), cx));
    }

    /// The write that was sent last.
    fn sent(&self) -> &Write {
        let sent = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Write(write) => Some(&**write),
            _ => None,
        });
        sent.expect("a write was sent")
    }

    /// To whom messages went, in short.
    fn told(&mut self) -> Vec<&'static str> {
        let name = |message| match message {
            Message::ToReconciler(ToReconciler::Resync) => "resync",
            Message::ToReconciler(ToReconciler::Wrote { .. }) => "reconciler wrote",
            Message::ToLifecycle(ToLifecycle::MayWrite) => "may write",
            Message::ToLifecycle(ToLifecycle::Wrote { .. }) => "lifecycle wrote",
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
fn x7_a_write_says_until_when_it_may_be_sent() {
    let mut alone = Alone::new(true);
    alone.claim(Some(25_000));
    alone.send(of_plugin());
    assert_eq!(alone.sent().not_after_ms, Some(15_000), "ten seconds are for the write itself");
    let mut alone = Alone::new(false);
    alone.send(of_plugin());
    assert_eq!(alone.sent().not_after_ms, None);
}

#[test]
fn x7_coming_to_lead_is_a_resync_and_a_renewal_is_nothing() {
    let mut alone = Alone::new(true);
    alone.claim(Some(15_000));
    assert_eq!(alone.told(), ["resync", "may write"]);
    alone.now.mono_ms = 3_000;
    alone.claim(Some(18_000));
    assert_eq!(alone.told(), [""; 0]);
    // Short of time for a write, it led all along: only what was held back is to be written.
    alone.now.mono_ms = 17_000;
    alone.claim(Some(32_000));
    assert_eq!(alone.told(), ["may write"]);
    alone.now.mono_ms = 40_000;
    alone.claim(Some(55_000));
    assert_eq!(alone.told(), ["resync", "may write"], "another host may have led for eight seconds");
}

#[test]
fn each_result_goes_to_whoever_asked_and_once() {
    let mut alone = Alone::new(false);
    let error = WriteError { class: WriteErrorClass::Conflict, message: "no".to_owned() };
    for (owner, told) in [(of_plugin(), &["lifecycle wrote"][..]), (Owner::Nobody, &[])] {
        alone.send(owner);
        let id = alone.sent().id;
        assert!(!alone.outbox.is_empty());
        let failed = error.clone();
        alone.with(|outbox, cx| outbox.on_wrote(id, Err(failed), cx));
        assert_eq!(alone.told(), told);
        assert!(alone.outbox.is_empty());
        let failed = error.clone();
        alone.with(|outbox, cx| outbox.on_wrote(id, Err(failed), cx));
        assert_eq!(alone.told(), [""; 0], "a result that comes twice is nobody's");
    }
    let failures = alone.effects.iter().filter(|effect| matches!(effect, Effect::Observe(_))).count();
    assert_eq!(failures, 1, "an Event that could not be written is counted");
}
