//! A cluster as records, to be kept beyond the end of the process: what each change left. Input: the log of changes, or all
//! objects. Output: records, from which the same cluster comes back. It must not know files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::options::Options;
use crate::resource::{Storage, built_in, group_version};
use crate::store::{Change, Event, Object};
use crate::{Cluster, builtin_versions, controllers, definition};

impl Cluster {
    /// The changes after a version, oldest first, each as a record. None if the log does not reach back to it: save all.
    pub fn saved_since(&self, revision: u64) -> Option<Vec<Value>> {
        if revision < self.store.compacted() {
            return None;
        }
        Some(self.store.changes(revision).map(|change| self.record(change)).collect())
    }

    /// All objects as records, in the order of their versions, and the newest version.
    pub fn saved(&self) -> Vec<Value> {
        let all = self.store.all();
        let mut objects: Vec<(&Storage, &Arc<Object>)> =
            all.iter().flat_map(|(storage, objects)| objects.iter().map(move |object| (storage, object))).collect();
        objects.sort_by_key(|(_, object)| object.revision);
        let record = |(storage, object): (&Storage, &Arc<Object>)| json!({"group": &*storage.group, "plural": &*storage.plural, "object": *object.read()});
        let mut records: Vec<Value> = objects.into_iter().map(record).collect();
        records.push(json!({"revision": self.store.revision(), "made": self.made}));
        records
    }

    fn record(&self, change: &Change) -> Value {
        let (group, plural) = (&*change.storage.group, &*change.storage.plural);
        match change.event {
            Event::Deleted => json!({
                "group": group, "plural": plural, "revision": change.revision, "made": self.made,
                "gone": {"namespace": change.object.namespace(), "name": change.object.name()},
            }),
            Event::Added | Event::Modified => {
                json!({"group": group, "plural": plural, "object": *change.object.read(), "made": self.made})
            }
        }
    }

    /// The cluster that was saved, with no log: watches from before get 410, as after a restart of the API server. The
    /// controllers look at everything anew.
    ///
    /// # Errors
    /// What is wrong with which record.
    pub fn restore(options: Options, records: impl IntoIterator<Item = Value>) -> Result<Self, String> {
        let controllers = controllers::waiting(&options);
        let mut cluster = Self::empty(options, controllers);
        for (index, record) in records.into_iter().enumerate() {
            cluster.replay(record).map_err(|why| format!("record {}: {why}", index + 1))?;
        }
        cluster.compact();
        cluster.serve_definitions();
        Ok(cluster)
    }

    /// The cluster that has these objects and no others, as another cluster has them: with their UIDs and versions, of any
    /// served version of their kinds.
    ///
    /// # Errors
    /// Which object is of a kind that neither is built in nor has its definition among the objects.
    pub fn with_objects(options: Options, objects: Vec<Value>) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_definition = |object: &&Value| object["kind"] == "CustomResourceDefinition";
        let name = |definition: &Value| {
            let spec = &definition["spec"];
            ((text(&spec["group"]), text(&spec["names"]["kind"])), text(&spec["names"]["plural"]))
        };
        let plurals: BTreeMap<_, _> = objects.iter().filter(is_definition).map(name).collect();
        let built_in = Self::empty(Options::default(), controllers::waiting(&options));
        let mut records = Vec::new();
        for object in objects {
            let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            let (group, version) = group_version(&api_version);
            let known = built_in.kind(group, version, &kind).cloned();
            let (storage, object) = match (known, plurals.get(&(group.to_owned(), kind.clone()))) {
                (Some(resource), _) => (resource.storage.clone(), builtin_versions::for_storage(&resource, object)),
                (None, Some(plural)) => (Storage::new(group, plural), object),
                (None, None) => return Err(format!("{api_version} {kind} is not known: copy its definition as well")),
            };
            records.push(json!({"group": &*storage.group, "plural": &*storage.plural, "object": object}));
        }
        let version = |record: &Value| text(&record["object"]["metadata"]["resourceVersion"]).parse().unwrap_or(0_u64);
        records.sort_by_key(version);
        Self::restore(options, records)
    }

    fn replay(&mut self, mut record: Value) -> Result<(), &'static str> {
        self.made = self.made.max(record["made"].as_u64().unwrap_or(0));
        let object = record.get_mut("object").map(Value::take);
        let said = object.as_ref().and_then(|object| object["metadata"]["resourceVersion"].as_str()?.parse().ok());
        let revision = said.or_else(|| record["revision"].as_u64()).ok_or("it has no version")?;
        if revision < self.store.revision() {
            return Err("its version is older than the one before it");
        }
        let Some(plural) = record["plural"].as_str() else {
            self.store.continue_from(revision);
            return Ok(());
        };
        let storage = Storage::new(record["group"].as_str().unwrap_or_default(), plural);
        self.store.continue_from(revision.saturating_sub(1));
        match object {
            Some(object) => drop(self.store.put(&storage, object)),
            None => {
                let name = |key: &str| record["gone"][key].as_str().unwrap_or_default();
                self.store.remove(&storage, name("namespace"), name("name")).ok_or("it removes what is not there")?;
            }
        }
        Ok(())
    }

    fn serve_definitions(&mut self) {
        let key = ("apiextensions.k8s.io".into(), "v1".into(), "customresourcedefinitions".into());
        let Some(resource) = built_in().get(&key) else { return };
        let found: Vec<Arc<Object>> = self.store.list(&resource.storage, None, None).cloned().collect();
        for object in found {
            definition::changed(self, resource, &object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method::{Delete, Get, Post, Put};
    use crate::testing::{ask, quiet};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    #[test]
    fn a_cluster_comes_back_from_its_changes_and_from_all_its_objects() {
        let mut cluster = quiet();
        let before = cluster.revision();
        let mut records = cluster.saved();
        let (_, mut a) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "a"}}));
        ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "b"}}));
        a["data"] = json!({"k": "v"});
        ask(&mut cluster, Put, &format!("{MAPS}/a"), &a);
        ask(&mut cluster, Delete, &format!("{MAPS}/b"), &Value::Null);
        records.extend(cluster.saved_since(before).unwrap());
        for records in [records, cluster.saved()] {
            let mut restored = Cluster::restore((*cluster.options).clone(), records).unwrap();
            assert_eq!(restored.revision(), cluster.revision());
            assert_eq!(ask(&mut restored, Get, MAPS, &Value::Null), ask(&mut cluster, Get, MAPS, &Value::Null));
            let mut original = cluster.clone();
            let new = json!({"metadata": {"name": "c"}});
            assert_eq!(ask(&mut restored, Post, MAPS, &new), ask(&mut original, Post, MAPS, &new));
        }
        cluster.compact();
        assert_eq!(cluster.saved_since(before), None);
    }

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        for (record, why) in [
            (json!({"group": "", "plural": "pods", "object": {}}), "record 1: it has no version"),
            (json!("text"), "record 1: it has no version"),
            (
                json!({"group": "", "plural": "pods", "gone": {"name": "a"}, "revision": 1}),
                "record 1: it removes what is not there",
            ),
        ] {
            let found = Cluster::restore(Options::default(), [record]);
            assert_eq!(found.err().as_deref(), Some(why));
        }
    }
}
