//! Tenants: namespaces that bring plugins of their own, each of whom may mean harm.

use super::*;
use crate::selector::Selector;
use crate::tenant::{MAX_PLUGINS, TenantSource};

const LABELS: &str = "mortise.dev/tenant=true";

const NOWHERE: Readable = Readable::In(BTreeSet::new());

fn in_namespace(namespace: &str) -> Readable {
    Readable::In(BTreeSet::from([namespace.into()]))
}

impl Alone {
    /// A host with tenants that has listed Namespaces: these are tenants.
    fn with_tenants(tenants: &[&str]) -> Self {
        let config = crate::engine::tests::config();
        let selector = Some(Selector::parse(LABELS).unwrap());
        let mut alone = Self::of(Config { require_service_account: true, tenants: selector, ..config });
        alone.with(Lifecycle::start);
        alone.registered("", plugin_object::CRD_NAME, Ok(CrdOwner::Plugin));
        alone.list("Plugin");
        alone.with(Lifecycle::on_sources_listed);
        alone.list_namespaces();
        for tenant in tenants {
            alone.namespace(tenant, true);
            alone.with(|lifecycle, cx| lifecycle.on_tenant_listed(&(*tenant).into(), cx));
        }
        alone.log();
        alone
    }

    fn list_namespaces(&mut self) {
        let slice = Slice { kind: kind("Namespace"), namespace: None, labels: Some(LABELS.into()) };
        self.store.begin_list(&slice);
        self.store.end_list(&slice, ResourceVersion(self.version));
        self.with(|lifecycle, cx| lifecycle.on_kind_served(&slice, cx));
    }

    /// The watch shows a Namespace, or that it is selected no more.
    fn namespace(&mut self, name: &str, is_tenant: bool) {
        self.version += 1;
        let labels = if is_tenant { json!({"mortise.dev/tenant": "true"}) } else { json!({}) };
        let metadata = json!({
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": self.version.to_string(), "labels": labels,
        });
        let change = self.store.apply(decoded(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})));
        self.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
    }

    fn tenant_offers(&mut self, namespace: &str, name: &str, digest: &str) {
        let source = TenantSource {
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("uid-{namespace}-{name}").into(),
            service_account: name.into(),
        };
        let place = format!("ConfigMap {namespace}/{name}");
        let offer = Offer::new(source.source(), place, Digest(digest.into()), "{}");
        self.take_offer(Offer { tenant: Some(Arc::new(source)), ..offer });
    }

    /// A plugin of the host, "web", whose ServiceAccount may read Secrets here, reads all of them.
    fn host_reads_secrets(&mut self, readable: &Readable) {
        self.want("web", json!({"serviceAccountName": "web"}));
        self.offer("web", "1");
        self.compiled("1", reading(None, "Web"));
        self.list("Web");
        self.list("Secret");
        self.review(readable);
    }

    fn tenant_loses(&mut self, namespace: &str, name: &str) {
        let place = format!("ConfigMap {namespace}/{name}").into();
        let source = format!("{namespace}/{name}").into();
        self.with(|lifecycle, cx| lifecycle.on_source_gone(&source, &place, cx));
    }

    /// A plugin of a tenant that reconciles this kind serves.
    fn tenant_serves(&mut self, namespace: &str, name: &str, digest: &str, primary: &str) {
        self.tenant_offers(namespace, name, digest);
        self.compiled(digest, compiled(primary, &[]));
        self.list_in(primary, namespace);
        self.list_in("ConfigMap", namespace);
        self.review(&in_namespace(namespace));
        self.settle();
    }
}

