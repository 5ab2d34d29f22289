//! Admission: what changes or refuses an object between a request and the store. Input: the request's attributes and its
//! objects. Output: the changed object, or a refusal. It must not know how objects are stored.
//!
//! The plugins are those that kube-apiserver has switched on, in its order.

mod classes;
mod condition;
mod hook;
mod invocation;
mod limits;
mod matching;
mod mutating_policy;
mod pod_security;
mod pods;
mod policy;
mod quota;
mod reading;
mod review;
mod rounds;
mod webhooks;

use serde_json::{Value, json};

use crate::attributes::Attributes;
use crate::context::Context;
use crate::deletion::{CLAIM_IN_USE, VOLUME_IN_USE, add_finalizer};
use crate::halt::{Halt, Status};
use crate::{Cluster, access};

use self::rounds::Rounds;

pub(crate) use self::pods::lacks_default_account;

/// Lets plugins and webhooks change the object of a create or an update; false when none of them had to do with it.
pub(crate) fn mutate(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<bool, Halt> {
    let hidden = if old.is_none() { hide(object) } else { Vec::new() };
    let mut concerned = plugins(cluster, attributes, object, old)?;
    let (mut policies, mut hooks) = (Rounds::default(), Rounds::default());
    mutating_policy::mutate(cluster, context, attributes, object, old, &mut policies)?;
    webhooks::mutate(cluster, context, attributes, object, old, &mut hooks)?;
    // What a policy or a webhook changed, plugins and those before it see once more.
    if policies.again() || hooks.again() {
        concerned = true;
        plugins(cluster, attributes, object, old)?;
        policies.second(object);
        mutating_policy::mutate(cluster, context, attributes, object, old, &mut policies)?;
        hooks.second(object);
        webhooks::mutate(cluster, context, attributes, object, old, &mut hooks)?;
    }
    show(object, hidden);
    Ok(concerned)
}

/// Lets the plugins of a kind change an object; false when there are none.
fn plugins(
    cluster: &mut Cluster,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<bool, Halt> {
    if !attributes.subresource.is_empty() {
        return Ok(false);
    }
    match (reading::kind(attributes), old) {
        (("", "pods"), None) => {
            limits::default(cluster, attributes, object);
            pods::service_account(cluster, attributes, object)?;
            pods::priority(cluster, attributes, object)?;
            pods::tolerations(object);
        }
        (("", "pods"), Some(old)) => {
            pods::keep_priority(object, old);
            pods::tolerations(object);
        }
        // DefaultStorageClass and StorageObjectInUseProtection.
        (("", "persistentvolumeclaims"), None) => {
            classes::storage(cluster, object);
            add_finalizer(object, CLAIM_IN_USE);
        }
        (("", "persistentvolumes"), None) => add_finalizer(object, VOLUME_IN_USE),
        (("networking.k8s.io", "ingresses"), None) => classes::ingress(cluster, object),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Takes what mutating admission does not see of a new object, because an API server sets it later.
fn hide(object: &mut Value) -> Vec<(&'static str, Value)> {
    let Some(metadata) = object["metadata"].as_object_mut() else { return Vec::new() };
    let base = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let kept: String = base.chars().take(58).collect();
    let drawn = !base.is_empty() && name.strip_prefix(&kept).is_some_and(|rest| rest.len() == 5);
    let keys: &[&str] = if drawn { &["name", "uid", "creationTimestamp"] } else { &["uid", "creationTimestamp"] };
    keys.iter().filter_map(|key| metadata.remove(*key).map(|value| (*key, value))).collect()
}

fn show(object: &mut Value, hidden: Vec<(&'static str, Value)>) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for (key, value) in hidden {
        let said = metadata.get(key).and_then(Value::as_str).is_some_and(|said| !said.is_empty());
        if key != "name" || !said {
            metadata.insert(key.to_owned(), value);
        }
    }
}

/// Lets plugins, policies and webhooks refuse a create, an update (both objects) or a deletion (the old object alone).
pub(crate) fn validate(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Halt> {
    match object {
        Some(object) if attributes.subresource.is_empty() => {
            access::check_escalation(cluster, context, attributes, object, old)?;
            limits::validate(cluster, attributes, object, old)?;
            classes::one_default_priority(cluster, attributes, object)?;
            pod_security::validate(cluster, context, attributes, object, old)?;
        }
        Some(object) => pod_security::validate(cluster, context, attributes, object, old)?,
        None => {
            let immortal = ["default", "kube-system", "kube-public"].contains(&attributes.name.as_str());
            if reading::kind(attributes) == ("", "namespaces") && immortal {
                let why = "this namespace may not be deleted";
                return Err(Status::forbidden("", "namespaces", &attributes.name, why).into());
            }
            webhooks::before_delete(cluster, context, attributes, old)?;
        }
    }
    policy::validate(cluster, context, attributes, matching::Objects { new: object, old })?;
    webhooks::validate(cluster, context, attributes, object, old)?;
    match object {
        Some(object) if attributes.subresource.is_empty() => quota::charge(cluster, attributes, object, old),
        _ => Ok(()),
    }
}

/// The objects that admission needs from the start, such as the system's priority classes.
pub(crate) fn bootstrap() -> Vec<Value> {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "description": description, "preemptionPolicy": "PreemptLowerPriority",
        })
    };
    let node = "Used for system critical pods that must not be moved from their current node.";
    let elsewhere =
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.";
    vec![class("system-node-critical", 2_000_001_000, node), class("system-cluster-critical", 2_000_000_000, elsewhere)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Method::{Delete, Get, Post};
    use crate::testing::{ask, quiet, start};
    use crate::{Cluster, Method, Options};

    const CORE: &str = "/api/v1/namespaces/default";

    /// A cluster whose namespaces have accounts.
    fn accounts() -> Cluster {
        let controllers = vec!["serviceaccount-controller".to_owned()];
        Cluster::new(Options { nodes: 0, controllers, ..Options::default() }, start())
    }

    fn pod(spec: &Value) -> Value {
        let mut pod =
            json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key.as_str()] = value.clone();
        }
        pod
    }

    #[track_caller]
    fn refuses(cluster: &mut Cluster, method: Method, target: &str, body: &Value, code: u16, message: &str) {
        let (found, answer) = ask(cluster, method, target, body);
        assert_eq!((found, answer["message"].as_str()), (code, Some(message)), "{answer}");
    }

    #[track_caller]
    fn makes(cluster: &mut Cluster, target: &str, body: &Value) -> Value {
        let (code, made) = ask(cluster, Post, target, body);
        assert_eq!(code, 201, "{made}");
        made
    }

    #[test]
    fn a_pod_gets_its_account_priority_and_tolerations() {
        let mut cluster = accounts();
        let pods = format!("{CORE}/pods");
        let made = makes(&mut cluster, &pods, &pod(&json!({})));
        let spec = &made["spec"];
        assert_eq!((&spec["serviceAccountName"], &spec["priority"]), (&json!("default"), &json!(0)));
        assert_eq!(
            (&spec["preemptionPolicy"], spec["tolerations"].as_array().map(Vec::len)),
            (&json!("PreemptLowerPriority"), Some(2))
        );
        let volume = &spec["volumes"][0];
        assert!(volume["name"].as_str().unwrap().starts_with("kube-api-access-"));
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume["name"]);
        assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], json!(3607));
        let made = makes(
            &mut cluster,
            &pods,
            &pod(&json!({"automountServiceAccountToken": false, "priorityClassName": "system-node-critical"})),
        );
        assert_eq!((&made["spec"]["volumes"], &made["spec"]["priority"]), (&Value::Null, &json!(2_000_001_000)));
        for (spec, why) in [
            (
                json!({"serviceAccountName": "b"}),
                "error looking up service account default/b: serviceaccount \"b\" not found",
            ),
            (json!({"priorityClassName": "x"}), "no PriorityClass with name x was found"),
        ] {
            refuses(&mut cluster, Post, &pods, &pod(&spec), 403, &format!("pods \"p-\" is forbidden: {why}"));
        }
        let message = "namespaces \"default\" is forbidden: this namespace may not be deleted";
        refuses(&mut cluster, Delete, "/api/v1/namespaces/default", &Value::Null, 403, message);
    }

    #[test]
    fn limits_fill_in_and_refuse() {
        let mut cluster = quiet();
        let range = json!({"metadata": {"name": "l"}, "spec": {"limits": [{
            "type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "250m"}, "max": {"cpu": "1"}, "min": {"cpu": "100m"},
            "maxLimitRequestRatio": {"cpu": "4"},
        }]}});
        makes(&mut cluster, &format!("{CORE}/limitranges"), &range);
        let pods = format!("{CORE}/pods");
        let made = makes(&mut cluster, &pods, &pod(&json!({})));
        let wanted = json!({"requests": {"cpu": "250m"}, "limits": {"cpu": "500m"}});
        assert_eq!(made["spec"]["containers"][0]["resources"], wanted);
        let said = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
        assert_eq!(made["metadata"]["annotations"]["kubernetes.io/limit-ranger"], json!(said));
        for (requests, limits, why) in [
            ("500m", "2", "maximum cpu usage per Container is 1, but limit is 2"),
            ("50m", "100m", "minimum cpu usage per Container is 100m, but request is 50m"),
            ("100m", "500m", "cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000"),
        ] {
            let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}}]);
            let mut pod = pod(&json!({"containers": containers}));
            pod["metadata"] = json!({"name": "a"});
            refuses(&mut cluster, Post, &pods, &pod, 403, &format!("pods \"a\" is forbidden: {why}"));
        }
    }

    #[test]
    fn a_quota_counts_what_is_made_and_refuses_more() {
        let mut cluster = quiet();
        let hard = json!({"pods": "1", "count/configmaps": "3", "requests.cpu": "1"});
        let quotas = format!("{CORE}/resourcequotas");
        let mut quota = makes(&mut cluster, &quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
        quota["status"] = json!({"hard": hard, "used": {"pods": "0", "count/configmaps": "2", "requests.cpu": "0"}});
        assert_eq!(ask(&mut cluster, Method::Put, &format!("{quotas}/q/status"), &quota).0, 200);
        let named = |name: &str, cpu: &str| {
            let resources = json!({"requests": {"cpu": cpu}});
            let mut pod = pod(&json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}));
            pod["metadata"] = json!({"name": name});
            pod
        };
        let pods = format!("{CORE}/pods");
        let message = "pods \"a\" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1";
        refuses(&mut cluster, Post, &pods, &named("a", "1500m"), 403, message);
        let mut silent = named("a", "1");
        silent["spec"]["containers"][0]["resources"] = json!({});
        refuses(
            &mut cluster,
            Post,
            &pods,
            &silent,
            403,
            "pods \"a\" is forbidden: failed quota: q: must specify requests.cpu for: c",
        );
        assert_eq!(ask(&mut cluster, Post, &format!("{pods}?dryRun=All"), &named("a", "500m")).0, 201);
        makes(&mut cluster, &pods, &named("a", "500m"));
        let message = "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        refuses(&mut cluster, Post, &pods, &named("b", "500m"), 403, message);
        makes(&mut cluster, &format!("{CORE}/configmaps"), &json!({"metadata": {"name": "m"}}));
        let (_, quota) = ask(&mut cluster, Get, &format!("{quotas}/q"), &Value::Null);
        assert_eq!(quota["status"]["used"], json!({"pods": "1", "count/configmaps": "3", "requests.cpu": "500m"}));
        let (code, _) = ask(&mut cluster, Post, &format!("{CORE}/configmaps"), &json!({"metadata": {"name": "n"}}));
        assert_eq!(code, 403);
    }
}
