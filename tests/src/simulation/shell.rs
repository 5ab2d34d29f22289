//! The runtime's part: performs every effect on the local cluster, with delays and faults, and sends the resulting
//! events.

use std::sync::Arc;

use mortise_core::audit;
use mortise_core::call::{Call, CallDone, Conclusion};
use mortise_core::contract::{CallResult, Failure, GuestFault};
use mortise_core::crd::CrdError;
use mortise_core::event::{Effect, Event};
use mortise_core::limits::WRITE_TIMEOUT_MS;
use mortise_core::object::{Kind, Object, ObjectRef, ResourceVersion};
use mortise_core::observation::Observation;
use mortise_core::rights::Readable;
use mortise_core::scope::Slice;
use mortise_core::watch::{WatchError, WatchEvent};
use mortise_core::write::{Cause, Write, WriteError, WriteErrorClass, WriteId, WriteOp, Written};
use serde_json::Value;

use super::cluster::{Record, pod};
use super::faults::Fault;
use super::guests::Guest;
use super::oracle::Violation;
use super::watch::Watch;
use super::world::{Mutant, Upcoming, World};

/// Objects per page of a live list: few, so that changes come between two pages.
const AUDIT_PAGE: usize = 3;

/// A scenario's response to the next matching write, instead of the API server's.
#[derive(Clone, Debug)]
pub struct Response {
    /// The prefix of the request's line: "create Pod", "patch PodSet".
    pub to: String,
    pub error: WriteError,
    /// The write takes effect anyway.
    pub lands: bool,
}

enum Reply {
    /// The API server's, this long after the write took effect.
    Own(u64),
    /// This error, this long after the request.
    Instead(u64, WriteError),
}

/// An Event, which no controller reads.
fn is_kube_event(target: &ObjectRef) -> bool {
    target.kind.group() == "events.k8s.io"
}

