//! The virtual machine of one call: seeded randomness, and what the guest writes to stdout and stderr. `wasi.rs` gives
//! it to guests.

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime_wasi::WasiCtx;

use crate::log::Tail;

/// Most random bytes of one request. Hash maps need 16.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

pub(crate) struct Virtual {
    pub(crate) random: Random,
    pub(crate) stdout: Option<SharedTail>,
    pub(crate) stderr: Option<SharedTail>,
    pub(crate) stdio_bytes: usize,
    /// wasmtime-wasi's own state, for terminals, files and sockets. Built at their first use.
    pub(crate) context: Option<Box<WasiCtx>>,
}

/// What a guest wrote to one stream, shared by the stream's handles and the call's state.
pub(crate) type SharedTail = Arc<Mutex<Tail>>;

impl Virtual {
    pub(crate) fn new(stdio_bytes: u64, seed: u64) -> Self {
        let stdio_bytes = usize::try_from(stdio_bytes).unwrap_or(usize::MAX);
        Self { random: Random(seed), stdout: None, stderr: None, stdio_bytes, context: None }
    }

    /// The end of what the guest wrote to stdout.
    pub(crate) fn stdout(&self) -> String {
        text_of(self.stdout.as_ref())
    }

    /// The end of what the guest wrote to stderr.
    pub(crate) fn stderr(&self) -> String {
        text_of(self.stderr.as_ref())
    }
}

fn text_of(tail: Option<&SharedTail>) -> String {
    tail.map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner).text()).unwrap_or_default()
}

/// SplitMix64: small, fast and the same everywhere. It must differ between objects; it need not be unpredictable.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        if len > MAX_RANDOM_BYTES {
            wasmtime::bail!("the guest requested {len} random bytes at once, more than {MAX_RANDOM_BYTES}");
        }
        let len = usize::try_from(len).expect("a bounded length fits in a usize");
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_is_a_function_of_the_seed() {
        let draw = |seed| Random(seed).bytes(13).unwrap();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(draw(7).len(), 13);
        assert!(Random(7).bytes(MAX_RANDOM_BYTES + 1).is_err());
    }
}
