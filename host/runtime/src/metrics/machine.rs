//! Series of the machine that the host runs on: its memory, its compile cache and its log. A scrape reads all of them.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::families::{DroppedLabels, MemoryLabels, PressureLabels, counter, gauge};
use super::series::{AllSeries, Series};
use crate::log::budget::Dropped;
use crate::memory::MemoryState;

/// The levels of memory, in their order.
const LEVELS: [&str; 3] = ["ample", "short", "scarce"];

/// What a scrape reads of the machine.
#[derive(Default)]
pub(crate) struct MachineState {
    /// None without a limit.
    pub(crate) memory: Option<MemoryState>,
    /// Whether the folder of the compile cache could be used last.
    pub(crate) cache_is_usable: bool,
    /// Lines over the budget, by share.
    pub(crate) over_budget: Vec<(Arc<str>, Dropped)>,
    /// Lines that could not be written.
    pub(crate) unwritten: Dropped,
}

#[derive(Debug)]
pub(super) struct Machine {
    memory: Series<MemoryLabels, Gauge>,
    pressure: Series<PressureLabels, Gauge>,
    cache: Gauge,
    dropped: Series<DroppedLabels, Counter>,
}

impl Machine {
    pub(super) fn register(all: &mut AllSeries) -> Self {
        let cache = Gauge::default();
        let help = "1 when the folder of compiled plugins can be used";
        all.registry.register("mortise_compile_cache_usable", help, cache.clone());
        Self {
            memory: gauge(
                all,
                "mortise_memory_bytes",
                "Memory of the container: used, by compilers among that, and the limit",
            ),
            pressure: gauge(all, "mortise_memory_pressure", "1 for how short memory is"),
            cache,
            dropped: counter(all, "mortise_log_dropped_lines", "Lines that were not logged, by whom and why"),
        }
    }

    pub(super) fn scrape(&self, state: &MachineState) {
        if let Some(MemoryState { used_bytes, limit_bytes, compiler_bytes, level }) = state.memory {
            for (of, bytes) in [("used", used_bytes), ("compilers", compiler_bytes), ("limit", limit_bytes)] {
                self.memory.of(&MemoryLabels { of }).set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
            for (at, name) in (0..).zip(LEVELS) {
                self.pressure.of(&PressureLabels { level: name }).set(i64::from(at == level));
            }
        }
        self.cache.set(i64::from(state.cache_is_usable));
        let over = state.over_budget.iter().map(|(share, dropped)| (Arc::clone(share), "budget", dropped));
        let unwritten = ("mortise".into(), "unwritten", &state.unwritten);
        for (share, reason, dropped) in over.chain([unwritten]).filter(|(.., dropped)| dropped.lines > 0) {
            let counter = self.dropped.of(&DroppedLabels { share, reason });
            counter.inc_by(dropped.lines.saturating_sub(counter.get()));
        }
    }
}
