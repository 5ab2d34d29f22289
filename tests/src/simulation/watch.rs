//! The shell's side of one watched kind: where it is in the kind's history, and what it has still to tell.
//!
//! Events come in order and none is left out, as Kubernetes promises; but they come late, some twice, two adjoining
//! changes of one object perhaps as one, and after a lost watch as a list. Where a test wants it, some never come.

use std::collections::VecDeque;

use mortise_core::object::{Interner, Kind, Object, ResourceVersion};
use mortise_core::watch::WatchEvent;

use super::cluster::{Cluster, Record};

/// One watch.
#[derive(Debug)]
pub struct Watch {
    pub kind: Kind,
    /// Deliveries of an older epoch are void: the connection that they came by is gone.
    pub epoch: u64,
    /// Whether there is a connection that events could come by.
    pub connected: bool,
    /// Whether a delivery is scheduled.
    pub pumping: bool,
    /// Whether the first list is complete.
    pub listed: bool,
    /// Everything up to this version has been delivered.
    pub delivered: u64,
    /// The version of the first list. No later one is from before it.
    pub first: Option<u64>,
    list: VecDeque<Notice>,
    /// How much of the kind's history was delivered or listed.
    cursor: usize,
    /// How much of it was listed.
    began: usize,
}

/// One thing that a watch tells.
#[derive(Clone, Debug)]
pub enum Notice {
    Listing,
    Listed(Record),
    ListDone(u64),
    Changed(Record),
    Progress(u64),
}

impl Watch {
    pub fn new(kind: Kind, epoch: u64) -> Self {
        Self {
            kind,
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

    /// The API server's versions went backwards: how far this watch had come before counts no more, which is the answer.
    pub fn rewind(&mut self) -> u64 {
        self.first = None;
        std::mem::take(&mut self.delivered)
    }

    /// The connection is gone; what was to come by it is void.
    pub fn disconnect(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.connected = false;
        self.pumping = false;
    }

    /// Lists the kind as it was at `version` and goes on from there.
    pub fn relist(&mut self, cluster: &Cluster, version: u64) {
        self.connected = true;
        self.first.get_or_insert(version);
        self.list.clear();
        self.list.push_back(Notice::Listing);
        self.list.extend(cluster.list_at(&self.kind, version).into_iter().map(Notice::Listed));
        self.list.push_back(Notice::ListDone(version));
        self.cursor = cluster.history(&self.kind).iter().take_while(|record| record.version <= version).count();
        self.began = self.cursor;
    }

    /// Whether it has anything to tell.
    pub fn has_more(&self, cluster: &Cluster) -> bool {
        !self.list.is_empty() || (self.listed && self.cursor < cluster.history(&self.kind).len())
    }

    /// The next thing to tell.
    pub fn next(&mut self, cluster: &Cluster) -> Option<Notice> {
        if let Some(told) = self.list.pop_front() {
            return Some(told);
        }
        let record = cluster.history(&self.kind).get(self.cursor)?;
        self.cursor += 1;
        Some(Notice::Changed(record.clone()))
    }

    /// Whether the next two changes are of one object, so that they may come as one.
    pub fn can_skip(&self, cluster: &Cluster) -> bool {
        let next = |ahead| cluster.history(&self.kind).get(self.cursor + ahead).map(|record: &Record| &record.target);
        self.list.is_empty() && next(0).is_some() && next(0) == next(1)
    }

    /// Whether the next thing to tell is a change.
    pub fn can_lose(&self, cluster: &Cluster) -> bool {
        self.list.is_empty() && self.has_more(cluster)
    }

    /// Leaves out the next change.
    pub fn skip(&mut self) {
        self.cursor += 1;
    }

    /// A change that was told since the last list, to be told again.
    pub fn earlier(&self, cluster: &Cluster, back: u64) -> Option<Notice> {
        let index = self.cursor.checked_sub(1 + usize::try_from(back).ok()?).filter(|index| *index >= self.began)?;
        Some(Notice::Changed(cluster.history(&self.kind).get(index)?.clone()))
    }

    /// Keeps count of what was delivered.
    pub fn note(&mut self, told: &Notice) {
        match told {
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
    /// As the driver hears it.
    pub fn event(&self, interner: &mut Interner) -> WatchEvent {
        match self {
            Self::Listing => WatchEvent::Listing,
            Self::Listed(record) => WatchEvent::Listed(decode(record, interner)),
            Self::ListDone(version) => WatchEvent::ListDone(ResourceVersion(*version)),
            Self::Changed(record) if record.deleted => WatchEvent::Deleted(decode(record, interner)),
            Self::Changed(record) => WatchEvent::Applied(decode(record, interner)),
            Self::Progress(version) => WatchEvent::Progress(ResourceVersion(*version)),
        }
    }
}

fn decode(record: &Record, interner: &mut Interner) -> Box<Object> {
    Box::new(Object::decode(record.text.as_bytes(), interner).expect("the model sends whole objects"))
}
