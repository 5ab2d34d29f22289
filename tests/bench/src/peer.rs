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
use crate::programs::{self, Host, Programs};

/// Measures both operators and prints the tables; those of several hosts one after the other.
pub(crate) async fn run(programs: &Programs, rounds: usize) -> Result<()> {
    let cluster = Cluster::start(false).await?;
    let folder = tempfile::tempdir().context("make a folder for the plugin")?;
    fs::write(folder.path().join("podset.wasm"), programs::podset()?).context("write podset.wasm")?;
    let stage = Stage { cluster, programs: programs.clone(), folder };
    let mut order = programs.hosts.iter().map(Contender::Mortise).collect::<Vec<_>>();
    order.push(Contender::KubeRs);
    let mut runs = Vec::new();
    for round in 0..rounds {
        for contender in order.iter().copied() {
            let name = contender.name();
            eprintln!("round {} of {rounds}: {name}", round + 1);
            let run = phases::run(&stage, contender, round).await;
            let run = run.with_context(|| format!("measure {name} in round {}", round + 1))?;
            runs.push((name, run));
        }
        order.rotate_left(1);
    }
    let of =
        |wanted: String| runs.iter().filter(|(name, _)| *name == wanted).map(|(_, run)| run).collect::<Vec<&Run>>();
    for host in &programs.hosts {
        if programs.hosts.len() > 1 {
            println!("\nHost {}: {}", host.name, host.program.display());
        }
        print!("{}", report::tables(&of(Contender::Mortise(host).name()), &of(Contender::KubeRs.name())));
    }
    Ok(())
}

/// Who is measured.
#[derive(Clone, Copy, Debug)]
enum Contender<'a> {
    /// This build of mortise.
    Mortise(&'a Host),
    KubeRs,
}

impl Contender<'_> {
    fn which(self) -> Which {
        match self {
            Self::Mortise(_) => Which::Mortise,
            Self::KubeRs => Which::KubeRs,
        }
    }

    /// For people, and for names of namespaces.
    fn name(self) -> String {
        match self {
            Self::Mortise(host) => format!("{}-{}", Which::Mortise.user(), host.name.to_lowercase()),
            Self::KubeRs => Which::KubeRs.user().to_owned(),
        }
    }
}

/// What the runs share.
struct Stage {
    cluster: Cluster,
    programs: Programs,
    /// The plugin, for mortise. The kind's CustomResourceDefinition comes with it, which is why mortise begins.
    folder: tempfile::TempDir,
}

impl Stage {
    async fn start(&self, contender: Contender<'_>) -> Result<Operator> {
        let started = match contender {
            Contender::Mortise(host) => Operator::mortise(&self.cluster, host, self.folder.path()).await,
            Contender::KubeRs => Operator::kube_rs(&self.cluster, &self.programs.kube_rs).await,
        };
        started.with_context(|| format!("start {}", contender.name()))
    }
}
