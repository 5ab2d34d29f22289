//! `conversion` in a manifest: the kinds whose objects the plugin converts between versions. This module checks the
//! entries; [`crate::conversion`] applies them to CRDs.

use std::sync::Arc;

use super::custom_resource::CustomResource;
use super::place::{RawKind, kind_at, refuse};
use crate::object::Kind;
use crate::refusal::Refusal;

/// One CRD whose objects the plugin converts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionSpec {
    /// The kind, in any of its versions.
    pub kind: Kind,
    /// The CRD's name: "podsets.app.example.com".
    pub crd: Arc<str>,
    /// The names of its versions, served or not.
    pub versions: Vec<Arc<str>>,
}

pub(super) fn specs(raw: Vec<RawKind>, crds: &[CustomResource]) -> Result<Vec<ConversionSpec>, Refusal> {
    let mut specs: Vec<ConversionSpec> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = format!("conversion[{index}]");
        let kind = kind_at(&place, &raw.api_version, &raw.kind)?;
        let Some(crd) = crds.iter().find(|crd| crd.kinds.contains(&kind)) else {
            return refuse(format!("{place}: no CRD under customResources serves {kind}"));
        };
        if crd.versions.len() < 2 {
            let (name, version) = (&crd.name, &crd.versions[0]);
            return refuse(format!("{place}: {name} has one version, {version}, so there is nothing to convert"));
        }
        if specs.iter().any(|spec| spec.crd == crd.name) {
            return refuse(format!("{place}: {} has two entries; one entry covers all of its versions", crd.name));
        }
        specs.push(ConversionSpec { kind, crd: Arc::clone(&crd.name), versions: crd.versions.clone() });
    }
    Ok(specs)
}
