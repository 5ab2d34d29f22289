//! A plugin in a ConfigMap: the object's JSON in, an offer or a refusal out; later the JSON in again, the component
//! out. The kube crate watches ConfigMaps. Nothing of a ConfigMap is kept between the two.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_core::digest::Digest;
use mortise_core::object::{Name, is_object_name};
use mortise_core::refusal::Refusal;
use mortise_core::tenant::TenantSource;
use mortise_core::well_known::{PLUGIN, SERVICE_ACCOUNT_ANNOTATION};
use serde::Deserialize;

use crate::component::{Component, Form, check_name, config};
use crate::{Origin, Place, SourceEvent};

/// Label selector of ConfigMaps that hold plugins, and of those that are the source of one where a Plugin object names them.
pub const SELECTOR: &str = "mortise.dev/plugin in (true,source)";
/// Label selector of ConfigMaps that hold tenants' plugins. No Plugin object names those: a tenant cannot make any.
pub const TENANT_SELECTOR: &str = "mortise.dev/plugin=true";
/// The label's value of a source that a Plugin object names.
const ONLY_NAMED: &str = "source";
/// The key of `data` that holds the plugin's configuration.
pub const CONFIG_KEY: &str = "config.yaml";
/// Where a configuration is, in messages.
pub(crate) const CONFIG_PLACE: &str = "key config.yaml";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default)]
    binary_data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    resource_version: String,
    uid: String,
}

/// A ConfigMap's source name.
pub fn source(name: &Name) -> String {
    format!("ConfigMap {name}")
}

/// Reads a ConfigMap. It decodes, decompresses and hashes up to 40 MiB, so call it off the I/O threads.
pub fn read(name: &Name, json: &str) -> SourceEvent {
    let config_map = parsed(name, json);
    let metadata = config_map.as_ref().map(|found| &found.metadata);
    let place = Place {
        name: &name.name,
        source: &source(name),
        version: &metadata.map(|found| found.resource_version.clone()).unwrap_or_default(),
        only_named: metadata.is_ok_and(|found| found.labels.get(PLUGIN).is_some_and(|value| value == ONLY_NAMED)),
        tenant: None,
    };
    SourceEvent::of(place, Origin::ConfigMap(name.clone()), config_map.and_then(|found| component(name, found)))
}

/// As [`read`], of a tenant's ConfigMap.
pub fn read_of_tenant(name: &Name, json: &str) -> SourceEvent {
    let config_map = parsed(name, json);
    let metadata = config_map.as_ref().map(|found| &found.metadata);
    let annotation = metadata.ok().and_then(|found| found.annotations.get(SERVICE_ACCOUNT_ANNOTATION));
    let service_account = annotation.map_or_else(|| Arc::clone(&name.name), |named| named.as_str().into());
    let tenant = TenantSource {
        namespace: Arc::clone(&name.namespace),
        name: Arc::clone(&name.name),
        uid: metadata.map(|found| found.uid.as_str().into()).unwrap_or_default(),
        service_account,
    };
    let version = metadata.map(|found| found.resource_version.clone()).unwrap_or_default();
    let component = config_map.and_then(|found| {
        let component = component(name, found)?;
        let refusal = tenant.cannot_be_named().or_else(|| no_service_account(name, &tenant.service_account));
        refusal.map_or(Ok(component), Err)
    });
    let (key, source) = (tenant.source(), source(name));
    let place = Place { name: &key, source: &source, version: &version, only_named: false, tenant: Some(tenant) };
    SourceEvent::of(place, Origin::Tenant(name.clone()), component)
}

fn no_service_account(name: &Name, named: &str) -> Option<Refusal> {
    let message = format!(
        "the annotation {SERVICE_ACCOUNT_ANNOTATION} of ConfigMap {name} is {named:?}, which cannot be the name of a ServiceAccount"
    );
    (!is_object_name(named)).then(|| Refusal::new("InvalidServiceAccount", message))
}

/// Unpacks the component of this digest; None when the ConfigMap no longer holds it.
pub fn unpack(name: &Name, json: &str, digest: &Digest) -> Option<Vec<u8>> {
    let Packed { form, bytes, .. } = parsed(name, json).and_then(|found| packed(name, found)).ok()?;
    form.unpack(&bytes, digest)
}

fn component(name: &Name, config_map: ConfigMap) -> Result<Component, Refusal> {
    check_name(&name.name)?;
    let packed = packed(name, config_map)?;
    let config = packed.config_yaml.map_or_else(|| Ok("{}".into()), |yaml| config(&yaml, CONFIG_PLACE))?;
    Ok(Component { digest: packed.form.digest(&packed.bytes)?, config })
}

