//! Subresources that are not the object itself: scale, binding, eviction, tokens, reviews. Input: a request for one. Output:
//! its response; none for what the plain verbs answer. It must not know controllers.

use crate::Cluster;
use crate::halt::Halt;
use crate::request::{Request, Response};
use crate::rest::{Attributes, Context};

/// Answers what the plain verbs do not.
pub(super) fn special(
    _cluster: &mut Cluster,
    _request: &Request,
    _attributes: &Attributes,
    _context: &Context<'_>,
) -> Result<Option<Response>, Halt> {
    Ok(None)
}
