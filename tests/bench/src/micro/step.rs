//! One step of the driver in a host of a hundred converged PodSets with ten Pods each: an event that wakes a key, the
//! answer that leaves nothing to write, and an event that changes nothing that anybody has read. And a key's whole turn
//! among a thousand objects and among a hundred thousand.

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
/// Pods that a key has its own among.
const CROWDS: [usize; 2] = [1_000, 100_000];
/// Turns of a round.
const TURNS: usize = 100;

/// Which of the steps is under the stopwatch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measured {
    Wake,
    Answer,
}

/// A driver in which everything is as it should be.
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

/// A converged engine with many Pods, of which the same few change in each round: looking for others among a hundred thousand
/// would empty the processor's caches between two rounds, which costs more than the turns.
pub(crate) struct Crowd<'a> {
    pods: usize,
    cycle: Cycle<'a>,
    changing: Vec<Value>,
}

/// Without a template: a hundred thousand of its Pods would be gigabytes.
pub(crate) fn crowds(podset: &Podset) -> Result<Vec<RefCell<Crowd<'_>>>> {
    let crowd = |pods: &usize| {
        let cycle = converged_sets(podset, pods / PODS, json!({"replicas": PODS}))?.into_inner();
        let changing = every(&cycle, pods / TURNS);
        Ok(RefCell::new(Crowd { pods: *pods, cycle, changing }))
    };
    CROWDS.iter().map(crowd).collect()
}

/// Rows of a key's whole turn.
pub(crate) fn crowd_cases<'a>(crowds: &'a [RefCell<Crowd<'_>>], cases: &mut Vec<Case<'a>>) {
    for crowd in crowds {
        let pods = crowd.borrow().pods;
        let name = format!("a key's turn, from a Pod's event to a plan without writes, among {pods} Pods");
        cases.push(Case::new(name, move |stopwatch| turns(&mut crowd.borrow_mut(), stopwatch)));
    }
}

/// The rows of this step.
pub(crate) fn cases<'a>(cycle: &'a RefCell<Cycle<'_>>, cases: &mut Vec<Case<'a>>) {
    cases.push(Case::new("driver step: a watch event that wakes, to the call", move |stopwatch| {
        changes_that_matter(&mut cycle.borrow_mut(), Measured::Wake, stopwatch)
    }));
    cases.push(Case::new("driver step: the call's answer, to a plan without writes", move |stopwatch| {
        changes_that_matter(&mut cycle.borrow_mut(), Measured::Answer, stopwatch)
    }));
    cases.push(Case::new("driver step: a watch event that changes nothing that was read", move |stopwatch| {
        changes_that_do_not_matter(&mut cycle.borrow_mut(), stopwatch)
    }));
}

/// The same for a hundred Pods of as many sets, all steps of a turn together.
fn turns(Crowd { cycle, changing, .. }: &mut Crowd<'_>, stopwatch: &mut Stopwatch) -> Result<()> {
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

/// A Pod of each set goes from Running to Pending or back: podset reads the phase and comes to the same result.
fn changes_that_matter(cycle: &mut Cycle<'_>, measured: Measured, stopwatch: &mut Stopwatch) -> Result<()> {
    for pod in every(cycle, PODS) {
        let event = cycle.changed(other_phase(pod))?;
        let mut effects = Vec::new();
        match measured {
            Measured::Wake => stopwatch.one(|| cycle.step(event, &mut effects)),
            Measured::Answer => cycle.step(event, &mut effects),
        }
        let call = take_call(&mut effects).context("a Pod's phase has changed and nobody is called")?;
        cycle.finish(effects)?;
        let answer = cycle.answer(call);
        let writes = cycle.writes();
        let mut effects = Vec::new();
        match measured {
            Measured::Wake => cycle.step(answer, &mut effects),
            Measured::Answer => stopwatch.one(|| cycle.step(answer, &mut effects)),
        }
        cycle.finish(effects)?;
        ensure!(cycle.writes() == writes, "a converged PodSet was written to");
    }
    Ok(())
}

/// A Pod of each set gets an annotation that podset does not read.
fn changes_that_do_not_matter(cycle: &mut Cycle<'_>, stopwatch: &mut Stopwatch) -> Result<()> {
    for mut pod in every(cycle, PODS) {
        let number = pod["metadata"]["annotations"]["example.com/count"].as_u64().unwrap_or_default() + 1;
        pod["metadata"]["annotations"]["example.com/count"] = number.to_string().into();
        let event = cycle.changed(pod)?;
        let mut effects = Vec::new();
        stopwatch.one(|| cycle.step(event, &mut effects));
        ensure!(take_call(&mut effects).is_none(), "a guest is called although nothing that it read has changed");
        let skipped =
            |effect: &Effect| matches!(effect, Effect::Observe(Observation::Reconciled { skipped: true, .. }));
        ensure!(effects.iter().any(skipped), "the owner of a changed Pod was not looked at: {effects:?}");
        cycle.finish(effects)?;
    }
    Ok(())
}

/// One of so many Pods.
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