struct Packed {
    form: Form,
    bytes: Vec<u8>,
    config_yaml: Option<String>,
}

fn unreadable(name: &Name, why: &str) -> Refusal {
    Refusal::new("UnreadableConfigMap", format!("ConfigMap {name}{why}"))
}

fn parsed(name: &Name, json: &str) -> Result<ConfigMap, Refusal> {
    serde_json::from_str(json).map_err(|error| unreadable(name, &format!(" cannot be read: {error}")))
}

fn packed(name: &Name, config_map: ConfigMap) -> Result<Packed, Refusal> {
    let mut data = config_map.data.unwrap_or_default();
    let mut binary_data = config_map.binary_data.unwrap_or_default();
    let has = |form: &Form| binary_data.contains_key(form.key()) || data.contains_key(form.key());
    let candidates: Vec<Form> = Form::ALL.into_iter().filter(has).collect();
    let form = match candidates[..] {
        [form] => form,
        [] => return Err(no_candidate(name, binary_data.keys().chain(data.keys()))),
        _ => return Err(many_candidates(name, &candidates)),
    };
    let bytes = match (binary_data.remove(form.key()), data.remove(form.key())) {
        (Some(text), _) => {
            let wrong = |error| unreadable(name, &format!(", {}: not valid base64: {error}", form.key()));
            STANDARD.decode(text).map_err(wrong)?
        }
        // kubectl puts a file that happens to be valid UTF-8 into `data`, even a small component.
        (None, Some(text)) => text.into_bytes(),
        (None, None) => Vec::new(),
    };
    Ok(Packed { form, bytes, config_yaml: data.remove(CONFIG_KEY) })
}

fn no_candidate<'a>(name: &Name, found: impl Iterator<Item = &'a String>) -> Refusal {
    let expected = Form::ALL.map(Form::key).join(", ");
    let found: Vec<&str> = found.map(String::as_str).collect();
    let found = if found.is_empty() { "no keys".to_owned() } else { found.join(", ") };
    Refusal::new(
        "NoComponent",
        format!(
            "ConfigMap {name} holds none of the keys {expected}; it has {found}. Create one with: mortise push \
             FILE.wasm --name {} --namespace {}",
            name.name, name.namespace
        ),
    )
}

fn many_candidates(name: &Name, candidates: &[Form]) -> Refusal {
    let keys: Vec<&str> = candidates.iter().map(|form| form.key()).collect();
    Refusal::new(
        "ManyComponents",
        format!("ConfigMap {name} holds {}, but must hold only one of them; remove the others", keys.join(" and ")),
    )
}

