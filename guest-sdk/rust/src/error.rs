//! Errors of a plugin: a read that the host refused, an invalid schedule, a reconcile without an outcome. A panic is
//! none of these: it traps, and the host reports it as a fault.

use std::fmt;

use crate::bindings::mortise::host::cluster::AccessError;

/// Why a reconcile has no outcome. What the object's owner should know belongs in a condition of an [`Outcome`]
/// instead; a failure is for what keeps the plugin from working at all.
///
/// [`Outcome`]: crate::Outcome
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Try again: after 5 ms, doubled with each consecutive failure up to 1000 s. The message becomes an Event.
    Retry(String),
    /// Do not try again before the object, or something that the call read, changes. The message is in the object's
    /// condition `Stalled` until then.
    Terminal(String),
}

impl Failure {
    /// A failure that may be temporary.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(message.into())
    }

    /// A failure that stays until an input changes.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::Terminal(message.into())
    }

    /// The message.
    pub fn message(&self) -> &str {
        match self {
            Self::Retry(message) | Self::Terminal(message) => message,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// Why a read of the cluster failed. `?` turns it into a [`Failure`]: retried when it was denied, because a permission
/// can be granted without a change of any input, and terminal otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The plugin's manifest does not declare this kind: add it to `owns(...)` or `reads(...)`.
    Undeclared(String),
    /// The host has no complete view of this kind: it may not read it, or has not listed it yet.
    Denied(String),
    /// The result has more than this many bytes (16 MiB): narrow the query, or read fewer fields.
    TooLarge(u64),
    /// A malformed selector or field path.
    Invalid(String),
    /// An object does not fit the type that it is read into.
    Shape {
        /// The kind that was read.
        kind: String,
        /// Where and why it does not fit.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared(why) => f.write_str(why),
            Self::Denied(why) => write!(f, "the read was denied: {why}"),
            Self::TooLarge(limit) => {
                write!(f, "the result is larger than {limit} bytes: narrow the query or read fewer fields")
            }
            Self::Invalid(why) => write!(f, "the read is malformed: {why}"),
            Self::Shape { kind, reason } => write!(f, "a {kind} does not fit the type it is read into: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Denied(_) => Self::Retry(error.to_string()),
            _ => Self::Terminal(error.to_string()),
        }
    }
}

/// An invalid cron expression or time zone: a sentence that quotes it and says what is wrong, and where. The owner of
/// the object usually wrote it, so the sentence belongs in a condition; `?` turns it into a terminal [`Failure`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError(pub(crate) String);

impl ScheduleError {
    /// The sentence.
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScheduleError {}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Self {
        Self::Terminal(error.0)
    }
}

impl From<AccessError> for ReadError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Undeclared(why) => Self::Undeclared(why),
            AccessError::Denied(why) => Self::Denied(why),
            AccessError::TooLarge(limit) => Self::TooLarge(limit),
            AccessError::Invalid(why) => Self::Invalid(why),
        }
    }
}
