//! The compiler process: a component on stdin, native code on stdout, one JSON line on stderr when it does not compile,
//! and one before it when the machine could not confine it wholly. It limits and confines itself before it reads a byte
//! (`confine.rs`); some inputs kill it.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::confine::{Limits, confine};
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

/// The line that the child writes to stderr, before it reads, when a layer of its confinement is missing.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unconfined {
    missing: Vec<String>,
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
    // Before the confinement, because both may read files of the machine; neither depends on the component.
    let engine = match compiling(order.profile) {
        Ok(engine) => engine,
        Err(error) => return unusable(&error.to_string()),
    };
    let limits = Limits { memory_bytes: order.memory_bytes, cpu_seconds: order.cpu_seconds };
    match confine(&limits, start_threads) {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => say(&Unconfined { missing }),
        Err(error) => return unusable(&format!("the compiler process cannot limit itself: {error}")),
    }
    let mut wasm = Vec::new();
    if let Err(error) = io::stdin().lock().read_to_end(&mut wasm) {
        return unusable(&format!("the component cannot be read from stdin: {error}"));
    }
    match engine.precompile_component(&wasm) {
        Ok(code) => match io::stdout().lock().write_all(&code) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => unusable(&format!("the artifact cannot be written to stdout: {error}")),
        },
        Err(error) => {
            say(&Failure { error: format!("{error:#}") });
            ExitCode::FAILURE
        }
    }
}

fn unusable(message: &str) -> ExitCode {
    print(message);
    ExitCode::from(BAD_ORDER)
}

/// Starts the threads that compile, as many as `RAYON_NUM_THREADS` says, and waits until they run.
fn start_threads() -> io::Result<()> {
    rayon::ThreadPoolBuilder::new().build_global().map_err(io::Error::other)
}

fn say(line: &impl Serialize) {
    print(&serde_json::to_string(line).expect("texts are plain data"));
}

/// A host that has ended reads nothing; then nobody needs it.
fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The compiler's error, from the child's stderr.
pub(super) fn error_in(stderr: &str) -> Option<String> {
    stderr.lines().rev().find_map(|line| serde_json::from_str::<Failure>(line).ok()).map(|failure| failure.error)
}

/// The layers of confinement that the machine does not have, from the child's stderr. It says so in its first line: what
/// follows may be the work of a component.
pub(super) fn missing_in(stderr: &str) -> Vec<String> {
    let said = stderr.lines().next().and_then(|line| serde_json::from_str::<Unconfined>(line).ok());
    said.map(|said| said.missing).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::compile::{Artifact, CompileError, CompileLimits, Compiler};
    use crate::container::Cgroup;
    use crate::engine::{Engine, EngineOptions, Pooling};
    use crate::scan::prescan;
    use crate::testing::{idle_guest, idle_guest_with};

    const PROFILE: Profile = Profile { fuel: false, lines: false, quick: false };

    /// The real child, as this program with one test to run.
    #[test]
    fn g3_a_confined_compiler_writes_code_that_the_host_runs() {
        if std::env::var_os(REQUEST_VARIABLE).is_some() {
            std::process::exit(i32::from(child_main() != ExitCode::SUCCESS));
        }
        let (wasm, name) = (idle_guest(), "g3_a_confined_compiler_writes_code_that_the_host_runs");
        let order = Order { profile: PROFILE, memory_bytes: 4 << 30, cpu_seconds: 60 };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("compile::child::tests::{name}"), "--nocapture", "--test-threads=2"])
            .env(REQUEST_VARIABLE, serde_json::to_string(&order).unwrap())
            .env("RAYON_NUM_THREADS", "2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, component) = (child.stdin.take().unwrap(), wasm.clone());
        let writer = thread::spawn(move || stdin.write_all(&component));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing is missing here");
        assert!(output.status.success(), "{}", output.status);
        // The test runner writes a line before.
        let begin = output.stdout.windows(4).position(|bytes| bytes == b"\x7fELF").expect("it wrote native code");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&output.stdout[begin..]).unwrap();
        let engine = Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap();
        let (digest, file) = (mortise_core::digest::of(&wasm), Arc::new(file));
        engine.load(Artifact { digest, file, cached: false, elapsed: Duration::ZERO }).expect("the host runs it");
    }

    /// Each of the functions is as cheap as can be, so the scan has no reason to refuse them. They compile in 5 s with
    /// optimizations and in 17 s without; the limit here is what neither keeps.
    #[test]
    fn h8_a_hundred_thousand_functions_end_at_the_compilers_limit_and_the_next_component_compiles() {
        if std::env::var_os(REQUEST_VARIABLE).is_some() {
            std::process::exit(i32::from(child_main() != ExitCode::SUCCESS));
        }
        let bomb = idle_guest_with(&format!("(core module {}))", "(func)".repeat(100_000)));
        assert!(prescan(&bomb).unwrap().sizes.functions > 100_000);

        let engine = Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap();
        let name = "h8_a_hundred_thousand_functions_end_at_the_compilers_limit_and_the_next_component_compiles";
        let args = ["--exact", &format!("compile::child::tests::{name}"), "--nocapture", "--test-threads=2"];
        let args = args.into_iter().map(Into::into).collect();
        let folder = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let mut compiler = Compiler::new(program, args, &folder.path().join("cache"), &engine).unwrap();
        compiler.slots.cgroup = Cgroup::nowhere();
        compiler.limits = Some(CompileLimits { cpu_seconds: 2, ..CompileLimits::for_size(bomb.len() as u64) });
        match compiler.compile(&bomb) {
            Err(CompileError::Refused(refusal)) => {
                assert_eq!(refusal.reason, "TooCostlyToCompile", "{}", refusal.message);
                assert!(refusal.message.contains("more than 2 s of processor time"), "{}", refusal.message);
            }
            other => panic!("not refused: {other:?}"),
        }
        compiler.compile(&idle_guest()).expect("the host and its compiler are as before");
    }
}
