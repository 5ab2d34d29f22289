//! The admission policies of deploy/base, as the API server evaluates them for requests of the host: kind by kind of what it
//! serves. The end-to-end tests ask a real API server the same.

use serde_json::{Value, json};

use crate::Method::{Get, Post};
use crate::testing::{ask, quiet, request, respond};
use crate::{Cluster, Credentials, User};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const HOST: &str = "system:serviceaccount:mortise-system:mortise";

/// What the policies leave the host and what they refuse it; the end-to-end tests read the same.
fn table() -> Value {
    serde_saphyr::from_str(include_str!("../../../../deploy/webhook-rules.yaml")).unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

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

/// Of "apps/deployments".
fn rule(resource: &str) -> Value {
    let (group, resource) = resource.split_once('/').unwrap();
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]})
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
fn served(cluster: &mut Cluster) -> Vec<String> {
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
                served.push(format!("{group}/{name}"));
            }
        }
    }
    served
}

#[test]
fn g10_the_policies_of_deploy_leave_webhooks_for_workloads_and_for_kinds_that_are_not_kubernetes() {
    let (mut cluster, table) = (cluster(), table());
    let (served, workloads) = (served(&mut cluster), texts(&table["workloads"]));
    assert!(served.len() > 30, "{served:?}");
    for resource in &served {
        assert_eq!(is_allowed(&mut cluster, &rule(resource)), workloads.contains(&&**resource), "{resource}");
    }
    for resource in workloads.into_iter().chain(texts(&table["others"])) {
        assert!(is_allowed(&mut cluster, &rule(resource)), "{resource}");
    }
}

#[test]
fn g10_the_policies_of_deploy_hold_wildcards_subresources_lists_and_namespaces() {
    let (mut cluster, table) = (cluster(), table());
    for refused in table["refused"].as_array().unwrap() {
        let mut rule = rule("/pods");
        rule.as_object_mut().unwrap().extend(refused.as_object().unwrap().clone());
        assert!(!is_allowed(&mut cluster, &rule), "{rule}");
    }
    for case in table["namespaces"].as_array().unwrap() {
        let rule = rule(case["resource"].as_str().unwrap());
        let plural = "validatingwebhookconfigurations";
        let (code, message) = create(&mut cluster, plural, &rule, &texts(&case["without"]));
        match case["enough"].as_bool().unwrap() {
            true => assert_eq!(code, 201, "{case}: {message}"),
            false => assert!(code == 403 && message.contains("leave out its namespace"), "{case}: {code} {message}"),
        }
    }
}
