//! Compares the two operators: medians of the runs, their ratio, and the target.

use std::collections::BTreeSet;

use super::phases::{DELETED, Phase, REPLICAS, Run, SETS, STEPS, requests_per, writes};
use crate::cluster::Requests;
use crate::measure::{median, quantile};
use crate::table::{Table, rating};

/// CPU time relative to the peer's.
const CPU_TARGET: f64 = 0.8;
/// Anonymous memory relative to the peer's.
const MEMORY_TARGET: f64 = 0.5;
const MIB: f64 = 1024.0 * 1024.0;

type Of = fn(&Run) -> &Phase;

#[derive(Clone, Copy)]
enum Target {
    /// Mortise's figure is exactly this in every round.
    Exactly(f64),
    /// Mortise's figure is at most this in every round.
    AtMost(f64),
    /// The ratio is at most this.
    Ratio(f64),
    None,
}

pub(super) fn tables(mortise: &[&Run], kube_rs: &[&Run]) -> String {
    let mut text = figures(mortise, kube_rs).to_string();
    text.push_str(&latency(mortise, kube_rs).to_string());
    text.push_str(&requests(mortise, kube_rs).to_string());
    text
}

fn figures(mortise: &[&Run], kube_rs: &[&Run]) -> Table {
    let rounds = mortise.len();
    let pod = median(mortise.iter().map(|run| run.pod_bytes).collect());
    let title = format!(
        "The same operator with mortise and with kube-rs: {SETS} PodSets x {REPLICAS} Pods of {pod:.0} bytes, {STEPS} \
         scale steps by one, {DELETED} Pods deleted at once and as many gracefully, a restart (medians of {rounds})"
    );
    let mut table = Table::new(title, &["figure", "mortise", "kube-rs", "ratio", "target", ""]);
    let mut row = |name: &str, digits: usize, target: Target, of: &dyn Fn(&Run) -> f64| {
        let all = |runs: &[&Run]| runs.iter().map(|run| of(run)).collect::<Vec<_>>();
        let (own, peer) = (median(all(mortise)), median(all(kube_rs)));
        let ratio = own / peer;
        let (wanted, met) = match target {
            Target::Exactly(value) => {
                // The worst round counts.
                let error = all(mortise).iter().map(|own| (own - value).abs()).fold(0.0, f64::max);
                (format!("{value}"), rating(error, Some(0.0)))
            }
            Target::AtMost(most) => {
                let worst = all(mortise).iter().copied().fold(0.0, f64::max);
                (format!("<= {most}"), rating(worst, Some(most)))
            }
            Target::Ratio(most) => (format!("<= {most}x"), rating(ratio, Some(most))),
            Target::None => (String::new(), String::new()),
        };
        let ratio = if peer == 0.0 { "-".to_owned() } else { format!("{ratio:.2}x") };
        table.row([name.to_owned(), format!("{own:.digits$}"), format!("{peer:.digits$}"), ratio, wanted, met]);
    };
    let exactly = Target::Exactly;
    for (name, of, units, unit, fewest) in [
        ("converge", (|run| &run.converge) as Of, SETS, "new PodSet", exactly(4.0)),
        ("scale", |run| &run.scale, STEPS, "change by one", exactly(2.0)),
        // The create, the status, and once for each PodSet the mark of an owner whose children have successors.
        ("churn", |run| &run.churn, DELETED, "deleted Pod", Target::AtMost(3.0)),
        ("graceful churn", |run| &run.graceful, DELETED, "deleted Pod", Target::AtMost(3.0)),
        ("restart", |run| &run.restart, 1, "", exactly(0.0)),
    ] {
        if unit.is_empty() {
            // A restart has to read and has nothing to write.
            row(&format!("{name}: writes"), 0, fewest, &|run| writes(of(run)));
        } else {
            row(&format!("{name}: requests per {unit}"), 2, fewest, &|run| requests_per(of(run), units));
        }
        row(&format!("{name}: responses 409 or 422"), 0, exactly(0.0), &|run| of(run).refused as f64);
        row(&format!("{name}: operator CPU s"), 2, Target::Ratio(CPU_TARGET), &|run| of(run).cpu.as_secs_f64());
        row(&format!("{name}: API server CPU s"), 2, Target::None, &|run| of(run).api_cpu.as_secs_f64());
        row(&format!("{name}: s until idle"), 1, Target::None, &|run| of(run).quiet.as_secs_f64());
        row(&format!("{name}: wall s"), 2, Target::None, &|run| of(run).wall.as_secs_f64());
    }
    row("anonymous MiB after converging", 1, Target::Ratio(MEMORY_TARGET), &|run| run.converged_bytes / MIB);
    row("anonymous MiB after the restart", 1, Target::Ratio(MEMORY_TARGET), &|run| run.restarted_bytes / MIB);
    table
}

fn latency(mortise: &[&Run], kube_rs: &[&Run]) -> Table {
    let title = "Scale request received -> first write of the operator received, ms (both by the API server's clock)";
    let mut table = Table::new(title, &["quantile", "mortise", "kube-rs", "ratio"]);
    let all = |runs: &[&Run]| runs.iter().flat_map(|run| run.reactions_ms.iter().copied()).collect::<Vec<_>>();
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (own, peer) = (quantile(all(mortise), share), quantile(all(kube_rs), share));
        table.row([name.to_owned(), format!("{own:.2}"), format!("{peer:.2}"), format!("{:.2}x", own / peer)]);
    }
    table
}

/// Requests by verb and resource, summed over the rounds.
fn requests(mortise: &[&Run], kube_rs: &[&Run]) -> Table {
    let title =
        "Requests by verb and resource, all rounds together (in brackets: lists and watches, not counted above)";
    let mut table = Table::new(title, &["phase and request", "mortise", "kube-rs"]);
    for (name, of) in [
        ("converge", (|run| &run.converge) as Of),
        ("scale", |run| &run.scale),
        ("churn", |run| &run.churn),
        ("graceful churn", |run| &run.graceful),
        ("restart", |run| &run.restart),
    ] {
        let sums = |of_phase: &dyn Fn(&Phase) -> Requests| {
            [mortise, kube_rs].map(|runs| {
                let mut sum = Requests::new();
                for (what, count) in runs.iter().flat_map(|run| of_phase(of(run))) {
                    *sum.entry(what).or_default() += count;
                }
                sum
            })
        };
        for (sums, open, close) in
            [(sums(&|phase| phase.requests.clone()), "", ""), (sums(&|phase| phase.watching.clone()), "(", ")")]
        {
            let names = sums.iter().flat_map(Requests::keys).collect::<BTreeSet<_>>();
            for what in names {
                let count = |of: &Requests| of.get(what).copied().unwrap_or_default().to_string();
                table.row([format!("{name}: {open}{what}{close}"), count(&sums[0]), count(&sums[1])]);
            }
        }
    }
    table
}
