//! The faults, how often each is injected, and how often it was.

use std::collections::BTreeMap;

use super::random::Random;

/// A failure between the engine and the cluster, or within a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// 503: the write did not happen.
    Unavailable,
    /// 429 with a delay.
    TooManyRequests,
    /// 409 for no visible reason.
    Conflict,
    /// The connection broke before the write arrived.
    LostWrite,
    /// The write takes effect, its response is lost.
    LostReply,
    /// The response is lost, and the write takes effect much later.
    LateWrite,
    /// The response comes long after the write took effect.
    LateReply,
    ReadFails,
    /// The connection broke before an HTTP request arrived.
    LostRequest,
    /// An HTTP request is carried out, and its response never comes.
    LostResponse,
    /// The response comes late.
    LateResponse,
    /// 503.
    ServerError,
    /// The registration of a CRD fails once.
    CrdFails,
    /// A watch ends and resumes.
    WatchClosed,
    /// A watch fails and its kind is listed again.
    WatchLost,
    /// The same with a list from an API server that lags.
    StaleList,
    Duplicate,
    /// Two changes of one object are delivered as one.
    Coalesced,
    /// An event is never delivered, without an error.
    EventLost,
    /// A kind's events are delayed, so that views of two kinds are inconsistent.
    Lag,
    Trap,
    Retry,
    SlowCall,
    Crash,
    /// RBAC revokes the right to read a kind.
    ReadDenied,
    /// RBAC revokes the right to write a kind.
    WriteDenied,
    /// A user deletes a CRD, and all its objects with it.
    CrdDeleted,
    /// etcd is restored from a backup.
    Restored,
}

/// How often each fault is injected, in thousandths of the occasions for it.
const PER_MILLE: [(Fault, u64); 23] = [
    (Fault::Unavailable, 25),
    (Fault::TooManyRequests, 15),
    (Fault::Conflict, 15),
    (Fault::LostWrite, 15),
    (Fault::LostReply, 30),
    (Fault::LateWrite, 25),
    (Fault::LateReply, 40),
    (Fault::ReadFails, 300),
    (Fault::LostRequest, 100),
    (Fault::LostResponse, 50),
    (Fault::LateResponse, 100),
    (Fault::ServerError, 100),
    (Fault::CrdFails, 100),
    (Fault::WatchClosed, 15),
    (Fault::WatchLost, 10),
    (Fault::StaleList, 250),
    (Fault::Duplicate, 40),
    (Fault::Coalesced, 300),
    (Fault::EventLost, 20),
    (Fault::Lag, 15),
    (Fault::Trap, 20),
    (Fault::Retry, 10),
    (Fault::SlowCall, 40),
];

#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// No fault is injected while this is false.
    pub on: bool,
    /// Also lose events without an error. No rule about views holds then until an audit.
    pub silent: bool,
    pub injected: BTreeMap<Fault, u64>,
}

impl Faults {
    /// Whether to inject this fault now.
    pub fn hit(&mut self, random: &mut Random, fault: Fault) -> bool {
        let per_mille = PER_MILLE.iter().find(|(known, _)| *known == fault).map_or(0, |(_, per_mille)| *per_mille);
        let hit = self.on && (self.silent || fault != Fault::EventLost) && random.chance(per_mille);
        if hit {
            self.count(fault);
        }
        hit
    }

    pub fn count(&mut self, fault: Fault) {
        *self.injected.entry(fault).or_default() += 1;
    }
}
