//! The ways in which something does not work out for a plugin: a read that the host refused, a schedule that means nothing,
//! and a reconcile that cannot give an outcome. Traps are no part of this: a plugin that panics is a fault, and the host
//! reports it so.

use std::fmt;

use crate::bindings::mortise::host::cluster::AccessError;

/// Why a reconcile gives no outcome. What the object's owner should see belongs in a condition of an [`Outcome`]
/// instead; a failure is for what keeps the plugin from working at all.
///
/// [`Outcome`]: crate::Outcome
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Try again: after 5 ms, doubled each time in a row up to 1000 s. Told in an Event.
    Retry(String),
    /// Pointless to repeat until the object, or something that the call read, changes. The object's condition `Stalled` has
    /// the message until then.
    Terminal(String),
}

impl Failure {
    /// A failure that may pass by itself.
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(message.into())
    }

    /// A failure that stays until an input changes.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::Terminal(message.into())
    }

    /// The message, whichever way it failed.
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

/// Why a read of the cluster gave nothing. `?` turns it into a [`Failure`]: to be retried when it was denied,
/// because permissions come back without any input changing, and terminal otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The plugin's manifest does not declare this kind: add it to `owns(...)` or `reads(...)`.
    Undeclared(String),
    /// The host has no complete view of this kind: it may not read it, or has not listed it yet.
    Denied(String),
    /// The answer has more than this many bytes (16 MiB): narrow the query, or read fewer fields.
    TooLarge(u64),
    /// A malformed selector or field path.
    Invalid(String),
    /// What was read does not fit the type that it was read into.
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
                write!(f, "the answer is larger than {limit} bytes: narrow the query or read fewer fields")
            }
            Self::Invalid(why) => write!(f, "the read is malformed: {why}"),
            Self::Shape { kind, reason } => write!(f, "a {kind} does not have the shape that was asked for: {reason}"),
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

/// A cron expression or a time zone that means nothing: a sentence that quotes it and says what is wrong, and where. It is
/// usually the owner of the object who wrote it, so it belongs in a condition; `?` turns it into a terminal [`Failure`].
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
