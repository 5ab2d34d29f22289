//! disruption-controller: how many Pods may be evicted now. Input: PodDisruptionBudgets, their Pods and what controls these.
//! Output: the budgets' status. It must not know evictions.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::storages::{BUDGETS, PODS};
use super::write;
use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key, unchanged};
use crate::halt::Halt;
use crate::resource::group_version;
use crate::selector::Labels;
use crate::store::{Change, Event, Object};
use crate::time;

/// How long an evicted Pod counts as gone before it is deleted.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

pub(super) const CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    user: "system:serviceaccount:kube-system:disruption-controller",
    watches: &[
        ("", "pods"),
        ("policy", "poddisruptionbudgets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
    ],
    batches: true,
    keys,
    reconcile,
};

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    if change.storage == *BUDGETS {
        return if change.event == Event::Deleted { Vec::new() } else { vec![key(object)] };
    }
    let before = change.previous.as_deref().filter(|_| change.event == Event::Modified);
    let budgets = cluster.store.list(&BUDGETS, Some(object.namespace()), None);
    if change.storage != *PODS {
        // The scale of a controller counts.
        let same = before.is_some_and(|before| unchanged(before, object, &["/spec/replicas"]));
        return if same { Vec::new() } else { budgets.map(|budget| key(budget)).collect() };
    }
    let state = |pod: &Object| (condition::is_true(&pod.value["status"], "Ready"), pod.terminates());
    let same = |before: &Object| state(before) == state(object) && unchanged(before, object, &["/metadata/labels"]);
    if before.is_some_and(same) {
        return Vec::new();
    }
    let concerned = budgets.filter(|budget| selects(budget, object) || before.is_some_and(|pod| selects(budget, pod)));
    concerned.map(|budget| key(budget)).collect()
}

fn selects(budget: &Object, pod: &Object) -> bool {
    let selector = &budget.value["spec"]["selector"];
    selector.is_object() && Labels::read(selector).matches(pod.labels())
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(budget) = cluster.store.get(&BUDGETS, namespace, name).cloned() else { return Ok(Again::No) };
    let pods = cluster.store.list(&PODS, Some(namespace), None).filter(|pod| selects(&budget, pod));
    let pods: Vec<Arc<Object>> = pods.cloned().collect();
    let (disrupted, again) = disrupted(&budget, &pods, context);
    let healthy = pods.iter().filter(|pod| {
        let leaves = pod.terminates() || disrupted.contains_key(pod.name());
        !leaves && condition::is_true(&pod.value["status"], "Ready")
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let generation = budget.value["metadata"]["generation"].as_i64().unwrap_or(0);
    let counts = counts(cluster, &budget, &pods);
    let mut status = json!({});
    if let Some(known) = budget.value["status"]["conditions"].as_array() {
        status["conditions"] = known.clone().into();
    }
    let (allowed, reason, message) = match &counts {
        Ok((expected, desired)) => {
            let allowed = if *expected > 0 { (healthy - desired).max(0) } else { 0 };
            for (field, count) in
                [("currentHealthy", healthy), ("desiredHealthy", *desired), ("expectedPods", *expected)]
            {
                status[field] = count.into();
            }
            if !disrupted.is_empty() {
                status["disruptedPods"] = disrupted.into_iter().collect::<serde_json::Map<_, _>>().into();
            }
            (allowed, if allowed > 0 { "SufficientPods" } else { "InsufficientPods" }, "")
        }
        Err(why) => {
            status = budget.value["status"].as_object().cloned().unwrap_or_default().into();
            (0, "SyncFailed", why.as_str())
        }
    };
    status["disruptionsAllowed"] = allowed.into();
    status["observedGeneration"] = generation.into();
    let mut wanted = condition::new("DisruptionAllowed", if allowed > 0 { "True" } else { "False" }, reason, message);
    wanted["message"] = message.into();
    wanted["observedGeneration"] = generation.into();
    condition::set(&mut status, wanted, context.now);
    if pods.is_empty() && status != budget.value["status"] {
        write::event(cluster, context, &budget, "Normal", "NoPods", "No matching pods found")?;
    }
    write::update_status(cluster, context, &budget, status)?;
    Ok(again)
}

/// The Pods whose eviction was granted and that are still there, and when the first of them counts again.
fn disrupted(budget: &Object, pods: &[Arc<Object>], context: &Context<'_>) -> (BTreeMap<String, Value>, Again) {
    let (mut left, mut again) = (BTreeMap::new(), Again::No);
    for pod in pods.iter().filter(|pod| !pod.terminates()) {
        let Some(since) = budget.value["status"]["disruptedPods"].get(pod.name()) else { continue };
        let ends = time::read(since).unwrap_or(context.now) + DELETION_TIMEOUT;
        if ends > context.now {
            left.insert(pod.name().to_owned(), since.clone());
            again = match again {
                Again::At(first) => Again::At(first.min(ends)),
                _ => Again::At(ends),
            };
        }
    }
    (left, again)
}

/// How many Pods there should be, and how many of them must be healthy.
fn counts(cluster: &Cluster, budget: &Object, pods: &[Arc<Object>]) -> Result<(i64, i64), String> {
    let spec = &budget.value["spec"];
    if !spec["maxUnavailable"].is_null() {
        let expected = expected_scale(cluster, pods)?;
        return Ok((expected, (expected - scaled(&spec["maxUnavailable"], expected)).max(0)));
    }
    if let Some(desired) = spec["minAvailable"].as_i64() {
        return Ok((i64::try_from(pods.len()).unwrap_or(i64::MAX), desired));
    }
    if spec["minAvailable"].is_null() {
        return Ok((0, 0));
    }
    let expected = expected_scale(cluster, pods)?;
    Ok((expected, scaled(&spec["minAvailable"], expected)))
}

/// A number, or a part of all in percent, rounded up.
fn scaled(value: &Value, of: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    percent.map_or_else(|| value.as_i64().unwrap_or(0), |percent| percent.saturating_mul(of).saturating_add(99) / 100)
}

/// The replicas of all that controls the Pods; a Pod without a controller counts for nothing.
fn expected_scale(cluster: &Cluster, pods: &[Arc<Object>]) -> Result<i64, String> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller(&pod.value) else { continue };
        let uid = owner["uid"].as_str().unwrap_or_default();
        if scales.contains_key(uid) {
            continue;
        }
        let mut found = find(cluster, pod.namespace(), owner);
        // A Deployment's ReplicaSets count as the Deployment.
        let above = found.as_ref().and_then(|found| find(cluster, pod.namespace(), controller(&found.value)?));
        if above.as_ref().is_some_and(|above| above.value["kind"] == "Deployment") {
            found = above;
        }
        let scale = found.and_then(|found| {
            let replicas = &found.value["spec"]["replicas"];
            // A kind without replicas has no scale.
            Some((found.uid().to_owned(), replicas.as_i64()?))
        });
        let (uid, count) = scale.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
        scales.insert(uid, count);
    }
    Ok(scales.values().sum())
}

fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

fn find(cluster: &Cluster, namespace: &str, owner: &Value) -> Option<Arc<Object>> {
    let (group, version) = group_version(owner["apiVersion"].as_str()?);
    let resource = cluster.kind(group, version, owner["kind"].as_str()?)?;
    let found = cluster.store.get(&resource.storage, namespace, owner["name"].as_str()?)?;
    (owner["uid"] == found.uid()).then(|| found.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::controllers::testing::{cluster, pass, pod, post, read};

    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

    #[test]
    fn a_budget_allows_what_is_more_than_must_be_healthy() {
        for (spec, counts) in [
            (json!({"minAvailable": 2}), (3, 2, 3, 1, "True", "SufficientPods")),
            (json!({"minAvailable": "50%"}), (3, 2, 4, 1, "True", "SufficientPods")),
            (json!({"maxUnavailable": 1}), (3, 3, 4, 0, "False", "InsufficientPods")),
            (json!({"maxUnavailable": "30%"}), (3, 2, 4, 1, "True", "SufficientPods")),
        ] {
            let mut cluster = cluster(&["scheduler", "kubelet", "disruption-controller"]);
            let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("x")["spec"]});
            let set = json!({
                "metadata": {"name": "r"},
                "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "a"}}, "template": template},
            });
            let set = post(&mut cluster, "/apis/apps/v1/namespaces/default/replicasets", &set);
            for name in ["x", "y", "z"] {
                let mut pod = pod(name);
                pod["metadata"]["labels"] = json!({"app": "a"});
                let uid = &set["metadata"]["uid"];
                pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}]);
                post(&mut cluster, "/api/v1/namespaces/default/pods", &pod);
            }
            let mut spec = spec;
            spec["selector"] = json!({"matchLabels": {"app": "a"}});
            post(&mut cluster, BUDGETS, &json!({"metadata": {"name": "b"}, "spec": spec}));
            pass(&mut cluster, 2);
            let status = read(&mut cluster, &format!("{BUDGETS}/b"))["status"].clone();
            let count = |field: &str| status[field].as_i64().unwrap();
            let condition = &status["conditions"][0];
            let found = (
                count("currentHealthy"),
                count("desiredHealthy"),
                count("expectedPods"),
                count("disruptionsAllowed"),
                condition["status"].as_str().unwrap(),
                condition["reason"].as_str().unwrap(),
            );
            assert_eq!(found, counts, "{spec}");
            let revision = cluster.revision();
            pass(&mut cluster, 8);
            assert_eq!(cluster.revision(), revision);
        }
    }
}
