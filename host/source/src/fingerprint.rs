//! One pass over a component's bytes: their digest, their number and whether the binary is complete, or why they are
//! not a component. A pass keeps one chunk in memory, however large the component is, and stops after a head that is
//! not a component's.

use std::io::{self, Read};

use mortise_core::component::{HEAD_BYTES, check_head};
use mortise_core::digest::{Digest, Hasher};
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::refusal::Refusal;

/// Bytes in memory at once: a larger chunk makes a pass no faster.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Fingerprint {
    /// The digest, or why the bytes are not a component.
    pub digest: Result<Digest, Refusal>,
    pub bytes: usize,
    /// False when somebody may still be writing the rest.
    pub whole: bool,
}

impl Fingerprint {
    /// Reads to the end, or as far as a refusal needs.
    pub(crate) fn of(reader: impl Read) -> io::Result<Self> {
        let mut reader = reader.take(MAX_COMPONENT_BYTES as u64 + 1);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if let Err(refusal) = check_head(&head) {
            // A file may be empty or zeros before it is written, but a core module's head is final.
            return Ok(Self { digest: Err(refusal), bytes: head.len(), whole: head.starts_with(b"\0asm") });
        }
        let (mut hasher, mut frame, mut bytes) = (Hasher::default(), Frame::Between, head.len());
        hasher.update(&head);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            bytes += read;
            if bytes > MAX_COMPONENT_BYTES {
                return Ok(Self { digest: Err(too_large()), bytes, whole: true });
            }
            hasher.update(&chunk[..read]);
            frame.feed(&chunk[..read]);
        }
        let whole = head.len() == HEAD_BYTES && matches!(frame, Frame::Between);
        Ok(Self { digest: Ok(hasher.finish()), bytes, whole })
    }
}

/// Position in a binary after its head, which is a series of sections: id, size, content. Modules and components share
/// this format.
#[derive(Clone, Copy, Debug)]
enum Frame {
    Between,
    /// In an unsigned LEB128 of at most 32 bits.
    Size {
        value: u64,
        shift: u32,
    },
    Section {
        left: u64,
    },
    Broken,
}

impl Frame {
    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            (*self, bytes) = match *self {
                Self::Between => (Self::Size { value: 0, shift: 0 }, rest),
                Self::Size { value, shift } => {
                    let value = value | u64::from(byte & 0x7f) << shift;
                    let next = match (byte & 0x80, shift) {
                        (0, _) => Self::section(value),
                        (_, 28) => Self::Broken,
                        _ => Self::Size { value, shift: shift + 7 },
                    };
                    (next, rest)
                }
                Self::Section { left } => {
                    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    (Self::section(left - skipped as u64), &bytes[skipped..])
                }
                Self::Broken => return,
            };
        }
    }

    fn section(left: u64) -> Self {
        if left == 0 { Self::Between } else { Self::Section { left } }
    }
}

pub(crate) fn too_large() -> Refusal {
    Refusal::new(
        "ComponentTooLarge",
        format!(
            "the component is larger than the {} MiB that this host accepts; strip its debug information, or build it \
             with opt-level = \"s\"",
            MAX_COMPONENT_BYTES >> 20
        ),
    )
}

#[cfg(test)]
mod tests {
    use mortise_core::digest;

    use super::*;

    /// Returns a few bytes at a time, and counts them.
    struct Trickle<'a> {
        bytes: &'a [u8],
        read: &'a mut usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let some = buffer.len().min(3).min(self.bytes.len());
            let (now, later) = self.bytes.split_at(some);
            buffer[..some].copy_from_slice(now);
            self.bytes = later;
            *self.read += some;
            Ok(some)
        }
    }

    fn whole(bytes: &[u8]) -> bool {
        let seen = Fingerprint::of(Trickle { bytes, read: &mut 0 }).unwrap();
        assert_eq!(Fingerprint::of(bytes).unwrap().whole, seen.whole, "the chunks of {bytes:?} make a difference");
        seen.whole
    }

    #[test]
    fn a_binary_is_complete_when_its_last_section_is() {
        let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
        assert!(whole(&wasm));
        wasm.extend_from_slice(&[0, 0x81, 0x01]);
        wasm.extend_from_slice(&[7; 129]);
        wasm.extend_from_slice(&[1, 0]);
        assert!(whole(&wasm));
        for length in 0..wasm.len() {
            let ends_with_a_section = length == 8 || length == wasm.len() - 2;
            assert_eq!(whole(&wasm[..length]), ends_with_a_section, "{length} bytes");
        }
        assert!(!whole(b"not wasm at all"));
        assert!(!whole(b"\0asm\x0d\0\x01\0\x00\xff\xff\xff\xff\xff\xff"));
        assert!(whole(b"\0asm\x01\0\0\0\x00\xff"), "a module is refused at once");
    }

    #[test]
    fn only_the_head_is_read_of_what_is_not_a_component() {
        let mut read = 0;
        let zeros = vec![0; MAX_COMPONENT_BYTES];
        let seen = Fingerprint::of(Trickle { bytes: &zeros, read: &mut read }).unwrap();
        assert_eq!((seen.digest.unwrap_err().reason, read), ("NotWebAssembly", HEAD_BYTES));
    }

    #[test]
    fn the_digest_is_of_all_bytes_up_to_the_largest_component() {
        let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
        wasm.resize(MAX_COMPONENT_BYTES, 7);
        let seen = Fingerprint::of(&*wasm).unwrap();
        assert_eq!((seen.digest.unwrap(), seen.bytes), (digest::of(&wasm), MAX_COMPONENT_BYTES));
        wasm.push(7);
        assert_eq!(Fingerprint::of(&*wasm).unwrap().digest.unwrap_err().reason, "ComponentTooLarge");
    }
}
