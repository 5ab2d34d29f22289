//! The engine's input and output: events and effects. The shells (the runtime and the simulator) perform the effects.
//!
//! An effect is a request; its result, if any, is an event with the same id. Nothing here may hold a client or a task.

use std::sync::Arc;

use crate::admission::AdmissionBackend;
use crate::audit;
use crate::call::{Call, CallDone, CallId};
use crate::component::{Compiled, Offer, Unreadable};
use crate::conversion::ConversionBackend;
use crate::crd::{CrdError, CrdOwner};
use crate::digest::Digest;
use crate::garbage::Garbage;
use crate::heap::HeapBytes;
use crate::http::{HttpId, OutgoingRequest, Sent};
use crate::memory::Pressure;
use crate::object::{Object, ObjectRef};
use crate::observation::Observation;
use crate::refusal::Refusal;
use crate::rights::{IdentityReview, Readable, Review};
use crate::scope::Slice;
use crate::service_account::ServiceAccount;
use crate::watch::WatchEvent;
use crate::webhook::Endpoint;
use crate::write::{Cause, Write, WriteError, WriteId, Written};

/// The engine's input.
#[derive(Debug)]
pub enum Event {
    /// The first event.
    Started,
    /// An event of a watch.
    Watch(Slice, WatchEvent),
    /// A source offers a plugin, for the first time or changed.
    PluginFound(Offer),
    /// A source has something under this name that is no readable plugin.
    PluginUnreadable(Unreadable),
    /// A source no longer offers this plugin.
    PluginGone {
        /// The plugin's name.
        name: Arc<str>,
        /// The source's text: another source may still offer a plugin of this name.
        source: Arc<str>,
    },
    /// Every source has listed its plugins once.
    SourcesListed,
    /// The plugins of this tenant are listed; the result of [`Effect::WatchTenant`].
    TenantListed(Arc<str>),
    /// The result of [`Effect::Compile`].
    Compiled(Digest, Result<Compiled, Refusal>),
    /// The machine cannot compile a component now, for this reason; it is tried again, and [`Event::Compiled`] follows.
    CompileDelayed(Digest, String),
    /// The result of [`Effect::RegisterCrd`].
    CrdRegistered {
        /// The plugin.
        plugin: Arc<str>,
        /// The CRD's name ("podsets.app.example.com").
        crd: Arc<str>,
        /// Established, and for whom it was made; or why not.
        result: Result<CrdOwner, CrdError>,
    },
    /// The result of [`Effect::ServeAdmission`] with a version; sent again when it changes.
    AdmissionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// The component of its version.
        digest: Digest,
        /// The webhooks are registered, or why they are not.
        result: Result<(), Refusal>,
    },
    /// The result of [`Effect::ServeAdmission`] without a version: the webhooks are deleted.
    AdmissionEnded {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// The result of [`Effect::ServeConversion`] with a version; sent again when it changes.
    ConversionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// The component of its version.
        digest: Digest,
        /// The endpoint that serves it, or why none does.
        result: Result<Endpoint, Refusal>,
    },
    /// The result of [`Effect::Call`].
    CallDone(CallId, CallDone),
    /// The result of [`Effect::Write`].
    Wrote(WriteId, Result<Written, WriteError>),
    /// The result of [`Effect::ReadLive`]; None when the object does not exist.
    LiveRead(LiveTarget, Result<Option<Arc<Object>>, WriteError>),
    /// The result of [`Effect::Review`].
    Reviewed(Review, Result<Readable, WriteError>),
    /// The result of [`Effect::ReviewIdentity`]: whether the host may.
    IdentityReviewed(IdentityReview, Result<bool, WriteError>),
    /// The result of [`Effect::Http`].
    HttpDone(HttpId, Sent),
    /// A part of the result of [`Effect::Audit`].
    Audit(Slice, audit::Response),
    /// This host's claim has changed. Only sent with leader election.
    LeaseChanged {
        /// When the claim ends on the monotonic clock unless it is renewed; None when this host does not lead.
        claim_until_ms: Option<u64>,
    },
    /// Memory is short, or no longer is.
    MemoryPressure(Pressure),
    /// Time has passed; sent when a [`Effect::WakeAt`] is due.
    Tick,
    /// Finish what is in flight and begin nothing new.
    Shutdown,
}

