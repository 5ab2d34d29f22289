//! Reads and writes the JSON of reviews. Small texts are read at once; large ones on a thread of their own, a few at a
//! time, since one I/O thread moves the bytes of every connection. It must not know what a review says.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::capacity::{Class, Permit};

#[cfg(test)]
mod tests;

/// A text of this size takes a tenth of a millisecond, some times as long as handing it to another thread. Most reviews
/// are smaller.
const SMALL_BYTES: usize = 16 << 10;
/// Large texts of reviews at once. Each may take, for a moment, some times its bytes and a tenth of a second of a core;
/// reviews have seconds. With two, a core is left for everything else.
const LARGE_AT_ONCE: usize = 2;
/// The same of conversions, which wait for each other alone: anybody may send them.
const CONVERSIONS_AT_ONCE: usize = 1;

/// Reads texts. Clones share the turns.
#[derive(Clone, Debug)]
pub(crate) struct Parsing {
    turns: Arc<Semaphore>,
    conversions: Arc<Semaphore>,
}

impl Default for Parsing {
    fn default() -> Self {
        let turns = |count| Arc::new(Semaphore::new(count));
        Self { turns: turns(LARGE_AT_ONCE), conversions: turns(CONVERSIONS_AT_ONCE) }
    }
}

impl Parsing {
    /// The result of work on a text of so many bytes: of the longest that it reads or writes. The request's permit is
    /// held until the work ends, also when its client has gone away. While it waits for its turn, the request may give
    /// way; then there is no result.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        permit: &Arc<Permit>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes <= SMALL_BYTES {
            return work();
        }
        let turns = if permit.class() == Class::Conversion { &self.conversions } else { &self.turns };
        let turn = Arc::clone(turns).acquire_owned().await.expect("nobody closes it");
        let Some(working) = permit.work() else { return pending().await };
        let done = spawn_blocking(move || {
            let _held = (turn, working);
            work()
        });
        match done.await.map_err(|error| error.try_into_panic()) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            // The process ends.
            Err(Err(_)) => pending().await,
        }
    }
}