#[test]
fn g11_a_tenants_plugin_serves_as_a_service_account_of_its_namespace_and_ends_with_the_label() {
    let mut alone = Alone::with_tenants(&[]);
    alone.namespace("team-a", true);
    assert_eq!(alone.log(), ["watch tenant team-a"]);
    alone.namespace("team-b", false);
    alone.namespace("mortise-system", true);
    assert!(alone.log().is_empty(), "one without the label, and the host's own");
    alone.tenant_offers("team-b", "podset", "1");
    assert_eq!(alone.log(), ["unload 1"], "it is no tenant");
    alone.with(|lifecycle, cx| lifecycle.on_tenant_listed(&"team-a".into(), cx));
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    assert_eq!(alone.ready("team-a.podset"), "True Serving");
    let log = alone.log();
    assert!(!log.iter().any(|line| line.starts_with("register")), "it brings no definition: {log:?}");
    assert!(log.contains(&"review team-a/podset PodSet".to_owned()), "{log:?}");
    assert!(log.contains(&"event Serving about team-a/podset".to_owned()), "a tenant may read no Plugin: {log:?}");
    assert_eq!(*alone.shows("team-a.podset", "/identity"), "team-a/podset");
    assert_eq!(*alone.shows("team-a.podset", "/source"), "ConfigMap team-a/podset");
    let pods = alone.lifecycle.informers[&kind("PodSet")].scope();
    assert_eq!(pods.to_string(), "in the namespace team-a", "and nothing else is watched for it");
    alone.pass(10_000);
    let own = BTreeSet::from(["team-a".into()]);
    let is_of_own = |review: &Review| !review.everywhere && review.namespaces == own;
    assert!(alone.reviews.len() == 2 && alone.reviews.iter().all(is_of_own), "{:?}", alone.reviews);

    alone.namespace("team-a", false);
    alone.settle();
    let log = alone.log();
    assert!(
        log.contains(&"withdraw team-a.podset".to_owned()) && log.contains(&"stop tenant team-a".to_owned()),
        "{log:?}"
    );
    assert!(!alone.objects.contains_key("team-a.podset"), "the host made this Plugin");
}

#[test]
fn g11_an_administrator_bounds_a_tenants_plugin_by_a_plugin_object_and_cannot_let_it_out_of_its_namespace() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    let spec = json!({
        "serviceAccountName": "narrow", "namespaces": ["team-b", "kube-system"], "suspend": true,
        "source": {"configMap": "podset"},
    });
    alone.want("team-a.podset", spec);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    assert_eq!(*alone.shows("team-a.podset", "/identity"), "team-a/narrow");
    assert!(alone.log().contains(&"suspend team-a.podset".to_owned()));
    let version = &alone.lifecycle.plugins["team-a.podset"].active.as_ref().unwrap().version;
    assert_eq!(version.namespaces.as_deref(), Some(&BTreeSet::from(["team-a".into()])));
    alone.tenant_loses("team-a", "podset");
    alone.settle();
    assert_eq!(alone.condition("team-a.podset", "Resolved"), "False SourceNotFound", "a person deletes this Plugin");
    alone.want("team-x.podset", json!({}));
    alone.settle();
    assert_eq!(alone.condition("team-x.podset", "Resolved"), "False SourceNotFound");
    let message = alone.shows("team-x.podset", "/conditions").to_string();
    assert!(message.contains("team-x is no tenant"), "{message}");
}

#[test]
fn g11_what_a_tenant_had_suspended_stays_so_when_its_plugins_are_listed_late_after_a_restart() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    let objects = alone.objects;

    let mut alone = Alone::with_tenants(&[]);
    alone.objects = objects;
    alone.namespace("team-a", true);
    alone.show("team-a.podset");
    alone.pass(1_000);
    assert!(alone.objects.contains_key("team-a.podset") && alone.sent.is_empty(), "its ConfigMaps are not listed yet");
    alone.with(|lifecycle, cx| lifecycle.on_tenant_listed(&"team-a".into(), cx));
    alone.settle();
    assert!(!alone.objects.contains_key("team-a.podset"), "now it is known that it has no source");
}

