//! The log on standard error, as text or JSON. A guest's lines and faults, the writes of its outcome and the end of its
//! reconcile are in one span with the controller, the object and the digest. The host's own writes, such as Events,
//! have no span. What a plugin or an API server can repeat is throttled (`log/throttle.rs`), bounded in bytes a minute
//! (`log/budget.rs`), and written by a thread of its own (`log/output.rs`).
//!
//! No field may have the name of a part of every JSON line (timestamp, level, message, target, span): it would be there
//! twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use mortise_core::contract::GuestFault;
use mortise_core::digest::Digest;
use mortise_core::event::Sending;
use mortise_core::http::{Failure, Sent};
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::observation::Observation;
use mortise_core::tenant;
use mortise_core::text::DENIAL;
use mortise_core::write::{Cause, Write, WriteError, WriteErrorClass};
use mortise_wasm::log::{LogLevel, LogLine};
use mortise_wasm::plugin::Completion;
use mortise_wasm::workers::JobDone;
use tracing::{Span, debug, error, info, trace, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::budget::{Dropped, HOST};
use self::output::{Output, Report, about};
use self::throttle::{Occurrence, Throttle};

pub(crate) mod budget;
mod output;
mod record;
pub(crate) mod throttle;

/// The target of guests' lines, for filters.
const GUEST_TARGET: &str = "guest";

/// How long the end of the process waits for lines that are not written yet. A log that nobody reads delays it no longer.
const FLUSH: Duration = Duration::from_secs(1);

/// The process's log, once it is started.
static OUTPUT: OnceLock<Arc<Output>> = OnceLock::new();

/// The format of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For a terminal.
    Human,
    /// One JSON object a line, for a log collector.
    Json,
}

/// A level for mortise and its guests, or a filter of tracing such as "info,mortise_kube=debug".
#[derive(Clone, Debug)]
pub struct Level(String);

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A level alone is for this program: libraries log too much, so they only warn. The API client logs every
        // refused connection as an error, which the host logs with its request.
        let directives = match text.parse::<LevelFilter>() {
            Ok(level) => format!("warn,kube_client=off,mortise={level},{GUEST_TARGET}={level}"),
            // The filter would take any word for the name of a crate, and log nothing.
            Err(_) if !text.contains('=') => {
                return Err(format!(
                    "{text:?} is none of off, error, warn, info, debug and trace; a filter has a level for each target, \
                     as in mortise_kube=debug"
                ));
            }
            Err(_) => text.to_owned(),
        };
        EnvFilter::builder().parse(&directives).map_err(|error| error.to_string())?;
        Ok(Self(directives))
    }
}

/// Starts the log, once a process.
///
/// # Errors
/// When another logger is installed, or no thread can be started.
pub fn start(format: Format, level: &Level) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&level.0).context("reading the log level")?;
    let output = output(io::stderr())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output);
    let started = match format {
        Format::Human => builder.with_ansi(io::stderr().is_terminal()).with_target(false).try_init(),
        Format::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("starting the log: {error}"))
}

/// Starts the log, once a process, in a new file instead of standard error. It is for this user alone, as what plugins log may be.
///
/// # Errors
/// When the file cannot be written, another logger is installed, or no thread can be started.
pub fn start_in_file(path: &Path, level: &Level) -> anyhow::Result<()> {
    let file = new_file(path).with_context(|| format!("cannot write {}", path.display()))?;
    let filter = EnvFilter::builder().parse(&level.0).context("reading the log level")?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output(file)?);
    let started = builder.with_ansi(false).with_target(false).try_init();
    started.map_err(|error| anyhow::anyhow!("starting the log: {error}"))
}

fn output(target: impl io::Write + Send + 'static) -> anyhow::Result<Arc<Output>> {
    let output = Arc::new(Output::start(target, report).context("starting the thread of the log")?);
    Ok(Arc::clone(OUTPUT.get_or_init(|| output)))
}

/// Waits until the log is written, a second at most. For the end of the process.
pub fn flush() {
    if let Some(output) = OUTPUT.get() {
        output.flush(FLUSH);
    }
}

