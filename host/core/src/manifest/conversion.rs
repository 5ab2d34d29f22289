//! What a manifest says under `conversion`: the kinds whose objects a plugin converts between their versions. Raw entries
//! come in, checked ones go out. What that means for a definition is said in [`crate::conversion`].

use std::sync::Arc;

use super::custom_resource::CustomResource;
use super::place::{RawKind, kind_at, refuse};
use crate::object::Kind;
use crate::refusal::Refusal;

/// One definition whose objects a plugin converts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionSpec {
    /// The kind, in the version that the manifest happens to name.
    pub kind: Kind,
    /// Its name: "podsets.app.example.com".
    pub crd: Arc<str>,
    /// The names of its versions, those that are stored and not served any more too.
    pub versions: Vec<Arc<str>>,
}

/// Checks every entry.
pub(super) fn specs(raw: Vec<RawKind>, crds: &[CustomResource]) -> Result<Vec<ConversionSpec>, Refusal> {
    let mut specs: Vec<ConversionSpec> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = format!("conversion[{index}]");
        let kind = kind_at(&place, &raw.api_version, &raw.kind)?;
        let Some(crd) = crds.iter().find(|crd| crd.kinds.contains(&kind)) else {
            return refuse(format!("{place}: {kind} is no version that a definition under customResources serves"));
        };
        if crd.versions.len() < 2 {
            return refuse(format!(
                "{place}: {} has one version, {}, so there is nothing to convert between",
                crd.name, crd.versions[0]
            ));
        }
        if specs.iter().any(|spec| spec.crd == crd.name) {
            return refuse(format!("{place}: {} is there twice; one entry means all of its versions", crd.name));
        }
        specs.push(ConversionSpec { kind, crd: Arc::clone(&crd.name), versions: crd.versions.clone() });
    }
    Ok(specs)
}
