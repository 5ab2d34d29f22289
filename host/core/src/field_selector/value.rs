//! The values that field selectors compare.

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

impl FieldValue {
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
