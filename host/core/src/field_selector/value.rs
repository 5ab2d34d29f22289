//! The values that field selectors compare.

use crate::heap::HeapBytes;

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FieldValue {
    /// A JSON string.
    Text(Box<str>),
    /// A JSON number without a fraction or an exponent.
    Integer(i64),
    /// True or false.
    Boolean(bool),
}

impl HeapBytes for FieldValue {
    fn heap_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.heap_bytes() } else { 0 }
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
