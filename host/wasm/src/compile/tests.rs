//! The compiler against child processes that end in every way a child can, played by the shell. The real child is
//! tested with the binary that it belongs to.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::engine::{EngineOptions, Pooling};

fn engine() -> Engine {
    Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap()
}

/// A compiler whose child is this shell script, and the folder with its cache and a file `runs` with a line per child.
fn compiler(script: &str) -> (Compiler, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let compiler = in_folder(script, folder.path());
    (compiler, folder)
}

fn in_folder(script: &str, folder: &Path) -> Compiler {
    let script = format!("echo run >>'{}'; {script}", folder.join("runs").display());
    let args = vec!["-c".into(), script.into()];
    Compiler::new("/bin/sh".into(), args, &folder.join("cache"), &engine()).unwrap()
}

fn runs(folder: &TempDir) -> usize {
    fs::read_to_string(folder.path().join("runs")).unwrap_or_default().lines().count()
}

#[track_caller]
fn refused(result: Result<Artifact, CompileError>) -> Refusal {
    match result {
        Err(CompileError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn g3_a_component_is_compiled_once_and_then_comes_from_the_cache() {
    let (compiler, folder) = compiler("cat");
    let first = compiler.compile(b"code").unwrap();
    assert!(!first.cached);
    assert_eq!(fs::read(&first.path).unwrap(), b"code");
    let second = compiler.compile(b"code").unwrap();
    assert!(second.cached);
    let after_restart = in_folder("cat", folder.path()).compile(b"code").unwrap();
    assert!(after_restart.cached);
    assert_eq!(runs(&folder), 1);
}

#[test]
fn g3_the_cache_is_for_this_user_alone() {
    let (compiler, folder) = compiler("cat");
    let artifact = compiler.compile(b"code").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.path().join("cache")), mode(&artifact.path)), (0o700, 0o600));

    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Compiler::new("/bin/sh".into(), Vec::new(), &open, &engine()).unwrap_err();
    assert!(error.to_string().contains("others may write into it"), "{error}");
}

#[test]
fn g3_a_damaged_cache_entry_is_compiled_again() {
    let (compiler, folder) = compiler("cat");
    let artifact = compiler.compile(b"code").unwrap();
    fs::write(&artifact.path, b"evil").unwrap();
    let again = compiler.compile(b"code").unwrap();
    assert!(!again.cached);
    assert_eq!(fs::read(&again.path).unwrap(), b"code");
    fs::write(again.path.with_extension("json"), b"{").unwrap();
    assert!(!compiler.compile(b"code").unwrap().cached);
    assert_eq!(runs(&folder), 3);
}

#[test]
fn g3_a_component_that_does_not_compile_is_remembered_and_not_tried_again() {
    let script = r#"cat >/dev/null; echo '{"error":"unknown type 7"}' >&2; exit 1"#;
    let (compiler, folder) = compiler(script);
    for _ in 0..2 {
        let refusal = refused(compiler.compile(b"code"));
        assert_eq!(refusal.reason, "CompileFailed");
        assert!(refusal.message.contains("unknown type 7"), "{}", refusal.message);
    }
    let refusal = refused(in_folder(script, folder.path()).compile(b"code"));
    assert!(refusal.message.contains("unknown type 7"), "{}", refusal.message);
    assert_eq!(runs(&folder), 1);
}

#[test]
fn g3_a_child_that_dies_of_its_limits_is_the_components_fault() {
    for (script, limit) in [
        ("kill -XCPU $$", "20 s of processor time"),
        ("kill -ABRT $$", "1024 MiB of memory"),
        ("echo \"thread 'main' panicked at x.rs\" >&2; exit 101", "panicked at x.rs"),
    ] {
        let (compiler, _folder) = compiler(script);
        let refusal = refused(compiler.compile(b"code"));
        assert!(refusal.message.contains(limit), "{script}: {}", refusal.message);
    }
}

#[test]
fn g3_a_child_that_hangs_is_killed_at_its_wall_time_and_its_component_may_be_tried_again() {
    let (hanging, folder) = compiler("exec sleep 600");
    let limits = CompileLimits { wall: Duration::from_millis(200), ..CompileLimits::for_size(1) };
    let begin = Instant::now();
    match hanging.with_limits(limits).compile(b"code") {
        Err(error @ CompileError::Host { .. }) => assert!(error.to_string().contains("within 200ms"), "{error}"),
        other => panic!("a busy machine is held against the component: {other:?}"),
    }
    assert!(begin.elapsed() < Duration::from_secs(60));
    // Nothing of it stands in the cache, so that the same component compiles once the machine has time.
    assert!(!in_folder("cat", folder.path()).compile(b"code").unwrap().cached);
    assert_eq!(runs(&folder), 2);
}

#[test]
fn what_the_machine_is_at_fault_for_is_not_held_against_the_component() {
    for script in ["kill -KILL $$", "echo 'no order' >&2; exit 64", "exit 0"] {
        let (compiler, folder) = compiler(script);
        for _ in 0..2 {
            let result = compiler.compile(b"code");
            assert!(matches!(result, Err(CompileError::Host { .. })), "{script}: {result:?}");
        }
        assert_eq!(runs(&folder), 2, "{script}");
    }
    let missing = tempfile::tempdir().unwrap();
    let compiler =
        Compiler::new("/no/such/program".into(), Vec::new(), &missing.path().join("cache"), &engine()).unwrap();
    let error = compiler.compile(b"code").unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn the_child_gets_its_order_and_nothing_else_of_the_hosts_environment() {
    let (compiler, _folder) = compiler("cat >/dev/null; env");
    let artifact = compiler.compile(b"code").unwrap();
    let env = fs::read_to_string(artifact.path).unwrap();
    assert!(
        env.contains(r#"MORTISE_COMPILE_ORDER={"profile":{"fuel":false},"memoryBytes":1073741824,"cpuSeconds":20}"#)
    );
    assert!(!env.contains("HOME="), "{env}");
}

#[test]
fn larger_components_may_take_longer() {
    let python = CompileLimits::for_size(18 << 20);
    assert!(python.cpu_seconds >= 60 && python.memory_bytes > 1 << 30);
    assert_eq!(CompileLimits::for_size(1).cpu_seconds, 20);
}
