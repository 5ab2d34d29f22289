//! Log lines. The host puts them into its own log, inside the span of the reconcile, within limits of lines and bytes.
//! Native tests print them.

use crate::view;

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// For following single steps.
    Trace,
    /// For finding faults.
    Debug,
    /// What an operator likes to know.
    Info,
    /// What an operator should look at.
    Warn,
    /// What does not work.
    Error,
}

impl Level {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Writes one line with fields. The host keeps 100 lines and 64 KiB of a call, cuts texts at 8 KiB, and says how many lines
/// it dropped. The macros [`crate::info!`] and its siblings format the message.
pub fn emit(level: Level, message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<(String, String)> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    view::emit(level, message, &fields);
}

/// Logs at debug level; takes what `format!` takes.
#[macro_export]
macro_rules! debug {
    ($($argument:tt)+) => { $crate::log::emit($crate::log::Level::Debug, &::std::format!($($argument)+), &[]) };
}

/// Logs at info level; takes what `format!` takes.
///
/// ```
/// mortise_sdk::info!("replaced {} Pods", 2);
/// ```
#[macro_export]
macro_rules! info {
    ($($argument:tt)+) => { $crate::log::emit($crate::log::Level::Info, &::std::format!($($argument)+), &[]) };
}

/// Logs at warn level; takes what `format!` takes.
#[macro_export]
macro_rules! warn {
    ($($argument:tt)+) => { $crate::log::emit($crate::log::Level::Warn, &::std::format!($($argument)+), &[]) };
}

/// Logs at error level; takes what `format!` takes.
#[macro_export]
macro_rules! error {
    ($($argument:tt)+) => { $crate::log::emit($crate::log::Level::Error, &::std::format!($($argument)+), &[]) };
}
