//! The checkout: its paths, its cargo, and how to run a command whose success alone matters.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};

pub(crate) struct Checkout {
    root: PathBuf,
    target: PathBuf,
}

impl Checkout {
    /// The checkout that this binary was built from.
    pub(crate) fn here() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
        if !root.join("Cargo.toml").is_file() {
            bail!("{} does not exist: run `cargo xtask` inside a checkout", root.display());
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

    /// The path relative to the checkout's root.
    pub(crate) fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }

    pub(crate) fn cargo(&self) -> Command {
        self.tool(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    pub(crate) fn tool(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // Variables that `cargo run` sets for xtask would count as changes to other packages and rebuild them.
        for (name, _) in env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Builds the host with these flags. Its dependencies have the features that the tests build them with: otherwise most of
    /// them are compiled once more.
    pub(crate) fn build_host(&self, flags: &[&str]) -> Result<PathBuf> {
        execute(self.cargo().args(["build", "--workspace", "--bin", "mortise"]).args(flags))?;
        let binary = self.target("debug/mortise");
        if !binary.is_file() {
            bail!("cargo built the package mortise, but {} is missing", binary.display());
        }
        Ok(binary)
    }
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy());
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Starts a command. The error for a missing program says where to get it.
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

/// Runs a command to its end, with this process's output.
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
    fn an_echoed_command_is_quoted_for_a_shell() {
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
