//! namespace-controller: empties a namespace that is being deleted, Pods first, and lets it go. Input: namespaces, and what
//! vanishes in them. Output: deletions, and the namespace's conditions. It must not know the kinds in a namespace.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::storages::{NAMESPACES, PODS};
use super::write;
use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key};
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::Halt;
use crate::resource::Storage;
use crate::store::{Change, Event, Object};

const FINALIZER: &str = "kubernetes";

pub(super) const CONTROLLER: Controller = Controller {
    name: "namespace-controller",
    user: "system:serviceaccount:kube-system:namespace-controller",
    watches: &[],
    batches: true,
    keys,
    reconcile,
};

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let is_namespace = change.storage == *NAMESPACES;
    let name = if is_namespace { change.object.name() } else { change.object.namespace() };
    // What a namespace waits for vanishes, or only loses its finalizers first.
    if name.is_empty() || !is_namespace && change.event != Event::Deleted {
        return Vec::new();
    }
    let terminates = cluster.store.get(&NAMESPACES, "", name).is_some_and(|namespace| namespace.terminates());
    terminates.then(|| ("".into(), name.into())).into_iter().collect()
}

/// What is left in a namespace.
#[derive(Default)]
struct Content {
    /// `pods.`, `deployments.apps`: how many objects.
    left: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    refusals: Vec<String>,
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (_, name): &Key) -> Result<Again, Halt> {
    let Some(namespace) = cluster.store.get(&NAMESPACES, "", name).filter(|namespace| namespace.terminates()).cloned()
    else {
        return Ok(Again::No);
    };
    let finalizers = namespace.value["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Again::No);
    }
    let mut content = Content::default();
    content.empty(cluster, context, name, &PODS)?;
    if content.left.is_empty() {
        let storages: Vec<Storage> = cluster.store.storages().filter(|storage| **storage != *PODS).cloned().collect();
        for storage in storages {
            content.empty(cluster, context, name, &storage)?;
        }
    }
    let status = content.conditions(&namespace, context);
    let namespace = write::update_status(cluster, context, &namespace, status)?;
    if !content.refusals.is_empty() {
        return Ok(Again::Later);
    }
    if content.left.is_empty() {
        let mut new = namespace.value.clone();
        let rest: Vec<Value> = finalizers.into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
        write::set(&mut new["spec"], "finalizers", rest.into());
        write::update_subresource(cluster, context, &namespace, "finalize", new)?;
    }
    Ok(Again::No)
}

impl Content {
    /// Deletes the objects of one storage, and counts those that stay for now.
    fn empty(
        &mut self,
        cluster: &mut Cluster,
        context: &Context<'_>,
        namespace: &str,
        storage: &Storage,
    ) -> Result<(), Halt> {
        // The names in a namespace lie together; cluster-scoped objects are in none.
        let all: Vec<_> = cluster.store.list(storage, Some(namespace), None).cloned().collect();
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        for object in all.iter().filter(|object| !object.terminates()) {
            match write::delete(cluster, context, object, &options) {
                Ok(()) => {}
                Err(Halt::Call(call)) => return Err(Halt::Call(call)),
                Err(Halt::Status(status)) => self.refusals.push(status.message),
            }
        }
        let left: Vec<_> = cluster.store.list(storage, Some(namespace), None).collect();
        if left.is_empty() {
            return Ok(());
        }
        *self.left.entry(format!("{}.{}", storage.plural, storage.group)).or_default() += left.len();
        for object in left {
            let finalizers = object.value["metadata"]["finalizers"].as_array().into_iter().flatten();
            for finalizer in finalizers.filter_map(Value::as_str) {
                *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    }

    fn conditions(&self, namespace: &Object, context: &Context<'_>) -> Value {
        let counts = |counts: &BTreeMap<String, usize>, word: &str| {
            let parts: Vec<String> =
                counts.iter().map(|(name, count)| format!("{name} {word} {count} resource instances")).collect();
            parts.join(", ")
        };
        let left = counts(&self.left, "has");
        let finalizers = counts(&self.finalizers, "in");
        let failed = match self.refusals.as_slice() {
            [] => String::new(),
            all => format!("Failed to delete all resource types, {} remaining: {}", all.len(), all.join(", ")),
        };
        let some = |prefix: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
        };
        let mut status = namespace.value["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        write::set(&mut status, "phase", "Terminating".into());
        for (kind, bad, bad_reason, good_reason, good) in [
            (
                "NamespaceDeletionDiscoveryFailure",
                String::new(),
                "DiscoveryFailed",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                String::new(),
                "GroupVersionParsingFailed",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "NamespaceDeletionContentFailure",
                failed,
                "ContentDeletionFailed",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            (
                "NamespaceContentRemaining",
                some("Some resources are remaining: ", &left),
                "SomeResourcesRemain",
                "ContentRemoved",
                "All content successfully removed",
            ),
            (
                "NamespaceFinalizersRemaining",
                some("Some content in the namespace has finalizers remaining: ", &finalizers),
                "SomeFinalizersRemain",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ] {
            let wanted = if bad.is_empty() {
                condition::new(kind, "False", good_reason, good)
            } else {
                condition::new(kind, "True", bad_reason, &bad)
            };
            condition::set(&mut status, wanted, context.now);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Put};
    use crate::condition;
    use crate::controllers::testing::{cluster, pass, post, read};
    use crate::testing::ask;

    const SPACE: &str = "/api/v1/namespaces/a";

    #[test]
    fn a_namespace_vanishes_when_its_content_is_gone() {
        let mut cluster = cluster(&["namespace-controller"]);
        let namespace = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        post(&mut cluster, "/api/v1/namespaces", &namespace);
        post(&mut cluster, &format!("{SPACE}/configmaps"), &json!({"metadata": {"name": "x"}}));
        let held = json!({"metadata": {"name": "y", "finalizers": ["example.com/keep"]}});
        post(&mut cluster, &format!("{SPACE}/secrets"), &held);
        let (code, marked) = ask(&mut cluster, Delete, SPACE, &json!(null));
        assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
        pass(&mut cluster, 1);
        assert!(read(&mut cluster, &format!("{SPACE}/configmaps/x")).is_null());
        let status = read(&mut cluster, SPACE)["status"].clone();
        for (kind, message) in [
            ("NamespaceContentRemaining", "Some resources are remaining: secrets. has 1 resource instances"),
            (
                "NamespaceFinalizersRemaining",
                "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances",
            ),
        ] {
            let found = condition::get(&status, kind).unwrap();
            assert_eq!((&found["status"], &found["message"]), (&json!("True"), &json!(message)));
        }
        let revision = cluster.revision();
        pass(&mut cluster, 60);
        assert_eq!(cluster.revision(), revision);
        let mut held = read(&mut cluster, &format!("{SPACE}/secrets/y"));
        held["metadata"]["finalizers"] = json!([]);
        ask(&mut cluster, Put, &format!("{SPACE}/secrets/y"), &held);
        pass(&mut cluster, 61);
        assert!(read(&mut cluster, SPACE).is_null());
    }
}