#[test]
fn g11_a_tenant_has_sixteen_plugins_and_one_beyond_them_waits_for_room() {
    let mut alone = Alone::with_tenants(&["team-a", "team-b"]);
    for number in 0..MAX_PLUGINS {
        alone.tenant_offers("team-a", &format!("p{number}"), "1");
    }
    alone.settle();
    assert_eq!(alone.objects.len(), MAX_PLUGINS);
    alone.log();
    alone.tenant_offers("team-a", "beyond", "1");
    alone.settle();
    assert_eq!(alone.log(), ["refused team-a.*: TooManyPlugins", "event TooManyPlugins about team-a/beyond"]);
    assert_eq!(alone.objects.len(), MAX_PLUGINS, "and it has no Plugin object, of which it could make any number");
    alone.tenant_offers("team-b", "podset", "1");
    alone.settle();
    assert_eq!(alone.objects.len(), MAX_PLUGINS + 1, "another tenant has its own");
    alone.log();
    alone.tenant_loses("team-a", "p3");
    assert!(alone.log().contains(&"watch tenant team-a".to_owned()), "its ConfigMaps are read again");
    alone.tenant_loses("team-a", "p4");
    assert!(!alone.log().contains(&"watch tenant team-a".to_owned()), "once");
}

#[test]
fn g11_what_a_tenants_plugin_lacks_comes_with_the_command_that_the_tenant_may_run() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.list_in("PodSet", "team-a");
    alone.list_in("ConfigMap", "team-a");
    alone.review(&Readable::In(BTreeSet::new()));
    alone.settle();
    let printed_by = "`mortise rbac FILE.wasm --tenant team-a --name podset -n mortise-system`";
    let shown = alone.shows("team-a.podset", "/conditions").to_string();
    assert!(shown.contains(&format!("{printed_by} prints the rules")), "{shown}");

    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    let message =
        r#"User "a:b" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "team-a""#;
    let permission =
        Permission { kind: kind("ConfigMap"), verb: "create", subresource: None, namespace: Some("team-a".into()) };
    let plugin = Arc::from("team-a.podset");
    alone.take(ToLifecycle::Denied { plugin, permission, message: message.to_owned() });
    alone.settle();
    let shown = alone.shows("team-a.podset", "/conditions").to_string();
    assert!(shown.contains("a Role of the namespace team-a that a RoleBinding gives the host"), "{shown}");
    assert!(shown.contains(&format!("{printed_by} prints both")), "{shown}");
}

#[test]
fn l2_tenants_have_a_kind_each_for_itself_and_a_plugin_of_the_host_takes_it_from_all() {
    let mut alone = Alone::with_tenants(&["team-a", "team-b"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    alone.tenant_serves("team-b", "podset", "1", "PodSet");
    alone.tenant_offers("team-a", "second", "2");
    alone.compiled("2", compiled("PodSet", &[]));
    alone.settle();
    assert_eq!(alone.ready("team-a.second"), "False KindOwned", "one plugin of a tenant has a kind");

    alone.want(
        "podset",
        json!({"serviceAccountName": "podset", "grants": {"customResources": ["podsets.example.com"]}}),
    );
    alone.offer("podset", "3");
    alone.compiled("3", compiled("PodSet", &[]));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.settle();
    for name in ["team-a.podset", "team-b.podset", "team-a.second"] {
        assert_eq!(alone.ready(name), "False KindOwned", "{name}");
    }
    let log = alone.log();
    assert!(["team-a", "team-b"].iter().all(|tenant| log.contains(&format!("withdraw {tenant}.podset"))), "{log:?}");
    alone.list("PodSet");
    alone.list("ConfigMap");
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Serving");

    alone.log();
    alone.gone("podset");
    alone.settle();
    alone.objects.remove("podset");
    alone.show("podset");
    assert!(alone.log().contains(&"kinds released".to_owned()));
    alone.take(ToLifecycle::KindsReleased);
    alone.list_in("PodSet", "team-a");
    alone.list_in("ConfigMap", "team-a");
    alone.answer(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "True Serving", "it has its kind again");
}

#[test]
fn l2_no_tenant_keeps_a_kind_from_the_hosts_plugins_by_owning_it_over_another() {
    let owning = |primary: (&str, &str), owned: (&str, &str)| {
        let manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "any",
            "controllers": [{
                "for": {"apiVersion": primary.0, "kind": primary.1},
                "owns": [{"apiVersion": owned.0, "kind": owned.1}],
            }],
        });
        Ok(Compiled { manifest: manifest.to_string().into(), component_bytes: 1, compile_ms: 1, cached: false })
    };
    let (web, config_map) = (("example.com/v1", "Web"), ("v1", "ConfigMap"));
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "odd", "1");
    alone.compiled("1", owning(config_map, web));
    alone.list_in("ConfigMap", "team-a");
    alone.list_in("Web", "team-a");
    alone.review(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.ready("team-a.odd"), "True Serving");
    alone.want("web", json!({"serviceAccountName": "web"}));
    alone.offer("web", "2");
    alone.compiled("2", owning(web, config_map));
    alone.list("Web");
    alone.list("ConfigMap");
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!((alone.ready("web"), alone.ready("team-a.odd")), ("True Serving".into(), "False OwnershipCycle".into()));
}

