//! HTTP requests that an outcome contains, and their responses. They are data: the host sends, repeats and keeps.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bindings::mortise::host::http as contract;
use crate::error::{Failure, ValueError};
use crate::json::Json;

/// An HTTP request. [`Outcome::request`] adds it to an outcome, the host sends it, and a later call reads its response
/// with [`Context::response`]. `http("https://api.example.com", "GET")` among the arguments of [`macro@crate::reconciler`]
/// declares the origin and the methods.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::{Request, Response, testing::Cluster};
///
/// /// A record of a DNS zone, at a service with an API.
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Record")]
/// struct RecordSpec {
///     name: String,
///     address: String,
/// }
///
/// #[derive(Deserialize)]
/// struct Found {
///     address: String,
/// }
///
/// #[reconciler(http("https://dns.example.com", "GET", "PUT", secret = "dns-token"))]
/// fn reconcile(record: &Record, cx: &Context) -> Result<Outcome, Failure> {
///     let url = format!("https://dns.example.com/records/{}", record.spec.name);
///     let found = Request::get("found", &url).bearer("dns-token", "token").refresh_after(Duration::from_secs(300));
///     let outcome = Outcome::new().request(found.clone());
///     let Some(response) = cx.response(&found)? else {
///         return Ok(outcome.ready(false, "Asking", "the service has not responded yet"));
///     };
///     if response.status == 200 && response.json::<Found>()?.address == record.spec.address {
///         return Ok(outcome.ready(true, "Set", "the record is as wanted"));
///     }
///     let put = Request::put("set", &url)
///         .bearer("dns-token", "token")
///         .json(json!({"address": record.spec.address, "was": response.status}));
///     let message = match cx.response(&put)? {
///         Some(response) if response.is_success() => "set; it is read again within five minutes".to_owned(),
///         Some(response) => format!("the service refused it with status {}", response.status),
///         None => "it is being set".to_owned(),
///     };
///     Ok(outcome.request(put).ready(false, "Setting", message))
/// }
///
/// let mut cluster = Cluster::of(&PLUGIN);
/// let record = Record::new("www", RecordSpec { name: "www".into(), address: "10.0.0.1".into() });
/// let asked = cluster.reconcile(&record).unwrap();
/// assert_eq!(asked.requests[0].url(), "https://dns.example.com/records/www");
/// cluster.respond("found", Ok(Response::new(404, "")));
/// assert_eq!(cluster.reconcile(&record).unwrap().requests[1].key(), "set");
/// cluster.respond("found", Ok(Response::new(200, r#"{"address": "10.0.0.1"}"#)));
/// assert!(cluster.reconcile(&record).unwrap().is_ready());
/// ```
///
/// Everything but the timeout and the refresh is its content. It is sent when everything else of its outcome is written,
/// and once for as long as outcomes contain it with the same content; with another content it is another request.
/// [`Context::response`] compares the content, so it never returns the response to a former request.
///
/// The host repeats a request without a response, or with a status of 429 or 500 and more, with growing delays up to five
/// minutes. From the third failure in a row on the plugin is shown it. Other statuses are final; redirects are not followed.
///
/// A request may be sent **more than once**: responses live in the host's memory, so that after a restart each is sent
/// again. POST and PATCH carry the header `Idempotency-Key`, which is the same for each repetition. For a server that does
/// not know it, use PUT, or look first, as above. PUT and DELETE have no key, so that they repair what has drifted when they
/// are wanted again.
///
/// A request waits while a former one of its object is in flight that is no longer wanted and changes something, and so
/// does the object's finalizer. But a server may carry out a request later whose response was lost. After
/// a terminal [`Failure`] the host continues only with requests whose response the call has read.
///
/// [`Outcome::request`]: crate::Outcome::request
/// [`Context::response`]: crate::Context::response
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// In the contract's types from the beginning: a plugin without requests carries no conversion.
    contract: contract::Request,
    /// Its body could not be written as JSON. The error is kept and becomes a failure of the call.
    failed: Option<Failure>,
}

