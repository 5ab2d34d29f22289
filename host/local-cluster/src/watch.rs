//! Watches: a place in the log of changes and what to send from there. Input: the cluster. Output: frames. It must not know
//! how frames travel.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::halt::Status;
use crate::output::Output;
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
    pub(crate) initial: Vec<Arc<Object>>,
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
    /// One event, `{"type": …, "object": …}`.
    Event(Value),
    /// The stream ends.
    End,
}

impl Watch {
    /// When the watch has something to send though nothing changed: a bookmark, or its end.
    pub fn due(&self) -> Timestamp {
        if self.bookmarks { self.next_bookmark.min(self.ends_at) } else { self.ends_at }
    }

    fn selects(&self, object: &Object) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| **namespace == *object.namespace())
            && self.labels.matches(&object.value["metadata"]["labels"])
            && self.fields.matches(&object.value)
    }

    fn frame(&mut self, cluster: &Cluster, kind: &str, object: &Object, now: Timestamp) -> Frame {
        // A webhook cannot be asked while a watch is polled: what only it could convert stays as it is stored.
        let value = definition::at_version(cluster, &self.resource, &object.value, &[]);
        let value = value.unwrap_or(Cow::Borrowed(&object.value));
        let mut object = self.output.object(&self.resource, &value, now);
        if matches!(self.output, Output::Table(_)) && std::mem::replace(&mut self.has_columns, true) {
            object["columnDefinitions"] = Value::Null;
        }
        Frame::Event(json!({"type": kind, "object": object}))
    }

    /// What a change is to this watch: an object that comes into its selection is added, one that leaves it is deleted.
    fn event(&mut self, cluster: &Cluster, change: &Change, now: Timestamp) -> Option<Frame> {
        if change.storage != self.resource.storage {
            return None;
        }
        let selected_before = change.previous.as_ref().is_some_and(|object| self.selects(object));
        let selected = change.event != Event::Deleted && self.selects(&change.object);
        match (selected_before, selected) {
            (false, false) => None,
            (false, true) => Some(self.frame(cluster, "ADDED", &change.object, now)),
            (true, true) => Some(self.frame(cluster, "MODIFIED", &change.object, now)),
            (true, false) if change.event == Event::Deleted => {
                Some(self.frame(cluster, "DELETED", &change.object, now))
            }
            (true, false) => {
                // The last state that was selected, with the version of the change.
                let mut value = change.previous.as_ref()?.value.clone();
                value["metadata"]["resourceVersion"] = change.revision.to_string().into();
                Some(self.frame(cluster, "DELETED", &Object { value, revision: change.revision }, now))
            }
        }
    }

    fn bookmark(&self, ends_initial: bool) -> Frame {
        let mut metadata = json!({"resourceVersion": self.position.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.output.bookmark(&self.resource, metadata);
        Frame::Event(json!({"type": "BOOKMARK", "object": object}))
    }
}

/// The frames that are due. After [`Frame::End`] there are none.
pub(crate) fn poll(cluster: &Cluster, watch: &mut Watch, now: Timestamp) -> Vec<Frame> {
    let mut frames = Vec::new();
    if watch.ended {
        return frames;
    }
    let initial = std::mem::take(&mut watch.initial);
    for object in &initial {
        frames.push(watch.frame(cluster, "ADDED", object, now));
    }
    if std::mem::take(&mut watch.marks_end) {
        frames.push(watch.bookmark(true));
    }
    if watch.position < cluster.store.compacted() {
        let compacted = cluster.store.compacted();
        let status = Status::expired(format!("too old resource version: {} ({compacted})", watch.position));
        frames.push(Frame::Event(json!({"type": "ERROR", "object": status.to_json()})));
        return end(watch, frames);
    }
    for change in cluster.store.changes(watch.position) {
        watch.position = change.revision;
        frames.extend(watch.event(cluster, change, now));
        if frames.len() >= MAX_FRAMES {
            return frames;
        }
    }
    let served = cluster.resource(&watch.resource.group, &watch.resource.version, &watch.resource.plural);
    if now >= watch.ends_at || served.is_none() {
        return end(watch, frames);
    }
    if watch.bookmarks && now >= watch.next_bookmark {
        frames.push(watch.bookmark(false));
        watch.next_bookmark = now + BOOKMARK_EVERY;
    }
    frames
}

fn end(watch: &mut Watch, mut frames: Vec<Frame>) -> Vec<Frame> {
    watch.ended = true;
    frames.push(Frame::End);
    frames
}

/// When the first bookmark of a watch is due.
pub(crate) fn first_bookmark(now: Timestamp) -> Timestamp {
    now + BOOKMARK_EVERY
}
