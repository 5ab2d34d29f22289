//! One page of a list, as watches and audits read it: its bounds, its metadata and its items.

use std::borrow::Cow;
use std::time::Duration;

use mortise_core::object::{Kind, ResourceVersion};
use mortise_core::watch_stream;
use serde::Deserialize;

use crate::failure::Failure;

/// Objects of one page; client-go's number. With their managedFields they are one or two MB of JSON.
pub(crate) const OBJECTS: usize = 500;
/// Longest one page may take: the API server's own limit for a request.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(crate) struct Page<'a, T> {
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    pub items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    /// The token of the next page; empty for the last one.
    #[serde(borrow, default)]
    pub r#continue: Cow<'a, str>,
}

pub(crate) fn read<'a, T: Deserialize<'a>>(kind: &Kind, body: &'a [u8]) -> Result<Page<'a, T>, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::Lost(format!("a page of {kind} cannot be read: {error}")))
}

pub(crate) fn version(kind: &Kind, text: &str) -> Result<ResourceVersion, Failure> {
    watch_stream::version(kind, text).map_err(Failure::Lost)
}

/// The objects of a page that replaces one of so many which exceeded a response's bound, as five hundred of the largest do.
/// None: it had a single one.
pub(crate) fn smaller(objects: usize) -> Option<usize> {
    (objects > 1).then(|| (objects / 8).max(1))
}
