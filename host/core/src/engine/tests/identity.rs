//! Plugins with ServiceAccounts: whose request each write is.

use super::*;

/// A person lets a plugin act as this ServiceAccount.
fn name_account(host: &mut Host, number: usize, account: &str) {
    let target = plugin_object(&plugin_name(number));
    let mut object = host.objects[&target].clone();
    object["spec"] = json!({"serviceAccountName": account});
    host.store(&target, object);
}

/// The kinds that were written since the last time, and by whom.
fn sent(host: &mut Host) -> Vec<String> {
    std::mem::take(&mut host.sent_as).into_iter().map(|(kind, account)| format!("{kind} by {account}")).collect()
}

#[test]
fn g9_a_plugins_writes_are_requests_of_its_service_account_and_the_hosts_are_its_own() {
    let mut host = Host::serving(2);
    assert_eq!(sent(&mut host), ["Event by host", "Plugin by host"]);
    name_account(&mut host, 0, "zero");
    assert_eq!((host.compiled, sent(&mut host)), (2, vec!["Plugin by host".to_owned()]));
    host.status = Some(json!({"message": "done"}).to_string().into());
    host.create_objects(0, 1);
    host.create_objects(1, 1);
    host.end_creates();
    host.pass(10_000);
    let both = |account: &str, kind: &str| [format!("ConfigMap by {account}"), format!("{kind} by {account}")];
    let mut expected = [both("mortise-system/zero", "Kind0000"), both("host", "Kind0001")].concat();
    expected.sort();
    assert_eq!(sent(&mut host), expected);

    name_account(&mut host, 0, "other");
    host.create_objects(0, 2);
    host.fail_creates(WriteErrorClass::Denied, |_| true);
    host.pass(10_000);
    let all = sent(&mut host);
    assert!(all.contains(&"ConfigMap by mortise-system/other".to_owned()), "{all:?}");
    assert!(all.contains(&"Event by mortise-system/other".to_owned()), "the Event about its object: {all:?}");
    assert!(!all.iter().any(|line| line.contains("zero")), "{all:?}");
}
