//! The OpenAPI documents. Input: a path below `/openapi`. Output: the document. It must not know objects.

use crate::Cluster;
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};

pub(crate) fn document(_cluster: &Cluster, _segments: &[&str], _request: &Request) -> Result<Response, Halt> {
    Err(Status::no_resource().into())
}
