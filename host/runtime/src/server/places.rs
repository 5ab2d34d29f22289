//! Which connections of a listener have a place, and which wait for one. Accepted connections come in, with their peers'
//! addresses and the time; the one to close for a newer one comes out. It must know no sockets and no clock.
//!
//! A peer is an address. Clients behind one NAT are one peer and share its places, as do all clients where the
//! network hides their addresses.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Connections of one listener. An API server keeps some two dozen for webhooks, a Prometheus one, a kubelet none.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// Those of one peer: more than an API server's requests in flight, since a peer has fewer permits for these
/// (`webhooks/capacity.rs`). The rest is for others, at once and without closing any.
pub(crate) const MAX_OF_PEER: usize = 96;
/// Accepted connections that wait for a place, each an open file and nothing else. Beyond, the peer with the most loses
/// its oldest one. Three listeners with all of theirs take 1,920 files; a process may have 4,096 or more.
const MAX_WAITING: usize = 512;
/// Those of one peer: with its places more than the 200 requests that an API server has in flight by default that change
/// something, and than the 400 others, whose objects may be converted.
const MAX_WAITING_OF_PEER: usize = 384;
/// Clients give up about as early.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A connection that has a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub(super) peer: IpAddr,
    /// Only differences count. None while a request is in progress, or when it has not been idle for long enough.
    pub(super) idle_since: Option<u64>,
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

/// Where the next connection of a peer has its place. A connection is closed for one of a peer that has no more
/// connections than its own: first those of the peer with the most, of these the one that has been idle longest.
pub(super) fn choose(peer: IpAddr, open: &[Open]) -> Choice {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for connection in open {
        *counts.entry(connection.peer).or_default() += 1;
    }
    let own = counts.get(&peer).copied().unwrap_or_default();
    let is_at_bound = own >= MAX_OF_PEER;
    if open.len() < MAX_CONNECTIONS && !is_at_bound {
        return Choice::Free;
    }
    let mut closable = Vec::new();
    for (index, connection) in open.iter().enumerate() {
        let count = counts[&connection.peer];
        let gives_way = connection.peer == peer || (!is_at_bound && count > own);
        if let Some(idle_since) = connection.idle_since.filter(|_| gives_way) {
            closable.push((count, idle_since, index));
        }
    }
    let closed = closable.into_iter().min_by_key(|(count, idle_since, _)| (usize::MAX - count, *idle_since));
    closed.map_or(Choice::Wait, |(.., index)| Choice::InsteadOf(index))
}

/// Connections that wait, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Waiting<C> {
    connections: VecDeque<(IpAddr, Instant, C)>,
}

impl<C> Waiting<C> {
    pub(super) fn new() -> Self {
        Self { connections: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Adds a connection, and drops those over a bound or out of time.
    pub(super) fn add(&mut self, now: Instant, peer: IpAddr, connection: C) {
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
    pub(super) fn peer(&self, index: usize) -> Option<IpAddr> {
        self.connections.get(index).map(|(peer, ..)| *peer)
    }

    pub(super) fn take(&mut self, index: usize) -> Option<C> {
        self.connections.remove(index).map(|(.., connection)| connection)
    }

    fn of(&self, peer: IpAddr) -> usize {
        self.connections.iter().filter(|(of, ..)| *of == peer).count()
    }

    /// The peer with the most.
    fn most(&self) -> IpAddr {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (peer, ..) in &self.connections {
            *counts.entry(*peer).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).expect("some wait").0
    }

    fn drop_oldest_of(&mut self, peer: IpAddr) {
        if let Some(oldest) = self.connections.iter().position(|(of, ..)| *of == peer) {
            self.connections.remove(oldest);
        }
    }
}
