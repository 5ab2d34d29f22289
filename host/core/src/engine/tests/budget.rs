//! Write budgets: over its budget, a plugin's keys wait and its Plugin object shows it. No other plugin waits.

use super::*;

/// The number of a plugin's children.
fn children(host: &Host, number: usize) -> usize {
    let owner = &*kind_of(number).kind;
    host.objects.values().filter(|object| object["metadata"]["ownerReferences"][0]["kind"] == owner).count()
}

/// All creates in flight succeed, and those that follow, without time passing.
fn end_all_creates(host: &mut Host) {
    while !host.creates.is_empty() {
        host.end_creates();
    }
}

#[test]
fn q4_a_plugin_over_its_budget_is_throttled_and_delays_no_other() {
    let mut host = Host::started_as(Config {
        call_slots: 8,
        write_budget: WriteBudget { writes_per_minute: 1_000, creates_per_minute: 60 },
        ..config()
    });
    host.offer(0);
    host.offer(1);
    host.create_objects(0, 100);
    end_all_creates(&mut host);
    // Plans that had begun when the sixtieth create was sent are finished.
    let begun = children(&host, 0);
    assert!((60..100).contains(&begun), "{begun} of 100 children");
    assert_eq!(host.reason(0, "Ready"), "Throttled");
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::Throttled { .. })), 1);
    host.create_objects(1, 10);
    end_all_creates(&mut host);
    assert_eq!((children(&host, 1), &*host.reason(1, "Ready")), (10, "Serving"), "another plugin does not wait");
    // From now on one a second.
    for _ in 0..110 {
        host.pass(1_000);
        end_all_creates(&mut host);
    }
    assert_eq!(children(&host, 0), 100);
    host.pass(120_000);
    assert_eq!(host.reason(0, "Ready"), "Serving");
}
