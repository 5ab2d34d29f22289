//! `cargo xtask dev`: builds the host and runs `mortise dev`. It needs rustup alone: no Go, no kubectl, no cluster.

use anyhow::Result;

use crate::checkout::{Checkout, execute};
use crate::guests;

/// The plugin that is shown when none is named.
const FIRST: &str = "plugins/podset";

/// Runs `mortise dev` with these arguments, on the first plugin when they name no folder.
pub(crate) fn run(checkout: &Checkout, arguments: &[&str]) -> Result<()> {
    guests::ensure_target(checkout)?;
    let host = checkout.build_host()?;
    let mut command = checkout.tool(&host);
    command.arg("dev").args(arguments);
    if arguments.iter().all(|argument| argument.starts_with('-')) {
        command.arg(FIRST);
    }
    execute(&mut command)
}
