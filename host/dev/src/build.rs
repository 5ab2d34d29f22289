//! Builds a plugin with cargo. Input: a plugin. Output: the component's file, or what cargo printed; meanwhile, how far it
//! is. It must not know when to build.
//!
//! The release profile is kept but for what makes a rebuild slow: link-time optimisation and one code unit. Line tables
//! stay, so that a trap names its source line.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::project::Plugin;

const TARGET: &str = "wasm32-wasip2";
/// cargo's settings. `cargo xtask dev` reads the file too: it begins with the plugin while it builds the host.
const PROFILE: &str = include_str!("plugin-profile.env");
/// How often a build says how far it is. A rebuild ends before; a first build takes a minute or more.
const PROGRESS: Duration = Duration::from_secs(5);
/// cargo aligns the word of a status line to the right of so many columns.
const STATUS_COLUMNS: usize = 12;

/// What a build came to.
pub(crate) enum Outcome {
    Built { component: PathBuf, elapsed_ms: u64 },
    Failed { output: String },
}

/// Builds a plugin; returns when cargo has ended. `progress` is given what cargo does, now and then.
pub(crate) fn build(plugin: &Plugin, progress: impl FnMut(String)) -> Outcome {
    let started = Instant::now();
    let target = plugin.target.join("mortise-dev");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--lib", "--release", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .args(["--color", "never"])
        .current_dir(&plugin.folder)
        .envs(PROFILE.lines().filter_map(|line| line.split_once('=')))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let ended = follow(cargo, progress);
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match ended {
        Ok((status, _)) if status.success() => {
            Outcome::Built { component: target.join(TARGET).join("release").join(&plugin.artifact), elapsed_ms }
        }
        Ok((_, output)) => Outcome::Failed { output: explained(&output) },
        Err(error) => Outcome::Failed { output: format!("cannot run cargo: {error}; install Rust with rustup") },
    }
}

/// Runs cargo; how it ended, with what it printed but for its status lines.
fn follow(mut cargo: Command, mut progress: impl FnMut(String)) -> std::io::Result<(ExitStatus, String)> {
    let mut child = cargo.spawn()?;
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    let (mut output, mut line) = (String::new(), Vec::new());
    let (mut crates, mut shown) = (0, Instant::now());
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line).into_owned();
        line.clear();
        let Some(status) = status(&text) else {
            output.push_str(&text);
            continue;
        };
        crates += u32::from(status.starts_with("Compiling "));
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            progress(if crates > 1 { format!("{status}, crate {crates}") } else { status.to_owned() });
        }
    }
    Ok((child.wait()?, output))
}

/// The text of a status line, such as `Compiling serde v1.0.228`; none for a line of a diagnostic.
fn status(line: &str) -> Option<&str> {
    let (word, rest) = line.split_at_checked(STATUS_COLUMNS)?;
    let word = word.trim_start();
    let is_word = word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_word && rest.starts_with(' ')).then(|| line.trim())
}

/// cargo's output, with the way out of its most usual beginner's error.
fn explained(output: &str) -> String {
    let output = output.trim_end();
    if output.contains("can't find crate for `core`") || output.contains("target may not be installed") {
        return format!("{output}\n\nThe target is missing: run `rustup target add {TARGET}`");
    }
    output.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_no_part_of_what_a_failed_build_shows() {
        let program = "printf '   Compiling serde v1.0.2 (path)\\n    Blocking waiting for file lock\\nerror: x\\n --> a.rs\\n   |\\n12 |  Self Foo\\n    Finished y\\n' >&2; exit 3";
        let mut shell = Command::new("sh");
        shell.args(["-c", program]).stderr(Stdio::piped());
        let (status, output) = follow(shell, |_| ()).unwrap();
        assert_eq!((status.code(), output.as_str()), (Some(3), "error: x\n --> a.rs\n   |\n12 |  Self Foo\n"));
        assert_eq!(super::status("   Compiling serde v1.0.2\n"), Some("Compiling serde v1.0.2"));
    }
}
