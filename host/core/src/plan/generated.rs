//! Checks the generated values that a child wants, and their keys. What is checked of the child's own data is that it
//! lacks these keys.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::fault::{bad, shown};
use crate::contract::{Child, Generated, GuestFault, Handling};
use crate::generated::{PRIVATE_KEY, Recipe, Wanted};
use crate::object::{Kind, is_object_name};
use crate::projection::path;

/// Generated values of one child. A Secret has a handful of keys; each is a line of its record.
const MAX_GENERATED: usize = 32;
/// The shortest value: a password of eight letters has 47 bits.
const MIN_LENGTH: u32 = 8;
/// The longest value: eight times the longest key of a symmetric cipher or a hash.
const MAX_LENGTH: u32 = 1_024;
/// Names of one certificate. TLS clients limit a server's chain of certificates to some 16 KB.
const MAX_NAMES: usize = 100;
/// The shortest life of a certificate: the host writes a Secret every 40 seconds then.
const MIN_LIFETIME_SECONDS: u32 = 60;
/// The longest: ten years, which is the life of many private authorities.
const MAX_LIFETIME_SECONDS: u32 = 10 * 365 * 24 * 3_600;
/// Bytes of a rotation, as of a child's key.
const MAX_ROTATION_BYTES: usize = 253;
/// The API server's bound of a key in a Secret's data.
const MAX_KEY_BYTES: usize = 253;

pub(super) fn parse(child: &Child, kind: &Kind, is_applied: bool) -> Result<Arc<[Wanted]>, GuestFault> {
    if child.generated.is_empty() {
        return Ok(Arc::default());
    }
    let at = |why: String| bad(format!("child {:?}: {why}", child.key));
    if child.generated.len() > MAX_GENERATED {
        return at(format!("it has {} generated values, the most is {MAX_GENERATED}", child.generated.len()));
    }
    if !kind.is_secret() {
        return at(format!("{kind} has generated values; only a v1/Secret may, which is made for what few may read"));
    }
    if !is_applied && child.handling != Handling::CreateOnce {
        return at("only a child that is changed in place (`update` \"apply\") or created once has generated values"
            .to_owned());
    }
    if child.adopt {
        return at("adopt: a child with generated values is made by the host, not adopted".to_owned());
    }
    let object: Value = serde_json::from_str(&child.object).expect("prepare has parsed this text");
    if !object["data"].is_null() && !object["data"].is_object() {
        return at("data is not an object".to_owned());
    }
    let mut keys = BTreeSet::new();
    let mut unique = |wanted: Wanted| {
        let twice = wanted.keys().find(|key| !keys.insert((*key).to_owned())).map(str::to_owned);
        twice.map_or(Ok(wanted), |key| Err(format!("another generated value has the key {key:?}")))
    };
    let wanted = child.generated.iter().map(|generated| {
        let wanted = wanted(child, generated, &object).and_then(&mut unique);
        wanted.map_err(|why| format!("the generated value at {:?}: {why}", shown(&generated.at)))
    });
    wanted.collect::<Result<Arc<[Wanted]>, String>>().or_else(at)
}

fn wanted(child: &Child, generated: &Generated, object: &Value) -> Result<Wanted, String> {
    let Generated { at, recipe, rotation } = generated;
    check(child, recipe, rotation)?;
    let members = path::parse(at).unwrap_or_default();
    let key = match (members.as_slice(), recipe) {
        ([data], Recipe::Tls { .. }) if data == "data" => PRIVATE_KEY,
        (_, Recipe::Tls { .. }) => return Err("a certificate is at \"data\", since it has several keys".to_owned()),
        ([data, key], _) if data == "data" && is_key(key) => key,
        _ => return Err("expected data.KEY or data[\"KEY\"], with letters, digits, '-', '_' and '.' in the key".into()),
    };
    let wanted = Wanted { key: key.into(), recipe: recipe.clone(), rotation: Arc::clone(rotation) };
    for map in ["data", "stringData"] {
        if let Some(key) = wanted.keys().find(|key| !object[map][*key].is_null()) {
            return Err(format!("the object has {map}[{key:?}] too; leave it out"));
        }
    }
    Ok(wanted)
}

/// Checks what does not depend on the place.
fn check(child: &Child, recipe: &Recipe, rotation: &str) -> Result<(), String> {
    if rotation.len() > MAX_ROTATION_BYTES {
        return Err(format!("its rotation has {} bytes, the most is {MAX_ROTATION_BYTES}", rotation.len()));
    }
    match recipe {
        Recipe::Alphanumeric(length) | Recipe::Bytes(length) if !(MIN_LENGTH..=MAX_LENGTH).contains(length) => {
            Err(format!("its length is {length}; it is {MIN_LENGTH} to {MAX_LENGTH}"))
        }
        Recipe::Alphanumeric(_) | Recipe::Bytes(_) => Ok(()),
        Recipe::Tls { .. } if child.handling == Handling::CreateOnce => {
            Err("a certificate is renewed, so its child is not one that is created once".to_owned())
        }
        Recipe::Tls { names, .. } if names.is_empty() || names.len() > MAX_NAMES => {
            Err(format!("a certificate has 1 to {MAX_NAMES} names, not {}", names.len()))
        }
        Recipe::Tls { names, lifetime_seconds } => {
            if let Some(name) = names.iter().find(|name| !is_server_name(name)) {
                return Err(format!("{:?} is neither a DNS name nor an IP address", shown(name)));
            }
            if !(MIN_LIFETIME_SECONDS..=MAX_LIFETIME_SECONDS).contains(lifetime_seconds) {
                return Err(format!(
                    "its lifetime is {lifetime_seconds} s; it is {MIN_LIFETIME_SECONDS} to {MAX_LIFETIME_SECONDS}"
                ));
            }
            Ok(())
        }
    }
}

fn is_server_name(name: &str) -> bool {
    is_object_name(name.strip_prefix("*.").unwrap_or(name)) || name.parse::<IpAddr>().is_ok()
}

/// As the API server checks it.
pub(super) fn is_key(key: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(is_letter) && key != "." && !key.starts_with("..")
}
