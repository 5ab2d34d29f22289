//! What ServiceAccounts may read: when it is asked, and what follows.

use super::*;

const NOWHERE: Readable = Readable::In(BTreeSet::new());

fn within(namespaces: &[&str]) -> Readable {
    Readable::In(namespaces.iter().map(|name| Arc::from(*name)).collect())
}

/// A role or a binding of RBAC.
fn rbac(kind: &str, namespace: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
    });
    merge(&mut object, rest);
    object
}

fn binding(namespace: &str, role: &str, subjects: &Value) -> Value {
    rbac("RoleBinding", namespace, "readers", &json!({"roleRef": {"kind": "Role", "name": role}, "subjects": subjects}))
}

fn podset() -> Value {
    json!([{"kind": "ServiceAccount", "name": "podset", "namespace": "mortise-system"}])
}

impl Alone {
    /// A plugin whose object names the ServiceAccount "podset", before its component is compiled.
    fn named() -> Self {
        let mut alone = Self::started();
        alone.want("podset", json!({"serviceAccountName": "podset"}));
        alone.source("podset", "1");
        alone
    }

    /// Up to the list of its kinds.
    fn identified() -> Self {
        Self::identified_in(&[])
    }

    /// With bindings in these namespaces.
    fn identified_in(namespaces: &[String]) -> Self {
        let mut alone = Self::named();
        alone.bind(namespaces);
        alone.comes_up("podset", "1");
        alone
    }

    /// Somebody changes an object of RBAC, and the watch shows it.
    fn grant(&mut self, object: &Value) {
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let change = self.store.apply(decoded(&object));
        self.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
    }

    fn asked(&self) -> Vec<String> {
        let shown = |review: &Review| {
            let namespaces: Vec<&str> = review.namespaces.iter().map(|name| &**name).collect();
            format!("{} {} {}", review.account, review.kind.kind, namespaces.join(",")).trim_end().to_owned()
        };
        self.reviews.iter().map(shown).collect()
    }

    /// Bindings give the ServiceAccount something in these namespaces.
    fn bind(&mut self, namespaces: &[String]) {
        for namespace in namespaces {
            self.grant(&binding(namespace, "reader", &podset()));
        }
    }

    /// Where the reviews of PodSets without an answer ask: "*" for everywhere.
    fn places(&self) -> Vec<String> {
        let shown = |review: &Review| {
            let everywhere = review.everywhere.then_some("*");
            let places: Vec<&str> =
                everywhere.into_iter().chain(review.namespaces.iter().map(|name| &**name)).collect();
            places.join(",")
        };
        self.reviews.iter().filter(|review| review.kind == kind("PodSet")).map(shown).collect()
    }

    /// Of the namespaces that each review asks about, these may be read.
    fn answer_of(&mut self, readable: &[String]) {
        let readable: BTreeSet<Arc<str>> = readable.iter().map(|name| Arc::from(&**name)).collect();
        while let Some(review) = self.reviews.pop_front() {
            let answer = Readable::In(review.namespaces.intersection(&readable).cloned().collect());
            self.with(|lifecycle, cx| lifecycle.on_reviewed(review, Ok(answer), cx));
        }
        self.settle();
    }

    /// Where the serving version sees PodSets.
    fn sees(&self) -> String {
        let active = self.lifecycle.plugins["podset"].active.as_ref().expect("it serves");
        match &active.rights.as_ref().expect("it has a ServiceAccount")[&kind("PodSet")] {
            Readable::Everywhere => "*".to_owned(),
            Readable::In(namespaces) => namespaces.iter().map(|name| &**name).collect::<Vec<_>>().join(","),
        }
    }

    /// The message of Permitted.
    fn permitted(&self) -> String {
        let conditions = self.shows("podset", "/conditions");
        let permitted = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == "Permitted");
        permitted.unwrap()["message"].as_str().unwrap().to_owned()
    }

    fn ready_lines(&mut self) -> Vec<String> {
        self.log().into_iter().filter(|line| line.contains("ready") || line.starts_with("serve")).collect()
    }
}

