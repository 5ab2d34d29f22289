//! The server that a plugin of the model sends HTTP requests to, and the rules about them. A request carries out
//! something at most once for each Idempotency-Key; responses are late, errors, or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_core::contract::Outcome;
use mortise_core::event::{Event, Sending};
use mortise_core::http::{Failure, FailureClass, HttpId, MAX_TIMEOUT_MS, Response, Sent};

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
    in_flight: BTreeSet<HttpId>,
    /// Those with a final response.
    done: BTreeSet<HttpId>,
}

impl Requests {
    pub fn on_crash(&mut self) {
        *self = Self { carried_out: std::mem::take(&mut self.carried_out), ..Self::default() };
    }

    pub fn on_outcome(&mut self, uid: &Arc<str>, outcome: &Outcome) {
        self.wanted.extend(outcome.requests.iter().map(|request| (Arc::clone(uid), request.fingerprint())));
    }

    pub fn on_done(&mut self, id: HttpId, sent: &Sent) {
        self.in_flight.remove(&id);
        if matches!(sent, Sent::Response(response) if response.status == 200) {
            self.done.insert(id);
        }
    }
}

/// The answer to a request of this path.
pub fn answer(path: &str) -> String {
    format!("the meaning of {path}")
}

impl World {
    pub fn send_http(&mut self, sending: &Sending) -> Result<(), Violation> {
        let Sending { id, cause, request, .. } = sending;
        self.note(|| format!("< {} {} for {}", request.method.as_str(), request.path, cause.object));
        let uid = self.cluster.get(&cause.object).and_then(|live| live["metadata"]["uid"].as_str());
        let wanted = uid.is_none_or(|uid| self.http.wanted.contains(&(uid.into(), request.fingerprint)));
        let key = request.headers.iter().find(|(name, _)| &**name == "idempotency-key").map(|(_, key)| Arc::clone(key));
        let key = key.expect("the model's requests change something");
        let path = self.http.carried_out.get(&key).cloned();
        let rules = [
            ("a request is one of an outcome", wanted),
            ("a request is in flight once", self.http.in_flight.insert(*id)),
            ("a request with a response is not sent again", !self.http.done.contains(id)),
            ("an Idempotency-Key is of one content", path.is_none_or(|path| path == request.path)),
        ];
        for (rule, holds) in rules {
            self.oracle.check(rule, holds, || format!("{} {} of {}", request.path, sending.id.0, cause.object))?;
        }
        self.oracle.check_written(cause)?;
        let (arrives, late) = (self.random.between(1, 40), self.random.between(500, MAX_TIMEOUT_MS));
        let faults = [Fault::LostRequest, Fault::LostResponse, Fault::LateResponse, Fault::ServerError];
        let fault = faults.into_iter().find(|fault| self.faults.hit(&mut self.random, *fault));
        if !matches!(fault, Some(Fault::LostRequest | Fault::ServerError)) {
            self.http.carried_out.insert(key, Arc::clone(&request.path));
        }
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
}
