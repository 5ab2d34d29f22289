//! `cargo xtask COMMAND`: everything that a person types to build, test and see mortise. It runs cargo, kubectl and the
//! binaries that they make; it links none of the host's crates, so that it starts at once and still works when the host
//! does not compile.

mod bench;
mod checkout;
mod control_plane;
mod demo;
mod generated;
mod guests;
mod suite;
mod tally;
mod terminal;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::checkout::Checkout;
use crate::suite::Extent;

const HELP: &str = "\
Usage: cargo xtask COMMAND

Commands:
  demo [--all] [--keep]
                     Show mortise at work on a real control plane: a plugin arrives in a ConfigMap, makes Pods, heals
                     them, and is replaced while it runs. --all goes on with the other systems under plugins/, one after
                     another. --keep leaves all up until Ctrl-C, for your own kubectl.
  test [--full] [FILTER]
                     Everything that must hold: formatting, lints, generated files, unit tests, simulation, end to end.
                     FILTER names one step, or a part of the names of integration tests (such as `e2e`). With --full,
                     the end-to-end tests that take longer the more they do get the numbers of a release, which is
                     minutes more: 100 kills of the host, 200 PodSets and 20 reloads under load, 300 PodSets and 60 s
                     of quiet, an API server away for 60 s, 50 nodes that come and go for 120 s (MORTISE_E2E_KILLS,
                     _RELOAD_SETS, _RELOADS, _QUIET_SETS, _IDLE_S, _OUTAGE_S, _NODES, _NODES_S; what the environment
                     sets of these stays as it is).
  guests             Build the plugins to target/plugins/NAME.wasm, and the tests' guests to target/test-guests.
  bench [ARGS...]    Measure. ARGS go to the benchmark; `cargo xtask bench --help` lists them.
  gen [--check]      Write the generated parts of deploy/ anew; with --check, fail when they differ.
  help               This text.

The first run builds a Kubernetes control plane from Go modules, which takes minutes; it is kept in $MORTISE_CACHE or the
user's cache directory for all later ones.
";

fn main() -> ExitCode {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<ExitCode> {
    let checkout = Checkout::here()?;
    let done = match args {
        ["demo", options @ ..] if let Some((length, after)) = demo::options(options) => {
            demo::run(&checkout, length, after)
        }
        ["test", "--full"] => return suite::run(&checkout, None, Extent::Full),
        ["test", "--full", filter] if !filter.starts_with('-') => {
            return suite::run(&checkout, Some(filter), Extent::Full);
        }
        ["test"] => return suite::run(&checkout, None, Extent::Quick),
        ["test", filter] if !filter.starts_with('-') => return suite::run(&checkout, Some(filter), Extent::Quick),
        ["guests"] => guests::build(&checkout),
        ["bench", rest @ ..] => bench::run(&checkout, rest),
        ["gen"] => generated::write(&checkout),
        ["gen", "--check"] => generated::check(&checkout),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => bail!("no command was given\n\n{HELP}"),
        _ => bail!("`cargo xtask {}` is not a command\n\n{HELP}", args.join(" ")),
    };
    done.map(|()| ExitCode::SUCCESS)
}
