//! Leader election (X7): which of several hosts may write, decided on a Lease as in client-go. Observations of the
//! Lease come in, requests go out; `kube/lease.rs` sends them.
//!
//! Hosts do not compare their clocks. A candidate takes a Lease that it has not *seen* change for the Lease's duration,
//! by its own clock; the holder counts its claim from *before* it sent the last renewal. A candidate cannot see a
//! renewal before it was sent, so the claim ends before anybody takes over.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::limits::WRITE_TIMEOUT_MS;
use crate::time::{Now, micros};
use crate::well_known::{HOST, PART_OF_LABEL};

#[cfg(test)]
mod tests;

/// The Lease's duration after its last change: the default of client-go and kube-controller-manager.
pub const LEASE_DURATION_MS: u64 = 15_000;
/// A holder that could not renew for this long stops leading, well before another host may take the Lease.
pub const RENEW_DEADLINE_MS: u64 = 10_000;
/// Interval of the holder's renewals and of the candidates' reads.
pub const RETRY_MS: u64 = 2_000;
/// Jitter of the candidates' reads. Renewals have none: each late one shortens the time in which the holder may write.
const SPREAD_MS: u64 = RETRY_MS / 5;
/// Delay of the read after a conflict: the holder must renew soon, and two requests a second are the most.
const REFUSED_MS: u64 = RETRY_MS / 4;

/// A holder may always write while the API server answers each renewal within this time.
const HEALTHY_MS: u64 = 2_500;
const _: () = assert!(RETRY_MS <= HEALTHY_MS && LEASE_DURATION_MS >= WRITE_TIMEOUT_MS + 2 * HEALTHY_MS);
const _: () = assert!(RENEW_DEADLINE_MS < LEASE_DURATION_MS);

/// The right to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The host runs without leader election.
    Everlasting,
    /// It lasts until this time of the monotonic clock unless it is renewed.
    Until(u64),
    /// This host does not lead.
    None,
}

impl Claim {
    /// The claim of a host with leader election.
    pub fn of(claim_until_ms: Option<u64>) -> Self {
        claim_until_ms.map_or(Self::None, Self::Until)
    }

    /// The last time to send a write, so that it ends before the claim; None: any.
    pub fn not_after_ms(self) -> Option<u64> {
        match self {
            Self::Everlasting => None,
            Self::Until(until_ms) => Some(until_ms.saturating_sub(WRITE_TIMEOUT_MS)),
            Self::None => Some(0),
        }
    }

    /// The last time to send a write that an earlier claim allowed until `not_after_ms`: a write may wait for longer than a claim
    /// lasts, while the claim is renewed. Where another claim began meanwhile, at `since_ms`, another host may have led between.
    pub fn renewed(self, since_ms: u64, not_after_ms: u64) -> u64 {
        // The renewal that the write relied on is as much earlier.
        let is_the_same = since_ms.saturating_add(LEASE_DURATION_MS - WRITE_TIMEOUT_MS) <= not_after_ms;
        match self.not_after_ms() {
            Some(last_ms) if is_the_same => last_ms.max(not_after_ms),
            _ => not_after_ms,
        }
    }

    /// X7: whether a write may be sent now.
    pub fn allows_writes(self, now_ms: u64) -> bool {
        match self {
            Self::None => false,
            _ => self.not_after_ms().is_none_or(|not_after_ms| now_ms <= not_after_ms),
        }
    }

    /// Whether it has not ended.
    pub fn lasts(self, now_ms: u64) -> bool {
        match self {
            Self::Everlasting => true,
            Self::Until(until_ms) => now_ms < until_ms,
            Self::None => false,
        }
    }
}

/// A Lease as it was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    /// The whole object: a write keeps the fields of others.
    object: Value,
    version: Arc<str>,
    holder: Arc<str>,
    duration_ms: u64,
    transitions: u64,
}

