//! The status of an object, parsed on first use: most reconciles write a status and never read the last one.

use std::cell::OnceCell;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::conditions::Conditions;

/// The status of an object, if it has one: the field `status` of a kind that declares one.
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
    /// No status yet.
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
    /// The status. One that does not fit `T` counts as none: an older build may have written it, or it has nothing but
    /// conditions yet, and the plugin is going to overwrite it anyway.
    pub fn get(&self) -> Option<&T> {
        self.value.get_or_init(|| serde_json::from_str(&self.text).ok()).as_ref()
    }
}

impl<T> Status<T> {
    /// The conditions that the plugin and the host wrote last; none in a test that made the status.
    pub fn conditions(&self) -> Conditions {
        #[derive(Deserialize)]
        struct WithConditions {
            #[serde(default)]
            conditions: Conditions,
        }
        serde_json::from_str(&self.text)
            .map_or_else(|_| Conditions::default(), |status: WithConditions| status.conditions)
    }
}

impl<T: DeserializeOwned + fmt::Debug> fmt::Debug for Status<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
