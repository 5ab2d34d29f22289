//! The Go toolchain: its version, the folder of a module, and a build that reports its progress.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::progress::Progress;

/// The advice to a user without Go. The version is that of the `go.mod` files.
const INSTALL: &str = "install Go 1.26 or newer (https://go.dev/dl) and put `go` on the PATH: the control plane for the \
                       tests and the demo is built from Go modules";

/// Interval of reports while Go prints nothing, as when it links.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Lines of a failed build to show: Go prints the cause last, after a list of compiled packages.
const ERROR_LINES: usize = 20;

/// The `go` command in a module's directory, without the user's settings that would change the build.
fn command(module: &Path) -> Command {
    let mut command = Command::new("go");
    // No cgo, so that no C compiler is needed.
    command.current_dir(module).env("GOFLAGS", "").env("GOWORK", "off").env("CGO_ENABLED", "0");
    command
}

fn output(mut command: Command, what: &str) -> Result<String> {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("`go` is not on the PATH: {INSTALL}"),
        Err(error) => return Err(error).with_context(|| format!("run {what}")),
    };
    if !output.status.success() {
        bail!("{what} failed (if Go is old, {INSTALL}): {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The toolchain that builds this module, and its target. Run in the module's directory, since Go may fetch the newer
/// toolchain that `go.mod` requires.
pub(crate) fn toolchain(module: &Path) -> Result<String> {
    let mut env = command(module);
    env.args(["env", "GOVERSION", "GOOS", "GOARCH"]);
    // Go before 1.21 fails here, since it cannot fetch a newer toolchain.
    output(env, "go env")
}

/// The folder of a module that the module in `module` requires, in Go's module cache.
pub fn module_dir(module: &Path, path: &str) -> Result<PathBuf> {
    let mut list = command(module);
    list.args(["list", "-m", "-f", "{{.Dir}}", path]);
    let dir = output(list, &format!("go list -m {path}"))?;
    if dir.is_empty() {
        bail!("the module cache lacks {path}: run `go mod download` in {}", module.display());
    }
    Ok(dir.into())
}

pub(crate) fn build<S: AsRef<OsStr>>(
    module: &Path,
    flags: &[String],
    packages: &[S],
    into: &Path,
    what: &str,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    let mut build = command(module);
    build.args(["build", "-v"]).args(flags).arg("-o").arg(into.join("")).args(packages);
    let mut child = build
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run go build for {what}"))?;
    let stderr = child.stderr.take().expect("the command above pipes its standard error");
    let (lines, received) = mpsc::channel();
    // The thread ends with the child, whose standard error it reads to the end.
    let reader = thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).take_while(|line| lines.send(line.clone()).is_ok()).count()
    });

    let start = Instant::now();
    let (mut tail, mut compiled) = (VecDeque::with_capacity(ERROR_LINES), 0);
    loop {
        match received.recv_timeout(REPORT_EVERY) {
            Ok(line) => {
                compiled += usize::from(!line.starts_with("go: "));
                if tail.len() == ERROR_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let latest = tail.back().map_or("starting", String::as_str);
        report(Progress::Building { what, packages: compiled, latest, elapsed: start.elapsed() });
    }
    let status = child.wait().with_context(|| format!("wait for go build of {what}"))?;
    reader.join().expect("reading lines does not panic");
    if !status.success() {
        bail!("go build of {what} failed ({status}):\n{}", Vec::from(tail).join("\n"));
    }
    report(Progress::Built { what, elapsed: start.elapsed() });
    Ok(())
}
