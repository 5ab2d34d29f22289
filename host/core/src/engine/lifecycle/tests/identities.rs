//! Whether the host may act as a plugin's ServiceAccount: when it is asked, and that nothing of a plugin begins before the answer
//! is yes, or continues when it is no.

use super::*;

fn identified() -> Value {
    json!({"serviceAccountName": "podset", "grants": {"customResources": ["podsets.example.com"]}})
}

fn rbac(kind: &str, namespace: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{kind}-{namespace}-{name}")},
    });
    merge(&mut object, rest);
    object
}

/// A Role that lets somebody act as these ServiceAccounts; as all, if there are none.
fn lending(kind: &str, namespace: &str, names: &[&str]) -> Value {
    let rule = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": names,
    });
    rbac(kind, namespace, "lending", &json!({"rules": [rule]}))
}

impl Alone {
    /// Nobody has said yet whether the host may act as the ServiceAccount of a component that is compiled.
    fn unlent() -> Self {
        let mut alone = Self::started();
        alone.may_act = None;
        alone.source("podset", "1");
        alone.want("podset", identified());
        alone.compiled("1", compiled("PodSet", &[]));
        alone.settle();
        alone
    }

    /// What has begun for the plugin: definitions, informers of kinds that are not RBAC's, reviews of what may be read, calls.
    fn begun(&mut self) -> Vec<String> {
        let is_of_roles = |line: &str| ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"].contains(&line);
        let begins = |line: &String| {
            let (verb, rest) = line.split_once(' ').unwrap_or_default();
            ["register", "watch", "review", "serve"].contains(&verb) && !is_of_roles(rest)
        };
        self.log().into_iter().filter(begins).collect()
    }

    fn change_role(&mut self, object: &Value) {
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let change = self.store.apply(decoded(&object));
        self.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
    }

    fn asked_identities(&self) -> Vec<String> {
        self.identity_reviews.iter().map(|review| format!("{} for {}", review.account, review.plugin)).collect()
    }

    fn comes_up_again(&mut self) {
        self.lend(true);
        self.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
        self.list("PodSet");
        self.list("ConfigMap");
        self.answer(&Readable::Everywhere);
        self.settle();
        assert_eq!(self.ready("podset"), "True Serving");
    }

    fn message_of(&self, of: &str) -> String {
        let conditions = self.shows("podset", "/conditions");
        let found = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == of).unwrap();
        found["message"].as_str().unwrap().to_owned()
    }
}

#[test]
fn g9_nothing_of_a_plugin_begins_before_the_host_may_act_as_its_service_account() {
    let mut alone = Alone::unlent();
    assert_eq!(alone.begun(), NONE, "no definition, no informer, no review of what it may read, no call");
    assert_eq!(alone.asked_identities(), ["mortise-system/podset for podset"]);
    alone.pass(1_000);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("False Starting".into(), "Unknown Waiting".into())
    );
    let waits = "the API server has not said whether the host may act as the ServiceAccount mortise-system/podset";
    assert!(alone.message_of("Ready").contains(waits), "{}", alone.message_of("Ready"));

    alone.lend(false);
    alone.settle();
    assert_eq!(alone.begun(), NONE);
    for of in ["Ready", "Permitted"] {
        assert_eq!(alone.condition("podset", of), "False Forbidden");
    }
    let why = alone.message_of("Permitted");
    for part in [
        "the host may not act as the ServiceAccount mortise-system/podset, so the plugin is not called",
        "add this rule to a Role of the namespace mortise-system that a RoleBinding gives the host",
        "`mortise rbac FILE.wasm --name podset --service-account podset -n mortise-system` prints both",
        r#"{"apiGroups":[""],"resourceNames":["podset"],"resources":["serviceaccounts"],"verbs":["impersonate"]}"#,
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    alone.pass(10_000);
    alone.comes_up_again();
}

