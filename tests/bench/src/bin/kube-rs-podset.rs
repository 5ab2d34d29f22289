//! The peer: the podset operator as a careful author writes it with kube-rs's Controller, to compare with mortise.
//!
//! It is optimised: one shared watch of Pods with a cache, without managedFields; its own status writes do not wake it;
//! it creates Pods concurrently by POST under fixed names, and patches a status only when it differs. It must know
//! nothing of mortise, not even its types.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Config as ControllerConfig};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Concurrent reconciles. The API server's budget for one client is some hundred requests in flight.
const CONCURRENCY: u16 = 32;
/// Delay of a retry; usually an event comes sooner.
const RETRY: Duration = Duration::from_secs(1);
/// Delay of a retry while the cache of Pods fills, which takes a second.
const FILLING: Duration = Duration::from_millis(100);

/// Keeps a number of Pods running. The cluster has its CRD already, so no schema is derived.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "app.example.com", version = "v1alpha1", kind = "PodSet", namespaced)]
#[kube(status = "PodSetStatus", schema = "disabled")]
struct PodSetSpec {
    replicas: i32,
    template: Option<PodTemplateSpec>,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct PodSetStatus {
    replicas: i32,
    pod_names: Vec<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("create pod {0}: {1}")]
    Create(String, #[source] kube::Error),
    #[error("delete pod {0}: {1}")]
    Delete(String, #[source] kube::Error),
    #[error("patch the status of podset {0}: {1}")]
    Status(String, #[source] kube::Error),
}

struct Context {
    client: Client,
    pods: Store<Pod>,
    /// Whether the first list of Pods is complete.
    is_filled: AtomicBool,
}

#[derive(Debug, Default, PartialEq)]
struct Difference {
    active: Vec<String>,
    missing: Vec<String>,
    surplus: Vec<(String, Option<String>)>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let sets = Api::<PodSet>::all(client.clone());
    // Fails early if the kind is missing or forbidden, which a watch would retry for ever.
    sets.list(&ListParams::default().limit(1)).await?;

    let (pods, writer) = reflector::store();
    let pod_events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    let (set_store, set_writer) = reflector::store();
    let set_events = watcher(sets, watcher::Config::default())
        .default_backoff()
        .modify(|set| set.managed_fields_mut().clear())
        .reflect(set_writer)
        .applied_objects()
        .predicate_filter(predicates::generation, PredicateConfig::default());

    let context = Arc::new(Context { client, pods, is_filled: AtomicBool::new(false) });
    // Only one task may wait for the cache: a store wakes the last waiter only.
    let waiting = Arc::clone(&context);
    tokio::spawn(async move {
        if waiting.pods.wait_until_ready().await.is_ok() {
            waiting.is_filled.store(true, Ordering::Release);
            println!("the cache of Pods is filled");
        }
    });
    Controller::for_stream(set_events, set_store)
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY))
        .owns_stream(pod_events)
        .shutdown_on_signal()
        .run(reconcile, error_policy, context)
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}

async fn reconcile(set: Arc<PodSet>, context: Arc<Context>) -> Result<Action, Error> {
    if set.meta().deletion_timestamp.is_some() {
        // The garbage collector deletes its Pods.
        return Ok(Action::await_change());
    }
    if !context.is_filled.load(Ordering::Acquire) {
        // All Pods would seem to be missing.
        return Ok(Action::requeue(FILLING));
    }
    let owned = context.pods.state().into_iter().filter(|pod| is_controlled_by(pod, &set)).collect::<Vec<_>>();
    let difference = compare(&set, &owned);

    let api = Api::<Pod>::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let deletions = difference.surplus.iter().map(|(name, uid)| delete(&api, name, uid.clone()));
    try_join_all(deletions).await?;
    let creations = difference.missing.iter().map(|name| create(&api, &set, name));
    let created = try_join_all(creations).await?;
    if created.contains(&false) {
        // The cache lags behind the API server. The Pod's own event wakes this PodSet; a status computed now would be
        // wrong.
        return Ok(Action::requeue(RETRY));
    }

    if owned.iter().any(|pod| is_just_deleted(pod, Timestamp::now())) {
        // A replacement usually follows at once, and no status write is needed.
        return Ok(Action::requeue(RETRY));
    }

    let mut names = difference.active;
    names.extend(difference.missing);
    names.sort();
    let status = wanted_status(&set, names);
    if set.status.as_ref() != Some(&status) {
        let sets = Api::<PodSet>::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"status": status}));
        let patched = sets.patch_status(&set.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(|error| Error::Status(set.name_any(), error))?;
    }
    Ok(Action::await_change())
}

fn error_policy(_: Arc<PodSet>, error: &Error, _: Arc<Context>) -> Action {
    eprintln!("{error}");
    Action::requeue(RETRY)
}

fn is_controlled_by(pod: &Pod, set: &PodSet) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    set.uid().is_some_and(|uid| owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid))
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Whether its deletion began less than a second ago. The deletion timestamp includes the grace period.
fn is_just_deleted(pod: &Pod, now: Timestamp) -> bool {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let ends_at = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second());
    // Timestamps have whole seconds, so the deletion may have begun in this second or the last.
    ends_at.is_some_and(|ends_at| now.as_second() - (ends_at - grace) <= 1)
}

