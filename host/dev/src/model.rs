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
    /// What cargo does, once that takes long.
    Building(Option<String>),
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
    /// The version that was built last, until it serves.
    offered: Option<Offered>,
}

#[derive(Clone, Debug, PartialEq)]
struct Offered {
    digest: String,
    saved_at_ms: u64,
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
                plugin.state = State::Building(None);
                plugin.saved_at_ms.get_or_insert(now_ms);
            }
            Event::Progress { plugin, status } => self.plugin(&plugin).state = State::Building(Some(status)),
            Event::Built { plugin, elapsed_ms, digest, bytes } => {
                let plugin = self.plugin(&plugin);
                let saved_at_ms = plugin.saved_at_ms.take().unwrap_or(now_ms);
                // The component of a former session may serve already.
                plugin.state = if plugin.serves && plugin.digest == digest { State::Serves } else { State::Loading };
                plugin.bytes = bytes;
                plugin.offered = Some(Offered { digest, saved_at_ms, built_at_ms: now_ms, build_ms: elapsed_ms });
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
            state: State::Building(None),
            serves: false,
            digest: String::new(),
            bytes: 0,
            reloads: 0,
            swapped: None,
            saved_at_ms: None,
            offered: None,
        })
    }

    fn serves(&mut self, now_ms: u64, name: &str, digest: String, reload: bool) {
        let plugin = self.plugin(name);
        plugin.reloads += u32::from(reload);
        // A version that was saved over meanwhile says nothing of the newest save.
        let swap = plugin.offered.take_if(|offered| offered.digest == digest).map(|offered| Swap {
            total_ms: now_ms.saturating_sub(offered.saved_at_ms),
            build_ms: offered.build_ms,
            load_ms: now_ms.saturating_sub(offered.built_at_ms),
        });
        let is_older = match &plugin.state {
            State::Building(_) | State::BuildFailed(_) => true,
            State::Loading => swap.is_none(),
            State::Serves | State::Refused(_) => false,
        };
        if !is_older {
            plugin.state = State::Serves;
        }
        (plugin.swapped, plugin.serves, plugin.digest) = (swap, true, digest);
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

    pub(crate) fn built(digest: &str, elapsed_ms: u64) -> Event {
        Event::Built { plugin: "podset".to_owned(), elapsed_ms, digest: digest.to_owned(), bytes: 207_013 }
    }

    #[test]
    fn a_swap_is_timed_from_the_save() {
        let mut model = Model::default();
        let plugin = || "podset".to_owned();
        model.take(1_000, Event::Saved { plugin: plugin() });
        model.take(1_010, Event::Building { plugin: plugin() });
        model.take(2_000, built("d", 980));
        model.take(2_060, Event::Serves { plugin: plugin(), digest: "d".to_owned(), reload: true });
        let swapped = model.plugins["podset"].swapped;
        assert_eq!(swapped, Some(Swap { total_ms: 1_060, build_ms: 980, load_ms: 60 }));
        model.take(3_000, Event::BuildFailed { plugin: plugin(), output: "error".to_owned() });
        assert!(model.plugins["podset"].serves, "the old version serves on");
    }

    #[test]
    fn a_version_that_serves_while_the_next_is_built_is_not_timed_from_the_next_save() {
        let mut model = Model::default();
        let plugin = || "podset".to_owned();
        let serves = |digest: &str| Event::Serves { plugin: plugin(), digest: digest.to_owned(), reload: true };
        model.take(0, Event::Building { plugin: plugin() });
        model.take(1_000, built("old", 1_000));
        model.take(1_100, Event::Saved { plugin: plugin() });
        model.take(1_100, Event::Building { plugin: plugin() });
        model.take(1_200, serves("old"));
        assert_eq!(model.plugins["podset"].state, State::Building(None));
        model.take(2_000, built("new", 900));
        model.take(2_050, serves("new"));
        let podset = &model.plugins["podset"];
        assert_eq!(podset.swapped, Some(Swap { total_ms: 950, build_ms: 900, load_ms: 50 }));
        assert_eq!((&podset.state, podset.digest.as_str()), (&State::Serves, "new"));
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