impl World {
    pub fn perform(&mut self, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::StartWatch(slice) | Effect::Relist(slice) => {
                let epoch = self.next_epoch();
                self.watches.insert(slice.clone(), Watch::new(slice.clone(), epoch));
                let delay = self.random.between(1, 10);
                self.schedule(delay, Upcoming::Connect(slice, epoch));
            }
            Effect::StopWatch(slice) => {
                self.watches.remove(&slice);
                self.oracle.on_watch_stopped(&slice, &self.watches);
            }
            Effect::WatchTenant(_) | Effect::StopTenant(_) => {}
            Effect::Compile(digest) => {
                let guest = Guest::of(&digest).expect("only digests of the model's guests are offered");
                self.oracle.on_compile(&digest);
                let delay = self.random.between(5, 100);
                self.deliver_in(delay, Event::Compiled(digest, guest.compiles()));
            }
            Effect::Unload(digest) => self.oracle.on_unload(&digest),
            Effect::RegisterCrd { plugin, crd, body, .. } => self.register_crd(plugin, crd, body),
            Effect::ServeAdmission { plugin, backend: serving } => {
                // Writes of others are always valid here, so admission makes no difference.
                let event = match serving {
                    Some(serving) => Event::AdmissionServed { plugin, digest: serving.digest.clone(), result: Ok(()) },
                    None => Event::AdmissionEnded { plugin },
                };
                let delay = self.random.between(5, 50);
                self.deliver_in(delay, event);
            }
            Effect::ServeConversion { plugin, .. } => {
                unreachable!("no kind of the model has two versions, that of {plugin} neither")
            }
            Effect::Call(call) => self.call(*call)?,
            Effect::Write(write) => {
                self.oracle.on_write(&write, &self.cluster)?;
                let line = request_line(&write.op);
                self.oracle.on_request(self.now_ms, &line)?;
                self.send(*write, line);
            }
            Effect::ReadLive(target) => self.read_live(target.object),
            Effect::Review(review) => self.deliver_in(1, Event::Reviewed(*review, Ok(Readable::Everywhere))),
            Effect::ReviewIdentity(review) => self.deliver_in(1, Event::IdentityReviewed(review, Ok(true))),
            Effect::Http(sending) => self.send_http(&sending)?,
            Effect::Audit(slice) => self.audit(&slice),
            Effect::WakeAt(due_ms) => self.wake_at(due_ms),
            Effect::Observe(observation) => self.observe(observation),
            Effect::Discard(garbage) => garbage.free(),
        }
        Ok(())
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::BreakerOpened { cause: Cause { object, .. }, .. } => {
                self.note(|| format!("  the breaker of {object} has opened"));
                self.log(|| format!("breaker of {object} opened"));
            }
            Observation::Refused { plugin, refusal } => self.log(|| format!("refused {plugin}: {refusal}")),
            Observation::Activated { plugin, digest, .. } => self.log(|| format!("{digest} serves as {plugin}")),
            Observation::FinalizersLeft { plugin, message } | Observation::ConversionLeft { plugin, message } => {
                self.log(|| format!("finalizers of {plugin} are left: {message}"));
            }
            Observation::Audited { kind, differences } if !differences.is_empty() => {
                self.note(|| format!("  an audit of {kind} found {differences:?}"));
                self.log(|| format!("the cache of {kind} differs in {} objects", differences.len()));
            }
            Observation::Restored { kind, message } => self.log(|| format!("etcd was restored, {kind}: {message}")),
            Observation::CacheLagging { object } => self.log(|| format!("view lags behind {object}")),
            Observation::WriteFailed { target, error, .. } | Observation::EventFailed { target, error, .. } => {
                self.log(|| format!("  refused: {target}: {:?}: {}", error.class, error.message));
            }
            Observation::Reconciled { cause: Cause { object, .. }, result, writes, .. } if writes > 0 => {
                self.log(|| format!("done with {object}: {result:?}, {writes} written"));
            }
            _ => {}
        }
    }

    fn register_crd(&mut self, plugin: Arc<str>, crd: Arc<str>, body: Arc<str>) {
        let delay = self.random.between(1, 200);
        if self.faults.hit(&mut self.random, Fault::CrdFails) {
            let result = Err(CrdError::Unavailable("the API server is busy".to_owned()));
            return self.deliver_in(delay, Event::CrdRegistered { plugin, crd, result });
        }
        self.schedule(delay, Upcoming::Define { incarnation: self.incarnation, plugin, crd, body });
    }

    /// The error of a watch of this kind now.
    pub fn watch_error(&self, kind: &Kind) -> Option<WatchError> {
        if !self.cluster.serves(kind) {
            return Some(WatchError::NotServed(format!("the server serves no {kind}")));
        }
        let denied = self.cluster.unreadable.contains(kind);
        denied.then(|| {
            let (resource, group) = (format!("{}s", kind.kind.to_lowercase()), kind.group());
            WatchError::Denied(format!("User \"mortise\" cannot list resource {resource:?} in API group {group:?}"))
        })
    }

    /// Ends the watches of kinds that can no longer be watched.
    pub fn end_watches(&mut self) -> Result<(), Violation> {
        let slices: Vec<Slice> = self.watches.keys().cloned().collect();
        for slice in slices {
            let Some(error) = self.watch_error(&slice.kind) else { continue };
            let epoch = self.next_epoch();
            let Some(watch) = self.watches.get_mut(&slice) else { continue };
            watch.disconnect(epoch);
            self.schedule(super::world::WATCH_RETRY_MS, Upcoming::Connect(slice.clone(), epoch));
            self.deliver(Event::Watch(slice, WatchEvent::Failed(error)))?;
        }
        Ok(())
    }

    fn call(&mut self, call: Call) -> Result<(), Violation> {
        let guest = Guest::of(&call.cause.digest).expect("only guests of the model are called");
        self.calls += 1;
        self.note(|| format!("< call {} with {}", call.cause.controller, call.object.name));
        self.log(|| format!("call {} with {}", call.cause.controller, call.object.name));
        if !self.oracle.is_asleep {
            // The engine emits calls last in a step, so the call's view is from its current store.
            let view = self.engine.store().snapshot();
            let readable = self.readable.entry(guest).or_insert_with(|| guest.readable());
            self.oracle.on_call(&call, readable, &view, &self.cluster, &self.watches)?;
        }
        let (mut result, reads) = guest.call(&call.object, call.view, &call.limits);
        if matches!(result, CallResult::Waits(_)) {
            self.waits += 1;
        } else if !self.oracle.is_asleep {
            let view = self.engine.store().snapshot();
            self.oracle.on_dynamic_kinds(reads.dynamic_kinds(), &view, &self.cluster)?;
        }
        if self.faults.hit(&mut self.random, Fault::Trap) {
            let (message, detail) = ("wasm trap: unreachable".to_owned(), String::new());
            result = CallResult::Fault(GuestFault::Trap { message, detail });
        } else if self.faults.hit(&mut self.random, Fault::Retry) {
            result = CallResult::Failed(Failure::Retry("not now".to_owned()));
        }
        if let CallResult::Done(outcome) = &result {
            let children = outcome.children.as_deref().unwrap_or_default();
            self.oracle.on_wanted(&call.object.uid, &call.cause.digest, children);
            self.http.on_outcome(&call.object.uid, outcome);
        }
        let slow = self.faults.hit(&mut self.random, Fault::SlowCall);
        let delay = if slow { self.random.between(100, 3_000) } else { self.random.between(1, 4) };
        let conclusion = call.check.conclude(&call.object, result);
        let done = CallDone { conclusion, reads, elapsed_us: delay * 1_000 };
        self.deliver_in(delay, Event::CallDone(call.id, done));
        Ok(())
    }

    fn send(&mut self, write: Write, line: String) {
        self.note(|| format!("< {line}"));
        if write.plugin.is_some() && !is_kube_event(write.op.target()) {
            self.requests.push(line.clone());
        }
        self.log(|| logged(&write.op).unwrap_or_else(|| line.clone()));
        let arrives = self.random.between(1, 8);
        if let Some(at) = self.responses.iter().position(|response| line.starts_with(&response.to)) {
            let response = self.responses.remove(at).expect("its position was just found");
            let lands = response.lands.then_some(arrives);
            return self.send_with(write, lands, Reply::Instead(arrives + 1, response.error));
        }
        let soon = self.random.between(1, 4);
        let late = self.random.between(500, WRITE_TIMEOUT_MS);
        let gives_up = self.random.between(50, 400);
        let unknown = |text: &str| Reply::Instead(gives_up, failed(WriteErrorClass::Unknown, text));
        let (lands, reply) = match self.write_fault(&write.op) {
            None => (Some(arrives), Reply::Own(soon)),
            Some(Fault::LateReply) => (Some(arrives), Reply::Own(late)),
            Some(Fault::LostReply) => (Some(arrives), unknown("the connection was lost")),
            Some(Fault::LateWrite) => (Some(late), unknown("the request timed out")),
            Some(Fault::LostWrite) => (None, unknown("the connection was refused")),
            Some(Fault::TooManyRequests) => {
                let class = WriteErrorClass::TooManyRequests { retry_after_ms: self.random.below(3) * 1_000 };
                (None, Reply::Instead(arrives, failed(class, "too many requests")))
            }
            Some(Fault::Conflict) => {
                let text = "Operation cannot be fulfilled: the object has been modified";
                (None, Reply::Instead(arrives, failed(WriteErrorClass::Conflict, text)))
            }
            Some(_) => {
                let error = failed(WriteErrorClass::Unavailable, "the API server is busy");
                (None, Reply::Instead(arrives, error))
            }
        };
        self.send_with(write, lands, reply);
    }

    /// Selects at most one fault for a write.
    fn write_fault(&mut self, op: &WriteOp) -> Option<Fault> {
        let all = [
            Fault::LostReply,
            Fault::LateWrite,
            Fault::LostWrite,
            Fault::LateReply,
            Fault::TooManyRequests,
            Fault::Unavailable,
            Fault::Conflict,
        ];
        let fits = |fault: &Fault| *fault != Fault::Conflict || !matches!(op, WriteOp::Create { .. });
        all.into_iter().filter(fits).find(|fault| self.faults.hit(&mut self.random, *fault))
    }

    /// Sends a write that takes effect after `lands` milliseconds, or never.
    fn send_with(&mut self, write: Write, lands: Option<u64>, reply: Reply) {
        let id = write.id;
        let reply_ms = match reply {
            Reply::Own(delay) => Some(delay),
            Reply::Instead(delay, mut error) => {
                if self.mutant == Mutant::UnknownIsFailed && error.class == WriteErrorClass::Unknown {
                    error.class = WriteErrorClass::Unavailable;
                }
                self.deliver_in(delay, Event::Wrote(id, Err(error)));
                None
            }
        };
        if let Some(delay) = lands {
            let incarnation = self.incarnation;
            self.schedule(delay, Upcoming::Lands { incarnation, write: Box::new(write), reply_ms });
        }
    }

    /// A write arrives at the API server.
    pub fn land(&mut self, incarnation: u32, write: Write, reply_ms: Option<u64>) -> Result<(), Violation> {
        let line = request_line(&write.op);
        let id = write.id;
        let result = self.execute(write)?;
        if let Err(error) = &result
            && !self.faults.on
        {
            self.refused.push(format!("{line}: {}", error.message));
        }
        if let Some(delay) = reply_ms.filter(|_| incarnation == self.incarnation) {
            if let Ok(written) = &result {
                self.oracle.on_landed(id, written, &self.cluster);
            }
            self.deliver_in(delay, Event::Wrote(id, self.mutated(result)));
        }
        Ok(())
    }

    fn execute(&mut self, mut write: Write) -> Result<Result<Written, WriteError>, Violation> {
        if matches!(write.op, WriteOp::Apply { draws: Some(_), .. }) {
            panic!("the model's guests want no generated values");
        }
        // Scenarios send Events. In random runs they would be many of the requests, and nobody reads them.
        if is_kube_event(write.op.target()) && self.log.is_none() {
            return Ok(Ok(Written { uid: "event".into(), resource_version: ResourceVersion(self.cluster.version()) }));
        }
        let meant = write.op.clone();
        self.mutate(&mut write.op);
        let result = self.cluster.execute(&write);
        if let Ok(hit) = &result {
            self.oracle.on_deleted(&meant, hit)?;
        }
        Ok(result)
    }

    /// What some mutants make of a write.
    fn mutate(&mut self, op: &mut WriteOp) {
        match op {
            WriteOp::Create { target, body } if self.mutant == Mutant::GeneratedNames && target.kind == pod() => {
                self.made_up += 1;
                target.name.name = format!("{}-{}", target.name.name, self.made_up).into();
                let mut object: Value = serde_json::from_str(body).expect("the engine writes JSON");
                object["metadata"]["name"] = target.name.name.as_ref().into();
                *body = object.to_string().into();
            }
            WriteOp::Delete { target, uid, .. } if self.mutant == Mutant::NoUidPrecondition => {
                let live = self.cluster.get(target).and_then(|live| live["metadata"]["uid"].as_str());
                *uid = live.map_or_else(|| Arc::clone(uid), Arc::from);
            }
            _ => {}
        }
    }

    fn audit(&mut self, slice: &Slice) {
        let mut delay = self.random.between(1, 20);
        if self.watch_error(&slice.kind).is_some() || self.faults.hit(&mut self.random, Fault::ReadFails) {
            return self.deliver_in(delay, Event::Audit(slice.clone(), audit::Response::Failed));
        }
        let listed = |record: Record| {
            let version = ResourceVersion(record.version);
            audit::Listed { name: record.target.name, uid: record.uid, version }
        };
        self.cluster.follow(slice);
        let objects: Vec<audit::Listed> = self.cluster.list_at(slice, u64::MAX).into_iter().map(listed).collect();
        let version = ResourceVersion(self.cluster.version());
        self.deliver_in(delay, Event::Audit(slice.clone(), audit::Response::Begun));
        let pages = objects.len().div_ceil(AUDIT_PAGE).max(1);
        for number in 0..pages {
            delay += self.random.below(100);
            let page = objects.iter().skip(number * AUDIT_PAGE).take(AUDIT_PAGE).cloned().collect();
            let page = audit::Page { version, objects: page, is_last: number + 1 == pages };
            self.deliver_in(delay, Event::Audit(slice.clone(), audit::Response::Page(page)));
        }
    }

    fn mutated(&self, result: Result<Written, WriteError>) -> Result<Written, WriteError> {
        match result {
            Ok(written) if self.mutant == Mutant::NoOwnWrites => {
                Ok(Written { resource_version: ResourceVersion(0), ..written })
            }
            result => result,
        }
    }

    fn read_live(&mut self, target: ObjectRef) {
        let delay = self.random.between(1, 8);
        let result = if self.faults.hit(&mut self.random, Fault::ReadFails) {
            Err(failed(WriteErrorClass::Unknown, "the connection was lost"))
        } else {
            let (read, interner) = (self.cluster.read(&target), &mut self.interner);
            let decode = |live: Value| {
                let text = live.to_string();
                Arc::new(Object::decode(text.as_bytes(), interner).expect("the cluster has valid objects"))
            };
            read.map(|live| live.map(decode))
        };
        self.deliver_in(delay, Event::LiveRead(target.into(), result));
    }
}

