//! The keys and their state, by controller and name.

use std::collections::BTreeMap;

use super::key::KeyState;
use crate::map::Map;
use crate::object::Name;
use crate::workqueue::{ControllerId, Key};

#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Boxed: tables are half empty, and are copied as they grow.
    by_controller: BTreeMap<ControllerId, Map<Name, Box<KeyState>>>,
}

impl Keys {
    pub fn get(&self, key: &Key) -> Option<&KeyState> {
        self.by_controller.get(&key.controller)?.get(&key.name).map(|state| &**state)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut KeyState> {
        self.by_controller.get_mut(&key.controller)?.get_mut(&key.name).map(|state| &mut **state)
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }

    pub fn add(&mut self, key: &Key) {
        self.by_controller.entry(key.controller).or_default().entry(key.name.clone()).or_default();
    }

    pub fn remove(&mut self, key: &Key) -> Option<Box<KeyState>> {
        let of_controller = self.by_controller.get_mut(&key.controller)?;
        let removed = of_controller.remove(&key.name);
        if of_controller.is_empty() {
            self.by_controller.remove(&key.controller);
        }
        removed
    }

    /// Removes the keys of a controller.
    pub fn take(&mut self, controller: ControllerId) -> Map<Name, Box<KeyState>> {
        self.by_controller.remove(&controller).unwrap_or_default()
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.by_controller.values().map(Map::len).sum()
    }

    pub fn states_of(&mut self, controller: ControllerId) -> impl Iterator<Item = &mut KeyState> {
        self.by_controller.get_mut(&controller).into_iter().flat_map(Map::values_mut).map(|state| &mut **state)
    }
}
