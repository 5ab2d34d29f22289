//! The host's checks of any object that a plugin writes, as a child or by an action: size, name, and metadata that
//! belongs to the host. With the host's messages.

use serde_json::Value;

use crate::json::Json;

/// Bytes of one child: etcd takes 1.5 MiB at once, and server-side apply adds managedFields to the object.
pub(super) const MAX_CHILD_BYTES: usize = 512 << 10;
/// Bytes of an object's name in Kubernetes.
const MAX_NAME_BYTES: usize = 253;
/// Characters of an invalid value that a message shows.
const SHOWN_CHARS: usize = 60;
/// The prefix of the host's labels and annotations.
pub(super) const HOST_PREFIX: &str = "mortise.dev/";
/// Metadata that the host or the API server writes.
const HOST_FIELDS: [&str; 9] = [
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
];

/// Groups of built-in kinds, beside those without a dot.
const BUILTIN_GROUPS: [&str; 19] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The first rule that an outcome breaks, as a sentence.
pub(super) type Refused = Result<(), String>;

/// Whether a group has built-in kinds.
pub(super) fn is_builtin(group: &str) -> bool {
    !group.contains('.') || BUILTIN_GROUPS.contains(&group)
}

/// Parses a child or a status.
pub(super) fn json(json: &Json, most_bytes: usize) -> Result<Value, String> {
    let text = json.text().map_err(|failure| failure.message().to_owned())?;
    if text.len() > most_bytes {
        return Err(format!("it has {} bytes, the most is {most_bytes}", text.len()));
    }
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// Checks the metadata of a child or an apply.
pub(super) fn whole_metadata(metadata: &Value) -> Refused {
    if !metadata.is_object() && !metadata.is_null() {
        return Err("metadata is not an object".to_owned());
    }
    if let Some(field) = HOST_FIELDS.iter().find(|field| !metadata[**field].is_null()) {
        return Err(format!("metadata.{field} is set: it belongs to the host or to the API server"));
    }
    for field in ["name", "namespace"] {
        if !metadata[field].is_null() && !metadata[field].is_string() {
            return Err(format!("metadata.{field} is {}, not a string", shown(&metadata[field].to_string())));
        }
    }
    for map in ["labels", "annotations"] {
        if !metadata[map].is_null() && !metadata[map].is_object() {
            return Err(format!("metadata.{map} is {}, not an object", shown(&metadata[map].to_string())));
        }
        own_keys(map, &metadata[map])?;
    }
    Ok(())
}

/// Checks that labels or annotations contain none of the host's.
pub(super) fn own_keys(map: &str, keys: &Value) -> Refused {
    let of_host = keys.as_object().and_then(|keys| keys.keys().find(|key| key.starts_with(HOST_PREFIX)));
    of_host.map_or(Ok(()), |key| Err(own_key(map, key)))
}

pub(super) fn own_key(map: &str, key: &str) -> String {
    format!("metadata.{map}[{key:?}] is set: everything under {HOST_PREFIX} is the host's")
}

/// RFC 1123 subdomain, which the API server accepts as a name for nearly every kind.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_letter) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label)
}

pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}
