//! The runtime's part of one watch: its position in its kind's history, and its pending events.
//!
//! Events come in order and complete, as Kubernetes guarantees; but they come late, some twice, two changes of one
//! object in a row perhaps as one, and after a lost watch as a list. If a test wants it, some never come.

use std::collections::VecDeque;

use mortise_core::object::{Interner, Object, ResourceVersion};
use mortise_core::scope::Slice;
use mortise_core::watch::WatchEvent;
use mortise_core::well_known::SUCCESSORS_ANNOTATION;

use super::cluster::{Cluster, Record};

pub struct Watch {
    pub slice: Slice,
    /// Deliveries of an older epoch are void: their connection is closed.
    pub epoch: u64,
    pub connected: bool,
    pub pumping: bool,
    pub listed: bool,
    /// Everything up to this version has been delivered.
    pub delivered: u64,
    /// The version of the first list. No later list is older.
    pub first: Option<u64>,
    list: VecDeque<Notice>,
    /// The number of the slice's records that were delivered or listed.
    cursor: usize,
    /// The number of those that were listed.
    began: usize,
}

/// Objects of a list in one event: few, so that changes come between them.
const LISTED_TOGETHER: usize = 2;

#[derive(Clone, Debug)]
pub enum Notice {
    Listing,
    Listed(Vec<Record>),
    ListDone(u64),
    Changed(Record),
    Progress(u64),
}

impl Watch {
    pub fn new(slice: Slice, epoch: u64) -> Self {
        Self {
            slice,
            epoch,
            connected: false,
            pumping: false,
            listed: false,
            delivered: 0,
            first: None,
            list: VecDeque::new(),
            cursor: 0,
            began: 0,
        }
    }

    /// The API server's versions went backwards: resets the position. Returns the last delivered version.
    pub fn rewind(&mut self) -> u64 {
        self.first = None;
        std::mem::take(&mut self.delivered)
    }

    /// Closes the connection and voids its deliveries.
    pub fn disconnect(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.connected = false;
        self.pumping = false;
    }

    /// Lists the slice as of `version` and continues from there.
    pub fn relist(&mut self, cluster: &Cluster, version: u64) {
        self.connected = true;
        self.first.get_or_insert(version);
        self.list.clear();
        self.list.push_back(Notice::Listing);
        let records = cluster.list_at(&self.slice, version);
        self.list.extend(records.chunks(LISTED_TOGETHER).map(|records| Notice::Listed(records.to_vec())));
        self.list.push_back(Notice::ListDone(version));
        self.cursor = cluster.history(&self.slice).iter().take_while(|record| record.version <= version).count();
        self.began = self.cursor;
    }

    pub fn has_more(&self, cluster: &Cluster) -> bool {
        !self.list.is_empty() || (self.listed && self.cursor < cluster.history(&self.slice).len())
    }

    /// The next event.
    pub fn next(&mut self, cluster: &Cluster) -> Option<Notice> {
        if let Some(notice) = self.list.pop_front() {
            return Some(notice);
        }
        let record = cluster.history(&self.slice).get(self.cursor)?.clone();
        self.cursor += 1;
        Some(Notice::Changed(record))
    }

    /// Whether the next two changes are of one object, so that they may be coalesced.
    pub fn can_skip(&self, cluster: &Cluster) -> bool {
        let next = |ahead| cluster.history(&self.slice).get(self.cursor + ahead).map(|record: &Record| &record.target);
        self.list.is_empty() && next(0).is_some() && next(0) == next(1)
    }

    /// Whether the next event is a change.
    pub fn can_lose(&self, cluster: &Cluster) -> bool {
        self.list.is_empty() && self.has_more(cluster)
    }

    pub fn skip(&mut self) {
        self.cursor += 1;
    }

    /// A change that was delivered since the last list, to repeat it.
    pub fn earlier(&self, cluster: &Cluster, back: u64) -> Option<Notice> {
        let index = self.cursor.checked_sub(1 + usize::try_from(back).ok()?).filter(|index| *index >= self.began)?;
        cluster.history(&self.slice).get(index).cloned().map(Notice::Changed)
    }

    pub fn note(&mut self, notice: &Notice) {
        match notice {
            Notice::ListDone(version) => {
                self.listed = true;
                self.delivered = self.delivered.max(*version);
            }
            Notice::Changed(record) => self.delivered = self.delivered.max(record.version),
            Notice::Progress(version) => self.delivered = self.delivered.max(*version),
            Notice::Listing | Notice::Listed(_) => {}
        }
    }
}

impl Notice {
    /// For the mutant whose lists have no marks of successors.
    pub fn unmark(&mut self) {
        let Self::Listed(records) = self else { return };
        records.iter_mut().for_each(|record| record.text = record.text.replace(SUCCESSORS_ANNOTATION, "lost").into());
    }

    pub fn event(&self, interner: &mut Interner) -> WatchEvent {
        match self {
            Self::Listing => WatchEvent::Listing,
            Self::Listed(records) => {
                WatchEvent::Listed(records.iter().map(|record| *decode(record, interner)).collect())
            }
            Self::ListDone(version) => WatchEvent::ListDone(ResourceVersion(*version)),
            Self::Changed(record) if record.deleted => WatchEvent::Deleted(decode(record, interner)),
            Self::Changed(record) => WatchEvent::Applied(decode(record, interner)),
            Self::Progress(version) => WatchEvent::Progress(ResourceVersion(*version)),
        }
    }
}

fn decode(record: &Record, interner: &mut Interner) -> Box<Object> {
    Box::new(Object::decode(record.text.as_bytes(), interner).expect("the model sends valid objects"))
}
