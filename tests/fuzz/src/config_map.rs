//! A ConfigMap to an offer and a component. An input is the JSON of a ConfigMap, or a letter with bytes: `w`, `g` and `z`
//! are followed by what is stored under the key of plain, gzip and zstd components, `c` by a configuration in YAML, and `p`
//! by a component that is packed first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::component::{Unreadable, check_head};
use mortise_core::digest::{self, Digest};
use mortise_core::limits::{CONFIG_MAP_BYTES, MAX_COMPONENT_BYTES};
use mortise_core::object::Name;
use mortise_source::configmap::{self, CONFIG_KEY, read, unpack};
use mortise_source::pack::{Compression, pack};
use mortise_source::{Origin, SourceEvent, is_dns_label};
use serde_json::{Value, json};

use crate::cost::{self, Bound};
use crate::worst::Maker;

/// Largest configuration, in YAML and in JSON.
const MAX_CONFIG_BYTES: usize = 256 << 10;
/// Of each byte of a ConfigMap: its base64 is decoded, and its configuration is a tree of YAML and of JSON.
const READ_FACTOR: usize = 256;
/// A component while it is unpacked grows by doubling.
const UNPACK_BYTES: usize = 3 * MAX_COMPONENT_BYTES;
/// The head of a component, and an empty custom section.
const LEAST: &[u8] = b"\0asm\x0d\0\x01\0\0\x02\x01x";

pub(crate) fn run(input: &[u8]) {
    if let Some(mut maker) = Maker::of(input) {
        // A value of JSON is one of YAML.
        let value = maker.value();
        return if maker.up_to(1) == 0 {
            configured(value.as_bytes());
        } else {
            check(&name(), &format!(r#"{{"binaryData":{value},"data":{value}}}"#));
        };
    }
    let (Some((first, rest)), Ok(text)) = (input.split_first(), std::str::from_utf8(input)) else {
        return input.split_first().map_or((), |(first, rest)| stored(*first, rest));
    };
    if *first == b'{' { check(&name(), text) } else { stored(*first, rest) }
}

fn name() -> Name {
    Name::new("mortise-system", "podset")
}

fn stored(form: u8, bytes: &[u8]) {
    let key = match form {
        b'w' => "plugin.wasm",
        b'g' => "plugin.wasm.gz",
        b'z' => "plugin.wasm.zst",
        b'c' => return configured(bytes),
        b'p' => return packed(bytes),
        _ => return,
    };
    check(&name(), &json!({"binaryData": {key: STANDARD.encode(bytes)}}).to_string());
}

fn configured(yaml: &[u8]) {
    let yaml = String::from_utf8_lossy(yaml);
    let binary = json!({"plugin.wasm": STANDARD.encode(LEAST)});
    check(&name(), &json!({"binaryData": binary, "data": {CONFIG_KEY: yaml}}).to_string());
    let packed = pack("mortise-system", "podset", LEAST, Some(&yaml), Compression::None);
    let is_read = |json: &str| matches!(read(&name(), json), SourceEvent::Found { .. });
    assert!(packed.is_err() || packed.is_ok_and(|packed| is_read(&packed.config_map)), "what is packed is accepted");
}

/// What is packed is read again, whatever the compression.
fn packed(component: &[u8]) {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let Ok(packed) = pack("mortise-system", "podset", component, None, compression) else { continue };
        assert!(packed.packed_bytes <= CONFIG_MAP_BYTES && packed.component_bytes == component.len());
        assert_eq!(packed.digest, digest::of(component));
        let is_component = check_head(&component[..component.len().min(8)]).is_ok();
        match read(&name(), &packed.config_map) {
            SourceEvent::Found { offer, .. } => assert!(is_component && offer.digest == packed.digest),
            SourceEvent::Unreadable(Unreadable { refusal, .. }) => assert!(!is_component, "{refusal}"),
            other => panic!("{other:?}"),
        }
        let unpacked = unpack(&name(), &packed.config_map, &packed.digest);
        assert_eq!(unpacked.as_deref(), is_component.then_some(component));
    }
}

fn check(name: &Name, json: &str) {
    let source = configmap::source(name);
    let bound = Bound { input: json.len(), peak: READ_FACTOR * json.len() + UNPACK_BYTES };
    let read = cost::within(
        "reading a ConfigMap",
        bound,
        || read(name, json),
        |read| match read {
            SourceEvent::Found { offer, .. } => {
                offer.config.len() + offer.digest.0.len() + offer.name.len() + offer.source.len()
            }
            SourceEvent::Unreadable(Unreadable { refusal, .. }) => refusal.message.capacity(),
            _ => 0,
        },
    );
    match read {
        SourceEvent::Found { offer, origin } => {
            assert!(is_dns_label(&offer.name) && offer.name == name.name);
            assert_eq!((&*offer.source, origin), (&*source, Origin::ConfigMap(name.clone())));
            let config: Value = crate::json_of(&offer.config);
            assert!(config.is_object() && offer.config.len() <= MAX_CONFIG_BYTES, "{} bytes", offer.config.len());
            let bytes = unpack(name, json, &offer.digest).expect("an offered component can be unpacked");
            assert!(bytes.len() <= MAX_COMPONENT_BYTES && check_head(&bytes[..bytes.len().min(8)]).is_ok());
            assert_eq!(digest::of(&bytes), offer.digest);
        }
        SourceEvent::Unreadable(Unreadable { refusal, source: named, .. }) => {
            assert_eq!(*named, *source);
            crate::check_message(&refusal.message);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(unpack(name, json, &Digest("sha256:another".into())), None);
}
