//! The name of a component: the sha256 of its bytes. Two plugins with one digest are one program.

use std::fmt::Write;

use mortise_core::event::Digest;
use sha2::{Digest as _, Sha256};

/// The digest of a component's bytes, as "sha256:<64 hex digits>".
pub fn of(bytes: &[u8]) -> Digest {
    let mut text = String::with_capacity("sha256:".len() + 64);
    text.push_str("sha256:");
    push_hex(&mut text, &Sha256::digest(bytes));
    Digest(text.into())
}

/// The lower-case hex digits of the sha256 of some bytes.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    push_hex(&mut text, &Sha256::digest(bytes));
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_digest_is_the_sha256_of_the_bytes_in_hex() {
        assert_eq!(
            super::of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
