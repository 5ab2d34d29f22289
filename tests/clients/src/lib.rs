//! Holds the local cluster to the clients that people use: kubectl, helm, and the informers of client-go, controller-runtime
//! and kube-rs. Input: a cluster. Output: tests. It must not know how the cluster is made.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod informers;
mod normal;
mod proxy;
mod terminal;
mod transcript;
mod transcripts;
