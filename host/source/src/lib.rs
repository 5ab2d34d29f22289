//! Where plugins come from: ConfigMaps and directories in, offers with digest and configuration out, and components
//! when they are compiled; and the reverse, a component packed into a ConfigMap for `mortise push`.
//!
//! Nothing here keeps a component's bytes: an offer has an [`Origin`], from which the component is read again to
//! compile it. A thousand waiting plugins cost no more memory than their names.
//!
//! Knows neither manifests nor the API server: ConfigMaps come in as JSON. If two sources offer one name, the core
//! decides.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_core::component::{Offer, Unreadable};
use mortise_core::object::Name;
use mortise_core::refusal::Refusal;
use mortise_core::tenant::TenantSource;

pub use self::name::{MAX_DNS_LABEL_BYTES, is_dns_label};

#[cfg(test)]
#[path = "../../core/src/allocations.rs"]
mod allocations;
mod component;
pub mod configmap;
pub mod directory;
mod fingerprint;
mod name;
pub mod pack;

/// Where to read a component again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A ConfigMap of the host's namespace; [`configmap::unpack`] reads it.
    ConfigMap(Name),
    /// A ConfigMap of a tenant.
    Tenant(Name),
    /// A file; [`directory::read`] reads it.
    File(PathBuf),
}

/// An event of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceEvent {
    /// A new or changed plugin. The same offer may be repeated.
    Found {
        /// Name, source, digest and configuration.
        offer: Offer,
        /// Where the component is.
        origin: Origin,
    },
    /// The file or ConfigMap of this name is not a readable plugin.
    Unreadable(Unreadable),
    /// The file or ConfigMap of this name was removed.
    Gone(Arc<str>),
    /// Everything that existed when the source was opened has been reported.
    Listed,
}

/// Where a component was read.
struct Place<'a> {
    name: &'a str,
    source: &'a str,
    version: &'a str,
    only_named: bool,
    tenant: Option<TenantSource>,
}

impl SourceEvent {
    fn of(place: Place<'_>, origin: Origin, read: Result<component::Component, Refusal>) -> Self {
        let Place { name, source, version, only_named, tenant } = place;
        let (name, source, tenant) = (name.into(), source.into(), tenant.map(Arc::new));
        match read {
            Ok(component::Component { digest, config }) => {
                let source_version = version.into();
                let offer = Offer { source_version, only_named, tenant, ..Offer::new(name, source, digest, config) };
                Self::Found { offer, origin }
            }
            Err(refusal) => Self::Unreadable(Unreadable { name, source, refusal, only_named, tenant }),
        }
    }
}