fn failed(class: WriteErrorClass, message: &str) -> WriteError {
    WriteError { class, message: message.to_owned() }
}

/// The log line of an Event or of a Plugin object's status.
fn logged(op: &WriteOp) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match op {
        WriteOp::Apply { target, body, .. } if is_kube_event(target) => {
            let body: Value = serde_json::from_str(body).ok()?;
            let regarding = format!("{} {}", text(&body["regarding"]["kind"]), text(&body["regarding"]["name"]));
            Some(format!(
                "event {} {} about {regarding}: {}",
                text(&body["type"]),
                text(&body["reason"]),
                text(&body["note"])
            ))
        }
        WriteOp::PatchStatus { target, body } if target.kind == mortise_core::plugin_object::kind() => {
            let body: Value = serde_json::from_str(body).ok()?;
            let conditions = body["status"]["conditions"].as_array()?;
            let is_relevant = |condition: &&Value| condition["type"] == "Ready" || condition["status"] == "False";
            let conditions = conditions.iter().filter(is_relevant).map(|condition| {
                format!("{} {} {}", text(&condition["type"]), text(&condition["status"]), text(&condition["reason"]))
            });
            Some(format!("report {target}: {}", conditions.collect::<Vec<_>>().join(", ")))
        }
        _ => None,
    }
}

