//! `cargo xtask test deny`: holds the dependencies of each workspace to deny.toml, by cargo-deny. Advisories come from a database
//! that is fetched by git; without it the other checks run, and the output says what was not checked, or with [`REQUIRE`] the step
//! fails.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::checkout::{Checkout, execute};
use crate::guests::{PLUGINS, TEST_GUESTS};

/// Pinned, so that the same commit is checked alike on every machine.
const VERSION: &str = "0.20.2";
/// Set to 1 where the database can always be fetched, so that a check without it is no check.
const REQUIRE: &str = "MORTISE_REQUIRE_ADVISORIES";
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
    let is_required = env::var_os(REQUIRE).is_some_and(|value| !value.is_empty() && value != "0");
    fetched.or_else(|error| without_advisories(&error, is_required))
}

fn without_advisories(error: &anyhow::Error, is_required: bool) -> Result<()> {
    let unchecked = format!("ADVISORIES WERE NOT CHECKED, since their database cannot be fetched: {error:#}");
    if is_required {
        bail!("{unchecked}; {REQUIRE} is set, so that this is an error");
    }
    println!("{unchecked}");
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

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn advisories_that_cannot_be_fetched_are_an_error_where_they_are_required() {
        let error = anyhow!("no network");
        without_advisories(&error, false).expect("a third party that is away fails no change");
        let required = without_advisories(&error, true).expect_err("it was checked").to_string();
        assert!(required.contains("no network") && required.contains(REQUIRE), "{required}");
    }
}
