//! What kstatus says of an object, as Flux, Argo CD and kpt would: an object in, its status and message out.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::binaries;
use crate::progress::print_progress;

/// kstatus's six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The newest generation is observed, and nothing says otherwise.
    Current,
    /// A controller is at work, or has not seen the newest generation.
    InProgress,
    /// The condition Stalled is True.
    Failed,
    /// It is being deleted.
    Terminating,
    /// It does not exist.
    NotFound,
    /// It cannot be computed.
    Unknown,
}

/// The status of an object, and why. Builds kstatus if it is not in the cache.
///
/// # Errors
/// When it cannot be built, or the object is none.
pub fn status_of(object: &Value) -> Result<(Status, String)> {
    let mut child = Command::new(binary()?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run kstatus")?;
    let mut stdin = child.stdin.take().context("the command above pipes its standard input")?;
    stdin.write_all(object.to_string().as_bytes()).context("pass the object to kstatus")?;
    drop(stdin);
    let output = child.wait_with_output().context("wait for kstatus")?;
    if !output.status.success() {
        bail!("kstatus failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let result: Value = serde_json::from_slice(&output.stdout).context("read what kstatus printed")?;
    let status = match result["status"].as_str().unwrap_or_default() {
        "Current" => Status::Current,
        "InProgress" => Status::InProgress,
        "Failed" => Status::Failed,
        "Terminating" => Status::Terminating,
        "NotFound" => Status::NotFound,
        "Unknown" => Status::Unknown,
        other => bail!("kstatus printed the status {other:?}"),
    };
    Ok((status, result["message"].as_str().unwrap_or_default().to_owned()))
}

/// A lookup in the cache asks Go for its version.
fn binary() -> Result<&'static PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    match BINARY.get() {
        Some(binary) => Ok(binary),
        None => {
            let binary = binaries::kstatus(&mut print_progress())?;
            Ok(BINARY.get_or_init(|| binary))
        }
    }
}
