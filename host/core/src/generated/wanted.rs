//! The values that a Secret should have: data that plans and writes carry.

use std::sync::Arc;

use crate::certificates::renew_at_ms;
use crate::digest::{content_hash, fingerprint};
use crate::heap::HeapBytes;

/// The keys of a certificate, as in a Secret of type kubernetes.io/tls.
pub const CERTIFICATE: &str = "tls.crt";
/// The certificate's private key.
pub const PRIVATE_KEY: &str = "tls.key";
/// The certificate of its authority.
pub const AUTHORITY: &str = "ca.crt";

/// How a value is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// So many letters and digits.
    Alphanumeric(u32),
    /// So many random bytes.
    Bytes(u32),
    /// A certificate with its key.
    Tls {
        /// DNS names and IP addresses.
        names: Vec<Arc<str>>,
        /// How long it is valid.
        lifetime_seconds: u32,
    },
}

/// A value that a Secret should have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The key in the Secret's data that no plugin sees.
    pub key: Arc<str>,
    /// How it is made.
    pub recipe: Recipe,
    /// Another text asks for another value.
    pub rotation: Arc<str>,
}

impl Wanted {
    /// All keys of data that it fills.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let public = if matches!(self.recipe, Recipe::Tls { .. }) { &[CERTIFICATE, AUTHORITY][..] } else { &[] };
        public.iter().copied().chain([&*self.key])
    }

    /// When the value is due if it is made now; None: never.
    pub(super) fn due_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let Recipe::Tls { lifetime_seconds, .. } = &self.recipe else { return None };
        Some(renew_at_ms(now_unix_ms, u64::from(*lifetime_seconds) * 1_000))
    }

    /// The recipe as text: the names of a certificate as a hash, since there may be many.
    pub(super) fn name(&self) -> String {
        match &self.recipe {
            Recipe::Alphanumeric(length) => format!("alphanumeric-{length}"),
            Recipe::Bytes(length) => format!("bytes-{length}"),
            Recipe::Tls { names, lifetime_seconds } => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                format!("tls-{lifetime_seconds}s-{}", content_hash(&names))
            }
        }
    }
}

impl HeapBytes for Wanted {
    fn heap_bytes(&self) -> usize {
        let names = match &self.recipe {
            Recipe::Tls { names, .. } => names.heap_bytes(),
            Recipe::Alphanumeric(_) | Recipe::Bytes(_) => 0,
        };
        self.key.heap_bytes() + self.rotation.heap_bytes() + names
    }
}

/// The values of a write that are not in its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draws {
    /// What the object should have.
    pub wanted: Arc<[Wanted]>,
    /// The time, from which certificates are valid.
    pub now_unix_ms: u64,
}

/// A fingerprint of a body and of the values that are to be added to it.
pub fn fingerprint_of(body: &str, wanted: &[Wanted]) -> u128 {
    if wanted.is_empty() { fingerprint(&[body]) } else { fingerprint(&[body, &format!("{wanted:?}")]) }
}
