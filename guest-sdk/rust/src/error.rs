//! Errors of a plugin: a read that the host refused, an invalid schedule, a reconcile without an outcome. A panic is
//! none of these: it traps, and the host reports it as a fault.

use std::error::Error;
use std::fmt;

use crate::bindings::mortise::host::cluster::AccessError;

/// Why a reconcile has no outcome. What the object's owner should know belongs in a condition of an [`Outcome`]
/// instead; a failure is for what keeps the plugin from working at all.
///
/// `?` turns any error into a terminal failure, because a function of its inputs fails again until they change. A
/// [`ReadError::Denied`], also as the source of another error, becomes [`Failure::Retry`]. The message is the error's,
/// followed by its sources.
///
/// ```
/// use mortise_sdk::Failure;
///
/// fn replicas(annotation: &str) -> Result<u32, Failure> {
///     Ok(annotation.parse::<u32>()?)
/// }
/// assert_eq!(replicas("many"), Err(Failure::terminal("invalid digit found in string")));
/// ```
///
/// A `Failure` is itself no [`std::error::Error`]; it ends a reconcile and is not the source of other errors.
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

    /// Generic, so that an error without a source takes no code for sources. Many errors end with their source's message;
    /// it is not repeated then.
    fn of<E: Error + 'static>(error: &E) -> Self {
        let is_denied = |error: &(dyn Error + 'static)| matches!(error.downcast_ref(), Some(ReadError::Denied(_)));
        let (mut message, mut is_temporary) = (error.to_string(), is_denied(error));
        let mut next = error.source();
        while let Some(source) = next {
            is_temporary |= is_denied(source);
            let text = source.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            next = source.source();
        }
        if is_temporary { Self::Retry(message) } else { Self::Terminal(message) }
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
    /// The plugin's manifest does not declare this kind, or not in this namespace, and none of its patterns has it: add it
    /// to `owns(...)` or `reads(...)`.
    Undeclared(String),
    /// The host has no complete view of this kind: it may not read it, or has not listed it yet.
    Denied(String),
    /// The result has more than this many bytes (16 MiB): narrow the query, or read fewer fields.
    TooLarge(u64),
    /// A malformed selector, field path or kind.
    Invalid(String),
    /// The API server does not serve this kind, which a pattern in `reads(...)` has. When it begins to, the plugin is
    /// called again.
    NotServed(String),
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
            Self::NotServed(why) => f.write_str(why),
            Self::Shape { kind, reason } => write!(f, "a {kind} does not fit the type it is read into: {reason}"),
        }
    }
}

impl Error for ReadError {}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::of(&error)
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

impl Error for ScheduleError {}

/// An invalid value of one of Kubernetes' types, such as a [`crate::Quantity`]: a sentence that quotes it and says what
/// is wrong. The owner of the object usually wrote it, so the sentence belongs in a condition; `?` turns it into a
/// terminal [`Failure`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError(pub(crate) String);

impl ValueError {
    /// The sentence.
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ValueError {}

impl From<AccessError> for ReadError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Undeclared(why) => Self::Undeclared(why),
            AccessError::Denied(why) => Self::Denied(why),
            AccessError::TooLarge(limit) => Self::TooLarge(limit),
            AccessError::Invalid(why) => Self::Invalid(why),
            AccessError::NotServed(why) => Self::NotServed(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapped(&'static str, ReadError);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    fn failure(error: impl Error + 'static) -> Failure {
        let fail = || -> Result<(), Failure> { Err(error)? };
        fail().unwrap_err()
    }

    #[test]
    fn a_denied_read_is_retried_and_any_other_error_is_terminal() {
        let denied = ReadError::Denied("v1/Pod is not listed yet".to_owned());
        let why = "the read was denied: v1/Pod is not listed yet";
        assert_eq!(failure(denied.clone()), Failure::retry(why));
        assert_eq!(failure(Wrapped("no pods", denied)), Failure::Retry(["no pods: ", why].concat()));
        assert_eq!(failure(ReadError::Undeclared("add v1/Pod".to_owned())), Failure::terminal("add v1/Pod"));
        assert_eq!(failure(ScheduleError("\"x\" is no zone".to_owned())), Failure::terminal("\"x\" is no zone"));
        assert_eq!(failure("x".parse::<u8>().unwrap_err()), Failure::terminal("invalid digit found in string"));
    }

    #[test]
    fn a_source_that_the_message_ends_with_is_not_repeated() {
        let error = Wrapped("cannot count: add v1/Pod", ReadError::Undeclared("add v1/Pod".to_owned()));
        assert_eq!(failure(error), Failure::terminal("cannot count: add v1/Pod"));
    }
}
