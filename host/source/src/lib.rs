//! Where plugins come from: ConfigMaps and directories in, offers with their digest and configuration out, and components
//! when they are compiled; and the way back, a component packed into a ConfigMap for `mortise push`.
//!
//! Nothing here keeps a component's bytes: an offer says where they are ([`Origin`]), and whoever compiles them has them read
//! again. So a thousand plugins that wait cost no more memory than their names, and those that are refused cost none.
//!
//! Nothing here knows what a component does, and nothing here speaks to the API server: ConfigMaps come in as the JSON
//! that was read. When two sources offer one name, the core decides.

use std::path::PathBuf;
use std::sync::Arc;

use mortise_core::component::Offer;
use mortise_core::object::Name;
use mortise_core::refusal::Refusal;

pub use self::name::{MAX_DNS_LABEL_BYTES, is_dns_label};

mod component;
pub mod configmap;
pub mod directory;
mod fingerprint;
mod name;
pub mod pack;

/// Where a component is, to be read again when it is compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A ConfigMap; [`configmap::unpack`] reads it.
    ConfigMap(Name),
    /// A file; [`directory::read`] reads it.
    File(PathBuf),
}

/// What a source tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceEvent {
    /// A plugin, new or changed. The same offer may come again.
    Found {
        /// Name, source, digest and configuration.
        offer: Offer,
        /// Where the component is that the digest is of.
        origin: Origin,
    },
    /// Something stands under this name that cannot be read as a plugin.
    Unreadable {
        /// The name.
        name: Arc<str>,
        /// Where it is.
        source: Arc<str>,
        /// Why, and what to do.
        refusal: Refusal,
    },
    /// Nothing stands under this name any more.
    Gone(Arc<str>),
    /// Everything that was there when the source was opened has been told.
    Listed,
}

impl SourceEvent {
    /// The event of one attempt to read something.
    fn of(name: &str, source: &str, origin: Origin, read: Result<component::Component, Refusal>) -> Self {
        let (name, source) = (name.into(), source.into());
        match read {
            Ok(component) => {
                let offer = Offer { name, source, digest: component.digest, config: component.config };
                Self::Found { offer, origin }
            }
            Err(refusal) => Self::Unreadable { name, source, refusal },
        }
    }
}