/// Prints to standard error, after the log. What cannot be printed is lost, as the log is: it ends nothing.
pub fn print_error(text: &str) {
    flush();
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Lines that were dropped since the start of the process: over the budget, by share, and those that could not be written.
pub(crate) fn dropped() -> (Vec<(Arc<str>, Dropped)>, Dropped) {
    OUTPUT.get().map(|output| output.dropped()).unwrap_or_default()
}

fn report(Report { over, unwritten }: Report) {
    for (whose, Dropped { lines, bytes }) in over {
        warn!(bytes, "{}", over_budget(&whose, lines));
    }
    if unwritten.lines > 0 {
        let Dropped { lines, bytes } = unwritten;
        warn!(lines, bytes, "lines were lost, since the log could not be written");
    }
}

/// The line that an operator looks for.
fn over_budget(whose: &str, lines: u64) -> String {
    let of = match whose {
        HOST => "mortise itself".to_owned(),
        share => match share.strip_suffix(".*") {
            Some(tenant) => format!("the plugins of the tenant {tenant}"),
            None => format!("plugin {share}"),
        },
    };
    format!("log budget exceeded: dropped {lines} lines of {of} in the last minute")
}

/// A file in the place of an older one, which may have been made with another mode.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path),
    }
}

/// Logs what the engine observes. Spans are created only for lines.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    pub(crate) throttle: Throttle,
}

/// Logs the guest's lines at the end of a call.
pub(crate) fn called(done: &JobDone) {
    guest_lines(|| Arc::clone(&done.cause.controller), &done.logs, done.dropped_logs, || span(&done.cause));
}

/// Logs a write with its result.
pub(crate) fn wrote<R>(write: &Write, result: &Result<R, WriteError>) {
    let line = || {
        debug!(
            verb = write.op.verb(),
            written = %write.op.target(),
            manager = write.manager(),
            error = result.as_ref().err().map(|error| &*error.message),
            "write"
        );
    };
    match &write.plugin {
        Some(plugin) => about(plugin, line),
        None => line(),
    }
}

/// The span of a write: its reconcile's.
pub(crate) fn span_of(write: &Write) -> Span {
    let cause = write.cause.as_ref().filter(|_| tracing::enabled!(tracing::Level::DEBUG));
    cause.map_or_else(Span::none, span)
}

/// Logs an HTTP request by its key, its origin and its status. Headers, paths and bodies may be confidential. A guest
/// chooses the key, so it is quoted.
pub(crate) fn requested(throttle: &Throttle, sending: &Sending, sent: &Sent) {
    about(&sending.cause.controller, || request_line(throttle, sending, sent));
}

fn request_line(throttle: &Throttle, sending: &Sending, sent: &Sent) {
    let (request, object) = (&sending.request, &sending.cause.object);
    let (key, origin, method) = (&request.key, &request.origin, request.method.as_str());
    let failed = |class: &'static str, message: &str| {
        let subject = ("HTTP request", &sending.cause.controller, origin.to_string());
        match throttle.count(Instant::now(), Some(&sending.cause.controller), subject, class) {
            Some(Occurrence::New { repeated }) => {
                info!(%object, ?key, method, %origin, class, repeated, "an HTTP request failed: {message}");
            }
            Some(Occurrence::Repeated(times) | Occurrence::Others(times)) => {
                info!(%object, %origin, class, times, "HTTP requests fail: {message}");
            }
            None => debug!(%object, ?key, method, %origin, class, "an HTTP request failed again: {message}"),
        }
    };
    match sent {
        Sent::Response(response) => debug!(%object, ?key, method, %origin, status = response.status, "HTTP request"),
        Sent::Failed(Failure { class, message }) => failed(class.as_str(), message),
        Sent::NotGranted(message) => failed("not_granted", message),
        Sent::NotSent => debug!(%object, ?key, method, %origin, "an HTTP request was not sent: this host may not now"),
    }
}

/// Logs lines about what a tenant brings, which its budget pays.
pub(crate) fn about_tenant<R>(namespace: &str, log: impl FnOnce() -> R) -> R {
    about(&tenant::share(&format!("{namespace}.").into()), log)
}

fn span(Cause { controller, object, digest }: &Cause) -> Span {
    tracing::info_span!("reconcile", %controller, %object, %digest)
}

impl Observations {
    pub(crate) fn log(&self, observation: &Observation) {
        match payer(observation) {
            Some(plugin) => about(plugin, || self.observed(observation)),
            None => self.observed(observation),
        }
    }

