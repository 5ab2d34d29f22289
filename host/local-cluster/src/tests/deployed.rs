//! The admission policies of deploy/base, as the API server evaluates them for requests of the host: kind by kind of what it
//! serves. The end-to-end tests ask a real API server the same.

use serde_json::{Value, json};

use crate::Method::{Get, Post};
use crate::testing::{ask, quiet, request, respond};
use crate::{Cluster, Credentials, User};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const HOST: &str = "system:serviceaccount:mortise-system:mortise";
/// Kubernetes' own kinds that plugins may have webhooks for.
const WORKLOADS: [&str; 15] = [
    "/persistentvolumeclaims",
    "/pods",
    "/podtemplates",
    "/replicationcontrollers",
    "apps/controllerrevisions",
    "apps/daemonsets",
    "apps/deployments",
    "apps/replicasets",
    "apps/statefulsets",
    "autoscaling/horizontalpodautoscalers",
    "batch/cronjobs",
    "batch/jobs",
    "networking.k8s.io/ingressclasses",
    "networking.k8s.io/ingresses",
    "policy/poddisruptionbudgets",
];

fn cluster() -> Cluster {
    let mut cluster = quiet();
    let policies = include_str!("../../../../deploy/base/admission-policy.yaml");
    for policy in serde_saphyr::from_multiple::<Value>(policies).unwrap() {
        let plural = match policy["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        let (code, made) = ask(&mut cluster, Post, &format!("{ADMISSION}/{plural}"), &policy);
        assert_eq!(code, 201, "{made}");
    }
    cluster
}

/// The code and the message of a create of the host; nothing is stored.
fn create(cluster: &mut Cluster, plural: &str, rule: &Value, namespaces: &[&str]) -> (u16, String) {
    let webhook = json!({
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "mortise-system", "name": "mortise"}}, "rules": [rule],
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces},
        ]},
    });
    let labels = json!({"app.kubernetes.io/managed-by": "mortise", "mortise.dev/host-namespace": "mortise-system"});
    let body = json!({"metadata": {"name": "a", "labels": labels}, "webhooks": [webhook]});
    let mut request = request(Post, &format!("{ADMISSION}/{plural}?dryRun=All"), &[], &body);
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    request.credentials = Credentials::User(User { name: HOST.to_owned(), groups, ..User::default() });
    let response = respond(cluster, &request);
    let message = response.body.document().map(|body| body["message"].as_str().unwrap_or_default().to_owned());
    (response.status, message.unwrap_or_default())
}

fn rule(groups: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE"], "resources": resources})
}

/// Whether the host may have webhooks with this rule. Both kinds of configurations are held alike.
#[track_caller]
fn is_allowed(cluster: &mut Cluster, rule: &Value) -> bool {
    let [one, other] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"].map(|plural| {
        let (code, message) = create(cluster, plural, rule, &["mortise-system", "kube-system"]);
        let is_held = message.contains("none that a cluster needs to run or to be repaired: a");
        assert!(code == 201 || (code == 403 && is_held), "{rule}: {code} {message}");
        code == 201
    });
    assert_eq!(one, other);
    one
}

/// "apps/deployments", of all that can be created.
fn served(cluster: &mut Cluster) -> Vec<(String, String)> {
    let groups = ask(cluster, Get, "/apis", &json!(null)).1;
    let of_group = |group: &Value| {
        let path = format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap());
        (group["name"].as_str().unwrap().to_owned(), path)
    };
    let mut paths: Vec<(String, String)> = groups["groups"].as_array().unwrap().iter().map(of_group).collect();
    paths.push((String::new(), "/api/v1".to_owned()));
    let mut served = Vec::new();
    for (group, path) in paths {
        for resource in ask(cluster, Get, &path, &json!(null)).1["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if !name.contains('/') && resource["verbs"].as_array().unwrap().contains(&json!("create")) {
                served.push((group.clone(), name.to_owned()));
            }
        }
    }
    served
}

#[test]
fn g10_the_policies_of_deploy_leave_webhooks_for_workloads_and_for_kinds_that_are_not_kubernetes() {
    let mut cluster = cluster();
    let served = served(&mut cluster);
    assert!(served.len() > 30, "{served:?}");
    let mut allowed: Vec<String> = Vec::new();
    for (group, resource) in &served {
        if is_allowed(&mut cluster, &rule(&[group], &[resource])) {
            allowed.push(format!("{group}/{resource}"));
        }
    }
    allowed.sort();
    allowed.retain(|resource| !WORKLOADS.contains(&resource.as_str()));
    assert_eq!(allowed, Vec::<String>::new());
    for workload in WORKLOADS.into_iter().chain(["example.com/webs", "a.k8s.example.com/secrets"]) {
        let (group, resource) = workload.split_once('/').unwrap();
        assert!(is_allowed(&mut cluster, &rule(&[group], &[resource])), "{workload}");
    }
}

#[test]
fn g10_the_policies_of_deploy_hold_wildcards_subresources_lists_and_namespaces() {
    let mut cluster = cluster();
    for (groups, resources) in [
        (&["*"][..], &["pods"][..]),
        (&[""], &["*"]),
        (&["apps"], &["*/scale"]),
        (&[""], &["pods/*"]),
        (&[""], &["pods/binding"]),
        (&[""], &["services/proxy"]),
        (&["apps", "discovery.k8s.io"], &["deployments"]),
        (&["apps", ""], &["deployments", "configmaps"]),
        (&["mortise.dev"], &["plugins"]),
    ] {
        assert!(!is_allowed(&mut cluster, &rule(groups, resources)), "{groups:?} {resources:?}");
    }
    for (group, resource, namespaces, is_allowed) in [
        ("", "pods", &["mortise-system", "kube-system"][..], true),
        ("", "pods", &["mortise-system"], false),
        ("", "pods", &["kube-system"], false),
        ("networking.k8s.io", "ingresses", &["mortise-system"], false),
        ("example.com", "webs", &["mortise-system"], true),
        ("example.com", "webs", &["kube-system"], false),
    ] {
        let plural = "validatingwebhookconfigurations";
        let (code, message) = create(&mut cluster, plural, &rule(&[group], &[resource]), namespaces);
        assert_eq!((code == 201, code == 403), (is_allowed, !is_allowed), "{message}");
        assert!(is_allowed || message.contains("leave out its namespace"), "{message}");
    }
}