#[test]
fn g9_a_version_serves_when_it_is_known_what_its_service_account_may_read() {
    let mut alone = Alone::started();
    alone.lists_roles = false;
    alone.want("podset", json!({"serviceAccountName": "podset"}));
    alone.source("podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.settle();
    alone.list("RoleBinding");
    alone.grant(&binding("team-a", "reader", &podset()));
    alone.may_act = None;
    for kind in ["ClusterRole", "ClusterRoleBinding", "Role"] {
        assert!(alone.identity_reviews.is_empty() && alone.reviews.is_empty(), "the bindings say where to ask");
        alone.list(kind);
    }
    alone.may_act = Some(true);
    alone.comes_up("podset", "1");
    let asked = ["PodSet", "ConfigMap"].map(|kind| format!("mortise-system/podset {kind} team-a"));
    assert_eq!(alone.asked(), asked);
    alone.log();
    alone.answer(&within(&["team-a"]));
    alone.settle();
    assert_eq!(alone.ready_lines(), ["serve podset 1", "podset/PodSet ready"]);
    assert_eq!(alone.ready("podset"), "True Serving");
    alone.pass(10_000);
    assert_eq!(alone.asked().len(), 2, "the roles may have been applied together with the Plugin");
}

#[test]
fn g9_r5_a_kind_that_a_service_account_may_read_nowhere_blocks_the_plugin_and_comes_back_with_the_right() {
    let mut alone = Alone::identified();
    alone.review(&NOWHERE);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("False Forbidden".into(), "False Forbidden".into())
    );
    let message = alone.shows("podset", "/conditions").to_string();
    assert!(message.contains("the ServiceAccount mortise-system/podset may not list, watch and get"), "{message}");
    assert!(
        message.contains(
            "`mortise rbac FILE.wasm --name podset --service-account podset -n mortise-system` prints the rules"
        ),
        "{message}"
    );

    alone.pass(5_000);
    alone.grant(&binding("team-a", "reader", &podset()));
    alone.pass(999);
    assert_eq!(alone.asked(), NONE, "several changes come together");
    alone.pass(1);
    assert_eq!(alone.asked().len(), 2);
    alone.log();
    alone.answer(&within(&["team-a"]));
    alone.settle();
    assert_eq!(alone.ready_lines(), ["serve podset 1", "podset/PodSet ready"]);
    assert_eq!(alone.condition("podset", "Permitted"), "True Allowed");

    // More of it, and then nothing.
    alone.pass(60_000);
    alone.answer(&within(&["team-a"]));
    alone.grant(&binding("team-a", "other", &podset()));
    alone.pass(3_000);
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!(alone.ready_lines(), ["serve podset 1"; 2], "it sees more from now on, of one kind and of the other");
    alone.grant(&binding("team-a", "other", &json!([])));
    alone.pass(3_000);
    alone.answer(&NOWHERE);
    alone.settle();
    assert_eq!(alone.ready_lines(), ["serve podset 1", "podset/PodSet unready", "serve podset 1"]);
    assert_eq!(alone.ready("podset"), "False Forbidden");
}

#[test]
fn g9_a_change_of_rights_is_asked_about_twice_and_only_for_those_whom_it_may_concern() {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.pass(60_000);
    let somebody = json!([{"kind": "ServiceAccount", "name": "other", "namespace": "mortise-system"}]);
    alone.grant(&binding("team-a", "reader", &somebody));
    alone.grant(&rbac("Role", "team-a", "reader", &json!({"rules": []})));
    alone.pass(20_000);
    assert_eq!(alone.asked(), NONE);
    let is_asked_twice = |alone: &mut Alone, what: &str| {
        for ms in [1_000, 9_000] {
            alone.pass(ms - 1);
            assert_eq!(alone.asked(), NONE, "{what} before {ms}");
            alone.pass(1);
            assert_eq!(alone.asked().len(), 2, "{what} after {ms}");
            alone.answer(&Readable::Everywhere);
        }
        alone.pass(20_000);
        assert_eq!(alone.asked(), NONE, "{what}");
    };
    for subjects in [
        podset(),
        json!([{"kind": "ServiceAccount", "name": "podset"}]),
        json!([{"kind": "User", "name": "system:serviceaccount:mortise-system:podset"}]),
        json!([{"kind": "Group", "name": "system:serviceaccounts:mortise-system"}]),
        json!([{"kind": "Group", "name": "system:authenticated"}]),
    ] {
        let in_own = subjects[0].get("namespace").is_none() && subjects[0]["kind"] == "ServiceAccount";
        let namespace = if in_own { "mortise-system" } else { "team-a" };
        alone.grant(&binding(namespace, "reader", &subjects));
        is_asked_twice(&mut alone, &subjects.to_string());
        // The role of a binding, of its namespace and no other.
        alone.grant(&rbac("Role", "team-b", "reader", &json!({"rules": []})));
        alone.pass(20_000);
        assert_eq!(alone.asked(), NONE, "{subjects}");
        alone.grant(&rbac("Role", namespace, "reader", &json!({"rules": [{"verbs": ["get"]}]})));
        is_asked_twice(&mut alone, &format!("the role of {subjects}"));
        alone.grant(&binding(namespace, "reader", &json!([])));
        is_asked_twice(&mut alone, "its end");
    }
    alone.settle();
    alone.log();
    alone.pass(60 * 60_000);
    assert_eq!(alone.asked().len(), 2, "other authorizers than RBAC change without a notice");
    alone.answer(&Readable::Everywhere);
    assert_eq!(alone.ready_lines(), NONE, "nothing has changed for the plugin");
}

