//! One step of the engine with a hundred converged PodSets of ten Pods each: an event that wakes a key, the result of
//! the call without writes, and an event that changes nothing that was read. And a key's whole turn among a thousand
//! and among a hundred thousand objects.

use std::cell::RefCell;

use anyhow::{Context, Result, ensure};
use mortise_core::call::Call;
use mortise_core::event::Effect;
use mortise_core::observation::Observation;
use serde_json::{Value, json};

use super::cycle::Cycle;
use super::plugin::{self, Podset};
use crate::measure::{Case, Stopwatch};
use crate::sample;

const SETS: usize = 100;
const PODS: usize = 10;
/// Total numbers of Pods.
const CROWDS: [usize; 2] = [1_000, 100_000];
const TURNS: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    Wake,
    CallDone,
}

/// An engine whose PodSets have converged.
pub(crate) fn converged(podset: &Podset) -> Result<RefCell<Cycle<'_>>> {
    converged_sets(podset, SETS, json!({"replicas": PODS, "template": sample::template()}))
}

fn converged_sets(podset: &Podset, sets: usize, spec: Value) -> Result<RefCell<Cycle<'_>>> {
    let set = |number: usize| {
        json!({
            "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
            "metadata": {
                "name": format!("set-{number}"), "namespace": "default", "generation": 1,
                "uid": sample::owner_uid(number + 1),
            },
            "spec": spec,
        })
    };
    let cycle = Cycle::start(podset, (0..sets).map(set))?;
    let pods = cycle.objects(&plugin::pod()).count();
    ensure!(pods == sets * PODS, "{sets} PodSets have converged to {pods} Pods");
    for set in cycle.objects(&plugin::pod_set()) {
        ensure!(set["status"]["replicas"] == PODS, "a PodSet has the status {}", set["status"]);
    }
    Ok(RefCell::new(cycle))
}

/// A converged engine with many Pods, of which the same few change in each round: to look for others among a hundred thousand
/// would empty the processor's caches between two rounds.
pub(crate) struct Crowd<'a> {
    pods: usize,
    cycle: Cycle<'a>,
    /// The Pods of one key, again and again, which shows what the number of other objects costs.
    of_one_key: Vec<Value>,
    /// A Pod of each of so many keys, whose objects are not in the processor's caches when there are many.
    of_many_keys: Vec<Value>,
}

/// Without a template: a hundred thousand of its Pods would be gigabytes.
pub(crate) fn crowds(podset: &Podset) -> Result<Vec<RefCell<Crowd<'_>>>> {
    let crowd = |pods: &usize| {
        let cycle = converged_sets(podset, pods / PODS, json!({"replicas": PODS}))?.into_inner();
        let of_one_key = cycle.objects(&plugin::pod()).take(PODS).cloned().collect();
        let of_many_keys = every(&cycle, pods / TURNS);
        Ok(RefCell::new(Crowd { pods: *pods, cycle, of_one_key, of_many_keys }))
    };
    CROWDS.iter().map(crowd).collect()
}

/// Rows of a key's whole turn.
pub(crate) fn crowd_cases<'a>(crowds: &'a [RefCell<Crowd<'_>>], cases: &mut Vec<Case<'a>>) {
    for crowd in crowds {
        let pods = crowd.borrow().pods;
        let name = |whose: &str| format!("{whose}, from a Pod's event to a plan without writes, among {pods} Pods");
        cases.push(Case::new(name("a turn of one key"), move |stopwatch| {
            let Crowd { cycle, of_one_key, .. } = &mut *crowd.borrow_mut();
            (0..TURNS / PODS).try_for_each(|_| turns(cycle, of_one_key, stopwatch))
        }));
        cases.push(Case::new(name("a turn of one of 100 keys"), move |stopwatch| {
            let Crowd { cycle, of_many_keys, .. } = &mut *crowd.borrow_mut();
            turns(cycle, of_many_keys, stopwatch)
        }));
    }
}