/// The method of a [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Reads.
    Get,
    /// Reads the headers alone.
    Head,
    /// Creates, or anything else.
    Post,
    /// Creates or replaces.
    Put,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

impl From<Method> for contract::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::Get,
            Method::Head => Self::Head,
            Method::Post => Self::Post,
            Method::Put => Self::Put,
            Method::Patch => Self::Patch,
            Method::Delete => Self::Delete,
        }
    }
}

impl From<contract::Method> for Method {
    fn from(method: contract::Method) -> Self {
        match method {
            contract::Method::Get => Self::Get,
            contract::Method::Head => Self::Head,
            contract::Method::Post => Self::Post,
            contract::Method::Put => Self::Put,
            contract::Method::Patch => Self::Patch,
            contract::Method::Delete => Self::Delete,
        }
    }
}

impl Method {
    /// Its name in HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl Request {
    /// A request without headers and body. The key is unique in the outcome: "zone", "record/www", 1 to 253 bytes. The URL
    /// is an absolute one of a declared origin, in at most 4096 bytes, without user and fragment, and percent-encoded.
    pub fn new(method: Method, key: impl Into<String>, url: impl Into<String>) -> Self {
        let contract = contract::Request {
            key: key.into(),
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            body: Vec::new(),
            timeout_ms: None,
            refresh_after_ms: None,
        };
        Self { contract, failed: None }
    }

    /// A GET under a key.
    pub fn get(key: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(Method::Get, key, url)
    }

    /// A POST under a key.
    pub fn post(key: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(Method::Post, key, url)
    }

    /// A PUT under a key.
    pub fn put(key: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(Method::Put, key, url)
    }

    /// A DELETE under a key.
    pub fn delete(key: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(Method::Delete, key, url)
    }

    /// Adds a header: at most 32, in 8 KiB, and none that the host or the connection sets, such as Host.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.contract.headers.push(contract::Header { name: name.into(), value: value.into() });
        self
    }

    /// Adds a header whose value the host reads from a key of a Secret in the object's namespace, at the time of sending.
    /// The plugin does not see it, also where a server echoes it. One that the host made is sent to origins that an
    /// administrator grants in `spec.grants.generatedValuesTo` of the Plugin. At most 4, and beside them neither Range nor
    /// Accept-Encoding. `http("https://...", "GET", secret = "NAME")` declares the Secret.
    #[must_use]
    pub fn secret_header(
        mut self,
        name: impl Into<String>,
        prefix: impl Into<String>,
        secret: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        let (name, prefix, secret, key) = (name.into(), prefix.into(), secret.into(), key.into());
        self.contract.secret_headers.push(contract::SecretHeader { name, prefix, secret, key });
        self
    }

    /// Adds the header `Authorization: Bearer` with a value of a Secret; see [`Request::secret_header`].
    #[must_use]
    pub fn bearer(self, secret: impl Into<String>, key: impl Into<String>) -> Self {
        self.secret_header("Authorization", "Bearer ", secret, key)
    }

    /// Sets the body, at most 256 KiB. Its type is a header, Content-Type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.contract.body = body.into();
        self
    }

    /// Sets the body to JSON, with its Content-Type.
    #[must_use]
    pub fn json(mut self, body: impl Into<Json>) -> Self {
        match body.into().into_text() {
            Ok(text) => self.contract.body = text.into_bytes(),
            Err(failure) => self.failed = Some(failure),
        }
        self.header("Content-Type", "application/json")
    }

    /// The longest time from sending to the end of the response: 10 s unless set, and at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.contract.timeout_ms = Some(milliseconds(timeout));
        self
    }

    /// For GET and HEAD: sends it again when its response is this old, clamped to 1 s and 24 h. Each response causes a
    /// call.
    #[must_use]
    pub fn refresh_after(mut self, age: Duration) -> Self {
        self.contract.refresh_after_ms = Some(milliseconds(age));
        self
    }

    #[cfg(any(target_arch = "wasm32", feature = "stories"))]
    pub(crate) fn contract(&self) -> &contract::Request {
        &self.contract
    }

    pub(crate) fn into_contract(self) -> Result<contract::Request, Failure> {
        match self.failed {
            None => Ok(self.contract),
            Some(failure) => Err(failure),
        }
    }
}

