//! What the parts of a manifest share: kinds, ranges, and refusals that name the place.

use std::fmt::Display;

use serde::Deserialize;

use crate::kind_pattern::is_declarable;
use crate::object::Kind;
use crate::refusal::Refusal;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

/// Entries of `writes` and of `http`, which are compared with each other: sixteen for each of the most controllers.
pub(super) const MAX_ENTRIES: usize = 1_024;

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new("InvalidManifest", format!("the manifest is not valid: {}", message.into())))
}

pub(super) fn at_most(what: &str, count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    refuse(format!("{what}: there are {count}, one plugin may have {most}; make several plugins of it"))
}

/// The value, if it is from 1 to `most`.
pub(super) fn within<T: Copy + PartialOrd + Display + From<u8>>(place: &str, value: T, most: T) -> Result<T, Refusal> {
    if (T::from(1)..=most).contains(&value) {
        Ok(value)
    } else {
        refuse(format!("{place}: {value} is not within 1 and {most}"))
    }
}

pub(super) fn kind_at(place: &str, api_version: &str, kind: &str) -> Result<Kind, Refusal> {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if kind.is_empty() || version.is_empty() || api_version.matches('/').count() > 1 {
        return refuse(format!("{place}: apiVersion {api_version:?} with kind {kind:?} names no kind"));
    }
    if kind.contains('*') || api_version.contains('*') {
        return refuse(format!(
            "{place}: apiVersion {api_version:?} with kind {kind:?} is not one kind; a pattern has the kind \"*\", and only \
             `reads` may have patterns"
        ));
    }
    let of_manifest = Kind::new(api_version, kind);
    if !is_declarable(&of_manifest) {
        return refuse(format!(
            "{place}: apiVersion {api_version:?} with kind {kind:?} names no kind that Kubernetes accepts"
        ));
    }
    Ok(of_manifest)
}
