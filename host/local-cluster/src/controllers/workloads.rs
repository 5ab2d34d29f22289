//! The workload controllers: Pods of ReplicaSets, Deployments, StatefulSets, DaemonSets, Jobs and CronJobs. It must not know
//! the scheduler and the kubelets: it reads what they write in Pods.

mod condition;
mod field;
mod ownership;
mod pod;
mod replica_set;

use crate::controllers::Controller;

