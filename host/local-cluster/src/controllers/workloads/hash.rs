//! The hash in the names of what is made from a template. It must not know which template.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The letters that Kubernetes writes hashes with.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How long a name may be.
const MAX_NAME: usize = 253;

/// The hash of a template; `collisions` makes another one of the same template.
pub(super) fn of(template: &Value, collisions: i64) -> String {
    let mut hash = Sha256::new();
    hash.update(template.to_string());
    hash.update(collisions.to_le_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    // Kubernetes writes the decimal digits in these letters.
    number.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// `NAME-HASH`; a name that is too long is cut.
pub(super) fn name(owner: &str, hash: &str) -> String {
    let owner: String = owner.chars().take(MAX_NAME - 1 - hash.len()).collect();
    format!("{owner}-{hash}")
}