#[test]
fn g11_a_tenants_plugin_with_webhooks_is_refused_and_none_is_served() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "podset", "1");
    let compiled = compiled("PodSet", &[]).unwrap();
    let mut manifest: Value = serde_json::from_str(&compiled.manifest).unwrap();
    manifest["admission"] = json!([{"apiVersion": "example.com/v1", "kind": "PodSet", "validate": true}]);
    alone.compiled("1", Ok(Compiled { manifest: manifest.to_string().into(), ..compiled }));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "False BeyondTenant");
    assert!(alone.log().contains(&"event BeyondTenant about team-a/podset".to_owned()));
}

#[test]
fn g11_a_tenant_is_shown_which_definition_an_administrator_has_to_make_and_serves_once_it_is_there() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.list_in("ConfigMap", "team-a");
    let slice = Slice { kind: kind("PodSet"), namespace: Some("team-a".into()), labels: None };
    let not_served = || WatchError::NotServed("PodSet is not served.".to_owned());
    alone.with(|lifecycle, cx| lifecycle.on_watch_failed(&slice, not_served(), cx));
    alone.review(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.condition("team-a.podset", "Established"), "False NotServed");
    let message = alone.shows("team-a.podset", "/conditions").to_string();
    assert!(message.contains("`mortise crd FILE.wasm`"), "{message}");
    assert!(alone.log().contains(&"event NotServed about team-a/podset".to_owned()));
    alone.list_in("PodSet", "team-a");
    alone.answer(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "True Serving");
}

#[test]
fn g11_the_host_is_ready_without_what_a_tenant_brings() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "podset", "1");
    let health = alone.lifecycle.health(&alone.store, None);
    assert!(health.plugins[0].loading && !health.plugins[0].starting, "it compiles");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.list_in("PodSet", "team-a");
    alone.list_in("ConfigMap", "team-a");
    alone.review(&in_namespace("team-a"));
    let slice = Slice { kind: kind("PodSet"), namespace: Some("team-a".into()), labels: None };
    alone.store.begin_list(&slice);
    alone.store.forget(&kind("PodSet"));
    assert!(alone.lifecycle.health(&alone.store, None).unlisted.is_empty(), "and its kind is not listed");
}

