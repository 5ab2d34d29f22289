//! Tests of what is special about kinds: tables of what is asked and what the API server answers. It must not know how an answer
//! is come to.

use serde_json::{Value, json};

use crate::Cluster;
use crate::Method::{Delete, Get, Post, Put};
use crate::testing::{ask, quiet};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// Every field of `wanted` is in `found`, with its value; lists are of one length.
fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| has(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| has(found, wanted))
        }
        _ => found == wanted,
    }
}

#[track_caller]
fn made(cluster: &mut Cluster, path: &str, body: &Value) -> Value {
    let (code, object) = ask(cluster, Post, path, body);
    assert_eq!(code, 201, "{object}");
    object
}

fn named(name: &str, mut body: Value) -> Value {
    body["metadata"]["name"] = name.into();
    body
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}})
}

fn workload(more: Value) -> Value {
    let mut body = json!({
        "metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template()},
    });
    for (name, value) in more.as_object().unwrap() {
        body["spec"][name] = value.clone();
    }
    body
}

fn pod(more: Value) -> Value {
    let mut body = json!({"metadata": {"name": "a"}, "spec": template()["spec"]});
    for (name, value) in more.as_object().unwrap() {
        body["spec"][name] = value.clone();
    }
    body
}

fn container(more: Value) -> Value {
    let mut body = pod(json!({}));
    for (name, value) in more.as_object().unwrap() {
        body["spec"]["containers"][0][name] = value.clone();
    }
    body
}

fn job(policy: &str) -> Value {
    let mut body = json!({"metadata": {"name": "a"}, "spec": {"template": template()}});
    body["spec"]["template"]["spec"]["restartPolicy"] = policy.into();
    body
}

/// Creates objects, and compares what is wanted of each.
#[track_caller]
fn filled(cases: &[(&str, Value, Value)]) {
    let mut cluster = quiet();
    for (path, body, wanted) in cases {
        let object = made(&mut cluster, path, body);
        assert!(has(&object, wanted), "{path}: {object}");
    }
}

#[test]
fn what_a_client_leaves_out_of_a_pod_is_filled_in() {
    let limited = container(json!({
        "image": "reg:5000/web", "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
        "ports": [{"containerPort": 80}], "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }));
    let mut limited = limited;
    limited["spec"]["volumes"] = json!([{"name": "v"}, {"name": "w", "secret": {"secretName": "s"}}]);
    let amounts = json!({"cpu": "500m", "memory": "1Gi"});
    filled(&[(
        PODS,
        limited,
        json!({
            "metadata": {"generation": 1},
            "spec": {
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                "schedulerName": "default-scheduler", "securityContext": {}, "enableServiceLinks": true,
                "volumes": [{"emptyDir": {}}, {"secret": {"defaultMode": 420}}],
                "containers": [{
                    "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File", "resources": {"limits": amounts, "requests": amounts},
                    "ports": [{"protocol": "TCP"}], "env": [{"valueFrom": {"fieldRef": {"apiVersion": "v1"}}}],
                    "livenessProbe": {
                        "httpGet": {"path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                        "successThreshold": 1, "failureThreshold": 3,
                    },
                }],
            },
            "status": {"phase": "Pending", "qosClass": "Guaranteed"},
        }),
    )]);
}

#[test]
fn what_a_client_leaves_out_of_a_workload_is_filled_in() {
    filled(&[
        (
            DEPLOYMENTS,
            workload(json!({})),
            json!({
                "metadata": {"generation": 1},
                "spec": {
                    "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                    "template": {"spec": {"containers": [{"imagePullPolicy": "IfNotPresent"}]}},
                },
                "status": {},
            }),
        ),
        (
            DAEMON_SETS,
            workload(json!({})),
            json!({
                "metadata": {"annotations": {"deprecated.daemonset.template.generation": "1"}},
                "spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
                "status": {"numberReady": 0},
            }),
        ),
        (
            STATEFUL_SETS,
            workload(json!({"serviceName": "a"})),
            json!({
                "spec": {
                    "podManagementPolicy": "OrderedReady", "updateStrategy": {"rollingUpdate": {"partition": 0}},
                    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                },
                "status": {"replicas": 0, "availableReplicas": 0},
            }),
        ),
        (
            CRON_JOBS,
            json!({"metadata": {"name": "a"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job("Never")["spec"]}}}),
            json!({"spec": {
                "concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            }}),
        ),
    ]);
}

#[test]
fn what_a_client_leaves_out_of_other_objects_is_filled_in() {
    filled(&[
        (
            SECRETS,
            json!({"metadata": {"name": "a"}, "data": {"a": "YQ=="}, "stringData": {"b": "b"}}),
            json!({"type": "Opaque", "data": {"a": "YQ==", "b": "Yg=="}}),
        ),
        (
            CLAIMS,
            json!({"metadata": {"name": "a"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}},
            }}),
            json!({
                "spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"},
            }),
        ),
        (
            BINDINGS,
            json!({
                "metadata": {"name": "a:b"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}],
            }),
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io"}],
            }),
        ),
        (
            "/api/v1/namespaces",
            json!({"metadata": {"name": "n"}}),
            json!({
                "metadata": {"labels": {"kubernetes.io/metadata.name": "n"}}, "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }),
        ),
    ]);
}

#[test]
fn a_job_selects_its_own_pods_and_its_template_stays() {
    let mut cluster = quiet();
    let mut made = made(&mut cluster, JOBS, &job("Never"));
    let uid = made["metadata"]["uid"].clone();
    let wanted = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "template": {"metadata": {"labels": {
                "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a",
            }}},
        },
    });
    assert!(has(&made, &wanted), "{made}");
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    let (code, refused) = ask(&mut cluster, Put, &format!("{JOBS}/a"), &made);
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("spec.template")));
    let message = refused["details"]["causes"][0]["message"].as_str().unwrap();
    assert!(message.ends_with(": field is immutable"), "{message}");
}

