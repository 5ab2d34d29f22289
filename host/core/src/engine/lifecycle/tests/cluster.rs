//! Informers, definitions and the right to write: what the Lifecycle does when one of them comes or is lost.

use super::*;

#[test]
fn x7_without_the_right_to_write_a_version_serves_and_nothing_is_sent_until_may_write() {
    let mut alone = Alone::new(0);
    alone.may_write = false;
    alone.start();
    alone.objects.insert(
        "left".into(),
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
            "metadata": {
                "name": "left", "uid": "uid-left", "resourceVersion": "1",
                "labels": {"mortise.dev/host-namespace": "mortise-system"},
            },
        }),
    );
    alone.edit("left");
    alone.offer("podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.offer("cron", "2");
    alone.compiled("2", compiled("CronSet", &[]));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.registered("cron", "cronsets.example.com", Err(CrdError::Unavailable("not written by a standby".to_owned())));
    alone.list("PodSet");
    alone.list("ConfigMap");
    let log = alone.log();
    assert!(log.contains(&"serve podset 1".to_owned()) && alone.sent.is_empty(), "{log:?}");
    alone.pass(60_000);
    assert!(!alone.log().iter().any(|line| line.starts_with("create") || line.starts_with("delete")));
    alone.registered("cron", "cronsets.example.com", Err(CrdError::Unavailable("not written by a standby".to_owned())));
    alone.may_write = true;
    alone.take(ToLifecycle::MayWrite);
    let mut log = alone.log();
    log.sort();
    assert_eq!(log, ["create cron", "create podset", "delete left", "register cronsets.example.com"]);
    alone.settle();
    alone.pass(1_000);
    alone.settle();
    assert_eq!(alone.ready("cron"), "False Starting");
    assert!(!alone.objects["cron"].to_string().contains("standby"), "that it waited for a leader is past");
    alone.take(ToLifecycle::MayWrite);
    assert!(!alone.log().iter().any(|line| line.starts_with("register")), "once at a time");
}

#[test]
fn x7_a_registration_that_may_only_look_is_repeated_at_once_by_a_host_that_may_write_meanwhile() {
    let mut alone = Alone::new(0);
    alone.may_write = false;
    alone.with(Lifecycle::start);
    alone.may_write = true;
    alone.take(ToLifecycle::MayWrite);
    assert_eq!(alone.log(), ["register plugins.mortise.dev"], "one at a time");
    let unavailable = || Err(CrdError::Unavailable("not mine to write".to_owned()));
    alone.registered("", plugin_object::CRD_NAME, unavailable());
    assert_eq!(alone.log(), ["failed plugins.mortise.dev", "register plugins.mortise.dev"]);
    alone.registered("", plugin_object::CRD_NAME, unavailable());
    assert_eq!(alone.log(), NONE, "and then with backoff");
    alone.pass(3_300);
    assert_eq!(alone.log(), ["register plugins.mortise.dev"]);
}

#[test]
fn what_keeps_the_hosts_own_crd_away_is_observed_once_and_again_when_it_is_something_else() {
    let mut alone = Alone::new(0);
    alone.with(Lifecycle::start);
    let unavailable = || CrdError::Unavailable("the API server is away".to_owned());
    let denied = || CrdError::Denied("no".to_owned());
    let refused = || CrdError::Refused(Refusal::new("CrdOfAnother", "no"));
    let mut observed = Vec::new();
    for error in [unavailable(), unavailable(), denied(), denied(), refused(), refused(), unavailable()] {
        assert_eq!(alone.log(), ["register plugins.mortise.dev"], "it is tried for as long as it takes");
        alone.registered("", plugin_object::CRD_NAME, Err(error));
        observed.extend(alone.log());
        alone.pass(40_000);
    }
    let crd = "failed plugins.mortise.dev";
    assert_eq!(observed, [crd, "refused mortise: Forbidden", "refused mortise: CrdOfAnother", crd]);
}

