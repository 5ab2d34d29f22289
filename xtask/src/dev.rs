//! `cargo xtask dev`: builds the host and runs `mortise dev`. It needs rustup alone: no Go, no kubectl, no cluster.

use std::env;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use crate::checkout::{Checkout, execute, start};
use crate::guests;

/// The plugin that is shown when none is named.
const FIRST: &str = "plugins/podset";
/// How `mortise dev` builds a plugin.
const PROFILE: &str = include_str!("../../host/dev/src/plugin-profile.env");
/// The options of `mortise dev` whose value may be the next argument.
const WITH_VALUES: [&str; 4] = ["--kubeconfig", "--log-level", "--nodes", "--state"];

/// Runs `mortise dev` with these arguments, on the first plugin when they name no folder.
pub(crate) fn run(checkout: &Checkout, arguments: &[&str]) -> Result<()> {
    guests::ensure_target(checkout)?;
    let first = (!name_a_folder(arguments)).then(|| begin_first(checkout)).transpose()?;
    // Without the allocator, whose C takes minutes to compile and whose gain shows after hours.
    let host = checkout.build_host(&["--no-default-features"])?;
    let mut command = checkout.tool(&host);
    command.arg("dev").args(arguments);
    if let Some(mut first) = first {
        command.arg(FIRST);
        // Whether it failed `mortise dev` finds out, and shows.
        first.wait().with_context(|| format!("wait for the build of {FIRST}"))?;
    }
    execute(&mut command)
}

/// Begins with the plugin, as `mortise dev` builds it: beside a crate of the host that takes minutes, a core has nothing to do.
fn begin_first(checkout: &Checkout) -> Result<Child> {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.path(guests::PLUGINS).join("target"), Into::into);
    let mut cargo = checkout.cargo();
    cargo.args(["build", "--quiet", "--lib", "--release", "--target", guests::TARGET, "--target-dir"]);
    cargo.arg(checkout.path(target).join("mortise-dev")).current_dir(checkout.path(FIRST));
    cargo.envs(PROFILE.lines().filter_map(|line| line.split_once('=')));
    start(cargo.stdin(Stdio::null()).stderr(Stdio::null()))
}

/// Whether the arguments of `mortise dev` name a folder: one that is neither an option nor an option's value.
fn name_a_folder(arguments: &[&str]) -> bool {
    let is_value = |at: usize| at > 0 && WITH_VALUES.contains(&arguments[at - 1]);
    arguments.iter().enumerate().any(|(at, argument)| !argument.starts_with('-') && !is_value(at))
}

#[cfg(test)]
mod tests {
    use super::name_a_folder;

    #[test]
    fn the_value_of_an_option_is_no_folder() {
        for (line, named) in [
            ("", false),
            ("--nodes 3", false),
            ("--plain --kubeconfig a/b --log-level=debug", false),
            ("--nodes 3 plugins/drain", true),
            ("plugins/drain --plain", true),
            ("--nodes=3 plugins/drain", true),
        ] {
            let arguments: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(name_a_folder(&arguments), named, "{line}");
        }
    }
}
