//! What a session knows: plugins and their state, objects with their children, the last reconciles and log lines. Input:
//! events and the time. Output: what a screen shows. It must not know terminals, files or the host.

mod outline;

use std::collections::{BTreeMap, VecDeque};

use mortise_core::object::ObjectRef;
use mortise_core::observation::ReconcileResult;

use crate::event::{Event, Shown, Wrote};

pub(crate) use self::outline::{Row, outline};

/// Reconciles that are kept: a person scrolls back through the last minutes.
const MAX_RECONCILES: usize = 500;
/// Log lines and notes that are kept.
const MAX_LINES: usize = 1_000;
/// Writes, reads and logs that are kept of one reconcile.
const MAX_DETAILS: usize = 200;

/// The state of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Building,
    /// cargo's output.
    BuildFailed(String),
    /// Built; the host compiles it.
    Loading,
    Serves,
    /// Why the host refused it.
    Refused(String),
}

/// One plugin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plugin {
    pub(crate) state: State,
    /// Whether any version serves.
    pub(crate) serves: bool,
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    /// How often it was swapped.
    pub(crate) reloads: u32,
    /// The last swap: from save to swapped, and the part that is not cargo's.
    pub(crate) swapped: Option<Swap>,
    saved_at_ms: Option<u64>,
    built_at_ms: u64,
    build_ms: u64,
}

/// How long a swap took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swap {
    /// From the save, or from the begin of the first build.
    pub(crate) total_ms: u64,
    /// cargo's part.
    pub(crate) build_ms: u64,
    /// From the built component to the new version that serves.
    pub(crate) load_ms: u64,
}

/// One reconcile with all that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reconcile {
    pub(crate) object: ObjectRef,
    pub(crate) at_ms: u64,
    pub(crate) woken_by: Option<String>,
    pub(crate) reads: Vec<String>,
    pub(crate) writes: Vec<Wrote>,
    pub(crate) logs: Vec<String>,
    pub(crate) guest_us: u64,
    /// How it ended and after how many milliseconds; None while it runs.
    pub(crate) ended: Option<(ReconcileResult, u64)>,
    /// What went wrong, with a trap's frames.
    pub(crate) fault: Option<String>,
}

/// Everything that a screen shows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) plugins: BTreeMap<String, Plugin>,
    pub(crate) objects: BTreeMap<ObjectRef, Shown>,
    /// Oldest first.
    pub(crate) reconciles: VecDeque<Reconcile>,
    /// Notes, log lines and faults with their times, oldest first.
    pub(crate) lines: VecDeque<(u64, String)>,
    /// Kinds that plugins reconcile: roots of the outline.
    pub(crate) reconciled: std::collections::BTreeSet<String>,
}

impl Model {
    /// Takes in what happened.
    pub(crate) fn take(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Saved { plugin } => self.plugin(&plugin).saved_at_ms = Some(now_ms),
            Event::Building { plugin } => {
                let plugin = self.plugin(&plugin);
                plugin.state = State::Building;
                plugin.saved_at_ms.get_or_insert(now_ms);
            }
            Event::Built { plugin, elapsed_ms, bytes } => {
                let plugin = self.plugin(&plugin);
                plugin.state = State::Loading;
                (plugin.built_at_ms, plugin.build_ms, plugin.bytes) = (now_ms, elapsed_ms, bytes);
            }
            Event::Unchanged { plugin } => {
                let plugin = self.plugin(&plugin);
                (plugin.saved_at_ms, plugin.swapped) = (None, None);
                plugin.state = if plugin.serves { State::Serves } else { State::Loading };
            }
            Event::BuildFailed { plugin, output } => {
                let plugin = self.plugin(&plugin);
                plugin.saved_at_ms = None;
                plugin.state = State::BuildFailed(output);
            }
            Event::Serves { plugin, digest, reload } => self.serves(now_ms, &plugin, digest, reload),
            Event::Refused { plugin, reason, message } => {
                self.plugin(&plugin).state = State::Refused(format!("{reason}: {message}"));
            }
            Event::Sample { file, result } => self.line(now_ms, sample_line(&file, &result)),
            Event::Object { object, state: Some(state) } => drop(self.objects.insert(object, state)),
            Event::Object { object, state: None } => drop(self.objects.remove(&object)),
            Event::Calls { .. }
            | Event::Called { .. }
            | Event::Writes { .. }
            | Event::Reconciled { .. }
            | Event::Fault { .. } => self.reconcile(now_ms, event),
            Event::WriteFailed { target, message } => {
                self.line(now_ms, format!("a write of {target} failed: {message}"))
            }
            Event::Note(note) => self.line(now_ms, note),
        }
    }

    fn plugin(&mut self, name: &str) -> &mut Plugin {
        self.plugins.entry(name.to_owned()).or_insert_with(|| Plugin {
            state: State::Building,
            serves: false,
            digest: String::new(),
            bytes: 0,
            reloads: 0,
            swapped: None,
            saved_at_ms: None,
            built_at_ms: 0,
            build_ms: 0,
        })
    }

    fn serves(&mut self, now_ms: u64, name: &str, digest: String, reload: bool) {
        let plugin = self.plugin(name);
        (plugin.state, plugin.serves, plugin.digest) = (State::Serves, true, digest);
        plugin.reloads += u32::from(reload);
        plugin.swapped = plugin.saved_at_ms.take().map(|saved| Swap {
            total_ms: now_ms.saturating_sub(saved),
            build_ms: plugin.build_ms,
            load_ms: now_ms.saturating_sub(plugin.built_at_ms),
        });
    }

    /// The last reconcile of an object, if it has not ended.
    fn current(&mut self, object: &ObjectRef) -> Option<&mut Reconcile> {
        let found = self.reconciles.iter_mut().rev().find(|reconcile| reconcile.object == *object);
        found.filter(|reconcile| reconcile.ended.is_none())
    }

    /// The current reconcile of an object, begun now if there is none.
    fn begin(&mut self, now_ms: u64, object: &ObjectRef, woken_by: Option<String>) -> &mut Reconcile {
        if self.current(object).is_none() {
            self.reconciled.insert(object.kind.to_string());
            if self.reconciles.len() == MAX_RECONCILES {
                self.reconciles.pop_front();
            }
            self.reconciles.push_back(Reconcile {
                object: object.clone(),
                at_ms: now_ms,
                woken_by,
                reads: Vec::new(),
                writes: Vec::new(),
                logs: Vec::new(),
                guest_us: 0,
                ended: None,
                fault: None,
            });
        }
        self.current(object).expect("it was begun or was there")
    }

    fn reconcile(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Calls { object, woken_by } => drop(self.begin(now_ms, &object, woken_by).object.clone()),
            Event::Called { object, elapsed_us, reads, logs } => {
                for line in &logs {
                    self.line(now_ms, format!("{object}: {line}"));
                }
                let reconcile = self.begin(now_ms, &object, None);
                reconcile.guest_us += elapsed_us;
                reconcile.reads = reads;
                reconcile.reads.truncate(MAX_DETAILS);
                reconcile.logs.extend(logs);
                reconcile.logs.truncate(MAX_DETAILS);
            }
            Event::Writes { object, write } => {
                let reconcile = self.begin(now_ms, &object, None);
                if reconcile.writes.len() < MAX_DETAILS {
                    reconcile.writes.push(write);
                }
            }
            // A call that was skipped for unchanged inputs is nothing that a person asked for.
            Event::Reconciled { object, result, elapsed_ms, writes, skipped } => {
                if skipped && writes == 0 && self.current(&object).is_none() {
                    return;
                }
                self.begin(now_ms, &object, None).ended = Some((result, elapsed_ms));
            }
            Event::Fault { object, message, detail, .. } => {
                let text = if detail.is_empty() { message } else { format!("{message}\n{detail}") };
                self.line(now_ms, format!("{object}: {text}"));
                self.begin(now_ms, &object, None).fault = Some(text);
            }
            _ => {}
        }
    }

    fn line(&mut self, now_ms: u64, line: String) {
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back((now_ms, line));
    }
}

