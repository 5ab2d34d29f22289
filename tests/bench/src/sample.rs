//! The objects that are measured with: Pods as an API server shows them, and the template of larger ones. Text comes out;
//! its sizes are part of what is reported, so tests hold them.

use serde_json::{Value, json};

/// The UID of the PodSet that owns sample Pods.
pub(crate) const OWNER_UID: &str = "5f0c8a4e-3b1d-4c55-9f1e-6d2b7a90c3d1";

/// One sample Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    /// Its place among the Pods of its owner.
    pub(crate) index: usize,
    /// Which owner; the first has [`OWNER_UID`].
    pub(crate) owner: usize,
    pub(crate) version: u64,
    pub(crate) phase: &'static str,
}

impl Pod {
    pub(crate) fn new(owner: usize, index: usize) -> Self {
        Self { index, owner, version: 1 + (owner * 10 + index) as u64, phase: "Running" }
    }

    /// 2.3 KB, as it is without its managedFields.
    pub(crate) fn json(self) -> String {
        self.value().to_string()
    }

    /// 3.7 KB, as a watch delivers it.
    pub(crate) fn json_with_managed_fields(self) -> String {
        let mut pod = self.value();
        pod["metadata"]["managedFields"] = managed_fields();
        pod.to_string()
    }

    fn value(self) -> Value {
        let Self { index, owner, version, phase } = self;
        let name = format!("sample-{owner}-{index}");
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("8d1f0c66-90aa-4f0e-8d3c-{:06x}{:06x}", owner, index),
                "resourceVersion": version.to_string(), "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"app": "sample", "tier": "web", "app.kubernetes.io/part-of": "benchmarks"},
                "annotations": {"mortise.dev/child": index.to_string(), "mortise.dev/desired": "0123456789abcdef"},
                "ownerReferences": [{
                    "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": format!("sample-{owner}"),
                    "uid": owner_uid(owner), "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "containers": [{
                    "name": "main", "image": "registry.example.com/web/sample:1.2.3", "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sample", "--listen=:8080"], "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": "MODE", "value": "production"}],
                    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "node-1",
                "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
                "tolerations": [
                    {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                    {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
                ],
            },
            "status": {
                "phase": phase, "hostIP": "10.0.0.1", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
                "qosClass": "Burstable", "startTime": "2026-01-02T03:04:05Z",
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z"},
                    {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:06Z"},
                ],
                "containerStatuses": [{
                    "name": "main", "image": "registry.example.com/web/sample:1.2.3", "imageID": "", "ready": true,
                    "restartCount": 0, "started": true, "state": {"running": {"startedAt": "2026-01-02T03:04:06Z"}}, "lastState": {},
                }],
            },
        })
    }
}

/// The UID of an owner.
pub(crate) fn owner_uid(owner: usize) -> String {
    if owner == 0 { OWNER_UID.to_owned() } else { format!("5f0c8a4e-3b1d-4c55-9f1e-{owner:012x}") }
}

/// The PodSet that owns the sample Pods with the owner 0, converged; with a template of its own or without.
pub(crate) fn pod_set(replicas: usize, template: Option<Value>) -> String {
    let names = (0..replicas).map(|index| format!("sample-0-{index}")).collect::<Vec<_>>();
    let mut set = json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
        "metadata": {
            "name": "sample-0", "namespace": "default", "uid": OWNER_UID, "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "podNames": names},
    });
    if let Some(template) = template {
        set["spec"]["template"] = template;
    }
    set.to_string()
}

fn managed_fields() -> Value {
    let container = json!({
        ".": {}, "f:command": {}, "f:env": {".": {}, "k:{\"name\":\"MODE\"}": {".": {}, "f:name": {}, "f:value": {}}},
        "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
        "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
        "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
    });
    let entry = |manager: &str, subresource: &str, fields: Value| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "subresource": subresource, "fieldsV1": fields,
        })
    };
    json!([
        entry(
            "mortise/podset",
            "",
            json!({
                "f:metadata": {
                    "f:annotations": {".": {}, "f:mortise.dev/child": {}, "f:mortise.dev/desired": {}},
                    "f:labels": {".": {}, "f:app": {}, "f:tier": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"5f0c8a4e-3b1d-4c55-9f1e-6d2b7a90c3d1\"}": {}},
                },
                "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": container}, "f:dnsPolicy": {}, "f:enableServiceLinks": {}},
            })
        ),
        entry(
            "kubelet",
            "status",
            json!({
                "f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:phase": {}},
            })
        ),
    ])
}

/// A pod template whose Pods have about 5.4 KB, which is what Pods of real workloads have.
pub(crate) fn template() -> Value {
    let variable = |number: usize| json!({"name": format!("SAMPLE_SETTING_{number:02}"), "value": format!("a value as settings have them, number {number:02}")});
    let probe = |path: &str| {
        json!({
            "httpGet": {"path": path, "port": 8080, "scheme": "HTTP"},
            "initialDelaySeconds": 5, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
        })
    };
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/web/{name}:1.2.3"),
            "command": [format!("/bin/{name}"), "--listen=:8080", "--log-format=json"],
            "env": (0..8).map(variable).collect::<Vec<_>>(),
            "ports": [{"name": "http", "containerPort": 8080}],
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}},
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true},
            "volumeMounts": [{"name": "configuration", "mountPath": "/etc/sample"}, {"name": "scratch", "mountPath": "/tmp"}],
        })
    };
    json!({
        "metadata": {
            "labels": {"app.kubernetes.io/name": "sample", "app.kubernetes.io/part-of": "benchmarks", "tier": "web"},
            "annotations": {"example.com/owner": "the team that runs the sample", "example.com/config-hash": "8f14e45fceea167a5a36dedd4bea2543"},
        },
        "spec": {
            "containers": [container("sample"), container("sidecar")],
            "volumes": [{"name": "configuration", "configMap": {"name": "sample"}}, {"name": "scratch", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 5,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_pods_have_the_sizes_that_the_targets_are_stated_for() {
        let pod = Pod::new(0, 3);
        assert!((2_250..2_400).contains(&pod.json().len()), "{}", pod.json().len());
        let managed = pod.json_with_managed_fields().len();
        assert!((3_600..3_850).contains(&managed), "{managed}");
    }
}
