//! PodSecurity: what the labels of a namespace allow of its Pods. Input: Pods, what Pods are made from, and namespaces. Output: a
//! refusal, or warnings. It must not know what the standards are.

use mortise_pod_security::{LEVELS, Level, Pod, Standard, Version, details};
use serde_json::Value;

use super::reading::{array, kind, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::resource::Storage;

const PREFIX: &str = "pod-security.kubernetes.io/";
/// How many Pods are looked at when a namespace gets a stricter level, as in the API server.
const MAX_PODS: usize = 3_000;

/// What a namespace enforces, and warns of. What is audited, nobody sees here.
struct Policy {
    enforce: Standard,
    warn: Standard,
}

/// Refuses a Pod that its namespace does not allow, or warns of it; of other objects, warns of the Pods that they make.
pub(super) fn validate(
    cluster: &Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Halt> {
    let subresource = attributes.subresource.as_str();
    let (template, enforces) = match (kind(attributes), subresource) {
        (("", "namespaces"), "") => return namespace(cluster, context, object, old),
        (("", "pods"), "" | "ephemeralcontainers" | "resize") => (object, true),
        (("", "podtemplates"), "") => (&object["template"], false),
        (("batch", "cronjobs"), "") => (&object["spec"]["jobTemplate"]["spec"]["template"], false),
        (("batch", "jobs") | ("apps", _) | ("", "replicationcontrollers"), "") => (&object["spec"]["template"], false),
        _ => return Ok(()),
    };
    if !template["spec"].is_object() || enforces && old.is_some_and(|old| !is_significant(object, old)) {
        return Ok(());
    }
    let Some(namespace) = cluster.store.get(&Storage::new("", "namespaces"), "", &attributes.namespace) else {
        return Ok(());
    };
    let (policy, _) = policy(namespace.labels());
    let pod = Pod { metadata: &template["metadata"], spec: &template["spec"] };
    let found = policy.enforce.violations(pod);
    if enforces && !found.is_empty() {
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
        let name = if attributes.name.is_empty() { text(&object["metadata"], "name") } else { &attributes.name };
        return Err(Status::forbidden("", "pods", name, &why).into());
    }
    let found = policy.warn.violations(pod);
    if !found.is_empty() {
        context.warn(format!("would violate PodSecurity \"{}\": {}", policy.warn, details(&found)));
    }
    Ok(())
}

/// Refuses labels that are none, and warns of Pods that a stricter level would have refused.
fn namespace(cluster: &Cluster, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Result<(), Halt> {
    let name = text(&object["metadata"], "name");
    let (new, causes) = policy(&object["metadata"]["labels"]);
    let before = old.map(|old| policy(&old["metadata"]["labels"]));
    if !causes.is_empty() && before.as_ref().is_none_or(|(_, known)| *known != causes) {
        return Err(Status::invalid("", "Namespace", name, &causes).into());
    }
    let Some((before, _)) = before else { return Ok(()) };
    let (new, before) = (new.enforce, before.enforce);
    if new == before || new.version == before.version && new.level <= before.level {
        return Ok(());
    }
    let pods = cluster.store.list(&Storage::new("", "pods"), Some(name), None).take(MAX_PODS);
    let mut warnings: Vec<(String, String, usize)> = Vec::new();
    for pod in pods {
        let value = pod.read();
        let found = new.violations(Pod { metadata: &value["metadata"], spec: &value["spec"] });
        let reasons = found.iter().map(|violation| violation.reason.as_str()).collect::<Vec<_>>().join(", ");
        match warnings.iter_mut().find(|(known, ..)| *known == reasons) {
            _ if found.is_empty() => {}
            Some((_, _, count)) => *count += 1,
            // Pods come in the order of their names.
            None => warnings.push((reasons, pod.name().to_owned(), 1)),
        }
    }
    if !warnings.is_empty() {
        let level = new.to_string();
        context
            .warn(format!("existing pods in namespace {name:?} violate the new PodSecurity enforce level {level:?}"));
    }
    let line = |(reasons, first, count): (String, String, usize)| match count {
        1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        _ => format!("{first} (and {} other pods): {reasons}", count - 1),
    };
    let mut lines: Vec<String> = warnings.into_iter().map(line).collect();
    lines.sort();
    lines.into_iter().for_each(|line| context.warn(line));
    Ok(())
}

/// Whether an update of a Pod changes what is checked: of what may change, its images and its ephemeral containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<(String, String)> {
        let of = |container: &Value| (text(container, "name").to_owned(), text(container, "image").to_owned());
        array(&pod["spec"], list).iter().map(of).collect()
    };
    ["initContainers", "containers", "ephemeralContainers"].iter().any(|list| images(new, list) != images(old, list))
}

/// The policy of a namespace's labels, and what is wrong with them. What cannot be read is enforced strictly.
fn policy(labels: &Value) -> (Policy, Vec<Cause>) {
    let mut causes = Vec::new();
    let mut read = |mode: &str| {
        let key = format!("{PREFIX}{mode}");
        let value = labels.get(&key).and_then(Value::as_str);
        let level = value.map(|value| Level::named(value).ok_or_else(|| causes.push(cause(&key, value, LEVELS))));
        let key = format!("{PREFIX}{mode}-version");
        let version = labels.get(&key).and_then(Value::as_str).map(|version| {
            let wrong = || causes.push(cause(&key, version, "must be \"latest\" or \"v1.x\""));
            Version::named(version).ok_or_else(wrong).unwrap_or(Version::LATEST)
        });
        (level, version)
    };
    // Labels of audits are only checked.
    let (enforce, _, warn) = (read("enforce"), read("audit"), read("warn"));
    let version = |said: Option<Version>| said.unwrap_or(Version::LATEST);
    let level = match enforce.0 {
        None => Level::Privileged,
        Some(said) => said.unwrap_or(Level::Restricted),
    };
    // Without a level of its own what is enforced is warned of, too.
    let warns = match warn.0 {
        None => enforce.0.and_then(Result::ok).unwrap_or(Level::Privileged),
        Some(said) => said.unwrap_or(Level::Privileged),
    };
    let inherits = warn.0.is_none() && warn.1.is_none() && warns != Level::Privileged;
    let of_warning = version(if inherits { enforce.1 } else { warn.1 });
    let enforce = Standard { level, version: version(enforce.1) };
    (Policy { enforce, warn: Standard { level: warns, version: of_warning } }, causes)
}

fn cause(label: &str, value: &str, why: &str) -> Cause {
    let message = format!("Invalid value: {value:?}: {why}");
    Cause { reason: "FieldValueInvalid", message, field: format!("metadata.labels[{label}]") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Method::{Post, Put};
    use crate::testing::{ask, quiet, request, respond};

    const PODS: &str = "/api/v1/namespaces/default/pods";
    const SPACE: &str = "/api/v1/namespaces/default";

    /// Labels the namespace; gives the warnings.
    fn label(cluster: &mut Cluster, labels: &Value) -> (u16, Vec<String>, Value) {
        let (_, mut space) = ask(cluster, crate::Method::Get, SPACE, &Value::Null);
        space["metadata"]["labels"] = labels.clone();
        let response = respond(cluster, &request(Put, SPACE, &[], &space));
        let warnings = response.headers.iter().map(|(_, text)| text.clone()).collect();
        (response.status, warnings, response.body.document().unwrap())
    }

    fn pod(name: &str, spec: &Value) -> Value {
        let mut all = json!({"containers": [{"name": "c", "image": "i"}]});
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key.as_str()] = value.clone();
        }
        json!({"metadata": {"name": name}, "spec": all})
    }

    #[test]
    fn a_namespace_enforces_its_level_in_the_words_of_the_standards() {
        let mut cluster = quiet();
        let plain = json!({});
        let host = json!({"hostNetwork": true, "volumes": [{"name": "h", "hostPath": {"path": "/x"}}], "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}], "securityContext": {"privileged": true}}]});
        let safe = json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "i", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        });
        let baseline = "host namespaces (hostNetwork=true), hostPath volumes (volume \"h\"), hostPort (container \"c\" uses hostPort 80), \
                        privileged (container \"c\" must not set securityContext.privileged=true)";
        let restricted = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
                          unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
                          runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
                          seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
        for (level, version, spec, wanted) in [
            ("privileged", "latest", &host, None),
            ("baseline", "latest", &plain, None),
            ("baseline", "v1.30", &host, Some(format!("\"baseline:v1.30\": {baseline}"))),
            ("restricted", "latest", &plain, Some(format!("\"restricted:latest\": {restricted}"))),
            ("restricted", "latest", &safe, None),
        ] {
            let labels = json!({"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": version});
            assert_eq!(label(&mut cluster, &labels).0, 200);
            let (code, answer) = ask(&mut cluster, Post, &format!("{PODS}?dryRun=All"), &pod("a", spec));
            let message = wanted.map(|why| format!("pods \"a\" is forbidden: violates PodSecurity {why}"));
            let found = (code != 201).then(|| answer["message"].as_str().unwrap().to_owned());
            assert_eq!(found, message, "{level}");
        }
    }

    #[test]
    fn warnings_come_with_what_makes_pods_and_with_stricter_labels() {
        let mut cluster = quiet();
        for name in ["b", "a"] {
            assert_eq!(ask(&mut cluster, Post, PODS, &pod(name, &json!({"hostPID": true}))).0, 201);
        }
        let (code, warnings, _) = label(&mut cluster, &json!({"pod-security.kubernetes.io/enforce": "baseline"}));
        let wanted = [
            "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce level \\\"baseline:latest\\\"\"",
            "299 - \"a (and 1 other pod): host namespaces\"",
        ];
        assert_eq!((code, warnings.iter().map(String::as_str).collect::<Vec<_>>()), (200, wanted.to_vec()));
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostIPC": true, "containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        let made = request(
            Post,
            "/apis/apps/v1/namespaces/default/deployments",
            &[],
            &json!({"metadata": {"name": "d"}, "spec": spec}),
        );
        let response = respond(&mut cluster, &made);
        let warning = "299 - \"would violate PodSecurity \\\"baseline:latest\\\": host namespaces (hostIPC=true)\"";
        assert_eq!((response.status, response.headers), (201, vec![("Warning", warning.to_owned())]));
        let (code, _, refused) = label(&mut cluster, &json!({"pod-security.kubernetes.io/enforce": "strict"}));
        let why = "Namespace \"default\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": \
                   must be one of privileged, baseline, restricted";
        assert_eq!((code, refused["message"].as_str()), (422, Some(why)));
    }
}
