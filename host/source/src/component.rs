//! A component as it is packed: its name, its compressed forms, its digest and its configuration. Bytes come in, checked
//! and bounded bytes go out. Whether they are WebAssembly is for the crate that compiles them to say.

use std::io::Read;
use std::sync::Arc;

use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::refusal::Refusal;

use crate::{MAX_DNS_LABEL_BYTES, is_dns_label};

/// Largest configuration, as YAML and as the JSON that it becomes: it is handed to every call.
pub(crate) const MAX_CONFIG_BYTES: usize = 256 << 10;
/// Largest window that a zstd frame may ask for: 64 MiB, the first power of two above the largest component.
const ZSTD_WINDOW_LOG: u32 = 26;

/// A component that is ready to be offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Component {
    pub digest: Digest,
    pub bytes: Arc<[u8]>,
    /// A JSON object.
    pub config: Arc<str>,
}

impl Component {
    /// Puts decompressed bytes and the text of a configuration together.
    pub(crate) fn new(bytes: Vec<u8>, config_yaml: Option<&str>) -> Result<Self, Refusal> {
        if bytes.len() > MAX_COMPONENT_BYTES {
            return Err(too_large());
        }
        let config = config_yaml.map_or_else(|| Ok("{}".into()), config)?;
        Ok(Self { digest: digest::of(&bytes), bytes: bytes.into(), config })
    }
}

/// How a component is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Wasm,
    Gzip,
    Zstd,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Wasm, Self::Gzip, Self::Zstd];

    /// The key of a ConfigMap under which this form stands.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Wasm => "plugin.wasm",
            Self::Gzip => "plugin.wasm.gz",
            Self::Zstd => "plugin.wasm.zst",
        }
    }

    /// Unpacks, and stops as soon as the result is larger than a component may be: what a small input claims to become
    /// is never believed.
    pub(crate) fn unpack(self, packed: Vec<u8>) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Wasm => Ok(packed),
            Self::Gzip => self.read_bounded(flate2::read::MultiGzDecoder::new(&*packed)),
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::new(&*packed).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(decoder)
                });
                self.read_bounded(decoder.map_err(|error| self.broken(&error))?)
            }
        }
    }

    fn read_bounded(self, reader: impl Read) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        reader.take(MAX_COMPONENT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| self.broken(&error))?;
        if bytes.len() > MAX_COMPONENT_BYTES { Err(too_large()) } else { Ok(bytes) }
    }

    fn broken(self, error: &std::io::Error) -> Refusal {
        Refusal::new("BrokenCompression", format!("{} cannot be decompressed: {error}; pack it again", self.key()))
    }
}

pub(crate) fn too_large() -> Refusal {
    Refusal::new(
        "ComponentTooLarge",
        format!(
            "the component is larger than the {} MiB that this host accepts; strip its debug information, or build it \
             with opt-level = \"s\"",
            MAX_COMPONENT_BYTES >> 20
        ),
    )
}

/// A plugin's name becomes a field manager, a label's value and part of metrics, so it is a DNS-1123 label.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    if is_dns_label(name) {
        return Ok(());
    }
    Err(Refusal::new(
        "InvalidName",
        format!(
            "{name:?} cannot be a plugin's name: it has to be of at most {MAX_DNS_LABEL_BYTES} of the characters a-z, 0-9 and \
             '-', and begin and end with a letter or digit; rename it"
        ),
    ))
}

/// A configuration's YAML as a JSON object. Empty text is an empty object.
pub(crate) fn config(yaml: &str) -> Result<Arc<str>, Refusal> {
    if yaml.len() > MAX_CONFIG_BYTES {
        return Err(config_too_large());
    }
    // The parser bounds aliases and depth by itself.
    let value: serde_json::Value =
        serde_saphyr::from_str(yaml).map_err(|error| invalid_config(&format!("is not valid YAML: {error}")))?;
    match value {
        serde_json::Value::Null => Ok("{}".into()),
        serde_json::Value::Object(_) => {
            let text = value.to_string();
            if text.len() > MAX_CONFIG_BYTES { Err(config_too_large()) } else { Ok(text.into()) }
        }
        other => Err(invalid_config(&format!("has to be a mapping of keys to values, and is {other}"))),
    }
}

pub(crate) fn config_too_large() -> Refusal {
    invalid_config(&format!("is larger than {} KiB", MAX_CONFIG_BYTES >> 10))
}

fn invalid_config(why: &str) -> Refusal {
    Refusal::new("InvalidConfig", format!("the configuration (key config.yaml, or NAME.yaml beside a file) {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["podset", "a", "0-a", &"x".repeat(63)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", &"x".repeat(64)] {
            assert_eq!(check_name(bad).unwrap_err().reason, "InvalidName", "{bad}");
        }
    }

    #[test]
    fn yaml_becomes_a_json_object() {
        let table = [("a: 1\nb: [x, true]\n", r#"{"a":1,"b":["x",true]}"#), ("", "{}"), ("# nothing\n", "{}")];
        for (yaml, json) in table {
            assert_eq!(&*config(yaml).unwrap(), json, "{yaml:?}");
        }
        for bad in ["- a\n", "just text\n", "a: [\n", "a: 1\na: 2\n"] {
            assert_eq!(config(bad).unwrap_err().reason, "InvalidConfig", "{bad:?}");
        }
    }

    #[test]
    fn aliases_do_not_multiply_a_configuration() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..9 {
            let alias = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
        }
        assert_eq!(config(&bomb).unwrap_err().reason, "InvalidConfig");
    }

    #[test]
    fn what_unpacks_to_too_much_is_given_up_at_the_limit() {
        let zeros = vec![0_u8; MAX_COMPONENT_BYTES + 1];
        let zstd = zstd::bulk::compress(&zeros, 3).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &zeros).unwrap();
        for (form, packed) in [(Form::Zstd, zstd), (Form::Gzip, gzip.finish().unwrap())] {
            assert!(packed.len() < 1 << 20, "the bomb fits into a ConfigMap");
            assert_eq!(form.unpack(packed).unwrap_err().reason, "ComponentTooLarge");
        }
    }

    #[test]
    fn what_cannot_be_unpacked_names_its_key() {
        for form in [Form::Gzip, Form::Zstd] {
            let refusal = form.unpack(b"\0asm".to_vec()).unwrap_err();
            assert_eq!(refusal.reason, "BrokenCompression");
            assert!(refusal.message.contains(form.key()), "{}", refusal.message);
        }
    }
}
