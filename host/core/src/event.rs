//! What enters the engine and what leaves it. The shells translate between these and the world.
//!
//! An effect is a request; its answer, when it has one, is an event that carries the same id. Nothing here may hold a
//! client, a task or a channel.

use std::sync::Arc;

use crate::admission::AdmissionBackend;
use crate::audit;
use crate::call::{Call, CallDone, CallId};
use crate::component::{Compiled, Offer};
use crate::conversion::ConversionBackend;
use crate::crd::CrdError;
use crate::digest::Digest;
use crate::object::{Kind, Object, ObjectRef};
use crate::observation::Observation;
use crate::refusal::Refusal;
use crate::watch::WatchEvent;
use crate::webhook::Endpoint;
use crate::write::{Write, WriteError, WriteId, Written};

/// What enters the driver.
#[derive(Debug)]
pub enum Event {
    /// The first event: the host has begun.
    Started,
    /// Something about one watched kind.
    Watch(Kind, WatchEvent),
    /// A source offers a plugin, for the first time or changed.
    PluginFound(Offer),
    /// A source has something under this name that is not a plugin that can be read.
    PluginUnreadable {
        /// The plugin's name.
        name: Arc<str>,
        /// Where it comes from.
        source: Arc<str>,
        /// Why it cannot be read.
        refusal: Refusal,
    },
    /// A source no longer offers this plugin.
    PluginGone {
        /// The plugin's name.
        name: Arc<str>,
        /// Where it came from: what another source offers under the same name stays.
        source: Arc<str>,
    },
    /// Every source has told what it has once.
    SourcesListed,
    /// The answer to [`Effect::Compile`].
    Compiled(Digest, Result<Compiled, Refusal>),
    /// The answer to [`Effect::RegisterCrd`].
    CrdRegistered {
        /// The plugin that asked.
        plugin: Arc<str>,
        /// The CRD's name ("podsets.app.example.com").
        crd: Arc<str>,
        /// Established, or why not.
        result: Result<(), CrdError>,
    },
    /// The answer to [`Effect::ServeAdmission`] with a version; told again when it changes.
    AdmissionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        digest: Digest,
        /// The API server asks, or why it cannot be had to.
        result: Result<(), Refusal>,
    },
    /// The answer to [`Effect::ServeAdmission`] without a version: the API server asks no longer.
    AdmissionEnded {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// The answer to [`Effect::ServeConversion`] with a version; told again when it changes.
    ConversionServed {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version.
        digest: Digest,
        /// How the API server finds the host, which answers; or why it does not.
        result: Result<Endpoint, Refusal>,
    },
    /// The answer to [`Effect::Call`].
    CallDone(CallId, CallDone),
    /// The answer to [`Effect::Write`].
    Wrote(WriteId, Result<Written, WriteError>),
    /// The answer to [`Effect::ReadLive`]; None when there is no such object.
    LiveRead(ObjectRef, Result<Option<Arc<Object>>, WriteError>),
    /// A part of the answer to [`Effect::Audit`].
    Audit(Kind, audit::Answer),
    /// The election has gone on: the lead was won, renewed or lost. Only for a host that takes part in one.
    LeaseChanged {
        /// Until when this host leads, on the monotonic clock, if nothing else is heard; None when it does not.
        claim_until_ms: Option<u64>,
    },
    /// Time has passed; sent when a [`Effect::WakeAt`] is due.
    Tick,
    /// Finish what is in flight and begin nothing new.
    Shutdown,
}

/// What leaves the driver.
#[derive(Debug)]
pub enum Effect {
    /// Keep this kind listed and watched.
    StartWatch(Kind),
    /// Give the watch of this kind up and begin it anew, with a list of the newest state.
    Relist(Kind),
    /// Nobody reads this kind any more.
    StopWatch(Kind),
    /// Compile, load and ask for the manifest; answered by [`Event::Compiled`].
    Compile(Digest),
    /// No plugin refers to this digest any more.
    Unload(Digest),
    /// Create or update a CRD as `crd::plan` decides, wait until it is established; answered by
    /// [`Event::CrdRegistered`]. A host that may not write only looks whether it is there as it should be.
    RegisterCrd {
        /// The plugin it belongs to.
        plugin: Arc<str>,
        /// The CRD's metadata.name.
        crd: Arc<str>,
        /// The CustomResourceDefinition as JSON text, with the host's labels and annotations on it.
        body: Arc<str>,
        /// The last moment of the monotonic clock at which it may be written (X7); None: any.
        not_after_ms: Option<u64>,
    },
    /// Answer the API server's questions about a plugin's objects with this version from now on, and have it ask them;
    /// answered by [`Event::AdmissionServed`]. None: have it ask no longer, answered by [`Event::AdmissionEnded`]; the version
    /// before answers until then.
    ServeAdmission {
        /// The plugin.
        plugin: Arc<str>,
        /// Its version, and what it is asked.
        backend: Option<Arc<AdmissionBackend>>,
    },
    /// Convert a plugin's objects with this version from now on, whenever the API server asks; answered by
    /// [`Event::ConversionServed`]. None: nobody has to be told of it any more, and the version before goes on answering
    /// whoever still asks.
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
    /// Read one object from the API server; answered by [`Event::LiveRead`].
    ReadLive(ObjectRef),
    /// List names and versions of all objects of a kind live; answered by [`Event::Audit`], page by page. Only one such list
    /// is under way: the one before is given up.
    Audit(Kind),
    /// Send [`Event::Tick`] at this moment of the monotonic clock (an earlier one replaces a later one).
    WakeAt(u64),
    /// Something that operators count or read in the log.
    Observe(Observation),
}
