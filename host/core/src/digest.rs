//! Stable hashes: equal on every machine and in every release, because they become names and annotations.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// Kubernetes' alphabet for generated names: no vowels, so no words, and no characters that look alike.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters of a name's hash. 27^8 is 2.8e11: of 5,000 children of one object whose keys are equal as far as names show
/// them, two collide in one of 22,000 objects, and then the outcome is refused with a message.
const NAME_HASH_LENGTH: usize = 8;

/// The sha256 of a component's bytes, as "sha256:<64 hex digits>".
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub Arc<str>);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn sha256(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// Computes a digest piece by piece.
#[derive(Clone, Default, Debug)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        Digest(format!("sha256:{}", hex(&self.0.finalize())).into())
    }
}

/// The digest of some bytes, such as a component's.
pub fn of(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
        text
    })
}

/// Eight characters that are valid in any Kubernetes name.
pub fn name_hash(parts: &[&str]) -> String {
    sha256(parts)
        .iter()
        .take(NAME_HASH_LENGTH)
        .map(|byte| char::from(NAME_ALPHABET[usize::from(*byte) % NAME_ALPHABET.len()]))
        .collect()
}

/// Sixteen hex digits: the value of [`crate::well_known::DESIRED_ANNOTATION`].
pub fn content_hash(parts: &[&str]) -> String {
    hex(&sha256(parts)[..8])
}

/// A hash of sixteen bytes, to remember many or long texts by.
pub fn fingerprint(parts: &[&str]) -> u128 {
    let hash = sha256(parts);
    u128::from_le_bytes(hash[..16].try_into().expect("the range has sixteen bytes"))
}

/// A number in 0..bound that only depends on the parts: repeatable jitter.
pub fn spread(parts: &[&str], bound: u64) -> u64 {
    let hash = sha256(parts);
    let number = u64::from_le_bytes(hash[..8].try_into().expect("the range has eight bytes"));
    if bound == 0 { 0 } else { number % bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_sha256_of_the_bytes_in_hex() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of(b"").to_string(), empty);
        let mut pieces = Hasher::default();
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.finish(), of(b"abc"));
    }

    #[test]
    fn hashes_are_the_same_in_every_release() {
        assert_eq!(name_hash(&["uid", "Pod", "0"]), "nbd7pzfz");
        assert_eq!(content_hash(&["a"]), "ae6121c88ba555f6");
        assert_ne!(name_hash(&["ab", "c"]), name_hash(&["a", "bc"]));
    }
}
