//! The series of one name, by their labels: created at first use, removed with what they name, and bounded in number.

use std::collections::HashMap;
use std::fmt::{Debug, Error};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

/// Label sets of all families together. A plugin with one controller has some forty, so this is enough for two
/// thousand.
pub(super) const MAX_SERIES: usize = 100_000;

/// Labels whose values can be read by name.
pub(super) trait Labels: Debug {
    fn value(&self, label: &str) -> Option<&str>;
}

pub(super) trait LabelSet: Labels + EncodeLabelSet + Clone + Eq + Hash + Send + Sync + 'static {}

impl<L: Labels + EncodeLabelSet + Clone + Eq + Hash + Send + Sync + 'static> LabelSet for L {}

/// The series of one name. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Series<L, M> {
    sets: Arc<RwLock<HashMap<L, M>>>,
    new: fn() -> M,
    total: Arc<AtomicUsize>,
}

impl<L: Clone + Eq + Hash, M: Clone> Series<L, M> {
    /// The series with these labels.
    pub(super) fn of(&self, labels: &L) -> M {
        if let Some(metric) = self.sets.read().unwrap_or_else(PoisonError::into_inner).get(labels) {
            return metric.clone();
        }
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        if !sets.contains_key(labels) && self.total.fetch_add(1, Ordering::Relaxed) >= MAX_SERIES {
            // The growing family is reset; to Prometheus a lower counter is a restart.
            self.total.fetch_sub(sets.len(), Ordering::Relaxed);
            sets.clear();
        }
        sets.entry(labels.clone()).or_insert_with(self.new).clone()
    }
}

impl<L: Labels + Send + Sync, M: Debug + Send + Sync> Series<L, M> {
    pub(super) fn clear(&self) {
        self.retain(&|_| false);
    }
}

impl<L: EncodeLabelSet + Debug, M: EncodeMetric + TypedMetric + Debug> EncodeMetric for Series<L, M> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), Error> {
        for (labels, metric) in &*self.sets.read().unwrap_or_else(PoisonError::into_inner) {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.sets.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// A family of any labels.
pub(super) trait AnySeries: Debug + Send + Sync {
    fn retain(&self, keep: &dyn Fn(&dyn Labels) -> bool);
}

impl<L: Labels + Send + Sync, M: Debug + Send + Sync> AnySeries for Series<L, M> {
    fn retain(&self, keep: &dyn Fn(&dyn Labels) -> bool) {
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        let before = sets.len();
        sets.retain(|labels, _| keep(labels));
        self.total.fetch_sub(before - sets.len(), Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct AllSeries {
    pub(super) registry: Registry,
    families: Vec<Box<dyn AnySeries>>,
    total: Arc<AtomicUsize>,
}

impl AllSeries {
    pub(super) fn register<L, M>(&mut self, name: &str, help: &str, new: fn() -> M) -> Series<L, M>
    where
        L: LabelSet,
        M: Clone + Debug + Send + Sync + 'static,
        Series<L, M>: Metric,
    {
        let series = Series { sets: Arc::default(), new, total: Arc::clone(&self.total) };
        self.registry.register(name, help, series.clone());
        self.families.push(Box::new(series.clone()));
        series
    }

    /// Of every family.
    pub(super) fn retain(&self, keep: impl Fn(&dyn Labels) -> bool) {
        self.families.iter().for_each(|family| family.retain(&keep));
    }

    /// Label sets of all families.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }
}
