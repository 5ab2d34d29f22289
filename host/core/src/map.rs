//! A hash map without a random seed, so that a run of the same events is repeatable.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
