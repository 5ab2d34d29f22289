//! The benchmarks: what mortise costs in time, memory and requests, each beside a figure that it is to be compared
//! with. A part is chosen on the command line; tables come out. `--help` names the parts.
//!
//! Figures are medians of rounds that are interleaved, so that what else the machine does hits all rows alike, and each
//! table says how far the rounds of one row lie apart. Counts (fuel, allocations, page faults, requests) do not wobble.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod admission;
mod allocations;
mod cluster;
mod latency;
mod measure;
mod memory;
mod micro;
mod observer;
mod operator;
mod peer;
mod programs;
mod sample;
mod table;
mod variant;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// The hidden first argument with which this program starts itself to compile a plugin, as the host does.
const COMPILE: &str = "compile-component";

/// Measures mortise: in one process, against a real control plane, and beside the same operator written with kube-rs.
#[derive(Debug, Parser)]
#[command(after_help = "\
Everything is built as a release first. The parts other than `micro` start a control plane of their own on loopback.
Run them on a quiet machine: a row whose rounds disagree by more than 5 per cent is marked as noisy.")]
struct Arguments {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    part: Part,
    /// Rounds to take the median of [default: 11 for micro, 3 for the others]
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// Measure what was built before, without looking whether it is up to date
    #[arg(long)]
    no_build: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// One reconcile, one driver step, one watch event, one snapshot, in this process
    Micro,
    /// Anonymous memory per idle plugin and per cached Pod
    Memory,
    /// From an event to the write that follows it, on a real control plane
    Latency,
    /// From a question of the API server before it stores an object to the answer
    Admission,
    /// The same operator with mortise and with kube-rs, on one API server
    Peer,
    /// All of them
    All,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(COMPILE)) {
        return mortise_wasm::compile::child_main();
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let chosen = |part| arguments.part == part || arguments.part == Part::All;
    let rounds = |default| arguments.rounds.map_or(default, NonZeroUsize::get);
    if cfg!(debug_assertions) {
        println!(
            "This build is not optimised: it shows that the benchmarks work, and no figure of it means anything.\n"
        );
    }
    if !arguments.no_build {
        programs::build_guests()?;
    }
    if chosen(Part::Micro) {
        micro::run(rounds(11))?;
    }
    if arguments.part == Part::Micro {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if !arguments.no_build {
        programs::build_operators()?;
    }
    let programs = programs::find_operators()?;
    if chosen(Part::Memory) {
        runtime.block_on(memory::run(&programs, rounds(3)))?;
    }
    if chosen(Part::Latency) {
        runtime.block_on(latency::run(&programs, rounds(3)))?;
    }
    if chosen(Part::Admission) {
        runtime.block_on(admission::run(&programs, rounds(3)))?;
    }
    if chosen(Part::Peer) {
        runtime.block_on(peer::run(&programs, rounds(3)))?;
    }
    Ok(())
}
