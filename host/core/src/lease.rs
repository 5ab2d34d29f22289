//! Leader election (X7): which of several hosts may write, decided on a Lease as client-go decides it. What was seen of the
//! Lease comes in, what to do about it goes out; `kube/lease.rs` performs it.
//!
//! No clock of another machine is ever looked at. A holder is alive for as long as its Lease was *seen* to change within the
//! Lease's own duration, by the clock of whoever looks; and its claim is counted from *before* it sent the request that
//! renewed it. The one can only begin later than the other, so the claim ends before anybody may take over.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::limits::WRITE_TIMEOUT_MS;
use crate::time::Now;
use crate::time::micros;

#[cfg(test)]
mod tests;

/// How long a Lease holds after its last change: client-go's own number, and kube-controller-manager's.
pub const LEASE_DURATION_MS: u64 = 15_000;
/// A holder that could not renew for this long gives the lead up, well before another may take it.
pub const RENEW_DEADLINE_MS: u64 = 10_000;
/// How often a holder renews, and how often others look.
pub const RETRY_MS: u64 = 2_000;
/// Those who only look are spread by so much, so that several do not come at once. A holder is not: each renewal that is
/// late takes from the time in which it may write.
const SPREAD_MS: u64 = RETRY_MS / 5;
/// After a refusal, which says that somebody else has written the Lease, it is looked at this soon: a holder has no time to
/// lose, and whoever writes it all the time costs two requests a second.
const REFUSED_MS: u64 = RETRY_MS / 4;

/// A holder may write for as long as a write fits into what is left of its claim. So it always may while the API server
/// answers a renewal within this time, one renewal after the other.
const HEALTHY_MS: u64 = 2_500;
const _: () = assert!(RETRY_MS <= HEALTHY_MS && LEASE_DURATION_MS >= WRITE_TIMEOUT_MS + 2 * HEALTHY_MS);
const _: () = assert!(RENEW_DEADLINE_MS < LEASE_DURATION_MS);

/// The right to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Nobody else is there to have it: the host runs without leader election.
    Everlasting,
    /// It lasts until this moment of the monotonic clock, if it is not renewed.
    Until(u64),
    /// Another host has it, or nobody.
    None,
}

impl Claim {
    /// The claim of a host that takes part in an election.
    pub fn of(claim_until_ms: Option<u64>) -> Self {
        claim_until_ms.map_or(Self::None, Self::Until)
    }

    /// The last moment at which a write may be sent, so that it has ended, one way or the other, before the claim does. None:
    /// it does not matter when.
    pub fn not_after_ms(self) -> Option<u64> {
        match self {
            Self::Everlasting => None,
            Self::Until(until_ms) => Some(until_ms.saturating_sub(WRITE_TIMEOUT_MS)),
            Self::None => Some(0),
        }
    }

    /// X7: whether a write may be sent now.
    pub fn allows_writes(self, now_ms: u64) -> bool {
        match self {
            Self::None => false,
            _ => self.not_after_ms().is_none_or(|not_after_ms| now_ms <= not_after_ms),
        }
    }

    /// Whether it has not run out.
    pub fn lasts(self, now_ms: u64) -> bool {
        match self {
            Self::Everlasting => true,
            Self::Until(until_ms) => now_ms < until_ms,
            Self::None => false,
        }
    }
}

/// A Lease, as it was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    /// The whole object: what others have put on it is kept.
    object: Value,
    version: Arc<str>,
    holder: Arc<str>,
    duration_ms: u64,
    transitions: u64,
}

/// A text that is no Lease.
#[derive(Debug, Error)]
#[error("the API server's answer is no Lease")]
pub struct NoLease(#[from] serde_json::Error);

#[derive(Deserialize)]
struct Shape {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Arc<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<Arc<str>>,
    lease_duration_seconds: Option<u32>,
    lease_transitions: Option<u32>,
}

impl Lease {
    /// Reads a Lease from JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &[u8]) -> Result<Self, NoLease> {
        let object: Value = serde_json::from_slice(json)?;
        let Shape { metadata, spec } = Shape::deserialize(&object)?;
        let spec = spec.unwrap_or_default();
        Ok(Self {
            version: metadata.resource_version,
            holder: spec.holder_identity.unwrap_or_default(),
            duration_ms: spec.lease_duration_seconds.map_or(LEASE_DURATION_MS, |seconds| u64::from(seconds) * 1_000),
            transitions: spec.lease_transitions.unwrap_or_default().into(),
            object,
        })
    }

    /// Who has it; empty when nobody does.
    pub fn holder(&self) -> &Arc<str> {
        &self.holder
    }

    /// Whether what is there now, if anything, is from before this one.
    fn is_newer_than(&self, now: Option<&Self>) -> bool {
        let number = |lease: &Self| lease.version.parse::<u64>().ok();
        now.is_none_or(|now| number(self).zip(number(now)).is_some_and(|(seen, now)| now < seen))
    }
}

