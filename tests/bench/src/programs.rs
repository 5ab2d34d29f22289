//! Builds what is measured: the guests' components, the hosts, and the kube-rs operator.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// A letter in the order of the command line: "A".
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// Its guests: the folder `guests` beside a host of another version of the contract, else this tree's.
    guests: PathBuf,
}

impl Host {
    pub(crate) fn plugin(&self, name: &str) -> Result<Vec<u8>> {
        component(&self.guests, &format!("plugins/{name}.wasm"))
    }

    /// The component of a guest of the tests and benchmarks.
    pub(crate) fn test_guest(&self, name: &str) -> Result<Vec<u8>> {
        component(&self.guests, &format!("test-guests/{name}.wasm"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// Not empty.
    pub(crate) hosts: Vec<Host>,
    pub(crate) kube_rs: PathBuf,
}

impl Programs {
    /// The given hosts, else the one in this program's folder, where the kube-rs operator is.
    pub(crate) fn find(hosts: &[PathBuf]) -> Result<Self> {
        let own = std::env::current_exe().context("locate this program")?;
        let folder = own.parent().context("locate the folder of this program")?;
        let hosts = if hosts.is_empty() { vec![folder.join("mortise")] } else { hosts.to_vec() };
        ensure!(hosts.len() <= 26, "{} hosts are more than 26", hosts.len());
        let named = |(letter, program): (char, PathBuf)| {
            if !program.is_file() {
                bail!(
                    "{} does not exist: name a host that is built, or run this without --no-build",
                    program.display()
                );
            }
            let guests = program.with_file_name("guests");
            let guests = if guests.is_dir() { guests } else { root().join("target") };
            Ok(Host { name: letter.into(), program, guests })
        };
        let hosts = ('A'..='Z').zip(hosts).map(named).collect::<Result<_>>()?;
        Ok(Self { hosts, kube_rs: folder.join("kube-rs-podset") })
    }
}

/// A component of this tree.
pub(crate) fn own_component(path: &str) -> Result<Vec<u8>> {
    component(&root().join("target"), path)
}

fn component(guests: &Path, path: &str) -> Result<Vec<u8>> {
    let path = guests.join(path);
    std::fs::read(&path).with_context(|| format!("read {}", path.display()))
}

/// The program that compiles components in a child process: this one, or the host if this is a test.
pub(crate) fn compiler() -> Result<PathBuf> {
    let own = std::env::current_exe().context("locate this program")?;
    if !cfg!(test) {
        return Ok(own);
    }
    let profile = own.ancestors().nth(2).context("locate the folder of this profile")?;
    let host = profile.join("mortise");
    if !host.is_file() {
        bail!("{} does not exist: cargo build -p mortise", host.display());
    }
    Ok(host)
}

pub(crate) fn build_guests() -> Result<()> {
    cargo(&["xtask", "guests"])
}

pub(crate) fn build_host() -> Result<()> {
    build(&["--package", "mortise"])
}

/// Builds the kube-rs operator, separately from the host, which would otherwise get the features of its dependencies.
pub(crate) fn build_kube_rs() -> Result<()> {
    build(&["--package", "mortise-bench", "--bin", "kube-rs-podset"])
}

fn build(selection: &[&str]) -> Result<()> {
    let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
    cargo(&[&["build"], profile, selection].concat())
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
    here.ancestors().nth(2).expect("this package is two folders below the workspace")
}
