//! X7: a host without a claim, with a new one, and with one that becomes too short. `Host` checks that each write is in
//! time.

use super::*;
use crate::lease::LEASE_DURATION_MS;
use crate::limits::WRITE_TIMEOUT_MS;

/// Objects of the plugin. The guest wants one child for each.
const OBJECTS: usize = 5;

/// A host without a claim and with one plugin. With CRDs, the plugin has objects.
fn standby(crds_exist: bool) -> Host {
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

/// The host gets a claim of the full duration.
fn lead(host: &mut Host) {
    host.step(Event::LeaseChanged { claim_until_ms: Some(host.now_ms + LEASE_DURATION_MS) });
}

fn leads(host: &Host) -> Option<bool> {
    host.engine.health().leads
}

fn fail_creates(host: &mut Host) {
    host.fail_creates(WriteErrorClass::Unavailable, |_| true);
}

#[test]
fn x7_a_standby_watches_and_compiles_and_neither_calls_nor_writes() {
    let mut host = standby(true);
    host.pass(60_000);
    assert!(
        host.compiled == 1 && host.watched.contains(&kind_of(0).into()) && host.watched.contains(&input_of(0).into())
    );
    assert!(host.engine.health().plugins[0].ready);
    assert_eq!((host.calls, host.creates.len(), host.objects.len()), (0, 0, OBJECTS));
    assert_eq!(leads(&host), Some(false));

    lead(&mut host);
    assert_eq!(leads(&host), Some(true));
    assert_eq!((host.calls, host.creates.len(), host.taken()), (OBJECTS, OBJECTS, OBJECTS), "each object once");
    assert!(host.has_plugin_object(0));
}

#[test]
fn x7_a_standby_registers_no_crd_and_the_leader_does_at_once() {
    let mut host = standby(false);
    host.pass(60_000);
    assert!(host.crds.is_empty() && host.objects.is_empty());
    lead(&mut host);
    host.pass(0);
    assert_eq!(host.crds.len(), 2, "its own and the plugin's");
    assert!(host.engine.health().plugins[0].ready);
    let status = &host.objects[&plugin_object(&plugin_name(0))]["status"].to_string();
    assert!(!status.contains("this host may not write"), "the leader does not show errors of the standby: {status}");
}

#[test]
fn x7_a_read_only_registration_is_repeated_at_once_if_the_host_leads_meanwhile() {
    let mut engine = Engine::new(Config { leader_election: true, ..config() });
    let (now, mut effects) = (Now { mono_ms: 1_000_000, unix_ms: 0 }, Vec::new());
    engine.step(now, Event::Started, &mut effects);
    engine.step(now, Event::LeaseChanged { claim_until_ms: Some(now.mono_ms + LEASE_DURATION_MS) }, &mut effects);
    let (plugin, crd) = ("".into(), plugin_object::CRD_NAME.into());
    let result = Err(CrdError::Unavailable("this host may not write".to_owned()));
    engine.step(now, Event::CrdRegistered { plugin, crd, result }, &mut effects);
    let registrations = effects.iter().filter_map(|effect| match effect {
        Effect::RegisterCrd { not_after_ms, .. } => Some(*not_after_ms),
        _ => None,
    });
    let until_ms = now.mono_ms + LEASE_DURATION_MS - WRITE_TIMEOUT_MS;
    assert_eq!(registrations.collect::<Vec<_>>(), [Some(0), Some(until_ms)]);
}

#[test]
fn x7_a_leader_whose_claim_becomes_too_short_begins_no_write_until_it_is_renewed() {
    let mut host = standby(true);
    lead(&mut host);
    host.offer(1);
    let in_flight = host.creates.len();
    // From now on a write could end after the claim.
    host.pass(LEASE_DURATION_MS - WRITE_TIMEOUT_MS + 1);
    assert_eq!(leads(&host), Some(true));
    let calls = host.calls;
    fail_creates(&mut host);
    host.annotate(0);
    host.offer_component(0, component(0, 2));
    host.withdraw(1);
    host.pass(2_000);
    assert_eq!((host.calls, host.creates.len(), host.deletes.len()), (calls, 0, 0));

    lead(&mut host);
    assert_eq!((host.creates.len(), host.deletes.len()), (in_flight, 1));
}

#[test]
fn x7_an_outcome_that_comes_without_a_claim_is_discarded_and_its_call_repeated_with_the_next_claim() {
    let mut host = standby(true);
    host.slow_guests = true;
    lead(&mut host);
    assert_eq!(host.calls, OBJECTS.min(6), "a plugin gets three quarters of the eight slots");
    host.step(Event::LeaseChanged { claim_until_ms: None });
    for result in std::mem::take(&mut host.results) {
        host.step(result);
    }
    assert_eq!((host.creates.len(), leads(&host)), (0, Some(false)));
    host.slow_guests = false;
    host.pass(30_000);
    let calls = host.calls;
    lead(&mut host);
    assert_eq!((host.calls - calls, host.creates.len()), (OBJECTS, OBJECTS));
}

#[test]
fn x7_a_new_claim_enqueues_every_object_once_and_a_renewal_none() {
    let mut host = standby(true);
    lead(&mut host);
    fail_creates(&mut host);
    // The creates are retried with backoff, and then hang.
    host.pass(4_000);
    lead(&mut host);
    let before = host.taken();
    for _ in 0..100 {
        host.pass(2_000);
        lead(&mut host);
    }
    assert_eq!(host.taken(), before);

    host.step(Event::LeaseChanged { claim_until_ms: None });
    fail_creates(&mut host);
    host.pass(60_000);
    assert_eq!((host.taken(), host.creates.len()), (before, 0));
    lead(&mut host);
    assert_eq!(host.taken(), before + OBJECTS);

    // After a claim has ended, the next one is new: another host may have led.
    let before = host.taken();
    host.pass(LEASE_DURATION_MS);
    fail_creates(&mut host);
    lead(&mut host);
    assert_eq!(host.taken(), before + OBJECTS);
}

/// The claim is lost, another host may lead, and this host gets a new claim.
fn lead_again(host: &mut Host) {
    host.step(Event::LeaseChanged { claim_until_ms: None });
    lead(host);
}

#[test]
fn x7_a_call_from_before_another_host_led_is_made_again() {
    let mut host = standby(true);
    host.slow_guests = true;
    lead(&mut host);
    lead_again(&mut host);
    host.slow_guests = false;
    let (calls, results) = (host.calls, std::mem::take(&mut host.results));
    let in_flight = results.len();
    results.into_iter().for_each(|result| host.step(result));
    assert_eq!((host.calls - calls, host.creates.len()), (in_flight, OBJECTS), "each call once more");
}

#[test]
fn x7_a_plan_from_before_another_host_led_is_made_again() {
    let mut host = Host::started_as(Config { leader_election: true, ..config() });
    lead(&mut host);
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["finalize"] = json!(true);
    host.offer_manifest(0, 1, &manifest);
    host.create_objects(0, 1);
    let (id, target, patch) = host.patches.pop().expect("the finalizer is written first");
    lead_again(&mut host);
    let mut object = host.objects[&target].clone();
    merge(&mut object, &patch);
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let shown = host.stored(&target, object);
    host.step(host.succeeded(id, &uid));
    assert_eq!(host.creates.len(), 0, "the other host may have created it");
    host.step(shown);
    assert_eq!(host.creates.len(), 1);
}
