//! `cargo xtask test deny`: holds the dependencies of each workspace to deny.toml, by cargo-deny. Advisories come from a database
//! that is fetched by git; without it the other checks run, and the output says what was not checked.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::checkout::{Checkout, execute};
use crate::guests::{PLUGINS, TEST_GUESTS};

/// Pinned, so that the same commit is checked alike on every machine.
const VERSION: &str = "0.20.2";
/// The checks of every workspace.
const COMMON: &[&str] = &["licenses", "sources"];

/// Runs every check that this machine can.
pub(crate) fn check(checkout: &Checkout) -> Result<()> {
    let program = program(checkout)?;
    let fetched = execute(checkout.tool(&program).args(["fetch", "db"]));
    let advisories = fetched.is_ok().then_some("advisories");
    // What lies twice in a guest is the guest's own matter.
    for (workspace, checks) in [(".", &["bans", "licenses", "sources"][..]), (PLUGINS, COMMON), (TEST_GUESTS, COMMON)] {
        let mut command = checkout.tool(&program);
        command
            .args(["--locked", "--config"])
            .arg(checkout.path("deny.toml"))
            .args(["check", "--hide-inclusion-graph"]);
        execute(command.args(checks).args(advisories).current_dir(checkout.path(workspace)))
            .with_context(|| format!("dependencies of {workspace}: mend it, or allow it in deny.toml with a reason"))?;
    }
    if let Err(error) = fetched {
        println!("ADVISORIES WERE NOT CHECKED, since their database cannot be fetched: {error:#}");
    }
    Ok(())
}

/// cargo-deny, installed when it is missing. Its build takes minutes, so it is kept where the control plane's binaries are.
fn program(checkout: &Checkout) -> Result<PathBuf> {
    let root = mortise_control_plane::cache_directory()?.join(format!("cargo-deny-{VERSION}"));
    let binary = root.join("bin/cargo-deny");
    if !binary.is_file() {
        println!("installing cargo-deny {VERSION} to {}, which takes minutes", root.display());
        let mut install = checkout.cargo();
        install.args(["install", "--locked", "--root"]).arg(&root).arg(format!("cargo-deny@{VERSION}"));
        execute(&mut install)?;
        ensure!(binary.is_file(), "cargo installed cargo-deny, but {} is missing", binary.display());
    }
    Ok(binary)
}
