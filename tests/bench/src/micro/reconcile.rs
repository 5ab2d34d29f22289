//! One call of podset with 10 Pods in a fresh instance, next to the same work in native code, and counts that are the
//! same on any machine: fuel, host calls, page faults.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mortise_core::contract::{CallResult, Outcome};
use mortise_core::limits::CallLimits;
use mortise_core::object::{Interner, Object, ResourceVersion};
use mortise_core::store::{Snapshot, Store};
use mortise_core::view::{Access, View};
use mortise_wasm::plugin::{CallCompletion, Plugin};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::plugin::{self, Podset};
use crate::measure::Case;
use crate::sample::{self, Pod};
use crate::table::Table;

const PODS: usize = 10;
/// Calls per round: a few milliseconds.
const CALLS: usize = 500;
const TARGET: Duration = Duration::from_micros(15);
/// The fields that podset queries; the native reference gets the same.
const FIELDS: [&str; 4] =
    ["metadata.annotations[\"mortise.dev/child\"]", "metadata.name", "metadata.deletionTimestamp", "status.phase"];

/// A converged PodSet, and the inputs of a call for it.
pub(crate) struct Setup<'a> {
    podset: &'a Podset,
    snapshot: Snapshot,
    primary: Arc<Object>,
    access: Arc<Access>,
    config: Arc<str>,
    limits: CallLimits,
    whole: String,
    projected: String,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(podset: &'a Podset, template: Option<Value>) -> Result<Self> {
        let mut interner = Interner::default();
        let primary = Arc::new(Object::decode(sample::pod_set(PODS, template).as_bytes(), &mut interner)?);
        let mut setup = Self {
            podset,
            snapshot: cache(&mut interner)?.snapshot(),
            primary,
            access: plugin::access(),
            config: "{}".into(),
            limits: CallLimits::default(),
            whole: String::new(),
            projected: String::new(),
        };
        let fields = FIELDS.map(str::to_owned);
        setup.whole = setup.view(&setup.snapshot).owned(&plugin::pod(), &[])?;
        setup.projected = setup.view(&setup.snapshot).owned(&plugin::pod(), &fields)?;
        let outcome = outcome(setup.call(&podset.plugin, &setup.snapshot))?;
        let children = outcome.children.as_ref().map_or(0, Vec::len);
        ensure!(children == PODS, "podset returned {children} children for {PODS} replicas");
        Ok(setup)
    }

    fn view(&self, snapshot: &Snapshot) -> View {
        View::new(snapshot.clone(), self.primary.clone(), self.access.clone(), 0, self.config.clone())
    }

    fn call(&self, plugin: &Plugin, snapshot: &Snapshot) -> CallCompletion {
        plugin.call(self.primary.json(), self.view(snapshot), &self.limits)
    }
}

/// A cache with every sample Pod of the owner, listed completely.
fn cache(interner: &mut Interner) -> Result<Store> {
    let mut store = Store::new();
    for kind in [plugin::pod_set(), plugin::pod()] {
        let mut newest = ResourceVersion::default();
        store.begin_list(&kind);
        if kind == plugin::pod() {
            for index in 0..PODS {
                let pod = Object::decode(Pod::new(0, index).json().as_bytes(), interner)?;
                newest = newest.max(pod.resource_version);
                store.list_item(pod);
            }
        }
        store.end_list(&kind, newest);
    }
    Ok(store)
}

fn outcome(report: CallCompletion) -> Result<Outcome> {
    match report.result {
        CallResult::Done(outcome) => Ok(outcome),
        other => anyhow::bail!("podset returned {other:?}"),
    }
}

/// `large` has a template with which Pods have about 5 KB.
pub(crate) fn cases<'a>(setup: &'a Setup<'_>, large: &'a Setup<'_>, cases: &mut Vec<Case<'a>>) {
    let name = "reconcile in a fresh instance, podset with 10 Pods";
    cases.push(repeated(name, setup).target(TARGET));
    cases.push(repeated("the same with a template of 3 KB", large));
    cases.push(Case::new("the same after a change of one Pod", move |stopwatch| {
        let mut interner = Interner::default();
        let mut store = cache(&mut interner)?;
        // The first call caches the projections of the other Pods.
        outcome(setup.call(&setup.podset.plugin, &store.snapshot()))?;
        for number in 0..CALLS {
            let pod = Pod { version: 1_000 + number as u64, ..Pod::new(0, number % PODS) };
            store.apply(Object::decode(pod.json().as_bytes(), &mut interner)?);
            let snapshot = store.snapshot();
            outcome(stopwatch.one(|| setup.call(&setup.podset.plugin, &snapshot)))?;
        }
        Ok(())
    }));
    for (name, pods) in [
        ("the same logic native, from the same projections", &setup.projected),
        ("the same logic native, from the Pods' whole JSON", &setup.whole),
    ] {
        cases.push(Case::new(name, move |stopwatch| {
            for _ in 0..CALLS {
                let (children, status) = stopwatch.one(|| native(setup.primary.json(), pods))?;
                ensure!(children.len() == PODS && !status.is_empty(), "the native logic differs from podset's");
            }
            Ok(())
        }));
    }
}

fn repeated<'a>(name: &str, setup: &'a Setup<'_>) -> Case<'a> {
    Case::new(name, move |stopwatch| {
        for _ in 0..CALLS {
            outcome(stopwatch.one(|| setup.call(&setup.podset.plugin, &setup.snapshot)))?;
        }
        Ok(())
    })
}

