//! The host's watches: lists and streams of the cluster become events of the engine, late by a moment, as over a connection.

use mortise_core::event::Event;
use mortise_core::object::{Object, ResourceVersion};
use mortise_core::response::Refused;
use mortise_core::scope::Slice;
use mortise_core::watch::WatchEvent;
use mortise_local_cluster::Watch;
use serde_json::Value;

use super::Story;
use super::due::Due;
use crate::clock::since_begin;

/// The delay of the first retry of a list that failed; it doubles up to a minute.
const RETRY_MS: u64 = 1_000;
const MAX_DOUBLED: u32 = 6;

/// One watch.
#[derive(Debug)]
pub(super) struct Open {
    /// What is due for an older epoch is void.
    epoch: u64,
    /// The resource, once it was listed.
    plural: Option<String>,
    stream: Option<Box<Watch>>,
    /// All changes up to this version were delivered.
    position: u64,
    /// When the stream is read, after a change.
    poll_at: Option<u64>,
    failures: u32,
}

impl Open {
    /// When the stream is read. A bookmark, or a new stream, says nothing to a watch that has the newest version.
    fn due_ms(&self, newest: u64) -> Option<u64> {
        let stream = self.stream.as_ref().filter(|_| self.position < newest);
        let bookmark = stream.map(|stream| since_begin(stream.due()));
        [self.poll_at, bookmark].into_iter().flatten().min()
    }
}

impl Story {
    /// Opens a watch, which begins with a list.
    pub(super) fn open(&mut self, slice: Slice) {
        self.epochs += 1;
        let epoch = self.epochs;
        let open = Open { epoch, plural: None, stream: None, position: 0, poll_at: None, failures: 0 };
        self.watches.insert(slice.clone(), open);
        let delay_ms = self.soon();
        self.schedule(delay_ms, Due::List(slice, epoch));
    }

    /// Ends the streams of kinds, so that they are opened again at once: with other rights perhaps.
    pub(super) fn reopen_watches(&mut self) {
        for slice in self.watches.keys().cloned().collect::<Vec<_>>() {
            self.open(slice);
        }
    }

    /// Lists a slice, and watches it from there on.
    pub(super) fn list(&mut self, slice: &Slice, epoch: u64) {
        if self.watches.get(slice).is_none_or(|open| open.epoch != epoch) {
            return;
        }
        let list: Value = match self.api.list(slice) {
            Ok(list) => list,
            Err(refused) => return self.failed(slice, &refused),
        };
        let resource = self.api.resource(&slice.kind).ok();
        let is_namespaced = resource.as_ref().is_some_and(|resource| resource.namespaced);
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        if self.settings.reversed {
            items.reverse();
        }
        let version = version_of(&list);
        let mut events = Vec::new();
        events.extend((!is_namespaced).then_some(WatchEvent::ClusterScoped));
        events.push(WatchEvent::Listing);
        events.extend(
            items.iter().map(|item| self.decoded(slice, &item.to_string(), |object| WatchEvent::Listed(vec![object]))),
        );
        events.push(WatchEvent::ListDone(ResourceVersion(version)));
        if let Some(open) = self.watches.get_mut(slice) {
            (open.position, open.failures) = (version, 0);
            open.plural = resource.map(|resource| resource.plural);
        }
        self.deliver_all(slice, events);
        self.stream(slice, epoch);
    }

    /// Opens the stream from the position.
    fn stream(&mut self, slice: &Slice, epoch: u64) {
        let Some(open) = self.watches.get(slice).filter(|open| open.epoch == epoch) else { return };
        match self.api.watch(slice, open.position) {
            Ok(stream) => {
                if let Some(open) = self.watches.get_mut(slice) {
                    open.stream = Some(stream);
                }
                // What changed since the list.
                self.wake_watch(slice);
            }
            Err(refused) => self.failed(slice, &refused),
        }
    }

    fn failed(&mut self, slice: &Slice, refused: &Refused) {
        let Some(open) = self.watches.get_mut(slice) else { return };
        let (epoch, delay_ms) = (open.epoch, RETRY_MS << open.failures.min(MAX_DOUBLED));
        (open.stream, open.poll_at) = (None, None);
        open.failures += 1;
        self.schedule(delay_ms, Due::List(slice.clone(), epoch));
        // The version is forgotten: a list says what is.
        if !refused.is_expired() {
            self.deliver_all(slice, vec![WatchEvent::Failed(refused.to_watch_error())]);
        }
    }