/// How many requests to register a CRD an hour takes in which each has the same result.
fn registrations_of_an_hour(alone: &mut Alone, plugin: &str, crd: &str, result: &Result<CrdOwner, CrdError>) -> usize {
    let registers = format!("register {crd}");
    let mut requests = 0;
    for _ in 0..3_600 {
        if alone.log().contains(&registers) {
            requests += 1;
            alone.registered(plugin, crd, result.clone());
        }
        alone.pass(1_000);
    }
    requests
}

#[test]
fn q4_a_crd_that_is_refused_for_good_costs_a_request_in_five_minutes_and_a_change_is_tried_at_once() {
    let crd = "podsets.example.com";
    let denied = Err(CrdError::Denied("a policy says no".to_owned()));
    let refused = Err(CrdError::Refused(Refusal::new("CrdInvalid", "no")));
    for result in [denied, refused] {
        let mut alone = Alone::new(0);
        alone.start();
        alone.offer("podset", "1");
        alone.compiled("1", compiled("PodSet", &[]));
        let requests = registrations_of_an_hour(&mut alone, "podset", crd, &result);
        assert!((10..=20).contains(&requests), "{requests}: {result:?}");
        alone.offer("podset", "2");
        alone.compiled("2", compiled("PodSet", &[]));
        assert!(alone.log().contains(&format!("register {crd}")), "a new version does not wait");
        alone.registered("podset", crd, result);
        alone.log();
        alone.pass(17_000);
        assert_eq!(alone.log(), [format!("register {crd}")], "and begins with the first delay");
    }
    let mut alone = Alone::serving();
    alone.watch_fails("PodSet", WatchError::NotServed("gone".to_owned()));
    let deleted = Err(CrdError::Denied("no".to_owned()));
    assert!(registrations_of_an_hour(&mut alone, "podset", crd, &deleted) <= 20);
    alone.list("PodSet");
    assert!(alone.log().contains(&format!("register {crd}")), "somebody has made it");
    let mut alone = Alone::new(0);
    alone.with(Lifecycle::start);
    let away = Err(CrdError::Unavailable("away".to_owned()));
    let requests = registrations_of_an_hour(&mut alone, "", plugin_object::CRD_NAME, &away);
    assert!((100..=130).contains(&requests), "{requests}: what is back is seen within half a minute");
}

#[test]
fn r4_r5_readiness_follows_the_informers_and_is_sent_once_for_each_change() {
    let mut alone = Alone::serving();
    alone.serve("cron", "2", "CronSet");
    let unavailable = || WatchError::Unavailable("connection refused".to_owned());
    let denied = || WatchError::Denied("no".to_owned());
    let set_ready = |alone: &mut Alone| {
        let log = alone.log();
        log.into_iter().filter(|line| line.ends_with("ready")).collect::<Vec<_>>()
    };
    alone.watch_fails("ConfigMap", unavailable());
    assert_eq!(set_ready(&mut alone), NONE, "what was listed stays valid");
    alone.watch_fails("PodSet", unavailable());
    assert_eq!(set_ready(&mut alone), ["podset/PodSet unready"], "a primary may have been deleted unseen");
    alone.watch_fails("PodSet", unavailable());
    assert_eq!(set_ready(&mut alone), NONE);
    alone.watch_fails("ConfigMap", denied());
    assert_eq!(set_ready(&mut alone), ["cron/CronSet unready"], "the other is unready already");
    alone.watch_fails("ConfigMap", unavailable());
    alone.list("PodSet");
    assert_eq!(set_ready(&mut alone), NONE, "R5: a denial holds until the kind is listed");
    alone.list("ConfigMap");
    assert_eq!(set_ready(&mut alone), ["cron/CronSet ready", "podset/PodSet ready"]);
}

