//! The memory of webhook requests, in bytes: what has arrived of bodies, what is kept of them while they are answered, and what
//! has not been read of responses. Peers, bytes and the time come in; what there is room for comes out. It must know no
//! sockets, no clock and no JSON.
//!
//! Nothing is reserved for what a peer declares. What waits for a peer, an incomplete body or a response that is not read, gives
//! way to others after a second; a body also before that if its peer has more than they. So no peer keeps another one's
//! small review out, and a large one needs the room that there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::server::MAX_BODY_BYTES;
use crate::server::peer::Peer;

#[cfg(test)]
mod tests;

/// After so long what waits for its peer gives way. API servers send and read within milliseconds.
const GIVES_WAY: Duration = Duration::from_secs(1);
/// A small request: six times a typical review.
const SMALL_BYTES: usize = 64 << 10;
/// What only small requests have: one for each place among the requests.
const FOR_SMALL: usize = 8 << 20;
/// The first piece of a body may be a byte.
const LEAST_CAPACITY: usize = 1 << 10;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) all: usize,
    pub(super) of_peer: usize,
}

/// A request in the room.
pub(super) type Id = u64;

/// The requests that take some of it.
#[derive(Debug)]
pub(super) struct Room {
    limits: Limits,
    held: BTreeMap<Id, Held>,
    by_peer: BTreeMap<Peer, usize>,
    all: usize,
    next: Id,
}

#[derive(Debug)]
struct Held {
    peer: Peer,
    /// All that it takes, with its body.
    bytes: usize,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Arriving(Vec<u8>),
    /// Its body is whole; it is being answered.
    Whole,
    /// Its response has not been read; the connection is closed by this.
    Unread(Arc<Notify>),
}

impl Held {
    fn waits_for_peer(&self) -> bool {
        !matches!(self.stage, Stage::Whole)
    }
}

impl Room {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, held: BTreeMap::new(), by_peer: BTreeMap::new(), all: 0, next: 0 }
    }

    /// A request whose body begins to arrive.
    pub(super) fn begin(&mut self, peer: Peer, now: Instant) -> Id {
        let id = self.next;
        self.next += 1;
        self.held.insert(id, Held { peer, bytes: 0, since: now, stage: Stage::Arriving(Vec::new()) });
        id
    }

    /// Adds what has arrived of its body. False when there is no room, or it has given way.
    pub(super) fn arrived(&mut self, id: Id, piece: &[u8], now: Instant) -> bool {
        let Some(Held { stage: Stage::Arriving(body), .. }) = self.held.get(&id) else { return false };
        let (had, length) = (body.capacity(), body.len() + piece.len());
        // Half as much more, so that a body in small pieces is moved a few times.
        let capacity =
            if length <= had { had } else { length.max((had + had / 2).min(MAX_BODY_BYTES)).max(LEAST_CAPACITY) };
        if !self.grow(id, capacity - had, now) {
            return false;
        }
        let Some(Held { stage: Stage::Arriving(body), .. }) = self.held.get_mut(&id) else { return false };
        body.reserve_exact(capacity - body.len());
        body.extend_from_slice(piece);
        true
    }

    /// Takes the body, which is whole. Its bytes stay counted. None when it has given way.
    pub(super) fn whole(&mut self, id: Id) -> Option<Vec<u8>> {
        let held = self.held.get_mut(&id)?;
        match std::mem::replace(&mut held.stage, Stage::Whole) {
            Stage::Arriving(body) => Some(body),
            Stage::Whole | Stage::Unread(_) => None,
        }
    }

    /// Counts more bytes for a request, if there is room.
    pub(super) fn grow(&mut self, id: Id, more: usize, now: Instant) -> bool {
        let Some(Held { peer, bytes, .. }) = self.held.get(&id) else { return false };
        let (peer, wanted) = (*peer, bytes + more);
        let all = self.limits.all - if wanted > SMALL_BYTES { FOR_SMALL } else { 0 };
        loop {
            let of_peer = self.by_peer.get(&peer).copied().unwrap_or_default() + more;
            let gives_way = if of_peer > self.limits.of_peer {
                self.first_that_gives_way(|held| held.peer == peer && Self::is_late(held, now), id)
            } else if self.all + more > all {
                // A response that is not read yet is a review that was answered.
                let has_more = |held: &Held| {
                    let is_arriving = matches!(held.stage, Stage::Arriving(_));
                    is_arriving && held.peer != peer && self.by_peer[&held.peer] > of_peer
                };
                let late = self.first_that_gives_way(|held| Self::is_late(held, now), id);
                late.or_else(|| self.first_that_gives_way(has_more, id))
            } else {
                self.add(id, more);
                return true;
            };
            let Some(other) = gives_way else { return false };
            if let Some(Held { stage: Stage::Unread(connection), .. }) = self.take(other) {
                connection.notify_one();
            }
        }
    }

    /// Counts fewer.
    pub(super) fn shrink(&mut self, id: Id, less: usize) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let less = less.min(held.bytes);
        held.bytes -= less;
        let peer = held.peer;
        self.remove(peer, less);
    }

    /// It takes so many bytes from now on. False when there is no room for them.
    pub(super) fn set(&mut self, id: Id, bytes: usize, now: Instant) -> bool {
        let Some(Held { bytes: had, .. }) = self.held.get(&id) else { return false };
        let had = *had;
        if bytes > had {
            return self.grow(id, bytes - had, now);
        }
        self.shrink(id, had - bytes);
        true
    }

    /// Its response of so many bytes is sent, and nothing else is kept of it. False when there is no room.
    pub(super) fn unread(&mut self, id: Id, bytes: usize, connection: Arc<Notify>, now: Instant) -> bool {
        if !self.set(id, bytes, now) {
            return false;
        }
        if let Some(held) = self.held.get_mut(&id) {
            (held.stage, held.since) = (Stage::Unread(connection), now);
        }
        true
    }

    /// Nothing of it is kept any more.
    pub(super) fn end(&mut self, id: Id) {
        self.take(id);
    }

    fn take(&mut self, id: Id) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.remove(held.peer, held.bytes);
        Some(held)
    }

    /// All that is taken.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.all
    }

    /// The oldest of those that may give way, but this one.
    fn first_that_gives_way(&self, may: impl Fn(&Held) -> bool, but: Id) -> Option<Id> {
        let candidates = self.held.iter().filter(|(id, held)| **id != but && held.bytes > 0 && held.waits_for_peer());
        candidates.filter(|(_, held)| may(held)).min_by_key(|(_, held)| held.since).map(|(id, _)| *id)
    }

    fn is_late(held: &Held, now: Instant) -> bool {
        now.saturating_duration_since(held.since) >= GIVES_WAY
    }

    fn add(&mut self, id: Id, more: usize) {
        if let Some(held) = self.held.get_mut(&id) {
            held.bytes += more;
            *self.by_peer.entry(held.peer).or_default() += more;
            self.all += more;
        }
    }

    fn remove(&mut self, peer: Peer, less: usize) {
        self.all -= less;
        if let Some(bytes) = self.by_peer.get_mut(&peer) {
            *bytes -= less;
            if *bytes == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}
