//! Measures what the host uses of its container's memory limit. The engine hears of it when that is much, and gives up what it
//! can; compilers end when memory is scarce, before anything else does. Without a limit nothing is measured.
//!
//! The allocator returns freed pages by itself after a second, which is sooner than the next measurement matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use mortise_core::event::Event;
use mortise_core::memory::{Gauge, Level, Pressure};
use mortise_wasm::container::{Usage, usage};
use tokio::time::sleep;

use crate::input::Input;
use crate::inputs::Inputs;
use crate::loader::Loader;

/// How often it is measured. A measurement takes a tenth of a millisecond, since the kernel adds its counters up.
const PAUSE: Duration = Duration::from_secs(1);
/// The same while memory is short: what is given up in one step is freed when the next begins.
const PAUSE_WHILE_SHORT: Duration = Duration::from_millis(100);

/// The last measurement, for metrics and webhooks.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    used_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    compiler_bytes: AtomicU64,
    level: AtomicU64,
}

/// What a scrape shows of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct MemoryState {
    /// Of the container, with its compilers.
    pub(crate) used_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) compiler_bytes: u64,
    /// 0, 1 or 2.
    pub(crate) level: u64,
}

impl Measured {
    /// None: there is no limit, or it was not measured yet.
    pub(crate) fn state(&self) -> Option<MemoryState> {
        let of = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let state = MemoryState {
            used_bytes: of(&self.used_bytes),
            limit_bytes: of(&self.limit_bytes),
            compiler_bytes: of(&self.compiler_bytes),
            level: of(&self.level),
        };
        (state.limit_bytes > 0).then_some(state)
    }

    /// Whether what costs most waits.
    pub(crate) fn is_scarce(&self) -> bool {
        self.level.load(Ordering::Relaxed) == Level::Scarce as u64
    }

    fn set(&self, Usage { used_bytes, limit_bytes }: Usage, compiler_bytes: u64, level: Level) {
        let to = |value: &AtomicU64, now: u64| value.store(now, Ordering::Relaxed);
        to(&self.used_bytes, used_bytes);
        to(&self.compiler_bytes, compiler_bytes);
        to(&self.level, level as u64);
        to(&self.limit_bytes, limit_bytes);
    }
}

/// The memory of the host and of its compilers, from one measurement to the next.
#[derive(Default)]
struct Watch {
    of_host: Gauge,
    of_all: Gauge,
}

/// What follows from a measurement.
#[derive(PartialEq, Debug)]
struct Follows {
    pressure: Option<Pressure>,
    halts_compilers: bool,
}

impl Watch {
    /// Compilers are the first to end, so the engine hears of the memory that would be used without them.
    fn measure(&mut self, usage: Usage, compiler_bytes: u64) -> Follows {
        self.of_all.measure(usage.used_bytes, usage.limit_bytes);
        let pressure = self.of_host.measure(usage.used_bytes.saturating_sub(compiler_bytes), usage.limit_bytes);
        Follows { pressure, halts_compilers: self.of_all.level() == Level::Scarce }
    }
}

/// Measures until the event loop has ended.
pub(crate) async fn watch(loader: Arc<Loader>, measured: Arc<Measured>, inputs: Inputs) -> anyhow::Result<()> {
    let mut watch = Watch::default();
    loop {
        let Some(usage) = usage() else { return std::future::pending().await };
        let compiler_bytes = loader.compiler_bytes();
        let Follows { pressure, halts_compilers } = watch.measure(usage, compiler_bytes);
        loader.halt_compilers(halts_compilers);
        let before = measured.state().unwrap_or_default().level;
        let level = watch.of_host.level();
        measured.set(usage, compiler_bytes, level);
        report(before, level, usage);
        if let Some(pressure) = pressure {
            inputs.send(Input::Event(Event::MemoryPressure(pressure))).await.context("the event loop has ended")?;
        }
        sleep(if level == Level::Ample { PAUSE } else { PAUSE_WHILE_SHORT }).await;
    }
}

fn report(before: u64, level: Level, Usage { used_bytes, limit_bytes }: Usage) {
    if before == level as u64 {
        return;
    }
    let (used_mib, limit_mib) = (used_bytes >> 20, limit_bytes >> 20);
    match level {
        Level::Ample => tracing::info!(used_mib, limit_mib, "there is enough memory again"),
        Level::Short => {
            tracing::warn!(used_mib, limit_mib, "memory is short: outcomes and reads of calls are given up")
        }
        Level::Scarce => tracing::warn!(
            used_mib,
            limit_mib,
            "memory is scarce: the plugin that keeps most waits, as its Plugin object shows, and so do compilations and large \
             webhook requests"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_compilers_end_before_the_engine_gives_up_anything() {
        let mut watch = Watch::default();
        let mut measure =
            |used_bytes, compiler_bytes| watch.measure(Usage { used_bytes, limit_bytes: 1_000 }, compiler_bytes);
        let follows = |pressure, halts_compilers| Follows { pressure, halts_compilers };
        assert_eq!(measure(900, 300), follows(None, true));
        assert_eq!(measure(600, 0), follows(None, false));
        let pressure = |level, excess_bytes| Some(Pressure { level, excess_bytes });
        assert_eq!(measure(900, 0), follows(pressure(Level::Scarce, 250), true));
        assert_eq!(measure(600, 0), follows(pressure(Level::Ample, 0), false));
    }
}
