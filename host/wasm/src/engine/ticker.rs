//! When calls look at the clocks. Guest code reads a counter, the epoch, at each loop and function; one thread advances it
//! while calls run, and parks while none do, so that an idle host uses no CPU.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::EngineWeak;

/// Time between two epochs. Deadlines are hundreds of ticks long; shorter ticks would only wake the machine more.
const TICK: Duration = Duration::from_millis(10);
/// Ticks without a call before the thread parks: a second, because waking it costs a call some microseconds.
const LINGER_TICKS: u32 = 100;

/// The ticker. Dropping it ends its thread.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    running: AtomicUsize,
    started: AtomicU64,
    parked: AtomicBool,
    stopped: AtomicBool,
}

/// Keeps the epoch advancing until it is dropped.
pub(crate) struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ticker {
    /// Starts the thread, which holds the engine weakly.
    pub(crate) fn start(engine: &wasmtime::Engine) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let engine = engine.weak();
        let handle = thread::Builder::new().name("mortise-ticker".to_owned()).spawn({
            let shared = shared.clone();
            move || tick(&shared, &engine)
        })?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }

    /// A call begins.
    pub(crate) fn run(&self) -> Running<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        self.shared.started.fetch_add(1, Ordering::Relaxed);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Running(&self.shared)
    }

    /// Epochs until this time has passed, for a call that has just seen one.
    pub(crate) fn ticks(time: Duration) -> u64 {
        u64::try_from(time.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn tick(shared: &Shared, engine: &EngineWeak) {
    let (mut idle, mut seen) = (0, 0);
    while !shared.stopped.load(Ordering::SeqCst) {
        let started = shared.started.load(Ordering::Relaxed);
        let busy = shared.running.load(Ordering::SeqCst) > 0 || started != seen;
        idle = if busy { 0 } else { idle + 1 };
        seen = started;
        if idle >= LINGER_TICKS {
            // A call that begins after this store sees it and unparks; the load below sees one that began before.
            shared.parked.store(true, Ordering::SeqCst);
            if shared.running.load(Ordering::SeqCst) == 0 && !shared.stopped.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.parked.store(false, Ordering::SeqCst);
            idle = 0;
            continue;
        }
        thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Waits until a condition holds, for at most ten seconds.
    fn eventually(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_ticker_sleeps_while_no_call_runs_and_wakes_for_one() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(&engine).unwrap();
        eventually("parked when idle", || ticker.shared.parked.load(Ordering::SeqCst));
        let running = ticker.run();
        eventually("awake for a call", || !ticker.shared.parked.load(Ordering::SeqCst));
        drop(running);
        eventually("parked again", || ticker.shared.parked.load(Ordering::SeqCst));
    }

    #[test]
    fn a_dropped_ticker_ends_its_thread() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(&engine).unwrap();
        let shared = Arc::downgrade(&ticker.shared);
        drop(ticker);
        eventually("thread ended", || shared.strong_count() == 0);
    }
}
