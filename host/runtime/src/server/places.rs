//! Which connections of a listener have a place, and which wait for one. Accepted connections come in, with their peers'
//! addresses and the time; the one to close for a newer one comes out. It must know no sockets and no clock.
//!
//! Clients behind one NAT are one peer and share its places, as do all clients where the
//! network hides their addresses.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::peer::Peer;

#[cfg(test)]
mod tests;

/// Connections of one listener. An API server keeps some two dozen for webhooks, a Prometheus one, a kubelet none. The others are
/// for connections that have shown nothing yet: each has half a second, so a thousand peers are through in one. A connection
/// takes 50 KiB at most, with the buffers of its head and of TLS.
pub(crate) const MAX_CONNECTIONS: usize = 512;
/// Those of one peer: more than an API server's requests in flight, since a peer has fewer permits for these
/// (`webhooks/capacity.rs`). The rest is for others, at once and without closing any.
pub(crate) const MAX_OF_PEER: usize = 384;
/// Half of the places are for connections that were answered or verified: while these have no more, none of them is closed for
/// another peer.
const KEPT: usize = MAX_CONNECTIONS / 2;
/// Accepted connections that wait for a place, each an open file and nothing else. Beyond, the peer with the most loses
/// its oldest one. Three listeners with all of theirs take 2,688 files; a process may have 4,096 or more.
const MAX_WAITING: usize = 384;
/// Those of one peer: with its places as many as the 200 requests that an API server has in flight by default that change
/// something, and the 400 others, whose objects may be converted.
const MAX_WAITING_OF_PEER: usize = 256;
/// Clients give up about as early.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What a connection has shown. The more, the later it gives way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// Nothing. Anybody gets so far.
    New,
    /// A request that succeeded.
    Answered,
    /// A certificate that TLS verified.
    Verified,
}

/// A connection that has a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub(super) peer: Peer,
    /// Only differences count. None while a request is in progress, or when it has not been idle for long enough.
    pub(super) idle_since: Option<u64>,
    pub(super) standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// There is a place.
    Free,
    /// If this connection is closed.
    InsteadOf(usize),
    /// Every connection that might be closed for it is in use.
    Wait,
}

/// Where the next connection of a peer has its place. A connection is closed for one of a peer that has fewer, and one that
/// has shown nothing also for one of a peer that has shown something: first those that have shown the least, of these
/// those of the peer with the most, of these the one that has been idle longest.
pub(super) fn choose(peer: Peer, open: &[Open]) -> Choice {
    let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
    for connection in open {
        *counts.entry(connection.peer).or_default() += 1;
    }
    let own = counts.get(&peer).copied().unwrap_or_default();
    let is_at_bound = own >= MAX_OF_PEER;
    if open.len() < MAX_CONNECTIONS && !is_at_bound {
        return Choice::Free;
    }
    let with = |standing| open.iter().filter(|connection| connection.standing >= standing).count();
    let (answered, verified) = (with(Standing::Answered), with(Standing::Verified));
    let is_kept = |standing| match standing {
        Standing::New => false,
        Standing::Answered => answered <= KEPT,
        Standing::Verified => verified <= KEPT,
    };
    let is_known = open.iter().any(|connection| connection.peer == peer && connection.standing > Standing::New);
    let mut closable = Vec::new();
    for (index, Open { peer: of, idle_since, standing }) in open.iter().enumerate() {
        let count = counts[of];
        let has_more = count > own || (is_known && *standing == Standing::New);
        let gives_way = *of == peer || (!is_at_bound && has_more && !is_kept(*standing));
        if let Some(idle_since) = idle_since.filter(|_| gives_way) {
            closable.push((*standing, usize::MAX - count, idle_since, index));
        }
    }
    closable.into_iter().min().map_or(Choice::Wait, |(.., index)| Choice::InsteadOf(index))
}

/// Connections that wait, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Waiting<C> {
    connections: VecDeque<(Peer, Instant, C)>,
}

impl<C> Waiting<C> {
    pub(super) fn new() -> Self {
        Self { connections: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a connection, and drops those over a bound or out of time.
    pub(super) fn add(&mut self, now: Instant, peer: Peer, connection: C) {
        self.connections.retain(|(_, since, _)| now.saturating_duration_since(*since) < LONGEST_WAIT);
        self.connections.push_back((peer, now, connection));
        if self.of(peer) > MAX_WAITING_OF_PEER {
            self.drop_oldest_of(peer);
        }
        if self.connections.len() > MAX_WAITING {
            self.drop_oldest_of(self.most());
        }
    }

    /// The peer that is `index`th.
    pub(super) fn peer(&self, index: usize) -> Option<Peer> {
        self.connections.get(index).map(|(peer, ..)| *peer)
    }

    pub(super) fn take(&mut self, index: usize) -> Option<C> {
        self.connections.remove(index).map(|(.., connection)| connection)
    }

    fn of(&self, peer: Peer) -> usize {
        self.connections.iter().filter(|(of, ..)| *of == peer).count()
    }

    /// The peer with the most; of several, the one that has waited longest.
    fn most(&self) -> Peer {
        let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
        for (peer, ..) in &self.connections {
            *counts.entry(*peer).or_default() += 1;
        }
        // Of equal ones `max_by_key` takes the last.
        self.connections.iter().rev().map(|(peer, ..)| *peer).max_by_key(|peer| counts[peer]).expect("some wait")
    }

    fn drop_oldest_of(&mut self, peer: Peer) {
        if let Some(oldest) = self.connections.iter().position(|(of, ..)| *of == peer) {
            self.connections.remove(oldest);
        }
    }
}
