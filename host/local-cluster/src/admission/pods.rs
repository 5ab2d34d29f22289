//! What admission adds to Pods: their ServiceAccount with its token, their priority, their tolerations. Input: a Pod.
//! Output: the same, completed, or a refusal. It must not know requests.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::reading::{array, forbidden, kind, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::Halt;
use crate::resource::Storage;
use crate::uid;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
/// How long the token in a Pod lasts, as clients read it; kubelets renew it earlier.
const TOKEN_SECONDS: u64 = 60 * 60 + 7;
/// The controller that makes the accounts. Without it no namespace has one, and the plugin is off, as it has to be on an API
/// server that runs alone.
const CONTROLLER: &str = "serviceaccount-controller";
static ACCOUNTS: LazyLock<Storage> = LazyLock::new(|| Storage::new("", "serviceaccounts"));

/// The ServiceAccount of a Pod; none if the plugin leaves the Pod alone.
fn account_name<'a>(cluster: &Cluster, pod: &'a Value) -> Option<&'a str> {
    let mirror = !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    if !cluster.options.runs(CONTROLLER) || mirror || !pod["spec"].is_object() {
        return None;
    }
    Some(text(&pod["spec"], "serviceAccountName")).filter(|name| !name.is_empty()).or(Some("default"))
}

/// Whether a Pod wants the account `default` of a namespace that has none yet.
pub(crate) fn lacks_default_account(cluster: &Cluster, attributes: &Attributes, object: &Value) -> bool {
    kind(attributes) == ("", "pods")
        && attributes.subresource.is_empty()
        && account_name(cluster, object) == Some("default")
        && cluster.store.get(&ACCOUNTS, &attributes.namespace, "default").is_none()
}

/// ServiceAccount.
pub(super) fn service_account(cluster: &mut Cluster, attributes: &Attributes, pod: &mut Value) -> Result<(), Halt> {
    let Some(name) = account_name(cluster, pod).map(str::to_owned) else { return Ok(()) };
    pod["spec"]["serviceAccountName"] = name.clone().into();
    pod["spec"]["serviceAccount"] = name.clone().into();
    let namespace = &attributes.namespace;
    let Some(account) = cluster.store.get(&ACCOUNTS, namespace, &name).cloned() else {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(forbidden(attributes, pod, &why));
    };
    let wish = |object: &Value| object["automountServiceAccountToken"].as_bool();
    if wish(&pod["spec"]).or_else(|| wish(&account.value)).unwrap_or(true) {
        mount_token(cluster, &mut pod["spec"]);
    }
    let secrets = array(&account.value, "imagePullSecrets");
    if array(&pod["spec"], "imagePullSecrets").is_empty() && !secrets.is_empty() {
        pod["spec"]["imagePullSecrets"] = secrets.iter().map(|secret| json!({"name": secret["name"]})).collect();
    }
    Ok(())
}

fn mount_token(cluster: &mut Cluster, spec: &mut Value) {
    let known = array(spec, "volumes").iter().map(|volume| text(volume, "name"));
    let known = known.filter(|name| name.starts_with(TOKEN_VOLUME)).map(str::to_owned).next();
    let volume = known.clone().unwrap_or_else(|| format!("{TOKEN_VOLUME}{}", uid::suffix(cluster, 5)));
    let mut needed = false;
    for key in ["initContainers", "containers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            if array(container, "volumeMounts").iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
            needed |= push(container, "volumeMounts", mount);
        }
    }
    if needed && known.is_none() {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]);
        push(spec, "volumes", json!({"name": volume, "projected": {"sources": sources, "defaultMode": 420}}));
    }
}

/// Appends to a list of an object, and says whether it has one.
fn push(object: &mut Value, key: &str, item: Value) -> bool {
    let Some(fields) = object.as_object_mut() else { return false };
    let list = fields.entry(key).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return false };
    list.push(item);
    true
}

/// Priority.
pub(super) fn priority(cluster: &Cluster, attributes: &Attributes, pod: &mut Value) -> Result<(), Halt> {
    if !pod["spec"].is_object() {
        return Ok(());
    }
    let storage = Storage::new("scheduling.k8s.io", "priorityclasses");
    let name = text(&pod["spec"], "priorityClassName");
    let class = if name.is_empty() {
        let all = cluster.store.list(&storage, None, None).filter(|class| class.value["globalDefault"] == true);
        all.min_by_key(|class| class.value["value"].as_i64()).cloned()
    } else {
        let found = cluster.store.get(&storage, "", name).cloned();
        Some(found.ok_or_else(|| forbidden(attributes, pod, &format!("no PriorityClass with name {name} was found")))?)
    };
    let value = class.as_ref().and_then(|class| class.value["value"].as_i64()).unwrap_or(0);
    let policy = class.as_ref().and_then(|class| class.value["preemptionPolicy"].as_str());
    let policy = policy.unwrap_or("PreemptLowerPriority").to_owned();
    if let Some(said) = pod["spec"]["priority"].as_i64().filter(|said| *said != value) {
        let why = format!(
            "the integer value of priority ({said}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(attributes, pod, &why));
    }
    if let Some(said) = pod["spec"]["preemptionPolicy"].as_str().filter(|said| *said != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(attributes, pod, &why));
    }
    if let Some(class) = &class {
        pod["spec"]["priorityClassName"] = class.name().into();
    }
    pod["spec"]["priority"] = value.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// Priority, at an update that leaves it out.
pub(super) fn keep_priority(pod: &mut Value, old: &Value) {
    for key in ["priority", "preemptionPolicy"] {
        if pod["spec"].is_object() && pod["spec"][key].is_null() && !old["spec"][key].is_null() {
            pod["spec"][key] = old["spec"][key].clone();
        }
    }
}

/// DefaultTolerationSeconds.
pub(super) fn tolerations(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = array(spec, "tolerations").iter().any(|toleration| {
            ["", key].contains(&text(toleration, "key")) && ["", "NoExecute"].contains(&text(toleration, "effect"))
        });
        if !tolerated {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            push(spec, "tolerations", toleration);
        }
    }
}
