//! A component on its way into the host: how its bytes begin, how a source offers it, and how the compiler returns it. The
//! bytes themselves stay with the shell, under their digest.

use std::sync::Arc;

use crate::digest::Digest;
use crate::refusal::Refusal;

/// Bytes of a component's head: the magic number, then a version and a layer, which tells components from modules.
pub const HEAD_BYTES: usize = 8;

/// Refuses what is no component by its first [`HEAD_BYTES`], or fewer where there are no more, and names what it is instead.
/// Sources look at the head before they read on, so that what is no component costs them nothing.
///
/// # Errors
/// What the bytes are, and what to do.
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

/// A plugin as a source offers it. The bytes stay with the shell, under their digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The plugin's name: the ConfigMap's name, or the file's stem.
    pub name: Arc<str>,
    /// Where it comes from, for people: "ConfigMap mortise-system/podset", "file plugins/podset.wasm".
    pub source: Arc<str>,
    /// What the bytes hash to.
    pub digest: Digest,
    /// The plugin's configuration as a JSON object, "{}" when none was given.
    pub config: Arc<str>,
}

impl Offer {
    /// What would serve.
    pub fn version(&self) -> Version {
        Version { digest: self.digest.clone(), config: Arc::clone(&self.config) }
    }
}

/// One version of a plugin: the component with its configuration. Two calls of one version with the same inputs have the
/// same outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The component.
    pub digest: Digest,
    /// The configuration as a JSON object.
    pub config: Arc<str>,
}

/// A component that compiled, instantiated and told its manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The manifest as the guest returned it.
    pub manifest: Arc<str>,
    /// Size of the component in bytes.
    pub component_bytes: u64,
    /// How long compiling took; 0 when the result was cached.
    pub compile_ms: u64,
    /// True when no compiler ran.
    pub cached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_known_by_its_first_bytes() {
        let refused = |head: &[u8]| check_head(head).unwrap_err();
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
            let refusal = refused(head);
            assert_eq!(refusal.reason, reason, "{head:?}");
            assert!(refusal.message.contains(part), "{head:?}: {}", refusal.message);
        }
        for head in [&b"\0asm\x0d\0\x01\0"[..], b"\0asm\x0d\0"] {
            assert_eq!(check_head(head), Ok(()), "{head:?}");
        }
    }
}
