//! The compiler with child processes that end in every possible way, as shell scripts. The binary's own tests run the
//! real child.

mod machine;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Mutex;

use mortise_core::manifest::Exports;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use super::eviction::{BOUNDS, Bounds};
use super::slots::RESERVE_BYTES;
use super::*;
use crate::container::tests::cgroup;
use crate::engine::{EngineOptions, Pooling};

fn engine() -> Engine {
    Engine::new(EngineOptions { pooling: Pooling::OnDemand, ..EngineOptions::default() }).unwrap()
}

/// A compiler whose child is this shell script, and the folder with its cache and a file `runs` with a line for each
/// child.
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
    compiler.threads = 1;
    compiler
}

fn runs(folder: &TempDir) -> usize {
    fs::read_to_string(folder.path().join("runs")).unwrap_or_default().lines().count()
}

/// The native code, which of the child `cat` is the component itself.
fn code_of(artifact: &Artifact) -> Vec<u8> {
    let mut code = vec![0; usize::try_from(artifact.file.metadata().unwrap().len()).unwrap()];
    artifact.file.read_exact_at(&mut code, 0).unwrap();
    code
}

fn text_of(artifact: &Artifact) -> String {
    String::from_utf8(code_of(artifact)).unwrap()
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
    assert_eq!(code_of(&first), b"code");
    let second = compiler.compile(b"code").unwrap();
    assert!(second.cached);
    let after_restart = in_folder("cat", folder.path()).compile(b"code").unwrap();
    assert!(after_restart.cached);
    assert_eq!(runs(&folder), 1);
}

#[test]
fn g3_the_cache_is_for_this_user_alone() {
    let (compiler, folder) = compiler("cat");
    let artifact = compiler.cache.artifact_path(&compiler.compile(b"code").unwrap().digest);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.path().join("cache")), mode(&artifact)), (0o700, 0o600));

    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Compiler::new("/bin/sh".into(), Vec::new(), &open, &engine()).unwrap_err();
    assert!(error.to_string().contains("others may write into it"), "{error}");
}

