//! The compiler against child processes that end in every way a child can, played by the shell. The real child is
//! tested with the binary that it belongs to.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::cache::{BOUNDS, Bounds};
use super::memory::tests::cgroup;
use super::slots::RESERVE_BYTES;
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
    let mut compiler = Compiler::new("/bin/sh".into(), args, &folder.join("cache"), &engine()).unwrap();
    compiler.slots.cgroup = Cgroup::nowhere();
    compiler
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
        for _ in 0..=MAX_DEATHS {
            let result = compiler.compile(b"code");
            assert!(matches!(result, Err(CompileError::Host { .. })), "{script}: {result:?}");
        }
        assert_eq!(runs(&folder), MAX_DEATHS as usize + 1, "{script}");
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

#[test]
fn g3_a_compiler_that_crashes_on_a_component_twice_is_the_components_fault() {
    for (signal, name) in [("SEGV", "SIGSEGV"), ("ILL", "SIGILL"), ("BUS", "SIGBUS")] {
        let (compiler, folder) = compiler(&format!("echo 'in the register allocator' >&2; kill -{signal} $$"));
        for _ in 0..2 {
            let refusal = refused(compiler.compile(b"code"));
            assert_eq!(refusal.reason, "CompileFailed");
            let words = format!("({name}, twice): in the register allocator");
            assert!(refusal.message.contains(&words), "{}", refusal.message);
        }
        assert_eq!(runs(&folder), 2, "the second time it comes from the cache");
    }
}

#[test]
fn g3_a_compiler_that_crashes_once_or_each_time_in_another_way_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let first = format!("[ $(wc -l <'{}') = 1 ]", folder.path().join("runs").display());
    let once = in_folder(&format!("if {first}; then kill -SEGV $$; else cat; fi"), folder.path());
    assert_eq!(fs::read(once.compile(b"code").unwrap().path).unwrap(), b"code");

    let folder = tempfile::tempdir().unwrap();
    let first = format!("[ $(wc -l <'{}') = 1 ]", folder.path().join("runs").display());
    let changing = in_folder(&format!("if {first}; then kill -SEGV $$; else kill -ILL $$; fi"), folder.path());
    let result = changing.compile(b"code");
    assert!(matches!(result, Err(CompileError::Host { .. })), "{result:?}");
    assert_eq!(runs(&folder), 2);
}

#[test]
fn g3_that_a_compiler_was_started_is_known_before_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("cache");
    let compiler = in_folder(&format!("cat >/dev/null; cat '{}'/*.json", records.display()), folder.path());
    let artifact = compiler.compile(b"code").unwrap();
    assert_eq!(fs::read_to_string(artifact.path).unwrap(), r#"{"attempted":{"count":1}}"#);
    assert!(compiler.compile(b"code").unwrap().cached, "it is forgotten when the compiler has ended");
}

#[test]
fn g3_bytes_that_the_host_dies_of_are_refused_after_some_times() {
    let (compiler, folder) = compiler("cat");
    let digest = digest::of(b"code");
    for deaths in 1..MAX_DEATHS {
        compiler.cache.begin(&digest, deaths).unwrap();
    }
    assert_eq!(compiler.deaths(&digest), MAX_DEATHS - 1);
    compiler.cache.begin(&digest, MAX_DEATHS).unwrap();
    let restarted = in_folder("cat", folder.path());
    let refusal = refused(restarted.compile(b"code"));
    assert_eq!((refusal.reason, runs(&folder)), ("TooCostlyToCompile", 0));
    let record = restarted.cache.record_path(&digest);
    for words in ["the host ended 3 times", "Raise the container's memory limit", &record.display().to_string()] {
        assert!(refusal.message.contains(words), "{words}: {}", refusal.message);
    }
    assert!(restarted.compile(b"other code").is_ok(), "other components are not concerned");
    fs::remove_file(record).unwrap();
    assert!(!restarted.compile(b"code").unwrap().cached);
}

