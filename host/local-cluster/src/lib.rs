//! A Kubernetes cluster as a value: the API server's behaviour and the controllers of kube-controller-manager, with models of
//! the scheduler and the kubelets. Input: requests and the time. Output: responses, watch frames, and the time of the next
//! step. It must not know the host that is tested on it, nor threads, sockets and clocks.
//!
//! A copy of a cluster takes no time and shares what does not change, so that a test can try what follows and go back.

mod access;
mod admission;
mod apply;
mod body;
mod builtin_versions;
mod cel;
mod controllers;
mod definition;
mod discovery;
mod etag;
mod format;
mod halt;
mod managed_fields;
mod open_api;
mod options;
mod patch;
mod path;
mod protobuf;
mod published;
mod quantity;
mod request;
mod resource;
mod rest;
mod saved;
mod scale;
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
mod watch;
mod webhook;

use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;

use crate::controllers::Controllers;
use crate::resource::{Resource, built_in};
use crate::store::Store;

pub use crate::halt::{Answer, Call, FirstTry, ServiceReference, Status};
pub use crate::options::Options;
pub use crate::request::{Body, Credentials, Method, Request, Response, User};
pub use crate::subject::Subject;
pub use crate::watch::{Frame, Watch};

/// A whole cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    options: Arc<Options>,
    store: Store,
    /// What definitions serve, by group, version and plural.
    definitions: OrdMap<(Arc<str>, Arc<str>, Arc<str>), Arc<Resource>>,
    controllers: Controllers,
    /// How many UIDs and names were made: each follows from it and the seed.
    made: u64,
}

/// What a request, or a step of the controllers, came to.
#[derive(Clone, Debug)]
pub enum Reply<T> {
    /// It is done.
    Done(T),
    /// Nothing was done: a webhook must be asked, and the same must be tried again with its answer among the others.
    Call(Box<Call>),
}

/// What a step of the controllers came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was looked at; there may be more.
    Worked,
    /// Nothing is to do before this time, or before the next request.
    Idle(Option<Timestamp>),
}

impl Cluster {
    /// A cluster that just started: its namespaces, roles and nodes are there.
    pub fn new(options: Options, now: Timestamp) -> Self {
        let mut cluster = Self {
            controllers: Controllers::new(&options),
            options: Arc::new(options),
            store: Store::default(),
            definitions: OrdMap::new(),
            made: 0,
        };
        rest::bootstrap(&mut cluster, now);
        cluster
    }

    /// Answers a request. `answers` are what webhooks said to earlier tries of the same request.
    pub fn request(&mut self, request: &Request, answers: &[Answer], now: Timestamp) -> Reply<Response> {
        rest::request(self, request, answers, now)
    }

    /// What a watch has to send now: frames in order, each a JSON document with a line end. Empty when nothing happened.
    pub fn poll(&self, watch: &mut Watch, now: Timestamp) -> Vec<Frame> {
        watch::poll(self, watch, now)
    }

    /// Lets the controllers do one thing. `answers` are what webhooks said to earlier tries of the same step.
    pub fn step(&mut self, answers: &[Answer], now: Timestamp) -> Reply<Step> {
        controllers::step(self, answers, now)
    }

    /// The newest resource version: watches have something to send when it grew.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Forgets all changes up to now, as etcd does every five minutes: watches that are behind get 410.
    pub fn compact(&mut self) {
        let revision = self.store.revision();
        self.store.compact(revision);
    }

    /// The resource of a group, version and plural.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let key = (group.into(), version.into(), plural.into());
        built_in().get(&key).or_else(|| self.definitions.get(&key))
    }

    /// The resource of a kind, such as `apps/v1 Deployment`.
    pub(crate) fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        // The resources of one version lie together.
        let start: (Arc<str>, Arc<str>, Arc<str>) = (group.into(), version.into(), "".into());
        let same = |resource: &&Arc<Resource>| *resource.group == *group && *resource.version == *version;
        let built_in = built_in().range(start.clone()..).map(|(_, resource)| resource).take_while(same);
        let custom = self.definitions.range(start..).map(|(_, resource)| resource).take_while(same);
        built_in.chain(custom).find(|resource| *resource.kind == *kind && !resource.verbs.is_empty())
    }

    /// All resources that are served.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        built_in().values().chain(self.definitions.values())
    }
}
