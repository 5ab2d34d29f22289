//! The benchmarks: mortise's cost in time, memory and requests, each next to a figure to compare it with. `--help`
//! names the parts.
//!
//! Figures are medians of interleaved rounds, so that other load on the machine affects all rows alike, and each table
//! says how far the rounds of a row differ. Counts (fuel, allocations, page faults, requests) are exact.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod admission;
mod allocations;
mod cluster;
mod latency;
mod local;
mod measure;
mod memory;
mod metrics;
mod micro;
mod observer;
mod operator;
mod peer;
mod programs;
mod reader;
mod sample;
mod scale;
mod table;
mod variant;

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use self::programs::Programs;
use self::scale::Sizes;

/// The hidden first argument with which this program, as the host, starts itself to compile a plugin.
const COMPILE: &str = "compile-component";

/// Measures mortise: in one process, against a real control plane, and beside the same operator written with kube-rs.
#[derive(Debug, Parser)]
#[command(after_help = "\
Builds everything in release mode first. All parts other than `micro` and `local` start a control plane of their own on loopback.
Run them on an idle machine: a row whose rounds differ by more than 5 per cent is marked as noisy.")]
struct Arguments {
    /// What to measure [default: scale if --plugins is given, else all]
    #[arg(value_enum)]
    part: Option<Part>,
    /// Rounds, of which the median counts [default: 11 for micro, 3 for the others; `scale` repeats only the cheap
    /// ones]
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,
    /// A host to measure; with several, `scale` and `peer` interleave their rounds, and the other parts run one host
    /// after the other [default: the release build of this tree]
    #[arg(long, value_name = "PATH")]
    host: Vec<PathBuf>,
    #[command(flatten)]
    sizes: Sizes,
    /// Measure the existing build
    #[arg(long)]
    no_build: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// One reconcile, one engine step, one watch event, one snapshot, in this process
    Micro,
    /// Anonymous memory per idle plugin and per cached Pod
    Memory,
    /// From an event to the write that follows it, on a real control plane
    Latency,
    /// From an AdmissionReview to its response
    Admission,
    /// The same operator with mortise and with kube-rs, on one API server
    Peer,
    /// The local cluster under load: 20,000 Pods created, listed and watched, its start, its memory and its copies
    Local,
    /// Costs that grow with plugins and keys: starts, memory, and events for few of them
    Scale,
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
    let is_sized = arguments.sizes != Sizes::default();
    let part = arguments.part.unwrap_or(if is_sized { Part::Scale } else { Part::All });
    let chosen = |wanted| part == wanted || part == Part::All;
    let rounds = |default| arguments.rounds.map_or(default, NonZeroUsize::get);
    if cfg!(debug_assertions) {
        println!("This program is not optimised: the figures of `micro` are meaningless.\n");
    }
    if !arguments.no_build {
        programs::build_guests()?;
    }
    if chosen(Part::Micro) {
        micro::run(rounds(11))?;
    }
    if part == Part::Micro {
        return Ok(());
    }
    if !arguments.no_build && arguments.host.is_empty() {
        programs::build_host()?;
    }
    if !arguments.no_build && chosen(Part::Peer) {
        programs::build_kube_rs()?;
    }
    let programs = Programs::find(&arguments.host)?;
    for host in &programs.hosts {
        println!("\nHost {}: {}", host.name, host.program.display());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for host in &programs.hosts {
            if chosen(Part::Memory) {
                memory::run(host, rounds(3)).await?;
            }
            if chosen(Part::Latency) {
                latency::run(host, rounds(3)).await?;
            }
            if chosen(Part::Admission) {
                admission::run(host, rounds(3)).await?;
            }
        }
        if chosen(Part::Local) {
            local::run(&programs.hosts, rounds(3)).await?;
        }
        if chosen(Part::Peer) {
            peer::run(&programs, rounds(3)).await?;
        }
        if chosen(Part::Scale) {
            scale::run(&programs, &arguments.sizes, arguments.rounds).await?;
        }
        Ok(())
    })
}
