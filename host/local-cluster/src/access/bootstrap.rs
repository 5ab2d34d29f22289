//! The roles and bindings that an API server makes when it starts: those of people and of clients. The roles of single
//! controllers and nodes are left out, because the parts of this cluster act as administrators. It must not know how
//! roles are read.

use serde_json::{Value, json};

use super::rbac::GROUP;

/// Roles: the name, the role that they are aggregated to, and their rules, a line for each: verbs, groups and resources, or
/// verbs and paths. `core` is the group without a name.
const ROLES: &[(&str, &str, &str)] = &[
    ("cluster-admin", "", "* ; * ; *\n* ; *"),
    (
        "system:discovery",
        "",
        "get ; /livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*",
    ),
    (
        "system:monitoring",
        "",
        "get ; /metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/* /flagz /statusz\n\
         get ; core ; nodes/metrics",
    ),
    (
        "system:basic-user",
        "",
        "create ; authorization.k8s.io ; selfsubjectaccessreviews selfsubjectrulesreviews\n\
         create ; authentication.k8s.io ; selfsubjectreviews",
    ),
    ("system:public-info-viewer", "", "get ; /livez /readyz /healthz /version /version/"),
    (
        "system:aggregate-to-admin",
        "admin",
        "create ; authorization.k8s.io ; localsubjectaccessreviews\n\
         READ WRITE ; rbac.authorization.k8s.io ; roles rolebindings",
    ),
    ("system:aggregate-to-edit", "edit", EDIT),
    ("system:aggregate-to-view", "view", VIEW),
    (
        "system:auth-delegator",
        "",
        "create ; authentication.k8s.io ; tokenreviews\ncreate ; authorization.k8s.io ; subjectaccessreviews",
    ),
    (
        "system:service-account-issuer-discovery",
        "",
        "get ; /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
    ),
    (
        "system:kube-controller-manager",
        "",
        "create patch update ; core events.k8s.io ; events\n\
         create ; coordination.k8s.io ; leases\n\
         create ; core ; secrets serviceaccounts\n\
         delete ; core ; secrets\n\
         get ; core ; namespaces secrets serviceaccounts configmaps\n\
         update ; core ; secrets serviceaccounts\n\
         create ; authentication.k8s.io ; tokenreviews\n\
         create ; authorization.k8s.io ; subjectaccessreviews\n\
         list watch ; * ; *\n\
         create ; core ; serviceaccounts/token",
    ),
    (
        "system:kube-scheduler",
        "",
        "create patch update ; core events.k8s.io ; events\n\
         create ; coordination.k8s.io ; leases\n\
         READ ; core ; nodes services replicationcontrollers persistentvolumeclaims persistentvolumes namespaces\n\
         READ delete ; core ; pods\n\
         create ; core ; pods/binding bindings\n\
         patch update ; core ; pods/status\n\
         READ ; apps ; replicasets statefulsets\n\
         READ ; policy ; poddisruptionbudgets\n\
         READ ; storage.k8s.io ; csinodes volumeattachments csidrivers csistoragecapacities",
    ),
];

const VIEW: &str = "READ ; core ; pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status \
     endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps\n\
     READ ; core ; limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status \
     replicationcontrollers/status pods/log\n\
     READ ; core ; namespaces\n\
     READ ; core events.k8s.io ; events\n\
     READ ; discovery.k8s.io ; endpointslices\n\
     READ ; apps ; controllerrevisions statefulsets statefulsets/status statefulsets/scale daemonsets daemonsets/status \
     deployments deployments/status deployments/scale replicasets replicasets/status replicasets/scale\n\
     READ ; autoscaling ; horizontalpodautoscalers horizontalpodautoscalers/status\n\
     READ ; batch ; jobs cronjobs cronjobs/status jobs/status\n\
     READ ; extensions ; daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses \
     ingresses/status replicasets replicasets/scale replicasets/status replicationcontrollers/scale networkpolicies\n\
     READ ; policy ; poddisruptionbudgets poddisruptionbudgets/status\n\
     READ ; networking.k8s.io ; networkpolicies ingresses ingresses/status\n\
     READ ; resource.k8s.io ; resourceclaims resourceclaims/status resourceclaimtemplates";

