//! The checkout that xtask works in: its paths, its cargo, and the one way to run a command of which only success
//! matters.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};

/// Paths of the checkout.
#[derive(Debug)]
pub(crate) struct Checkout {
    root: PathBuf,
    target: PathBuf,
}

impl Checkout {
    /// The checkout that this binary was built from.
    pub(crate) fn here() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lives in the checkout's root")?;
        if !root.join("Cargo.toml").is_file() {
            bail!("{} is gone: run `cargo xtask` inside a checkout", root.display());
        }
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root: root.to_owned(), target })
    }

    /// A path from the checkout's root.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// A path below cargo's target directory.
    pub(crate) fn target(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.target.join(relative)
    }

    /// The path as seen from the checkout's root, for people and for commands that run there.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }

    /// The cargo that runs this xtask, in the checkout's root.
    pub(crate) fn cargo(&self) -> Command {
        self.tool(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Any program, in the checkout's root.
    pub(crate) fn tool(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // Settings that `cargo run` made for xtask would count as changes to other packages and rebuild them.
        for (name, _) in env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Builds the host and returns its binary.
    pub(crate) fn build_host(&self) -> Result<PathBuf> {
        execute(self.cargo().args(["build", "--package", "mortise"]))?;
        let binary = self.target("debug/mortise");
        if !binary.is_file() {
            bail!("cargo built the package mortise, but left no {}", binary.display());
        }
        Ok(binary)
    }
}

/// The command as a person would type it, for errors and echoes.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy());
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// The word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Starts a command; a program that is not installed is an error that says where to get it.
pub(crate) fn start(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| {
        let missing = error.kind() == ErrorKind::NotFound;
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let error = anyhow::Error::new(error).context(format!("run `{}`", line(command)));
        match name.as_str() {
            "cargo" | "rustc" | "rustup" if missing => {
                error.context(format!("`{name}` is not on the PATH: install Rust with rustup (https://rustup.rs)"))
            }
            _ => error,
        }
    })
}

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let status = start(command)?.wait().with_context(|| format!("wait for `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_command_can_be_typed_again() {
        let mut command = Command::new("/usr/bin/kubectl");
        command.args(["get", "pods", "-o", "jsonpath={.status}", "it's", ""]);
        assert_eq!(line(&command), r"kubectl get pods -o 'jsonpath={.status}' 'it'\''s' ''");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = execute(&mut Command::new("no-such-program-anywhere")).unwrap_err();
        assert!(format!("{error:#}").contains("run `no-such-program-anywhere`"), "{error:#}");
    }
}
