//! How much of its memory limit the host uses, as levels: beyond the first it gives up what it can compute again, beyond the
//! second it lets wait what costs most. Bytes come in, levels come out; nothing here measures or gives up anything.

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Level {
    /// There is enough.
    #[default]
    Ample,
    /// What can be computed again is given up.
    Short,
    /// What costs most waits.
    Scarce,
}

/// Percent of the limit at which each level begins, and below which it ends: so that a host near the bound does not change
/// between two levels all the time. A quarter of the Deployment's 2 GiB is what the webhooks' port and a compiler may take at
/// once; the last 15 percent are what a second's work allocates.
const SHORT: (u64, u64) = (75, 65);
const SCARCE: (u64, u64) = (85, 75);

/// What the engine hears while memory is short, and once when it no longer is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pressure {
    /// How short it is.
    pub level: Level,
    /// Bytes to give up, until the lowest level is reached.
    pub excess_bytes: u64,
}

/// The level from one measurement to the next.
#[derive(Default, Debug)]
pub struct Gauge {
    level: Level,
}

impl Gauge {
    /// Takes a measurement. Returns what the engine has to know of it.
    pub fn measure(&mut self, used_bytes: u64, limit_bytes: u64) -> Option<Pressure> {
        let is_over = |percent: u64| u128::from(used_bytes) * 100 >= u128::from(limit_bytes) * u128::from(percent);
        let before = std::mem::replace(&mut self.level, Level::Ample);
        let is_at = |level: Level, (begins, ends): (u64, u64)| is_over(if before >= level { ends } else { begins });
        self.level = match () {
            () if is_at(Level::Scarce, SCARCE) => Level::Scarce,
            () if is_at(Level::Short, SHORT) => Level::Short,
            () => Level::Ample,
        };
        let excess_bytes = used_bytes.saturating_sub(limit_bytes / 100 * SHORT.1);
        (before.max(self.level) > Level::Ample).then_some(Pressure { level: self.level, excess_bytes })
    }

    /// The level of the last measurement.
    pub fn level(&self) -> Level {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_begins_at_its_bound_and_ends_ten_percent_below() {
        let mut gauge = Gauge::default();
        let levels = [740, 750, 700, 651, 649, 650, 850, 751, 749, 851, 400].map(|used| {
            gauge.measure(used, 1_000);
            gauge.level()
        });
        use Level::{Ample, Scarce, Short};
        assert_eq!(levels, [Ample, Short, Short, Short, Ample, Ample, Scarce, Scarce, Short, Scarce, Ample]);
    }

    #[test]
    fn the_engine_hears_of_it_while_memory_is_short_and_once_when_it_no_longer_is() {
        let mut gauge = Gauge::default();
        assert_eq!(gauge.measure(600, 1_000), None);
        let pressure = |level, excess_bytes| Some(Pressure { level, excess_bytes });
        assert_eq!(gauge.measure(800, 1_000), pressure(Level::Short, 150));
        assert_eq!(gauge.measure(800, 1_000), pressure(Level::Short, 150));
        assert_eq!(gauge.measure(500, 1_000), pressure(Level::Ample, 0));
        assert_eq!(gauge.measure(500, 1_000), None);
        assert_eq!(gauge.measure(u64::MAX, u64::MAX).map(|pressure| pressure.level), Some(Level::Scarce));
    }
}