    fn observed(&self, observation: &Observation) {
        match observation {
            Observation::Reconciled { cause, .. } if tracing::enabled!(tracing::Level::DEBUG) => {
                span(cause).in_scope(|| self.line(observation));
            }
            Observation::Fault { cause, fault } => {
                let occurrence = self.count_fault(cause, fault);
                span(cause).in_scope(|| fault_line(fault, occurrence));
            }
            Observation::BreakerOpened { cause, .. }
            | Observation::Withheld { cause, .. }
            | Observation::WriteFailed { cause: Some(cause), .. } => {
                span(cause).in_scope(|| self.line(observation));
            }
            _ => self.line(observation),
        }
    }

    fn line(&self, observation: &Observation) {
        let Some((what, subject, message)) = repeating(observation) else { return line(observation) };
        let payer = payer(observation).map(|payer| &**payer);
        match self.throttle.count(Instant::now(), payer, (what, &subject), message) {
            Some(Occurrence::New { repeated }) => {
                if let Some(times) = repeated {
                    info!(times, "repeated until now, about {subject}: {what}");
                }
                line(observation);
            }
            Some(Occurrence::Repeated(times)) => info!(times, "the same again, about {subject}: {what}"),
            Some(Occurrence::Others(times)) => {
                info!(times, "not logged, each with another message, about {subject}: {what}");
            }
            None => debug!(?observation, "repeated"),
        }
    }

    /// L5: counts a fault of a version, of any object. It repeats with each retry.
    fn count_fault(&self, Cause { controller, digest, .. }: &Cause, fault: &GuestFault) -> Option<Occurrence> {
        let message = (fault.reason(), fault.message());
        self.throttle.count(Instant::now(), Some(controller), (controller, digest), message)
    }
}

/// The plugin or controller that an observation is about.
fn payer(observation: &Observation) -> Option<&Arc<str>> {
    match observation {
        Observation::Reconciled { cause, .. }
        | Observation::TurnEnded { cause }
        | Observation::Fault { cause, .. }
        | Observation::Withheld { cause, .. }
        | Observation::BreakerOpened { cause, .. } => Some(&cause.controller),
        Observation::WriteFailed { cause, .. } => cause.as_ref().map(|cause| &cause.controller),
        Observation::Activated { plugin, .. }
        | Observation::FinalizersLeft { plugin, .. }
        | Observation::ConversionLeft { plugin, .. }
        | Observation::Withdrawn { plugin }
        | Observation::Refused { plugin, .. }
        | Observation::Throttled { plugin, .. } => Some(plugin),
        Observation::EventFailed { share, .. } => Some(share),
        Observation::Enqueued { .. }
        | Observation::Taken { .. }
        | Observation::CacheLagging { .. }
        | Observation::WatchFailed { .. }
        | Observation::Audited { .. }
        | Observation::Restored { .. }
        | Observation::EventLeftOut { .. }
        | Observation::Undecodable { .. } => None,
    }
}

/// What repeats with each retry, its subject and its message.
fn repeating(observation: &Observation) -> Option<(&'static str, String, &str)> {
    match observation {
        Observation::WriteFailed { target, error, .. } => Some(("failed writes", target.to_string(), &error.message)),
        Observation::EventFailed { share, error, .. } => Some(("Events", share.to_string(), &error.message)),
        Observation::Undecodable { kind, message } => Some(("undecodable objects", kind.to_string(), message)),
        Observation::Withheld { cause, note, .. } => Some(("notes of Events", cause.object.to_string(), note)),
        Observation::BreakerOpened { cause, message } => Some(("stopped writes", cause.object.to_string(), message)),
        Observation::CacheLagging { object } => Some(("a late watch", object.to_string(), "")),
        _ => None,
    }
}

/// Objects that a warning about the cache names, beside their number.
const NAMED_DIFFERENCES: usize = 5;

pub(crate) fn admission<R>(plugin: &str, kind: &Kind, name: &str, completion: &Completion<R>) {
    guest_lines(
        || plugin.into(),
        &completion.logs,
        completion.dropped_logs,
        || tracing::info_span!("admission", plugin, %kind, name),
    );
}

pub(crate) fn conversion<R>(plugin: &str, object: &ObjectRef, completion: &Completion<R>) {
    let (kind, name) = (&*object.kind.kind, &*object.name.name);
    guest_lines(
        || plugin.into(),
        &completion.logs,
        completion.dropped_logs,
        || tracing::info_span!("conversion", plugin, kind, name),
    );
}