pub fn request_line(op: &WriteOp) -> String {
    let what = match op {
        WriteOp::Create { .. } => "create",
        WriteOp::Apply { .. } => "apply",
        WriteOp::Delete { .. } => "delete",
        WriteOp::Evict { .. } => "evict",
        WriteOp::Patch { body, .. } => {
            let mut body: Value = serde_json::from_str(body).unwrap_or_default();
            if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| name != "uid" && name != "resourceVersion");
            }
            return format!("change {} {body}", op.target());
        }
        WriteOp::PatchStatus { body, .. } => {
            let mut body: Value = serde_json::from_str(body).unwrap_or_default();
            let conditions = body["status"].get_mut("conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                condition.as_object_mut().map(|condition| condition.remove("lastTransitionTime"));
            }
            return format!("patch {} {}", op.target(), body["status"]);
        }
    };
    format!("{what} {}", op.target())
}

pub fn shown_event(event: &Event) -> String {
    match event {
        Event::Watch(of, WatchEvent::Applied(object)) => format!("{} {object:?}", of.kind.kind),
        Event::Watch(of, WatchEvent::Deleted(object)) => format!("{} deleted {object:?}", of.kind.kind),
        Event::Watch(of, WatchEvent::Listed(objects)) => format!("{} listed {objects:?}", of.kind.kind),
        Event::Watch(of, event) => format!("{} {event:?}", of.kind.kind),
        Event::CallDone(id, done) => match &done.conclusion {
            Conclusion::Wants(prepared) => {
                let keys: Vec<&str> = prepared.children.iter().flatten().map(|child| &*child.key).collect();
                format!("{id:?} wants {keys:?}, status {:?}", prepared.status)
            }
            other => format!("{id:?} {other:?}"),
        },
        Event::Wrote(WriteId(id), Ok(written)) => format!("write {id}: version {}", written.resource_version.0),
        Event::Wrote(WriteId(id), Err(error)) => format!("write {id}: {:?} {}", error.class, error.message),
        Event::Compiled(digest, _) => format!("compiled {digest}"),
        other => format!("{other:?}"),
    }
}
