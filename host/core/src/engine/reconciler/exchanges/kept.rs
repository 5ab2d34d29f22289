//! The bytes of requests and replies that are kept, and how many more a share may have (Q4).
//!
//! Nothing here knows a request.

use crate::engine::reconciler::ledger::Bounds;
use crate::http::{Failure, FailureClass};

/// Of one share sixty-four of the largest responses, or fifty thousand requests without body; of all an eighth of the memory
/// limit of the Deployment in deploy/. What a share has to itself is one of the largest responses, so that others that keep much
/// do not take all.
pub(in crate::engine::reconciler) const BOUNDS: Bounds =
    Bounds { share: 64 << 20, total: 192 << 20, own: 2 << 20, reserve: 64 << 20 };

/// Why something is not kept.
pub(super) fn no_room(what: &str) -> String {
    format!(
        "there is no room for {what}: the requests of one plugin and their responses may have {} MiB together, and {} MiB \
         those of all; request less at once, or for fewer objects",
        BOUNDS.share >> 20,
        (BOUNDS.total + BOUNDS.reserve) >> 20
    )
}

/// The failure of a request whose response is not kept.
pub(super) fn response_without_room() -> Failure {
    Failure { class: FailureClass::TooLarge, message: no_room("the response").into() }
}
