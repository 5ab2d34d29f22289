//! Performs the engine's effects on the cluster, as the runtime does on an API server: results come back by the queue.

use std::sync::Arc;

use mortise_core::admission::AdmissionBackend;
use mortise_core::admission::configuration::{Change, Configuration, Resources, change, name_of, wanted};
use mortise_core::audit::{Listed, Page, Response};
use mortise_core::call::{Call, CallDone};
use mortise_core::component::Compiled;
use mortise_core::event::{Effect, Event, Sending};
use mortise_core::http::{self, Failure, FailureClass, Sent};
use mortise_core::object::{Interner, Kind, Name, Object, ObjectRef, ResourceVersion};
use mortise_core::observation::Observation;
use mortise_core::refusal::Refusal;
use mortise_core::response::Refused;
use mortise_core::rights::Readable;
use mortise_core::scope::Slice;
use mortise_core::write::{WriteError, WriteErrorClass};
use mortise_local_cluster::Method;
use serde::Deserialize;
use serde_json::Value;

use super::Story;
use super::due::Due;
use crate::api::{Ask, Client};
use crate::webhooks::{NAMESPACE, endpoint};

/// The reply to a plugin's HTTP requests of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Arc<[u8]>,
}

/// What an audit compares, of a list.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Names {
    metadata: Metadata,
    items: Vec<Item>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

