//! The manifest: what a plugin says it is, reconciles, owns, reads and may write. Parsed once per digest; after
//! [`Manifest::parse`] every claim is well-formed, so nothing later checks it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use crate::limits::{CallLimits, MAX_DEADLINE_MS, MAX_MANIFEST_BYTES, MAX_MEMORY_BYTES};
use crate::object::{Kind, Object};
use crate::refusal::Refusal;

use self::owned::RawOwned;
pub use self::owned::{OwnedKind, Update};
pub use self::predicate::Predicate;
use self::predicate::RawSelection;
use self::writes::WriteRule;

mod owned;
mod predicate;
pub mod writes;

mod admission;
mod conversion;

pub use admission::{AdmissionSpec, Operations};
pub use conversion::ConversionSpec;

/// The only apiVersion of manifests that this host reads.
pub const API_VERSION: &str = "mortise.dev/v1alpha1";
/// Calls of one controller that run at once unless its manifest says otherwise; controller-runtime's default is 1,
/// which makes one slow object hold up all others.
const DEFAULT_CONCURRENCY: u32 = 8;
/// More than any machine has workers for.
const MAX_CONCURRENCY: u32 = 256;

/// What a plugin is, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// The name that the plugin gives itself; the host uses the source's name.
    pub name: Arc<str>,
    /// The plugin's own version, for people.
    pub version: Arc<str>,
    /// CustomResourceDefinitions that come with the plugin.
    pub custom_resources: Vec<CustomResource>,
    /// One entry per reconciled kind.
    pub controllers: Vec<ControllerSpec>,
    /// What may be written besides children and status.
    pub writes: Arc<[WriteRule]>,
    /// Kinds whose objects the plugin checks or completes before they are stored.
    pub admission: Vec<AdmissionSpec>,
    /// Definitions whose objects the plugin converts between their versions.
    pub conversion: Vec<ConversionSpec>,
    /// Bounds of every call.
    pub limits: CallLimits,
}

/// Which of the contract's optional interfaces a component exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exports {
    /// mortise:plugin/admission.
    pub admission: bool,
    /// mortise:plugin/conversion.
    pub conversion: bool,
}

/// A CRD that a manifest brings.
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResource {
    /// "podsets.app.example.com".
    pub name: Arc<str>,
    /// The plural, which is the resource's name in paths and RBAC.
    pub plural: Arc<str>,
    /// Every kind it serves, one per served version.
    pub kinds: Vec<Kind>,
    /// The names of all its versions.
    pub versions: Vec<Arc<str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The CRD's JSON text as the manifest has it.
    pub body: Arc<str>,
}

/// One controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ControllerSpec {
    /// The reconciled kind.
    pub primary: Kind,
    /// It is a kind of Kubernetes itself, which writes its status: the host writes none, and no condition either.
    pub builtin: bool,
    /// Which of its objects are reconciled.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: Vec<OwnedKind>,
    /// Kinds that are only read.
    pub reads: Vec<Kind>,
    /// What the plugin may write besides; the same for all of its controllers.
    pub writes: Arc<[WriteRule]>,
    /// Objects are kept from going until the plugin has cleaned up after them.
    pub finalize: bool,
    /// Calls that may run at once.
    pub concurrency: u32,
}

