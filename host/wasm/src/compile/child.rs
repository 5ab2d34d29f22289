//! The compiler process: a component on stdin, native code on stdout, one JSON line on stderr when it does not compile.
//! It limits itself before it reads a byte; some inputs kill it.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::engine::{Profile, compiling};

/// The environment variable with the child's order. Not an argument, which could mix with the program's own.
pub(super) const REQUEST_VARIABLE: &str = "MORTISE_COMPILE_ORDER";
/// The exit status of a Rust program that panicked.
pub(super) const PANICKED: i32 = 101;
/// The exit status when the child cannot follow its order: the host's fault, not the component's.
const BAD_ORDER: u8 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Order {
    pub(super) profile: Profile,
    pub(super) memory_bytes: u64,
    pub(super) cpu_seconds: u64,
}

/// The line that the child writes to stderr when a component does not compile.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    error: String,
}

/// The main function of the compiler process, [`super::Compiler`]'s child.
pub fn child_main() -> ExitCode {
    let order = match std::env::var(REQUEST_VARIABLE) {
        Ok(text) => match serde_json::from_str::<Order>(&text) {
            Ok(order) => order,
            Err(error) => return unusable(&format!("the order in {REQUEST_VARIABLE} cannot be read: {error}")),
        },
        Err(_) => return unusable("this command is started by mortise itself, to compile a plugin"),
    };
    if let Err(error) = limit(&order) {
        return unusable(&format!("the compiler process cannot limit itself: {error}"));
    }
    let mut wasm = Vec::new();
    if let Err(error) = io::stdin().lock().read_to_end(&mut wasm) {
        return unusable(&format!("the component cannot be read from stdin: {error}"));
    }
    let compiled = compiling(order.profile)
        .map_err(|error| error.to_string())
        .and_then(|engine| engine.precompile_component(&wasm).map_err(|error| format!("{error:#}")));
    match compiled {
        Ok(code) => match io::stdout().lock().write_all(&code) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => unusable(&format!("the artifact cannot be written to stdout: {error}")),
        },
        Err(error) => {
            let line = serde_json::to_string(&Failure { error }).expect("a string is plain data");
            eprintln!("{line}");
            ExitCode::FAILURE
        }
    }
}

fn unusable(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(BAD_ORDER)
}

/// The hard limit of processor time is a second later, because the soft one only sends a signal.
fn limit(order: &Order) -> io::Result<()> {
    // A kernel that kills one process of a container out of memory should kill this one. Errors are harmless: other
    // kernels kill all of them, or have no such file.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let exactly = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, exactly(order.memory_bytes))?;
    setrlimit(Resource::Core, exactly(0))?;
    let cpu = Rlimit { current: Some(order.cpu_seconds), maximum: Some(order.cpu_seconds + 1) };
    setrlimit(Resource::Cpu, cpu)?;
    Ok(())
}

/// The compiler's error, from the child's stderr.
pub(super) fn error_in(stderr: &str) -> Option<String> {
    stderr.lines().rev().find_map(|line| serde_json::from_str::<Failure>(line).ok()).map(|failure| failure.error)
}