#[test]
fn g9_however_often_bindings_change_a_kind_is_asked_about_each_three_seconds_at_most() {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.pass(60_000);
    let mut reviews = 0;
    for n in 0..600 {
        alone.grant(&binding("team-a", "reader", &if n % 2 == 0 { podset() } else { json!([]) }));
        alone.pass(100);
        reviews += alone.asked().len();
        alone.answer(&Readable::Everywhere);
    }
    assert!((2 * 18..=2 * 22).contains(&reviews), "{reviews} reviews of two kinds in a minute");
}

#[test]
fn g9_an_answer_to_another_review_counts_for_nothing_and_what_is_declared_anew_is_asked_about() {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.want("podset", json!({"serviceAccountName": "podset", "namespaces": ["team-a"]}));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    let first: Vec<Review> = alone.reviews.drain(..).collect();
    assert!(
        first.len() == 2 && first.iter().all(|review| review.namespaces == BTreeSet::from(["team-a".into()])),
        "{first:?}"
    );
    alone.want("podset", json!({"serviceAccountName": "podset", "namespaces": ["team-b"]}));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.log();
    for review in first {
        alone.with(|lifecycle, cx| lifecycle.on_reviewed(review, Ok(within(&["team-a"])), cx));
    }
    assert_eq!(alone.ready_lines(), NONE);
    alone.answer(&within(&["team-b"]));
    alone.settle();
    assert_eq!(alone.ready_lines(), ["serve podset 1"]);
    assert_eq!(alone.ready("podset"), "True Serving");
}

/// The API server answers no review that was asked.
fn fail_reviews(alone: &mut Alone) {
    while let Some(review) = alone.reviews.pop_front() {
        let error = WriteError { class: WriteErrorClass::Unavailable, message: "away".to_owned() };
        alone.with(|lifecycle, cx| lifecycle.on_reviewed(review, Err(error), cx));
    }
    alone.settle();
}

#[test]
fn g9_a_review_that_fails_is_repeated_and_what_was_known_stays() {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.pass(60_000);
    alone.grant(&binding("team-a", "reader", &podset()));
    alone.pass(1_000);
    fail_reviews(&mut alone);
    assert_eq!(alone.ready("podset"), "True Serving");
    alone.pass(5_000);
    assert_eq!(alone.asked().len(), 2);

    let mut alone = Alone::identified();
    for kind in ["ClusterRole", "ClusterRoleBinding", "Role"] {
        alone.list(kind);
    }
    alone.watch_fails("RoleBinding", WatchError::Denied("no".to_owned()));
    for failures in 0..5 {
        assert_eq!(alone.asked().len(), 2, "without the right to read bindings it is asked for everywhere");
        fail_reviews(&mut alone);
        alone.pass((5_000 << failures) - 1);
        assert_eq!(alone.asked(), NONE);
        alone.pass(1);
    }
    assert_eq!(alone.condition("podset", "Permitted"), "Unknown ReviewFailed");
}

#[test]
fn g9_what_is_not_known_to_be_readable_for_five_minutes_is_shown_no_more_until_there_is_an_answer() {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.pass(60_000);
    alone.grant(&binding("team-a", "reader", &podset()));
    alone.pass(1_000);
    fail_reviews(&mut alone);
    for _ in 0..299 {
        alone.pass(1_000);
        fail_reviews(&mut alone);
    }
    assert_eq!((&*alone.sees(), &*alone.ready("podset")), ("*", "True Serving"));
    alone.pass(1_000);
    fail_reviews(&mut alone);
    assert_eq!((&*alone.sees(), &*alone.condition("podset", "Permitted")), ("", "Unknown ReviewFailed"));
    alone.pass(5_000);
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!((&*alone.sees(), &*alone.ready("podset")), ("*", "True Serving"));
}

#[test]
fn g9_l5_what_was_denied_before_a_change_of_rights_is_forgotten_since_every_call_is_made_again() {
    let mut alone = Alone::identified();
    alone.review(&within(&["team-a"]));
    let plugin = || Arc::from("podset");
    alone.take(ToLifecycle::Denied { plugin: plugin(), permission: to_patch(), message: "no".to_owned() });
    alone.take(ToLifecycle::Faulted { plugin: plugin(), message: "a trap".to_owned() });
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("True GuestFault".to_owned(), "False Forbidden".to_owned())
    );
    alone.pass(10_000);
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("True Serving".to_owned(), "True Allowed".to_owned())
    );
}

