//! Subresources that are not the object itself: scale, binding, eviction, tokens, reviews. Input: a request for one. Output:
//! its response; none for what the plain verbs answer. It must not know controllers.

mod binding;
mod eviction;
mod log;
mod posted;
mod review;
mod scale;
mod token;

use crate::Cluster;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};

/// Answers what the plain verbs do not.
pub(super) fn special(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &mut Context<'_>,
) -> Result<Option<Response>, Halt> {
    let resource = &attributes.resource;
    let names = (&*resource.group, &*resource.plural, attributes.subresource.as_str());
    let response = match names {
        ("", "pods", "binding") | ("", "bindings", "") => binding::create(cluster, request, attributes, context),
        ("", "pods", "eviction") => eviction::create(cluster, request, attributes, context),
        ("", "pods", "log") => log::get(cluster, request, attributes),
        ("", "serviceaccounts", "token") => token::create(cluster, request, attributes, context),
        (_, _, "scale") => scale::answer(cluster, request, attributes, context),
        ("authentication.k8s.io" | "authorization.k8s.io", kind, "") => {
            review::create(cluster, request, attributes, context, kind)
        }
        ("", "pods", "exec" | "attach" | "portforward") | ("", "pods" | "services" | "nodes", "proxy") => {
            Err(unserved(attributes))
        }
        _ => return Ok(None),
    };
    response.map(Some)
}

