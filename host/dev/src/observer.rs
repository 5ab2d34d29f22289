//! Turns the events and effects of the host into those of a session. Input: what passes the event loop. Output: events on a
//! channel. It must not wait, and it must not know who shows them.

use std::collections::HashMap;
use std::sync::Mutex;

use mortise_core::contract::GuestFault;
use mortise_core::dependencies::Dependency;
use mortise_core::event::{Effect, Event as HostEvent};
use mortise_core::object::{Kind, Name, Object, ObjectRef};
use mortise_core::observation::Observation;
use mortise_core::watch::WatchEvent;
use mortise_core::write::{Write, WriteOp};
use mortise_runtime::observer::Observer;
use mortise_wasm::workers::JobDone;
use tokio::sync::mpsc::UnboundedSender;

use crate::backtrace;
use crate::event::{Event, Shown, Wrote};

/// Changes that are remembered until a call shows what they woke. A burst of more leaves calls without a reason.
const MAX_CHANGES: usize = 256;

pub(crate) struct Observed {
    events: UnboundedSender<Event>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cache, as the watches show it.
    objects: HashMap<ObjectRef, Shown>,
    /// The last changes, newest last.
    changes: Vec<ObjectRef>,
    /// The kinds that each object's last call read.
    reads: HashMap<ObjectRef, Vec<String>>,
}

impl Observed {
    pub(crate) fn new(events: UnboundedSender<Event>) -> Self {
        Self { events, state: Mutex::default() }
    }

