//! When a workload is looked at again after the API server refused one of its writes. It must not know why it refused.
//!
//! A reconcile that ends with an error leaves no trace; a refusal that the status shows is not an error, so that it waits
//! by its condition: as long as it has been refused already.

use jiff::{SignedDuration, Timestamp};

use crate::controllers::Again;

const FIRST: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait of kube-controller-manager's queues.
const LAST: SignedDuration = SignedDuration::from_secs(1000);

pub(super) fn again(refused_since: Option<Timestamp>, now: Timestamp) -> Again {
    let refused = refused_since.map_or(FIRST, |since| now.duration_since(since));
    Again::At(now.checked_add(refused.clamp(FIRST, LAST)).unwrap_or(Timestamp::MAX))
}
