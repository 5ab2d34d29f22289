//! The state of one plugin: its offer, the version that is coming up, the version that serves, and the errors of both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::asking::Asking;
use super::dynamic_kinds::{DynamicKind, NamedKinds};
use super::kind_ownership::{KindOwnership, edges};
use super::requirements::Requirements;
use super::timers::{BYTES_RETRY_MS, REFUSED_RETRY_MS};
use crate::component::{Offer, Version};
use crate::engine::health::PluginHealth;
use crate::expectation::Expectation;
use crate::grants::Names;
use crate::manifest::{AdmissionSpec, CustomResource, Manifest};
use crate::object::Kind;
use crate::permission::Permission;
use crate::refusal::Refusal;
use crate::rights::{Readable, Rights};
use crate::scope::Scope;
use crate::selector::Selector;
use crate::service_account::ServiceAccount;
use crate::tenant::TenantSource;
use crate::token_bucket::TokenBucket;
use crate::webhook::Endpoint;

#[derive(Debug, Default)]
pub(super) struct Plugin {
    pub offer: Option<Offer>,
    /// What was read of the source last, whether it may serve or not.
    pub read: Option<Offer>,
    /// A source has something of this name that cannot be read.
    pub unreadable: Option<(Arc<str>, Refusal)>,
    /// The ConfigMap of a tenant's plugin.
    pub tenant: Option<Arc<TenantSource>>,
    /// The version that is coming up.
    pub candidate: Option<Candidate>,
    /// The version that serves.
    pub active: Option<Active>,
    /// As probes show it, unless it has changed since.
    pub health: OnceLock<PluginHealth>,
    /// Why the offered version does not serve.
    pub refused: Option<Refused>,
    /// The refusal that was observed last, so that each is observed once (L5).
    pub observed: Option<Refusal>,
    /// Denied permissions, with the API server's messages.
    pub denied: BTreeMap<Permission, String>,
    /// Why HTTP requests of it are not sent.
    pub not_granted: Option<Arc<str>>,
    /// The message of a call that ended in a fault.
    pub fault: Option<String>,
    pub throttled: Option<Throttled>,
    pub costly: Option<Costly>,
    /// Nothing is reconciled, as its Plugin object wants it.
    pub suspended: bool,
    /// The dynamic kinds that have an informer for it.
    pub dynamic_kinds: BTreeMap<Kind, DynamicKind>,
    pub named_kinds: NamedKinds,
    /// Set for a plugin with admission.
    pub admission: Option<Admission>,
    /// Set for a plugin with several versions of its kinds.
    pub conversion: Option<Converting>,
    pub object: ObjectWrites,
    pub requirements: Requirements,
    pub identities: Identities,
    pub reviews: Reviews,
}

/// A plugin is over its budget of writes or of HTTP requests.
#[derive(Debug)]
pub(super) struct Throttled {
    /// When the Outbox last reported it.
    pub at_ms: u64,
    pub message: String,
}

/// A plugin took more than any other when memory was scarce.
#[derive(Debug)]
pub(super) struct Costly {
    /// When that was last, or the host began to serve it after a restart.
    pub at_ms: u64,
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub by: RefusedBy,
    pub refusal: Refusal,
}

/// What a version was refused for, which decides when it is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusedBy {
    /// The component or its manifest: never, since it cannot change.
    Component,
    /// Another plugin, of this host or another, that owns one of its kinds: when that kind is released.
    KindOwner,
    /// Another host's plugin of this name: when its Plugin object is gone.
    NameOwner,
    /// Nobody gave it an identity, or what it asks for: when its Plugin object does.
    Rights,
    /// The host may not act as its ServiceAccount: when a role lets it.
    Identity,
    /// A CRD in the cluster: periodically, since a person has to change it.
    Definition,
    /// The objects of its tenant: now and then, since somebody has to delete some, and they are listed to see that.
    Bytes,
}

