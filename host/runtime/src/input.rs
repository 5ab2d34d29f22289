//! What enters the event loop, from any thread or task. Nothing here knows who sends it.

use std::fmt;
use std::sync::Arc;

use mortise_core::component::Compiled;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_source::{Origin, SourceEvent};
use mortise_wasm::compile::CompileError;
use mortise_wasm::plugin::Plugin;

use crate::tenancy::Tenancy;

#[derive(Debug)]
pub(crate) enum Input {
    Event(Event),
    Source(SourceInput),
    /// Of a tenant, whose plugins no other source has; with the origin of a component. Of one that has ended it is not taken.
    Tenant(Tenancy, Box<Event>, Option<(Digest, Origin)>),
    /// The deadline of a source's first list.
    ListingDue(Source),
    /// From a compile thread.
    Loaded(Digest, Loaded),
}

impl Input {
    /// Bytes in memory, as [`Event::bytes`] counts them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => event.bytes(),
            Self::Tenant(_, event, _) => event.bytes(),
            Self::Source(SourceInput { event: SourceEvent::Found { offer, .. }, .. }) => offer.config.len(),
            Self::Loaded(_, Ok((_, compiled))) => compiled.manifest.len(),
            Self::Source(_) | Self::ListingDue(_) | Self::Loaded(_, Err(_)) => 0,
        }
    }
}

/// The sources, in the order of precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    /// The folder of `--plugin-dir`, an explicit choice on this machine.
    Directory,
    /// ConfigMaps of the host's namespace.
    ConfigMaps,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "the plugin folder",
            Self::ConfigMaps => "the ConfigMaps",
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SourceInput {
    pub(crate) source: Source,
    pub(crate) event: SourceEvent,
}

pub(crate) type Loaded = Result<(Arc<Plugin>, Compiled), NotLoaded>;

/// Why a component is not loaded.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    Refused(Refusal),
    /// Its origin has another component or none, which the source reports; or, a tenant's, may not be read.
    Changed(Origin),
    /// Its origin cannot be read now.
    Unreachable(String),
    /// The machine cannot compile it now.
    Unavailable(String),
}

impl From<CompileError> for NotLoaded {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Refused(refusal) => Self::Refused(refusal),
            CompileError::Host { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<Refusal> for NotLoaded {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