pub(crate) fn sample_line(file: &str, result: &Result<String, String>) -> String {
    match result {
        Ok(object) => format!("applied {file}: {object}"),
        Err(why) => format!("cannot apply {file}: {why}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use mortise_core::object::{Kind, Name};

    use super::*;

    pub(crate) fn reference(kind: &str, name: &str) -> ObjectRef {
        let api_version = if kind == "Pod" { "v1" } else { "app.example.com/v1alpha1" };
        ObjectRef { kind: Kind::new(api_version, kind), name: Name::new("default", name) }
    }

    #[test]
    fn a_swap_is_timed_from_the_save() {
        let mut model = Model::default();
        let plugin = || "podset".to_owned();
        model.take(1_000, Event::Saved { plugin: plugin() });
        model.take(1_010, Event::Building { plugin: plugin() });
        model.take(2_000, Event::Built { plugin: plugin(), elapsed_ms: 980, bytes: 7 });
        model.take(2_060, Event::Serves { plugin: plugin(), digest: "d".to_owned(), reload: true });
        let swapped = model.plugins["podset"].swapped;
        assert_eq!(swapped, Some(Swap { total_ms: 1_060, build_ms: 980, load_ms: 60 }));
        model.take(3_000, Event::BuildFailed { plugin: plugin(), output: "error".to_owned() });
        assert!(model.plugins["podset"].serves, "the old version serves on");
    }

    #[test]
    fn what_a_reconcile_did_is_kept_with_it() {
        let mut model = Model::default();
        let object = reference("PodSet", "a");
        model.take(5, Event::Calls { object: object.clone(), woken_by: Some("v1/Pod default/x".to_owned()) });
        model.take(
            6,
            Event::Called {
                object: object.clone(),
                elapsed_us: 90,
                reads: vec!["its own v1/Pod".to_owned()],
                logs: vec![],
            },
        );
        let target = reference("Pod", "x");
        let write = Wrote { verb: "create", target, body: "{}".into(), before: None };
        model.take(7, Event::Writes { object: object.clone(), write: write.clone() });
        let done = |skipped| Event::Reconciled {
            object: object.clone(),
            result: ReconcileResult::Success,
            elapsed_ms: 3,
            writes: 0,
            skipped,
        };
        model.take(8, done(false));
        assert_eq!(model.reconciles.len(), 1);
        let reconcile = &model.reconciles[0];
        assert_eq!((reconcile.woken_by.as_deref(), &reconcile.writes), (Some("v1/Pod default/x"), &vec![write]));
        assert_eq!(reconcile.ended, Some((ReconcileResult::Success, 3)));
        model.take(9, done(true));
        assert_eq!(model.reconciles.len(), 1, "a skipped call is not shown");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut model = Model::default();
        for n in 0..MAX_LINES + 10 {
            model.take(0, Event::Note(n.to_string()));
            let object = reference("PodSet", &n.to_string());
            model.take(0, Event::Calls { object, woken_by: None });
        }
        assert_eq!((model.lines.len(), model.reconciles.len()), (MAX_LINES, MAX_RECONCILES));
    }
}
