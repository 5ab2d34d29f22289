//! What the tests of this crate share: a cluster, and requests in one line. It must not know what is tested.

use jiff::Timestamp;
use serde_json::Value;

use crate::{Body, Cluster, Credentials, Method, Options, Reply, Request, Response, User};

/// When the tests' clusters start.
pub(crate) const START: &str = "2026-01-01T00:00:00Z";

pub(crate) fn start() -> Timestamp {
    START.parse().unwrap()
}

/// A cluster without controllers and nodes.
pub(crate) fn quiet() -> Cluster {
    Cluster::new(Options { nodes: 0, controllers: Vec::new(), ..Options::default() }, start())
}

/// A request of an administrator. `target` is a path with a query; a body that begins with a brace or a bracket is JSON.
pub(crate) fn request(method: Method, target: &str, headers: &[(&str, &str)], body: &Value) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key.to_owned(), value.replace("%3D", "=").replace("%2C", ","))
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    Request {
        method,
        path: path.to_owned(),
        query: pairs.map(pair).collect(),
        headers: headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        credentials: Credentials::User(User { name: "admin".to_owned(), groups, ..User::default() }),
        body,
    }
}

pub(crate) fn respond(cluster: &mut Cluster, request: &Request) -> Response {
    match cluster.request(request, &[], start()) {
        Reply::Done(response) => response,
        Reply::Call(call) => panic!("a webhook is asked: {call:?}"),
    }
}

/// The HTTP status and the document of a request.
#[track_caller]
pub(crate) fn ask(cluster: &mut Cluster, method: Method, target: &str, body: &Value) -> (u16, Value) {
    let response = respond(cluster, &request(method, target, &[], body));
    match response.body {
        Body::Bytes(bytes) => (response.status, String::from_utf8_lossy(&bytes).into()),
        other => (response.status, other.document().expect("a watch is no document")),
    }
}
