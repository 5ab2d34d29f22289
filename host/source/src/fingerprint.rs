//! What one pass over a component's bytes tells: their digest, how many they are and whether they end where a binary does,
//! or why they are no component. The bytes come as a stream and are kept by nobody, so a pass costs one chunk of memory,
//! whatever they would be unpacked; what does not begin as a component is not read any further.

use std::io::{self, Read};

use mortise_core::component::{HEAD_BYTES, check_head};
use mortise_core::digest::{Digest, Hasher};
use mortise_core::limits::MAX_COMPONENT_BYTES;
use mortise_core::refusal::Refusal;

/// Bytes that are in memory at once: larger ones make a pass no faster.
const CHUNK_BYTES: usize = 64 << 10;

/// What a pass has told.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    /// What the bytes hash to, or why they are no component.
    pub digest: Result<Digest, Refusal>,
    /// Bytes that were read.
    pub bytes: usize,
    /// False when they may be the beginning of what somebody is still writing.
    pub whole: bool,
}

impl Fingerprint {
    /// Reads to the end, or as far as it takes to refuse.
    pub(crate) fn of(reader: impl Read) -> io::Result<Self> {
        let mut reader = reader.take(MAX_COMPONENT_BYTES as u64 + 1);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if let Err(refusal) = check_head(&head) {
            // Files are made empty, or full of zeros, before they are written. A module's head is written by nobody else.
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

/// Where in a binary a stream is, after its head: sections, each of an id, a size and as many bytes. Modules and components
/// share this frame.
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

/// The refusal of a component that is too large, by whomever it is measured.
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

    /// Gives out a few bytes at a time, and counts them.
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
        assert_eq!(
            Fingerprint::of(bytes).unwrap().whole,
            seen.whole,
            "it depends on the pieces that {bytes:?} come in"
        );
        seen.whole
    }

    #[test]
    fn a_binary_is_whole_when_its_last_section_ends_with_it() {
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
        assert!(whole(b"\0asm\x01\0\0\0\x00\xff"), "nobody waits for the rest of a module, which is refused");
    }

    #[test]
    fn what_does_not_begin_as_a_component_is_read_no_further_than_its_head() {
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
