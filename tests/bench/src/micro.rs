//! The cost of one step, in this process: decode and index a watch event, step the engine, take a snapshot, call a
//! guest in a fresh instance; and the same with many plugins, keys or objects. `micro/` has one file per step; this one
//! runs the rounds and prints the tables.

mod cycle;
mod decode;
mod plugin;
mod readers;
mod reconcile;
mod snapshot;
mod step;

use anyhow::Result;

use crate::measure::{self, Figure};
use crate::sample;
use crate::table::{Table, rating, time};

/// Measures all cases in interleaved rounds and prints the tables.
pub(crate) fn run(rounds: usize) -> Result<()> {
    let podset = plugin::Podset::compile(false)?;
    let small = reconcile::Setup::new(&podset, None)?;
    let large = reconcile::Setup::new(&podset, Some(sample::template()))?;
    let cycle = step::converged(&podset)?;
    let texts = decode::Texts::new();
    let stores = snapshot::stores()?;

    let mut cases = Vec::new();
    reconcile::cases(&small, &large, &mut cases);
    step::cases(&cycle, &mut cases);
    decode::cases(&texts, &mut cases)?;
    snapshot::cases(&stores, &mut cases);
    let figures = measure::rounds(&mut cases, rounds)?;
    drop(cases);
    print!("{}", times("One step", &figures, rounds));
    print!("{}", reconcile::counts(&small)?);
    drop((cycle, stores));

    let crowds = step::crowds(&podset)?;
    let (listing, shared) = (readers::Readers::new(1, true), readers::shared());
    let keys = listing.converged()?;
    let mut cases = Vec::new();
    step::crowd_cases(&crowds, &mut cases);
    readers::cases(&listing, &keys, &shared, &mut cases);
    let figures = measure::rounds(&mut cases, rounds)?;
    drop(cases);
    print!("{}", times("Among many", &figures, rounds));
    Ok(())
}

fn times(what: &str, figures: &[Figure], rounds: usize) -> Table {
    let title = format!("{what} (medians of {rounds} interleaved rounds; halves: even rounds divided by odd ones)");
    let mut table = Table::new(title, &["operation", "time", "halves", "allocations", "target", ""]);
    for figure in figures {
        let noisy = if figure.is_noisy() { " noisy" } else { "" };
        let target = figure.target.map(|target| target.as_nanos() as f64);
        table.row([
            figure.name.clone(),
            time(figure.ns),
            format!("{:.2}", figure.halves),
            format!("{:.1}", figure.allocations),
            target.map_or_else(String::new, |target| format!("<= {}", time(target))),
            format!("{}{noisy}", rating(figure.ns, target)),
        ]);
    }
    table
}