impl ControllerSpec {
    /// Every kind that the guest may see, without repetition: the primary, what it owns, what it reads.
    pub fn readable(&self) -> Vec<Kind> {
        let mut kinds = vec![self.primary.clone()];
        for kind in self.owns.iter().map(|owned| &owned.kind).chain(&self.reads) {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        kinds
    }

    /// Whether an object of the primary kind is reconciled.
    pub fn selects(&self, object: &Object) -> bool {
        self.selection.is_everything() || self.selection.matches(object)
    }

    /// Whether the guest sees a kind and writes none of it, so that a change of it is never an echo of its own writes.
    pub fn only_reads(&self, kind: &Kind) -> bool {
        let (is_owned, is_written) =
            (self.update_of(kind).is_some(), self.writes.iter().any(|rule| rule.kind == *kind));
        *kind != self.primary && !is_owned && !is_written
    }

    /// How children of a kind are changed, or None when it is not owned.
    pub fn update_of(&self, kind: &Kind) -> Option<Update> {
        self.owns.iter().find(|owned| owned.kind == *kind).map(|owned| owned.update)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawManifest {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    custom_resources: Vec<Box<serde_json::value::RawValue>>,
    controllers: Vec<RawController>,
    #[serde(default)]
    writes: Vec<writes::RawWrite>,
    #[serde(default)]
    admission: Vec<admission::Raw>,
    #[serde(default)]
    conversion: Vec<RawKind>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawController {
    r#for: RawKind,
    #[serde(default)]
    r#where: RawSelection,
    #[serde(default)]
    owns: Vec<RawOwned>,
    #[serde(default)]
    reads: Vec<RawKind>,
    #[serde(default)]
    finalize: bool,
    #[serde(default)]
    concurrency: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawKind {
    api_version: String,
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    memory_bytes: Option<u64>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
struct RawCrd {
    kind: String,
    metadata: RawCrdMeta,
    spec: RawCrdSpec,
}

#[derive(Deserialize)]
struct RawCrdMeta {
    name: String,
}

#[derive(Deserialize)]
struct RawCrdSpec {
    group: String,
    scope: String,
    names: RawCrdNames,
    versions: Vec<RawCrdVersion>,
    #[serde(default)]
    conversion: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct RawCrdNames {
    kind: String,
    plural: String,
}

#[derive(Deserialize)]
struct RawCrdVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new("InvalidManifest", format!("the manifest is not valid: {}", message.into())))
}

impl Manifest {
    /// Reads a manifest and checks everything that can be told without a cluster.
    ///
    /// # Errors
    /// A refusal that names the field and says what is expected there.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > MAX_MANIFEST_BYTES {
            return refuse(format!("it has {} bytes, the most is {MAX_MANIFEST_BYTES}", text.len()));
        }
        let raw: RawManifest = match serde_json::from_str(text) {
            Ok(raw) => raw,
            Err(error) => return refuse(error.to_string()),
        };
        if raw.api_version != API_VERSION || raw.kind != "PluginManifest" {
            return refuse(format!(
                "it is {} {}, this host reads {API_VERSION} PluginManifest",
                raw.api_version, raw.kind
            ));
        }
        if raw.controllers.is_empty() {
            return refuse("controllers: there is none, so there is nothing to reconcile");
        }
        let custom_resources = raw
            .custom_resources
            .iter()
            .enumerate()
            .map(|(index, body)| custom_resource(index, body.get()))
            .collect::<Result<Vec<_>, _>>()?;
        let writes: Arc<[WriteRule]> = writes::parse(raw.writes)?.into();
        let controllers = raw
            .controllers
            .into_iter()
            .enumerate()
            .map(|(index, controller)| controller_spec(index, controller, &writes))
            .collect::<Result<Vec<_>, _>>()?;
        writes::check_views(&writes, &controllers)?;
        let mut primaries = BTreeSet::new();
        for controller in &controllers {
            let resource = (controller.primary.group().to_owned(), Arc::clone(&controller.primary.kind));
            if !primaries.insert(resource) {
                return refuse(format!("controllers: {} is reconciled by two of them", controller.primary));
            }
        }
        let admission = admission::specs(raw.admission, &custom_resources, &controllers)?;
        let conversion = conversion::specs(raw.conversion, &custom_resources)?;
        Ok(Self {
            name: raw.name.into(),
            version: raw.version.into(),
            custom_resources,
            controllers,
            writes,
            admission,
            conversion,
            limits: limits(&raw.limits)?,
        })
    }
}

impl Manifest {
    /// Whether what the component exports is what its manifest says: a webhook that nobody answers would refuse every
    /// object, and checks that nobody asks for would be taken for made.
    ///
    /// # Errors
    /// A refusal that says which of the two is missing.
    pub fn check_exports(&self, exports: Exports) -> Result<(), Refusal> {
        let optional = [
            ("admission", !self.admission.is_empty(), exports.admission),
            ("conversion", !self.conversion.is_empty(), exports.conversion),
        ];
        for (name, is_declared, is_exported) in optional {
            let message = match (is_declared, is_exported) {
                (true, false) => format!(
                    "the manifest has entries under {name}, and the component exports no mortise:plugin/{name}; build it for \
                     the world `plugin-with-{name}`"
                ),
                (false, true) => format!(
                    "the component exports mortise:plugin/{name}, and its manifest has no entry under {name} that says for \
                     which kinds"
                ),
                _ => continue,
            };
            return Err(Refusal::new("ContractMismatch", message));
        }
        Ok(())
    }
}

fn kind_at(place: &str, api_version: &str, kind: &str) -> Result<Kind, Refusal> {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if kind.is_empty() || version.is_empty() || api_version.matches('/').count() > 1 {
        return refuse(format!("{place}: apiVersion {api_version:?} with kind {kind:?} names no kind"));
    }
    Ok(Kind::new(api_version, kind))
}

fn controller_spec(index: usize, raw: RawController, writes: &Arc<[WriteRule]>) -> Result<ControllerSpec, Refusal> {
    let place = format!("controllers[{index}]");
    let primary = kind_at(&format!("{place}.for"), &raw.r#for.api_version, &raw.r#for.kind)?;
    if let Some(why) = not_for_reconciling(&primary) {
        return Err(Refusal::new("ProtectedKind", format!("{place}.for: {primary} cannot be reconciled: {why}")));
    }
    if primary.group() == OWN_GROUP {
        return Err(Refusal::new(
            "ProtectedGroup",
            format!(
                "{place}.for: {primary} is the host's own record of its plugins; take a group of a domain of yours"
            ),
        ));
    }
    let selection = Predicate::parse(&format!("{place}.where"), raw.r#where)?;
    let owns = owned::parse(&place, &primary, &raw.owns)?;
    let reads = raw
        .reads
        .iter()
        .enumerate()
        .map(|(at, kind)| kind_at(&format!("{place}.reads[{at}]"), &kind.api_version, &kind.kind))
        .collect::<Result<Vec<_>, _>>()?;
    let concurrency = raw.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
    if concurrency == 0 || concurrency > MAX_CONCURRENCY {
        return refuse(format!("{place}.concurrency: {concurrency} is not within 1 and {MAX_CONCURRENCY}"));
    }
    let builtin = is_builtin_group(primary.group());
    let (writes, finalize) = (Arc::clone(writes), raw.finalize);
    Ok(ControllerSpec { primary, builtin, selection, owns, reads, writes, finalize, concurrency })
}

/// The group of the host's own kinds.
const OWN_GROUP: &str = "mortise.dev";

/// Kinds that the host has rights to for its own work, which are no plugin's to write.
fn not_for_plugins(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        (OWN_GROUP, _) => Some("the host keeps it"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("a plugin's definitions stand in its manifest under customResources")
        }
        ("events.k8s.io" | "", "Event") => Some("a plugin's events stand in its outcome"),
        _ => None,
    }
}

/// Kinds that the host writes itself of what is reconciled, so that reconciling them would never end.
fn not_for_reconciling(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("the host registers definitions, and a plugin's stand in its manifest under customResources")
        }
        ("events.k8s.io" | "", "Event") => {
            Some("the host tells of what is reconciled by Events, so each would cause more")
        }
        _ => None,
    }
}

/// The groups that the API server itself serves, beside those without a dot. Other `*.k8s.io` groups are left to the
/// API server, which asks for an approval annotation on their CRDs.
const BUILTIN_GROUPS: [&str; 19] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

pub(crate) fn is_builtin_group(group: &str) -> bool {
    !group.contains('.') || BUILTIN_GROUPS.contains(&group)
}

fn custom_resource(index: usize, body: &str) -> Result<CustomResource, Refusal> {
    let place = format!("customResources[{index}]");
    let crd: RawCrd = match serde_json::from_str(body) {
        Ok(crd) => crd,
        Err(error) => return refuse(format!("{place}: {error}")),
    };
    if crd.kind != "CustomResourceDefinition" {
        return refuse(format!("{place}: its kind is {:?}, expected CustomResourceDefinition", crd.kind));
    }
    let expected = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
    if crd.metadata.name != expected {
        return refuse(format!("{place}: its name is {:?}, it has to be {expected:?}", crd.metadata.name));
    }
    if crd.spec.conversion.is_some() {
        return refuse(format!(
            "{place}: spec.conversion is the host's to write; leave it out, and name the kind under conversion if the plugin \
             converts it"
        ));
    }
    if is_builtin_group(&crd.spec.group) {
        return Err(Refusal::new(
            "ProtectedGroup",
            format!("{place}: the group {:?} belongs to Kubernetes; take a group of a domain of yours", crd.spec.group),
        ));
    }
    let kinds: Vec<Kind> = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| Kind::new(&format!("{}/{}", crd.spec.group, version.name), &crd.spec.names.kind))
        .collect();
    if kinds.is_empty() {
        return refuse(format!("{place}: no version is served"));
    }
    Ok(CustomResource {
        name: crd.metadata.name.into(),
        plural: crd.spec.names.plural.into(),
        kinds,
        versions: crd.spec.versions.iter().map(|version| version.name.as_str().into()).collect(),
        namespaced: crd.spec.scope == "Namespaced",
        body: body.into(),
    })
}

fn limits(raw: &RawLimits) -> Result<CallLimits, Refusal> {
    let mut limits = CallLimits::default();
    if let Some(bytes) = raw.memory_bytes {
        if bytes == 0 || bytes > MAX_MEMORY_BYTES {
            return refuse(format!("limits.memoryBytes: {bytes} is not within 1 and {MAX_MEMORY_BYTES}"));
        }
        limits.memory_bytes = bytes;
    }
    if let Some(deadline_ms) = raw.deadline_ms {
        if deadline_ms == 0 || deadline_ms > MAX_DEADLINE_MS {
            return refuse(format!("limits.deadlineMs: {deadline_ms} is not within 1 and {MAX_DEADLINE_MS}"));
        }
        limits.deadline_ms = deadline_ms;
    }
    Ok(limits)
}

#[cfg(test)]
mod tests;
