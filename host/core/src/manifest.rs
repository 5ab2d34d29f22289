//! The manifest: what a plugin reconciles, owns, reads and may write. [`Manifest::parse`] checks it once per digest, so
//! no later code checks it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use self::controller::RawController;
use self::http::HttpRule;
use self::place::{RawKind, at_most, refuse, within};
use self::writes::WriteRule;
use crate::limits::{
    CallLimits, MAX_ADMISSION, MAX_CONTROLLERS, MAX_CUSTOM_RESOURCES, MAX_DEADLINE_MS, MAX_KINDS, MAX_MANIFEST_BYTES,
    MAX_MEMORY_BYTES, MAX_WATCHES,
};
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::text::FIELD;
use crate::well_known::API_VERSION;

pub use self::admission::{AdmissionSpec, Operations};
pub use self::controller::{ControllerSpec, ReadKind};
pub use self::conversion::ConversionSpec;
pub use self::custom_resource::CustomResource;
pub use self::owned::{OwnedKind, Replace, Update};
pub use self::predicate::Predicate;
pub(crate) use self::protected::is_builtin_group;

mod admission;
mod controller;
mod conversion;
mod custom_resource;
pub mod http;
mod narrowing;
mod owned;
mod place;
mod predicate;
mod protected;
mod tenant;
pub mod writes;

/// A manifest that has been checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Manifest {
    /// The plugin's name in its manifest; the host uses the name that the source gives it.
    pub name: Arc<str>,
    /// The plugin's own version, shown to people only.
    pub version: Arc<str>,
    /// The CRDs that the plugin brings.
    pub custom_resources: Vec<CustomResource>,
    /// Those that a tenant's plugin has in its manifest. It does not bring them; they say what a status may have.
    pub described_resources: Vec<CustomResource>,
    /// One entry per reconciled kind.
    pub controllers: Vec<ControllerSpec>,
    /// What the plugin may write besides children and status.
    pub writes: Arc<[WriteRule]>,
    /// Where its HTTP requests may be sent.
    pub http: Arc<[HttpRule]>,
    /// Kinds with admission webhooks of the plugin.
    pub admission: Vec<AdmissionSpec>,
    /// CRDs whose objects the plugin converts between versions.
    pub conversion: Vec<ConversionSpec>,
    /// Bounds of every call.
    pub limits: CallLimits,
    /// Where all that it writes is; everywhere, but for a tenant's.
    pub writes_in: Scope,
}

/// Which of the contract's optional interfaces a component exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exports {
    /// mortise:plugin/admission.
    pub admission: bool,
    /// mortise:plugin/conversion.
    pub conversion: bool,
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
    http: Vec<http::RawHttp>,
    #[serde(default)]
    admission: Vec<admission::Raw>,
    #[serde(default)]
    conversion: Vec<RawKind>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    memory_bytes: Option<u64>,
    deadline_ms: Option<u64>,
}

impl Manifest {
    /// Parses a manifest and makes every check that needs no cluster.
    ///
    /// # Errors
    /// The refusal names the field and what is expected there.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > MAX_MANIFEST_BYTES {
            return refuse(format!("it has {} bytes, the most is {MAX_MANIFEST_BYTES}", text.len()));
        }
        let raw: RawManifest = serde_json::from_str(text).or_else(|error| refuse(error.to_string()))?;
        if raw.api_version != API_VERSION || raw.kind != "PluginManifest" {
            return refuse(format!(
                "it is {} {}, this host reads {API_VERSION} PluginManifest",
                raw.api_version, raw.kind
            ));
        }
        if raw.controllers.is_empty() {
            return refuse("controllers: there is none, so there is nothing to reconcile");
        }
        at_most("controllers", raw.controllers.len(), MAX_CONTROLLERS)?;
        at_most("customResources", raw.custom_resources.len(), MAX_CUSTOM_RESOURCES)?;
        at_most("admission", raw.admission.len(), MAX_ADMISSION)?;
        let crds = raw.custom_resources.iter().enumerate();
        let custom_resources: Vec<CustomResource> =
            crds.map(|(index, body)| custom_resource::parse(index, body.get())).collect::<Result<_, _>>()?;
        let writes: Arc<[WriteRule]> = writes::parse(raw.writes)?.into();
        let http: Arc<[HttpRule]> = http::parse(raw.http)?.into();
        let controllers = raw.controllers.into_iter().enumerate();
        let parsed = controllers.map(|(index, raw)| controller::parse(index, raw, &writes, &http));
        let controllers: Vec<ControllerSpec> = parsed.collect::<Result<_, _>>()?;
        let kinds: BTreeSet<_> = controllers.iter().flat_map(ControllerSpec::readable).collect();
        at_most("controllers: kinds that they reconcile, own and read", kinds.len(), MAX_KINDS)?;
        let watches: usize = controllers.iter().map(ControllerSpec::count_watches).sum();
        at_most("controllers: namespaces of the kinds that they own and read", watches, MAX_WATCHES)?;
        let scopes: Vec<(Kind, Scope)> = controllers.iter().flat_map(ControllerSpec::scopes).collect();
        writes::check_views(&writes, &scopes)?;
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
            name: FIELD.own(raw.name).into(),
            version: FIELD.own(raw.version).into(),
            custom_resources,
            described_resources: Vec::new(),
            controllers,
            writes,
            http,
            admission,
            conversion,
            limits: limits(&raw.limits)?,
            writes_in: Scope::default(),
        })
    }

    /// What its controllers read of which kinds; a kind of several controllers several times.
    pub fn scopes(&self) -> impl Iterator<Item = (Kind, Scope)> {
        self.controllers.iter().flat_map(ControllerSpec::scopes)
    }

    /// Compares the component's exports with the manifest. A webhook without its export would refuse every object; an
    /// export without its entry would never be called.
    ///
    /// # Errors
    /// The refusal says whether the export or the entry is missing.
    pub fn check_exports(&self, exports: Exports) -> Result<(), Refusal> {
        let optional = [
            ("admission", !self.admission.is_empty(), exports.admission),
            ("conversion", !self.conversion.is_empty(), exports.conversion),
        ];
        for (name, is_declared, is_exported) in optional {
            let message = match (is_declared, is_exported) {
                (true, false) => format!(
                    "the manifest has entries under {name}, but the component exports no mortise:plugin/{name}; build it for \
                     the world `plugin-with-{name}`"
                ),
                (false, true) => {
                    format!("the component exports mortise:plugin/{name}, but its manifest names no kind under {name}")
                }
                _ => continue,
            };
            return Err(Refusal::new("ContractMismatch", message));
        }
        Ok(())
    }
}

fn limits(raw: &RawLimits) -> Result<CallLimits, Refusal> {
    let mut limits = CallLimits::default();
    if let Some(bytes) = raw.memory_bytes {
        limits.memory_bytes = within("limits.memoryBytes", bytes, MAX_MEMORY_BYTES)?;
    }
    if let Some(deadline_ms) = raw.deadline_ms {
        limits.deadline_ms = within("limits.deadlineMs", deadline_ms, MAX_DEADLINE_MS)?;
    }
    Ok(limits)
}

#[cfg(test)]
mod tests;