/// What is known of the Lease.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    /// None: there is none.
    lease: Option<Lease>,
    /// When it was seen, by this host's clock, that it had changed.
    changed_ms: u64,
    /// It is older than the one that was seen before, or gone, since etcd was restored or somebody deleted it. What it says of
    /// its holder is void, and whoever had it may not know yet.
    taken_back: bool,
}

/// What is to be done with a Lease that was just seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// Nobody has it, or nobody alive.
    Acquire,
    /// It is ours.
    Renew,
    /// Another has it until then, if it is not seen to change.
    WaitUntil(u64),
}

/// The rule: a Lease that names us is renewed, one that names nobody is taken, and one of another, or one that was taken back,
/// when it has not changed for as long as a claim lasts.
fn decide(seen: &Seen, identity: &str, now_ms: u64) -> Decision {
    let duration_ms = seen.lease.as_ref().map_or(LEASE_DURATION_MS, |lease| lease.duration_ms);
    let lasts_until_ms =
        seen.changed_ms.saturating_add(duration_ms.max(LEASE_DURATION_MS * u64::from(seen.taken_back)));
    match seen.lease.as_ref().map_or("", |lease| &lease.holder) {
        _ if seen.taken_back && now_ms < lasts_until_ms => Decision::WaitUntil(lasts_until_ms),
        holder if holder == identity => Decision::Renew,
        "" => Decision::Acquire,
        _ if lasts_until_ms <= now_ms => Decision::Acquire,
        _ => Decision::WaitUntil(lasts_until_ms),
    }
}

/// What the shell has to do next.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Read the Lease and tell [`Election::on_read`].
    Read,
    /// POST this Lease and tell [`Election::on_written`].
    Create(Value),
    /// PUT this Lease, which carries the version that was seen, and tell [`Election::on_written`].
    Replace(Value),
    /// Come back at this moment, or when something is heard of the Lease.
    WaitUntil(u64),
}

/// How a write of the Lease ended that brought no Lease back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwritten {
    /// Somebody else was first: another version is there, or none.
    Refused,
    /// It may have happened or not, or the API server is away.
    Unknown,
}

/// One host's part in the election.
#[derive(Debug)]
pub struct Election {
    name: Arc<str>,
    namespace: Arc<str>,
    identity: Arc<str>,
    seen: Option<Seen>,
    /// What was seen may no longer be there, so it is read before it is written.
    read_first: bool,
    /// When the newest renewal that succeeded was sent; None while we do not lead.
    renewed_ms: Option<u64>,
    /// When there is something to do again.
    due_ms: u64,
}

