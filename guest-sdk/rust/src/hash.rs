//! A hash of values that never changes, and its text. It is for names and for noticing changes, not against attacks.

use serde::Serialize;
use serde_json::Value;

/// Kubernetes' own alphabet for generated names: no vowels, so no words, and nothing that looks alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// 27^10 is 2e14: two of a million values have the same hash once in four hundred clusters.
const LETTERS: usize = 10;

/// Ten lowercase letters and digits that depend on the JSON of a value alone: on neither the order of an object's
/// fields nor white space in a [`crate::RawJson`]. They are the same in every call, build, release and platform, and
/// valid in names, labels and annotations. Values with different JSON have different hashes, as far as a hash can;
/// `null` differs from a missing field, and `1.0` from `1`.
///
/// It is for a child that has to be replaced when a part of the spec changes: put the hash of this part in its key or a
/// label, as a Deployment does with `pod-template-hash`; or in an annotation of a Pod template, so that a changed
/// ConfigMap restarts the Pods.
///
/// ```
/// use mortise_sdk::{json, stable_hash};
///
/// let hash = stable_hash(&json!({"image": "web:1", "replicas": 3}));
/// assert_eq!(hash, "247lgsxmmz");
/// assert_eq!(hash, stable_hash(&json!({"replicas": 3, "image": "web:1"})));
/// assert_ne!(hash, stable_hash(&json!({"replicas": 3, "image": "web:2"})));
/// ```
///
/// # Panics
/// When the value cannot be written as JSON, such as a map whose keys are neither strings nor numbers.
pub fn stable_hash<T: Serialize + ?Sized>(value: &T) -> String {
    let value = serde_json::to_value(value).expect("stable_hash takes a value that can be written as JSON");
    let mut hash = Hash::new();
    hash.value(&value);
    let mut text = String::with_capacity(LETTERS);
    hash.letters(LETTERS, &mut text);
    text
}

/// FNV-1a with the finalizer of MurmurHash3, which spreads it over all bits. It must never change, because names are
/// made of it. It is a few bytes of code in every component; it need not resist attacks, since a collision gains nobody
/// anything.
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds a text. Its length keeps ("ab", "c") and ("a", "bc") apart.
    pub(crate) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes(text.as_bytes());
    }

    fn length(&mut self, length: usize) {
        self.bytes(&(length as u64).to_le_bytes());
    }

    /// Adds a value after a letter for its type. Fields are sorted here, because serde_json has a feature that keeps
    /// them in the order of insertion, and any crate of a plugin can turn it on.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes(b"n"),
            Value::Bool(value) => self.bytes(if *value { b"t" } else { b"f" }),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => self.number(b"i", number as u64),
                (None, Some(number)) => self.number(b"u", number),
                (None, None) => self.number(b"d", number.as_f64().unwrap_or_default().to_bits()),
            },
            Value::String(text) => {
                self.bytes(b"s");
                self.text(text);
            }
            Value::Array(items) => {
                self.bytes(b"a");
                self.length(items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(fields) => {
                self.bytes(b"o");
                self.length(fields.len());
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                for (name, value) in fields {
                    self.text(name);
                    self.value(value);
                }
            }
        }
    }

    fn number(&mut self, letter: &[u8], bits: u64) {
        self.bytes(letter);
        self.bytes(&bits.to_le_bytes());
    }

    /// Appends this many letters of the hash, 13 at most.
    pub(crate) fn letters(self, count: usize, out: &mut String) {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        for _ in 0..count {
            let letter = hash % ALPHABET.len() as u64;
            out.push(char::from(ALPHABET[letter as usize]));
            hash /= ALPHABET.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use serde_json::json;

    use super::*;
    use crate::json::RawJson;

    #[test]
    fn hashes_are_the_same_in_every_release() {
        let every_type = json!({"a": [null, true, false, -1, 1, u64::MAX, 0.5], "b": {"c": "\u{e9}", "d": {}}});
        for (value, hash) in [
            (json!(null), "lrk2b4zg59"),
            (json!({}), "48xhrhdwxz"),
            (json!("web"), "fqlvpmj6hq"),
            (every_type, "wvxgpqz7qn"),
        ] {
            assert_eq!(stable_hash(&value), hash, "{value}");
        }
    }

    #[test]
    fn the_order_of_fields_and_white_space_do_not_count() {
        let names = ["one", "two", "three", "four", "five"];
        let forth: HashMap<&str, usize> = names.iter().copied().zip(0..).collect();
        let back: Vec<String> = names.iter().enumerate().rev().map(|(n, name)| format!("\"{name}\" : {n}")).collect();
        let back: RawJson = format!("{{ {} }}", back.join(", ")).parse().unwrap();
        assert_eq!(stable_hash(&forth), stable_hash(&back));
    }

    #[test]
    fn different_values_differ_and_a_hash_is_a_label() {
        let values = [
            json!([]),
            json!({}),
            json!(""),
            json!(0),
            json!(0.0),
            json!("0"),
            json!(false),
            json!(null),
            json!([[], []]),
            json!([[[]]]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({"a": "b"}),
            json!(["a", "b"]),
            json!({"a": null}),
            json!(-1),
            json!(u64::MAX),
        ];
        let hashes: BTreeSet<String> = values.iter().map(stable_hash).collect();
        assert_eq!(hashes.len(), values.len(), "{hashes:?}");
        let many: BTreeSet<String> = (0..100_000).map(|n| stable_hash(&n)).collect();
        assert_eq!(many.len(), 100_000);
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        assert!(many.iter().all(|hash| hash.len() == 10 && hash.chars().all(is_letter)));
    }
}
