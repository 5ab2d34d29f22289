//! Packs a component into a labelled ConfigMap for `mortise push`. Bytes in, the ConfigMap's JSON out, or an error with
//! the sizes and alternatives. No I/O.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::limits::{CONFIG_MAP_BYTES, MAX_COMPONENT_BYTES};
use mortise_core::refusal::Refusal;
use mortise_core::well_known::PLUGIN;
use serde_json::json;
use thiserror::Error;

use crate::component::{Form, check_name, config};
use crate::configmap::{CONFIG_KEY, CONFIG_PLACE};
use crate::fingerprint::too_large;

/// zstd's level: 19 is the last whose window every decoder accepts by default.
const ZSTD_LEVEL: i32 = 19;

/// How to pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// As `gzip -9`, which every tool can decompress.
    #[default]
    Gzip,
    /// About a tenth smaller than gzip.
    Zstd,
}

impl Compression {
    fn form(self) -> Form {
        match self {
            Self::None => Form::Wasm,
            Self::Gzip => Form::Gzip,
            Self::Zstd => Form::Zstd,
        }
    }
}

/// A component in a ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The ConfigMap's JSON, ready to be applied.
    pub config_map: String,
    /// The component's digest, independent of the compression.
    pub digest: Digest,
    /// The component's size.
    pub component_bytes: usize,
    /// The bytes that count towards the ConfigMap's limit.
    pub packed_bytes: usize,
}

/// Why a component cannot be packed.
#[derive(Debug, Error)]
pub enum PackError {
    /// The host would refuse the name, the component or the configuration.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It does not fit into a ConfigMap.
    #[error(
        "{name} has {component_bytes} bytes, {packed_bytes} {how}, and a ConfigMap holds {CONFIG_MAP_BYTES} (1 MiB). \
         {advice}build it with opt-level = \"s\" and strip = true, or give the host the file with --plugin-dir. OCI \
         registries are not \
         supported yet"
    )]
    TooLarge {
        /// The plugin.
        name: String,
        /// The component's size.
        component_bytes: usize,
        /// The bytes to store.
        packed_bytes: usize,
        /// "uncompressed", "with gzip", "with zstd".
        how: &'static str,
        /// A better compression, if there is one.
        advice: &'static str,
    },
    /// The compressor failed, probably out of memory.
    #[error("cannot compress {name}")]
    Compress {
        /// The plugin.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Packs a component, with its configuration's YAML if it has one.
pub fn pack(
    namespace: &str,
    name: &str,
    component: &[u8],
    config_yaml: Option<&str>,
    compression: Compression,
) -> Result<Packed, PackError> {
    check_name(name)?;
    if component.len() > MAX_COMPONENT_BYTES {
        return Err(too_large().into());
    }
    if let Some(yaml) = config_yaml {
        config(yaml, CONFIG_PLACE)?;
    }
    let packed =
        compress(component, compression).map_err(|source| PackError::Compress { name: name.into(), source })?;
    // The API server counts the values of both maps, decoded from base64.
    let packed_bytes = packed.len() + config_yaml.map_or(0, str::len);
    if packed_bytes > CONFIG_MAP_BYTES {
        let (how, advice) = match compression {
            Compression::None => ("uncompressed", "Let it be compressed, "),
            Compression::Gzip => ("with gzip", "Try zstd, "),
            Compression::Zstd => ("with zstd", ""),
        };
        let component_bytes = component.len();
        return Err(PackError::TooLarge { name: name.into(), component_bytes, packed_bytes, how, advice });
    }
    let mut config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {PLUGIN: "true"}},
        "binaryData": {compression.form().key(): STANDARD.encode(&packed)},
    });
    if let Some(yaml) = config_yaml {
        config_map["data"] = json!({CONFIG_KEY: yaml});
    }
    Ok(Packed {
        config_map: config_map.to_string(),
        digest: digest::of(component),
        component_bytes: component.len(),
        packed_bytes,
    })
}

fn compress(component: &[u8], compression: Compression) -> std::io::Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(component.to_vec()),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(component)?;
            encoder.finish()
        }
        Compression::Zstd => zstd::bulk::compress(component, ZSTD_LEVEL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Incompressible bytes, the same in each run.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn an_error_for_a_large_component_has_sizes_the_limit_and_alternatives() {
        let component = noise(CONFIG_MAP_BYTES + 1);
        let error = pack("ns", "podset", &component, None, Compression::None).unwrap_err().to_string();
        for part in [
            "podset has 1048577 bytes, 1048577 uncompressed",
            "holds 1048576 (1 MiB)",
            "Let it be compressed",
            "--plugin-dir",
            "strip",
            "OCI",
        ] {
            assert!(error.contains(part), "{part:?} in {error}");
        }
        let error = pack("ns", "podset", &component, None, Compression::Gzip).unwrap_err().to_string();
        assert!(error.contains("Try zstd, build it"), "{error}");
    }

    #[test]
    fn a_component_that_just_fits_is_packed_and_the_configuration_counts() {
        let component = noise(CONFIG_MAP_BYTES);
        let packed = pack("ns", "podset", &component, None, Compression::None).unwrap();
        assert_eq!(packed.packed_bytes, CONFIG_MAP_BYTES);
        assert!(pack("ns", "podset", &component, Some("a: 1"), Compression::None).is_err());
    }

    #[test]
    fn what_the_host_would_refuse_is_not_packed() {
        assert!(matches!(pack("ns", "Pod_Set", b"", None, Compression::Gzip), Err(PackError::Refused(_))));
        assert!(matches!(pack("ns", "podset", b"", Some("- a"), Compression::Gzip), Err(PackError::Refused(_))));
    }
}
