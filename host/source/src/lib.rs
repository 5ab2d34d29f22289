//! Where plugins come from: ConfigMaps and directories in, components with their digest and configuration out; and the
//! way back, a component packed into a ConfigMap for `mortise push`.
//!
//! Nothing here knows what a component does, and nothing here speaks to the API server: ConfigMaps come in as the JSON
//! that the watch brought. When two sources offer one name, the core decides.

use std::sync::Arc;

use mortise_core::component::Offer;
use mortise_core::refusal::Refusal;

pub use self::name::{MAX_DNS_LABEL_BYTES, is_dns_label};

mod component;
pub mod configmap;
pub mod directory;
mod name;
pub mod pack;

/// What a source tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceEvent {
    /// A plugin, new or changed. The same offer may come again.
    Found {
        /// Name, source, digest and configuration.
        offer: Offer,
        /// The component, decompressed: what the digest is of.
        bytes: Arc<[u8]>,
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
    fn of(name: &str, source: &str, read: Result<component::Component, Refusal>) -> Self {
        let (name, source) = (name.into(), source.into());
        match read {
            Ok(component) => {
                let offer = Offer { name, source, digest: component.digest, config: component.config };
                Self::Found { offer, bytes: component.bytes }
            }
            Err(refusal) => Self::Unreadable { name, source, refusal },
        }
    }
}