fn guest_lines(plugin: impl FnOnce() -> Arc<str>, lines: &[LogLine], dropped: u64, span: impl FnOnce() -> Span) {
    if lines.is_empty() && dropped == 0 {
        return;
    }
    let log = || {
        lines.iter().for_each(guest_line);
        if dropped > 0 {
            warn!(lines = dropped, "the plugin logged more than it may in one call; the rest is cut");
        }
    };
    span().in_scope(|| about(&plugin(), log));
}

pub(crate) fn conversion_fault(
    throttle: &Throttle,
    plugin: &str,
    digest: &Digest,
    object: &ObjectRef,
    fault: &GuestFault,
) {
    let message = (fault.reason(), fault.message());
    let occurrence = throttle.count(Instant::now(), Some(plugin), ("conversion", plugin, digest), message);
    // Any client may name the object.
    let object = DENIAL.own(object.to_string());
    let span = tracing::info_span!("conversion", plugin, object);
    span.in_scope(|| about(&plugin.into(), || fault_line(fault, occurrence)));
}

pub(crate) fn admission_fault(throttle: &Throttle, controller: &str, digest: &Digest, name: &str, fault: &GuestFault) {
    let message = (fault.reason(), fault.message());
    let occurrence = throttle.count(Instant::now(), Some(controller), ("admission", controller, digest), message);
    let span = tracing::info_span!("admission", controller, name);
    span.in_scope(|| about(&controller.into(), || fault_line(fault, occurrence)));
}

/// One line of a guest, at its level. Its fields are joined, because tracing's are fixed at compile time.
fn guest_line(logged: &LogLine) {
    let fields: Vec<String> = logged.fields.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    let fields = (!fields.is_empty()).then(|| fields.join(" "));
    let (message, fields) = (&logged.message, fields.as_deref());
    match logged.level {
        LogLevel::Trace => trace!(target: GUEST_TARGET, fields, "{message}"),
        LogLevel::Debug => debug!(target: GUEST_TARGET, fields, "{message}"),
        LogLevel::Info => info!(target: GUEST_TARGET, fields, "{message}"),
        LogLevel::Warn => warn!(target: GUEST_TARGET, fields, "{message}"),
        LogLevel::Error => error!(target: GUEST_TARGET, fields, "{message}"),
    }
}

/// Whether a retry cannot help.
fn needs_a_person(class: WriteErrorClass) -> bool {
    matches!(class, WriteErrorClass::Denied | WriteErrorClass::Invalid | WriteErrorClass::FieldConflict)
}

fn fault_line(fault: &GuestFault, occurrence: Option<Occurrence>) {
    let detail = match fault {
        GuestFault::Trap { detail, .. } if !detail.is_empty() => Some(detail.as_str()),
        _ => None,
    };
    let reason = fault.reason();
    match occurrence {
        Some(Occurrence::New { repeated }) => warn!(reason, detail, repeated, "{}", fault.message()),
        Some(Occurrence::Repeated(times)) => warn!(reason, times, "the same fault again"),
        Some(Occurrence::Others(times)) => warn!(times, "faults are not logged, each with another message"),
        None => debug!(reason, "repeated: {}", fault.message()),
    }
}