/// The message of a refused create.
#[track_caller]
fn refused(path: &str, body: &Value) -> String {
    let (code, status) = ask(&mut quiet(), Post, path, body);
    assert_eq!(code, 422, "{body} {status}");
    let message = status["message"].as_str().unwrap();
    message.split_once(" is invalid: ").unwrap_or_else(|| panic!("{message}")).1.to_owned()
}

/// Creates what is wrong, and compares the messages.
#[track_caller]
fn all_refused(cases: &[(&str, Value, &str)]) {
    for (path, body, wanted) in cases {
        assert_eq!(refused(path, body), *wanted, "{path}");
    }
}

#[test]
fn what_is_wrong_with_a_new_pod_is_said_in_the_api_servers_words() {
    all_refused(&[
        (PODS, json!({"metadata": {"name": "a"}, "spec": {}}), "spec.containers: Required value"),
        (
            PODS,
            container(json!({"image": "", "name": "A_b"})),
            "[spec.containers[0].name: Invalid value: \"A_b\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), spec.containers[0].image: Required value]",
        ),
        (
            PODS,
            pod(json!({"restartPolicy": "Sometimes"})),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            PODS,
            pod(json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]})),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            PODS,
            container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            PODS,
            container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            PODS,
            container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            PODS,
            container(json!({"livenessProbe": {"periodSeconds": 5}})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            PODS,
            container(json!({"env": [{"name": "a=b", "value": "x"}]})),
            "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ),
    ]);
    let (code, status) = ask(&mut quiet(), Post, PODS, &container(json!({"resources": {"limits": {"cpu": "x"}}})));
    let wanted = "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    assert_eq!((code, status["message"].as_str()), (400, Some(wanted)));
}

