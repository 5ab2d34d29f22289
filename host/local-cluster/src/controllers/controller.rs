//! What a controller is: which changes it sees, which keys they concern, and what it does with a key. It must not know which
//! controllers there are.

use crate::Cluster;
use crate::context::Context;
use crate::halt::Halt;
use crate::store::{Change, Object};

pub(super) use crate::queue::{Again, Key};

/// One controller: functions, without state of its own.
pub(crate) struct Controller {
    /// Its name, as kube-controller-manager's `--controllers` has it.
    pub(crate) name: &'static str,
    /// The user that it writes as.
    pub(crate) user: &'static str,
    /// The group and plural of the kinds whose changes it sees; with none it sees all.
    pub(crate) watches: &'static [(&'static str, &'static str)],
    /// Whether it waits until no other controller has anything to do, so that it looks once after many changes.
    pub(crate) batches: bool,
    /// The keys that a change concerns.
    pub(crate) keys: fn(&Cluster, &Change) -> Vec<Key>,
    /// Looks at a key, and writes what is missing. An error undoes what it wrote; the key is tried again, later each time.
    pub(crate) reconcile: fn(&mut Cluster, &Context<'_>, &Key) -> Result<Again, Halt>,
}

/// An object's own key.
pub(super) fn key(object: &Object) -> Key {
    (object.namespace().into(), object.name().into())
}

/// Whether an update left these fields as they were; each is a JSON pointer.
pub(super) fn unchanged(before: &Object, after: &Object, fields: &[&str]) -> bool {
    fields.iter().all(|field| before.value.pointer(field) == after.value.pointer(field))
}
