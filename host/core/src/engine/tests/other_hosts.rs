//! Two hosts whose plugins, under two names, own one kind: one of them serves it, and both know which.

use super::*;

/// Two hosts of one cluster, each with a plugin of its number and of the first one's kind.
struct Cluster {
    hosts: [Host; 2],
}

fn namespace(number: usize) -> Arc<str> {
    format!("host-{number}").into()
}

fn new_host(number: usize) -> Host {
    let mut host = Host::new(Config { namespace: namespace(number), ..config() });
    host.manifests.insert(component(1, 1), manifest(&plugin_name(1), &kind_of(0), 1));
    host
}

/// The host whose label a Plugin object carries.
fn host_of(object: &Value) -> &str {
    object["metadata"]["labels"]["mortise.dev/host-namespace"].as_str().unwrap()
}

fn content(object: &Value) -> Value {
    let mut content = object.clone();
    content["metadata"]["resourceVersion"].take();
    content
}

impl Cluster {
    fn started() -> Self {
        Self {
            hosts: [0, 1].map(|number| {
                let mut host = new_host(number);
                host.step(Event::Started);
                host.step(Event::SourcesListed);
                host
            }),
        }
    }

    /// The plugins of both, each created so many milliseconds after the beginning and served before its host sees the other's.
    fn serving_both(created_ms: [u64; 2]) -> Self {
        let mut cluster = Self::started();
        for (number, host) in cluster.hosts.iter_mut().enumerate() {
            host.now_ms = created_ms[number];
            host.offer(number);
            host.create_objects(0, 1);
        }
        assert_eq!(cluster.serving(), [true, true]);
        cluster
    }

    /// Each host sees the Plugin objects of the other, until neither changes any more.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10, "they do not come to rest");
            if ![(0, 1), (1, 0)].map(|(from, to)| self.show(from, to)).contains(&true) {
                return;
            }
        }
    }

    fn show(&mut self, from: usize, to: usize) -> bool {
        let own = |objects: &BTreeMap<ObjectRef, Value>| -> BTreeMap<ObjectRef, Value> {
            let plugins = objects.iter().filter(|(target, _)| target.kind == plugin_object::kind());
            let own = plugins.filter(|(_, object)| host_of(object) == &*namespace(from));
            own.map(|(target, object)| (target.clone(), content(object))).collect()
        };
        let (is, seen) = (own(&self.hosts[from].objects), own(&self.hosts[to].objects));
        let host = &mut self.hosts[to];
        for (target, object) in is.iter().filter(|(target, object)| seen.get(*target) != Some(object)) {
            let event = host.stored(target, object.clone());
            host.step(event);
        }
        for target in seen.keys().filter(|target| !is.contains_key(*target)) {
            host.show_object_gone(target);
        }
        is != seen
    }

    fn serving(&self) -> [bool; 2] {
        self.hosts.each_ref().map(|host| host.watched.contains(&kind_of(0).into()))
    }

    /// The source of a host's plugin loses it, and its Plugin object is deleted.
    fn withdraw(&mut self, number: usize) {
        self.hosts[number].withdraw(number);
        self.hosts[number].end_delete(number, Ok(()));
        self.hosts[number].show_gone(number);
    }

    /// A host ends; the next one lists what is in the cluster.
    fn restart(&mut self, number: usize) {
        let mut host = new_host(number);
        let before = std::mem::replace(&mut self.hosts[number], new_host(number));
        (host.now_ms, host.version, host.objects) = (before.now_ms + 10_000, before.version, before.objects);
        host.held_lists = Some(Vec::new());
        host.step(Event::Started);
        host.offer(number);
        host.step(Event::SourcesListed);
        let plugins: Vec<Value> =
            host.objects.iter().filter(|(it, _)| it.kind == plugin_object::kind()).map(|(_, it)| it.clone()).collect();
        for object in plugins {
            host.step(Event::Watch(plugin_object::kind().into(), WatchEvent::Listed(vec![*decoded(&object)])));
        }
        let kinds = host.held_lists.take().unwrap();
        assert_eq!(kinds, [Slice::from(plugin_object::kind())]);
        host.step(Event::Watch(kinds[0].clone(), WatchEvent::ListDone(ResourceVersion(host.version))));
        self.hosts[number] = host;
    }

    fn owned_kinds(&self, number: usize) -> &Value {
        &self.hosts[number].objects[&plugin_object(&plugin_name(number))]["status"]["ownedKinds"]
    }

    fn refusals(&self, number: usize) -> Vec<String> {
        let refusal = |observed: &Observation| match observed {
            Observation::Refused { refusal, .. } => Some(format!("{}: {}", refusal.reason, refusal.message)),
            _ => None,
        };
        self.hosts[number].observed.iter().filter_map(refusal).collect()
    }
}

fn refusal(other: usize) -> String {
    format!(
        "KindOwnedElsewhere: Kind0000.example.com is reconciled by the plugin \"plugin-000{other}\" of the host of namespace \
         host-{other}; a kind has one plugin in a cluster. Remove one of the two; if that host is gone for good, kubectl \
         delete plugin plugin-000{other}"
    )
}