/// A plugin that serves what is pinned, and whose source has another component.
fn pinned_elsewhere(spec: &Value) -> Alone {
    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    let mut pinned = spec.clone();
    pinned["digest"] = json!("1");
    alone.want("podset", pinned);
    alone.settle();
    alone.source("podset", "2");
    alone.settle();
    alone
}

#[test]
fn g9_namespaces_that_are_taken_away_count_at_once_also_while_the_source_offers_what_may_not_serve() {
    let alone = pinned_elsewhere(&json!({"serviceAccountName": "podset", "namespaces": ["team-a"]}));
    assert_eq!(alone.condition("podset", "Ready"), "True ServingPrevious");
    let version = &alone.lifecycle.plugins["podset"].active.as_ref().unwrap().version;
    assert_eq!(version.namespaces.as_deref(), Some(&BTreeSet::from(["team-a".into()])));
    assert!(alone.log.contains(&"serve podset 1".to_owned()), "{:?}", alone.log);
}

#[test]
fn g9_a_version_that_none_replaces_ends_with_the_account_that_its_plugin_names_no_more() {
    let mut alone = pinned_elsewhere(&json!({"serviceAccountName": "podset"}));
    assert_eq!(alone.ready("podset"), "True ServingPrevious");
    alone.want("podset", json!({"serviceAccountName": "narrow", "digest": "1"}));
    alone.settle();
    assert_eq!(alone.ready("podset"), "False DigestMismatch");
    assert!(alone.log().contains(&"withdraw podset".to_owned()));

    let mut alone = Alone::identified();
    alone.review(&Readable::Everywhere);
    alone.settle();
    alone.want("podset", json!({"serviceAccountName": "blind"}));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.answer(&NOWHERE);
    alone.settle();
    assert_eq!(*alone.shows("podset", "/identity"), "mortise-system/podset", "its roles may come with the Plugin");
    alone.pass(10_000);
    alone.answer(&NOWHERE);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("False Forbidden".into(), "False Forbidden".into())
    );
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
    alone.grant(&binding(
        "team-a",
        "reader",
        &json!([{"kind": "ServiceAccount", "name": "blind", "namespace": "mortise-system"}]),
    ));
    alone.pass(3_000);
    alone.answer(&within(&["team-a"]));
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.shows("podset", "/identity")),
        ("True Serving".into(), &json!("mortise-system/blind"))
    );
}

/// "n000", "n001", ...
fn numbered(namespaces: std::ops::Range<usize>) -> Vec<String> {
    namespaces.map(|n| format!("n{n:03}")).collect()
}

#[test]
fn g9_a_hundred_namespaces_with_a_binding_are_asked_about_and_permitted_says_when_there_are_more() {
    let mut alone = Alone::identified_in(&numbered(0..100));
    assert_eq!(alone.places(), [format!("*,{}", numbered(0..100).join(","))]);
    alone.answer_of(&numbered(0..200));
    assert_eq!(alone.sees(), numbered(0..100).join(","));
    assert_eq!(alone.condition("podset", "Permitted"), "True Allowed");
    alone.pass(10_000);
    alone.answer_of(&numbered(0..200));

    // One more, which comes after the others.
    alone.pass(60_000);
    alone.bind(&numbered(100..101));
    for ms in [1_000, 9_000] {
        alone.pass(ms);
        assert_eq!(alone.reviews.iter().map(|review| review.namespaces.len()).max(), Some(0), "it is beyond the bound");
        alone.answer_of(&numbered(0..200));
    }
    assert_eq!(alone.sees(), numbered(0..100).join(","));
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("True Serving".to_owned(), "True TooManyNamespaces".to_owned())
    );
    let message = alone.permitted();
    for part in ["mortise-system/podset in more than 100 namespaces", "a ClusterRoleBinding", "spec.namespaces"] {
        assert!(message.contains(part), "{part}: {message}");
    }

    // The first ones by name are asked about.
    alone.pass(60_000);
    alone.bind(&["a".to_owned()]);
    alone.pass(1_000);
    assert_eq!(alone.places(), ["a"]);
    alone.answer_of(&["a".to_owned()]);
    assert_eq!(alone.sees(), format!("a,{}", numbered(0..99).join(",")));
    alone.pass(60_000);
    alone.answer_of(&["a".to_owned()]);
    alone.pass(60_000);
    alone.grant(&binding("a", "reader", &json!([])));
    alone.pass(1_000);
    assert_eq!(alone.places(), ["n099"], "it has a place again, and nothing is known of it");
    alone.answer_of(&numbered(0..200));
    assert_eq!(alone.sees(), numbered(0..100).join(","));

    // What somebody with a right in the cluster says counts, however many bindings there are.
    alone.pass(60_000);
    alone.answer_of(&numbered(0..200));
    let cluster_wide = json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": podset()});
    alone.grant(&rbac("ClusterRoleBinding", "", "podset", &cluster_wide));
    alone.pass(3_000);
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!((&*alone.sees(), &*alone.condition("podset", "Permitted")), ("*", "True Allowed"));
}