#[test]
fn g3_one_death_more_is_counted_for_each_host_that_did_not_come_back() {
    let (compiler, folder) = compiler("cat");
    let digest = digest::of(b"code");
    compiler.cache.begin(&digest, 2).unwrap();
    let record = compiler.cache.record_path(&digest);
    let restarted = in_folder(&format!("cat >/dev/null; cat '{}'", record.display()), folder.path());
    let artifact = restarted.compile(b"code").unwrap();
    assert_eq!(fs::read_to_string(artifact.path).unwrap(), r#"{"attempted":{"count":3}}"#);
    assert_eq!(restarted.deaths(&digest), 0);
}

#[test]
fn g3_a_compiler_gets_no_more_memory_than_the_container_leaves() {
    let compile = |free_bytes: u64, script: &str| {
        let (mut compiler, folder) = compiler(script);
        let (cgroup, _mount) = cgroup("/", &[("", &(RESERVE_BYTES + free_bytes).to_string(), 0)]);
        compiler.slots.cgroup = cgroup;
        let result = compiler.compile(b"code");
        (result.map(|artifact| fs::read_to_string(artifact.path).unwrap()), runs(&folder))
    };
    for (free_bytes, expected) in [(600 * MIB, 600 * MIB), (6_000 * MIB, 1_024 * MIB)] {
        let order = compile(free_bytes, "cat >/dev/null; echo \"$MORTISE_COMPILE_ORDER\"").0.unwrap();
        assert!(order.contains(&format!("\"memoryBytes\":{expected},")), "{order}");
    }
    // What it dies of then is not held against the component.
    for death in ["kill -ABRT $$", "kill -SEGV $$", "exit 101"] {
        let (result, runs) = compile(600 * MIB, death);
        let error = result.unwrap_err();
        assert!(matches!(error, CompileError::Host { .. }) && runs == 1, "{error}");
        assert!(error.to_string().contains("the 600 MiB that the container's memory limit leaves"), "{error}");
        assert!(error.to_string().contains("raise the memory limit"), "{error}");
    }
    let (result, runs) = compile(100 * MIB, "cat");
    assert!(matches!(result, Err(CompileError::Host { .. })) && runs == 0, "{result:?}");
}

/// The names of the cache's files.
fn files(folder: &TempDir) -> Vec<String> {
    let cache = fs::read_dir(folder.path().join("cache")).unwrap();
    let mut names: Vec<String> = cache.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn g3_the_cache_forgets_first_what_was_used_longest_ago() {
    let (mut compiler, folder) = compiler("cat");
    compiler.cache.bounds = Bounds { entries: 3, ..BOUNDS };
    let age = |code: &[u8], seconds: u64| {
        let record = fs::File::options().write(true).open(compiler.cache.record_path(&digest::of(code))).unwrap();
        record.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    for (code, seconds) in [(b"a", 300), (b"b", 200), (b"c", 100)] {
        compiler.compile(code).unwrap();
        age(code, seconds);
    }
    assert!(compiler.compile(b"a").unwrap().cached, "it is the oldest, and in use again");
    compiler.compile(b"d").unwrap();
    let known = |code: &[u8]| compiler.cache.find(&digest::of(code)).is_some();
    assert_eq!([b"a", b"b", b"c", b"d"].map(|code| known(code)), [true, false, true, true]);
    assert_eq!(files(&folder).len(), 6, "an entry goes with its code");
}

#[test]
fn g3_the_cache_never_has_more_bytes_than_its_bound() {
    let (mut compiler, folder) = compiler("cat");
    compiler.cache.bounds = Bounds { bytes: 10_000, ..BOUNDS };
    for number in 0..20_u8 {
        compiler.compile(&[number; 3_000]).unwrap();
        let file = |name: &String| fs::metadata(folder.path().join("cache").join(name)).unwrap().len();
        let bytes: u64 = files(&folder).iter().map(file).sum();
        assert!(bytes <= 10_000, "{bytes} bytes after {number}");
    }
    assert!(compiler.compile(&[19; 3_000]).unwrap().cached);
    assert_eq!(files(&folder).len(), 6, "three entries of 3 KB fit");
}

#[test]
fn g3_refusals_count_among_what_the_cache_remembers() {
    let (mut compiler, folder) = compiler(r#"cat >/dev/null; echo '{"error":"no"}' >&2; exit 1"#);
    compiler.cache.bounds = Bounds { entries: 2, ..BOUNDS };
    for code in [b"a", b"b", b"c", b"d"] {
        refused(compiler.compile(code));
    }
    assert_eq!(files(&folder).len(), 2);
}

#[test]
fn g3_what_a_host_that_died_has_left_is_removed_when_the_next_one_begins() {
    let (compiler, folder) = compiler("cat");
    let kept = compiler.compile(b"code").unwrap().path;
    let cache = folder.path().join("cache");
    // Numbers of processes end far below this one.
    let dead = cache.join(".4294967295-0.draft");
    let own = cache.join(format!(".{}-77.draft", std::process::id()));
    let of_others = cache.join(".1-0.draft");
    let orphan = cache.join("0123-0.1.0-0.cwasm");
    for path in [&dead, &own, &of_others, &orphan] {
        fs::write(path, "half").unwrap();
    }
    let restarted = in_folder("cat", folder.path());
    for (path, stays) in [(&dead, false), (&own, false), (&orphan, false), (&of_others, true), (&kept, true)] {
        assert_eq!(path.exists(), stays, "{}", path.display());
    }
    assert!(restarted.compile(b"code").unwrap().cached);
}

#[test]
fn the_deployment_gives_what_the_compiler_and_its_cache_are_bounded_by() {
    let deployment = include_str!("../../../../deploy/base/deployment.yaml");
    let bytes_after = |place: &str, key: &str| {
        let after = deployment.split_once(place).and_then(|(_, rest)| rest.split_once(key));
        let (_, value) = after.unwrap_or_else(|| panic!("{key} does not follow {place} in the Deployment"));
        let gib = value.split_whitespace().next().and_then(|value| value.strip_suffix("Gi")).expect("it is in Gi");
        gib.parse::<u64>().unwrap() << 30
    };
    let limit = bytes_after("limits:", "memory: ");
    let compiler = CompileLimits::for_size(4 * MIB).memory_bytes;
    assert!(limit >= compiler + 2 * RESERVE_BYTES, "a compiler for Rust, JavaScript and Go fits beside the host");
    let volume = bytes_after("volumes:", "sizeLimit: ");
    assert!(volume >= BOUNDS.bytes + MAX_ARTIFACT_BYTES, "the cache fits, and one artifact that is still mapped");
}