/// A version that is coming up.
#[derive(Debug)]
pub(super) struct Candidate {
    pub version: Version,
    pub stage: Stage,
    pub since_ms: u64,
    /// What the current stage waits for.
    pub waits_for: Option<String>,
    /// Those of its CRDs that exist and were not made for it.
    pub foreign: Names,
}

#[derive(Debug)]
pub(super) enum Stage {
    Compiling,
    Registering { manifest: Arc<Manifest>, missing: Names },
    Listing { manifest: Arc<Manifest> },
}

/// A version that serves.
#[derive(Debug)]
pub(super) struct Active {
    pub version: Version,
    pub manifest: Arc<Manifest>,
    /// As [`Candidate::foreign`].
    pub foreign: Names,
    /// What its ServiceAccount may read of it; None: all that the host may.
    pub rights: Option<Arc<Rights>>,
    /// The last `SetReady` of each controller, by primary kind.
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
    /// Writes that are left of this minute's; None before the first.
    pub bucket: Option<TokenBucket>,
    /// When the next one may be sent.
    pub not_before_ms: u64,
}

/// The reviews of one plugin.
pub(super) type Reviews = BTreeMap<(Arc<ServiceAccount>, Kind), Reviewed>;

#[derive(Debug, Default)]
pub(super) struct Reviewed {
    /// What is asked.
    pub wanted: Wanted,
    /// The last answer to that.
    pub readable: Option<Readable>,
    /// When all that is wanted was asked last; other reviews ask where something has changed.
    pub all_sent_ms: u64,
    /// The namespaces of the last review, and those whose answer stayed.
    pub namespaces: BTreeSet<Arc<str>>,
    /// RoleBindings name the ServiceAccount in further namespaces, which are not asked about.
    pub has_more: bool,
    /// Where roles and bindings have changed since an answer was settled; None: perhaps everywhere.
    pub changed_in: Option<BTreeSet<Arc<str>>>,
    pub asking: Asking,
}

/// Whether the host may act as the ServiceAccounts of one plugin.
pub(super) type Identities = BTreeMap<Arc<ServiceAccount>, Identity>;

#[derive(Debug, Default)]
pub(super) struct Identity {
    /// The last answer.
    pub may_act: Option<bool>,
    pub asking: Asking,
}

/// What is to be known of a kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wanted {
    /// What versions declare of it.
    pub scope: Scope,
    /// Only objects name it, so it is listed and watched, and never read live.
    pub is_dynamic: bool,
}

/// The webhook configurations of a plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// They are being written.
    Pending,
    Served,
    Failed(Refusal),
}

/// The version that converts a plugin's objects.
#[derive(Debug)]
pub(super) struct Converting {
    pub version: Version,
    pub state: Conversion,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Conversion {
    /// The server or its certificate is not ready.
    Pending,
    /// The host serves the conversion webhook at this endpoint.
    Served(Arc<Endpoint>),
    Failed(Refusal),
}

impl RefusedBy {
    /// After which time it is tried again, if the reason may end without an event.
    pub fn retry_ms(self) -> Option<u64> {
        match self {
            Self::NameOwner | Self::Definition => Some(REFUSED_RETRY_MS),
            Self::Bytes => Some(BYTES_RETRY_MS),
            Self::Component | Self::KindOwner | Self::Rights | Self::Identity => None,
        }
    }
}

impl Active {
    /// Whether all its controllers may be called.
    pub fn is_ready(&self) -> bool {
        self.manifest.controllers.iter().all(|controller| self.ready.get(&controller.primary) == Some(&true))
    }

