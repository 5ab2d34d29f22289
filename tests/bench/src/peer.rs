//! The same operator twice, with mortise and with kube-rs, on one API server: converging, scaling, losing Pods,
//! starting again. `peer/phases.rs` takes one operator through it, `peer/report.rs` sets the two beside each other;
//! here is the order of the runs.
//!
//! Each run has PodSets of its own in a namespace of its own, and the two operators never run at once, since they are
//! for one kind. Who begins changes from round to round, so that a control plane that grows slower is nobody's
//! advantage.

mod phases;
mod report;

use std::fs;

use anyhow::{Context, Result};

use self::phases::Run;
use crate::cluster::Cluster;
use crate::operator::{Operator, Which};
use crate::programs::{self, Programs};

/// Measures both operators and prints the tables.
pub(crate) async fn run(programs: &Programs, rounds: usize) -> Result<()> {
    let cluster = Cluster::start(false).await?;
    let folder = tempfile::tempdir().context("make a folder for the plugin")?;
    fs::write(folder.path().join("podset.wasm"), programs::podset()?).context("write podset.wasm")?;
    let stage = Stage { cluster, programs: programs.clone(), folder };
    let mut runs = Vec::new();
    for round in 0..rounds {
        let mut order = Which::ALL;
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            eprintln!("round {} of {rounds}: {}", round + 1, which.user());
            let run = phases::run(&stage, which, round).await;
            runs.push(run.with_context(|| format!("measure {} in round {}", which.user(), round + 1))?);
        }
    }
    let of = |which| runs.iter().filter(|run: &&Run| run.which == which).collect::<Vec<_>>();
    print!("{}", report::tables(&of(Which::Mortise), &of(Which::KubeRs)));
    Ok(())
}

/// What the runs share.
struct Stage {
    cluster: Cluster,
    programs: Programs,
    /// The plugin, for mortise. The kind's CustomResourceDefinition comes with it, which is why mortise begins.
    folder: tempfile::TempDir,
}

impl Stage {
    async fn start(&self, which: Which) -> Result<Operator> {
        let started = match which {
            Which::Mortise => Operator::mortise(&self.cluster, &self.programs, self.folder.path()).await,
            Which::KubeRs => Operator::kube_rs(&self.cluster, &self.programs).await,
        };
        started.with_context(|| format!("start {}", which.user()))
    }
}