#[cfg(test)]
mod tests {
    use mortise_core::component::Unreadable;
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
            SourceEvent::Unreadable(Unreadable { name, source, refusal, .. }) => {
                assert_eq!((&*name, &*source), ("podset", "ConfigMap mortise-system/podset"));
                (refusal.reason, refusal.message)
            }
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_pushed_component_is_offered_whatever_its_compression() {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let packed = pack("mortise-system", "podset", WASM, Some("replicas: 3\n"), compression).unwrap();
            let name = Name::new("mortise-system", "podset");
            let SourceEvent::Found { offer, origin } = read(&name, &packed.config_map) else {
                panic!("{compression:?} is not offered");
            };
            assert_eq!(unpack(&name, &packed.config_map, &offer.digest).as_deref(), Some(WASM));
            assert_eq!(offer.digest, digest::of(WASM), "the digest is of the component, not of its packing");
            assert_eq!((&*offer.name, &*offer.config), ("podset", r#"{"replicas":3}"#));
            assert_eq!((&*offer.source, origin), ("ConfigMap mortise-system/podset", Origin::ConfigMap(name)));
        }
    }

    #[test]
    fn a_config_map_that_is_a_source_alone_is_offered_as_one_with_its_version() {
        for (label, expected) in [("true", false), ("source", true)] {
            let metadata = json!({"labels": {PLUGIN: label}, "resourceVersion": "17"});
            let event = read_json(&json!({"metadata": metadata, "data": {"plugin.wasm": "\0asm\r\0\u{1}\0"}}));
            let SourceEvent::Found { offer, .. } = event else { panic!("not offered") };
            assert_eq!((offer.only_named, &*offer.source_version), (expected, "17"));
            let event = read_json(&json!({"metadata": metadata, "data": {"plugin.wasm": "nonsense"}}));
            let SourceEvent::Unreadable(Unreadable { only_named, .. }) = event else { panic!("not refused") };
            assert_eq!(only_named, expected);
        }
    }

    #[test]
    fn a_component_that_kubectl_stored_as_text_is_read_as_bytes() {
        let SourceEvent::Found { offer, .. } = read_json(&json!({"data": {"plugin.wasm": "\0asm\r\0\u{1}\0"}})) else {
            panic!("not offered");
        };
        assert_eq!((offer.digest, &*offer.config), (digest::of(b"\0asm\x0d\0\x01\0"), "{}"));
    }

    #[test]
    fn a_refusal_for_a_missing_key_lists_the_existing_ones() {
        let (reason, message) = refusal(&json!({"binaryData": {"podset.wasm": "AA=="}, "data": {"config.yaml": ""}}));
        assert_eq!(reason, "NoComponent");
        assert!(message.contains("none of the keys plugin.wasm, plugin.wasm.gz, plugin.wasm.zst"), "{message}");
        assert!(message.contains("it has podset.wasm, config.yaml"), "{message}");
        assert!(refusal(&json!({})).1.contains("no keys"));
    }

    #[test]
    fn a_refusal_of_two_components_names_both_keys() {
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
    fn a_config_map_with_an_invalid_plugin_name_is_refused() {
        let event = read(&Name::new("mortise-system", "a.b"), r#"{"binaryData":{"plugin.wasm":"AA=="}}"#);
        assert!(
            matches!(event, SourceEvent::Unreadable(Unreadable { refusal, .. }) if refusal.reason == "InvalidName")
        );
    }

    #[test]
    fn a_component_that_the_config_map_no_longer_holds_is_not_unpacked() {
        let name = Name::new("mortise-system", "podset");
        let packed = pack("mortise-system", "podset", WASM, None, Compression::Gzip).unwrap();
        assert_eq!(unpack(&name, &packed.config_map, &digest::of(b"an older one")), None);
        assert_eq!(unpack(&name, "{}", &packed.digest), None);
    }

    #[test]
    fn g11_a_tenants_config_map_is_offered_for_its_namespace_with_the_service_account_that_it_names() {
        let offer = |annotations: Value| {
            let metadata = json!({"uid": "u-1", "annotations": annotations, "labels": {PLUGIN: "source"}});
            let json = json!({"metadata": metadata, "binaryData": {"plugin.wasm": STANDARD.encode(WASM)}});
            match read_of_tenant(&Name::new("team-a", "podset"), &json.to_string()) {
                SourceEvent::Found { offer, .. } => Ok((offer.name, offer.only_named, offer.tenant.unwrap())),
                SourceEvent::Unreadable(unreadable) => Err((unreadable.tenant.unwrap(), unreadable.refusal.reason)),
                other => panic!("{other:?}"),
            }
        };
        let source = |account: &str| TenantSource {
            namespace: "team-a".into(),
            name: "podset".into(),
            uid: "u-1".into(),
            service_account: account.into(),
        };
        let expected = |account| Ok(("team-a/podset".into(), false, Arc::new(source(account))));
        assert_eq!(offer(json!({})), expected("podset"));
        assert_eq!(offer(json!({SERVICE_ACCOUNT_ANNOTATION: "web"})), expected("web"));
        let odd = Arc::new(source("../kube-system"));
        assert_eq!(offer(json!({SERVICE_ACCOUNT_ANNOTATION: "../kube-system"})), Err((odd, "InvalidServiceAccount")));
    }

    /// Each of sixty ConfigMaps holds 40 MiB, packed into a few KB.
    #[test]
    fn sixty_compression_bombs_are_refused_by_their_first_bytes() {
        let zeros = vec![0; mortise_core::limits::MAX_COMPONENT_BYTES];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &zeros).unwrap();
        let bombs = [
            ("plugin.wasm.zst", zstd::bulk::compress(&zeros, 19).unwrap()),
            ("plugin.wasm.gz", gzip.finish().unwrap()),
        ];
        for (key, bomb) in bombs.iter().cycle().take(60) {
            let (reason, message) = refusal(&json!({"binaryData": {*key: STANDARD.encode(bomb)}}));
            assert_eq!(
                (reason, &*message),
                ("NotWebAssembly", "this is not WebAssembly: it does not begin with \\0asm")
            );
        }
    }
}