    fn wake_watch(&mut self, slice: &Slice) {
        let at = self.now_ms() + self.soon();
        if let Some(open) = self.watches.get_mut(slice).filter(|open| open.stream.is_some()) {
            open.poll_at.get_or_insert(at);
        }
    }

    /// Something changed in the cluster: an object of each of some resources.
    pub(super) fn wake_watches(&mut self, changed: impl Fn(&str) -> bool) {
        let of_changed = |open: &Open| open.plural.as_deref().is_none_or(&changed);
        let woken: Vec<Slice> =
            self.watches.iter().filter(|(_, open)| of_changed(open)).map(|(slice, _)| slice.clone()).collect();
        for slice in woken {
            self.wake_watch(&slice);
        }
    }

    /// Reads every stream to the end of the log; false when that changed something, so that there is more.
    pub(super) fn read_all(&mut self) -> bool {
        let before = self.api.cluster.revision();
        let all: Vec<(Slice, u64)> = self.watches.iter().map(|(slice, open)| (slice.clone(), open.epoch)).collect();
        for (slice, epoch) in all {
            self.read(&slice, epoch);
        }
        self.api.cluster.revision() == before
    }

    pub(super) fn next_poll(&self) -> Option<u64> {
        let newest = self.api.cluster.revision();
        self.watches.values().filter_map(|open| open.due_ms(newest)).min()
    }

    /// Reads the streams that are due.
    pub(super) fn poll(&mut self) {
        let (now_ms, newest) = (self.now_ms(), self.api.cluster.revision());
        let is_due = |open: &Open| open.due_ms(newest).is_some_and(|due_ms| due_ms <= now_ms);
        let due: Vec<(Slice, u64)> = self
            .watches
            .iter()
            .filter(|(_, open)| is_due(open))
            .map(|(slice, open)| (slice.clone(), open.epoch))
            .collect();
        for (slice, epoch) in due {
            self.read(&slice, epoch);
        }
    }

    fn read(&mut self, slice: &Slice, epoch: u64) {
        let Some(open) = self.watches.get_mut(slice).filter(|open| open.epoch == epoch) else { return };
        open.poll_at = None;
        let Some(stream) = &mut open.stream else { return };
        for frame in self.api.poll(stream) {
            let Some(seen) = frame else {
                if let Some(open) = self.watches.get_mut(slice) {
                    open.stream = None;
                }
                return self.stream(slice, epoch);
            };
            let text = seen.object.get();
            let event = match &*seen.event {
                "ERROR" => {
                    let refused = Refused::from_status(text.as_bytes()).unwrap_or_default();
                    return self.failed(slice, &refused);
                }
                "BOOKMARK" => WatchEvent::Progress(ResourceVersion(version_of(&seen.tree()))),
                "DELETED" => self.decoded(slice, text, |object| WatchEvent::Deleted(Box::new(object))),
                _ => self.decoded(slice, text, |object| WatchEvent::Applied(Box::new(object))),
            };
            let version = match &event {
                WatchEvent::Applied(object) | WatchEvent::Deleted(object) => object.resource_version.0,
                _ => version_of(&seen.tree()),
            };
            if let Some(open) = self.watches.get_mut(slice) {
                open.position = version;
            }
            self.deliver_all(slice, vec![event]);
            if self.watches.get(slice).is_none_or(|open| open.epoch != epoch) {
                return;
            }
        }
    }

    fn decoded(&mut self, slice: &Slice, text: &str, event: impl FnOnce(Object) -> WatchEvent) -> WatchEvent {
        match Object::decode_as(&slice.kind, text.as_bytes(), &mut self.interner) {
            Ok(object) => {
                self.wakes.changed(&object);
                event(object)
            }
            Err(error) => WatchEvent::Undecodable { message: error.to_string() },
        }
    }

    fn deliver_all(&mut self, slice: &Slice, events: Vec<WatchEvent>) {
        for event in events {
            self.deliver(Event::Watch(slice.clone(), event));
        }
    }
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}
