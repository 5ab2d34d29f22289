//! Who answers the API server's questions follows who serves, in the same step.

use super::{ADMITTING, Event, Host, component, plugin_name, plugin_object};
use crate::digest::Digest;
use crate::refusal::Refusal;

/// The plugin is found in this version.
fn offer(host: &mut Host, version: usize) -> Digest {
    let digest = component(0, version);
    host.offer_component(0, digest.clone());
    digest
}

/// What the shell was last asked to do for the plugin: answer with this version, or end.
fn asked(host: &mut Host) -> Option<Option<Digest>> {
    let (name, serving) = host.admission.pop()?;
    assert_eq!(name, plugin_name(0));
    host.admission.clear();
    Some(serving.map(|serving| serving.digest.clone()))
}

fn served(host: &mut Host, digest: &Digest, result: Result<(), Refusal>) {
    host.step(Event::AdmissionServed { plugin: plugin_name(0), digest: digest.clone(), result });
}

/// A condition of the Plugin object: its status and reason.
fn condition(host: &Host, name: &str) -> Option<(String, String)> {
    let object = &host.objects[&plugin_object(&plugin_name(0))];
    let found = object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

fn pair(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[test]
fn a_plugin_without_admission_has_nobody_asked() {
    let mut host = Host::started();
    offer(&mut host, 1);
    assert_eq!(asked(&mut host), None);
    assert_eq!(condition(&host, "Admitting"), None);
    assert_eq!(condition(&host, "Ready"), pair("True", "Serving"));
}

#[test]
fn l5_a_plugin_is_ready_when_the_api_server_asks_it_and_says_why_it_does_not() {
    let mut host = Host::started();
    let digest = offer(&mut host, ADMITTING);
    assert_eq!(asked(&mut host), Some(Some(digest.clone())));
    host.pass(1_000);
    assert_eq!(condition(&host, "Ready"), pair("False", "AdmissionPending"));
    served(&mut host, &digest, Ok(()));
    assert_eq!(condition(&host, "Admitting"), pair("True", "Served"));
    assert_eq!(condition(&host, "Ready"), pair("True", "Serving"));
    served(&mut host, &digest, Err(Refusal::new("Forbidden", "no")));
    assert_eq!(condition(&host, "Admitting"), pair("False", "Forbidden"));
    assert_eq!(condition(&host, "Ready"), pair("False", "Forbidden"));
}

#[test]
fn l1_the_version_that_takes_over_answers_from_that_step_on() {
    let mut host = Host::started();
    let first = offer(&mut host, ADMITTING);
    served(&mut host, &first, Ok(()));
    asked(&mut host);
    let second = offer(&mut host, ADMITTING + 1);
    assert_eq!(asked(&mut host), Some(Some(second.clone())));
    served(&mut host, &first, Err(Refusal::new("Forbidden", "no")));
    assert_eq!(condition(&host, "Admitting"), pair("True", "Served"), "what is told of the version before is no news");
    served(&mut host, &second, Ok(()));

    offer(&mut host, 1);
    assert_eq!(asked(&mut host), Some(None), "this version has no admission");
}

#[test]
fn l3_a_plugin_that_goes_ends_its_admission_also_when_it_went_while_no_host_ran() {
    let mut host = Host::started();
    let digest = offer(&mut host, ADMITTING);
    served(&mut host, &digest, Ok(()));
    asked(&mut host);
    host.slow_webhooks = true;
    host.withdraw(0);
    assert_eq!(asked(&mut host), Some(None));
    assert_eq!(host.deletes, [], "a host that starts anew knows of the webhooks by the Plugin object alone");

    let mut restarted = Host::started();
    restarted.slow_webhooks = true;
    restarted.objects = host.objects;
    let target = plugin_object(&plugin_name(0));
    let object = restarted.objects[&target].clone();
    let event = restarted.stored(&target, object);
    restarted.step(event);
    assert_eq!(asked(&mut restarted), Some(None));
    assert_eq!(restarted.deletes, []);
    restarted.step(Event::AdmissionEnded { plugin: plugin_name(0) });
    assert_eq!(restarted.deletes.len(), 1);
}