#[test]
fn only_a_first_version_that_nothing_blocks_is_starting() {
    let mut alone = Alone::new(0);
    alone.start();
    alone.offer("podset", "1");
    let is_starting = |alone: &Alone| alone.lifecycle.health(&alone.store, None).plugins[0].starting;
    assert!(is_starting(&alone), "it is compiled");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    assert!(is_starting(&alone), "its kinds are listed");
    alone.watch_fails("PodSet", WatchError::Denied("no".to_owned()));
    assert!(!is_starting(&alone), "it is blocked");
    alone.list("PodSet");
    alone.list("ConfigMap");
    alone.offer("podset", "2");
    let health = alone.lifecycle.health(&alone.store, None).plugins.remove(0);
    assert!(health.ready && health.loading && !health.starting, "{health:?}");
}

#[test]
fn r6_after_a_restore_every_kind_is_listed_anew_and_nothing_is_ready_before() {
    let mut alone = Alone::serving();
    alone.take(ToLifecycle::Faulted { plugin: "podset".into(), message: "it traps".to_owned() });
    let name = alone.accept();
    alone.log();
    alone.restored("PodSet", true);
    assert_eq!(alone.log(), ["relist Plugin", "relist ConfigMap", "podset/PodSet unready"], "PodSet lists by itself");
    alone.restored("PodSet", false);
    assert_eq!(alone.log(), ["relist PodSet", "relist Plugin", "relist ConfigMap"]);
    alone.list("PodSet");
    alone.list("ConfigMap");
    assert_eq!(alone.log(), ["podset/PodSet ready"]);
    // The write of before was taken back: nothing waits for its version.
    alone.objects.get_mut(&name).unwrap()["status"] = json!({});
    alone.version = 2;
    alone.objects.get_mut(&name).unwrap()["metadata"]["resourceVersion"] = json!("2");
    alone.list("Plugin");
    assert_eq!(alone.log()[0], STATUS);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True GuestFault");
    alone.log();
    alone.pass(3_000);
    assert_eq!(alone.log(), ["register plugins.mortise.dev", "register podsets.example.com"]);
}

#[test]
fn r6_an_audit_that_finds_a_state_that_was_taken_back_sends_restored_and_other_differences_relist() {
    let mut alone = Alone::new(60_000);
    alone.start();
    let mut audit = |object_version: u64, list_version: u64| {
        while !alone.log().contains(&"audit Plugin".to_owned()) {
            alone.pass(1_000);
        }
        let name = Name::new("", "podset");
        let listed = Listed { name, uid: "uid-podset".into(), version: ResourceVersion(object_version) };
        let page = Page { version: ResourceVersion(list_version), objects: vec![listed], is_last: true };
        alone.with(|lifecycle, cx| lifecycle.on_audit(&kind("Plugin").into(), Response::Begun, cx));
        alone.with(|lifecycle, cx| lifecycle.on_audit(&kind("Plugin").into(), Response::Page(page), cx));
        alone.store.progress(kind("Plugin"), ResourceVersion(list_version));
        alone.pass(0);
        let log = alone.log();
        alone.version = list_version;
        alone.offer("podset", "1");
        alone.settle();
        alone.log();
        log
    };
    assert_eq!(audit(5, 5), ["relist Plugin"], "it is missing in the cache");
    assert_eq!(audit(1, 9), ["restored Plugin, which lists: false"], "the cache has version 6");
}

#[test]
fn a_host_that_drains_begins_nothing() {
    let mut alone = Alone::serving();
    alone.draining = true;
    alone.offer("podset", "2");
    alone.offer("cron", "3");
    alone.take(ToLifecycle::Faulted { plugin: "podset".into(), message: "it traps".to_owned() });
    alone.take(ToLifecycle::MayWrite);
    alone.gone("podset");
    assert!(!alone.log().iter().any(|line| ["compile", "register", "create", "patch", "delete"].contains(&line.split(' ').next().unwrap())));
    assert!(alone.sent.is_empty());
}
