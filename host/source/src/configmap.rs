//! A plugin in a ConfigMap: the object's JSON in, an offer with its component or a refusal out. The watch that brings
//! the JSON is the kube crate's; once read, nothing of the ConfigMap but the component is kept.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::object::Name;
use mortise_core::refusal::Refusal;
use serde::Deserialize;

use crate::SourceEvent;
use crate::component::{Component, Form, check_name};

/// The label by which ConfigMaps offer plugins, as a selector.
pub const SELECTOR: &str = "mortise.dev/plugin=true";
/// The key of `data` that holds the plugin's configuration.
pub const CONFIG_KEY: &str = "config.yaml";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default)]
    binary_data: Option<BTreeMap<String, String>>,
}

/// How a source that is a ConfigMap is called.
pub fn source(name: &Name) -> String {
    format!("ConfigMap {name}")
}

/// Reads a ConfigMap. It decodes, decompresses and hashes up to 40 MiB, so it is called off the I/O threads.
pub fn read(name: &Name, json: &str) -> SourceEvent {
    SourceEvent::of(&name.name, &source(name), component(name, json))
}

fn component(name: &Name, json: &str) -> Result<Component, Refusal> {
    check_name(&name.name)?;
    let config_map: ConfigMap = serde_json::from_str(json)
        .map_err(|error| Refusal::new("UnreadableConfigMap", format!("ConfigMap {name} cannot be read: {error}")))?;
    let data = config_map.data.unwrap_or_default();
    let mut binary_data = config_map.binary_data.unwrap_or_default();
    let has = |form: &Form| binary_data.contains_key(form.key()) || data.contains_key(form.key());
    let candidates: Vec<Form> = Form::ALL.into_iter().filter(has).collect();
    let form = match candidates[..] {
        [form] => form,
        [] => return Err(no_candidate(name, binary_data.keys().chain(data.keys()))),
        _ => return Err(many_candidates(name, &candidates)),
    };
    let packed = match (binary_data.remove(form.key()), data.get(form.key())) {
        (Some(text), _) => STANDARD.decode(text).map_err(|error| {
            Refusal::new("UnreadableConfigMap", format!("ConfigMap {name}, {}: not valid base64: {error}", form.key()))
        })?,
        // kubectl puts a file into `data` when it happens to be UTF-8, as a component of a few bytes may be.
        (None, Some(text)) => text.as_bytes().to_vec(),
        (None, None) => Vec::new(),
    };
    Component::new(form.unpack(packed)?, data.get(CONFIG_KEY).map(String::as_str))
}

fn no_candidate<'a>(name: &Name, found: impl Iterator<Item = &'a String>) -> Refusal {
    let expected = Form::ALL.map(Form::key).join(", ");
    let found: Vec<&str> = found.map(String::as_str).collect();
    let found = if found.is_empty() { "no keys at all".to_owned() } else { found.join(", ") };
    Refusal::new(
        "NoComponent",
        format!(
            "ConfigMap {name} holds none of the keys {expected}; it has {found}. Put a component into it with: mortise push \
             FILE.wasm --name {} --namespace {}",
            name.name, name.namespace
        ),
    )
}

fn many_candidates(name: &Name, candidates: &[Form]) -> Refusal {
    let keys: Vec<&str> = candidates.iter().map(|form| form.key()).collect();
    Refusal::new(
        "ManyComponents",
        format!(
            "ConfigMap {name} holds {}, and only one of them can be the plugin; remove the others",
            keys.join(" and ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use mortise_core::digest;
    use serde_json::{Value, json};

    use super::*;
    use crate::pack::{Compression, pack};

    const WASM: &[u8] = b"\0asm\x0d\0\x01\0 some bytes \xff\xfe";

    fn read_json(json: &Value) -> SourceEvent {
        read(&Name::new("mortise-system", "podset"), &json.to_string())
    }

    fn refusal(json: &Value) -> (&'static str, String) {
        match read_json(json) {
            SourceEvent::Unreadable { name, source, refusal } => {
                assert_eq!((&*name, &*source), ("podset", "ConfigMap mortise-system/podset"));
                (refusal.reason, refusal.message)
            }
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn what_is_pushed_in_any_form_is_what_is_offered() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let packed = pack("mortise-system", "podset", WASM, Some("replicas: 3\n"), compression).unwrap();
            let SourceEvent::Found { offer, bytes } = read(&Name::new("mortise-system", "podset"), &packed.config_map)
            else {
                panic!("{compression:?} is not offered");
            };
            assert_eq!(&*bytes, WASM);
            assert_eq!(offer.digest, digest::of(WASM), "the digest is of the component, not of its packing");
            assert_eq!((&*offer.name, &*offer.config), ("podset", r#"{"replicas":3}"#));
            assert_eq!(&*offer.source, "ConfigMap mortise-system/podset");
        }
    }

    #[test]
    fn a_component_that_kubectl_took_for_text_is_read_as_bytes() {
        let SourceEvent::Found { bytes, offer } = read_json(&json!({"data": {"plugin.wasm": "\0asm\r\0\u{1}\0"}}))
        else {
            panic!("not offered");
        };
        assert_eq!(&*bytes, b"\0asm\x0d\0\x01\0");
        assert_eq!(&*offer.config, "{}");
    }

    #[test]
    fn a_missing_key_is_told_with_those_that_are_there() {
        let (reason, message) = refusal(&json!({"binaryData": {"podset.wasm": "AA=="}, "data": {"config.yaml": ""}}));
        assert_eq!(reason, "NoComponent");
        assert!(message.contains("none of the keys plugin.wasm, plugin.wasm.gz, plugin.wasm.zst"), "{message}");
        assert!(message.contains("it has podset.wasm, config.yaml"), "{message}");
        assert!(refusal(&json!({})).1.contains("no keys at all"));
    }

    #[test]
    fn two_candidates_are_both_named() {
        let (reason, message) = refusal(&json!({"binaryData": {"plugin.wasm": "AA==", "plugin.wasm.gz": "AA=="}}));
        assert_eq!(reason, "ManyComponents");
        assert!(message.contains("plugin.wasm and plugin.wasm.gz"), "{message}");
    }

    #[test]
    fn broken_base64_json_and_configuration_are_refused() {
        assert_eq!(refusal(&json!({"binaryData": {"plugin.wasm": "???"}})).0, "UnreadableConfigMap");
        assert_eq!(refusal(&json!({"binaryData": []})).0, "UnreadableConfigMap");
        let config = json!({"binaryData": {"plugin.wasm": "AA=="}, "data": {"config.yaml": "- 1"}});
        assert_eq!(refusal(&config).0, "InvalidConfig");
    }

    #[test]
    fn a_config_map_whose_name_is_no_plugin_name_is_refused() {
        let event = read(&Name::new("mortise-system", "a.b"), r#"{"binaryData":{"plugin.wasm":"AA=="}}"#);
        assert!(matches!(event, SourceEvent::Unreadable { refusal, .. } if refusal.reason == "InvalidName"));
    }
}
