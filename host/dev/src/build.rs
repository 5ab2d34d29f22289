//! Builds a plugin with cargo. Input: a plugin. Output: the component's file, or what cargo printed. It must not know when
//! to build.
//!
//! The release profile is kept but for what makes a rebuild slow: link-time optimisation and one code unit. Line tables
//! stay, so that a trap names its source line.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::project::Plugin;

const TARGET: &str = "wasm32-wasip2";

/// What a build came to.
pub(crate) enum Outcome {
    Built { component: PathBuf, elapsed_ms: u64 },
    Failed { output: String },
}

/// Builds a plugin; returns when cargo has ended.
pub(crate) fn build(plugin: &Plugin, color: bool) -> Outcome {
    let started = Instant::now();
    let target = plugin.target.join("mortise-dev");
    let output = Command::new("cargo")
        .args(["build", "--lib", "--release", "--quiet", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .args(["--color", if color { "always" } else { "never" }])
        .current_dir(&plugin.folder)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .stdin(Stdio::null())
        .output();
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match output {
        Ok(output) if output.status.success() => {
            Outcome::Built { component: target.join(TARGET).join("release").join(&plugin.artifact), elapsed_ms }
        }
        Ok(output) => Outcome::Failed { output: explained(&String::from_utf8_lossy(&output.stderr)) },
        Err(error) => Outcome::Failed { output: format!("cannot run cargo: {error}; install Rust with rustup") },
    }
}

/// cargo's output, with the way out of its most usual beginner's error.
fn explained(output: &str) -> String {
    let output = output.trim_end();
    if output.contains("can't find crate for `core`") || output.contains("target may not be installed") {
        return format!("{output}\n\nThe target is missing: run `rustup target add {TARGET}`");
    }
    output.to_owned()
}