pub(crate) fn cases<'a>(cycle: &'a RefCell<Cycle<'_>>, cases: &mut Vec<Case<'a>>) {
    cases.push(Case::new("engine step: from a watch event to the call", move |stopwatch| {
        relevant_changes(&mut cycle.borrow_mut(), Measured::Wake, stopwatch)
    }));
    cases.push(Case::new("engine step: from the call's outcome to a plan without writes", move |stopwatch| {
        relevant_changes(&mut cycle.borrow_mut(), Measured::CallDone, stopwatch)
    }));
    cases.push(Case::new("engine step: a watch event that changes nothing that was read", move |stopwatch| {
        irrelevant_changes(&mut cycle.borrow_mut(), stopwatch)
    }));
}

/// The same for a hundred Pods of as many sets, all steps of a turn together.
fn turns(cycle: &mut Cycle<'_>, changing: &mut [Value], stopwatch: &mut Stopwatch) -> Result<()> {
    for pod in changing {
        *pod = other_phase(pod.take());
        let event = cycle.changed(pod.clone())?;
        let writes = cycle.writes();
        stopwatch.one(|| {
            let mut effects = Vec::new();
            cycle.step(event, &mut effects);
            cycle.finish(effects)
        })?;
        ensure!(cycle.writes() == writes, "a converged PodSet was written to");
    }
    Ok(())
}

/// Toggles the phase of a Pod of each set, which podset reads without effect on its outcome.
fn relevant_changes(cycle: &mut Cycle<'_>, measured: Measured, stopwatch: &mut Stopwatch) -> Result<()> {
    for pod in every(cycle, PODS) {
        let event = cycle.changed(other_phase(pod))?;
        let mut effects = Vec::new();
        match measured {
            Measured::Wake => stopwatch.one(|| cycle.step(event, &mut effects)),
            Measured::CallDone => cycle.step(event, &mut effects),
        }
        let call = take_call(&mut effects).context("no call for a changed Pod phase")?;
        cycle.finish(effects)?;
        let done = cycle.run_guest(call);
        let writes = cycle.writes();
        let mut effects = Vec::new();
        match measured {
            Measured::Wake => cycle.step(done, &mut effects),
            Measured::CallDone => stopwatch.one(|| cycle.step(done, &mut effects)),
        }
        cycle.finish(effects)?;
        ensure!(cycle.writes() == writes, "a converged PodSet was written to");
    }
    Ok(())
}

/// A Pod of each set gets an annotation that podset does not read.
fn irrelevant_changes(cycle: &mut Cycle<'_>, stopwatch: &mut Stopwatch) -> Result<()> {
    for mut pod in every(cycle, PODS) {
        let number = pod["metadata"]["annotations"]["example.com/count"].as_u64().unwrap_or_default() + 1;
        pod["metadata"]["annotations"]["example.com/count"] = number.to_string().into();
        let event = cycle.changed(pod)?;
        let mut effects = Vec::new();
        stopwatch.one(|| cycle.step(event, &mut effects));
        ensure!(take_call(&mut effects).is_none(), "a call without a change of what was read");
        let skipped =
            |effect: &Effect| matches!(effect, Effect::Observe(Observation::Reconciled { skipped: true, .. }));
        ensure!(effects.iter().any(skipped), "the key of a changed Pod was not evaluated: {effects:?}");
        cycle.finish(effects)?;
    }
    Ok(())
}

fn every(cycle: &Cycle<'_>, step: usize) -> Vec<Value> {
    cycle.objects(&plugin::pod()).step_by(step).cloned().collect()
}

fn other_phase(mut pod: Value) -> Value {
    let phase = if pod["status"]["phase"] == "Running" { "Pending" } else { "Running" };
    pod["status"]["phase"] = phase.into();
    pod
}

fn take_call(effects: &mut Vec<Effect>) -> Option<Call> {
    let at = effects.iter().position(|effect| matches!(effect, Effect::Call(_)))?;
    match effects.remove(at) {
        Effect::Call(call) => Some(*call),
        _ => None,
    }
}