#[test]
fn g9_a_plugin_ends_when_the_host_may_not_act_as_its_service_account_any_more_and_comes_back_with_the_right() {
    let mut alone = Alone::unlent();
    alone.comes_up_again();
    alone.pass(60_000);
    alone.change_role(&lending("Role", "mortise-system", &["podset"]));
    alone.log();
    alone.pass(1_000);
    assert_eq!(alone.asked_identities(), ["mortise-system/podset for podset"], "a second after the change");
    alone.lend(false);
    let log = alone.log();
    for line in [
        "withdraw podset",
        "stop PodSet",
        "stop ConfigMap",
        "forget PodSet",
        "forget ConfigMap",
        "refused podset: Forbidden",
    ] {
        assert!(log.contains(&line.to_owned()), "{line}: {log:?}");
    }
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("False Forbidden".into(), "False Forbidden".into())
    );
    alone.log();
    // A new version of it has no more than the old one.
    alone.source("podset", "2");
    alone.compiled("2", compiled("PodSet", &[]));
    alone.settle();
    assert_eq!((alone.begun(), alone.ready("podset")), (Vec::new(), "False Forbidden".into()));
    alone.pass(9_000);
    alone.comes_up_again();
}

/// The review that is in flight fails.
fn unavailable(alone: &mut Alone) {
    let review = alone.identity_reviews.pop_front().expect("it is asked");
    let error = WriteError { class: WriteErrorClass::Unavailable, message: "no etcd".to_owned() };
    alone.with(|lifecycle, cx| lifecycle.on_identity_reviewed(review, Err(error), cx));
    alone.settle();
}

#[test]
fn g9_a_right_that_is_not_confirmed_for_five_minutes_counts_no_more_until_there_is_an_answer() {
    let mut alone = Alone::unlent();
    alone.comes_up_again();
    alone.pass(60_000);
    alone.change_role(&lending("Role", "mortise-system", &["podset"]));
    alone.pass(1_000);
    unavailable(&mut alone);
    let fail_for = |alone: &mut Alone, milliseconds: u64| {
        for _ in 0..milliseconds / 1_000 {
            alone.pass(1_000);
            if !alone.identity_reviews.is_empty() {
                unavailable(alone);
            }
            alone.answer(&Readable::Everywhere);
        }
    };
    fail_for(&mut alone, 299_000);
    assert_eq!(alone.ready("podset"), "True Serving");
    alone.log();
    fail_for(&mut alone, 1_000);
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
    assert_eq!(alone.condition("podset", "Permitted"), "False ReviewFailed");
    let why = "for 5 minutes the API server has not said whether the host may act as the ServiceAccount mortise-system/podset";
    assert!(alone.message_of("Permitted").starts_with(why), "{}", alone.message_of("Permitted"));
    fail_for(&mut alone, 600_000);
    assert_eq!(alone.begun(), NONE);
    alone.pass(300_000);
    alone.lend(false);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "False Forbidden", "now it is known");
    alone.pass(60 * 60_000);
    alone.comes_up_again();
}

#[test]
fn g9_a_role_that_changes_while_a_review_fails_is_asked_about_as_soon_as_after_an_answer() {
    let mut alone = Alone::unlent();
    alone.comes_up_again();
    alone.pass(60 * 60_000);
    for backoff_ms in [5_000, 10_000, 20_000, 40_000] {
        unavailable(&mut alone);
        alone.pass(backoff_ms);
    }
    alone.change_role(&lending("Role", "mortise-system", &["podset"]));
    alone.pass(500);
    unavailable(&mut alone);
    alone.pass(2_499);
    assert_eq!(alone.asked_identities(), NONE, "three seconds after the review before");
    alone.pass(1);
    assert_eq!(alone.asked_identities().len(), 1);
    unavailable(&mut alone);
    alone.pass(10_000);
    assert_eq!(alone.asked_identities(), NONE, "the change is behind it, and the backoff counts");
}

#[test]
fn g9_without_an_answer_nothing_begins_and_what_serves_continues_for_a_while() {
    let mut alone = Alone::unlent();
    unavailable(&mut alone);
    alone.pass(4_999);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "Unknown ReviewFailed");
    assert!(alone.message_of("Permitted").ends_with("is not known: no etcd"), "{}", alone.message_of("Permitted"));
    assert_eq!((alone.begun(), alone.asked_identities()), (Vec::new(), Vec::new()));
    alone.pass(1);
    alone.comes_up_again();
    alone.pass(60 * 60_000);
    unavailable(&mut alone);
    assert_eq!(alone.ready("podset"), "True Serving", "the last answer counts");
    alone.pass(5_000);
    alone.lend(false);
    alone.settle();
    assert_eq!(alone.ready("podset"), "False Forbidden");
}

