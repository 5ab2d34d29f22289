//! Numbers for shares, which take less memory beside each dependency than their names.

use std::sync::Arc;

use crate::map::Map;

/// The shares with dependencies.
#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: Map<Arc<str>, u32>,
    /// By number: its name, and how many dependencies count as its own.
    slots: Vec<(Arc<str>, usize)>,
    free: Vec<u32>,
}

impl Shares {
    /// The share of a number that is in use.
    pub(super) fn name(&self, number: u32) -> &Arc<str> {
        &self.slots[number as usize].0
    }

    /// One dependency more counts as the share's.
    pub(super) fn hold(&mut self, share: &Arc<str>) -> u32 {
        let Self { numbers, slots, free } = self;
        let number = *numbers.entry(Arc::clone(share)).or_insert_with(|| match free.pop() {
            Some(number) => {
                slots[number as usize] = (Arc::clone(share), 0);
                number
            }
            None => {
                slots.push((Arc::clone(share), 0));
                u32::try_from(slots.len() - 1).expect("four billion shares do not fit into memory")
            }
        });
        slots[number as usize].1 += 1;
        number
    }

    pub(super) fn release(&mut self, number: u32) {
        let (share, dependencies) = &mut self.slots[number as usize];
        *dependencies -= 1;
        if *dependencies == 0 {
            self.numbers.remove(&std::mem::take(share));
            self.free.push(number);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}