/// A response that is no Lease.
#[derive(Debug, Error)]
#[error("the API server's response is no Lease")]
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
    /// Parses a Lease from JSON.
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

    /// Its holder; empty when it has none.
    pub fn holder(&self) -> &Arc<str> {
        &self.holder
    }

    /// Whether the current Lease is older than this one, or absent.
    fn is_newer_than(&self, now: Option<&Self>) -> bool {
        let number = |lease: &Self| lease.version.parse::<u64>().ok();
        now.is_none_or(|now| number(self).zip(number(now)).is_some_and(|(seen, now)| now < seen))
    }
}

/// The last observation of the Lease.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    /// None: it does not exist.
    lease: Option<Lease>,
    /// When this host saw it change, by its own clock.
    changed_ms: u64,
    /// It is older than an earlier observation, or absent, because etcd was restored or somebody deleted it. Its holder
    /// is void, and the last holder may not know that yet.
    rolled_back: bool,
}

/// What to do after a read of the Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// It has no holder, or an expired one.
    Acquire,
    /// This host holds it.
    Renew,
    /// Another host holds it until then, unless it changes.
    WaitUntil(u64),
}

/// A host renews its own Lease and takes one without a holder. It takes another's Lease, or one that was rolled back,
/// after that has not changed for as long as a claim lasts.
fn decide(seen: &Seen, identity: &str, now_ms: u64) -> Decision {
    let duration_ms = seen.lease.as_ref().map_or(LEASE_DURATION_MS, |lease| lease.duration_ms);
    let duration_ms = if seen.rolled_back { duration_ms.max(LEASE_DURATION_MS) } else { duration_ms };
    let lasts_until_ms = seen.changed_ms.saturating_add(duration_ms);
    match seen.lease.as_ref().map_or("", |lease| &lease.holder) {
        _ if seen.rolled_back && now_ms < lasts_until_ms => Decision::WaitUntil(lasts_until_ms),
        holder if holder == identity => Decision::Renew,
        "" => Decision::Acquire,
        _ if lasts_until_ms <= now_ms => Decision::Acquire,
        _ => Decision::WaitUntil(lasts_until_ms),
    }
}

/// What the shell does next.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Read the Lease and call [`Election::on_read`].
    Read,
    /// POST this Lease and call [`Election::on_written`].
    Create(Value),
    /// PUT this Lease, with the resourceVersion that was read, and call [`Election::on_written`].
    Replace(Value),
    /// Call [`Election::next`] again at this time, or after [`Election::on_observed`].
    WaitUntil(u64),
}

/// Why a write of the Lease returned no Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFailure {
    /// A conflict: somebody else has written or deleted it.
    Refused,
    /// No response: it may have been written or not.
    Unknown,
}

/// One host's part in the election.
#[derive(Debug)]
pub struct Election {
    name: Arc<str>,
    namespace: Arc<str>,
    identity: Arc<str>,
    seen: Option<Seen>,
    /// The observation may be outdated, so a read comes before the next write.
    read_first: bool,
    /// When the last successful renewal was sent; None while this host does not lead.
    renewed_ms: Option<u64>,
    /// When the first one since it leads was sent.
    since_ms: u64,
    /// When the next request is due.
    due_ms: u64,
}

