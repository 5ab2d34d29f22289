//! The same operator twice, with mortise and with kube-rs, on one API server: convergence, scaling, deleted Pods, a
//! restart. `peer/phases.rs` runs one operator, `peer/report.rs` compares the two, and this file orders the runs.
//!
//! Each run has PodSets of its own in a namespace of its own, and the two operators never run at once, since they
//! reconcile the same kind. The order changes from round to round, so that a control plane that gets slower favours
//! neither.

mod phases;
mod report;

use std::fs;

use anyhow::{Context, Result};

use self::phases::Run;
use crate::cluster::Cluster;
use crate::operator::{Operator, Which};
use crate::programs::{Host, Programs};

/// Measures both operators and prints the tables; with several hosts, one after the other.
pub(crate) async fn run(programs: &Programs, rounds: usize) -> Result<()> {
    let cluster = Cluster::start(false).await?;
    let folder = tempfile::tempdir().context("create a folder for the plugin")?;
    let setup = Setup { cluster, programs: programs.clone(), folder };
    let mut order = programs.hosts.iter().map(Contender::Mortise).collect::<Vec<_>>();
    order.push(Contender::KubeRs);
    let mut runs = Vec::new();
    for round in 0..rounds {
        for contender in order.iter().copied() {
            let name = contender.name();
            eprintln!("round {} of {rounds}: {name}", round + 1);
            let run = phases::run(&setup, contender, round).await;
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

#[derive(Clone, Copy, Debug)]
enum Contender<'a> {
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

    /// For output and names of namespaces.
    fn name(self) -> String {
        match self {
            Self::Mortise(host) => format!("{}-{}", Which::Mortise.user(), host.name.to_lowercase()),
            Self::KubeRs => Which::KubeRs.user().to_owned(),
        }
    }
}

struct Setup {
    cluster: Cluster,
    programs: Programs,
    /// The plugin, for mortise, which runs first since the plugin has the CRD.
    folder: tempfile::TempDir,
}

impl Setup {
    async fn start(&self, contender: Contender<'_>) -> Result<Operator> {
        let started = match contender {
            Contender::Mortise(host) => {
                let podset = self.folder.path().join("podset.wasm");
                fs::write(&podset, host.plugin("podset")?).with_context(|| format!("write {}", podset.display()))?;
                Operator::mortise(&self.cluster, host, self.folder.path()).await
            }
            Contender::KubeRs => Operator::kube_rs(&self.cluster, &self.programs.kube_rs).await,
        };
        started.with_context(|| format!("start {}", contender.name()))
    }
}