#[test]
fn g3_a_damaged_cache_entry_is_compiled_again() {
    let (compiler, folder) = compiler("cat");
    let digest = compiler.compile(b"code").unwrap().digest;
    fs::write(compiler.cache.artifact_path(&digest), b"wicked").unwrap();
    let again = compiler.compile(b"code").unwrap();
    assert!(!again.cached);
    assert_eq!(code_of(&again), b"code");
    fs::write(compiler.cache.record_path(&digest), b"{").unwrap();
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
fn g3_the_errors_of_a_compiler_are_cut() {
    for said in [r#"{"error":"%040000d"}"#, "thread panicked at %040000d"] {
        let (compiler, _folder) = compiler(&format!("cat >/dev/null; printf '{said}' 0 >&2; exit 101"));
        let refusal = refused(compiler.compile(b"code"));
        assert!(refusal.message.len() < 8 << 10, "{} bytes", refusal.message.len());
    }
}

#[test]
fn g3_a_child_that_exceeds_its_limits_is_the_components_fault() {
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
fn g3_a_compiler_without_memory_runs_again_with_one_thread_before_the_component_is_at_fault() {
    let (mut compiler, folder) = compiler("if [ $RAYON_NUM_THREADS -gt 1 ]; then kill -ABRT $$; fi; cat");
    compiler.threads = 4;
    assert_eq!(code_of(&compiler.compile(b"code").unwrap()), b"code");
    assert_eq!(runs(&folder), 2);

    let (mut compiler, folder) = self::compiler("kill -ABRT $$");
    compiler.threads = 4;
    let refusal = refused(compiler.compile(b"code"));
    assert_eq!((refusal.reason, runs(&folder)), ("TooCostlyToCompile", 2));
    assert!(refusal.message.contains("`opt-level = \"z\"` under [profile.release]"), "{}", refusal.message);
}

#[test]
fn g3_a_child_that_hangs_is_killed_at_its_wall_time_and_its_component_may_be_compiled_again() {
    let (mut hanging, folder) = compiler("exec sleep 600");
    hanging.limits = Some(CompileLimits { wall: Duration::from_millis(200), ..CompileLimits::for_size(1) });
    let begin = Instant::now();
    match hanging.compile(b"code") {
        Err(error @ CompileError::Host { .. }) => assert!(error.to_string().contains("within 200ms"), "{error}"),
        other => panic!("the component is blamed for a busy machine: {other:?}"),
    }
    assert!(begin.elapsed() < Duration::from_secs(60));
    // The cache has nothing of it, so the same component compiles once the machine has time.
    assert!(!in_folder("cat", folder.path()).compile(b"code").unwrap().cached);
    assert_eq!(runs(&folder), 2);
}

#[test]
fn an_error_of_the_machine_is_not_recorded_for_the_component() {
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
fn the_child_gets_its_order_and_not_the_hosts_environment() {
    let (compiler, _folder) = compiler("cat >/dev/null; env");
    let artifact = compiler.compile(b"code").unwrap();
    let env = text_of(&artifact);
    let profile = r#"{"fuel":false,"lines":false,"quick":false}"#;
    let order = format!(r#"MORTISE_COMPILE_ORDER={{"profile":{profile},"memoryBytes":1073741824,"cpuSeconds":20}}"#);
    assert!(env.contains(&order), "{env}");
    assert!(!env.contains("HOME="), "{env}");
}

#[test]
fn limits_grow_with_the_component() {
    let python = CompileLimits::for_size(18 << 20);
    assert!(python.cpu_seconds >= 60 && python.memory_bytes > 1 << 30);
    assert_eq!(python.wall.as_secs(), 10 * python.cpu_seconds, "a tenth of a core is enough");
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
        assert_eq!(runs(&folder), 2, "the second refusal comes from the cache");
    }
}

#[test]
fn g3_a_compiler_that_crashes_once_or_in_two_ways_is_not_the_components_fault() {
    let folder = tempfile::tempdir().unwrap();
    let first = format!("[ $(wc -l <'{}') = 1 ]", folder.path().join("runs").display());
    let once = in_folder(&format!("if {first}; then kill -SEGV $$; else cat; fi"), folder.path());
    assert_eq!(code_of(&once.compile(b"code").unwrap()), b"code");

    let folder = tempfile::tempdir().unwrap();
    let first = format!("[ $(wc -l <'{}') = 1 ]", folder.path().join("runs").display());
    let changing = in_folder(&format!("if {first}; then kill -SEGV $$; else kill -ILL $$; fi"), folder.path());
    let result = changing.compile(b"code");
    assert!(matches!(result, Err(CompileError::Host { .. })), "{result:?}");
    assert_eq!(runs(&folder), 2);
}

#[test]
fn g3_a_compiler_gets_no_more_memory_than_the_container_leaves() {
    let compile = |free_bytes: u64, script: &str| {
        let (mut compiler, folder) = compiler(script);
        let (cgroup, _mount) = cgroup("/", &[("", &(RESERVE_BYTES + free_bytes).to_string(), 0)]);
        compiler.slots.cgroup = cgroup;
        let result = compiler.compile(b"code");
        (result.map(|artifact| text_of(&artifact)), runs(&folder))
    };
    for (free_bytes, expected) in [(600 * MIB, 600 * MIB), (6_000 * MIB, 1_024 * MIB)] {
        let order = compile(free_bytes, "cat >/dev/null; echo \"$MORTISE_COMPILE_ORDER\"").0.unwrap();
        assert!(order.contains(&format!("\"memoryBytes\":{expected},")), "{order}");
    }
    // Then no death is the component's fault.
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

/// The names of the cache's files, without its key.
fn files(folder: &TempDir) -> Vec<String> {
    let cache = fs::read_dir(folder.path().join("cache")).unwrap();
    let mut names: Vec<String> = cache.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "key");
    names.sort();
    names
}

#[test]
fn g3_an_artifact_that_was_copied_counts_by_its_hash() {
    let (compiler, _folder) = compiler("cat");
    let artifact = compiler.cache.artifact_path(&compiler.compile(b"code").unwrap().digest);
    let copy = |content: &[u8]| {
        fs::write(artifact.with_extension("copy"), content).unwrap();
        fs::rename(artifact.with_extension("copy"), &artifact).unwrap();
    };
    let record = || fs::read_to_string(artifact.with_extension("json")).unwrap();
    let of_original = record();
    copy(b"code");
    assert!(compiler.compile(b"code").unwrap().cached);
    let of_copy = record();
    assert_ne!(of_copy, of_original, "the next start does not hash the copy again");
    assert!(compiler.compile(b"code").unwrap().cached);
    assert_eq!(record(), of_copy);
    copy(b"evil");
    assert!(!compiler.compile(b"code").unwrap().cached, "another file, of the same length");
}

/// Starts a host that loads components in this order and keeps them loaded; returns those that came from the cache.
fn start(folder: &TempDir, bounds: Bounds, components: impl IntoIterator<Item = u16>) -> Vec<u16> {
    let mut compiler = in_folder("cat", folder.path());
    compiler.cache.bounds = bounds;
    let load = |number: u16| {
        let component = [number.to_le_bytes(); 500].concat();
        let artifact = compiler.compile(&component).unwrap();
        assert_eq!(code_of(&artifact), component);
        (number, artifact)
    };
    let loaded: Vec<_> = components.into_iter().map(load).collect();
    loaded.into_iter().filter(|(_, artifact)| artifact.cached).map(|(number, _)| number).collect()
}

#[test]
fn g3_a_restart_with_more_plugins_than_the_cache_once_kept_compiles_none() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start(&folder, BOUNDS, 0..250), [0; 0]);
    assert_eq!(start(&folder, BOUNDS, 0..250), Vec::from_iter(0..250));
}

#[test]
fn g3_a_cache_that_is_too_small_has_the_same_part_of_the_plugins_at_each_start() {
    let folder = tempfile::tempdir().unwrap();
    // Six of 1,000 bytes and their records.
    let bounds = Bounds { bytes: 8_000, ..BOUNDS };
    start(&folder, bounds, 0..20);
    for _ in 0..3 {
        assert_eq!(start(&folder, bounds, 0..20), [0, 1, 2, 3, 4, 5]);
    }
    // A new one replaces the one that is loaded last, not each one just before it is loaded.
    assert_eq!(start(&folder, bounds, [99].into_iter().chain(0..20)), [0, 1, 2, 3, 4]);
    assert_eq!(start(&folder, bounds, [99].into_iter().chain(0..20)), [99, 0, 1, 2, 3, 4]);
}

#[test]
fn g3_what_is_loaded_stays_in_the_cache_and_older_versions_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = in_folder("cat", folder.path());
    compiler.cache.bounds = Bounds { bytes: 3_900, ..BOUNDS };
    let _loaded = compiler.compile(&[0; 1_000]).unwrap();
    for version in 1..9_u8 {
        compiler.compile(&[version; 1_000]).unwrap();
    }
    let known = |version: u8| compiler.cache.find(&digest::of(&[version; 1_000])).is_some();
    let versions: Vec<u8> = (0..9).filter(|version| known(*version)).collect();
    assert_eq!(versions, [0, 7, 8]);
    assert_eq!(files(&folder).len(), 6, "each record has its code");
}