#[test]
fn what_is_wrong_with_a_new_workload_is_said_in_the_api_servers_words() {
    let no_selector = json!({"metadata": {"name": "a"}, "spec": {"template": template()}});
    all_refused(&[
        (DEPLOYMENTS, no_selector, "spec.selector: Required value"),
        (
            DEPLOYMENTS,
            workload(json!({"selector": {"matchLabels": {"app": "b"}}})),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ),
        (
            DEPLOYMENTS,
            workload(json!({"selector": {}})),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            DEPLOYMENTS,
            workload(json!({"replicas": -1})),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            DEPLOYMENTS,
            workload(json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}})),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            JOBS,
            job("Always"),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            CRON_JOBS,
            json!({"metadata": {"name": "a"}, "spec": {"schedule": "* *", "jobTemplate": {"spec": job("Never")["spec"]}}}),
            "spec.schedule: Invalid value: \"* *\": expected exactly 5 fields, found 2: [* *]",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_new_services_and_data_is_said_in_the_api_servers_words() {
    let port = |port: Value| json!({"metadata": {"name": "a"}, "spec": {"ports": [port]}});
    all_refused(&[
        (SERVICES, json!({"metadata": {"name": "a"}, "spec": {}}), "spec.ports: Required value"),
        (
            SERVICES,
            port(json!({"port": 0, "targetPort": 1})),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            SERVICES,
            json!({"metadata": {"name": "a"}, "spec": {"type": "ExternalName"}}),
            "spec.externalName: Required value",
        ),
        (
            SERVICES,
            json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 1}]}}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: failed to allocate IP 10.96.0.1: provided IP is already allocated",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a"}, "data": {"a/b": "x"}}),
            "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(1024 * 1024 + 1)}}),
            "[]: Too long: may not be more than 1048576 bytes",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "A"}}),
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a", "finalizers": ["x"]}}),
            "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}}),
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_other_new_objects_is_said_in_the_api_servers_words() {
    all_refused(&[
        (
            SECRETS,
            json!({"metadata": {"name": "a"}, "type": "kubernetes.io/tls"}),
            "[data[tls.crt]: Required value, data[tls.key]: Required value]",
        ),
        (
            CLAIMS,
            json!({"metadata": {"name": "a"}, "spec": {}}),
            "[spec.accessModes: Required value: at least 1 access mode is required, spec.resources[storage]: Required value]",
        ),
        (
            INGRESSES,
            json!({"metadata": {"name": "a"}, "spec": {}}),
            "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
        ),
        (
            INGRESSES,
            json!({"metadata": {"name": "a"}, "spec": {"defaultBackend": {"service": {"name": "s"}}}}),
            "spec.defaultBackend: Required value: port name or number is required",
        ),
        (
            BUDGETS,
            json!({"metadata": {"name": "a"}, "spec": {"minAvailable": "200%"}}),
            "spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%",
        ),
        (
            BINDINGS,
            json!({"metadata": {"name": "a"}, "roleRef": {"kind": "Rule", "name": "r"}}),
            "roleRef.kind: Unsupported value: \"Rule\": supported values: \"Role\", \"ClusterRole\"",
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "a"}, "spec": {"minReplicas": 3, "maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}),
            "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
        ),
    ]);
}

/// Changes what was made, and gives the first cause of the refusal.
#[track_caller]
fn refused_update(path: &str, body: &Value, change: &dyn Fn(&mut Value)) -> (String, String) {
    let mut cluster = quiet();
    let mut object = made(&mut cluster, path, body);
    change(&mut object);
    let (code, status) = ask(&mut cluster, Put, &format!("{path}/a"), &object);
    assert_eq!(code, 422, "{status}");
    let cause = &status["details"]["causes"][0];
    (cause["field"].as_str().unwrap().to_owned(), cause["message"].as_str().unwrap().to_owned())
}

type Change = &'static dyn Fn(&mut Value);