    /// Its admission. A kind of a foreign CRD has to work without the plugin, like every kind that it did not bring.
    pub fn admission_specs(&self) -> impl Iterator<Item = AdmissionSpec> {
        let crds = || self.manifest.custom_resources.iter();
        let is_foreign =
            move |kind: &Kind| crds().any(|crd| crd.kinds.contains(kind) && self.foreign.contains(&crd.name));
        let spec = move |spec: &AdmissionSpec| match is_foreign(&spec.kind) {
            true => AdmissionSpec { resource: None, ..spec.clone() },
            false => spec.clone(),
        };
        self.manifest.admission.iter().map(spec)
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
    /// Those of the version that serves and of the one that is coming up, once that is compiled.
    fn manifests(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        let coming = self.candidate.as_ref().and_then(|candidate| candidate.stage.manifest());
        self.active.as_ref().map(|active| &active.manifest).into_iter().chain(coming)
    }

    /// What it requires now.
    pub fn requires(&self) -> Requirements {
        let (mut owned_kinds, mut all_edges) = (BTreeSet::new(), BTreeSet::new());
        for controller in self.manifests().flat_map(|manifest| &manifest.controllers) {
            owned_kinds.extend(KindOwnership::all_of(controller));
            all_edges.extend(edges(controller));
        }
        let registered = self.registered().into_iter().flat_map(|(manifest, _)| &manifest.custom_resources);
        let offered = self.offer.iter().map(|offer| &offer.digest);
        let serving = self.active.iter().map(|active| &active.version.digest);
        Requirements {
            kinds: self.watched(),
            digests: offered.chain(serving).cloned().collect(),
            owned_kinds,
            edges: all_edges,
            defines: registered.flat_map(|crd| crd.kinds.iter().cloned()).collect(),
        }
    }

    /// Whether its first version is being compiled, so that its kinds are not known.
    pub fn is_compiling(&self) -> bool {
        self.active.is_none() && self.candidate.as_ref().is_some_and(|it| matches!(it.stage, Stage::Compiling))
    }

    pub fn source(&self) -> Option<&Arc<str>> {
        let offered = self.offer.as_ref().map(|offer| &offer.source);
        offered.or(self.unreadable.as_ref().map(|(source, _)| source))
    }

    /// The version whose CRDs are registered: the one that is coming up, else the one that serves.
    pub fn registered(&self) -> Option<(&Arc<Manifest>, &Version)> {
        let candidate = self.candidate.as_ref().and_then(|it| Some((it.stage.manifest()?, &it.version)));
        candidate.or(self.active.as_ref().map(|it| (&it.manifest, &it.version)))
    }

    /// A CRD of that version.
    pub fn custom_resource(&self, name: &str) -> Option<(&CustomResource, &Version)> {
        let (manifest, version) = self.registered()?;
        Some((manifest.custom_resources.iter().find(|found| *found.name == *name)?, version))
    }

    /// The endpoint of the conversion webhook.
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

    /// What the serving version and one in its listing stage declare, each for itself.
    pub fn declared(&self) -> impl Iterator<Item = (Kind, Scope)> {
        let listing = match self.candidate.as_ref().map(|candidate| &candidate.stage) {
            Some(Stage::Listing { manifest }) => Some(manifest),
            _ => None,
        };
        let manifests = listing.into_iter().chain(self.active.as_ref().map(|active| &active.manifest));
        manifests.flat_map(|manifest| manifest.scopes())
    }

    /// What both read of which kinds together.
    pub fn scopes(&self) -> BTreeMap<Kind, Scope> {
        let mut scopes = BTreeMap::<Kind, Scope>::new();
        for (kind, scope) in self.declared() {
            match scopes.get_mut(&kind) {
                Some(known) => *known = std::mem::take(known).union(&scope),
                None => _ = scopes.insert(kind, scope),
            }
        }
        scopes
    }

    /// What it has the host watch: of kinds that its objects name, everything.
    fn watched(&self) -> BTreeMap<Kind, Scope> {
        let mut watched = self.scopes();
        if self.tenant.is_some() {
            // Other labels would have the watches of all others begin anew.
            watched.values_mut().for_each(|scope| scope.labels = Selector::default());
        }
        watched.extend(self.dynamic_kinds.keys().map(|kind| (kind.clone(), Scope::default())));
        watched
    }
}
