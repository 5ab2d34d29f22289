//! Many keys and many plugins in one engine, with native guests of a few lines, so that the engine's work dominates.
//! Ten thousand keys that list the same Nodes, and the same number of keys of few and of many plugins.

use std::cell::{Cell, RefCell};

use anyhow::{Result, ensure};
use mortise_core::call::{Call, CallDone};
use mortise_core::component::{Compiled, Offer};
use mortise_core::contract::{CallResult, Failure, Outcome};
use mortise_core::digest::Digest;
use mortise_core::query::Query;
use serde_json::{Value, json};

use super::cycle::{Cycle, Guests};
use crate::measure::{Case, Stopwatch};
use crate::reader::{self, Read};

const KEYS: usize = 10_000;
const NODES: usize = 100;
/// The Node that changes; the others have heartbeats.
const CHANGED: usize = NODES - 1;
/// Numbers of plugins that share the keys.
const SHARED_BY: [usize; 2] = [10, 1_000];
const BEATS: usize = 20;

/// Native plugins that do what the component `reader` does.
pub(crate) struct Readers {
    plugins: usize,
    lists: bool,
    calls: Cell<usize>,
}

impl Readers {
    pub(crate) fn new(plugins: usize, lists: bool) -> Self {
        Self { plugins, lists, calls: Cell::new(0) }
    }

    /// An engine whose keys, the same number of each plugin, have converged.
    pub(crate) fn converged(&self) -> Result<RefCell<Cycle<'_>>> {
        let mut cycle = self.unstarted()?;
        cycle.settle()?;
        ensure!(self.calls.get() >= KEYS, "{} calls were made for {KEYS} keys", self.calls.get());
        Ok(RefCell::new(cycle))
    }

    fn unstarted(&self) -> Result<Cycle<'_>> {
        let objects = (0..KEYS).map(|key| {
            let (plugin, number) = (key % self.plugins, key / self.plugins);
            let mut object = reader::object(plugin, number);
            object["metadata"]["uid"] = format!("uid-{plugin}-{number}").into();
            object["metadata"]["generation"] = 1.into();
            object
        });
        Cycle::new(self, objects.chain((0..NODES).map(|number| node(number, 0))))
    }
}

impl Guests for Readers {
    fn offers(&self) -> Vec<Offer> {
        let offer = |plugin| {
            let name = reader::name(plugin);
            let source = format!("file {name}.wasm");
            Offer::new(name, source, Digest(format!("sha256:{plugin}").into()), "{}")
        };
        (0..self.plugins).map(offer).collect()
    }

    fn compiled(&self, digest: &Digest) -> Compiled {
        let plugin = digest.0.strip_prefix("sha256:").and_then(|number| number.parse().ok());
        let manifest = reader::manifest(plugin.expect("one of the offered digests"), false).into();
        Compiled { manifest, component_bytes: 0, compile_ms: 0, cached: true }
    }

    fn call(&self, mut call: Call) -> CallDone {
        self.calls.set(self.calls.get() + 1);
        let fields = vec!["metadata.name".to_owned(), "spec.unschedulable".to_owned()];
        let query = Query { fields, ..Query::all(Read::Node.kind()) };
        let listed = if self.lists { call.view.list(&query).map(drop) } else { Ok(()) };
        let result = match listed {
            Ok(()) => CallResult::Done(Outcome { status: Some(r#"{"phase":"Read"}"#.into()), ..Outcome::default() }),
            Err(error) => CallResult::Failed(Failure::Retry(error.to_string())),
        };
        let conclusion = call.check.conclude(&call.object, result);
        CallDone { conclusion, reads: call.view.into_dependencies(), elapsed_us: 10 }
    }
}

/// `keys` is the converged engine of the plugin that lists.
pub(crate) fn cases<'a>(
    readers: &'a Readers,
    keys: &'a RefCell<Cycle<'a>>,
    shared: &'a [Readers],
    cases: &mut Vec<Case<'a>>,
) {
    let mut beat = 0;
    let name = format!("heartbeat of a Node that {KEYS} keys list");
    cases.push(Case::new(name, move |stopwatch| {
        for _ in 0..BEATS {
            beat += 1;
            let calls = process(&mut keys.borrow_mut(), node(beat % CHANGED, beat), readers, stopwatch)?;
            ensure!(calls == 0, "{calls} guests were called for a heartbeat");
        }
        Ok(())
    }));
    let mut round = 0;
    let name = format!("change of a Node that {KEYS} keys list, up to their last call");
    cases.push(Case::new(name, move |stopwatch| {
        round += 1;
        let mut node = node(CHANGED, 0);
        node["spec"]["unschedulable"] = (round % 2 == 1).into();
        let calls = process(&mut keys.borrow_mut(), node, readers, stopwatch)?;
        ensure!(calls == KEYS, "{calls} guests of {KEYS} were called for a change");
        Ok(())
    }));
    for readers in shared {
        let name = format!("start to converged, by key: {KEYS} keys of {} plugins", readers.plugins);
        cases.push(Case::new(name, move |stopwatch| {
            let mut cycle = readers.unstarted()?;
            stopwatch.many(KEYS as u64, || cycle.settle())
        }));
    }
}

pub(crate) fn shared() -> [Readers; 2] {
    SHARED_BY.map(|plugins| Readers::new(plugins, false))
}

/// Processes one event with all its consequences. Returns the number of guest calls.
fn process(cycle: &mut Cycle<'_>, object: Value, readers: &Readers, stopwatch: &mut Stopwatch) -> Result<usize> {
    let event = cycle.changed(object)?;
    let before = readers.calls.get();
    stopwatch.one(|| {
        let mut effects = Vec::new();
        cycle.step(event, &mut effects);
        cycle.finish(effects)
    })?;
    Ok(readers.calls.get() - before)
}

fn node(number: usize, beat: usize) -> Value {
    let mut node = mortise_control_plane::node(&format!("node-{number}"));
    node["metadata"]["uid"] = format!("uid-node-{number}").into();
    node["spec"] = json!({"unschedulable": false});
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}]);
    node
}