const EDIT: &str = "READ ; core ; pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy\n\
     impersonate ; core ; serviceaccounts\n\
     WRITE ; core ; pods pods/attach pods/proxy pods/exec pods/portforward\n\
     create ; core ; pods/eviction\n\
     WRITE ; core ; replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy \
     persistentvolumeclaims configmaps secrets\n\
     create ; core ; serviceaccounts/token\n\
     WRITE ; core events.k8s.io ; events\n\
     WRITE ; apps ; statefulsets statefulsets/scale daemonsets deployments deployments/scale deployments/rollback replicasets \
     replicasets/scale\n\
     WRITE ; autoscaling ; horizontalpodautoscalers\n\
     WRITE ; batch ; jobs cronjobs\n\
     WRITE ; extensions ; daemonsets deployments deployments/scale deployments/rollback ingresses replicasets \
     replicasets/scale replicationcontrollers/scale networkpolicies\n\
     WRITE ; policy ; poddisruptionbudgets\n\
     WRITE ; networking.k8s.io ; networkpolicies ingresses\n\
     READ WRITE ; coordination.k8s.io ; leases\n\
     WRITE ; resource.k8s.io ; resourceclaims resourceclaimtemplates";

/// Roles that others are aggregated to, and the role that each is aggregated to itself.
const AGGREGATES: &[(&str, &str)] = &[("admin", ""), ("edit", "admin"), ("view", "edit")];

/// Bindings by the name of their role: groups, or users after an `@`.
const BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &["system:masters"]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ("system:kube-controller-manager", &["@system:kube-controller-manager"]),
    ("system:kube-scheduler", &["@system:kube-scheduler"]),
];

/// The roles that an API server starts with.
pub(crate) fn bootstrap() -> Vec<Value> {
    let role = |(name, to, lines): &(&str, &str, &str)| {
        let rules: Vec<Value> = lines.lines().map(rule).collect();
        object("ClusterRole", name, to, &json!({"rules": rules}))
    };
    let aggregate = |(name, to): &(&str, &str)| {
        let labels = json!({format!("rbac.authorization.k8s.io/aggregate-to-{name}"): "true"});
        let rule = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        object("ClusterRole", name, to, &json!({"aggregationRule": rule, "rules": []}))
    };
    let binding = |(name, subjects): &(&str, &[&str])| {
        let subject = |text: &&str| match text.strip_prefix('@') {
            Some(user) => json!({"apiGroup": GROUP, "kind": "User", "name": user}),
            None => json!({"apiGroup": GROUP, "kind": "Group", "name": text}),
        };
        let subjects: Vec<Value> = subjects.iter().map(subject).collect();
        let reference = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        object("ClusterRoleBinding", name, "", &json!({"roleRef": reference, "subjects": subjects}))
    };
    let roles = ROLES.iter().map(role).chain(AGGREGATES.iter().map(aggregate));
    roles.chain(BINDINGS.iter().map(binding)).collect()
}

fn object(kind: &str, name: &str, aggregated_to: &str, rest: &Value) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if !aggregated_to.is_empty() {
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{aggregated_to}")] = "true".into();
    }
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
    });
    for (key, value) in rest.as_object().into_iter().flatten() {
        object[key.as_str()] = value.clone();
    }
    object
}

fn rule(line: &str) -> Value {
    let words = |part: &str| {
        let words = part.split_whitespace().flat_map(|word| match word {
            "READ" => vec!["get", "list", "watch"],
            "WRITE" => vec!["create", "delete", "deletecollection", "patch", "update"],
            "core" => vec![""],
            other => vec![other],
        });
        let mut words: Vec<&str> = words.collect();
        words.sort_unstable();
        words.into_iter().map(Value::from).collect::<Value>()
    };
    let mut parts = line.split(';');
    let verbs = words(parts.next().unwrap_or_default());
    match (parts.next().unwrap_or_default(), parts.next()) {
        (paths, None) => json!({"verbs": verbs, "nonResourceURLs": words(paths)}),
        (groups, Some(resources)) => {
            json!({"verbs": verbs, "apiGroups": words(groups), "resources": words(resources)})
        }
    }
}