#[test]
fn l2_a_plugin_whose_kind_another_hosts_has_under_another_name_waits_until_that_is_gone_and_says_so() {
    let mut cluster = Cluster::started();
    cluster.hosts[1].offer(1);
    assert_eq!(*cluster.owned_kinds(1), json!(["Kind0000.example.com"]));
    cluster.settle();
    cluster.hosts[0].offer(0);
    cluster.settle();
    assert_eq!(cluster.serving(), [false, true]);
    assert_eq!((cluster.refusals(0), cluster.refusals(1)), (vec![refusal(1)], vec![]));
    let object = &cluster.hosts[0].objects[&plugin_object(&plugin_name(0))];
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let reason = |name| &conditions.iter().find(|condition| condition["type"] == name).unwrap()["reason"];
    assert_eq!((reason("Established"), reason("Ready")), (&json!("KindOwnedElsewhere"), &json!("KindOwnedElsewhere")));
    assert_eq!(*cluster.owned_kinds(0), Value::Null, "it owns nothing");

    cluster.withdraw(1);
    cluster.settle();
    assert_eq!(cluster.serving(), [true, false], "at once");
    cluster.hosts[1].offer(1);
    cluster.settle();
    assert_eq!(cluster.serving(), [true, false]);
    assert_eq!(cluster.refusals(1), [refusal(0)]);
}

#[test]
fn l2_an_owned_kind_is_shown_before_its_plugin_serves_so_that_other_hosts_refuse_it_at_once() {
    let mut cluster = Cluster::started();
    cluster.hosts[0].held_lists = Some(Vec::new());
    cluster.hosts[0].offer(0);
    assert_eq!(*cluster.owned_kinds(0), json!(["Kind0000.example.com"]), "its kind is not listed yet");
    cluster.settle();
    cluster.hosts[1].offer(1);
    cluster.settle();
    assert_eq!(cluster.refusals(1), [refusal(0)]);

    let mut host = Host::started();
    host.offer(0);
    host.manifests.insert(component(0, 2), manifest(&plugin_name(0), &kind_of(5), 1));
    host.held_lists = Some(Vec::new());
    host.offer_component(0, component(0, 2));
    let kinds = &host.objects[&plugin_object(&plugin_name(0))]["status"]["ownedKinds"];
    assert!(kinds.as_array().unwrap().contains(&json!("Kind0005.example.com")), "a new version's too: {kinds}");
}

#[test]
fn l2_of_two_hosts_that_serve_one_kind_the_one_whose_plugin_is_younger_gives_way_also_after_restarts() {
    for (created_ms, expected) in [([1_000, 9_000], 0), ([9_000, 1_000], 1), ([1_000, 1_999], 0), ([1_999, 1_000], 0)] {
        let mut cluster = Cluster::serving_both(created_ms);
        let only = [expected == 0, expected == 1];
        let other = 1 - expected;
        cluster.settle();
        assert_eq!(cluster.serving(), only, "created at {created_ms:?}");
        assert_eq!((cluster.refusals(expected), cluster.refusals(other)), (vec![], vec![refusal(expected)]));
        let calls = cluster.hosts[other].calls;
        for number in [expected, other, expected] {
            cluster.restart(number);
            cluster.settle();
            cluster.hosts.iter_mut().for_each(|host| host.pass(600_000));
            cluster.settle();
            assert_eq!(cluster.serving(), only, "created at {created_ms:?}, restarted {number}");
        }
        assert!(calls <= 1 && cluster.hosts[other].calls == 0, "it does nothing any more");
        cluster.withdraw(expected);
        cluster.settle();
        assert_eq!(cluster.serving(), [expected == 1, expected == 0]);
    }
}

#[test]
fn l2_hosts_that_both_restart_while_both_objects_show_the_kind_come_to_one_that_serves() {
    for order in [[0, 1], [1, 0]] {
        let mut cluster = Cluster::serving_both([1_000, 9_000]);
        // Each has shown its kind, and both end before either has seen the other's.
        let objects: Vec<(ObjectRef, Value)> = (0..2)
            .map(|number| plugin_object(&plugin_name(number)))
            .zip(&cluster.hosts)
            .map(|(target, host)| (target.clone(), host.objects[&target].clone()))
            .collect();
        for host in &mut cluster.hosts {
            host.objects.extend(objects.clone());
            host.version = 1_000;
        }
        order.iter().for_each(|number| cluster.restart(*number));
        cluster.settle();
        assert_eq!(cluster.serving(), [true, false], "{order:?}");
    }
}

#[test]
fn l2_an_older_plugin_does_not_take_a_kind_from_one_that_serves_it() {
    let mut cluster = Cluster::started();
    cluster.hosts[0].manifests.insert(component(0, 1), manifest(&plugin_name(0), &kind_of(5), 1));
    cluster.hosts[0].offer(0);
    cluster.hosts[1].now_ms = 100_000;
    cluster.hosts[1].offer(1);
    cluster.settle();
    cluster.hosts[0].offer_component(0, component(0, 2));
    cluster.settle();
    assert_eq!(cluster.serving(), [false, true]);
    assert!(cluster.hosts[0].watched.contains(&kind_of(5).into()), "its previous version keeps serving");
    assert_eq!((cluster.refusals(0), cluster.refusals(1)), (vec![refusal(1)], vec![]));
}

#[test]
fn l2_what_a_dead_host_left_holds_its_kind_until_somebody_deletes_it_and_what_is_no_hosts_holds_none() {
    let left = |name: &str, labels: Value| {
        json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {}, "status": {"ownedKinds": ["Kind0000.example.com"]},
        })
    };
    let mut cluster = Cluster::started();
    let host = &mut cluster.hosts[0];
    let mut shown = |name: &str, labels: Value| {
        let event = host.stored(&plugin_object(name), left(name, labels));
        host.step(event);
    };
    shown("plugin-0001", json!({"mortise.dev/host-namespace": "host-1"}));
    shown("by-a-person", json!({}));
    shown("of-this-host", json!({"mortise.dev/host-namespace": "host-0"}));
    host.offer(0);
    assert!(!host.watched.contains(&kind_of(0).into()));
    host.show_gone(1);
    assert!(host.watched.contains(&kind_of(0).into()));
    assert_eq!(cluster.refusals(0)[1..], [refusal(1)], "the first is of what a person made, without a source");
}
