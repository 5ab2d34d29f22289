//! The server that a plugin of the model sends HTTP requests to, and the rules about them. A POST carries out something at
//! most once for each Idempotency-Key; responses are late, errors, or lost. A request lands as late as it can: with its
//! result, or when the host dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_core::contract::Outcome;
use mortise_core::event::{Event, Sending};
use mortise_core::http::{Failure, FailureClass, HttpId, MAX_TIMEOUT_MS, Method, Response, Sent};
use mortise_core::object::ObjectRef;
use serde_json::{Value, json};

use super::cluster::reference;
use super::converged::check_status;
use super::faults::Fault;
use super::oracle::Violation;
use super::world::World;

/// What the server has, and what the oracle knows about requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// The paths that were carried out, by Idempotency-Key.
    carried_out: BTreeMap<Arc<str>, Arc<str>>,
    /// What guests returned since the host started: the owner's UID and the content.
    wanted: BTreeSet<(Arc<str>, u128)>,
    in_flight: BTreeMap<HttpId, InFlight>,
    /// The path of the last request of each object that reached the server.
    last: BTreeMap<ObjectRef, Arc<str>>,
    /// Those with a final response.
    done: BTreeSet<HttpId>,
}

/// A request without a result. Lost ones do not land.
#[derive(Debug)]
struct InFlight {
    object: ObjectRef,
    path: Option<Arc<str>>,
}

impl Requests {
    pub fn on_crash(&mut self) {
        std::mem::take(&mut self.in_flight).into_values().for_each(|request| self.land(request));
        let (carried_out, last) = (std::mem::take(&mut self.carried_out), std::mem::take(&mut self.last));
        *self = Self { carried_out, last, ..Self::default() };
    }

    fn land(&mut self, InFlight { object, path }: InFlight) {
        self.last.extend(path.map(|path| (object, path)));
    }

    pub fn on_outcome(&mut self, uid: &Arc<str>, outcome: &Outcome) {
        self.wanted.extend(outcome.requests.iter().map(|request| (Arc::clone(uid), request.fingerprint())));
    }

    pub fn on_done(&mut self, id: HttpId, sent: &Sent) {
        if let Some(request) = self.in_flight.remove(&id) {
            self.land(request);
        }
        if matches!(sent, Sent::Response(response) if response.status == 200) {
            self.done.insert(id);
        }
    }
}

/// The answer to a request of this path.
fn answer(path: &str) -> String {
    format!("the meaning of {path}")
}

impl World {
    pub fn send_http(&mut self, sending: &Sending) -> Result<(), Violation> {
        let Sending { id, cause, request, .. } = sending;
        self.note(|| format!("< {} {} for {}", request.method.as_str(), request.path, cause.object));
        let uid = self.cluster.get(&cause.object).and_then(|live| live["metadata"]["uid"].as_str());
        let wanted = uid.is_none_or(|uid| self.http.wanted.contains(&(uid.into(), request.fingerprint)));
        let key = request.headers.iter().find(|(name, _)| &**name == "idempotency-key").map(|(_, key)| Arc::clone(key));
        let path = key.as_ref().and_then(|key| self.http.carried_out.get(key));
        let (is_post, mut in_flight) = (request.method == Method::Post, self.http.in_flight.iter());
        let rules = [
            ("a request is one of an outcome", wanted),
            ("no request overtakes a former one", in_flight.all(|(_, former)| former.object != cause.object)),
            ("a request with a response is not sent again", !self.http.done.contains(id)),
            ("POST alone has an Idempotency-Key", key.is_some() == is_post),
            ("an Idempotency-Key is of one content", path.is_none_or(|path| *path == request.path)),
        ];
        for (rule, holds) in rules {
            self.oracle.check(rule, holds, || format!("{} {} of {}", request.path, sending.id.0, cause.object))?;
        }
        self.oracle.check_written(cause)?;
        let (arrives, late) = (self.random.between(1, 40), self.random.between(500, MAX_TIMEOUT_MS));
        let faults = [Fault::LostRequest, Fault::LostResponse, Fault::LateResponse, Fault::ServerError];
        let fault = faults.into_iter().find(|fault| self.faults.hit(&mut self.random, *fault));
        let lands = !matches!(fault, Some(Fault::LostRequest | Fault::ServerError));
        let path = lands.then(|| Arc::clone(&request.path));
        self.http.carried_out.extend(key.zip(path.clone()));
        self.http.in_flight.insert(*id, InFlight { object: cause.object.clone(), path });
        let lost = |class| Sent::Failed(Failure { class, message: "the connection was lost".into() });
        let respond = |status, body: String| {
            Sent::Response(Response { status, headers: Vec::new(), body: body.into_bytes().into() })
        };
        let (delay, sent) = match fault {
            Some(Fault::LostRequest) => (arrives, lost(FailureClass::Connect)),
            Some(Fault::LostResponse) => (MAX_TIMEOUT_MS, lost(FailureClass::Timeout)),
            Some(Fault::ServerError) => (arrives, respond(503, String::new())),
            Some(_) => (late, respond(200, answer(&request.path))),
            None => (arrives, respond(200, answer(&request.path))),
        };
        self.deliver_in(delay, Event::HttpDone(*id, sent));
        Ok(())
    }

    /// X1: the last request that reached the server is the one that the object wants.
    pub fn check_lookup(&self, lookup: &Value) -> Result<(), String> {
        let path = format!("/{}", lookup["spec"]["word"].as_str().unwrap_or_default());
        let last = self.http.last.get(&reference(lookup));
        if last.is_none_or(|last| **last != *path) {
            return Err(format!("the last request was for {last:?}, not {path}, of {lookup}"));
        }
        check_status(lookup, &json!({"code": 200, "meaning": answer(&path)}))
    }
}
