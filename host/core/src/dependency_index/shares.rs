//! The shares with dependencies, and the positions of these. Shares have numbers, which take less memory beside each
//! dependency than their names.

use std::sync::Arc;

use crate::dependencies::SharedDependency;
use crate::map::Map;

#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: Map<Arc<str>, u32>,
    /// By number.
    slots: Vec<Share>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Share {
    name: Arc<str>,
    places: Map<Arc<SharedDependency>, u32>,
}

impl Shares {
    /// The name of a share by its number.
    pub(super) fn name(&self, number: u32) -> &Arc<str> {
        &self.slots[number as usize].name
    }

    pub(super) fn number(&self, share: &str) -> Option<u32> {
        self.numbers.get(share).copied()
    }

    /// The number of a share with the dependency of its own that is equal to this one, and the position of that.
    pub(super) fn find(&self, share: &str, dependency: &SharedDependency) -> Option<(u32, Arc<SharedDependency>, u32)> {
        let number = self.number(share)?;
        let (known, place) = self.slots[number as usize].places.get_key_value(dependency)?;
        Some((number, Arc::clone(known), *place))
    }

    pub(super) fn place(&self, number: u32, dependency: &SharedDependency) -> Option<u32> {
        self.slots[number as usize].places.get(dependency).copied()
    }

    /// Adds a dependency of a share, and returns the number of that.
    pub(super) fn add(&mut self, share: &Arc<str>, dependency: &Arc<SharedDependency>, place: u32) -> u32 {
        let Self { numbers, slots, free } = self;
        let number = *numbers.entry(Arc::clone(share)).or_insert_with(|| {
            let number = free.pop().unwrap_or_else(|| {
                slots.push(Share::default());
                u32::try_from(slots.len() - 1).expect("four billion shares do not fit into memory")
            });
            slots[number as usize].name = Arc::clone(share);
            number
        });
        slots[number as usize].places.insert(Arc::clone(dependency), place);
        number
    }

    /// Removes a dependency of a share; with the last one, the share.
    pub(super) fn remove(&mut self, number: u32, dependency: &SharedDependency) {
        let share = &mut self.slots[number as usize];
        share.places.remove(dependency);
        if share.places.is_empty() {
            self.numbers.remove(&std::mem::take(share).name);
            self.free.push(number);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}
