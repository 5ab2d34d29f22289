//! The end of a list: which objects it lacks. It changes nothing.

use super::listing::Seen;
use super::table::Table;
use crate::object::{Name, ResourceVersion};
use crate::scope::Slice;

/// A list that has ended, and how far the table was compared with it.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) version: ResourceVersion,
    /// The last version that the watch has delivered.
    pub(super) delivered: ResourceVersion,
    /// Versions of objects cannot be compared with that of the list.
    rewound: bool,
    /// The next slot, of a list of all namespaces.
    slot: u32,
    /// The last name, of a list of one.
    after: Option<Name>,
}

impl Ending {
    pub(super) fn of(version: ResourceVersion, rewound: bool) -> Self {
        Self { version, delivered: version, rewound, slot: 0, after: None }
    }

    /// The next object that is lost; None after the last one, or without a look left.
    pub(super) fn next(
        &mut self,
        table: &Table,
        listing: &Seen,
        slice: &Slice,
        looks: &mut usize,
    ) -> Option<(u32, Name)> {
        let Self { version, rewound, slot: first, after, .. } = self;
        let slots: Box<dyn Iterator<Item = u32>> = match &slice.namespace {
            Some(namespace) => Box::new(table.in_namespace_after(namespace, after.clone())),
            None => Box::new(listing.unseen(*first, table.fresh_slot())),
        };
        for slot in slots {
            let Some(object) = table.object(slot) else { continue };
            if *looks == 0 {
                return None;
            }
            *looks -= 1;
            let is_lost = !listing.has(slot) && (*rewound || object.resource_version <= *version);
            if is_lost || *looks == 0 {
                *first = slot + 1;
                *after = Some(object.name.clone());
            }
            if is_lost {
                return Some((slot, object.name.clone()));
            }
        }
        None
    }

    pub(super) fn shows(&self, version: ResourceVersion) -> bool {
        version <= self.version
    }
}
