//! Ownership in a cycle, which would create objects without end: it is refused until one of the plugins is removed.

use super::*;

/// Offers a plugin of this kind whose children are of other plugins' kinds.
fn offer(host: &mut Host, number: usize, owns: &[usize]) {
    let mut manifest = parsed(&manifest(&plugin_name(number), &kind_of(number), 1));
    let owned = |number: &usize| {
        let kind = kind_of(*number);
        json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind})
    };
    manifest["controllers"][0]["owns"] = owns.iter().map(owned).collect();
    host.offer_manifest(number, 1, &manifest);
}

#[test]
fn l2_a_plugin_that_closes_a_cycle_of_owners_waits_until_another_plugin_of_it_is_removed() {
    let mut host = Host::started();
    offer(&mut host, 0, &[1]);
    offer(&mut host, 1, &[2]);
    // Two paths to the same kind are no cycle.
    offer(&mut host, 3, &[1, 2]);
    offer(&mut host, 2, &[0]);
    let ready: Vec<bool> = (0..4).map(|number| host.why_unready(number).is_none()).collect();
    assert_eq!(ready, [true, true, false, true]);
    let why = host.why_unready(2).unwrap();
    let path = "Kind0002.example.com owns Kind0000.example.com owns Kind0001.example.com owns Kind0002.example.com";
    assert!(why.starts_with("OwnershipCycle") && why.contains(path), "{why}");
    host.withdraw(1);
    assert_eq!(host.why_unready(2), None);
    offer(&mut host, 1, &[2]);
    assert!(host.why_unready(1).unwrap().contains("OwnershipCycle"), "the last one waits");
}
