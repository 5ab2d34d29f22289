//! A Kubernetes cluster as a value: the API server's behaviour and the controllers of kube-controller-manager, with models of
//! the scheduler and the kubelets. Input: requests and the time. Output: responses, watch frames, and the time of the next
//! step. It must not know the host that is tested on it, nor threads, sockets and clocks.
//!
//! A copy of a cluster takes no time and shares what does not change, so that a test can try what follows and go back.

mod access;
mod admission;
mod amounts;
mod apply;
mod attributes;
mod body;
mod builtin_versions;
mod cel;
mod cluster;
mod condition;
mod context;
mod controllers;
mod definition;
mod deletion;
mod discovery;
mod etag;
mod format;
mod halt;
mod managed_fields;
mod open_api;
mod options;
mod output;
mod patch;
mod path;
mod placement;
mod protobuf;
mod published;
mod quantity;
mod queue;
mod request;
mod resource;
mod rest;
mod saved;
mod scale;
mod schedule;
mod schema;
mod selector;
mod store;
mod strategy;
mod subject;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod time;
mod uid;
mod user;
mod version;
mod watch;
mod webhook;

use jiff::Timestamp;

pub use crate::cluster::Cluster;
pub use crate::controllers::Step;
pub use crate::halt::{Answer, Call, FirstTry, Reply, ServiceReference, Status};
pub use crate::options::Options;
pub use crate::request::{Body, Credentials, Method, Request, Response};
pub use crate::subject::Subject;
pub use crate::user::User;
pub use crate::watch::{Frame, Watch};

impl Cluster {
    /// A cluster that just started: its namespaces, roles and nodes are there.
    pub fn new(options: Options, now: Timestamp) -> Self {
        let controllers = controllers::waiting(&options);
        let mut cluster = Self::empty(options, controllers);
        rest::bootstrap(&mut cluster, now);
        cluster
    }

    /// The names that [`Options::controllers`] may have.
    pub fn controllers() -> impl Iterator<Item = &'static str> {
        controllers::names()
    }

    /// Why a request is refused whatever its body says: nobody knows its credentials, or who has none may not do it. A door asks
    /// this before it reads the body.
    ///
    /// ```
    /// use mortise_local_cluster::{Cluster, Credentials, Method, Options, Request};
    ///
    /// let now = jiff::Timestamp::UNIX_EPOCH;
    /// let (path, credentials) = ("/api/v1/secrets".to_owned(), Credentials::None);
    /// let (query, headers, body) = (Vec::new(), Vec::new(), Vec::new());
    /// let head = Request { method: Method::Get, path, query, headers, credentials, body };
    /// let refusal = Cluster::new(Options::default(), now).refusal(&head, now);
    /// assert_eq!(refusal.map(|status| status.code), Some(401));
    /// ```
    pub fn refusal(&self, head: &Request, now: Timestamp) -> Option<Status> {
        rest::refuse(self, head, now)
    }

    /// Answers a request. `answers` are what webhooks said to earlier tries of the same request.
    pub fn request(&mut self, request: &Request, answers: &[Answer], now: Timestamp) -> Reply<Response> {
        rest::request(self, request, answers, now)
    }

    /// What a watch has to send now, in order; empty when nothing happened. `answers` are what webhooks said to earlier tries:
    /// objects may have to be converted for it.
    pub fn poll(&self, watch: &mut Watch, answers: &[Answer], now: Timestamp) -> Reply<Vec<Frame>> {
        watch::poll(self, watch, answers, now)
    }

    /// Lets the controllers do one thing. `answers` are what webhooks said to earlier tries of the same step; while they are
    /// asked, other steps may be made.
    pub fn step(&mut self, answers: &[Answer], now: Timestamp) -> Reply<Step> {
        controllers::step(self, answers, now)
    }

    /// Puts off what the next step would do, after it panicked: it is tried again later, and others have their turns.
    pub fn put_off(&mut self, now: Timestamp) {
        controllers::put_off(self, now);
    }
}