#[test]
fn g11_a_tenant_whose_objects_would_fill_the_hosts_memory_reads_nothing_for_ten_minutes_whatever_it_changes() {
    let mut alone = Alone::with_tenants(&["team-a", "team-b"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    alone.tenant_serves("team-b", "podset", "1", "PodSet");
    // A MiB with what is around it.
    let text = "x".repeat((1 << 20) - 4_096);
    let grow = |alone: &mut Alone, namespace: &str, number: usize| {
        let (name, version) = (format!("c{number}"), (100 + number).to_string());
        let metadata = json!({"name": name, "namespace": namespace, "uid": name, "resourceVersion": version});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": &*text}});
        let slice = Slice { kind: kind("ConfigMap"), namespace: Some(namespace.into()), labels: None };
        let change = alone.store.apply_of(&slice, decoded(&object));
        alone.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
    };
    (0..63).for_each(|number| grow(&mut alone, "team-a", number));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "True Serving", "below the bound");
    (63..72).for_each(|number| grow(&mut alone, "team-a", number));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "False TooManyBytes");
    assert_eq!(alone.ready("team-b.podset"), "True Serving", "another tenant has its own");
    let scope = alone.lifecycle.informers[&kind("ConfigMap")].scope();
    assert_eq!(scope.to_string(), "in the namespace team-b", "its watches end, and so does what they show");
    alone.tenant_offers("team-a", "podset", "2");
    alone.tenant_offers("team-a", "another", "2");
    alone.log();
    alone.pass(599_000);
    assert!(!alone.log().contains(&"watch ConfigMap".to_owned()));
    alone.pass(1_000);
    alone.compiled("2", compiled("PodSet", &[]));
    let log = alone.log();
    assert!(log.contains(&"watch ConfigMap".to_owned()), "{log:?}: somebody may have deleted some");
}

#[test]
fn g11_all_tenants_together_have_a_bound_beyond_which_the_one_that_reads_most_ends_and_no_other() {
    let names: Vec<String> = (0..6).map(|number| format!("team-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut alone = Alone::with_tenants(&names);
    names.iter().for_each(|name| alone.tenant_serves(name, "podset", "1", "PodSet"));
    // A MiB with what is around it.
    let text = "x".repeat((1 << 20) - 4_096);
    let mut version = 100;
    let mut grow = |alone: &mut Alone, namespace: &str, count: usize| {
        for _ in 0..count {
            version += 1;
            let name = format!("c{version}");
            let metadata =
                json!({"name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string()});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": &*text}});
            let slice = Slice { kind: kind("ConfigMap"), namespace: Some(namespace.into()), labels: None };
            let change = alone.store.apply_of(&slice, decoded(&object));
            alone.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
        }
        alone.settle();
        alone.ready(&format!("{namespace}.podset"))
    };
    for (number, name) in names[..4].iter().enumerate() {
        assert_eq!(grow(&mut alone, name, if number == 2 { 62 } else { 58 }), "True Serving");
    }
    assert_eq!(grow(&mut alone, names[4], 12), "True Serving");
    let ready = |alone: &Alone| [0, 1, 2, 3, 4, 5].map(|it| alone.ready(&format!("{}.podset", names[it])));
    assert_eq!(ready(&alone), ["True Serving"; 6]);
    assert_eq!(grow(&mut alone, names[4], 20), "True Serving", "the sum is over the bound, and four others have more");
    assert_eq!(ready(&alone)[..3], ["True Serving", "True Serving", "False TooManyBytes"]);
    assert_eq!(ready(&alone)[3..], ["True Serving"; 3]);
    assert_eq!(grow(&mut alone, names[5], 40), "True Serving", "there is room again");
}

/// A plugin that reconciles one kind and reads Secrets.
fn reading(labels: Option<&str>, primary: &str) -> Result<Compiled, Refusal> {
    let mut read = json!({"apiVersion": "v1", "kind": "Secret"});
    if let Some(labels) = labels {
        read["labels"] = json!(labels);
    }
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "any",
        "controllers": [{"for": {"apiVersion": "example.com/v1", "kind": primary}, "reads": [read]}],
    });
    Ok(Compiled { manifest: manifest.to_string().into(), component_bytes: 1, compile_ms: 1, cached: false })
}

