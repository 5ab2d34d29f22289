//! `cargo xtask dev`: builds the host and runs `mortise dev`. It needs rustup alone: no Go, no kubectl, no cluster.

use anyhow::Result;

use crate::checkout::{Checkout, execute};
use crate::guests;

/// The plugin that is shown when none is named.
const FIRST: &str = "plugins/podset";
/// The options of `mortise dev` whose value may be the next argument.
const WITH_VALUES: [&str; 4] = ["--kubeconfig", "--log-level", "--nodes", "--state"];

/// Runs `mortise dev` with these arguments, on the first plugin when they name no folder.
pub(crate) fn run(checkout: &Checkout, arguments: &[&str]) -> Result<()> {
    guests::ensure_target(checkout)?;
    // Without the allocator, whose C takes minutes to compile and whose gain shows after hours.
    let host = checkout.build_host(&["--no-default-features"])?;
    let mut command = checkout.tool(&host);
    command.arg("dev").args(arguments);
    if !name_a_folder(arguments) {
        command.arg(FIRST);
    }
    execute(&mut command)
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
