//! What grows with plugins and with keys, on a real control plane: starts, restarts, memory, and events that concern few of
//! them. `scale/side.rs` runs one host and says what it used, `scale/scenes.rs` has the situations that it is measured in,
//! `scale/figures.rs` sets the hosts beside each other; here is the order.
//!
//! Each host has a control plane of its own, since what one writes the next would write anew. Their rounds are
//! interleaved; while one is measured, the others do not run, and their control planes are stopped where they stand.

mod figures;
mod scenes;
mod side;

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;

use crate::programs::Programs;

/// How large the situations are; 0 leaves one out.
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
}

/// Measures every situation and prints its table when it is done.
pub(crate) async fn run(programs: &Programs, sizes: &Sizes, rounds: Option<NonZeroUsize>) -> Result<()> {
    let rounds = |default| rounds.map_or(default, NonZeroUsize::get);
    let Sizes { podsets, plugins, objects, keys } = sizes;
    let hosts = &programs.hosts;
    let podsets = podsets.unwrap_or(300);
    if podsets > 0 {
        print!("{}", scenes::podsets(hosts, podsets, rounds(3)).await?);
    }
    let (plugins, objects) = (plugins.unwrap_or(1_000), objects.unwrap_or(100));
    if plugins > 0 && objects > 0 {
        // Each round has two restarts of a hundred thousand keys, which are minutes.
        print!("{}", scenes::fleet(hosts, plugins, objects, rounds(1)).await?);
    }
    let keys = keys.unwrap_or(10_000);
    if keys > 0 {
        print!("{}", scenes::keys(hosts, keys, rounds(3)).await?);
    }
    Ok(())
}