#[test]
fn g11_a_plugin_of_the_host_that_reads_less_than_before_takes_its_labels_from_tenants_too_and_they_serve_when_it_is_gone()
 {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.host_reads_secrets(&Readable::Everywhere);
    alone.tenant_offers("team-a", "reader", "2");
    alone.compiled("2", reading(None, "Reader"));
    alone.list_in("Reader", "team-a");
    alone.answer(&in_namespace("team-a"));
    alone.settle();
    assert_eq!((alone.ready("web"), alone.ready("team-a.reader")), ("True Serving".into(), "True Serving".into()));
    alone.offer("web", "3");
    alone.compiled("3", reading(Some("app=web"), "Web"));
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert_eq!(
        (alone.ready("web"), alone.ready("team-a.reader")),
        ("True Serving".into(), "False WatchedByLabels".into())
    );
    assert_eq!(alone.lifecycle.informers[&kind("Secret")].scope().to_string(), "with the labels app=web");

    let nothing = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "any",
        "controllers": [{"for": {"apiVersion": "example.com/v1", "kind": "Web"}}],
    });
    let nothing = Compiled { manifest: nothing.to_string().into(), component_bytes: 1, compile_ms: 1, cached: false };
    alone.offer("web", "4");
    alone.log();
    alone.compiled("4", Ok(nothing));
    alone.answer(&Readable::Everywhere);
    alone.settle();
    assert!(alone.log().contains(&"kinds released".to_owned()));
    alone.with(|lifecycle, cx| lifecycle.retry_waiting(cx));
    alone.list_in("Reader", "team-a");
    alone.list_in("Secret", "team-a");
    alone.answer(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.ready("team-a.reader"), "True Serving");
}

#[test]
fn g11_a_tenant_neither_widens_what_the_host_watches_by_labels_nor_has_it_begin_anew() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "reader", "1");
    alone.compiled("1", reading(Some("a=b"), "Reader"));
    let watched = alone.lifecycle.informers[&kind("Secret")].scope();
    assert_eq!(watched.to_string(), "in the namespace team-a", "other labels would change its watch");
    alone.list_in("Reader", "team-a");
    alone.list_in("Secret", "team-a");
    alone.review(&in_namespace("team-a"));
    alone.settle();
    assert_eq!(alone.ready("team-a.reader"), "True Serving");
    alone.want("web", json!({"serviceAccountName": "web"}));
    alone.offer("web", "2");
    alone.compiled("2", reading(Some("app=web"), "Web"));
    alone.settle();
    assert_eq!(alone.ready("team-a.reader"), "False WatchedByLabels");
    let watched = alone.lifecycle.informers[&kind("Secret")].scope();
    assert_eq!(watched.to_string(), "with the labels app=web");
}

#[test]
fn l2_a_version_serves_on_when_only_a_newer_one_needs_the_kind_that_the_host_takes() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "web", "1", "Web");
    alone.tenant_offers("team-a", "web", "2");
    alone.compiled("2", compiled("PodSet", &[]));
    alone.want(
        "podset",
        json!({"serviceAccountName": "podset", "grants": {"customResources": ["podsets.example.com"]}}),
    );
    alone.offer("podset", "3");
    alone.log();
    alone.compiled("3", compiled("PodSet", &[]));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.settle();
    assert_eq!(alone.ready("team-a.web"), "True ServingPrevious");
    let log = alone.log();
    assert!(log.contains(&"refused team-a.web: KindOwned".to_owned()), "{log:?}");
    assert!(!log.contains(&"withdraw team-a.web".to_owned()), "{log:?}");
}

