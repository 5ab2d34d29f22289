//! The host's writes: each becomes a request of the cluster, unless the story refuses it, and a line of the transcript.

use std::sync::Arc;

use mortise_core::event::Event;
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::response::{self, Refused};
use mortise_core::write::{Precondition, Write, WriteOp};
use serde_json::Value;

use super::Story;
use super::generated::Drawn;
use crate::api::{Client, outcome};

/// Writes that the cluster answers with a refusal instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The object; the name "*" is every one of its kind in its namespace.
    pub target: ObjectRef,
    /// The HTTP status.
    pub code: u16,
    /// The status' reason.
    pub reason: String,
    /// The status' message.
    pub message: String,
    /// How many more writes it refuses; None: until [`Story::allow`].
    pub times: Option<u64>,
}

impl Denial {
    /// A refusal of every write of an object by admission, such as a quota's, until [`Story::allow`].
    pub fn forbidden(target: ObjectRef, message: impl Into<String>) -> Self {
        Self { target, code: 403, reason: "Forbidden".to_owned(), message: message.into(), times: None }
    }

    fn has(&self, target: &ObjectRef) -> bool {
        let of_kind = self.target.kind == target.kind && self.target.name.namespace == target.name.namespace;
        of_kind && (self.target.name == target.name || &*self.target.name.name == "*") && self.times != Some(0)
    }
}

impl Story {
    /// Revokes the host's rights for a kind. It notices at once.
    pub fn deny(&mut self, kind: &Kind) {
        self.api.denied.push(kind.clone());
        self.reopen_watches();
    }

    /// Refuses writes of the host.
    pub fn refuse(&mut self, denial: Denial) {
        self.denials.push(denial);
    }

    /// Gives all rights back, and refuses no write any more.
    pub fn allow(&mut self) {
        self.denials.clear();
        if !self.api.denied.is_empty() {
            self.api.denied.clear();
            self.reopen_watches();
        }
    }

    pub(super) fn write(&mut self, write: &Write) {
        let line = line(&write.op);
        let is_event = write.op.target().kind.group() == "events.k8s.io";
        if write.plugin.is_some() && !is_event {
            self.requests.push(line.clone());
        }
        if write.plugin.is_some() || is_event {
            self.log.push(if is_event { event_line(&write.op) } else { line });
        }
        self.sent += 1;
        let result = match self.prepared(write) {
            Ok(body) => self.api.execute(write, body),
            Err(refused) => outcome(refused, &write.op),
        };
        self.respond_with(Event::Wrote(write.id, result));
        self.crashes |= self.settings.crash_after == Some(self.sent);
    }

    /// The body of a write if it has generated values, unless the write is refused.
    fn prepared(&mut self, write: &Write) -> Result<Option<Arc<str>>, Refused> {
        let target = write.op.target();
        self.api.check(write.op.verb(), &target.kind)?;
        if let Some(denial) = self.denials.iter_mut().find(|denial| denial.has(target)) {
            denial.times = denial.times.map(|times| times - 1);
            let (code, reason, message) = (denial.code, denial.reason.clone(), denial.message.clone());
            return Err(Refused { code, reason, message, ..Refused::default() });
        }
        let WriteOp::Apply { target, body, only_if, draws: Some(draws), .. } = &write.op else { return Ok(None) };
        let live = match only_if {
            Precondition::Is(uid) | Precondition::Unchanged { uid, .. } => Some(self.live(target, uid)?),
            Precondition::Absent | Precondition::None => None,
        };
        Ok(Some(Drawn::new(self.sent).complete(body, live.as_ref(), draws).into()))
    }

    /// The object of this UID, for a write that keeps a part of it.
    fn live(&mut self, target: &ObjectRef, uid: &Arc<str>) -> Result<Value, Refused> {
        let live = self.api.get(Client::Host, target)?.filter(|live| live["metadata"]["uid"] == **uid);
        let message = "the object is gone, or another has its name".to_owned();
        live.ok_or_else(|| Refused { code: response::CONFLICT, message, ..Refused::default() })
    }
}

/// "create Pod default/a"; of a patch what it changes, too.
fn line(op: &WriteOp) -> String {
    let (verb, change) = match op {
        WriteOp::Create { .. } => ("create", String::new()),
        WriteOp::Apply { .. } => ("apply", String::new()),
        WriteOp::Delete { .. } => ("delete", String::new()),
        WriteOp::Evict { .. } => ("evict", String::new()),
        WriteOp::Patch { body, .. } => ("change", patched(body, "metadata", &["uid", "resourceVersion"])),
        WriteOp::PatchStatus { body, .. } => ("status", patched(body, "status", &[])),
    };
    format!("{verb} {}{change}", op.target())
}

/// A patch as text: of a status only that, without times, which say nothing.
fn patched(body: &str, part: &str, hidden: &[&str]) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(members) = body.get_mut(part).and_then(Value::as_object_mut) {
        members.retain(|name, _| !hidden.contains(&name.as_str()));
    }
    if part == "status" {
        body = body["status"].take();
        let conditions = body.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter_map(Value::as_object_mut) {
            condition.remove("lastTransitionTime");
        }
    }
    format!(" {body}")
}

fn event_line(op: &WriteOp) -> String {
    let (WriteOp::Apply { body, .. } | WriteOp::Create { body, .. }) = op else { return line(op) };
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let regarding = &body["regarding"];
    format!(
        "event {} {} about {} {}: {}",
        text(&body["type"]),
        text(&body["reason"]),
        text(&regarding["kind"]),
        text(&regarding["name"]),
        text(&body["note"])
    )
}
