//! The Go toolchain as this crate uses it: which version answers, where a module's files are, and one build that reports
//! how far it is. It must not know what is built or where it is kept.

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

/// What a user without Go is told. The version is the one that the `go.mod` files ask for.
const INSTALL: &str = "install Go 1.26 or newer (https://go.dev/dl) and put `go` on the PATH: the control plane for the \
                       tests and the demo is built from Go modules";

/// How often a running build reports when Go itself says nothing, as while it links.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Lines of a failed build that are shown: Go puts the cause last, below a list of compiled packages.
const ERROR_LINES: usize = 20;

/// The `go` command in a module's directory, deaf to settings of the user's own that would change what is built.
fn command(module: &Path) -> Command {
    let mut command = Command::new("go");
    // CGO is off so that no C compiler is needed; GOFLAGS and workspaces of the user belong to the user's own modules.
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

/// The toolchain that builds this module, and its target. Go itself may fetch a newer toolchain than the installed one
/// when `go.mod` asks for it, which is why the question is asked in the module's directory.
pub(crate) fn toolchain(module: &Path) -> Result<String> {
    let mut env = command(module);
    env.args(["env", "GOVERSION", "GOOS", "GOARCH"]);
    // A Go from before 1.21 fails here, since it knows no newer toolchain to switch to.
    output(env, "go env")
}

/// Where the files of a required module are.
pub(crate) fn module_dir(module: &Path, path: &str) -> Result<PathBuf> {
    let mut list = command(module);
    list.args(["list", "-m", "-f", "{{.Dir}}", path]);
    let dir = output(list, &format!("go list -m {path}"))?;
    if dir.is_empty() {
        bail!("the module cache does not hold {path}: run `go mod download` in {}", module.display());
    }
    Ok(dir.into())
}

/// Builds `packages` of the module into the directory `into`.
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