#[test]
fn what_may_not_change_is_refused() {
    let cases: [(&str, Value, Change, &str, &str); 6] = [
        (
            DEPLOYMENTS,
            workload(json!({})),
            &|object| {
                object["spec"]["selector"]["matchLabels"]["b"] = "c".into();
                object["spec"]["template"]["metadata"]["labels"]["b"] = "c".into();
            },
            "spec.selector",
            "Invalid value: {\"matchLabels\":{\"app\":\"a\",\"b\":\"c\"}}: field is immutable",
        ),
        (
            STATEFUL_SETS,
            workload(json!({"serviceName": "a"})),
            &|object| object["spec"]["serviceName"] = "b".into(),
            "spec",
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
        (
            SECRETS,
            json!({"metadata": {"name": "a"}}),
            &|object| object["type"] = "x".into(),
            "type",
            "Invalid value: \"x\": field is immutable",
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a"}, "immutable": true}),
            &|object| object["data"] = json!({"a": "b"}),
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        ),
        (
            SERVICES,
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}),
            &|object| {
                object["spec"]["clusterIP"] = "10.97.0.1".into();
                object["spec"]["clusterIPs"] = json!(["10.97.0.1"]);
            },
            "spec.clusterIPs[0]",
            "Invalid value: [\"10.97.0.1\"]: may not change once set",
        ),
        (
            BINDINGS,
            json!({"metadata": {"name": "a"}, "roleRef": {"kind": "Role", "name": "r"}}),
            &|object| object["roleRef"]["name"] = "s".into(),
            "roleRef",
            "Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"s\"}: cannot change roleRef",
        ),
    ];
    for (path, body, change, field, words) in cases {
        assert_eq!(refused_update(path, &body, change), (field.to_owned(), words.to_owned()), "{path}");
    }
}

