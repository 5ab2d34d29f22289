//! What the Lifecycle knows of one plugin: what its source offers, the version that is coming up, the version that serves, and
//! what keeps either from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::requirements::Requirements;
use crate::component::{Offer, Version};
use crate::expectation::Expectation;
use crate::manifest::{CustomResource, Manifest};
use crate::object::Kind;
use crate::permission::Permission;
use crate::refusal::Refusal;
use crate::webhook::Endpoint;

/// One plugin, by its name.
#[derive(Debug, Default)]
pub(super) struct Plugin {
    /// What its source offers now.
    pub offer: Option<Offer>,
    /// A source has something under this name that cannot be read.
    pub unreadable: Option<(Arc<str>, Refusal)>,
    /// The version that is coming up.
    pub candidate: Option<Candidate>,
    /// The version that serves.
    pub active: Option<Active>,
    /// Why the offered version does not serve.
    pub refused: Option<Refused>,
    /// The refusal that was observed last: the same one again is no news.
    pub observed: Option<Refusal>,
    /// Rights that RBAC has refused, with the API server's words.
    pub denied: BTreeMap<Permission, String>,
    /// One of the calls that end in a fault.
    pub fault: Option<String>,
    /// That it is over its budget of writes.
    pub throttled: Option<Throttled>,
    /// Whether the API server calls its webhooks, for a plugin that has admission.
    pub admission: Option<Admission>,
    /// Which version converts its objects, for a plugin that has several versions of its kinds.
    pub conversion: Option<Converting>,
    pub object: ObjectWrites,
    /// What is kept for it.
    pub requirements: Requirements,
}

/// A plugin was over its budget of writes.
#[derive(Debug)]
pub(super) struct Throttled {
    /// When it was so last.
    pub at_ms: u64,
    pub message: String,
}

/// A refusal, with what it was about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub by: RefusedBy,
    pub refusal: Refusal,
}

/// What a version was refused for, which decides what lets it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusedBy {
    /// The component or its manifest: another component.
    Component,
    /// Another plugin, of this host or another, that owns one of its kinds: that plugin's end.
    KindOwner,
    /// Another host that has a plugin of this name: that plugin's end.
    NameOwner,
    /// A definition in the cluster: a person, so it is tried again.
    Definition,
}

/// A version that is coming up.
#[derive(Debug)]
pub(super) struct Candidate {
    pub version: Version,
    pub stage: Stage,
    pub since_ms: u64,
    /// Why the current stage takes so long.
    pub waits_for: Option<String>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Compiling,
    Registering { manifest: Arc<Manifest>, missing: BTreeSet<Arc<str>> },
    Listing { manifest: Arc<Manifest> },
}

/// A version that serves.
#[derive(Debug)]
pub(super) struct Active {
    pub version: Version,
    pub manifest: Arc<Manifest>,
    /// What the Reconciler was sent last for each controller, by its primary kind.
    pub ready: BTreeMap<Kind, bool>,
}

/// The writes of a Plugin object.
#[derive(Debug, Default)]
pub(super) struct ObjectWrites {
    pub in_flight: bool,
    pub expected: Option<Expectation>,
    pub failures: u32,
    /// When this host last created it.
    pub created_ms: Option<u64>,
}

/// Whether the API server calls a plugin's admission webhooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// The webhook configurations are being written.
    Pending,
    Served,
    /// They could not be written, or not as this version wants them.
    Failed(Refusal),
}

/// Which version converts a plugin's objects.
#[derive(Debug)]
pub(super) struct Converting {
    pub version: Version,
    pub state: Conversion,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Conversion {
    /// The server, or its certificate, is coming up.
    Pending,
    /// The host answers at this endpoint.
    Served(Arc<Endpoint>),
    Failed(Refusal),
}

impl RefusedBy {
    /// Whether what stands in the way may change without an event.
    pub fn is_retried(self) -> bool {
        matches!(self, Self::NameOwner | Self::Definition)
    }
}

impl Stage {
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        match self {
            Self::Compiling => None,
            Self::Registering { manifest, .. } | Self::Listing { manifest } => Some(manifest),
        }
    }
}

impl Plugin {
    /// Where it comes from, for people.
    pub fn source(&self) -> Option<&Arc<str>> {
        let offered = self.offer.as_ref().map(|offer| &offer.source);
        offered.or(self.unreadable.as_ref().map(|(source, _)| source))
    }

    /// The version whose definitions are in the cluster, or are about to be: the one that is coming up, else the one that
    /// serves.
    pub fn registered(&self) -> Option<(&Arc<Manifest>, &Version)> {
        let candidate = self.candidate.as_ref().and_then(|it| Some((it.stage.manifest()?, &it.version)));
        candidate.or(self.active.as_ref().map(|it| (&it.manifest, &it.version)))
    }

    /// A CRD of that version.
    pub fn custom_resource(&self, name: &str) -> Option<(&CustomResource, &Version)> {
        let (manifest, version) = self.registered()?;
        Some((manifest.custom_resources.iter().find(|found| *found.name == *name)?, version))
    }

    /// Where the API server reaches the version that converts.
    pub fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        match &self.conversion.as_ref()?.state {
            Conversion::Served(endpoint) => Some(endpoint),
            Conversion::Pending | Conversion::Failed(_) => None,
        }
    }

    /// Whether a CRD is registered with this plugin as its conversion webhook.
    pub fn converts(&self, crd: &str) -> bool {
        self.registered().is_some_and(|(manifest, _)| manifest.conversion.iter().any(|spec| *spec.crd == *crd))
    }

    /// The manifest that is listed before it serves.
    pub fn listing(&self) -> Option<&Arc<Manifest>> {
        match self.candidate.as_ref().map(|candidate| &candidate.stage) {
            Some(Stage::Listing { manifest }) => Some(manifest),
            _ => None,
        }
    }

    /// The kinds that the listed version and the one that serves read.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        let manifests = self.listing().into_iter().chain(self.active.as_ref().map(|active| &active.manifest));
        manifests.flat_map(|manifest| &manifest.controllers).flat_map(|controller| controller.readable())
    }
}
