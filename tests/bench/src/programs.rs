//! What is measured, built: the plugins' components and the two operators. Cargo decides what there is to do; paths
//! come out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The programs that run as processes of their own.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) mortise: PathBuf,
    pub(crate) kube_rs: PathBuf,
}

/// The component of the podset plugin.
pub(crate) fn podset() -> Result<Vec<u8>> {
    plugin("podset")
}

/// The component of a plugin.
pub(crate) fn plugin(name: &str) -> Result<Vec<u8>> {
    let path = root().join(format!("target/plugins/{name}.wasm"));
    std::fs::read(&path).with_context(|| format!("read {}", path.display()))
}

/// The program that starts itself to compile components: this one, or the host where this one is a test.
pub(crate) fn compiler() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    if !cfg!(test) {
        return Ok(own);
    }
    let profile = own.ancestors().nth(2).context("find the folder of this profile")?;
    let host = profile.join("mortise");
    if !host.is_file() {
        bail!("{} is not there: cargo build -p mortise", host.display());
    }
    Ok(host)
}

/// Builds the plugins' components.
pub(crate) fn build_guests() -> Result<()> {
    cargo(&["xtask", "guests"])
}

/// Builds the operators in the profile that this program was built in.
pub(crate) fn build_operators() -> Result<()> {
    // One at a time: built together, the host would be given the features of the dependencies that only the peer needs.
    for selection in [&["--package", "mortise"][..], &["--package", "mortise-bench", "--bin", "kube-rs-podset"]] {
        let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
        cargo(&[&["build"], profile, selection].concat())?;
    }
    Ok(())
}

/// The built operators, which stand beside this program.
pub(crate) fn find_operators() -> Result<Programs> {
    let own = std::env::current_exe().context("find this program")?;
    let folder = own.parent().context("find the folder of this program")?;
    let program = |name: &str| {
        let path = folder.join(name);
        if !path.is_file() {
            bail!("{} is not there: run this without --no-build", path.display());
        }
        Ok(path)
    };
    Ok(Programs { mortise: program("mortise")?, kube_rs: program("kube-rs-podset")? })
}

fn cargo(args: &[&str]) -> Result<()> {
    let line = format!("cargo {}", args.join(" "));
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program).args(args).current_dir(root()).status().with_context(|| line.clone())?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package stands two folders below the workspace")
}