#[test]
fn what_may_not_change_of_pods_and_claims_is_refused_with_the_difference() {
    let claim = json!({"metadata": {"name": "a"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let (field, message) = refused_update(PODS, &pod(json!({})), &|object| object["spec"]["containers"] = json!([]));
    assert_eq!((field.as_str(), message.as_str()), ("spec.containers", "Required value"));
    let (field, message) =
        refused_update(PODS, &pod(json!({})), &|object| object["spec"]["dnsPolicy"] = "Default".into());
    let words = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n";
    assert!(field == "spec" && message.starts_with(words), "{message}");
    assert!(message.contains("\n- \"dnsPolicy\": \"ClusterFirst\",\n"), "{message}");
    let (field, message) =
        refused_update(CLAIMS, &claim, &|object| object["spec"]["accessModes"] = json!(["ReadOnlyMany"]));
    let words = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
    assert!(field == "spec" && message.starts_with(words), "{message}");
}

#[test]
fn a_status_and_the_rest_are_written_apart_and_the_generation_counts() {
    let mut cluster = quiet();
    let path = format!("{DEPLOYMENTS}/a");
    let mut object = made(&mut cluster, DEPLOYMENTS, &workload(json!({})));
    object["status"]["replicas"] = 5.into();
    object["metadata"]["labels"] = json!({"x": "y"});
    let (_, same) = ask(&mut cluster, Put, &path, &object);
    assert_eq!((&same["status"], &same["metadata"]["generation"]), (&json!({}), &json!(1)));
    object = same;
    object["status"] = json!({"replicas": 5, "observedGeneration": 1});
    object["spec"]["replicas"] = 9.into();
    object["metadata"]["labels"] = json!({});
    let (_, found) = ask(&mut cluster, Put, &format!("{path}/status"), &object);
    assert_eq!((&found["status"]["replicas"], &found["spec"]["replicas"]), (&json!(5), &json!(1)));
    assert_eq!(found["metadata"]["labels"], json!({"x": "y"}));
    object = found;
    object["spec"]["replicas"] = 2.into();
    let (_, found) = ask(&mut cluster, Put, &path, &object);
    assert_eq!((&found["metadata"]["generation"], &found["status"]["replicas"]), (&json!(2), &json!(5)));
    object = found;
    object["status"]["readyReplicas"] = 6.into();
    let (code, refused) = ask(&mut cluster, Put, &format!("{path}/status"), &object);
    assert_eq!(code, 422, "{refused}");
}

#[test]
fn a_service_keeps_its_address_until_it_is_deleted() {
    let mut cluster = quiet();
    let path = format!("{SERVICES}/a");
    let body = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let first = made(&mut cluster, SERVICES, &body);
    let address = first["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let port = first["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!(address.starts_with("10.") && (30_000..32_768).contains(&port), "{first}");
    let wanted = json!({"spec": {
        "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster",
        "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "ports": [{"targetPort": 80, "protocol": "TCP"}],
    }});
    assert!(has(&first, &wanted), "{first}");
    let (_, kept) = ask(&mut cluster, Put, &path, &body);
    assert_eq!(kept["spec"], first["spec"]);
    let mut inner = kept;
    inner["spec"]["type"] = "ClusterIP".into();
    let (code, inner) = ask(&mut cluster, Put, &path, &inner);
    assert_eq!((code, inner["spec"]["ports"][0].get("nodePort")), (200, None), "{inner}");
    let taken = |cluster: &mut Cluster| {
        ask(cluster, Get, &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), &json!(null)).0
    };
    assert_eq!(taken(&mut cluster), 200);
    let (code, gone) = ask(&mut cluster, Delete, &path, &json!(null));
    assert_eq!((code, &gone["kind"]), (200, &json!("Service")));
    assert_eq!(taken(&mut cluster), 404);
    let headless = made(&mut cluster, SERVICES, &named("h", json!({"spec": {"clusterIP": "None"}})));
    let wanted =
        json!({"spec": {"clusterIPs": ["None"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}});
    assert!(has(&headless, &wanted), "{headless}");
}

#[test]
fn a_pod_ends_when_its_time_is_over() {
    let mut cluster = quiet();
    made(&mut cluster, PODS, &pod(json!({})));
    let (_, gone) = ask(&mut cluster, Delete, &format!("{PODS}/a"), &json!(null));
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0, "an unscheduled Pod vanishes at once: {gone}");
    assert_eq!(ask(&mut cluster, Get, &format!("{PODS}/a"), &json!(null)).0, 404);
    made(&mut cluster, PODS, &pod(json!({"nodeName": "n"})));
    let (_, marked) = ask(&mut cluster, Delete, &format!("{PODS}/a"), &json!(null));
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, longer) = ask(&mut cluster, Delete, &format!("{PODS}/a"), &json!({"gracePeriodSeconds": 60}));
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 30);
    ask(&mut cluster, Delete, &format!("{PODS}/a"), &json!({"gracePeriodSeconds": 0}));
    assert_eq!(ask(&mut cluster, Get, &format!("{PODS}/a"), &json!(null)).0, 404);
}

#[test]
fn fields_select_what_they_select_in_the_api_server() {
    let mut cluster = quiet();
    made(&mut cluster, PODS, &pod(json!({"nodeName": "n"})));
    let found = |cluster: &mut Cluster, target: &str| {
        let (_, list) = ask(cluster, Get, target, &json!(null));
        list["items"].as_array().map_or_else(|| list["message"].clone(), |items| items.len().into())
    };
    for (target, wanted) in [
        ("pods?fieldSelector=spec.nodeName%3Dn,status.phase!%3DRunning", json!(1)),
        ("pods?fieldSelector=spec.hostNetwork%3Dfalse", json!(1)),
        ("pods?fieldSelector=spec.host%3Dm", json!(0)),
        ("pods?fieldSelector=spec.x%3Dm", json!("field label not supported: spec.x")),
        (
            "configmaps?fieldSelector=data%3Dm",
            json!("\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        ),
    ] {
        assert_eq!(found(&mut cluster, &format!("/api/v1/namespaces/default/{target}")), wanted, "{target}");
    }
    let target = "/apis/batch/v1/jobs?fieldSelector=x%3Dy";
    assert_eq!(found(&mut cluster, target), "field label \"x\" not supported for Job");
}

#[test]
fn nothing_is_made_in_a_namespace_that_ends() {
    let mut cluster = quiet();
    made(&mut cluster, "/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let (_, ending) = ask(&mut cluster, Delete, "/api/v1/namespaces/n", &json!(null));
    assert_eq!(ending["status"]["phase"], "Terminating");
    assert_eq!(ending["metadata"].get("deletionGracePeriodSeconds"), None);
    let (code, refused) =
        ask(&mut cluster, Post, "/api/v1/namespaces/n/configmaps", &json!({"metadata": {"name": "a"}}));
    let wanted = json!({
        "message": "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated",
        "details": {"causes": [{
            "reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace",
        }]},
    });
    assert!(code == 403 && has(&refused, &wanted), "{refused}");
    let mut ending = ending;
    ending["spec"]["finalizers"] = json!([]);
    let (code, kept) = ask(&mut cluster, Put, "/api/v1/namespaces/n", &ending);
    assert_eq!((code, &kept["spec"]["finalizers"]), (200, &json!(["kubernetes"])));
    ending = kept;
    ending["spec"]["finalizers"] = json!([]);
    let (code, last) = ask(&mut cluster, Put, "/api/v1/namespaces/n/finalize", &ending);
    assert_eq!(code, 200, "{last}");
    assert_eq!(ask(&mut cluster, Get, "/api/v1/namespaces/n", &json!(null)).0, 404);
}

#[test]
fn a_malformed_object_is_refused_without_a_panic() {
    let odd = [json!(1), json!("x"), json!([1, null, "x"]), json!({"a": [1]}), json!(null), json!(true)];
    for path in [
        PODS,
        SERVICES,
        MAPS,
        SECRETS,
        CLAIMS,
        DEPLOYMENTS,
        DAEMON_SETS,
        STATEFUL_SETS,
        JOBS,
        CRON_JOBS,
        INGRESSES,
        BUDGETS,
        BINDINGS,
    ] {
        for value in &odd {
            for body in [
                json!({"metadata": {"name": "a"}, "spec": value, "data": value, "subjects": value, "roleRef": value, "status": value}),
                json!({"metadata": {"name": "a", "labels": value, "ownerReferences": value, "finalizers": value, "annotations": value}}),
                json!({"metadata": {"name": "a"}, "spec": {
                    "template": value, "containers": value, "ports": value, "selector": value, "strategy": value, "volumes": value,
                    "updateStrategy": value, "jobTemplate": value, "rules": value, "resources": value, "finalizers": value,
                }}),
                json!({"metadata": {"name": "a"}, "spec": {"template": {"metadata": value, "spec": {"containers": [
                    value, {"resources": value, "ports": value, "env": value, "livenessProbe": value, "volumeMounts": value},
                ]}}, "ports": [value], "volumeClaimTemplates": [value]}}),
            ] {
                ask(&mut quiet(), Post, path, &body);
            }
        }
    }
}

#[test]
fn an_update_whose_spec_is_the_stored_one_gets_its_other_defaults() {
    let mut cluster = quiet();
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    let job = named("a", json!({"spec": {"template": template}}));
    let node = named("n", json!({"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "2"}}}));
    let space = named("s", json!({}));
    for (collection, subresource, body, unset, wanted) in [
        (JOBS, "", job, "metadata.labels", "/spec/template/metadata/labels"),
        ("/api/v1/nodes", "/status", node, "status.allocatable", "/status/capacity"),
        ("/api/v1/namespaces", "", space, "metadata.labels", "/metadata/labels"),
    ] {
        let before = made(&mut cluster, collection, &body);
        assert!(before["spec"].is_object(), "{before}");
        let (mut sent, (parent, field)) = (before.clone(), unset.split_once('.').unwrap());
        assert!(sent[parent].as_object_mut().unwrap().remove(field).is_some(), "{before}");
        let target = format!("{collection}/{}{subresource}", body["metadata"]["name"].as_str().unwrap());
        let (code, after) = ask(&mut cluster, Put, &target, &sent);
        assert_eq!((code, Some(&after[parent][field])), (200, before.pointer(wanted)));
        assert_eq!(after["spec"], before["spec"]);
    }
}

#[test]
fn base64_in_lines_is_stored_in_one() {
    let mut cluster = quiet();
    for (path, kind) in [(MAPS, "binaryData"), (SECRETS, "data")] {
        let made = made(&mut cluster, path, &named("a", json!({kind: {"k": "AAEC\r\nAwQ=\n"}})));
        assert_eq!(made[kind]["k"], "AAECAwQ=");
    }
}