#[test]
fn g9_namespaces_that_the_plugin_object_names_are_asked_about_however_many_bindings_there_are() {
    let mut alone = Alone::named();
    alone.bind(&numbered(0..150));
    alone.want("podset", json!({"serviceAccountName": "podset", "namespaces": numbered(50..150)}));
    alone.comes_up("podset", "1");
    assert_eq!(alone.places(), [format!("*,{}", numbered(50..150).join(","))]);
    alone.answer_of(&numbered(0..150));
    assert_eq!(alone.sees(), numbered(50..150).join(","));
    assert_eq!(alone.condition("podset", "Permitted"), "True Allowed");
    alone.pass(10_000);
    alone.answer_of(&numbered(0..150));
    alone.pass(60_000);
    alone.bind(&numbered(200..201));
    alone.pass(20_000);
    assert_eq!(alone.asked(), NONE, "a namespace in which it sees nothing");
}

#[test]
fn g9_a_plugin_whose_bindings_count_beyond_the_bound_alone_is_blocked_with_the_reason() {
    let mut alone = Alone::identified_in(&numbered(0..101));
    alone.review(&NOWHERE);
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "False Forbidden");
    let message = alone.permitted();
    assert!(message.contains("in more than 100 namespaces"), "{message}");
}

#[test]
fn g9_after_a_change_in_one_namespace_the_others_are_not_asked_about_again() {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut alone = Alone::identified_in(&of(&["a", "b"]));
    for _ in 0..2 {
        assert_eq!(alone.places(), ["*,a,b"], "at the start, and once it is settled");
        alone.answer_of(&of(&["a", "b"]));
        alone.pass(10_000);
    }
    alone.pass(60_000);
    alone.bind(&of(&["c"]));
    alone.pass(1_000);
    assert_eq!(alone.places(), ["c"]);
    alone.answer_of(&of(&["c"]));
    assert_eq!(alone.sees(), "a,b,c");
    // Something else changes before that is settled.
    alone.grant(&rbac("Role", "b", "reader", &json!({"rules": []})));
    alone.pass(3_000);
    assert_eq!(alone.places(), ["b,c"]);
    alone.answer_of(&of(&["c"]));
    assert_eq!(alone.sees(), "a,c");
    alone.pass(7_000);
    assert_eq!(alone.places(), ["b,c"], "confirmed");
    alone.answer_of(&of(&["b"]));
    assert_eq!(alone.sees(), "a,b");

    // A role of the cluster may concern all of them.
    let cluster_wide = json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": podset()});
    alone.grant(&rbac("ClusterRoleBinding", "", "podset", &cluster_wide));
    for ms in [3_000, 7_000] {
        alone.pass(ms);
        assert_eq!(alone.places(), ["*,a,b,c"]);
        alone.answer_of(&of(&["a", "b"]));
    }
    // After a failure, nothing is taken for known.
    alone.grant(&binding("c", "reader", &json!([])));
    alone.pass(3_000);
    assert_eq!(alone.places(), [""], "it has no binding any more");
    while let Some(review) = alone.reviews.pop_front() {
        let error = WriteError { class: WriteErrorClass::Unavailable, message: "away".to_owned() };
        alone.with(|lifecycle, cx| lifecycle.on_reviewed(review, Err(error), cx));
    }
    alone.pass(5_000);
    assert_eq!(alone.places(), ["*,a,b"]);
    alone.answer_of(&of(&["a", "b"]));
    alone.pass(10_000);
    alone.answer_of(&of(&["a", "b"]));

    // However often one namespace changes, all are asked about once an hour.
    let mut full = 0;
    for n in 0..360 {
        alone.grant(&binding("c", "reader", &if n % 2 == 0 { podset() } else { json!([]) }));
        alone.pass(20_000);
        full += alone.places().iter().filter(|places| places.starts_with('*')).count();
        alone.answer_of(&of(&["a", "b"]));
    }
    assert!((1..=4).contains(&full), "{full} in two hours");
}