/// A terminating Pod keeps its name until it is removed, which wakes the PodSet again.
fn compare(set: &PodSet, owned: &[Arc<Pod>]) -> Difference {
    let wanted = (0..set.spec.replicas).map(|index| format!("{}-{index}", set.name_any())).collect::<Vec<_>>();
    let mut difference = Difference::default();
    for pod in owned {
        let name = pod.name_any();
        let is_deleting = pod.metadata.deletion_timestamp.is_some();
        match (is_deleting, !is_finished(pod) && wanted.contains(&name)) {
            (true, _) => {}
            (false, true) => difference.active.push(name),
            (false, false) => difference.surplus.push((name, pod.uid())),
        }
    }
    difference.missing = wanted;
    difference.missing.retain(|name| owned.iter().all(|pod| pod.name_any() != *name));
    difference
}

/// Returns false if it exists already.
async fn create(api: &Api<Pod>, set: &PodSet, name: &str) -> Result<bool, Error> {
    let mut pod = match &set.spec.template {
        Some(template) => Pod {
            metadata: template.metadata.clone().unwrap_or_default(),
            spec: template.spec.clone(),
            ..Pod::default()
        },
        None => Pod { spec: Some(sleeper()), ..Pod::default() },
    };
    pod.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: set.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..pod.metadata
    };
    match api.create(&PostParams::default(), &pod).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(Error::Create(name.to_owned(), error)),
    }
}

async fn delete(api: &Api<Pod>, name: &str, uid: Option<String>) -> Result<(), Error> {
    let params =
        DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..Default::default() };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Error::Delete(name.to_owned(), error)),
    }
}

fn sleeper() -> PodSpec {
    let container = Container {
        name: "busybox".to_owned(),
        image: Some("busybox".to_owned()),
        command: Some(vec!["sleep".to_owned(), "3600".to_owned()]),
        ..Container::default()
    };
    PodSpec { containers: vec![container], ..PodSpec::default() }
}

/// The wanted status, which is identical to the old one when nothing has changed.
fn wanted_status(set: &PodSet, pod_names: Vec<String>) -> PodSetStatus {
    let (active, wanted) = (pod_names.len(), set.spec.replicas);
    let is_ready = i32::try_from(active) == Ok(wanted);
    let mut ready = Condition {
        type_: "Ready".to_owned(),
        status: if is_ready { "True" } else { "False" }.to_owned(),
        reason: if is_ready { "AllPodsActive" } else { "PodsMissing" }.to_owned(),
        message: format!("{active} of {wanted} Pods are pending or running"),
        observed_generation: set.metadata.generation,
        last_transition_time: Time(Timestamp::now()),
    };
    let conditions = set.status.iter().flat_map(|status| &status.conditions);
    if let Some(known) = conditions.into_iter().find(|known| known.type_ == ready.type_ && known.status == ready.status)
    {
        ready.last_transition_time = known.last_transition_time.clone();
    }
    PodSetStatus { replicas: i32::try_from(active).unwrap_or(i32::MAX), pod_names, conditions: vec![ready] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i32) -> PodSet {
        let mut set = PodSet::new("set", PodSetSpec { replicas, template: None });
        set.metadata.uid = Some("uid".to_owned());
        set
    }

    fn pod(name: &str, phase: &str, deleted_at: Option<i64>) -> Arc<Pod> {
        let deletion = deleted_at.map(|second| json!(Time(Timestamp::from_second(second).unwrap())));
        let metadata = json!({"name": name, "deletionTimestamp": deletion, "deletionGracePeriodSeconds": 30});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap())
    }

    #[test]
    fn a_terminating_pod_keeps_its_name_and_a_finished_one_is_replaced() {
        let owned = [pod("set-0", "Running", Some(100)), pod("set-1", "Failed", None), pod("set-7", "Running", None)];
        let difference = compare(&set(3), &owned);
        assert_eq!(difference.missing, ["set-2"]);
        assert_eq!(difference.surplus.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["set-1", "set-7"]);
        assert_eq!(difference.active, Vec::<String>::new());
    }

    #[test]
    fn an_unchanged_status_is_identical() {
        let mut set = set(1);
        let status = wanted_status(&set, vec!["set-0".to_owned()]);
        set.status = Some(PodSetStatus { replicas: 1, ..status.clone() });
        assert_eq!(wanted_status(&set, vec!["set-0".to_owned()]), status);
        assert_ne!(wanted_status(&set, Vec::new()), status);
    }

    #[test]
    fn a_deletion_is_recent_for_a_second() {
        let now = |second| Timestamp::from_second(second).unwrap();
        // Its grace period ends at 130, so it began at 100.
        let terminating = pod("set-0", "Running", Some(130));
        assert!(is_just_deleted(&terminating, now(101)));
        assert!(!is_just_deleted(&terminating, now(102)));
        assert!(!is_just_deleted(&pod("set-0", "Running", None), now(100)));
    }
}