impl Event {
    /// Bytes in memory of what may be large; what cannot have more than some KiB counts nothing.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Watch(_, event) => event.bytes(),
            Self::PluginFound(offer) => offer.config.heap_bytes(),
            Self::Compiled(_, Ok(compiled)) => compiled.manifest.heap_bytes(),
            Self::CallDone(_, done) => done.bytes(),
            Self::LiveRead(_, Ok(Some(object))) => object.bytes(),
            Self::HttpDone(_, Sent::Response(response)) => response.bytes(),
            Self::Audit(_, audit::Response::Page(page)) => page.bytes(),
            _ => 0,
        }
    }
}

/// An object to be read from the API server, and who reads it; the host, if there is no ServiceAccount. What one may see is
/// no answer to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LiveTarget {
    /// The object.
    pub object: ObjectRef,
    /// Whose request it is.
    pub service_account: Option<Arc<ServiceAccount>>,
}

impl From<ObjectRef> for LiveTarget {
    fn from(object: ObjectRef) -> Self {
        Self { object, service_account: None }
    }
}

/// A request to be sent now.
#[derive(Clone, PartialEq, Debug)]
pub struct Sending {
    /// Returned with the result.
    pub id: HttpId,
    /// Whose request it is.
    pub plugin: Arc<str>,
    /// The reconcile that it belongs to.
    pub cause: Cause,
    /// Who reads the Secrets that it carries; the host, if there is none.
    pub service_account: Option<Arc<ServiceAccount>>,
    /// Whether an administrator has granted its origin values that the host made.
    pub gets_generated: bool,
    /// The request.
    pub request: Arc<OutgoingRequest>,
    /// The last moment of the monotonic clock at which it may be sent (X7); None: no limit.
    pub not_after_ms: Option<u64>,
}

/// The engine's output.
#[derive(Debug)]
pub enum Effect {
    /// List and watch this slice of a kind.
    StartWatch(Slice),
    /// Restart the watch of this slice with a list of the newest state.
    Relist(Slice),
    /// Stop the watch of this slice.
    StopWatch(Slice),
    /// List and watch the ConfigMaps with plugins of this namespace, anew if they are watched already; answered by
    /// [`Event::TenantListed`].
    WatchTenant(Arc<str>),
    /// Stop the watch of this tenant's plugins. Events that are under way may follow.
    StopTenant(Arc<str>),
    /// Compile and load the component and read its manifest; answered by [`Event::Compiled`].
    Compile(Digest),
    /// Drop a component that no plugin uses any more.
    Unload(Digest),
    /// Create or update a CRD as `crd::plan` decides and wait until it is established; answered by
    /// [`Event::CrdRegistered`]. A host that may not write only checks the live definition.
    RegisterCrd {
        /// The plugin that defines it.
        plugin: Arc<str>,
        /// The CRD's metadata.name.
        crd: Arc<str>,
        /// The CustomResourceDefinition as JSON text, from `crd::prepare`.
        body: Arc<str>,
        /// The last time on the monotonic clock to send the write (X7); None: any.
        not_after_ms: Option<u64>,
    },
    /// Serve a plugin's admission with this version and register its webhooks; answered by [`Event::AdmissionServed`].
    /// None: delete the webhooks, answered by [`Event::AdmissionEnded`]; the previous version serves until then.
    ServeAdmission {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        backend: Option<Arc<AdmissionBackend>>,
    },
    /// Serve a plugin's conversion with this version; answered by [`Event::ConversionServed`]. None: send no such event
    /// any more; the previous version still serves requests.
    ServeConversion {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        backend: Option<Arc<ConversionBackend>>,
    },
    /// Call a guest; answered by [`Event::CallDone`].
    Call(Box<Call>),
    /// Send a write; answered by [`Event::Wrote`].
    Write(Box<Write>),
    /// Send an HTTP request of a plugin; answered by [`Event::HttpDone`].
    Http(Box<Sending>),
    /// Read one object from the API server; answered by [`Event::LiveRead`].
    ReadLive(LiveTarget),
    /// Ask where a ServiceAccount may read a kind; answered by [`Event::Reviewed`].
    Review(Box<Review>),
    /// Ask whether the host may act as a ServiceAccount; answered by [`Event::IdentityReviewed`].
    ReviewIdentity(IdentityReview),
    /// List names and versions of all objects of a slice live, instead of any other list; answered by [`Event::Audit`].
    Audit(Slice),
    /// Send [`Event::Tick`] at this time of the monotonic clock; an earlier time replaces a later one.
    WakeAt(u64),
    /// Count or log this for operators.
    Observe(Observation),
    /// Free this where nothing waits for it.
    Discard(Garbage),
}
