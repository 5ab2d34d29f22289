//! The workload controllers: Pods of ReplicaSets, Deployments, StatefulSets, DaemonSets, Jobs and CronJobs. It must not know
//! the scheduler and the kubelets: it reads what they write in Pods.

mod condition;
mod cron_job;
mod daemon_set;
mod deployment;
mod field;
mod hash;
mod history;
mod job;
mod ownership;
mod pod;
mod pod_control;
mod replica_set;
mod stateful_set;
#[cfg(test)]
mod tests;

use crate::controllers::controller::Controller;

const PODS: (&str, &str) = ("", "pods");

/// All of them look once after many changes: each counts its Pods anew.
pub(super) const WORKLOADS: &[Controller] = &[
    Controller {
        name: "deployment-controller",
        user: "system:serviceaccount:kube-system:deployment-controller",
        watches: &[("apps", "deployments"), ("apps", "replicasets"), PODS],
        batches: true,
        keys: deployment::keys_of,
        reconcile: deployment::reconcile,
    },
    Controller {
        name: "replicaset-controller",
        user: "system:serviceaccount:kube-system:replicaset-controller",
        watches: &[("apps", "replicasets"), PODS],
        batches: true,
        keys: replica_set::keys_of_replica_set,
        reconcile: replica_set::reconcile_replica_set,
    },
    Controller {
        name: "replicationcontroller-controller",
        user: "system:serviceaccount:kube-system:replication-controller",
        watches: &[("", "replicationcontrollers"), PODS],
        batches: true,
        keys: replica_set::keys_of_replication_controller,
        reconcile: replica_set::reconcile_replication_controller,
    },
    Controller {
        name: "statefulset-controller",
        user: "system:serviceaccount:kube-system:statefulset-controller",
        watches: &[("apps", "statefulsets"), PODS],
        batches: true,
        keys: stateful_set::keys_of,
        reconcile: stateful_set::reconcile,
    },
    Controller {
        name: "daemonset-controller",
        user: "system:serviceaccount:kube-system:daemon-set-controller",
        watches: &[("apps", "daemonsets"), ("", "nodes"), PODS],
        batches: true,
        keys: daemon_set::keys_of,
        reconcile: daemon_set::reconcile,
    },
    Controller {
        name: "job-controller",
        user: "system:serviceaccount:kube-system:job-controller",
        watches: &[("batch", "jobs"), PODS],
        batches: true,
        keys: job::keys_of,
        reconcile: job::reconcile,
    },
    Controller {
        name: "cronjob-controller",
        user: "system:serviceaccount:kube-system:cronjob-controller",
        watches: &[("batch", "cronjobs"), ("batch", "jobs")],
        batches: true,
        keys: cron_job::keys_of,
        reconcile: cron_job::reconcile,
    },
];
