//! What the API server says of itself: groups, versions, resources, its version and its health. Input: a path. Output: a
//! document. It must not know objects.

use serde_json::json;

use crate::Cluster;
use crate::halt::{Halt, Status};
use crate::open_api;
use crate::published::KUBERNETES;
use crate::request::{Request, Response};

pub(crate) fn document(cluster: &Cluster, segments: &[&str], request: &Request) -> Result<Response, Halt> {
    match segments {
        ["version"] => Ok(Response::json(200, json!({"major": "1", "minor": "36", "gitVersion": KUBERNETES}))),
        ["healthz" | "livez" | "readyz", ..] => Ok(Response::text("ok")),
        ["openapi", ..] => open_api::document(cluster, segments, request),
        _ => Err(Status::no_resource().into()),
    }
}
