//! A call in flight.

use std::sync::Arc;

use crate::component::Version;
use crate::object::Object;
use crate::workqueue::Key;

#[derive(Debug)]
pub(super) struct CallInFlight {
    pub key: Key,
    pub version: Version,
    pub plugin: Arc<str>,
    pub label: Arc<str>,
    pub object: Arc<Object>,
    pub is_void: bool,
}

impl CallInFlight {
    /// etcd was restored after its snapshot was taken.
    pub fn make_void(&mut self) {
        self.is_void = true;
    }
}