/// What a request has. For tests.
impl Request {
    /// Its key.
    pub fn key(&self) -> &str {
        &self.contract.key
    }

    /// Its method.
    pub fn method(&self) -> Method {
        self.contract.method.into()
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.contract.url
    }

    /// Its headers, without those from Secrets: names and values.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.contract.headers.iter().map(|header| (header.name.as_str(), header.value.as_str()))
    }

    /// Its headers from Secrets: name, prefix, Secret and key.
    pub fn secret_headers(&self) -> impl Iterator<Item = [&str; 4]> {
        self.contract.secret_headers.iter().map(|header| {
            let contract::SecretHeader { name, prefix, secret, key } = header;
            [name.as_str(), prefix, secret, key]
        })
    }

    /// Its body.
    pub fn content(&self) -> &[u8] {
        &self.contract.body
    }

    /// The milliseconds of its timeout.
    pub fn timeout_ms(&self) -> Option<u32> {
        self.contract.timeout_ms
    }

    /// The milliseconds of its refresh.
    pub fn refresh_after_ms(&self) -> Option<u32> {
        self.contract.refresh_after_ms
    }
}

/// The response to a [`Request`], of any status that is final.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case; without Set-Cookie, the first 32 of at most 8 KiB.
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB.
    pub body: Vec<u8>,
    /// When it came, in Unix milliseconds. [`crate::Context::now_unix_ms`] less this is its age.
    pub received_unix_ms: u64,
}

impl Response {
    /// A response without headers, for [`crate::testing::Cluster::respond`].
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), received_unix_ms: 0 }
    }

    /// Whether the status is one of 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of a name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// A sentence with the status, and the place where the body does not fit the type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ValueError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            ValueError(
                ["the response with status ", &self.status.to_string(), " does not fit: ", &error.to_string()].concat(),
            )
        })
    }
}

/// Why a [`Request`] has no response. The host continues to try, unless the body is too large. `?` turns it into
/// a terminal [`Failure`]: the object shows the message, and the plugin is called again when there is a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestFailure {
    /// The class, for programs.
    pub class: FailureClass,
    /// What happened, for a person.
    pub message: String,
    /// When it was noticed, in Unix milliseconds.
    pub received_unix_ms: u64,
}

impl RequestFailure {
    /// A failure, for [`crate::testing::Cluster::respond`].
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), received_unix_ms: 0 }
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RequestFailure {}

/// The classes of a [`RequestFailure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureClass {
    /// The response did not come in time.
    Timeout,
    /// The name was not found, or the connection was refused or lost.
    Connect,
    /// The server's certificate is not valid, or the TLS handshake failed.
    Tls,
    /// The name belongs to an address to which the host does not send: loopback and link-local ones, unless it runs with
    /// `--allow-http=local`.
    Address,
    /// A Secret or its key does not exist, or the host may not read it.
    Secret,
    /// The body is larger than 1 MiB, or the responses of the plugin's objects together than 64 MiB.
    TooLarge,
    /// The response is not HTTP/1.1.
    Protocol,
}

/// A longer time than a u32 has is refused or clamped as that is.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl From<contract::FailureClass> for FailureClass {
    fn from(class: contract::FailureClass) -> Self {
        match class {
            contract::FailureClass::Timeout => Self::Timeout,
            contract::FailureClass::Connect => Self::Connect,
            contract::FailureClass::Tls => Self::Tls,
            contract::FailureClass::Address => Self::Address,
            contract::FailureClass::Secret => Self::Secret,
            contract::FailureClass::TooLarge => Self::TooLarge,
            contract::FailureClass::Protocol => Self::Protocol,
        }
    }
}
