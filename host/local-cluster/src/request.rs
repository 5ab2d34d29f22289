//! What a client asks and what it gets, without a transport. Input: what the doors (HTTP, in-process) took. Output: a
//! response, or a watch to be polled. It must not know how a request is answered.

use serde_json::Value;

use crate::path::Address;
use crate::user::User;
use crate::watch::Watch;

/// The HTTP methods that the API server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads an object, a list or a watch.
    Get,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Changes a part.
    Patch,
    /// Deletes an object or a collection.
    Delete,
}

/// How a client says who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: with RBAC the user is `system:anonymous`, else nobody.
    None,
    /// A bearer token.
    Token(String),
    /// The door knows the user already: a client certificate, or a caller in the same process.
    User(User),
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path, percent-decoded, such as `/api/v1/namespaces/default/pods/a`.
    pub path: String,
    /// The query's parameters, decoded, in the order they came in.
    pub query: Vec<(String, String)>,
    /// Headers with lower-case names; of those, the cluster reads accept, content-type, user-agent and impersonate-*.
    pub headers: Vec<(String, String)>,
    /// Who asks.
    pub credentials: Credentials,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first query parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The verb of the API that a method is at an address.
    pub(crate) fn verb(&self, address: &Address<'_>) -> &'static str {
        let watches = self.parameter("watch").is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
        match (self.method, address.name) {
            (Method::Get, Some(_)) => "get",
            (Method::Get, None) if watches => "watch",
            (Method::Get, None) => "list",
            (Method::Post, _) => "create",
            (Method::Put, _) => "update",
            (Method::Patch, _) => "patch",
            (Method::Delete, Some(_)) => "delete",
            (Method::Delete, None) => "deletecollection",
        }
    }
}

/// One response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers besides the content type: `Warning`, `Retry-After`, `ETag`.
    pub headers: Vec<(&'static str, String)>,
    /// The content type of the body.
    pub content_type: &'static str,
    /// What is sent.
    pub body: Body,
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// A JSON document.
    Json(Value),
    /// A JSON document that was put together from the texts of objects.
    Text(String),
    /// Bytes that are made already: text, compressed documents.
    Bytes(Vec<u8>),
    /// A stream of frames that the door polls with [`crate::Cluster::poll`].
    Watch(Box<Watch>),
}

impl Body {
    /// The bytes of the body; none of a stream.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Json(value) => value.to_string().into_bytes(),
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Watch(_) => Vec::new(),
        }
    }

    /// The document, of a body that is JSON.
    pub fn document(self) -> Option<Value> {
        match self {
            Self::Json(value) => Some(value),
            Self::Text(text) => serde_json::from_str(&text).ok(),
            Self::Bytes(_) | Self::Watch(_) => None,
        }
    }
}

impl Response {
    /// A JSON document with this HTTP status.
    pub fn json(status: u16, value: Value) -> Self {
        Self { status, headers: Vec::new(), content_type: "application/json", body: Body::Json(value) }
    }

    /// A JSON document that is text already, with this HTTP status.
    pub(crate) fn document(status: u16, text: String) -> Self {
        Self { body: Body::Text(text), ..Self::json(status, Value::Null) }
    }

    /// Text with HTTP status 200.
    pub fn text(text: impl Into<String>) -> Self {
        let body = Body::Bytes(text.into().into_bytes());
        Self { status: 200, headers: Vec::new(), content_type: "text/plain; charset=utf-8", body }
    }
}
