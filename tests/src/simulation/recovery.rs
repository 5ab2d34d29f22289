//! What a host recovers from though no watch tells it of anything: events that were lost without a word, and an etcd that was
//! restored from a backup.

use serde_json::json;

use super::cluster::{Cluster, pod, reference};
use super::environment::{named, object};
use super::guests::podset_kind;

#[test]
fn a_restored_cluster_is_as_it_was_and_gives_no_uid_twice() {
    let mut cluster = Cluster::default();
    cluster.served.insert(podset_kind());
    let set = |name| object(&podset_kind(), name, &json!({"replicas": 1}));
    for name in ["kept", "changed", "gone"] {
        cluster.put(set(name)).unwrap();
    }
    let backup = cluster.version();
    let uid_of =
        |cluster: &Cluster, name| cluster.get(&named(&podset_kind(), name)).map(|live| live["metadata"]["uid"].clone());
    cluster.edit(&named(&podset_kind(), "changed"), &json!({"spec": {"replicas": 2}}));
    cluster.remove(&named(&podset_kind(), "gone"));
    cluster.put(set("later")).unwrap();
    let later = uid_of(&cluster, "later");
    for raised in [false, true] {
        let newest = cluster.version();
        cluster.restore(backup, raised);
        let names: Vec<String> = cluster.list(&podset_kind()).map(|live| reference(live).name.to_string()).collect();
        assert_eq!(names, ["default/changed", "default/gone", "default/kept"]);
        let changed = cluster.get(&named(&podset_kind(), "changed")).unwrap();
        assert_eq!((&changed["spec"]["replicas"], &changed["metadata"]["resourceVersion"]), (&json!(1), &json!("2")));
        assert_eq!(cluster.version() > newest, raised);
        assert!(cluster.lives.values().all(|life| life.deleted_at.is_none()) && cluster.lives.len() == 3);
        cluster.put(set("later")).unwrap();
        assert_ne!(uid_of(&cluster, "later"), later);
        assert_eq!(cluster.history(&podset_kind()).len(), 4, "what happened since the backup was never");
        assert!(cluster.list(&pod()).next().is_none());
    }
}
