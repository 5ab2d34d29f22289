//! The admission backend is that of the serving version, from the same step on.

use super::*;
use crate::refusal::Refusal;

fn offer(host: &mut Host, version: usize) -> Digest {
    let digest = component(0, version);
    host.offer_component(0, digest.clone());
    digest
}

/// The backend that was set last, since the last time.
fn backend(host: &mut Host) -> Option<Option<Digest>> {
    let (name, backend) = host.admission.pop()?;
    assert_eq!(name, plugin_name(0));
    host.admission.clear();
    Some(backend.map(|backend| backend.digest.clone()))
}

fn served(host: &mut Host, digest: &Digest, result: Result<(), Refusal>) {
    host.step(Event::AdmissionServed { plugin: plugin_name(0), digest: digest.clone(), result });
}

/// Status and reason of a condition.
fn condition(host: &Host, name: &str) -> Option<String> {
    host.condition(0, name).map(|[status, reason, _]| format!("{status} {reason}"))
}

#[test]
fn a_plugin_without_admission_has_no_backend() {
    let mut host = Host::started();
    offer(&mut host, 1);
    assert_eq!(backend(&mut host), None);
    assert_eq!(condition(&host, "Admitting"), None);
    assert_eq!(condition(&host, "Ready").unwrap(), "True Serving");
}

#[test]
fn l5_a_plugin_is_ready_when_its_webhooks_are_served_and_shows_why_they_are_not() {
    let mut host = Host::started();
    let digest = offer(&mut host, ADMITTING);
    assert_eq!(backend(&mut host), Some(Some(digest.clone())));
    host.pass(1_000);
    assert_eq!(condition(&host, "Ready").unwrap(), "False AdmissionPending");
    served(&mut host, &digest, Ok(()));
    assert_eq!(condition(&host, "Admitting").unwrap(), "True Served");
    assert_eq!(condition(&host, "Ready").unwrap(), "True Serving");
    served(&mut host, &digest, Err(Refusal::new("Forbidden", "no")));
    assert_eq!(condition(&host, "Admitting").unwrap(), "False Forbidden");
    assert_eq!(condition(&host, "Ready").unwrap(), "False Forbidden");
}

#[test]
fn l1_the_backend_changes_in_the_step_in_which_a_version_takes_over() {
    let mut host = Host::started();
    let first = offer(&mut host, ADMITTING);
    served(&mut host, &first, Ok(()));
    backend(&mut host);
    let second = offer(&mut host, ADMITTING + 1);
    assert_eq!(backend(&mut host), Some(Some(second.clone())));
    served(&mut host, &first, Err(Refusal::new("Forbidden", "no")));
    assert_eq!(condition(&host, "Admitting").unwrap(), "True Served", "a result of the previous version is ignored");
    served(&mut host, &second, Ok(()));

    offer(&mut host, 1);
    assert_eq!(backend(&mut host), Some(None), "this version has no admission");
}

#[test]
fn l3_removing_a_plugin_removes_its_webhooks_also_when_no_host_ran_meanwhile() {
    let mut host = Host::started();
    let digest = offer(&mut host, ADMITTING);
    served(&mut host, &digest, Ok(()));
    backend(&mut host);
    host.slow_webhooks = true;
    host.withdraw(0);
    assert_eq!(backend(&mut host), Some(None));
    assert_eq!(host.deletes, [], "after a restart, only the Plugin object shows that there are webhooks");

    let mut restarted = Host::started();
    restarted.slow_webhooks = true;
    restarted.objects = host.objects;
    restarted.annotate(0);
    assert_eq!(backend(&mut restarted), Some(None));
    assert_eq!(restarted.deletes, []);
    restarted.step(Event::AdmissionEnded { plugin: plugin_name(0) });
    assert_eq!(restarted.deletes.len(), 1);
}
