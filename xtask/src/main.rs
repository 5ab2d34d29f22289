//! `cargo xtask COMMAND`: builds, tests and demonstrates mortise. It runs cargo, kubectl and the binaries that they
//! make; it links none of the host's crates, so it starts at once and works when the host does not compile.

mod checkout;
mod control_plane;
mod demo;
mod deny;
mod dev;
mod fuzz;
mod generated;
mod guests;
mod kubernetes_documents;
mod sbom;
mod suite;
mod summary;
mod terminal;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::checkout::{Checkout, execute};
use crate::suite::{Extent, RunOn};

const HELP: &str = "\
Usage: cargo xtask COMMAND

Commands:
  dev [DIR...] [OPTIONS]
                     Run plugins while you write them, on a local cluster in the same process: `mortise dev`, for podset
                     unless a folder is named. It needs neither Go nor kubectl. OPTIONS are those of `mortise dev`, as
                     --plain for lines instead of a screen; a value follows after an equals sign, as --state=FOLDER.
  demo [--all] [--keep]
                     Show mortise on a real control plane: install a plugin, create its Pods, delete one, replace the
                     plugin while it runs. --all shows the other plugins under plugins/ too, one after another. --keep
                     leaves everything running until Ctrl-C, for your own kubectl.
  test [--full] [--on local] [FILTER]
                     All checks: formatting, lints, dependencies, generated files, tests of all kinds. FILTER names one
                     step, or a part of the names of integration tests (such as `e2e`). --full gives the end-to-end tests
                     that scale the numbers of a release, which takes minutes more: 100 kills of the host, 200 PodSets
                     and 20 reloads under load, 300 PodSets and 60 s of quiet, 60 s without API server, 50 nodes that
                     come and go for 120 s (MORTISE_E2E_KILLS, _RELOAD_SETS, _RELOADS, _QUIET_SETS, _IDLE_S, _OUTAGE_S,
                     _NODES, _NODES_S, _HOSTILES; variables that are set already take precedence). --on local runs the tests on
                     `mortise cluster` instead of Kubernetes' own binaries, which takes no Go (MORTISE_E2E_ON=local); a few
                     that need these are named and left out. Without network the dependencies' advisories are not checked,
                     which the output says; with MORTISE_REQUIRE_ADVISORIES=1 that fails.
  guests             Build the plugins to target/plugins/NAME.wasm, and the tests' guests to target/test-guests.
  bench [ARGS...]    Measure. ARGS are the benchmark's; `cargo xtask bench --help` lists them.
  fuzz TARGET [--seconds N | --minutes N]
                     Look for inputs that break a promise of what reads text of others, for a minute or N seconds: config-map,
                     outcome, admission, conversion, watch, manifest or http-response. `fuzz TARGET FILE` runs one input, and `fuzz TARGET --minimise`
                     replaces the corpus in git by the small inputs that reach most. See tests/fuzz/README.md.
  gen [--check]      Regenerate the generated parts of deploy/ and the local cluster's documents of Kubernetes; with
                     --check, fail when they differ.
  sbom [FILE]        Print the software bill of materials of the binary mortise as CycloneDX 1.6 JSON, or write it to FILE.
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
        ["dev", arguments @ ..] => dev::run(&checkout, arguments),
        ["demo", options @ ..] if let Some((length, after)) = demo::options(options) => {
            demo::run(&checkout, length, after)
        }
        ["test", options @ ..] if let Some((extent, run_on, filter)) = test_options(options) => {
            return suite::run(&checkout, filter, extent, run_on);
        }
        ["guests"] => guests::build(&checkout),
        ["bench", rest @ ..] => {
            execute(checkout.cargo().args(["run", "--release", "--package", "mortise-bench", "--"]).args(rest))
        }
        ["fuzz", options @ ..] if let Some((target, act)) = fuzz::options(options) => fuzz::run(&checkout, target, act),
        ["gen"] => generated::write(&checkout),
        ["gen", "--check"] => generated::check(&checkout),
        ["sbom"] => sbom::run(&checkout, None),
        ["sbom", file] if !file.starts_with('-') => sbom::run(&checkout, Some(file)),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => bail!("a command is missing\n\n{HELP}"),
        _ => bail!("`cargo xtask {}` is not a command\n\n{HELP}", args.join(" ")),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The options of `test` and its filter, in any order; none if one is unknown or there is a second filter.
fn test_options<'a>(options: &[&'a str]) -> Option<(Extent, RunOn, Option<&'a str>)> {
    let (mut extent, mut run_on, mut filter) = (Extent::Quick, RunOn::Kubernetes, None);
    let mut rest = options;
    loop {
        rest = match rest {
            [] => return Some((extent, run_on, filter)),
            ["--full", rest @ ..] => {
                extent = Extent::Full;
                rest
            }
            ["--on", "local", rest @ ..] => {
                run_on = RunOn::Local;
                rest
            }
            [word, rest @ ..] if filter.is_none() && !word.starts_with('-') => {
                filter = Some(*word);
                rest
            }
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_test_come_in_any_order() {
        let local = Some((Extent::Full, RunOn::Local, Some("e2e")));
        assert_eq!(test_options(&["e2e", "--on", "local", "--full"]), local);
        assert_eq!(test_options(&["--full", "--on", "local", "e2e"]), local);
        assert_eq!(test_options(&[]), Some((Extent::Quick, RunOn::Kubernetes, None)));
        for wrong in [&["--on"][..], &["--on", "mars"], &["--quick"], &["a", "b"]] {
            assert_eq!(test_options(wrong), None, "{wrong:?}");
        }
    }
}
