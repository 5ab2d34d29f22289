//! Rounds of measurements and their medians: functions to measure in, [`Figure`]s out.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::allocations;

/// The difference between the two halves of a row's rounds from which the row is noisy.
pub(crate) const NOISE: f64 = 0.05;

/// Adds up the time and the allocations of the measured operations alone.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    operations: u64,
    elapsed: Duration,
    allocations: u64,
}

impl Stopwatch {
    /// Measures one operation of a microsecond or more: the clock itself costs about 50 ns.
    pub(crate) fn one<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        self.many(1, operation)
    }

    /// Measures a closure that does this many operations: for very short ones.
    pub(crate) fn many<T>(&mut self, operations: u64, work: impl FnOnce() -> T) -> T {
        let allocations = allocations::count();
        let begin = Instant::now();
        let result = std::hint::black_box(work());
        self.elapsed += begin.elapsed();
        self.allocations += allocations::count() - allocations;
        self.operations += operations;
        result
    }

    fn sample(&self) -> Sample {
        let operations = self.operations.max(1) as f64;
        Sample { ns: self.elapsed.as_nanos() as f64 / operations, allocations: self.allocations as f64 / operations }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    ns: f64,
    allocations: f64,
}

type Run<'a> = Box<dyn FnMut(&mut Stopwatch) -> Result<()> + 'a>;

/// A benchmark: each call measures many operations.
pub(crate) struct Case<'a> {
    name: String,
    target: Option<Duration>,
    run: Run<'a>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut(&mut Stopwatch) -> Result<()> + 'a) -> Self {
        Self { name: name.into(), target: None, run: Box::new(run) }
    }

    /// Sets the target for one operation.
    pub(crate) fn target(self, target: Duration) -> Self {
        Self { target: Some(target), ..self }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) ns: f64,
    /// Median of the even rounds divided by that of the odd ones: 1 on an idle machine.
    pub(crate) halves: f64,
    pub(crate) allocations: f64,
    pub(crate) target: Option<Duration>,
}

impl Figure {
    pub(crate) fn is_noisy(&self) -> bool {
        (self.halves - 1.0).abs() > NOISE
    }
}

/// Runs every case once per round, each round starting with another case. An additional first round warms up.
pub(crate) fn rounds(cases: &mut [Case<'_>], rounds: usize) -> Result<Vec<Figure>> {
    let mut samples = vec![Vec::with_capacity(rounds); cases.len()];
    for round in 0..=rounds {
        for offset in 0..cases.len() {
            let index = (round + offset) % cases.len();
            let mut stopwatch = Stopwatch::default();
            (cases[index].run)(&mut stopwatch)?;
            if round > 0 {
                samples[index].push(stopwatch.sample());
            }
        }
    }
    Ok(cases.iter().zip(samples).map(|(case, samples)| figure(case, &samples)).collect())
}

fn figure(case: &Case<'_>, samples: &[Sample]) -> Figure {
    let half = |parity| median(samples.iter().skip(parity).step_by(2).map(|sample| sample.ns).collect());
    Figure {
        name: case.name.clone(),
        ns: median(samples.iter().map(|sample| sample.ns).collect()),
        halves: if samples.len() > 1 { half(0) / half(1) } else { 1.0 },
        allocations: median(samples.iter().map(|sample| sample.allocations).collect()),
        target: case.target,
    }
}

/// The middle value, or the mean of the two in the middle; NaN of no values.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    let lower = quantile(values.clone(), 0.5);
    let mut negated = values;
    negated.iter_mut().for_each(|value| *value = -*value);
    (lower - quantile(negated, 0.5)) / 2.0
}

/// The smallest value that at least this share of the values does not exceed; NaN of no values.
pub(crate) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil().max(1.0);
    values.get(rank as usize - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values = (1..=200).map(f64::from).collect::<Vec<_>>();
        assert_eq!(quantile(values.clone(), 0.99), 198.0);
        assert_eq!(quantile(values, 1.0), 200.0);
        assert_eq!(quantile(vec![7.0], 0.0), 7.0);
    }

    #[test]
    fn only_measured_operations_are_counted() {
        let mut cases = [Case::new("a box", |stopwatch| {
            let outside = std::hint::black_box(vec![0_u8; 10]);
            drop(stopwatch.one(|| Box::new(1)));
            drop(outside);
            Ok(())
        })];
        let figures = rounds(&mut cases, 3).unwrap();
        assert_eq!(figures[0].allocations, 1.0);
    }
}
