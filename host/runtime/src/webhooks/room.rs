//! The memory of webhook requests, in bytes: what has arrived of bodies, what is kept of them while they are answered, and what
//! has not been read of responses. Peers, bytes and the time come in; what there is room for comes out. It must know no
//! sockets, no clock and no JSON.
//!
//! Nothing is reserved for what a peer declares. What waits for a peer, an incomplete body or a response that is not
//! read, gives way to others after a second. A body gives way before that if its peer has more than they, also one that
//! is whole while nothing works on it. So no peer keeps out another one that has less, but for the time of a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::heap::given;
use tokio::sync::Notify;

use crate::server::MAX_BODY_BYTES;
use crate::server::peer::Peer;

#[cfg(test)]
mod tests;

/// After so long what waits for its peer gives way. API servers send and read within milliseconds.
const GIVES_WAY: Duration = Duration::from_secs(1);
/// A small request: six times a typical review.
pub(super) const SMALL_BYTES: usize = 64 << 10;
/// What only small requests have: one for each place among the requests.
const FOR_SMALL: usize = 8 << 20;
/// The first piece of a body may be a byte.
const LEAST_CAPACITY: usize = 1 << 10;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) all: usize,
    /// Of a peer alone. Beside others it has, for large requests, the same multiple of what is left for these: of four
    /// fifths, four times that. So two peers have four ninths each, three four thirteenths, and one that took its part
    /// earlier gets no more until the others have theirs.
    pub(super) of_peer: usize,
}

impl Limits {
    /// Whether a request may take so much, with which its peer and all together have so much.
    fn allow(self, request: usize, of_peer: usize, all: usize) -> bool {
        if request <= SMALL_BYTES {
            return all <= self.all && of_peer <= self.of_peer;
        }
        let large = self.all - FOR_SMALL;
        let left = large.checked_sub(all);
        left.is_some_and(|left| of_peer * (large - self.of_peer) <= left * self.of_peer)
    }
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
    /// Its body is whole, and it is being answered. This says when it has given way.
    Whole {
        working: usize,
        given_way: Arc<Notify>,
    },
    /// Its response has not been read; the connection is closed by this.
    Unread(Arc<Notify>),
}

impl Held {
    /// Whether it waits for its peer, for so long that it gives way to anybody.
    fn is_late(&self, now: Instant) -> bool {
        let waits = !matches!(self.stage, Stage::Whole { .. });
        waits && now.saturating_duration_since(self.since) >= GIVES_WAY
    }

    /// Whether it gives way to a peer that has less. A response that is not read yet is a review that was answered, and
    /// what is worked on keeps its memory until that ends.
    fn gives_way_to_less(&self) -> bool {
        matches!(self.stage, Stage::Arriving(_) | Stage::Whole { working: 0, .. })
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
        // A quarter more at least, so that a body in small pieces is moved a few times.
        let capacity = if length <= had {
            had
        } else {
            given(length.max((had + had / 4).min(MAX_BODY_BYTES)).max(LEAST_CAPACITY))
        };
        if !self.grow(id, capacity - had, now) {
            return false;
        }
        let Some(Held { stage: Stage::Arriving(body), .. }) = self.held.get_mut(&id) else { return false };
        body.reserve_exact(capacity - body.len());
        body.extend_from_slice(piece);
        true
    }

    /// Takes the body, which is whole. Its bytes stay counted. None when it has given way; if it does later, it says
    /// so.
    pub(super) fn whole(&mut self, id: Id, given_way: Arc<Notify>) -> Option<Vec<u8>> {
        let held = self.held.get_mut(&id)?;
        match std::mem::replace(&mut held.stage, Stage::Whole { working: 0, given_way }) {
            Stage::Arriving(body) => Some(body),
            Stage::Whole { .. } | Stage::Unread(_) => None,
        }
    }

    /// Something begins to work on a request, which does not give way meanwhile. False when it has, or is answered.
    pub(super) fn begin_work(&mut self, id: Id) -> bool {
        let Some(Held { stage: Stage::Whole { working, .. }, .. }) = self.held.get_mut(&id) else { return false };
        *working += 1;
        true
    }

    pub(super) fn end_work(&mut self, id: Id) {
        if let Some(Held { stage: Stage::Whole { working, .. }, .. }) = self.held.get_mut(&id) {
            *working = working.saturating_sub(1);
        }
    }

    /// Counts more bytes for a request, if there is room. Others give way if that makes enough of it.
    pub(super) fn grow(&mut self, id: Id, more: usize, now: Instant) -> bool {
        let Some(giving_way) = self.giving_way(id, more, now) else { return false };
        for other in giving_way {
            if let Some(Held { stage: Stage::Whole { given_way: notice, .. } | Stage::Unread(notice), .. }) =
                self.take(other)
            {
                notice.notify_one();
            }
        }
        self.add(id, more);
        true
    }

    /// Those that have to give way. None when all that may are not enough.
    fn giving_way(&self, id: Id, more: usize, now: Instant) -> Option<Vec<Id>> {
        let Held { peer, bytes, .. } = *self.held.get(&id)?;
        let of = |peer: Peer| self.by_peer.get(&peer).copied().unwrap_or_default();
        let (wanted, mut own, mut all) = (bytes + more, of(peer) + more, self.all + more);
        let mut chosen = Vec::new();
        if self.limits.allow(wanted, own, all) {
            return Some(chosen);
        }
        let others = self.held.iter().filter(|(other, held)| **other != id && held.bytes > 0);
        let mut others: Vec<_> = others.filter(|(_, held)| held.is_late(now) || held.gives_way_to_less()).collect();
        // Late ones first, its peer's own before; then those of the peer with the most. Of these the oldest.
        others.sort_by_key(|(_, held)| match held.is_late(now) {
            true => (0, usize::from(held.peer != peer), held.since),
            false => (1, usize::MAX - of(held.peer), held.since),
        });
        let mut gone: BTreeMap<Peer, usize> = BTreeMap::new();
        for (other, held) in others {
            let gone = gone.entry(held.peer).or_default();
            let has_more = held.peer != peer && of(held.peer) - *gone > own;
            if !(held.is_late(now) || has_more) {
                continue;
            }
            chosen.push(*other);
            *gone += held.bytes;
            all -= held.bytes;
            own -= if held.peer == peer { held.bytes } else { 0 };
            if self.limits.allow(wanted, own, all) {
                return Some(chosen);
            }
        }
        None
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
        if !self.set(id, given(bytes.max(LEAST_CAPACITY)), now) {
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