#[derive(Deserialize)]
struct NativeSet<'a> {
    #[serde(borrow)]
    spec: NativeSpec<'a>,
}

#[derive(Deserialize)]
struct NativeSpec<'a> {
    replicas: i32,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct NativePod<'a> {
    #[serde(borrow)]
    metadata: NativeMeta<'a>,
    #[serde(borrow)]
    status: Option<NativeStatus<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeMeta<'a> {
    name: &'a str,
    deletion_timestamp: Option<&'a str>,
    #[serde(borrow)]
    annotations: Option<NativeAnnotations<'a>>,
}

#[derive(Deserialize)]
struct NativeAnnotations<'a> {
    #[serde(rename = "mortise.dev/child")]
    key: Option<&'a str>,
}

#[derive(Deserialize)]
struct NativeStatus<'a> {
    phase: Option<&'a str>,
}

/// podset's logic without SDK, contract and sandbox: JSON in, the children's JSON and the status out.
fn native(set: &str, pods: &str) -> Result<(Vec<(String, String)>, String)> {
    const SLEEPER: &str = r#"{"containers":[{"name":"busybox","image":"busybox","command":["sleep","3600"]}]}"#;
    let set: NativeSet<'_> = serde_json::from_str(set)?;
    let pods: Vec<NativePod<'_>> = serde_json::from_str(pods)?;
    let phase = |pod: &NativePod<'_>| pod.status.as_ref().and_then(|status| status.phase).map(str::to_owned);
    let live = || pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let is_finished = |pod: &&NativePod<'_>| matches!(phase(pod).as_deref(), Some("Failed" | "Succeeded"));
    let names = live().filter(|pod| !is_finished(pod)).map(|pod| pod.metadata.name).collect::<Vec<_>>();
    let finished =
        live().filter(is_finished).filter_map(|pod| pod.metadata.annotations.as_ref()?.key).collect::<Vec<_>>();
    let spec = set.spec.template.map_or(SLEEPER, RawValue::get);
    let keys = (0..set.spec.replicas).map(|key| key.to_string()).filter(|key| !finished.contains(&key.as_str()));
    let child = |key| (key, format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{spec}}}"));
    let status = serde_json::to_string(&serde_json::json!({"replicas": names.len(), "podNames": names}))?;
    Ok((keys.map(child).collect(), status))
}

/// Counts that do not depend on the machine.
pub(crate) fn counts(setup: &Setup<'_>) -> Result<Table> {
    let metered = Podset::compile(true)?;
    let report = setup.call(&metered.plugin, &setup.snapshot);
    let stats = report.stats;
    let fuel = stats.fuel_used.context("the engine does not count fuel")?;
    let outcome = outcome(report)?;
    let children: usize = outcome.children.iter().flatten().map(|child| child.key.len() + child.object.len()).sum();
    let out = children + outcome.status.as_ref().map_or(0, |status| status.len());

    let before = minor_faults()?;
    for _ in 0..CALLS {
        self::outcome(setup.call(&setup.podset.plugin, &setup.snapshot))?;
    }
    let faults = (minor_faults()? - before) as f64 / CALLS as f64;

    let mut table = Table::new("Exact counts of that reconcile", &["count", "value"]);
    table.row(["fuel of one call".to_owned(), fuel.to_string()]);
    table.row(["calls into the host".to_owned(), stats.host_calls.to_string()]);
    table.row([
        "bytes in: the object and its Pods' projections".to_owned(),
        (setup.primary.json().len() + setup.projected.len()).to_string(),
    ]);
    table.row(["bytes in, with whole Pods".to_owned(), (setup.primary.json().len() + setup.whole.len()).to_string()]);
    table.row(["bytes out: children and status".to_owned(), out.to_string()]);
    table.row(["memory of the guest, KiB".to_owned(), (stats.memory_bytes >> 10).to_string()]);
    table.row(["minor page faults per call".to_owned(), format!("{faults:.2}")]);
    table.row(["component, bytes".to_owned(), setup.podset.component_bytes.to_string()]);
    table.row(["compiled, bytes".to_owned(), setup.podset.artifact_bytes.to_string()]);
    table.row(["pooled instances".to_owned(), setup.podset.pooled.to_string()]);
    Ok(table)
}

/// Minor page faults of this thread so far: field 10 of its stat line.
fn minor_faults() -> Result<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").context("read /proc/thread-self/stat")?;
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(7));
    field.and_then(|field| field.parse().ok()).context("find the page faults in /proc/thread-self/stat")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations;

    /// Guards the cost of a call by exact counts. Each bound is the current value plus a few per cent: raise one only
    /// for something that is worth it, and say so in the commit.
    #[test]
    fn a_call_of_podset_stays_within_its_counts() {
        let metered = Podset::compile(true).unwrap();
        let setup = Setup::new(&metered, None).unwrap();
        let before = allocations::count();
        let report = setup.call(&metered.plugin, &setup.snapshot);
        let allocated = allocations::count() - before;
        let fuel = report.stats.fuel_used.unwrap();
        let (host_calls, memory) = (report.stats.host_calls, report.stats.memory_bytes);
        outcome(report).unwrap();
        assert!(fuel <= 69_000, "{fuel} units of fuel");
        assert!(allocated <= 85, "{allocated} allocations of the host");
        assert!(host_calls <= 2, "{host_calls} calls into the host");
        assert!(memory <= 320 << 10, "{memory} bytes of the guest's memory");
        assert!(metered.component_bytes <= 262_000, "{} bytes of wasm", metered.component_bytes);
    }
}
