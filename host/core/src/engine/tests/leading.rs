//! X7: what a host does while another leads, when it comes to lead, and when it cannot be sure to lead any more. That no
//! write is sent without the right to it, the host of these tests checks at each one.

use super::*;
use crate::lease::LEASE_DURATION_MS;
use crate::limits::WRITE_TIMEOUT_MS;

/// Objects of the one plugin; each wants one child.
const OBJECTS: usize = 5;

/// A host that takes part in an election and has not won it. The plugin is offered to it and its objects are there.
fn standing_by(crds_exist: bool) -> Host {
    let mut host = Host::started_as(Config { call_slots: 8, leader_election: true, ..config() });
    if crds_exist {
        let plural = format!("{}s.example.com", kind_of(0).kind.to_lowercase());
        host.crds = [plural.into(), plugin_object::CRD_NAME.into()].into();
        host.pass(10_000);
    }
    host.offer(0);
    if crds_exist {
        host.create_objects(0, OBJECTS);
    }
    host
}

/// The election tells that this host leads for a full duration from now.
fn lead(host: &mut Host) {
    host.step(Event::LeaseChanged { claim_until_ms: Some(host.now_ms + LEASE_DURATION_MS) });
}

fn leads(host: &Host) -> Option<bool> {
    host.engine.health().leads
}

/// How often a key was taken from the queue.
fn taken(host: &Host) -> usize {
    host.observed.iter().filter(|observation| matches!(observation, Observation::Taken { .. })).count()
}

fn refuse_creates(host: &mut Host) {
    for (id, _) in std::mem::take(&mut host.creates) {
        let error = WriteError { class: WriteErrorClass::Unavailable, message: "too late".to_owned() };
        host.step(Event::Wrote(id, Err(error)));
    }
}

#[test]
fn x7_a_standby_watches_and_compiles_and_neither_calls_nor_writes() {
    let mut host = standing_by(true);
    host.pass(60_000);
    assert!(host.compiled == 1 && host.watched.contains(&kind_of(0)) && host.watched.contains(&input_of(0)));
    assert!(host.engine.health().plugins[0].ready, "it serves as soon as it leads");
    assert_eq!((host.calls, host.creates.len(), host.objects.len()), (0, 0, OBJECTS), "nothing but what others made");
    assert_eq!(leads(&host), Some(false));

    lead(&mut host);
    assert_eq!(leads(&host), Some(true));
    assert_eq!((host.calls, host.creates.len(), taken(&host)), (OBJECTS, OBJECTS, OBJECTS), "each object once");
    assert!(host.objects.contains_key(&plugin_object(&plugin_name(0))), "its plugin is told of");
}

#[test]
fn x7_a_standby_registers_no_crd_and_the_leader_does_at_once() {
    let mut host = standing_by(false);
    host.pass(60_000);
    assert!(host.crds.is_empty() && host.objects.is_empty());
    lead(&mut host);
    host.pass(0);
    assert_eq!(host.crds.len(), 2, "its own and the plugin's");
    assert!(host.engine.health().plugins[0].ready && host.objects.contains_key(&plugin_object(&plugin_name(0))));
    let told = &host.objects[&plugin_object(&plugin_name(0))]["status"].to_string();
    assert!(!told.contains("not mine to write"), "what it waited for while it stood by is nobody's concern: {told}");
}

#[test]
fn x7_a_registration_that_only_looked_is_repeated_at_once_by_a_host_that_leads_meanwhile() {
    let mut engine = Engine::new(Config { leader_election: true, ..config() });
    let (now, mut effects) = (Now { mono_ms: 1_000_000, unix_ms: 0 }, Vec::new());
    engine.step(now, Event::Started, &mut effects);
    engine.step(now, Event::LeaseChanged { claim_until_ms: Some(now.mono_ms + LEASE_DURATION_MS) }, &mut effects);
    let result = Err(CrdError::Unavailable("not mine to write".to_owned()));
    engine.step(
        now,
        Event::CrdRegistered { plugin: "".into(), crd: plugin_object::CRD_NAME.into(), result },
        &mut effects,
    );
    let asked = effects.iter().filter_map(|effect| match effect {
        Effect::RegisterCrd { not_after_ms, .. } => Some(*not_after_ms),
        _ => None,
    });
    let until_ms = now.mono_ms + LEASE_DURATION_MS - WRITE_TIMEOUT_MS;
    assert_eq!(asked.collect::<Vec<_>>(), [Some(0), Some(until_ms)]);
}

#[test]
fn x7_a_leader_whose_claim_runs_short_ends_what_is_in_flight_and_begins_nothing() {
    let mut host = standing_by(true);
    lead(&mut host);
    host.offer(1);
    let in_flight = host.creates.len();
    // Not renewed for so long that a write could end after the claim does.
    host.pass(LEASE_DURATION_MS - WRITE_TIMEOUT_MS + 1);
    assert_eq!(leads(&host), Some(true), "it is the leader still, and may not write");
    let calls = host.calls;
    refuse_creates(&mut host);
    host.touch(0);
    host.offer_component(0, component(0, 2));
    host.withdraw(1);
    host.pass(2_000);
    assert_eq!((host.calls, host.creates.len(), host.deletes.len()), (calls, 0, 0));

    lead(&mut host);
    assert_eq!((host.creates.len(), host.deletes.len()), (in_flight, 1), "what was left undone is done");
}

#[test]
fn x7_what_a_call_answers_after_the_claim_has_run_short_is_asked_again_by_a_leader() {
    let mut host = standing_by(true);
    host.slow_guests = true;
    lead(&mut host);
    assert_eq!(host.calls, OBJECTS.min(6), "three quarters of the eight slots are one plugin's");
    host.step(Event::LeaseChanged { claim_until_ms: None });
    for answer in std::mem::take(&mut host.answers) {
        host.step(answer);
    }
    assert_eq!((host.creates.len(), leads(&host)), (0, Some(false)));
    host.slow_guests = false;
    host.pass(30_000);
    let calls = host.calls;
    lead(&mut host);
    assert_eq!((host.calls - calls, host.creates.len()), (OBJECTS, OBJECTS));
}

#[test]
fn x7_every_object_is_looked_at_once_by_a_host_that_leads_again_and_by_no_renewal() {
    let mut host = standing_by(true);
    lead(&mut host);
    refuse_creates(&mut host);
    // The creates are sent again with patience, and answered no more.
    host.pass(4_000);
    lead(&mut host);
    let before = taken(&host);
    for _ in 0..100 {
        host.pass(2_000);
        lead(&mut host);
    }
    assert_eq!(taken(&host), before, "a renewal is no reason to look at anything");

    host.step(Event::LeaseChanged { claim_until_ms: None });
    refuse_creates(&mut host);
    host.pass(60_000);
    assert_eq!((taken(&host), host.creates.len()), (before, 0));
    lead(&mut host);
    assert_eq!(taken(&host), before + OBJECTS);

    // A claim that had run out before it was heard of again is a new one: another may have led.
    let before = taken(&host);
    host.pass(LEASE_DURATION_MS);
    refuse_creates(&mut host);
    lead(&mut host);
    assert_eq!(taken(&host), before + OBJECTS);
}
