//! UIDs and random name suffixes that follow from a seed and a count. It must not know what they are for.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::Cluster;

/// The letters of `generateName`'s suffixes, without vowels and what looks alike, as Kubernetes has them.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

fn next(cluster: &mut Cluster) -> [u8; 32] {
    cluster.made += 1;
    let mut hash = Sha256::new();
    hash.update(cluster.options.seed.to_le_bytes());
    hash.update(cluster.made.to_le_bytes());
    hash.finalize().into()
}

/// A UID in the form of a random UUID.
pub(crate) fn uid(cluster: &mut Cluster) -> String {
    format(next(cluster))
}

fn format(mut bytes: [u8; 32]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes[..16].iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A suffix of so many letters.
pub(crate) fn suffix(cluster: &mut Cluster, length: usize) -> String {
    let bytes = next(cluster);
    bytes.iter().take(length).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// A UID that follows from what it names.
pub(crate) fn of(bytes: &[u8]) -> String {
    format(Sha256::digest(bytes).into())
}