    fn send(&self, event: Event) {
        // An error means that the session has ended.
        let _ = self.events.send(event);
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // The state is whole between statements, so a panic elsewhere leaves it usable.
        work(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn changed(&self, object: &Object, gone: bool) {
        let reference = object.reference();
        let state = (!gone).then(|| shown(object));
        self.with(|known| {
            match &state {
                Some(state) => drop(known.objects.insert(reference.clone(), state.clone())),
                None => drop(known.objects.remove(&reference)),
            }
            known.changes.push(reference.clone());
            let excess = known.changes.len().saturating_sub(MAX_CHANGES);
            known.changes.drain(..excess);
        });
        self.send(Event::Object { object: reference, state });
    }

    fn observation(&self, observation: &Observation) {
        match observation {
            Observation::Reconciled { cause, result, elapsed_ms, writes, skipped } => self.send(Event::Reconciled {
                object: cause.object.clone(),
                result: *result,
                elapsed_ms: *elapsed_ms,
                writes: *writes,
                skipped: *skipped,
            }),
            Observation::Fault { cause, fault } => {
                let detail = match fault {
                    GuestFault::Trap { detail, .. } => backtrace::shortened(detail),
                    _ => String::new(),
                };
                self.send(Event::Fault { object: cause.object.clone(), message: fault.message().to_owned(), detail });
            }
            Observation::Activated { plugin, digest, reload, .. } => {
                self.send(Event::Serves { plugin: plugin.to_string(), digest: digest.to_string(), reload: *reload })
            }
            Observation::Refused { plugin, refusal } => self.send(Event::Refused {
                plugin: plugin.to_string(),
                reason: refusal.reason.to_string(),
                message: refusal.to_string(),
            }),
            Observation::WriteFailed { target, error, .. } | Observation::EventFailed { target, error, .. } => {
                self.send(Event::WriteFailed { target: target.clone(), message: error.message.to_string() });
            }
            Observation::Throttled { message, .. }
            | Observation::BreakerOpened { message, .. }
            | Observation::Undecodable { message, .. }
            | Observation::FinalizersLeft { message, .. }
            | Observation::ConversionLeft { message, .. } => self.send(Event::Note(message.clone())),
            Observation::WatchFailed { kind, error } => self.send(Event::Note(format!("cannot watch {kind}: {error}"))),
            _ => {}
        }
    }

    fn writes(&self, write: &Write) {
        let Some(cause) = &write.cause else { return };
        let body = match &write.op {
            WriteOp::Create { body, .. }
            | WriteOp::Apply { body, .. }
            | WriteOp::Patch { body, .. }
            | WriteOp::PatchStatus { body, .. } => body.clone(),
            WriteOp::Delete { .. } | WriteOp::Evict { .. } => "".into(),
        };
        let target = write.op.target().clone();
        let before = self.with(|known| known.objects.get(&target).map(|shown| shown.json.clone()));
        let write = Wrote { verb: write.op.verb(), target, body, before };
        self.send(Event::Writes { object: cause.object.clone(), write });
    }

    /// The newest change that concerns the object: itself, a child, or something of a kind that its last call read.
    fn calls(&self, object: &ObjectRef) {
        let woken_by = self.with(|known| {
            let reads = known.reads.get(object);
            let concerns = |change: &&ObjectRef| {
                let owned = known.objects.get(*change).is_some_and(|changed| changed.owner.as_ref() == Some(object));
                let read = || reads.is_some_and(|reads| reads.iter().any(|kind| *kind == change.kind.to_string()));
                **change == *object || owned || read()
            };
            let found = known.changes.iter().rposition(|change| concerns(&change));
            found.map(|at| known.changes.remove(at).to_string())
        });
        self.send(Event::Calls { object: object.clone(), woken_by });
    }
}

fn shown(object: &Object) -> Shown {
    let owner = object.controller.as_ref().map(|owner| ObjectRef {
        kind: owner.kind.clone(),
        name: Name { namespace: owner.namespace.clone(), name: owner.name.clone() },
    });
    Shown { json: object.json().clone(), owner, terminates: object.deleting }
}

/// The kind whose objects were read.
fn kind(dependency: &Dependency) -> Option<&Kind> {
    match dependency {
        Dependency::Get { target, .. } => Some(&target.kind),
        Dependency::Owned { kind, .. } | Dependency::Kind(kind) => Some(kind),
        Dependency::List(query) | Dependency::Keys(query) | Dependency::Count(query) => Some(&query.kind),
        Dependency::Now | Dependency::Config | Dependency::Rejected | Dependency::Replies => None,
    }
}

/// A read, for people.
fn described(dependency: &Dependency) -> String {
    match dependency {
        Dependency::Get { target, .. } => format!("get {target}"),
        Dependency::Owned { kind, .. } => format!("its own {kind}"),
        Dependency::List(query) => format!("list {}", query.kind),
        Dependency::Keys(query) => format!("names of {}", query.kind),
        Dependency::Count(query) => format!("number of {}", query.kind),
        Dependency::Now => "the time".to_owned(),
        Dependency::Config => "its configuration".to_owned(),
        Dependency::Rejected => "what was rejected".to_owned(),
        Dependency::Replies => "replies to its HTTP requests".to_owned(),
        Dependency::Kind(kind) => format!("whether {kind} is served"),
    }
}

impl Observer for Observed {
    fn event(&self, event: &HostEvent) {
        match event {
            HostEvent::Watch(_, WatchEvent::Applied(object)) => self.changed(object, false),
            HostEvent::Watch(_, WatchEvent::Deleted(object)) => self.changed(object, true),
            HostEvent::Watch(_, WatchEvent::Listed(objects)) => {
                objects.iter().for_each(|object| self.changed(object, false));
            }
            _ => {}
        }
    }

    fn effect(&self, effect: &Effect) {
        match effect {
            Effect::Call(call) => self.calls(&call.cause.object),
            Effect::Write(write) => self.writes(write),
            Effect::Observe(observation) => self.observation(observation),
            _ => {}
        }
    }

    fn called(&self, done: &JobDone) {
        let dependencies = || done.done.reads.iter().map(|(dependency, _)| dependency);
        let kinds: Vec<String> = dependencies().filter_map(kind).map(ToString::to_string).collect();
        let reads = dependencies().map(described).collect();
        self.with(|known| known.reads.insert(done.cause.object.clone(), kinds));
        let line = |line: &mortise_wasm::log::LogLine| {
            let fields = line.fields.iter().map(|(name, value)| format!(" {name}={value}")).collect::<String>();
            format!("{} {}{fields}", format!("{:?}", line.level).to_lowercase(), line.message)
        };
        self.send(Event::Called {
            object: done.cause.object.clone(),
            elapsed_us: done.done.elapsed_us,
            reads,
            logs: done.logs.iter().map(line).collect(),
        });
    }
}
