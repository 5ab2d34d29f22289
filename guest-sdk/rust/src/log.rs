//! Log lines. The host writes them to its own log, in the span of the reconcile, within bounds of lines and bytes.
//! Native tests print them.

/// The level of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Single steps.
    Trace,
    /// For debugging.
    Debug,
    /// For administrators.
    Info,
    /// An administrator should look at it.
    Warn,
    /// Something failed.
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

/// Writes one line with fields. The host keeps 100 lines and 64 KiB of a call, cuts strings at 8 KiB, and logs how many
/// lines it dropped. The macros [`crate::debug!`], [`crate::info!`], [`crate::warn!`] and [`crate::error!`] format the
/// message.
pub fn emit(level: Level, message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<(String, String)> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    write(level, message, &fields);
}

#[cfg(target_arch = "wasm32")]
fn write(level: Level, message: &str, fields: &[(String, String)]) {
    use crate::bindings::mortise::host::log;

    let level = match level {
        Level::Trace => log::Level::Trace,
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::emit(level, message, fields);
}

#[cfg(not(target_arch = "wasm32"))]
fn write(level: Level, message: &str, fields: &[(String, String)]) {
    let fields: String = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    eprintln!("{}: {message}{fields}", level.as_str());
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
