//! Where log lines go: standard error, for people or as JSON. What a guest logs, its faults, the writes that its outcome led
//! to and the end of its reconcile stand in one span that carries the controller, the object and the digest. What the host
//! writes of its own accord, such as Events, belongs to no reconcile and stands outside of any.
//!
//! No field may be called as a part of every JSON line is: timestamp, level, message, target, span. It would stand twice.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use mortise_core::admission::Verdict;
use mortise_core::call::Call;
use mortise_core::contract::GuestFault;
use mortise_core::conversion::Conversion;
use mortise_core::digest::Digest;
use mortise_core::object::{Kind, ObjectRef};
use mortise_core::observation::Observation;
use mortise_core::write::{Write, WriteErrorClass};
use mortise_wasm::log::{LogLevel, LogLine};
use mortise_wasm::plugin::Completion;
use mortise_wasm::workers::JobDone;
use serde_json::Value;
use tracing::field::{Empty, display};
use tracing::{Span, debug, error, info, trace, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use self::throttle::Throttle;

pub(crate) mod throttle;

/// The target of what guests log, for filters.
const GUEST_TARGET: &str = "guest";

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For a terminal.
    Human,
    /// One JSON object a line, for a log collector.
    Json,
}

/// What is logged: a level for mortise and its guests, or a list such as "info,mortise_kube=debug" as tracing has it.
#[derive(Clone, Debug)]
pub struct Level(String);

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A level alone is meant for this program: the libraries below it would drown it, so they only warn. The API client
        // calls every refused connection an error; what it returns is told here, with what it was for.
        let directives = match text.parse::<LevelFilter>() {
            Ok(level) => format!("warn,kube_client=off,mortise={level},{GUEST_TARGET}={level}"),
            // The filter's own rules take any word for the name of a crate, of which nothing would ever be logged.
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

/// Begins to log; once a process.
///
/// # Errors
/// When something logs already.
pub fn start(format: Format, level: &Level) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&level.0).context("reading the log level")?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        Format::Human => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        Format::Json => builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("starting the log: {error}"))
}

/// A controller and the object that it reconciles.
type ReconcileKey = (Arc<str>, ObjectRef);

/// The reconciles in work, so that what is logged of one, on whichever thread, names the digest that it runs. Holds one
/// entry for each key between its call and the end of its turn. Spans are made only when there is a line to put into them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reconciles {
    digests: Arc<Mutex<HashMap<ReconcileKey, Digest>>>,
    throttle: Throttle,
}

impl Reconciles {
    /// A call begins.
    pub(crate) fn begin(&self, call: &Call) {
        let key = (call.controller.clone(), call.object.reference());
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(key, call.digest.clone());
    }

    /// A call has ended: what the guest logged goes out.
    pub(crate) fn called(&self, done: &JobDone) {
        if done.logs.is_empty() && done.dropped_logs == 0 {
            return;
        }
        self.span(&done.controller, &done.object).in_scope(|| {
            done.logs.iter().for_each(guest_line);
            if done.dropped_logs > 0 {
                warn!(lines = done.dropped_logs, "the plugin logged more than it may in one call; the rest is cut");
            }
        });
    }

    /// The driver tells of something.
    pub(crate) fn observed(&self, observation: &Observation) {
        match observation {
            Observation::Reconciled { controller, object, .. } => {
                if tracing::enabled!(tracing::Level::DEBUG) {
                    self.span(controller, object).in_scope(|| self.line(observation));
                }
                self.forget(controller, object);
            }
            Observation::TurnEnded { controller, object } => self.forget(controller, object),
            Observation::Fault { controller, object, fault } => {
                let is_new = self.is_new_fault(controller, object, fault);
                self.span(controller, object).in_scope(|| fault_line(fault, is_new));
            }
            Observation::BreakerOpened { controller, object, .. } => {
                self.span(controller, object).in_scope(|| self.line(observation));
            }
            Observation::WriteFailed { cause: Some(cause), .. } => {
                self.span(&cause.controller, &cause.object).in_scope(|| self.line(observation));
            }
            _ => self.line(observation),
        }
    }

    fn line(&self, observation: &Observation) {
        if self.is_news(observation) {
            line(observation);
        } else {
            debug!(?observation, "once more");
        }
    }

    /// Errors that come back with each retry are news when they change.
    fn is_news(&self, observation: &Observation) -> bool {
        let is_news = |subject: (&str, &dyn Display), message: &str| {
            let subject = (subject.0, subject.1.to_string());
            self.throttle.is_news(Instant::now(), subject, message)
        };
        match observation {
            Observation::WriteFailed { target, error, .. } => is_news(("write", target), &error.message),
            Observation::Undecodable { kind, message } => is_news(("undecodable", kind), message),
            Observation::BreakerOpened { object, message, .. } => is_news(("breaker", object), message),
            Observation::CacheLagging { object } => is_news(("lagging", object), ""),
            _ => true,
        }
    }

