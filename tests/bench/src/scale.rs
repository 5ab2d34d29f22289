//! Costs that grow with plugins and keys, on a real control plane: starts, restarts, memory, and events for few of
//! them. `scale/side.rs` runs one host, `scale/scenarios.rs` has the scenarios, `scale/figures.rs` compares the hosts.
//!
//! Each host has a control plane of its own, since hosts would undo each other's writes. Their rounds are interleaved;
//! while one is measured, the others do not run, and their control planes are paused.

mod figures;
mod scenarios;
mod side;

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;

use crate::programs::Programs;

/// Sizes of the scenarios; 0 skips one.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sizes {
    /// Copies of podset with kinds of their own that `scale` restarts [default: 300]
    #[arg(long, value_name = "N")]
    podsets: Option<usize>,
    /// Small plugins with kinds of their own in `scale` [default: 1000]
    #[arg(long, value_name = "N")]
    plugins: Option<usize>,
    /// Objects of each of these plugins [default: 100]
    #[arg(long, value_name = "N")]
    objects: Option<usize>,
    /// Objects of one plugin in `scale` that list the same Nodes [default: 10000]
    #[arg(long, value_name = "N")]
    keys: Option<usize>,
    /// Small plugins in `scale` that are the host first, and then a ServiceAccount each [default: 100]
    #[arg(long, value_name = "N")]
    identities: Option<usize>,
}

/// Measures every scenario and prints its table.
pub(crate) async fn run(programs: &Programs, sizes: &Sizes, rounds: Option<NonZeroUsize>) -> Result<()> {
    let rounds = |default| rounds.map_or(default, NonZeroUsize::get);
    let Sizes { podsets, plugins, objects, keys, identities } = sizes;
    let hosts = &programs.hosts;
    let podsets = podsets.unwrap_or(300);
    if podsets > 0 {
        print!("{}", scenarios::podsets(hosts, podsets, rounds(3)).await?);
    }
    let (plugins, objects) = (plugins.unwrap_or(1_000), objects.unwrap_or(100));
    if plugins > 0 && objects > 0 {
        // Each round has two restarts of a hundred thousand keys, which take minutes.
        print!("{}", scenarios::fleet(hosts, plugins, objects, rounds(1)).await?);
    }
    let keys = keys.unwrap_or(10_000);
    if keys > 0 {
        print!("{}", scenarios::keys(hosts, keys, rounds(3)).await?);
    }
    let identities = identities.unwrap_or(100);
    if identities > 0 {
        print!("{}", scenarios::identities::run(hosts, identities, rounds(3)).await?);
    }
    Ok(())
}
