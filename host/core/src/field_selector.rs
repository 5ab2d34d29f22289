//! Field selectors: which objects have these values at these paths, such as `"node-1"` at `spec.nodeName`.
//!
//! A path is that of a projection, but it ends at one text, integer or boolean: one that meets an array, or ends at anything
//! else, selects nothing. A value is read from the object's text when it is asked for; the store and the index of dependencies
//! keep hashes of values so that few objects are asked. Nothing here knows either of them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use crate::budget::Budget;
use crate::object::Object;
use crate::projection::{self, InvalidPath};

mod lookup;
#[cfg(test)]
mod tests;

/// Requirements of one selector. Each that no index answers reads an object's text; a query of a controller has one or two.
const MAX_REQUIREMENTS: usize = 8;
/// Bytes of a text to compare with: four of the longest names that Kubernetes admits.
const MAX_VALUE_BYTES: usize = 1_024;

/// Fields of one kind that indexes know. Each costs a look at the object of every event of the kind, some microseconds; fields
/// beyond are looked at in each object that a query could select.
pub(crate) const MAX_SELECTED_FIELDS: usize = 8;

/// A value that a field may have.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FieldValue {
    /// A JSON string.
    Text(Box<str>),
    /// A JSON number without a fraction or an exponent.
    Integer(i64),
    /// True or false.
    Boolean(bool),
}

/// A path to one field. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Arc<[String]>);

/// What an object has to have at one path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FieldRequirement {
    /// Where.
    pub path: FieldPath,
    /// What.
    pub value: FieldValue,
}

/// Requirements that an object has to meet all of. The empty one matches everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FieldSelector(Box<[FieldRequirement]>);

/// Why a field selector cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidFieldSelector {
    /// A path cannot be read.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// There are more requirements than a selector may have.
    #[error("the field selector has {0} requirements, and 8 are the most")]
    TooMany(usize),
    /// A value is longer than any that is worth looking for.
    #[error("the value for the field {path:?} has {bytes} bytes, and 1024 are the most")]
    TooLong {
        /// Where it is to be.
        path: String,
        /// Its length.
        bytes: usize,
    },
}

impl FieldSelector {
    /// Parses the paths. Requirements that are the same in another order make the same selector.
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

    /// What it takes in memory, itself not counted.
    pub fn bytes(&self) -> usize {
        let of_path = |path: &FieldPath| size_of_val(&*path.0) + path.0.iter().map(String::capacity).sum::<usize>();
        size_of_val(&*self.0) + self.0.iter().map(|each| each.value.bytes() + of_path(&each.path)).sum::<usize>()
    }
}

/// Whether an object meets all requirements. To look at a value takes units of the budget; None when there are not enough.
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

impl FieldValue {
    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl FieldRequirement {
    /// A hash of path and value, for indexes.
    pub(crate) fn hash(&self) -> u64 {
        self.path.hash_of(&self.value)
    }
}

impl FieldPath {
    /// Parses a path in the syntax of [`crate::projection`].
    pub fn parse(path: &str) -> Result<Self, InvalidPath> {
        Ok(Self(projection::parse_path(path)?.into()))
    }

    /// What an object has there; None when that is nothing, or nothing that can be compared.
    pub(crate) fn value_in(&self, object: &Object) -> Option<FieldValue> {
        lookup::value_at(object.json(), &self.0)
    }

    /// As [`FieldRequirement::hash`].
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

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