    /// The span of a write that is about to be sent: the one of its reconcile, so that its lines stand with the guest's.
    pub(crate) fn span_of(&self, write: &Write) -> Span {
        let cause = write.cause.as_ref().filter(|_| tracing::enabled!(tracing::Level::DEBUG));
        cause.map_or_else(Span::none, |cause| self.span(&cause.controller, &cause.object))
    }

    /// L5: whether this fault of this version was not logged before, of whichever object. It comes back with each retry.
    fn is_new_fault(&self, controller: &Arc<str>, object: &ObjectRef, fault: &GuestFault) -> bool {
        let key = (controller.clone(), object.clone());
        let digest = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        self.throttle.is_news(Instant::now(), (controller, digest), (fault.reason(), fault.message()))
    }

    fn forget(&self, controller: &Arc<str>, object: &ObjectRef) {
        let key = (controller.clone(), object.clone());
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn span(&self, controller: &Arc<str>, object: &ObjectRef) -> Span {
        let span = tracing::info_span!("reconcile", %controller, %object, digest = Empty);
        let key = (controller.clone(), object.clone());
        if let Some(digest) = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            span.record("digest", display(digest));
        }
        span
    }
}

/// Objects that a warning names in which the cache differs; their number says the rest.
const NAMED_DIFFERENCES: usize = 5;

/// What a guest logged while it was asked about an object that is not stored yet.
pub(crate) fn admission(plugin: &str, kind: &Kind, name: &str, report: &Completion<Verdict>) {
    guest_lines(report, || tracing::info_span!("admission", plugin, %kind, name));
}

/// What a guest logged while it converted an object.
pub(crate) fn conversion(plugin: &str, object: &Value, report: &Completion<Conversion>) {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    guest_lines(report, || tracing::info_span!("conversion", plugin, kind, name));
}

fn guest_lines<A>(report: &Completion<A>, span: impl FnOnce() -> Span) {
    if report.logs.is_empty() && report.dropped_logs == 0 {
        return;
    }
    span().in_scope(|| {
        report.logs.iter().for_each(guest_line);
        if report.dropped_logs > 0 {
            warn!(lines = report.dropped_logs, "the plugin logged more than it may in one call; the rest is cut");
        }
    });
}

/// A guest gave no usable answer about an object that is wanted in another version.
pub(crate) fn conversion_fault(
    throttle: &Throttle,
    plugin: &str,
    digest: &Digest,
    object: &ObjectRef,
    fault: &GuestFault,
) {
    let is_new = throttle.is_news(Instant::now(), ("conversion", plugin, digest), (fault.reason(), fault.message()));
    tracing::info_span!("conversion", plugin, %object).in_scope(|| fault_line(fault, is_new));
}

/// A guest gave no usable answer about an object that is not stored yet.
pub(crate) fn admission_fault(throttle: &Throttle, controller: &str, digest: &Digest, name: &str, fault: &GuestFault) {
    let is_new = throttle.is_news(Instant::now(), ("admission", controller, digest), (fault.reason(), fault.message()));
    tracing::info_span!("admission", controller, name).in_scope(|| fault_line(fault, is_new));
}

/// One line of a guest, at its own level. Its fields go in as one, since tracing's own are fixed when it is compiled.
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

/// What no repetition mends.
fn needs_a_person(class: WriteErrorClass) -> bool {
    matches!(class, WriteErrorClass::Denied | WriteErrorClass::Invalid | WriteErrorClass::FieldConflict)
}

fn fault_line(fault: &GuestFault, is_new: bool) {
    let detail = match fault {
        GuestFault::Trap { detail, .. } if !detail.is_empty() => Some(detail.as_str()),
        _ => None,
    };
    if is_new {
        warn!(reason = fault.reason(), detail, "{}", fault.message());
    } else {
        debug!(reason = fault.reason(), "once more: {}", fault.message());
    }
}

