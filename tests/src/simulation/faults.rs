//! Which faults there are, how often each is injected, and how often it was.

use std::collections::BTreeMap;

use super::random::Random;

/// Something that goes wrong on the way between the driver and the cluster, or within a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// 503: the write did not happen.
    Unavailable,
    /// 429 with a delay.
    TooManyRequests,
    /// 409 for no reason that the writer could have known.
    Conflict,
    /// The connection broke before the write arrived.
    LostWrite,
    /// The write landed, its answer got lost.
    LostReply,
    /// The answer got lost, and the write lands long afterwards.
    LateWrite,
    /// The answer comes long after the write has landed.
    LateReply,
    /// A read of one object fails.
    ReadFails,
    /// Registering a CRD fails for now.
    CrdFails,
    /// A watch ends and goes on where it was.
    WatchClosed,
    /// A watch is lost and its kind is listed again.
    WatchLost,
    /// As before, and the list comes from an API server that is behind.
    StaleList,
    /// An event comes a second time.
    Duplicate,
    /// Two changes of one object come as one.
    Coalesced,
    /// An event never comes, and nobody is told.
    EventLost,
    /// A kind's events are held up, so that views of two kinds do not fit each other.
    Lag,
    /// A guest traps.
    Trap,
    /// A guest answers that it could not.
    Retry,
    /// A guest takes very long.
    SlowCall,
    /// The host dies and is started again.
    Crash,
    /// RBAC takes the right to read a kind away.
    ReadDenied,
    /// RBAC takes the right to write a kind away.
    WriteDenied,
    /// Somebody deletes a CRD's endpoint; its objects go with it.
    CrdDeleted,
    /// The API server's store goes back to an earlier state.
    Restored,
}

/// How often each fault is injected, in thousandths of the occasions for it.
const PER_MILLE: [(Fault, u64); 19] = [
    (Fault::Unavailable, 25),
    (Fault::TooManyRequests, 15),
    (Fault::Conflict, 15),
    (Fault::LostWrite, 15),
    (Fault::LostReply, 30),
    (Fault::LateWrite, 25),
    (Fault::LateReply, 40),
    (Fault::ReadFails, 300),
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

/// The faults of one run.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// No fault is injected while this is false.
    pub on: bool,
    /// Events are lost without a word, too. No rule about views holds then before an audit has looked.
    pub silent: bool,
    /// How often each was injected.
    pub injected: BTreeMap<Fault, u64>,
}

impl Faults {
    /// Whether this fault happens now.
    pub fn hit(&mut self, random: &mut Random, fault: Fault) -> bool {
        let per_mille = PER_MILLE.iter().find(|(known, _)| *known == fault).map_or(0, |(_, per_mille)| *per_mille);
        let hit = self.on && (self.silent || fault != Fault::EventLost) && random.chance(per_mille);
        if hit {
            self.count(fault);
        }
        hit
    }

    /// Counts a fault that something else has decided on.
    pub fn count(&mut self, fault: Fault) {
        *self.injected.entry(fault).or_default() += 1;
    }
}