/// There are no processes behind the Pods.
fn unserved(attributes: &Attributes) -> Halt {
    let (plural, subresource) = (&attributes.resource.plural, &attributes.subresource);
    let message = format!("{plural}/{subresource} is not served: the containers of this cluster are modelled, not run");
    let mut status = Status::method_not_allowed();
    (status.code, status.reason, status.message) = (501, "NotImplemented", message);
    status.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Method::{Get, Patch, Post, Put};
    use crate::testing::{ask, quiet, request, respond};
    use crate::{Body, Cluster, Options};

    const PODS: &str = "/api/v1/namespaces/default/pods";

    fn account(cluster: &mut Cluster) {
        let made =
            ask(cluster, Post, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
        assert_eq!(made.0, 201);
    }

    fn pod(cluster: &mut Cluster, name: &str) -> Value {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
        });
        let (code, made) = ask(cluster, Post, PODS, &pod);
        assert_eq!(code, 201, "{made}");
        made
    }

    fn run(cluster: &mut Cluster, name: &str) {
        let (_, mut pod) = ask(cluster, Get, &format!("{PODS}/{name}"), &json!(null));
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(ask(cluster, Put, &format!("{PODS}/{name}/status"), &pod).0, 200);
    }

    #[test]
    fn a_binding_assigns_a_pod_once() {
        let mut cluster = quiet();
        account(&mut cluster);
        pod(&mut cluster, "a");
        let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
        let (code, answer) = ask(&mut cluster, Post, &format!("{PODS}/a/binding"), &binding);
        assert_eq!((code, &answer["status"]), (201, &json!("Success")));
        let (_, bound) = ask(&mut cluster, Get, &format!("{PODS}/a"), &json!(null));
        assert_eq!(bound["spec"]["nodeName"], json!("n"));
        let scheduled = bound["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "PodScheduled");
        assert_eq!(scheduled.unwrap()["status"], json!("True"));
        let (code, refused) = ask(&mut cluster, Post, "/api/v1/namespaces/default/bindings", &binding);
        let message = "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n\"";
        assert_eq!((code, &refused["message"]), (409, &json!(message)));
    }

    #[test]
    fn an_eviction_asks_the_budget_and_deletes() {
        let mut cluster = quiet();
        account(&mut cluster);
        for name in ["a", "b"] {
            pod(&mut cluster, name);
            run(&mut cluster, name);
        }
        let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
        let budget = json!({"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
        let (_, mut budget) = ask(&mut cluster, Post, budgets, &budget);
        let seen = budget["metadata"]["generation"].clone();
        budget["status"] = json!({
            "observedGeneration": seen, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
        });
        assert_eq!(ask(&mut cluster, Put, &format!("{budgets}/p/status"), &budget).0, 200);
        let evict = |cluster: &mut Cluster, name: &str, query: &str| {
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            ask(cluster, Post, &format!("{PODS}/{name}/eviction{query}"), &eviction)
        };
        assert_eq!(evict(&mut cluster, "a", "?dryRun=All").0, 201);
        assert_eq!(evict(&mut cluster, "a", "").0, 201);
        let (_, budget) = ask(&mut cluster, Get, &format!("{budgets}/p"), &json!(null));
        assert_eq!(budget["status"]["disruptionsAllowed"], json!(0));
        assert!(budget["status"]["disruptedPods"]["a"].is_string());
        let (code, refused) = evict(&mut cluster, "b", "");
        assert_eq!(
            (code, &refused["message"]),
            (429, &json!("Cannot evict pod as it would violate the pod's disruption budget."))
        );
        let cause = json!({
            "reason": "DisruptionBudget",
            "message": "The disruption budget p does not allow evicting pods currently (InsufficientPods): ",
        });
        assert_eq!(refused["details"]["causes"][0]["reason"], cause["reason"]);
        assert_eq!(evict(&mut cluster, "gone", "").0, 404);
    }

    #[test]
    fn a_scale_shows_and_sets_the_replicas() {
        let mut cluster = quiet();
        let path = "/apis/apps/v1/namespaces/default/deployments";
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]},
                "template": {"metadata": {"labels": {"app": "web", "a": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        assert_eq!(ask(&mut cluster, Post, path, &deployment).0, 201);
        let target = format!("{path}/web/scale");
        let (code, mut scale) = ask(&mut cluster, Get, &target, &json!(null));
        assert_eq!((code, &scale["spec"]), (200, &json!({"replicas": 2})));
        assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a in (x,y),app=web"}));
        scale["spec"]["replicas"] = 5.into();
        let (code, scaled) = ask(&mut cluster, Put, &target, &scale);
        assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)));
        let (code, stale) = ask(&mut cluster, Put, &target, &scale);
        assert_eq!((code, &stale["reason"]), (409, &json!("Conflict")));
        let patch = |replicas: i64| {
            let headers = [("content-type", "application/merge-patch+json")];
            request(Patch, &target, &headers, &json!({"spec": {"replicas": replicas}}))
        };
        let answer = |cluster: &mut Cluster, replicas| respond(cluster, &patch(replicas)).body.document().unwrap();
        assert_eq!(answer(&mut cluster, 3)["spec"]["replicas"], json!(3));
        let message = "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(answer(&mut cluster, -1)["message"], json!(message));
        assert_eq!(ask(&mut cluster, Get, &format!("{path}/web"), &json!(null)).1["spec"]["replicas"], json!(3));
    }

    #[test]
    fn reviews_answer_and_store_nothing() {
        let mut cluster = Cluster::new(
            Options { nodes: 0, controllers: Vec::new(), rbac: true, ..Options::default() },
            crate::testing::start(),
        );
        let before = cluster.revision();
        let access = "/apis/authorization.k8s.io/v1";
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
        let body = json!({"spec": {"resourceAttributes": attributes}});
        let (code, own) = ask(&mut cluster, Post, &format!("{access}/selfsubjectaccessreviews"), &body);
        assert_eq!((code, &own["status"]), (201, &json!({"allowed": true})));
        let body = json!({"spec": {"resourceAttributes": attributes, "user": "a"}});
        let (_, other) = ask(&mut cluster, Post, &format!("{access}/subjectaccessreviews"), &body);
        assert_eq!(other["status"], json!({"allowed": false}));
        let body = json!({"spec": {"nonResourceAttributes": {"path": "/version", "verb": "get"}, "groups": ["system:authenticated"]}});
        let (_, path) = ask(&mut cluster, Post, &format!("{access}/subjectaccessreviews"), &body);
        let reason = "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\"";
        assert_eq!(path["status"], json!({"allowed": true, "reason": reason}));
        let (code, _) = ask(&mut cluster, Post, &format!("{access}/selfsubjectaccessreviews"), &json!({"spec": {}}));
        assert_eq!(code, 422);
        let body = json!({"spec": {"namespace": "default"}});
        let (_, rules) = ask(&mut cluster, Post, &format!("{access}/selfsubjectrulesreviews"), &body);
        assert_eq!(rules["status"]["incomplete"], json!(false));
        let (_, who) = ask(&mut cluster, Post, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
        assert_eq!(who["status"]["userInfo"]["username"], json!("admin"));
        assert_eq!(cluster.revision(), before);
    }

    #[test]
    fn what_has_no_process_is_refused_and_a_log_is_empty() {
        let mut cluster = quiet();
        account(&mut cluster);
        pod(&mut cluster, "a");
        assert_eq!(ask(&mut cluster, Post, &format!("{PODS}/a/exec"), &json!(null)).0, 501);
        let (code, refused) = ask(&mut cluster, Get, &format!("{PODS}/a/log?container=x"), &json!(null));
        assert_eq!((code, &refused["message"]), (400, &json!("container x is not valid for pod a")));
        let log = respond(&mut cluster, &request(Get, &format!("{PODS}/a/log"), &[], &json!(null)));
        assert!(matches!(log.body, Body::Bytes(bytes) if bytes.is_empty()));
    }
}