#[test]
fn g11_what_an_administrator_wants_of_a_tenants_plugin_outlives_its_config_map() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    let object = alone.objects.get_mut("team-a.podset").unwrap();
    assert!(object["metadata"]["labels"]["mortise.dev/host-namespace"].is_string(), "the host made it");
    object["spec"] = json!({"suspend": true});
    alone.edit("team-a.podset");
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "False Suspended");
    alone.log();
    alone.tenant_loses("team-a", "podset");
    alone.settle();
    assert!(alone.log().contains(&"withdraw team-a.podset".to_owned()), "the tenant ends what he brought");
    assert!(alone.objects.contains_key("team-a.podset"));
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    assert_eq!(alone.ready("team-a.podset"), "False Suspended");
    alone.log();
    alone.namespace("team-a", false);
    alone.settle();
    assert!(alone.log().contains(&"withdraw team-a.podset".to_owned()), "it is no tenant any more");
    assert_eq!(alone.ready("team-a.podset"), "False SourceNotFound");
}

#[test]
fn g11_a_tenants_plugin_that_a_person_bounds_ends_with_its_config_map_and_with_the_label() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.want("team-a.podset", json!({"grants": {"writesPerMinute": 30}}));
    let ends: [fn(&mut Alone); 2] =
        [|alone| alone.tenant_loses("team-a", "podset"), |alone| alone.namespace("team-a", false)];
    for end in ends {
        alone.tenant_serves("team-a", "podset", "1", "PodSet");
        assert_eq!(alone.ready("team-a.podset"), "True Serving");
        alone.log();
        end(&mut alone);
        alone.settle();
        let log = alone.log();
        assert!(log.contains(&"withdraw team-a.podset".to_owned()), "{log:?}");
        assert!(!alone.lifecycle.informers.contains_key(&kind("PodSet")));
    }
}

#[test]
fn g11_of_what_a_tenant_offers_and_no_plugin_takes_the_host_keeps_nothing() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.want("team-a.podset", json!({"digest": "never"}));
    alone.tenant_offers("team-a", "podset", "0");
    alone.log();
    for number in 1..100 {
        alone.tenant_offers("team-a", "podset", &number.to_string());
        let unload = format!("unload {}", number - 1);
        assert_eq!(alone.log().iter().filter(|line| **line == unload).count(), 1, "{unload}");
    }
    alone.tenant_loses("team-a", "podset");
    assert!(alone.log().contains(&"unload 99".to_owned()));
}

#[test]
fn g11_a_watch_that_only_a_tenant_wants_and_denies_keeps_no_wider_one_alive() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.host_reads_secrets(&Readable::Everywhere);
    alone.tenant_offers("team-a", "reader", "2");
    alone.compiled("2", reading(None, "Reader"));
    alone.settle();
    assert_eq!(alone.ready("web"), "True Serving");
    alone.gone("web");
    alone.unwant("web");
    let slice = Slice { kind: kind("Secret"), namespace: Some("team-a".into()), labels: None };
    alone.log();
    let denied = WatchError::Denied("no".to_owned());
    alone.with(|lifecycle, cx| lifecycle.on_watch_failed(&slice, denied, cx));
    let places: Vec<_> = alone.lifecycle.informers[&kind("Secret")].watches.keys().cloned().collect();
    assert_eq!(places, [Some("team-a".into())]);
}

#[test]
fn l2_the_most_edges_that_a_manifest_may_have_are_searched() {
    let own = |kind: usize| json!({"apiVersion": "example.com/v1", "kind": format!("Kind{kind:03}")});
    let controllers: Vec<Value> = (0..64)
        .map(|number| {
            let owns: Vec<Value> = (65..127).chain([number + 1]).map(own).collect();
            json!({"for": own(number), "owns": owns})
        })
        .collect();
    let manifest = |controllers: &[Value]| {
        let manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "any", "controllers": controllers,
        });
        Ok(Compiled { manifest: manifest.to_string().into(), component_bytes: 1, compile_ms: 1, cached: false })
    };
    let mut alone = Alone::started();
    alone.offer("many", "1");
    alone.compiled("1", manifest(&controllers));
    alone.offer("closing", "2");
    alone.compiled("2", manifest(&[json!({"for": own(64), "owns": [own(0)]})]));
    alone.settle();
    assert_eq!(alone.ready("closing"), "False OwnershipCycle");
    let message = alone.shows("closing", "/conditions").to_string();
    assert!(message.contains("Kind064.example.com owns Kind000.example.com owns "), "{message}");
}

