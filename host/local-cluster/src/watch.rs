//! Watches: a place in the log of changes and what to send from there. Input: the cluster. Output: frames. It must not know
//! how frames travel.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::halt::{Answer, Halt, Reply, Status};
use crate::output::{Output, Texts};
use crate::resource::Resource;
use crate::selector::{Fields, Labels};
use crate::store::{Change, Event, Object};
use crate::{Cluster, definition};

/// How often a bookmark is sent to a watch that wants them and has nothing else.
const BOOKMARK_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// How many frames one poll sends, so that a long log does not stop others.
const MAX_FRAMES: usize = 500;

/// One open watch.
#[derive(Clone, Debug)]
pub struct Watch {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
    pub(crate) output: Output,
    pub(crate) bookmarks: bool,
    /// Objects that were there when the watch began, still to be sent as ADDED.
    pub(crate) initial: VecDeque<Arc<Object>>,
    /// Whether the end of the initial objects is still to be marked (`sendInitialEvents`).
    pub(crate) marks_end: bool,
    /// All changes up to this version were sent.
    pub(crate) position: u64,
    pub(crate) ends_at: Timestamp,
    pub(crate) next_bookmark: Timestamp,
    pub(crate) ended: bool,
    /// Whether a table was sent: the first one alone says its columns.
    pub(crate) has_columns: bool,
}

/// What a watch sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// One event, `{"type": …, "object": …}`, as a JSON document without a line end.
    Event(String),
    /// The stream ends.
    End,
}

/// What the frames of one poll are made with.
struct By<'a> {
    answers: &'a [Answer],
    now: Timestamp,
}

impl Watch {
    /// When the watch has something to send though nothing changed: a bookmark, or its end.
    pub fn due(&self) -> Timestamp {
        if self.bookmarks { self.next_bookmark.min(self.ends_at) } else { self.ends_at }
    }

    fn selects(&self, object: &Object) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| **namespace == *object.namespace())
            && selects(object, &self.labels, &self.fields)
    }

    fn frame(&mut self, cluster: &Cluster, kind: &str, object: &Object, by: &By<'_>) -> Result<Frame, Halt> {
        if let (Output::Whole, Some(text)) = (self.output, Texts::of(&self.resource).object(object)) {
            return Ok(Frame::Event(format!("{{\"type\":\"{kind}\",\"object\":{text}}}")));
        }
        let stored = object.read();
        let value = definition::at_version(cluster, &self.resource, &stored, by.answers)?;
        let mut object = self.output.object(&self.resource, &value, by.now);
        if matches!(self.output, Output::Table(_)) && std::mem::replace(&mut self.has_columns, true) {
            object["columnDefinitions"] = Value::Null;
        }
        Ok(event(kind, &object))
    }

    /// What a change is to this watch: an object that comes into its selection is added, one that leaves it is deleted.
    fn event(&mut self, cluster: &Cluster, change: &Change, by: &By<'_>) -> Result<Option<Frame>, Halt> {
        if change.storage != self.resource.storage {
            return Ok(None);
        }
        let before = change.previous.as_ref().filter(|object| self.selects(object));
        let selected = change.event != Event::Deleted && self.selects(&change.object);
        let frame = match (before, selected) {
            (None, false) => return Ok(None),
            (None, true) => self.frame(cluster, "ADDED", &change.object, by),
            (Some(_), true) => self.frame(cluster, "MODIFIED", &change.object, by),
            (Some(_), false) if change.event == Event::Deleted => self.frame(cluster, "DELETED", &change.object, by),
            (Some(before), false) => {
                // The last state that was selected, with the version of the change.
                let mut value = before.read().into_owned();
                value["metadata"]["resourceVersion"] = change.revision.to_string().into();
                self.frame(cluster, "DELETED", &Object::new(value, change.revision), by)
            }
        };
        frame.map(Some)
    }

    fn bookmark(&self, ends_initial: bool, now: Timestamp) -> Frame {
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        event("BOOKMARK", &self.output.bookmark(&self.resource, metadata, now))
    }

    /// What is sent when a frame cannot be made: the frames before it, then the webhook is asked that has to convert it. An
    /// object that cannot be converted ends the watch.
    fn halted(&mut self, mut frames: Vec<Frame>, halt: Halt) -> Reply<Vec<Frame>> {
        match halt {
            Halt::Call(call) if frames.is_empty() => return Reply::Call(call),
            Halt::Call(_) => {}
            Halt::Status(status) => self.end(&mut frames, Some(&status)),
        }
        Reply::Done(frames)
    }

    fn end(&mut self, frames: &mut Vec<Frame>, why: Option<&Status>) {
        self.ended = true;
        frames.extend(why.map(|status| event("ERROR", &status.to_json())));
        frames.push(Frame::End);
    }
}

fn event(kind: &str, object: &Value) -> Frame {
    Frame::Event(json!({"type": kind, "object": object}).to_string())
}

/// Whether the selectors of a list or a watch choose an object.
pub(crate) fn selects(object: &Object, labels: &Labels, fields: &Fields) -> bool {
    labels.matches(object.labels()) && (fields.0.is_empty() || fields.matches(&object.read()))
}

/// The frames that are due. After [`Frame::End`] there are none.
pub(crate) fn poll(cluster: &Cluster, watch: &mut Watch, answers: &[Answer], now: Timestamp) -> Reply<Vec<Frame>> {
    let (by, mut frames) = (By { answers, now }, Vec::new());
    if watch.ended {
        return Reply::Done(frames);
    }
    while let Some(object) = watch.initial.front().cloned() {
        match watch.frame(cluster, "ADDED", &object, &by) {
            Ok(frame) => frames.push(frame),
            Err(halt) => return watch.halted(frames, halt),
        }
        watch.initial.pop_front();
        if frames.len() >= MAX_FRAMES {
            return Reply::Done(frames);
        }
    }
    if std::mem::take(&mut watch.marks_end) {
        frames.push(watch.bookmark(true, now));
    }
    if watch.position < cluster.store.compacted() {
        let why = format!("too old resource version: {} ({})", watch.position, cluster.store.compacted());
        watch.end(&mut frames, Some(&Status::expired(why)));
        return Reply::Done(frames);
    }
    for change in cluster.store.changes(watch.position) {
        match watch.event(cluster, change, &by) {
            Ok(frame) => frames.extend(frame),
            Err(halt) => return watch.halted(frames, halt),
        }
        watch.position = change.revision;
        if frames.len() >= MAX_FRAMES {
            return Reply::Done(frames);
        }
    }
    let served = cluster.resource(&watch.resource.group, &watch.resource.version, &watch.resource.plural);
    if now >= watch.ends_at || served.is_none() {
        watch.end(&mut frames, None);
    } else if watch.bookmarks && now >= watch.next_bookmark {
        frames.push(watch.bookmark(false, now));
        watch.next_bookmark = now + BOOKMARK_EVERY;
    }
    Reply::Done(frames)
}

/// When the first bookmark of a watch is due.
pub(crate) fn first_bookmark(now: Timestamp) -> Timestamp {
    now + BOOKMARK_EVERY
}