#[test]
fn g7_what_a_trial_has_shown_is_known_to_the_same_host_alone_and_while_the_code_is_intact() {
    let (compiler, folder) = compiler("cat");
    let digest = compiler.compile(b"code").unwrap().digest;
    assert_eq!(compiler.tried(&digest).unwrap().map(|(_, trial)| trial), None, "compiled is not tried");
    let exports = Exports { admission: true, conversion: false };
    let trial = Trial { component_bytes: 4, exports, manifest: "{\"a\":1}".into() };
    compiler.accept(&digest, &trial);
    let restarted = in_folder("cat", folder.path());
    let (artifact, known) = restarted.tried(&digest).unwrap().unwrap();
    assert_eq!((code_of(&artifact), artifact.cached, known), (b"code".to_vec(), true, trial));

    let another = Compiler::new("/bin/cat".into(), Vec::new(), &folder.path().join("cache"), &engine()).unwrap();
    assert!(another.tried(&digest).unwrap().is_none(), "another build may refuse the component");
    assert!(another.compile(b"code").unwrap().cached);
    fs::write(restarted.cache.artifact_path(&digest), b"wicked").unwrap();
    assert!(restarted.tried(&digest).unwrap().is_none());
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
fn g3_refusals_are_bounded_in_number() {
    let (mut compiler, folder) = compiler(r#"cat >/dev/null; echo '{"error":"no"}' >&2; exit 1"#);
    compiler.cache.bounds = Bounds { entries: 2, ..BOUNDS };
    for code in [b"a", b"b", b"c", b"d"] {
        refused(compiler.compile(code));
    }
    assert_eq!(files(&folder).len(), 2);
}

#[test]
fn g3_the_leftovers_of_a_host_that_died_are_removed_at_the_next_start() {
    let (compiler, folder) = compiler("cat");
    let kept = compiler.cache.artifact_path(&compiler.compile(b"code").unwrap().digest);
    let cache = folder.path().join("cache");
    let [draft, others_draft, lock, code, others_code] =
        [".1.draft", ".2.draft", "0123-0.1.0-0.lock", "0123-0.1.0-0.cwasm", "4567-0.1.0-0.cwasm"]
            .map(|name| cache.join(name));
    for path in [&draft, &others_draft, &lock, &code, &others_code] {
        fs::write(path, "half").unwrap();
    }
    // What another host works on, wherever that runs.
    let under_way = File::open(&others_draft).unwrap();
    under_way.try_lock().unwrap();
    let compiling = locks::lock(&others_code, Duration::ZERO).unwrap();
    let restarted = in_folder("cat", folder.path());
    let all =
        [(&draft, false), (&others_draft, true), (&lock, false), (&code, false), (&others_code, true), (&kept, true)];
    for (path, stays) in all {
        assert_eq!(path.exists(), stays, "{}", path.display());
    }
    drop((under_way, compiling));
    assert!(restarted.compile(b"code").unwrap().cached);
}

/// The fields of all events, as text.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<String>>);

impl tracing::field::Visit for Recorder {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The warnings that a closure logs.
fn logged(log: impl FnOnce()) -> String {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), log);
    recorder.0.lock().unwrap().clone()
}

/// A host that starts after `change` of the cache's folder, in which two components were compiled, compiles the first
/// one anew and logs that.
#[track_caller]
fn compiled_anew_after(change: impl FnOnce(&Cache, &Digest, &Digest)) -> String {
    let (compiler, folder) = compiler("cat");
    let [digest, other] = [b"code", b"evil"].map(|component| compiler.compile(component).unwrap().digest);
    change(&compiler.cache, &digest, &other);
    drop(compiler);
    let log = logged(|| {
        let artifact = in_folder("cat", folder.path()).compile(b"code").unwrap();
        assert!(!artifact.cached, "it came from the cache");
        assert_eq!(code_of(&artifact), b"code");
    });
    assert_eq!(runs(&folder), 3);
    assert!(log.contains(&digest.to_string()) && log.contains("compiled again"), "{log}");
    assert!(in_folder("cat", folder.path()).compile(b"code").unwrap().cached, "once");
    log
}

#[test]
fn g3_an_artifact_that_a_host_with_this_key_did_not_write_for_this_component_is_compiled_anew() {
    let log = compiled_anew_after(|cache, digest, _| {
        let mut code = fs::read(cache.artifact_path(digest)).unwrap();
        code[0] ^= 1;
        fs::write(cache.artifact_path(digest), code).unwrap();
    });
    assert!(log.contains("is damaged"), "a bit is flipped: {log}");

    let planted = |cache: &Cache, digest: &Digest, other: &Digest| {
        fs::copy(cache.artifact_path(other), cache.artifact_path(digest)).unwrap();
        fs::copy(cache.record_path(other), cache.record_path(digest)).unwrap();
    };
    let log = compiled_anew_after(planted);
    assert!(log.contains("was not written for this component"), "another component's: {log}");

    let log = compiled_anew_after(|cache, digest, _| {
        let record = fs::read_to_string(cache.record_path(digest)).unwrap();
        fs::write(cache.artifact_path(digest), b"evil").unwrap();
        let forged = record.replace(&digest::of(b"code").0[..], &digest::of(b"evil").0);
        assert_ne!(forged, record);
        fs::write(cache.record_path(digest), forged).unwrap();
    });
    assert!(log.contains("was not written for this component"), "a forged record: {log}");

    let log = compiled_anew_after(|cache, digest, _| {
        let key = cache.record_path(digest).with_file_name("key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(key, [7; 32]).unwrap();
    });
    assert!(log.contains("by a host with this key"), "another key: {log}");
}

#[test]
fn g3_a_key_that_is_kept_elsewhere_seals_the_cache_and_none_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("secret");
    let cache = folder.path().join("cache");
    let start = || {
        let cache = CacheFolder { path: &cache, key_file: Some(&key_file) };
        Compiler::new("/bin/cat".into(), Vec::new(), cache, &engine())
    };
    let error = start().unwrap_err().to_string();
    assert!(error.contains("use the key of the compile cache") && error.contains("secret"), "{error}");
    fs::write(&key_file, "short").unwrap();
    assert!(start().unwrap_err().to_string().contains("fewer than 32 bytes"));
    fs::write(&key_file, [1; 40]).unwrap();
    assert!(!start().unwrap().compile(b"code").unwrap().cached);
    assert!(start().unwrap().compile(b"code").unwrap().cached);
    assert!(!cache.join("key").exists());
    fs::write(&key_file, [2; 40]).unwrap();
    assert!(!start().unwrap().compile(b"code").unwrap().cached);
}

#[test]
fn g3_the_hosts_memory_has_a_chunk_of_an_artifact_at_a_time() {
    const MEASURING: &str = "MORTISE_TEST_MEASURING";
    const ARTIFACT_BYTES: usize = 100 << 20;
    const NAME: &str = "compile::tests::g3_the_hosts_memory_has_a_chunk_of_an_artifact_at_a_time";
    // In a process of its own: the peak is the process's, and other tests have one too.
    if std::env::var_os(MEASURING).is_none() {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).args(["--exact", NAME]).env(MEASURING, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let peak_kib = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let (compiler, folder) = compiler(&format!("cat >/dev/null; head -c {ARTIFACT_BYTES} /dev/zero"));
    let before_kib = peak_kib();
    let artifact = compiler.compile(b"code").unwrap();
    assert_eq!(artifact.file.metadata().unwrap().len(), ARTIFACT_BYTES as u64);
    // Touched, so that it is verified.
    let path = compiler.cache.artifact_path(&artifact.digest);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(in_folder("cat", folder.path()).compile(b"code").unwrap().cached);
    let grown_kib = peak_kib() - before_kib;
    assert!(grown_kib < 20 << 10, "{grown_kib} KiB for an artifact of {} KiB", ARTIFACT_BYTES >> 10);
}

/// A limit of this process, or the highest that it may have.
fn bound(resource: Resource, most: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: most.or(maximum), maximum }).unwrap();
}

