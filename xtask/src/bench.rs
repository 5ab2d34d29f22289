//! `cargo xtask bench`: hands over to the benchmark crate, built as a release, since what an unoptimised build takes
//! tells nobody anything.

use anyhow::Result;

use crate::checkout::{Checkout, execute};

pub(crate) fn run(checkout: &Checkout, args: &[&str]) -> Result<()> {
    execute(checkout.cargo().args(["run", "--release", "--package", "mortise-bench", "--"]).args(args))
}
