//! Ownership in a circle, which would have objects made without end: it is refused while the other plugin is there.

use super::*;

/// Offers a plugin of this kind whose children are of other plugins' kinds.
fn offer(host: &mut Host, number: usize, owns: &[usize]) {
    let digest = component(number, 1);
    let mut manifest: Value = serde_json::from_str(&manifest(&plugin_name(number), &kind_of(number), 1)).unwrap();
    let owned = |number: &usize| {
        let kind = kind_of(*number);
        json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind})
    };
    manifest["controllers"][0]["owns"] = owns.iter().map(owned).collect();
    host.manifests.insert(digest.clone(), manifest.to_string().into());
    host.offer_component(number, digest);
}

/// Why a plugin does not serve, if it does not.
fn refused(host: &Host, number: usize) -> Option<String> {
    let health = host.engine.health();
    let plugin = health.plugins.iter().find(|plugin| plugin.name == plugin_name(number)).unwrap();
    (!plugin.ready).then(|| format!("{}: {}", plugin.reason, plugin.message))
}

#[test]
fn l2_a_plugin_that_closes_a_circle_of_owners_waits_until_another_of_it_is_gone() {
    let mut host = Host::started();
    offer(&mut host, 0, &[1]);
    offer(&mut host, 1, &[2]);
    // Twice the same kind at the end of two ways is no circle.
    offer(&mut host, 3, &[1, 2]);
    offer(&mut host, 2, &[0]);
    let ready: Vec<bool> = (0..4).map(|number| refused(&host, number).is_none()).collect();
    assert_eq!(ready, [true, true, false, true]);
    let why = refused(&host, 2).unwrap();
    let path = "Kind0002.example.com owns Kind0000.example.com owns Kind0001.example.com owns Kind0002.example.com";
    assert!(why.starts_with("OwnershipCycle") && why.contains(path), "{why}");
    host.withdraw(1);
    assert_eq!(refused(&host, 2), None, "the circle is open");
    offer(&mut host, 1, &[2]);
    assert!(refused(&host, 1).unwrap().contains("OwnershipCycle"), "whoever comes last waits");
}