#[test]
fn g9_an_identity_is_asked_about_once_an_hour_and_after_changes_that_may_lend_it() {
    let mut alone = Alone::unlent();
    alone.comes_up_again();
    alone.answer(&Readable::Everywhere);
    let is_asked = |alone: &mut Alone, what: &str, times: usize| {
        let mut asked = 0;
        for _ in 0..30 {
            alone.pass(1_000);
            asked += alone.identity_reviews.len();
            alone.lend(true);
            alone.answer(&Readable::Everywhere);
        }
        assert_eq!(asked, times, "{what}");
    };
    is_asked(&mut alone, "nothing has changed", 0);
    let reading = rbac(
        "Role",
        "mortise-system",
        "reading",
        &json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]}),
    );
    alone.change_role(&reading);
    alone.change_role(&lending("Role", "mortise-system", &["other"]));
    alone.change_role(&lending("Role", "team-a", &[]));
    is_asked(&mut alone, "a Role that lends nobody, another one, or those of another namespace", 0);
    alone.change_role(&lending("Role", "mortise-system", &["other", "podset"]));
    is_asked(&mut alone, "its own", 2);
    alone.change_role(&lending("Role", "mortise-system", &["podset", "other"]));
    is_asked(&mut alone, "the same in another order", 0);
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    alone.change_role(&rbac("ClusterRole", "", "all", &everything));
    is_asked(&mut alone, "a ClusterRole that lends all", 2);
    let bind = |role: &str, subject: &str| {
        json!({
            "roleRef": {"kind": "Role", "name": role}, "subjects": [{"kind": "User", "name": subject}],
        })
    };
    alone.change_role(&rbac("RoleBinding", "mortise-system", "b", &bind("reading", "host")));
    is_asked(&mut alone, "a binding of a role that lends nobody", 0);
    alone.change_role(&rbac("RoleBinding", "mortise-system", "b", &bind("lending", "host")));
    is_asked(&mut alone, "a binding of its own", 2);
    alone.change_role(&rbac("RoleBinding", "mortise-system", "b", &bind("reading", "host")));
    is_asked(&mut alone, "its end", 2);
    alone.change_role(&rbac("RoleBinding", "mortise-system", "c", &bind("unseen", "host")));
    is_asked(&mut alone, "a binding of a role that the cache does not show", 2);
    alone.pass(60 * 60_000);
    assert_eq!(alone.asked_identities().len(), 1, "other authorizers than RBAC change without a notice");
}

#[test]
fn g9_a_role_that_comes_just_after_the_plugin_counts_and_a_write_that_is_refused_is_asked_about() {
    let mut alone = Alone::unlent();
    alone.lend(false);
    alone.settle();
    alone.pass(9_999);
    assert_eq!(alone.asked_identities(), NONE);
    alone.pass(1);
    alone.comes_up_again();
    alone.pass(60_000);
    let denial = r#"pods is forbidden: User "mortise" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "mortise-system""#;
    let plugin = Arc::from("podset");
    alone.take(ToLifecycle::Denied { plugin, permission: to_patch(), message: denial.to_owned() });
    alone.pass(1_000);
    assert_eq!(alone.asked_identities().len(), 1);
    alone.lend(false);
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
}

#[test]
fn g9_whom_a_plugin_is_to_act_as_next_is_asked_about_by_itself() {
    let mut alone = Alone::unlent();
    alone.comes_up_again();
    let mut next = identified();
    next["serviceAccountName"] = json!("powerful");
    alone.want("podset", next);
    assert_eq!(alone.asked_identities(), ["mortise-system/powerful for podset"]);
    alone.log();
    alone.lend(false);
    alone.settle();
    assert!(alone.log().contains(&"withdraw podset".to_owned()), "the Plugin object names the former one no more");
    assert_eq!(alone.ready("podset"), "False Forbidden");
    alone.want("podset", identified());
    alone.comes_up_again();
}

#[test]
fn g9_a_plugin_without_a_service_account_asks_nothing() {
    let alone = Alone::serving();
    assert!(alone.asked_identities().is_empty() && alone.lifecycle.plugins["podset"].identities.is_empty());
    assert!(!alone.lifecycle.informers.keys().any(is_rbac));
}
