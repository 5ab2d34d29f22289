//! Field selectors: the objects with given values at given paths, such as `"node-1"` at `spec.nodeName`.
//!
//! A path has the syntax of a projection. It must end at a text, an integer or a boolean: a path through an array, or
//! to any other value, selects nothing. Values are read from the object's text; the store and the dependency index keep
//! hashes of values, so that few objects are read. Nothing here knows either of them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use crate::budget::Budget;
use crate::heap::HeapBytes;
use crate::object::Object;
use crate::projection::{self, InvalidPath};

pub use self::value::FieldValue;

mod lookup;
#[cfg(test)]
mod tests;
mod value;

/// Requirements of one selector. Each that no index covers reads the object's text; most queries have one or two.
const MAX_REQUIREMENTS: usize = 8;
/// Bytes of a text value: four of Kubernetes' longest names.
const MAX_VALUE_BYTES: usize = 1_024;

/// Indexed fields of one kind beyond the first of each share. Other fields are read in each object.
pub(crate) const SHARED_FIELDS: usize = 8;
/// Indexed fields of one kind in all: one for each of so many shares that ask for it, however many the others have. An
/// event reads its object once for all of them.
pub(crate) const MAX_SELECTED_FIELDS: usize = lookup::MAX_PATHS;
/// Those that one share may choose, such as a Pod's node and its phase.
pub(crate) const MAX_FIELDS_OF_A_PLUGIN: usize = 2;

/// A path to one field. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Arc<[String]>);

/// The value that an object must have at one path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FieldRequirement {
    /// The path.
    pub path: FieldPath,
    /// The value.
    pub value: FieldValue,
}

/// Requirements that an object must all meet. The empty selector matches everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FieldSelector(Box<[FieldRequirement]>);

/// Why a field selector cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidFieldSelector {
    /// A path is invalid.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// There are too many requirements.
    #[error("the field selector has {0} requirements, and {MAX_REQUIREMENTS} are the most")]
    TooMany(usize),
    /// A value is too long.
    #[error("the value for the field {path:?} has {bytes} bytes, and {MAX_VALUE_BYTES} are the most")]
    TooLong {
        /// The field.
        path: String,
        /// The value's length.
        bytes: usize,
    },
}

impl FieldSelector {
    /// Parses the paths. The order of the requirements does not matter.
    pub fn parse(requirements: &[(String, FieldValue)]) -> Result<Self, InvalidFieldSelector> {
        if requirements.len() > MAX_REQUIREMENTS {
            return Err(InvalidFieldSelector::TooMany(requirements.len()));
        }
        let parse = |(text, value): &(String, FieldValue)| {
            let path = FieldPath::parse(text)?;
            match value {
                FieldValue::Text(value) if value.len() > MAX_VALUE_BYTES => {
                    Err(InvalidFieldSelector::TooLong { path: text.clone(), bytes: value.len() })
                }
                value => Ok(FieldRequirement { path, value: value.clone() }),
            }
        };
        let mut requirements = requirements.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        requirements.sort();
        requirements.dedup();
        Ok(Self(requirements.into()))
    }

    /// The requirements, sorted.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.0
    }

    /// Bytes in memory beside its own size.
    pub fn bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl HeapBytes for FieldRequirement {
    fn heap_bytes(&self) -> usize {
        self.path.0.heap_bytes() + self.value.heap_bytes()
    }
}

/// Whether an object meets all requirements. Reading a value spends budget; None when that is overdrawn.
pub(crate) fn matches_within(requirements: &[FieldRequirement], object: &Object, budget: &Budget) -> Option<bool> {
    for FieldRequirement { path, value } in requirements {
        if !budget.spend(object.text_units()) {
            return None;
        }
        if path.value_in(object).as_ref() != Some(value) {
            return Some(false);
        }
    }
    Some(true)
}

impl FieldRequirement {
    pub(crate) fn hash(&self) -> u64 {
        self.path.hash_of(&self.value)
    }
}

impl FieldPath {
    /// Parses a path in the syntax of [`crate::projection`].
    pub fn parse(path: &str) -> Result<Self, InvalidPath> {
        Ok(Self(projection::parse_path(path)?.into()))
    }

    /// The value in an object; None when there is none that can be compared.
    pub(crate) fn value_in(&self, object: &Object) -> Option<FieldValue> {
        let mut value = None;
        lookup::values_at(object.json(), &[&self.0], |_, found| value = Some(found));
        value
    }

    /// The hashes of an object's values at some paths, [`MAX_SELECTED_FIELDS`] at most. The object is read once.
    pub(crate) fn hashes_in<'p>(object: Option<&Object>, paths: impl Iterator<Item = &'p Self>) -> Vec<Option<u64>> {
        let paths: Vec<&Self> = paths.collect();
        let mut hashes = vec![None; paths.len()];
        if let Some(object) = object {
            let members: Vec<&[String]> = paths.iter().map(|path| &*path.0).collect();
            lookup::values_at(object.json(), &members, |path, value| hashes[path] = Some(paths[path].hash_of(&value)));
        }
        hashes
    }

    pub(crate) fn hash_of(&self, value: &FieldValue) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self, value).hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}