#[test]
fn f32_without_room_on_the_disk_or_files_to_open_no_component_is_at_fault_and_each_compiles_afterwards() {
    const ALONE: &str = "MORTISE_TEST_WITHOUT_ROOM";
    const NAME: &str = concat!(
        "compile::tests::",
        "f32_without_room_on_the_disk_or_files_to_open_no_component_is_at_fault_and_each_compiles_afterwards"
    );
    // In a process of its own, since the limits are the process's. A write beyond the size of a file fails as one to a
    // full disk does, once the signal is ignored; a process inherits that.
    if std::env::var_os(ALONE).is_none() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" --exact \"$1\""]).arg(std::env::current_exe().unwrap()).arg(NAME);
        let output = shell.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (compiler, folder) = compiler("cat");
    compiler.compile(b"code").unwrap();
    let large = [b'a'; 64 << 10];
    let fails = |component: &[u8]| match compiler.compile(component) {
        Err(error @ CompileError::Host { .. }) => assert!(error.to_string().contains("the compile cache"), "{error}"),
        other => panic!("the component is at fault, or its code is nowhere: {other:?}"),
    };

    bound(Resource::Fsize, Some(8 << 10));
    fails(&large);
    assert_eq!(files(&folder).len(), 2, "nothing is left of it");
    assert!(compiler.compile(b"code").unwrap().cached, "what was compiled stays");
    bound(Resource::Fsize, Some(0));
    fails(b"other");
    bound(Resource::Fsize, None);
    assert!(!compiler.compile(&large).unwrap().cached);

    bound(Resource::Nofile, Some(64));
    let mut open = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        open.push(file);
    }
    fails(b"another");
    drop(open);
    assert_eq!(code_of(&compiler.compile(b"another").unwrap()), b"another");
}

#[test]
fn a_machine_that_does_not_confine_the_compiler_is_logged_once_and_serves() {
    let line = r#"{"missing":["landlock: NotEnabled"]}"#;
    let (compiler, _folder) = compiler(&format!("echo '{line}' >&2; cat"));
    let log = logged(|| {
        for component in [b"a", b"b"] {
            assert_eq!(code_of(&compiler.compile(component).unwrap()), component);
        }
    });
    assert_eq!(log.matches("landlock: NotEnabled").count(), 1, "{log}");
    // A component that has taken the process over can only say it later.
    let (late, _folder) = self::compiler(&format!("echo x >&2; echo '{line}' >&2; cat"));
    assert_eq!(logged(|| drop(late.compile(b"a").unwrap())), "");
}

#[test]
fn the_deployment_has_room_for_the_compiler_and_its_cache() {
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
