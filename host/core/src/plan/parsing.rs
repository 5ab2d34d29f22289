//! How much text a comparison may parse. On the event loop that is little, since it delays everybody: what takes longer a
//! worker has compared before, and the objects remember what it found. It does not know what is compared.

/// Bytes that one diff parses on the event loop: half a millisecond of ordinary objects, five of the smallest members. A
/// Deployment with its field set and what is wanted of it have some ten KiB, and each version of it is compared once.
pub(super) const LOOP_BYTES: usize = 64 << 10;

/// The text that was parsed for one diff.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parsing {
    /// The bytes, with those that no comparison needs.
    pub bytes: usize,
    /// Those of comparisons.
    compared: usize,
    /// Something was not compared for want of budget, and counts as different.
    pub is_unfinished: bool,
}

impl Parsing {
    /// Whether a comparison may parse so many bytes, which counts them.
    pub(super) fn allows(&mut self, bytes: usize) -> bool {
        let compared = self.compared.saturating_add(bytes);
        let fits = compared <= LOOP_BYTES;
        if fits {
            (self.compared, self.bytes) = (compared, self.bytes + bytes);
        } else {
            self.is_unfinished = true;
        }
        fits
    }
}