fn line(observation: &Observation) {
    match observation {
        Observation::Enqueued { .. }
        | Observation::Taken { .. }
        | Observation::TurnEnded { .. }
        | Observation::EventLeftOut { .. }
        | Observation::Fault { .. } => {}
        Observation::Reconciled { result, elapsed_ms, writes, skipped, .. } => {
            debug!(?result, elapsed_ms, writes, skipped, "reconciled");
        }
        Observation::Activated { plugin, digest, reload, .. } => info!(%plugin, %digest, reload, "the plugin serves"),
        Observation::FinalizersLeft { plugin, message } | Observation::ConversionLeft { plugin, message } => {
            warn!(%plugin, "{message}")
        }
        Observation::Withdrawn { plugin } => {
            info!(%plugin, "the plugin is withdrawn; its CRDs, their objects and the objects' children stay as they are");
        }
        Observation::Refused { plugin, refusal } => {
            warn!(%plugin, reason = refusal.reason, "refused: {refusal}");
        }
        Observation::CacheLagging { object } => {
            warn!(%object, "the watch does not show the host's own write; reading live");
        }
        Observation::Throttled { message, .. } => warn!("a plugin is slowed down: {message}"),
        Observation::Withheld { reason, note, .. } => info!(reason, "of an Event: {note}"),
        Observation::BreakerOpened { message, .. } => warn!("writes are stopped as a fight: {message}"),
        Observation::WatchFailed { kind, error } => warn!(%kind, %error, "cannot watch"),
        Observation::Audited { kind, differences } if differences.is_empty() => debug!(%kind, "the cache was audited"),
        Observation::Audited { kind, differences } => {
            let named: Vec<String> = differences.iter().take(NAMED_DIFFERENCES).map(ToString::to_string).collect();
            let (count, named) = (differences.len(), named.join(", "));
            warn!(%kind, count, "the cache differs from the API server and is relisted: {named}");
        }
        Observation::Restored { kind, message } => {
            warn!(%kind, "etcd was restored, so every kind is relisted: {message}");
        }
        Observation::Undecodable { kind, message } => warn!(%kind, "cannot decode an object: {message}"),
        Observation::WriteFailed { target, error, .. } | Observation::EventFailed { target, error, .. }
            if needs_a_person(error.class) =>
        {
            warn!(written = %target, class = ?error.class, "a write failed: {}", error.message);
        }
        Observation::WriteFailed { target, error, .. } | Observation::EventFailed { target, error, .. } => {
            info!(written = %target, class = ?error.class, "a write failed: {}", error.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::contract::GuestFault;
    use mortise_core::object::Name;
    use mortise_core::tenant::share_name;

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::new("app.example.com/v1alpha1", "PodSet"), name: Name::new("default", name) }
    }

    #[test]
    fn q4_the_line_of_a_plugin_over_its_budget_of_the_log_says_whose_lines_were_dropped() {
        for (share, whose) in [
            (&*share_name("podset"), "plugin podset"),
            (&*share_name("team-a.podset"), "the plugins of the tenant team-a"),
            (HOST, "mortise itself"),
        ] {
            let line = format!("log budget exceeded: dropped 44 lines of {whose} in the last minute");
            assert_eq!(over_budget(share, 44), line);
        }
    }

    #[test]
    fn a_repeated_error_is_logged_when_its_message_changes() {
        let throttle = Throttle::default();
        let is_new = |name: &str, message: &str| {
            let error = WriteError { class: WriteErrorClass::Denied, message: message.to_owned() };
            let failed = Observation::WriteFailed { cause: None, target: object(name), error };
            let (what, subject, message) = repeating(&failed).unwrap();
            throttle.count(Instant::now(), None, (what, subject), message).is_some()
        };
        assert!(is_new("a", "forbidden") && is_new("b", "forbidden"));
        assert!(!is_new("a", "forbidden"));
        assert!(is_new("a", "exceeded quota"));
    }

    #[test]
    fn q4_events_of_guests_that_cannot_be_written_take_no_line_from_the_host() {
        let throttle = Throttle::default();
        let error = |message: String| WriteError { class: WriteErrorClass::Denied, message };
        let is_logged = |failed: &Observation| {
            let (what, subject, message) = repeating(failed).unwrap();
            let payer = payer(failed).map(|payer| &**payer);
            throttle.count(Instant::now(), payer, (what, subject), message).is_some()
        };
        let of_guest = |number: &u32| {
            let (target, error) = (object(&number.to_string()), error(format!("the Event {number} is forbidden")));
            is_logged(&Observation::EventFailed { share: "team-a.*".into(), target, error })
        };
        let logged = (0..2_000).filter(of_guest).count();
        assert!((1..20).contains(&logged), "{logged}: the first ones, and how many more");
        let failed = Observation::WriteFailed { cause: None, target: object("podset"), error: error("no".to_owned()) };
        assert!(is_logged(&failed), "the host's own");
    }

    #[test]
    fn l5_a_fault_of_a_version_is_logged_once_for_all_objects_and_retries() {
        let observations = Observations::default();
        let is_new = |name: &str, digest: &str, limit_ms| {
            let cause =
                Cause { controller: "podset/PodSet".into(), object: object(name), digest: Digest(digest.into()) };
            observations.count_fault(&cause, &GuestFault::Deadline { limit_ms }).is_some()
        };
        assert!(is_new("a", "0", 1) && !is_new("a", "0", 1) && !is_new("b", "0", 1));
        assert!(is_new("b", "0", 2), "another fault");
        assert!(is_new("b", "1", 1), "another version");
    }
}
