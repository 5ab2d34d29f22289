//! The manifest: what a plugin says it is, reconciles, owns, reads and may write. Parsed once per digest; after
//! [`Manifest::parse`] every claim is well-formed, so nothing later checks it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use self::controller::RawController;
use self::place::{RawKind, refuse};
use self::writes::WriteRule;
use crate::limits::{
    CallLimits, MAX_ADMISSION, MAX_CONTROLLERS, MAX_CUSTOM_RESOURCES, MAX_DEADLINE_MS, MAX_KINDS, MAX_MANIFEST_BYTES,
    MAX_MEMORY_BYTES,
};
use crate::refusal::Refusal;
use crate::well_known::API_VERSION;

pub use self::admission::{AdmissionSpec, Operations};
pub use self::controller::ControllerSpec;
pub use self::conversion::ConversionSpec;
pub use self::custom_resource::CustomResource;
pub use self::owned::{OwnedKind, Update};
pub use self::predicate::Predicate;
pub(crate) use self::protected::is_builtin_group;

mod admission;
mod controller;
mod conversion;
mod custom_resource;
mod owned;
mod place;
mod predicate;
mod protected;
pub mod writes;

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

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    memory_bytes: Option<u64>,
    deadline_ms: Option<u64>,
}

/// Whether there are no more of something than a plugin may have.
fn at_most(what: &str, count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    refuse(format!("{what}: there are {count}, one plugin may have {most}; make several plugins of it"))
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
        at_most("controllers", raw.controllers.len(), MAX_CONTROLLERS)?;
        at_most("customResources", raw.custom_resources.len(), MAX_CUSTOM_RESOURCES)?;
        at_most("admission", raw.admission.len(), MAX_ADMISSION)?;
        let custom_resources = raw
            .custom_resources
            .iter()
            .enumerate()
            .map(|(index, body)| custom_resource::parse(index, body.get()))
            .collect::<Result<Vec<_>, _>>()?;
        let writes: Arc<[WriteRule]> = writes::parse(raw.writes)?.into();
        let controllers = raw
            .controllers
            .into_iter()
            .enumerate()
            .map(|(index, controller)| controller::parse(index, controller, &writes))
            .collect::<Result<Vec<_>, _>>()?;
        let kinds: BTreeSet<_> = controllers.iter().flat_map(ControllerSpec::readable).collect();
        at_most("controllers: kinds that they reconcile, own and read", kinds.len(), MAX_KINDS)?;
        writes::check_views(&writes, |kind| controllers.iter().any(|controller| controller.readable().contains(kind)))?;
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
