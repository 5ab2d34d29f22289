//! A component before it serves: the check of its first bytes, a source's offer, the result of compilation.

use std::sync::Arc;

use crate::digest::Digest;
use crate::grants::Grants;
use crate::refusal::Refusal;
use crate::rights::{Namespaces, Rights};
use crate::service_account::ServiceAccount;
use crate::tenant::TenantSource;

/// Bytes of a component's head: the magic number, a version, and a layer that distinguishes components from modules.
pub const HEAD_BYTES: usize = 8;

/// Refuses bytes that are no component, by the first [`HEAD_BYTES`] or fewer. Sources check the head before they read
/// more, so that other files cost nothing.
pub fn check_head(head: &[u8]) -> Result<(), Refusal> {
    let found = match head {
        [] => "the file is empty",
        [0x7f, b'E', b'L', b'F', ..] => {
            "this is native code (ELF, perhaps a .cwasm); the host takes WebAssembly only and compiles it itself"
        }
        [0x1f, 0x8b, ..] => "this is gzip data; name the key or file plugin.wasm.gz so that it is decompressed",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            "this is zstd data; name the key or file plugin.wasm.zst so that it is decompressed"
        }
        [b'(', ..] => "this is WebAssembly text; the host takes the binary form (wasm-tools parse)",
        [0, b'a', b's', b'm', _, _, 0, 0, ..] => {
            return Err(Refusal::of_bytes(
                "NotAComponent",
                "this is a core WebAssembly module, not a component; build it with --target wasm32-wasip2 (Rust), or \
                 wrap it with `wasm-tools component new`",
            ));
        }
        [0, b'a', b's', b'm', ..] => return Ok(()),
        _ => "this is not WebAssembly: it does not begin with \\0asm",
    };
    Err(Refusal::of_bytes("NotWebAssembly", found))
}

/// A plugin as a source offers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The ConfigMap's name, or the file's stem: the plugin's name unless a Plugin object names it.
    pub name: Arc<str>,
    /// For people: "ConfigMap mortise-system/podset", "file plugins/podset.wasm".
    pub source: Arc<str>,
    /// The component.
    pub digest: Digest,
    /// The configuration as a JSON object, "{}" when there is none.
    pub config: Arc<str>,
    /// The version of the source, such as a ConfigMap's resource version; empty where it has none.
    pub source_version: Arc<str>,
    /// It is a plugin only where a Plugin object names it.
    pub only_named: bool,
    /// The ConfigMap of a tenant, if it is there.
    pub tenant: Option<Arc<TenantSource>>,
    /// As [`Version::service_account`]. A source has none: its Plugin object names it, or its tenant.
    pub service_account: Option<Arc<ServiceAccount>>,
    /// As [`Version::namespaces`].
    pub namespaces: Option<Namespaces>,
    /// As [`Version::grants`].
    pub grants: Arc<Grants>,
}

impl Offer {
    /// What a source without versions offers, such as a file.
    pub fn new(
        name: impl Into<Arc<str>>,
        source: impl Into<Arc<str>>,
        digest: Digest,
        config: impl Into<Arc<str>>,
    ) -> Self {
        let (name, source, config) = (name.into(), source.into(), config.into());
        Self {
            name,
            source,
            digest,
            config,
            source_version: "".into(),
            only_named: false,
            tenant: None,
            service_account: None,
            namespaces: None,
            grants: Arc::default(),
        }
    }

    /// The version that it offers.
    pub fn version(&self) -> Version {
        let (digest, config) = (self.digest.clone(), Arc::clone(&self.config));
        let (service_account, namespaces) = (self.service_account.clone(), self.namespaces.clone());
        let grants = Arc::clone(&self.grants);
        Version { digest, config, service_account, namespaces, grants, rights: None }
    }
}

/// What a source has under a plugin's name that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// As [`Offer::name`].
    pub name: Arc<str>,
    /// As [`Offer::source`].
    pub source: Arc<str>,
    /// Why it cannot be read, and what to do.
    pub refusal: Refusal,
    /// As [`Offer::only_named`].
    pub only_named: bool,
    /// As [`Offer::tenant`].
    pub tenant: Option<Arc<TenantSource>>,
}

/// A component with its configuration, and what it acts as. Calls of one version with equal inputs have equal outcomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The component.
    pub digest: Digest,
    /// The configuration as a JSON object.
    pub config: Arc<str>,
    /// Its requests to the API server are those of this ServiceAccount; the host's own, if there is none.
    pub service_account: Option<Arc<ServiceAccount>>,
    /// Where it sees and acts, of what has a namespace; everywhere, if there are none.
    pub namespaces: Option<Namespaces>,
    /// What its Plugin object grants it.
    pub grants: Arc<Grants>,
    /// What of its declarations it sees, once that is known; all, if it has no ServiceAccount.
    pub rights: Option<Arc<Rights>>,
}

/// A component that compiled, was instantiated and returned its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The manifest as the guest returned it.
    pub manifest: Arc<str>,
    /// Size of the component in bytes.
    pub component_bytes: u64,
    /// Time of compilation; 0 when the result was cached.
    pub compile_ms: u64,
    /// Whether the result came from the compile cache.
    pub cached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_component_are_refused_by_their_head() {
        for (head, reason, part) in [
            (&b""[..], "NotWebAssembly", "empty"),
            (b"\x7fELF\x02\x01\x01", "NotWebAssembly", "native code"),
            (b"\x1f\x8b\x08", "NotWebAssembly", "gzip"),
            (b"\x28\xb5\x2f\xfd", "NotWebAssembly", "zstd"),
            (b"(component)", "NotWebAssembly", "text"),
            (b"\0\0\0\0\0\0\0\0", "NotWebAssembly", "\\0asm"),
            (b"\0as", "NotWebAssembly", "\\0asm"),
            (b"\0asm\x01\0\0\0", "NotAComponent", "core WebAssembly module"),
        ] {
            let refusal = check_head(head).unwrap_err();
            assert_eq!(refusal.reason, reason, "{head:?}");
            assert!(refusal.message.contains(part), "{head:?}: {}", refusal.message);
        }
        for head in [&b"\0asm\x0d\0\x01\0"[..], b"\0asm\x0d\0"] {
            assert_eq!(check_head(head), Ok(()), "{head:?}");
        }
    }
}
