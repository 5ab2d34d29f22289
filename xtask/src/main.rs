//! `cargo xtask COMMAND`: builds, tests and demonstrates mortise. It runs cargo, kubectl and the binaries that they
//! make; it links none of the host's crates, so it starts at once and works when the host does not compile.

mod checkout;
mod control_plane;
mod demo;
mod generated;
mod guests;
mod kubernetes_documents;
mod suite;
mod summary;
mod terminal;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::checkout::{Checkout, execute};
use crate::suite::Extent;

const HELP: &str = "\
Usage: cargo xtask COMMAND

Commands:
  demo [--all] [--keep]
                     Show mortise on a real control plane: install a plugin, create its Pods, delete one, replace the
                     plugin while it runs. --all shows the other plugins under plugins/ too, one after another. --keep
                     leaves everything running until Ctrl-C, for your own kubectl.
  test [--full] [FILTER]
                     All checks: formatting, lints, generated files, unit tests, simulation, end to end. FILTER names one
                     step, or a part of the names of integration tests (such as `e2e`). --full gives the end-to-end tests
                     that scale the numbers of a release, which takes minutes more: 100 kills of the host, 200 PodSets
                     and 20 reloads under load, 300 PodSets and 60 s of quiet, 60 s without API server, 50 nodes that
                     come and go for 120 s (MORTISE_E2E_KILLS, _RELOAD_SETS, _RELOADS, _QUIET_SETS, _IDLE_S, _OUTAGE_S,
                     _NODES, _NODES_S; variables that are set already take precedence).
  guests             Build the plugins to target/plugins/NAME.wasm, and the tests' guests to target/test-guests.
  bench [ARGS...]    Measure. ARGS are the benchmark's; `cargo xtask bench --help` lists them.
  gen [--check]      Regenerate the generated parts of deploy/ and the local cluster's documents of Kubernetes; with
                     --check, fail when they differ.
  help               This text.

The first run builds a Kubernetes control plane from Go modules, which takes minutes; later runs find it in $MORTISE_CACHE
or the user's cache directory.
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
        ["bench", rest @ ..] => {
            execute(checkout.cargo().args(["run", "--release", "--package", "mortise-bench", "--"]).args(rest))
        }
        ["gen"] => generated::write(&checkout),
        ["gen", "--check"] => generated::check(&checkout),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => bail!("a command is missing\n\n{HELP}"),
        _ => bail!("`cargo xtask {}` is not a command\n\n{HELP}", args.join(" ")),
    };
    done.map(|()| ExitCode::SUCCESS)
}
