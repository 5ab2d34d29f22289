//! Requests to the local cluster, as the host and others send them in virtual time: kinds, names and the engine's writes come
//! in; JSON, results or refusals come out, as of the time, which is here. It must not know why something is asked.
//!
//! Stories use it, and the simulation of the engine in `tests`.
//!
//! ```
//! use mortise_core::object::Kind;
//! use mortise_local_cluster::Options;
//! use mortise_stories::api::{Api, NoWebhooks};
//!
//! let mut api = Api::new(Options::default(), NoWebhooks);
//! let pods: serde_json::Value = api.list(&Kind::new("v1", "Pod").into()).expect("Pods are served");
//! assert_eq!(pods["items"].as_array().map(Vec::len), Some(0));
//! ```

mod definitions;

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::response::{self, Refused};
use mortise_core::scope::Slice;
use mortise_core::watch::WatchError;
use mortise_core::write::request::{self, WriteRequest};
use mortise_core::write::{Write, WriteError, WriteErrorClass, WriteOp, Written};
use mortise_local_cluster::{
    Answer, Body, Call, Cluster, Credentials, Frame, Method, Options, Reply, Request, Step, User, Watch,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock::timestamp;

/// Webhooks that one request may ask, each at most a few times: more than any configuration has.
const MAX_ASKED: usize = 64;
/// How long a watch stays open: a day. Nothing is lost on the way to this host, so that opening it again changes nothing.
const WATCH_SECONDS: u64 = 86_400;

/// What the cluster's webhooks are answered by.
pub trait Answers {
    /// The review with its response.
    ///
    /// # Errors
    /// Why there is none, in the words of the API server's client.
    fn answer(&self, call: &Call, now_ms: u64) -> Result<Value, String>;
}

/// No webhook can be reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWebhooks;

impl Answers for NoWebhooks {
    fn answer(&self, call: &Call, _now_ms: u64) -> Result<Value, String> {
        Err(format!("Post {:?}: dial tcp: lookup: no such host", call.url))
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// The host.
    Host,
    /// Somebody else, whose field manager is `story`.
    Others,
}

/// Where the objects of a kind are.
#[derive(Clone, Debug)]
pub struct Resource {
    root: String,
    /// The kind's name in paths, such as `pods`.
    pub plural: String,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
}

impl Resource {
    fn collection(&self, namespace: &str) -> String {
        match self.namespaced && !namespace.is_empty() {
            true => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
            false => format!("{}/{}", self.root, self.plural),
        }
    }
}

/// A request without its client.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The query: names and values, decoded.
    pub query: Vec<(&'static str, String)>,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: &'a [u8],
}

impl Ask<'_> {
    /// Reads what is at a path. Other requests begin with this one, too.
    pub fn get(path: String) -> Self {
        Self { method: Method::Get, path, query: Vec::new(), content_type: request::JSON, body: &[] }
    }
}

/// One event of a watch.
#[derive(Debug, Deserialize)]
pub struct Seen {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub event: String,
    /// The object, or the status of an error.
    pub object: Box<RawValue>,
}

impl Seen {
    /// The object as a tree.
    pub fn tree(&self) -> Value {
        serde_json::from_str(self.object.get()).unwrap_or_default()
    }
}

/// The cluster, and what the host may not do there.
#[derive(Clone, Debug)]
pub struct Api<W> {
    /// The cluster.
    pub cluster: Cluster,
    /// The time, in milliseconds since 2026-01-01T00:00:00Z.
    pub now_ms: u64,
    /// What its webhooks are answered by.
    pub webhooks: W,
    resources: BTreeMap<Kind, Resource>,
    /// Kinds that the host may not use.
    pub denied: Vec<Kind>,
}

impl<W: Answers> Api<W> {
    /// A cluster that has just started.
    pub fn new(options: Options, webhooks: W) -> Self {
        let cluster = Cluster::new(options, timestamp(0));
        Self { cluster, now_ms: 0, webhooks, resources: BTreeMap::new(), denied: Vec::new() }
    }

    /// Sends a request, and returns the body of its response.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn send(&mut self, client: Client, ask: Ask<'_>) -> Result<Body, Refused> {
        let (name, agent) = match client {
            Client::Host => ("system:serviceaccount:mortise-system:mortise", "mortise"),
            Client::Others => ("story", "story"),
        };
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        let request = Request {
            method: ask.method,
            path: ask.path,
            query: ask.query.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            headers: vec![
                ("content-type".to_owned(), ask.content_type.to_owned()),
                ("user-agent".to_owned(), agent.to_owned()),
            ],
            credentials: Credentials::User(User { name: name.to_owned(), groups, ..User::default() }),
            body: ask.body.to_vec(),
        };
        let mut answers = Vec::new();
        while answers.len() < MAX_ASKED {
            match self.cluster.request(&request, &answers, timestamp(self.now_ms)) {
                Reply::Done(response) if response.status < 300 => return Ok(response.body),
                Reply::Done(response) => return Err(refused(response.status, response.body)),
                Reply::Call(call) => answers.push(self.answered(*call)),
            }
        }
        Err(Refused { code: 500, message: "the request asks webhooks without end".to_owned(), ..Refused::default() })
    }

    /// The same for a document.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn json(&mut self, client: Client, ask: Ask<'_>) -> Result<Value, Refused> {
        Ok(self.send(client, ask)?.document().unwrap_or_default())
    }

    fn answered(&self, call: Call) -> Answer {
        Answer { result: self.webhooks.answer(&call, self.now_ms), call }
    }

    /// Lets the controllers do one thing.
    pub fn step(&mut self) -> Step {
        let mut answers = Vec::new();
        loop {
            match self.cluster.step(&answers, timestamp(self.now_ms)) {
                Reply::Done(step) => return step,
                Reply::Call(call) if answers.len() < MAX_ASKED => answers.push(self.answered(*call)),
                Reply::Call(_) => return Step::Idle(None),
            }
        }
    }

    /// What a watch has to send now; None where its stream ends.
    pub fn poll(&self, watch: &mut Watch) -> Vec<Option<Seen>> {
        let mut answers = Vec::new();
        loop {
            match self.cluster.poll(watch, &answers, timestamp(self.now_ms)) {
                Reply::Done(frames) => return frames.into_iter().map(event).collect(),
                Reply::Call(call) if answers.len() < MAX_ASKED => answers.push(self.answered(*call)),
                Reply::Call(_) => return vec![None],
            }
        }
    }

    /// Where a kind is.
    ///
    /// # Errors
    /// 404 when it is not served.
    pub fn resource(&mut self, kind: &Kind) -> Result<Resource, Refused> {
        if let Some(known) = self.resources.get(kind) {
            return Ok(known.clone());
        }
        let root = match kind.group() {
            "" => format!("/api/{}", kind.version()),
            group => format!("/apis/{group}/{}", kind.version()),
        };
        let list = self.json(Client::Others, Ask::get(root.clone())).unwrap_or_default();
        let all = list["resources"].as_array().into_iter().flatten();
        let is_it = |found: &&Value| {
            found["kind"] == *kind.kind && found["name"].as_str().is_some_and(|name| !name.contains('/'))
        };
        let Some(found) = all.into_iter().find(is_it) else {
            let message = format!("the API server does not serve {kind}; is its CRD installed?");
            return Err(Refused { code: 404, reason: "NotFound".to_owned(), message, ..Refused::default() });
        };
        let plural = found["name"].as_str().unwrap_or_default().to_owned();
        let resource = Resource { root, plural, namespaced: found["namespaced"] == true };
        self.resources.insert(kind.clone(), resource.clone());
        Ok(resource)
    }

    /// A definition changed: what kinds there are is read anew.
    pub fn forget_resources(&mut self) {
        self.resources.clear();
    }

    /// The path of an object, or of the collection that it is created in. Without a name or a namespace that its kind needs,
    /// the path would address others.
    ///
    /// # Errors
    /// 404 when the kind is not served, 400 for a name that it cannot have.
    pub fn path(&mut self, target: &ObjectRef) -> Result<[String; 2], Refused> {
        let resource = self.resource(&target.kind)?;
        let Name { namespace, name } = &target.name;
        if name.is_empty() || name.contains('/') || namespace.is_empty() == resource.namespaced {
            let needs = if resource.namespaced { "a namespace" } else { "no namespace" };
            let message = format!("{target}: an object of {} has a name and {needs}", target.kind);
            return Err(Refused { code: 400, reason: "BadRequest".to_owned(), message, ..Refused::default() });
        }
        let collection = resource.collection(namespace);
        Ok([format!("{collection}/{name}"), collection])
    }

    /// Whether the host may use a kind.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn check(&mut self, verb: &str, kind: &Kind) -> Result<(), Refused> {
        if !self.denied.contains(kind) {
            return Ok(());
        }
        let plural = self.resources.get(kind).map_or_else(|| kind.kind.to_lowercase(), |known| known.plural.clone());
        let message = format!(
            "{plural} is forbidden: User \"system:serviceaccount:mortise-system:mortise\" cannot {verb} resource \
             {plural:?} in API group {:?} at the cluster scope",
            kind.group()
        );
        Err(Refused { code: 403, reason: "Forbidden".to_owned(), message, ..Refused::default() })
    }

    /// One object; None when it is absent.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn get(&mut self, client: Client, target: &ObjectRef) -> Result<Option<Value>, Refused> {
        let [path, _] = self.path(target)?;
        match self.json(client, Ask::get(path)) {
            Ok(found) => Ok(Some(found)),
            Err(refused) if refused.code == 404 => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// A list of a slice, as the host sees it.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn list<T: DeserializeOwned + Default>(&mut self, slice: &Slice) -> Result<T, Refused> {
        let ask = self.of_slice(slice)?;
        let list = self.send(Client::Host, ask)?.bytes();
        Ok(serde_json::from_slice(&list).unwrap_or_default())
    }

    /// A watch of a slice from a version on, as the host sees it.
    ///
    /// # Errors
    /// The API server's refusal.
    pub fn watch(&mut self, slice: &Slice, from: u64) -> Result<Box<Watch>, Refused> {
        let mut ask = self.of_slice(slice)?;
        ask.query.extend([
            ("watch", "true".to_owned()),
            ("allowWatchBookmarks", "true".to_owned()),
            ("resourceVersion", from.to_string()),
            ("timeoutSeconds", WATCH_SECONDS.to_string()),
        ]);
        match self.send(Client::Host, ask)? {
            Body::Watch(watch) => Ok(watch),
            _ => Err(Refused { code: 500, message: "the watch is no stream".to_owned(), ..Refused::default() }),
        }
    }

    fn of_slice(&mut self, slice: &Slice) -> Result<Ask<'static>, Refused> {
        let resource = self.resource(&slice.kind)?;
        self.check("list", &slice.kind)?;
        if slice.namespace.is_some() && !resource.namespaced {
            let message = WatchError::no_namespaces(&slice.kind).to_string();
            return Err(Refused { code: 404, reason: "NotFound".to_owned(), message, ..Refused::default() });
        }
        let mut ask = Ask::get(resource.collection(slice.namespace.as_deref().unwrap_or_default()));
        ask.query.extend(slice.labels.iter().map(|labels| ("labelSelector", labels.to_string())));
        Ok(ask)
    }

    /// Sends a write of the engine. `body` replaces that of an apply whose generated values were completed.
    ///
    /// # Errors
    /// What the engine is to hear of it.
    pub fn execute(&mut self, write: &Write, body: Option<Arc<str>>) -> Result<Written, WriteError> {
        let invalid = |message| WriteError { class: WriteErrorClass::Invalid, message };
        let wanted = request::request(write, body).map_err(invalid)?;
        match self.write(write.op.target(), &wanted) {
            Ok(written) => response::written(&written.bytes(), &write.op).map_err(invalid),
            Err(refused) => outcome(refused, &write.op),
        }
    }

    fn write(&mut self, target: &ObjectRef, wanted: &WriteRequest) -> Result<Body, Refused> {
        let [object, collection] = self.path(target)?;
        let path = match (&wanted.subresource, wanted.to_collection) {
            (Some(subresource), _) => format!("{object}/{subresource}"),
            (None, true) => collection,
            (None, false) => object,
        };
        let method = match wanted.method {
            request::Method::Post => Method::Post,
            request::Method::Patch => Method::Patch,
            request::Method::Delete => Method::Delete,
        };
        let (query, content_type) = (wanted.query.clone(), wanted.content_type);
        let ask = Ask { method, path, query, content_type, body: wanted.body.as_bytes() };
        self.send(Client::Host, ask)
    }
}

/// What a refusal of a write is to the engine: some say that nothing is left to do.
///
/// # Errors
/// The others.
pub fn outcome(refused: Refused, op: &WriteOp) -> Result<Written, WriteError> {
    response::refused(refused, op).map_err(|refused| refused.to_error_of(op))
}

fn event(frame: Frame) -> Option<Seen> {
    match frame {
        Frame::Event(text) => Some(serde_json::from_str(&text).expect("the cluster sends events as JSON")),
        Frame::End => None,
    }
}

fn refused(status: u16, body: Body) -> Refused {
    let bytes = body.bytes();
    let plain = || Refused { message: String::from_utf8_lossy(&bytes).into_owned(), ..Refused::default() };
    Refused { code: status, ..Refused::from_status(&bytes).unwrap_or_else(plain) }
}
