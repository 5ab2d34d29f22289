//! The status that an object carries: read when somebody looks at it. Most reconciles write a status and never look at the
//! last one, and reading it would be work that grows with what they wrote.

use std::cell::OnceCell;
use std::fmt;

use serde::de::DeserializeOwned;

/// What was last observed of an object, if anything was. The field `status` of a kind that declares one.
///
/// ```
/// use mortise_sdk::Status;
///
/// let status = Status::of(3);
/// assert_eq!(status.get(), Some(&3));
/// assert_eq!(Status::<u8>::none().get(), None);
/// ```
#[derive(Clone)]
pub struct Status<T> {
    text: Box<str>,
    value: OnceCell<Option<T>>,
}

impl<T> Status<T> {
    /// The status of an object that has none yet.
    pub fn none() -> Self {
        Self { text: Box::default(), value: OnceCell::from(None) }
    }

    /// The status of an object in a test.
    pub fn of(value: T) -> Self {
        Self { text: Box::default(), value: OnceCell::from(Some(value)) }
    }

    pub(crate) fn unread(text: &str) -> Self {
        Self { text: text.into(), value: OnceCell::new() }
    }
}

impl<T: DeserializeOwned> Status<T> {
    /// The status. One that does not fit `T` is none: it may be an older build's, or hold nothing but conditions yet, and
    /// no plugin should stop working over what it will overwrite anyway.
    pub fn get(&self) -> Option<&T> {
        self.value.get_or_init(|| serde_json::from_str(&self.text).ok()).as_ref()
    }
}

impl<T: DeserializeOwned + fmt::Debug> fmt::Debug for Status<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
