//! Generated values in native tests: the host's checks with the host's messages, and values that a test has and the plugin
//! does not see.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value};

use super::metadata::{is_object_name, shown};
use crate::generated::{Generated, Recipe};
use crate::manifest::Update;
use crate::outcome::{Child, Handling};
use crate::view::native::fields;

/// The host's record of what it made.
const GENERATED_ANNOTATION: &str = "mortise.dev/generated";
/// Generated values of one child.
const MAX_GENERATED: usize = 32;
/// The shortest value.
const MIN_LENGTH: u32 = 8;
/// The longest value.
const MAX_LENGTH: u32 = 1_024;
/// Names of one certificate.
const MAX_NAMES: usize = 100;
/// The shortest life of a certificate.
const MIN_LIFETIME_SECONDS: u64 = 60;
/// The longest: ten years.
const MAX_LIFETIME_SECONDS: u64 = 10 * 365 * 24 * 3_600;
/// Bytes of a rotation.
const MAX_ROTATION_BYTES: usize = 253;
/// The API server's bound of a key in a Secret's data.
const MAX_KEY_BYTES: usize = 253;

/// The texts that the host counts.
pub(super) fn bytes(child: &Child) -> usize {
    let of_recipe = |recipe: &Recipe| match recipe {
        Recipe::Tls { names, .. } => names.iter().map(String::len).sum(),
        Recipe::Alphanumeric(_) | Recipe::Bytes(_) => 0,
    };
    let texts = child.generated.iter();
    texts.map(|(at, generated)| at.len() + generated.rotation.len() + of_recipe(&generated.recipe)).sum()
}

pub(super) fn check(child: &Child, object: &Value, update: Update) -> Result<(), String> {
    if child.generated.is_empty() {
        return Ok(());
    }
    if child.generated.len() > MAX_GENERATED {
        return Err(format!("it has {} generated values, the most is {MAX_GENERATED}", child.generated.len()));
    }
    let kind = ["apiVersion", "kind"].map(|field| object[field].as_str().unwrap_or_default()).join("/");
    if kind != "v1/Secret" {
        return Err(format!("{kind} has generated values; only a v1/Secret may, which is made for what few may read"));
    }
    let is_applied = child.handling == Handling::Managed && update == Update::Apply;
    if !is_applied && child.handling != Handling::CreateOnce {
        let why = "only a child that is changed in place (`update` \"apply\") or created once has generated values";
        return Err(why.to_owned());
    }
    if child.adopt {
        return Err("adopt: a child with generated values is made by the host, not adopted".to_owned());
    }
    if !object["data"].is_null() && !object["data"].is_object() {
        return Err("data is not an object".to_owned());
    }
    let mut seen = BTreeSet::new();
    for (at, generated) in &child.generated {
        let unique = keys(child, at, generated, object).and_then(|keys| {
            let twice = keys.into_iter().find(|key| !seen.insert(key.clone()));
            twice.map_or(Ok(()), |key| Err(format!("another generated value has the key {key:?}")))
        });
        unique.map_err(|why| format!("the generated value at {:?}: {why}", shown(at)))?;
    }
    Ok(())
}

/// The keys that a value fills.
fn keys(child: &Child, at: &str, generated: &Generated, object: &Value) -> Result<Vec<String>, String> {
    check_one(child, generated)?;
    let members = fields::parse(at).unwrap_or_default();
    let is_data = members.first().is_some_and(|first| first == "data");
    let keys = match (members.as_slice(), &generated.recipe) {
        ([_], Recipe::Tls { .. }) if is_data => ["tls.crt", "ca.crt", "tls.key"].map(str::to_owned).to_vec(),
        (_, Recipe::Tls { .. }) => return Err("a certificate is at \"data\", since it has several keys".to_owned()),
        ([_, key], _) if is_data && is_key(key) => vec![key.clone()],
        _ => return Err("expected data.KEY or data[\"KEY\"], with letters, digits, '-', '_' and '.' in the key".into()),
    };
    for map in ["data", "stringData"] {
        if let Some(key) = keys.iter().find(|key| !object[map][key.as_str()].is_null()) {
            return Err(format!("the object has {map}[{key:?}] too; leave it out"));
        }
    }
    Ok(keys)
}

fn check_one(child: &Child, generated: &Generated) -> Result<(), String> {
    let Generated { recipe, rotation } = generated;
    if rotation.len() > MAX_ROTATION_BYTES {
        return Err(format!("its rotation has {} bytes, the most is {MAX_ROTATION_BYTES}", rotation.len()));
    }
    let (names, lifetime) = match recipe {
        Recipe::Alphanumeric(length) | Recipe::Bytes(length) if !(MIN_LENGTH..=MAX_LENGTH).contains(length) => {
            return Err(format!("its length is {length}; it is {MIN_LENGTH} to {MAX_LENGTH}"));
        }
        Recipe::Alphanumeric(_) | Recipe::Bytes(_) => return Ok(()),
        Recipe::Tls { names, lifetime } => (names, lifetime_seconds(*lifetime)),
    };
    if child.handling == Handling::CreateOnce {
        return Err("a certificate is renewed, so its child is not one that is created once".to_owned());
    }
    if names.is_empty() || names.len() > MAX_NAMES {
        return Err(format!("a certificate has 1 to {MAX_NAMES} names, not {}", names.len()));
    }
    let is_server_name =
        |name: &str| is_object_name(name.strip_prefix("*.").unwrap_or(name)) || name.parse::<IpAddr>().is_ok();
    if let Some(name) = names.iter().find(|name| !is_server_name(name)) {
        return Err(format!("{:?} is neither a DNS name nor an IP address", shown(name)));
    }
    if !(MIN_LIFETIME_SECONDS..=MAX_LIFETIME_SECONDS).contains(&lifetime) {
        return Err(format!("its lifetime is {lifetime} s; it is {MIN_LIFETIME_SECONDS} to {MAX_LIFETIME_SECONDS}"));
    }
    Ok(())
}

/// As the contract has it.
fn lifetime_seconds(lifetime: Duration) -> u64 {
    lifetime.as_secs().min(u64::from(u32::MAX))
}

pub(super) fn is_key(key: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_letter) && key != "." && !key.starts_with("..")
}

/// The object as a plugin sees it.
pub(super) fn hidden(object: &Value) -> Value {
    let mut object = object.clone();
    let record = object["metadata"]["annotations"][GENERATED_ANNOTATION].as_str().map(str::to_owned);
    let record: Map<String, Value> = record.and_then(|record| serde_json::from_str(&record).ok()).unwrap_or_default();
    for key in record.keys() {
        if object["data"].get(key).is_some() {
            object["data"][key.as_str()] = "".into();
        }
    }
    object
}
