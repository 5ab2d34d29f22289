//! resourcequota-controller: what a namespace uses of its quotas. Input: quotas, and the objects of their namespaces. Output:
//! the quotas' status. It must not know what admission refuses.

use serde_json::{Map, Value};

use super::storages::{CLAIMS, PODS, QUOTAS, SERVICES};
use super::write;
use crate::Cluster;
use crate::amounts::{self, Amounts};
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key, unchanged};
use crate::halt::Halt;
use crate::placement::has_ended;
use crate::resource::Storage;
use crate::store::{Change, Event, Object};

pub(super) const CONTROLLER: Controller = Controller {
    name: "resourcequota-controller",
    user: "system:serviceaccount:kube-system:resourcequota-controller",
    watches: &[],
    batches: true,
    keys,
    reconcile,
};

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    if object.namespace().is_empty() {
        return Vec::new();
    }
    // Most updates do not change what is used.
    let state = |object: &Object| (has_ended(&object.value), object.terminates());
    let same = |before: &Object| state(before) == state(object) && unchanged(before, object, &["/spec"]);
    let before = change.previous.as_deref().filter(|_| change.event == Event::Modified);
    let mut quotas = cluster.store.list(&QUOTAS, Some(object.namespace()), None).peekable();
    if quotas.peek().is_none() || before.is_some_and(same) {
        return Vec::new();
    }
    quotas.map(|quota| key(quota)).collect()
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(quota) = cluster.store.get(&QUOTAS, namespace, name).cloned() else { return Ok(Again::No) };
    let hard = quota.value["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let pods = pod_usage(cluster, &quota);
    let mut used = Map::new();
    for name in hard.keys() {
        let amount = usage(cluster, &quota, &pods, name);
        used.insert(name.clone(), amounts::format(amount, is_binary(name)).into());
    }
    let mut status = Map::new();
    status.insert("hard".to_owned(), hard.into());
    status.insert("used".to_owned(), used.into());
    write::update_status(cluster, context, &quota, status.into())?;
    Ok(Again::No)
}

fn is_binary(name: &str) -> bool {
    ["memory", "storage", "hugepages-"].iter().any(|part| name.contains(part))
}

/// What the Pods in a quota's scopes need, by the quota's names.
fn pod_usage(cluster: &Cluster, quota: &Object) -> Amounts {
    let mut total = Amounts::new();
    let live = cluster.store.list(&PODS, Some(quota.namespace()), None).filter(|pod| !has_ended(&pod.value));
    for pod in live.filter(|pod| in_scopes(quota, &pod.value)) {
        let mut add = |name: String, amount: i64| {
            let sum = total.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        };
        add("pods".to_owned(), 1000);
        for what in ["requests", "limits"] {
            for (name, amount) in amounts::of_pod(&pod.value, what) {
                add(format!("{what}.{name}"), amount);
                if what == "requests" {
                    add(name, amount);
                }
            }
        }
    }
    total
}

fn in_scopes(quota: &Object, pod: &Value) -> bool {
    let scopes = quota.value["spec"]["scopes"].as_array().into_iter().flatten();
    let terms = quota.value["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let ends = pod["spec"]["activeDeadlineSeconds"].as_i64().is_some();
    let best_effort = pod["status"]["qosClass"] == "BestEffort";
    let plain = |scope: &Value| match scope.as_str() {
        Some("Terminating") => ends,
        Some("NotTerminating") => !ends,
        Some("BestEffort") => best_effort,
        Some("NotBestEffort") => !best_effort,
        _ => true,
    };
    let class = &pod["spec"]["priorityClassName"];
    let term = |term: &Value| {
        if term["scopeName"] != "PriorityClass" {
            return plain(&term["scopeName"]);
        }
        let among = term["values"].as_array().is_some_and(|values| values.contains(class));
        match term["operator"].as_str() {
            Some("In") => among,
            Some("NotIn") => !among,
            Some("DoesNotExist") => class.is_null(),
            _ => !class.is_null(),
        }
    };
    scopes.into_iter().all(plain) && terms.into_iter().all(term)
}

/// What is used of one name, in thousandths.
fn usage(cluster: &Cluster, quota: &Object, pods: &Amounts, name: &str) -> i64 {
    let namespace = quota.namespace();
    let count = |storage: &Storage, counts: &dyn Fn(&Value) -> bool| {
        let all = cluster.store.list(storage, Some(namespace), None).filter(|object| counts(&object.value));
        i64::try_from(all.count()).unwrap_or(i64::MAX).saturating_mul(1000)
    };
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return count(&Storage::new(group, plural), &|_| true);
    }
    let is_balancer = |service: &Value| service["spec"]["type"] == "LoadBalancer";
    match name {
        "services" => count(&SERVICES, &|_| true),
        "services.loadbalancers" => count(&SERVICES, &is_balancer),
        "services.nodeports" => {
            let services = cluster.store.list(&SERVICES, Some(namespace), None);
            let ports = services.map(|service| {
                let ports = service.value["spec"]["ports"].as_array().into_iter().flatten();
                ports.filter(|port| port["nodePort"].as_i64().is_some_and(|number| number > 0)).count()
            });
            i64::try_from(ports.sum::<usize>()).unwrap_or(i64::MAX).saturating_mul(1000)
        }
        "persistentvolumeclaims" | "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            count(&Storage::new("", name), &|_| true)
        }
        "requests.storage" => {
            let claims = cluster.store.list(&CLAIMS, Some(namespace), None);
            let sizes = claims.map(|claim| amounts::parse(&claim.value["spec"]["resources"]["requests"]["storage"]));
            sizes.flatten().fold(0, i64::saturating_add)
        }
        _ => pods.get(name).copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::controllers::testing::{cluster, pass, pod, post, read};

    #[test]
    fn a_quota_shows_what_its_namespace_uses() {
        let mut cluster = cluster(&["resourcequota-controller"]);
        let hard = json!({
            "pods": "5", "requests.cpu": "2", "memory": "1Gi", "limits.cpu": "4", "configmaps": "3",
            "count/secrets": "3", "count/jobs.batch": "1",
        });
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        post(&mut cluster, "/api/v1/namespaces/default/resourcequotas", &quota);
        for name in ["a", "b"] {
            let mut pod = pod(name);
            pod["spec"]["containers"][0]["resources"] =
                json!({"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1"}});
            post(&mut cluster, "/api/v1/namespaces/default/pods", &pod);
        }
        post(&mut cluster, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}}));
        pass(&mut cluster, 1);
        let status = read(&mut cluster, "/api/v1/namespaces/default/resourcequotas/q")["status"].clone();
        let used = json!({
            "pods": "2", "requests.cpu": "500m", "memory": "128Mi", "limits.cpu": "2", "configmaps": "1",
            "count/secrets": "0", "count/jobs.batch": "0",
        });
        assert_eq!(status, json!({"hard": hard, "used": used}));
        let revision = cluster.revision();
        pass(&mut cluster, 60);
        assert_eq!(cluster.revision(), revision);
    }
}