#[test]
fn g11_a_tenant_that_names_everybody_in_its_bindings_has_others_asked_about_every_fifteen_seconds_at_most() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.host_reads_secrets(&in_namespace("team-b"));
    alone.settle();
    alone.pass(60_000);
    alone.answer(&in_namespace("team-b"));
    let mut reviews = 0;
    for second in 0..120 {
        let subjects = json!([{"kind": "Group", "name": "system:authenticated", "number": second}]);
        let binding = |role: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "all", "namespace": "team-a", "uid": "u", "resourceVersion": (1_000 + second).to_string()},
                "roleRef": {"kind": "Role", "name": role}, "subjects": subjects,
            })
        };
        let change = alone.store.apply(decoded(&binding(&second.to_string())));
        alone.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
        alone.pass(1_000);
        reviews += alone.reviews.len();
        alone.answer(&in_namespace("team-b"));
    }
    assert!((2 * 7..=2 * 9).contains(&reviews), "{reviews} reviews of two kinds in two minutes");
}

#[test]
fn g11_a_kind_without_namespaces_is_beyond_a_tenant_once_the_api_server_says_that_it_has_none() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_offers("team-a", "drain", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.list_in("ConfigMap", "team-a");
    let slice = Slice { kind: kind("PodSet"), namespace: Some("team-a".into()), labels: None };
    alone.with(|lifecycle, cx| lifecycle.on_watch_failed(&slice, WatchError::no_namespaces(&kind("PodSet")), cx));
    alone.review(&NOWHERE);
    alone.settle();
    assert_eq!(
        (alone.ready("team-a.drain"), alone.condition("team-a.drain", "Stalled")),
        ("False BeyondTenant".into(), "True BeyondTenant".into())
    );
    let message = alone.shows("team-a.drain", "/conditions").to_string();
    assert!(message.contains("an administrator may bring this plugin into the host's namespace"), "{message}");
}

#[test]
fn g11_a_source_that_an_administrator_names_for_a_tenants_plugin_and_takes_away_brings_no_other_plugin() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    for spec in [json!({"source": {"configMap": "other"}}), json!({})] {
        alone.want("team-a.podset", spec);
        alone.settle();
        assert_eq!(alone.lifecycle.plugins.keys().map(|name| &**name).collect::<Vec<_>>(), ["team-a.podset"]);
        assert_eq!(alone.ready("team-a.podset"), "True Serving");
    }
}

#[test]
fn g11_after_a_restart_a_plugin_whose_tenant_gives_the_host_no_list_says_that_after_a_minute_and_serves_once_it_does() {
    let mut alone = Alone::with_tenants(&["team-a"]);
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    alone.tenant_serves("team-a", "gone", "2", "Gone");
    let objects = alone.objects;

    let mut alone = Alone::with_tenants(&[]);
    alone.objects = objects;
    alone.namespace("team-a", true);
    ["team-a.podset", "team-a.gone"].iter().for_each(|name| alone.show(name));
    alone.pass(59_000);
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "True Serving", "as a restart shows it");
    alone.pass(1_000);
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "False SourceUnknown");
    let message = alone.shows("team-a.podset", "/conditions").to_string();
    assert!(message.contains("`mortise rbac FILE.wasm --tenant team-a`"), "{message}");
    alone.tenant_serves("team-a", "podset", "1", "PodSet");
    alone.with(|lifecycle, cx| lifecycle.on_tenant_listed(&"team-a".into(), cx));
    alone.settle();
    assert_eq!(alone.ready("team-a.podset"), "True Serving");
    assert!(!alone.objects.contains_key("team-a.gone"), "now it is known that it has no source");
}