impl Election {
    /// A host that has seen nothing yet. No two hosts may have the same identity, not even one after the other.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            identity: identity.into(),
            seen: None,
            read_first: true,
            renewed_ms: None,
            due_ms: 0,
        }
    }

    /// Until when we may call ourselves the leader. A renewal that nobody else has seen counts from when it was sent.
    pub fn claim_until_ms(&self) -> Option<u64> {
        self.renewed_ms.map(|renewed_ms| renewed_ms + LEASE_DURATION_MS)
    }

    /// Who had the Lease when it was seen last; empty when nobody did, None when it was never seen.
    pub fn holder(&self) -> Option<&Arc<str>> {
        self.seen.as_ref()?.lease.as_ref().map(|lease| &lease.holder)
    }

    /// What to do now. To be asked again after each answer, and when the time that it names has come.
    pub fn next(&mut self, now: Now) -> Act {
        let deadline_ms = self.renewed_ms.map(|renewed_ms| renewed_ms + RENEW_DEADLINE_MS);
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now.mono_ms) {
            // Also after this process was stopped for a while: the first thing it does is to know that its time is over.
            self.renewed_ms = None;
            self.read_first = true;
            self.due_ms = now.mono_ms;
        }
        if now.mono_ms < self.due_ms {
            return Act::WaitUntil(deadline_ms.map_or(self.due_ms, |deadline_ms| deadline_ms.min(self.due_ms)));
        }
        match &self.seen {
            Some(seen) if !self.read_first => match &seen.lease {
                None => Act::Create(self.taken(None, now)),
                Some(lease) => Act::Replace(self.taken(Some(lease), now)),
            },
            _ => Act::Read,
        }
    }

    /// The Lease was read, or could not be. `random` spreads those who look.
    pub fn on_read(&mut self, now_ms: u64, random: u64, lease: Result<Option<Lease>, ()>) {
        let look_again_ms = now_ms + RETRY_MS + random % (SPREAD_MS + 1);
        self.read_first = true;
        self.due_ms = look_again_ms;
        let Ok(lease) = lease else { return };
        let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| Arc::clone(&lease.version));
        let seen = match self.seen.take() {
            Some(seen) if version(&seen.lease) == version(&lease) => seen,
            before => {
                // Who leads has the only claim there is, whatever became of the Lease.
                let is_older =
                    before.and_then(|seen| seen.lease).is_some_and(|seen| seen.is_newer_than(lease.as_ref()));
                Seen { lease, changed_ms: now_ms, taken_back: is_older && self.renewed_ms.is_none() }
            }
        };
        let decision = decide(&seen, &self.identity, now_ms);
        self.seen = Some(seen);
        match decision {
            Decision::Acquire | Decision::Renew => {
                if decision == Decision::Acquire {
                    // It was ours and is not any more: somebody took it away, or deleted it.
                    self.renewed_ms = None;
                }
                self.read_first = false;
                self.due_ms = now_ms;
            }
            Decision::WaitUntil(until_ms) => {
                self.renewed_ms = None;
                self.due_ms = until_ms.min(look_again_ms);
            }
        }
    }

    /// A write of the Lease was answered; it was sent at `sent_ms`.
    pub fn on_written(&mut self, sent_ms: u64, now_ms: u64, random: u64, written: Result<Lease, Unwritten>) {
        match written {
            Ok(lease) => {
                self.seen = Some(Seen { lease: Some(lease), changed_ms: now_ms, taken_back: false });
                self.renewed_ms = Some(sent_ms);
                self.read_first = false;
                self.due_ms = sent_ms + RETRY_MS;
            }
            Err(why) => {
                self.read_first = true;
                self.due_ms = match why {
                    Unwritten::Refused => now_ms + REFUSED_MS,
                    Unwritten::Unknown => now_ms + RETRY_MS + random % (SPREAD_MS + 1),
                };
            }
        }
    }

    /// A watch has told who has the Lease, None when it is gone. News are looked at at once: that it was given back, above
    /// all. What a watch tells may be old, so nothing is concluded from it.
    pub fn on_heard(&mut self, now_ms: u64, holder: Option<&str>) {
        if self.holder().map(|known| &**known) != holder {
            self.read_first = true;
            self.due_ms = self.due_ms.min(now_ms);
        }
    }

    /// Gives the lead up: the Lease to PUT, if it is ours, that lets the next one take it at once. Only for a host that
    /// writes no more.
    pub fn release(&mut self, now: Now) -> Option<Value> {
        self.renewed_ms.take()?;
        let lease = self.seen.as_ref()?.lease.as_ref()?;
        let moment = micros(now.unix_ms);
        let mut object = lease.object.clone();
        object["spec"]["holderIdentity"] = json!("");
        // The API server asks for a positive number, and no older client-go waits for longer than this.
        object["spec"]["leaseDurationSeconds"] = json!(1);
        object["spec"]["acquireTime"] = json!(moment);
        object["spec"]["renewTime"] = json!(moment);
        Some(object)
    }

    /// The Lease as ours, with what others have put on it.
    fn taken(&self, lease: Option<&Lease>, now: Now) -> Value {
        let moment = micros(now.unix_ms);
        let mut object = lease.map_or_else(
            || {
                json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": &*self.name, "namespace": &*self.namespace},
                })
            },
            |lease| lease.object.clone(),
        );
        let is_ours = lease.is_some_and(|lease| lease.holder == self.identity);
        if !object["spec"].is_object() {
            object["spec"] = json!({});
        }
        let spec = &mut object["spec"];
        if !is_ours {
            spec["acquireTime"] = json!(moment);
            spec["leaseTransitions"] = json!(lease.map_or(0, |lease| lease.transitions + 1));
        }
        spec["holderIdentity"] = json!(&*self.identity);
        spec["leaseDurationSeconds"] = json!(LEASE_DURATION_MS / 1_000);
        spec["renewTime"] = json!(moment);
        object
    }
}
