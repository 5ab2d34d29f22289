//! Plugin objects that somebody edits or deletes by hand while their plugins serve.

use super::*;

impl Alone {
    /// Somebody changes a Plugin object so, and the watch shows it.
    fn by_hand(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        change(self.objects.get_mut(name).expect("it is there"));
        self.edit(name);
    }

    fn deleted_by_hand(&mut self, name: &str) {
        self.version += 1;
        self.objects.remove(name);
        self.show(name);
    }

    /// Nothing of the plugin was begun or ended.
    fn undisturbed(&mut self) -> Vec<String> {
        let log = self.log();
        let is_other = |line: &&String| {
            ["serve", "withdraw", "compile", "refused", "stop"].iter().any(|word| line.starts_with(word))
        };
        assert_eq!(log.iter().filter(is_other).count(), 0, "{log:?}");
        log
    }
}

/// The labels by which the host knows its objects.
fn unlabelled(object: &mut Value) {
    object["metadata"].as_object_mut().unwrap().remove("labels");
}

#[test]
fn l3_a_plugin_whose_object_loses_the_hosts_labels_serves_on_and_nothing_is_written() {
    let mut alone = Alone::serving();
    alone.by_hand("podset", unlabelled);
    alone.pass(600_000);
    assert_eq!(alone.undisturbed(), NONE);
    assert_eq!(alone.ready("podset"), "True Serving");
    alone.gone("podset");
    alone.settle();
    assert!(alone.objects.contains_key("podset"), "what has no label of a host is a person's");
    assert_eq!(alone.condition("podset", "Stalled"), "True SourceNotFound");
}

#[test]
fn l2_another_host_with_a_source_of_that_name_leaves_an_object_without_labels_alone() {
    let mut alone = Alone::serving();
    alone.by_hand("podset", unlabelled);
    let object = alone.objects["podset"].clone();
    let mut other = Alone::of(Config { namespace: "other".into(), ..crate::engine::tests::config() });
    other.objects.insert("podset".into(), object.clone());
    other.start();
    other.show("podset");
    other.offer("podset", "2");
    other.compiled("2", compiled("PodSet", &[]));
    other.pass(600_000);
    assert_eq!(other.log(), ["compile 2", "refused podset: NamedElsewhere"]);
    assert_eq!((other.objects["podset"].clone(), other.sent.len()), (object, 0));
}

#[test]
fn l3_an_object_of_the_host_that_is_deleted_by_hand_comes_back_and_the_plugin_serves_meanwhile() {
    let mut alone = Alone::serving();
    alone.pass(60_000);
    alone.log();
    alone.deleted_by_hand("podset");
    assert_eq!(alone.undisturbed(), ["create podset"]);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Serving");
    assert_eq!(alone.objects["podset"]["metadata"]["labels"]["mortise.dev/host-namespace"], "mortise-system");
}

#[test]
fn x5_a_status_that_was_edited_by_hand_is_repaired_once() {
    let mut alone = Alone::serving();
    let before = alone.objects["podset"]["status"].clone();
    alone.by_hand("podset", |object| {
        object["status"]["host"] = "elsewhere".into();
        object["status"]["digest"] = "forged".into();
        object["status"]["ownedKinds"] = json!(["Other.example.com"]);
        object["status"]["conditions"].as_array_mut().unwrap().clear();
    });
    assert!(alone.undisturbed().contains(&STATUS.to_owned()));
    alone.settle();
    let texts = |status: &Value| {
        let mut status = status.clone();
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().for_each(|condition| condition["lastTransitionTime"] = Value::Null);
        status
    };
    assert_eq!(texts(&alone.objects["podset"]["status"]), texts(&before));
    alone.log();
    alone.pass(60_000);
    assert_eq!(alone.undisturbed(), NONE);
}

#[test]
fn l2_a_host_in_the_status_of_a_persons_plugin_is_a_claim_until_it_is_written_back() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    alone.want("podset", json!({"source": {"configMap": "podset-a"}}));
    alone.comes_up("podset", "1");
    alone.log();
    alone.by_hand("podset", |object| object["status"]["host"] = "elsewhere".into());
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
    assert!(alone.sent.is_empty(), "both hosts would write without end");
    alone.by_hand("podset", |object| object["status"]["host"] = "mortise-system".into());
    alone.comes_up("podset", "1");
    assert_eq!(alone.ready("podset"), "True Serving");
}
