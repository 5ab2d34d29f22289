//! The decisions about bearer tokens that still hold, and how often each peer may cause another one. Digests of tokens and
//! the time come in. It must not know tokens, or who decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_core::digest::Digest;

use crate::server::peer::Peer;

#[cfg(test)]
mod tests;

/// How long a token is allowed: two requests a minute and scraper. controller-runtime keeps the answer about a token as
/// long.
const ALLOWED: Duration = Duration::from_secs(60);
/// How long it is refused: who has just given a right should see it work.
const REFUSED: Duration = Duration::from_secs(10);
/// Decisions of each sort. A cluster has a few scrapers; beyond, the one that ends first is forgotten. Refusals never push out
/// what is allowed.
const MAX_DECISIONS: usize = 64;
/// Requests to the API server that one peer may cause in a minute with tokens that are not known: a scraper causes one.
const ASKS: u32 = 20;
const ASKS_WITHIN: Duration = Duration::from_secs(60);
/// Peers that are counted. Beyond, the one that began first begins again.
const MAX_PEERS: usize = 1_024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Allowed,
    /// The user's name.
    Denied(Arc<str>),
    Unauthenticated,
}

#[derive(Default, Debug)]
pub(super) struct Decisions {
    allowed: Kept,
    refused: Kept,
    /// When a peer's minute began, and how often it asked since.
    asks: BTreeMap<Peer, (Instant, u32)>,
}

type Kept = BTreeMap<Digest, (Instant, Decision)>;

impl Decisions {
    pub(super) fn get(&self, token: &Digest, now: Instant) -> Option<Decision> {
        let kept = self.allowed.get(token).or_else(|| self.refused.get(token));
        kept.filter(|(until, _)| now < *until).map(|(_, decision)| decision.clone())
    }

    pub(super) fn keep(&mut self, token: Digest, decision: Decision, now: Instant) {
        self.allowed.remove(&token);
        self.refused.remove(&token);
        let (kept, lifetime) = match decision {
            Decision::Allowed => (&mut self.allowed, ALLOWED),
            Decision::Denied(_) | Decision::Unauthenticated => (&mut self.refused, REFUSED),
        };
        kept.retain(|_, (until, _)| now < *until);
        if kept.len() == MAX_DECISIONS
            && let Some(first) = kept.iter().min_by_key(|(_, (until, _))| *until).map(|(token, _)| token.clone())
        {
            kept.remove(&first);
        }
        kept.insert(token, (now + lifetime, decision));
    }

    /// Whether a peer may have one more token checked.
    pub(super) fn may_ask(&mut self, peer: Peer, now: Instant) -> bool {
        self.asks.retain(|_, (began, _)| now.saturating_duration_since(*began) < ASKS_WITHIN);
        if self.asks.len() == MAX_PEERS
            && !self.asks.contains_key(&peer)
            && let Some(first) = self.asks.iter().min_by_key(|(_, (began, _))| *began).map(|(peer, _)| *peer)
        {
            self.asks.remove(&first);
        }
        let (_, asks) = self.asks.entry(peer).or_insert((now, 0));
        let may_ask = *asks < ASKS;
        *asks += u32::from(may_ask);
        may_ask
    }
}