fn line(observation: &Observation) {
    match observation {
        Observation::Enqueued { .. }
        | Observation::Taken { .. }
        | Observation::TurnEnded { .. }
        | Observation::Fault { .. } => {}
        Observation::Reconciled { result, elapsed_ms, writes, skipped, .. } => {
            debug!(?result, elapsed_ms, writes, skipped, "reconciled");
        }
        Observation::Activated { plugin, digest, reload } => info!(%plugin, %digest, reload, "the plugin serves"),
        Observation::FinalizersLeft { plugin, message } | Observation::ConversionLeft { plugin, message } => {
            warn!(%plugin, "{message}")
        }
        Observation::Withdrawn { plugin } => {
            info!(%plugin, "the plugin is withdrawn; its CRDs, their objects and the objects' children stay as they are");
        }
        Observation::Refused { plugin, refusal } => {
            warn!(%plugin, reason = refusal.reason, "refused: {}", refusal.message);
        }
        Observation::CacheLagging { object } => {
            warn!(%object, "the watch does not show the host's own write; reading live");
        }
        Observation::Throttled { message, .. } => warn!("writes are slowed down: {message}"),
        Observation::BreakerOpened { message, .. } => warn!("writes are stopped as a fight: {message}"),
        Observation::WatchFailed { kind, error } => warn!(%kind, %error, "cannot watch"),
        Observation::Audited { kind, differences } if differences.is_empty() => debug!(%kind, "the cache was audited"),
        Observation::Audited { kind, differences } => {
            let named: Vec<String> = differences.iter().take(NAMED_DIFFERENCES).map(ToString::to_string).collect();
            let (count, named) = (differences.len(), named.join(", "));
            warn!(%kind, count, "the cache differs from the API server and is listed anew: {named}");
        }
        Observation::Restored { kind, message } => {
            warn!(%kind, "etcd was restored, so every kind is listed anew: {message}");
        }
        Observation::Undecodable { kind, message } => warn!(%kind, "an object cannot be read: {message}"),
        Observation::WriteFailed { target, error, .. } if needs_a_person(error.class) => {
            warn!(written = %target, class = ?error.class, "a write failed: {}", error.message);
        }
        Observation::WriteFailed { target, error, .. } => {
            info!(written = %target, class = ?error.class, "a write failed: {}", error.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::contract::GuestFault;
    use mortise_core::object::Name;
    use mortise_core::observation::ReconcileResult;
    use mortise_core::write::WriteError;

    use super::*;

    fn controller() -> Arc<str> {
        "podset/PodSet".into()
    }

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::new("app.example.com/v1alpha1", "PodSet"), name: Name::new("default", name) }
    }

    #[test]
    fn a_reconcile_is_remembered_until_its_turn_ends_whichever_way() {
        let reconciles = Reconciles::default();
        let known = || reconciles.digests.lock().unwrap().len();
        for name in ["done", "given-back", "at-work"] {
            let key = (controller(), object(name));
            reconciles.digests.lock().unwrap().insert(key, Digest("sha256:00".into()));
        }
        reconciles.observed(&Observation::Fault {
            controller: controller(),
            object: object("done"),
            fault: GuestFault::Deadline { limit_ms: 1 },
        });
        assert_eq!(known(), 3, "a fault is not the end of a turn");
        reconciles.observed(&Observation::Reconciled {
            controller: controller(),
            object: object("done"),
            result: ReconcileResult::Error,
            elapsed_ms: 1,
            writes: 0,
            skipped: false,
        });
        reconciles.observed(&Observation::TurnEnded { controller: controller(), object: object("given-back") });
        let digests = reconciles.digests.lock().unwrap();
        assert_eq!(digests.keys().map(|(_, object)| &*object.name.name).collect::<Vec<_>>(), ["at-work"]);
    }

    #[test]
    fn an_error_that_comes_back_is_news_when_its_message_changes() {
        let reconciles = Reconciles::default();
        let is_news = |name: &str, message: &str| {
            let error = WriteError { class: WriteErrorClass::Denied, message: message.to_owned() };
            reconciles.is_news(&Observation::WriteFailed { cause: None, target: object(name), error })
        };
        assert!(is_news("a", "forbidden") && is_news("b", "forbidden"));
        assert!(!is_news("a", "forbidden"));
        assert!(is_news("a", "exceeded quota"));
    }

    #[test]
    fn l5_a_fault_is_logged_once_of_a_version_however_many_objects_and_retries_it_has() {
        let reconciles = Reconciles::default();
        let runs = |name: &str, digest: &str| {
            let key = (controller(), object(name));
            reconciles.digests.lock().unwrap().insert(key, Digest(digest.into()));
        };
        let is_new = |name: &str, limit_ms| {
            reconciles.is_new_fault(&controller(), &object(name), &GuestFault::Deadline { limit_ms })
        };
        runs("a", "sha256:00");
        runs("b", "sha256:00");
        assert!(is_new("a", 1) && !is_new("a", 1) && !is_new("b", 1));
        assert!(is_new("b", 2), "another fault");
        runs("b", "sha256:01");
        assert!(is_new("b", 1), "another version");
    }
}