impl Story {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::StartWatch(slice) | Effect::Relist(slice) => self.open(slice),
            Effect::StopWatch(slice) => drop(self.watches.remove(&slice)),
            // A story's host has no tenants.
            Effect::WatchTenant(_) | Effect::StopTenant(_) => {}
            Effect::Compile(digest) => {
                let (manifest, component_bytes) = (Arc::clone(&self.manifest), self.manifest.len() as u64);
                let compiled = Compiled { manifest, component_bytes, compile_ms: 0, cached: true };
                self.respond_with(Event::Compiled(digest, Ok(compiled)));
            }
            Effect::Unload(_) => {}
            Effect::RegisterCrd { plugin, crd, body, .. } => self.register(plugin, crd, &body),
            Effect::ServeAdmission { plugin, backend: Some(backend) } => self.serve_admission(plugin, backend),
            Effect::ServeAdmission { plugin, backend: None } => {
                // What is not deleted now is deleted by the next start.
                let _ = self.configure_all(&plugin, None);
                self.api.webhooks.admission.remove(&plugin);
                self.respond_with(Event::AdmissionEnded { plugin });
            }
            Effect::ServeConversion { plugin, backend: Some(backend) } => {
                let (digest, result) = (backend.digest.clone(), Ok(endpoint()));
                self.api.webhooks.conversion.insert(Arc::clone(&plugin), backend);
                self.respond_with(Event::ConversionServed { plugin, digest, result });
            }
            Effect::ServeConversion { backend: None, .. } => {}
            Effect::Call(call) => self.call(*call),
            Effect::Write(write) => self.write(&write),
            Effect::Http(sending) => self.send_http(&sending),
            Effect::ReadLive(target) => self.read_live(target.object),
            Effect::Review(review) => self.respond_with(Event::Reviewed(*review, Ok(Readable::Everywhere))),
            Effect::ReviewIdentity(review) => self.respond_with(Event::IdentityReviewed(review, Ok(true))),
            Effect::Audit(slice) => self.audit(&slice),
            Effect::WakeAt(due_ms) => {
                let now_ms = self.now_ms();
                self.tick_ms = Some(self.tick_ms.map_or(due_ms, |before| before.min(due_ms)).max(now_ms));
            }
            Effect::Observe(observation) => self.observe(observation),
            Effect::Discard(garbage) => garbage.free(),
        }
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Activated { .. } => self.serves = Some(Ok(())),
            Observation::Refused { plugin, refusal } => {
                self.log.push(format!("refused {plugin}: {refusal}"));
                self.serves = Some(Err(format!("the host refuses the plugin {plugin}: {refusal}")));
            }
            Observation::BreakerOpened { cause, message } => {
                self.log.push(format!("breaker of {} opened: {message}", cause.object));
            }
            Observation::WriteFailed { target, error, .. } | Observation::EventFailed { target, error, .. } => {
                self.log.push(format!("  refused: {target}: {:?}: {}", error.class, error.message));
            }
            Observation::WatchFailed { kind, error } => self.log.push(format!("cannot watch {kind}: {error}")),
            Observation::CacheLagging { object } => self.log.push(format!("view lags behind {object}")),
            Observation::Undecodable { message, .. } | Observation::FinalizersLeft { message, .. } => {
                self.log.push(message);
            }
            _ => {}
        }
    }

    fn call(&mut self, call: Call) {
        self.calls += 1;
        let object = call.object.reference();
        self.wakes.called(&object);
        let (result, reads) = self.api.webhooks.guest.reconcile(call.object.json(), call.view, &call.limits);
        self.note_fault(&object, &result);
        self.wakes.read(object, &reads);
        let conclusion = call.check.conclude(&call.object, result);
        self.respond_with(Event::CallDone(call.id, CallDone { conclusion, reads, elapsed_us: 1_000 }));
    }

    fn send_http(&mut self, sending: &Sending) {
        let request = &sending.request;
        self.log.push(format!("{} {}{}", request.method.as_str(), request.origin, request.path));
        let sent = match self.http.get(&*request.key) {
            Some(reply) => {
                let (status, body) = (reply.status, Arc::clone(&reply.body));
                Sent::Response(http::Response { status, headers: Vec::new(), body })
            }
            None => Sent::Failed(Failure {
                class: FailureClass::Connect,
                message: format!("the story has no reply to requests of the key {:?}", request.key).into(),
            }),
        };
        self.respond_with(Event::HttpDone(sending.id, sent));
    }

    fn read_live(&mut self, target: ObjectRef) {
        let found = self.api.check("get", &target.kind).and_then(|()| self.api.get(Client::Host, &target));
        let result = match found {
            Ok(None) => Ok(None),
            Ok(Some(live)) => Object::decode_as(&target.kind, live.to_string().as_bytes(), &mut Interner::default())
                .map(|object| Some(Arc::new(object)))
                .map_err(|error| WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            Err(refused) => Err(refused.to_write_error()),
        };
        self.respond_with(Event::LiveRead(target.into(), result));
    }

    fn audit(&mut self, slice: &Slice) {
        let Ok(Names { metadata, items }) = self.api.list(slice) else {
            return self.respond_with(Event::Audit(slice.clone(), Response::Failed));
        };
        let version = |metadata: &Metadata| ResourceVersion(metadata.resource_version.parse().unwrap_or_default());
        let listed = |Item { metadata }: &Item| Listed {
            name: Name::new(&metadata.namespace, &metadata.name),
            uid: (*metadata.uid).into(),
            version: version(metadata),
        };
        let objects = items.iter().map(listed).collect();
        let page = Page { version: version(&metadata), objects, is_last: true };
        self.respond_with(Event::Audit(slice.clone(), Response::Begun));
        // Not before the list has begun: equal delays keep their order.
        self.schedule_after_all(Event::Audit(slice.clone(), Response::Page(page)));
    }

    /// Delivers an event after all that is under way.
    fn schedule_after_all(&mut self, event: Event) {
        self.schedule(17, Due::Event(self.incarnation, Box::new(event)));
    }

    /// Registers the webhooks, as the registrar does.
    fn serve_admission(&mut self, plugin: Arc<str>, backend: Arc<AdmissionBackend>) {
        self.api.webhooks.admission.insert(Arc::clone(&plugin), Arc::clone(&backend));
        let result = self.configure_all(&plugin, Some(&backend));
        let result = result.map_err(|refused| Refusal::new("WebhookNotWritten", refused.message));
        self.respond_with(Event::AdmissionServed { plugin, digest: backend.digest.clone(), result });
    }

    fn configure_all(&mut self, plugin: &str, backend: Option<&AdmissionBackend>) -> Result<(), Refused> {
        let mut resources = Resources::new();
        let specs = backend.iter().flat_map(|backend| backend.specs.iter());
        for spec in specs.filter(|spec| !spec.is_own()) {
            if let Ok(found) = self.api.resource(&spec.kind) {
                resources.insert(spec.kind.clone(), found.plural.as_str().into());
            }
        }
        for of in Configuration::ALL {
            let wanted = backend.and_then(|backend| wanted(of, plugin, NAMESPACE, backend, &endpoint(), &resources));
            self.configure(of, plugin, wanted)?;
        }
        Ok(())
    }

    fn configure(&mut self, of: Configuration, plugin: &str, wanted: Option<Value>) -> Result<(), Refused> {
        let kind = Kind::new("admissionregistration.k8s.io/v1", of.kind());
        let target = ObjectRef { kind, name: Name::new("", &name_of(plugin)) };
        let live = self.api.get(Client::Host, &target)?;
        let [object, collection] = self.api.path(&target)?;
        let (method, path, body) = match change(live.as_ref(), wanted) {
            None => return Ok(()),
            Some(Change::Create(body)) => (Method::Post, collection, body.to_string()),
            Some(Change::Update(body)) => (Method::Put, object, body.to_string()),
            Some(Change::Delete { .. }) => (Method::Delete, object, String::new()),
        };
        self.api.json(Client::Host, Ask { method, body: body.as_bytes(), ..Ask::get(path) }).map(drop)
    }
}