impl Election {
    /// A host that has not read the Lease yet. Its identity must be unique, also among past hosts.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            identity: identity.into(),
            seen: None,
            read_first: true,
            renewed_ms: None,
            since_ms: 0,
            due_ms: 0,
        }
    }

    /// When this host's claim ends; None when it does not lead.
    pub fn claim_until_ms(&self) -> Option<u64> {
        self.renewed_ms.map(|renewed_ms| renewed_ms + LEASE_DURATION_MS)
    }

    /// Since when this host has led without a break. Of no meaning while it does not lead.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// The holder that was seen last; empty for a Lease without a holder, None without a Lease.
    pub fn holder(&self) -> Option<&Arc<str>> {
        self.seen.as_ref()?.lease.as_ref().map(|lease| &lease.holder)
    }

    /// What to do now. Called again after each response, and at the time in [`Act::WaitUntil`].
    pub fn next(&mut self, now: Now) -> Act {
        let deadline_ms = self.renewed_ms.map(|renewed_ms| renewed_ms + RENEW_DEADLINE_MS);
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now.mono_ms) {
            // Also the first step of a process that was suspended for a while.
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

    /// Takes the result of a read. `random` spreads the candidates' reads.
    pub fn on_read(&mut self, now_ms: u64, random: u64, lease: Result<Option<Lease>, ()>) {
        let look_again_ms = now_ms + RETRY_MS + random % (SPREAD_MS + 1);
        self.read_first = true;
        self.due_ms = look_again_ms;
        let Ok(lease) = lease else { return };
        let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| Arc::clone(&lease.version));
        let seen = match self.seen.take() {
            Some(seen) if version(&seen.lease) == version(&lease) => seen,
            before => {
                // A leader has the only claim, even if the Lease was rolled back.
                let is_older =
                    before.and_then(|seen| seen.lease).is_some_and(|seen| seen.is_newer_than(lease.as_ref()));
                Seen { lease, changed_ms: now_ms, rolled_back: is_older && self.renewed_ms.is_none() }
            }
        };
        let decision = decide(&seen, &self.identity, now_ms);
        self.seen = Some(seen);
        match decision {
            Decision::Acquire | Decision::Renew => {
                if decision == Decision::Acquire {
                    // If this host was the holder, somebody has removed it, or deleted the Lease.
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

    /// Takes the result of a write that was sent at `sent_ms`.
    pub fn on_written(&mut self, sent_ms: u64, now_ms: u64, random: u64, written: Result<Lease, WriteFailure>) {
        match written {
            Ok(lease) => {
                self.seen = Some(Seen { lease: Some(lease), changed_ms: now_ms, rolled_back: false });
                if self.renewed_ms.is_none() {
                    self.since_ms = sent_ms;
                }
                self.renewed_ms = Some(sent_ms);
                self.read_first = false;
                self.due_ms = sent_ms + RETRY_MS;
            }
            Err(why) => {
                self.read_first = true;
                self.due_ms = match why {
                    WriteFailure::Refused => now_ms + REFUSED_MS,
                    WriteFailure::Unknown => now_ms + RETRY_MS + random % (SPREAD_MS + 1),
                };
            }
        }
    }

    /// Takes the holder from a watch; None when the Lease was deleted. A change is read at once, because the holder may
    /// have released the Lease. Nothing else follows from it, because a watch may be late.
    pub fn on_observed(&mut self, now_ms: u64, holder: Option<&str>) {
        if self.holder().map(|known| &**known) != holder {
            self.read_first = true;
            self.due_ms = self.due_ms.min(now_ms);
        }
    }

    /// Stops leading, and returns the released Lease to PUT for the next host. This host must not write any more.
    pub fn release(&mut self, now: Now) -> Option<Value> {
        self.renewed_ms.take()?;
        let lease = self.seen.as_ref()?.lease.as_ref()?;
        let moment = micros(now.unix_ms);
        let mut object = lease.object.clone();
        object["spec"]["holderIdentity"] = json!("");
        // The API server requires a positive number; older versions of client-go wait for that long.
        object["spec"]["leaseDurationSeconds"] = json!(1);
        object["spec"]["acquireTime"] = json!(moment);
        object["spec"]["renewTime"] = json!(moment);
        Some(object)
    }

    /// The Lease with this host as its holder, and the fields of others.
    fn taken(&self, lease: Option<&Lease>, now: Now) -> Value {
        let moment = micros(now.unix_ms);
        let mut object = match lease {
            Some(lease) => lease.object.clone(),
            None => json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": &*self.name, "namespace": &*self.namespace},
            }),
        };
        // Without the label a plugin could adopt the Lease.
        let labels = &mut object["metadata"]["labels"];
        if !labels.is_object() {
            *labels = json!({});
        }
        labels[PART_OF_LABEL] = json!(HOST);
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
