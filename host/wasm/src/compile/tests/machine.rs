//! The compiler on a machine that has faults: hosts that end, hosts that share a cache, and a folder that is away, full or
//! read-only. None of them is the component's.

use std::thread;

use super::children::LOOK;
use super::*;

/// Ends what another thread waits for.
const DEADLINE: Duration = Duration::from_secs(60);

#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A compiler whose child takes 48 MiB of its 64, if it is `large`, says so, and ends once it may.
fn slow(folder: &Path, large: bool) -> Compiler {
    let take = if large { "x=$(head -c 50331648 /dev/zero | tr '\\0' a)" } else { "x=a" };
    let [began, may_end] = ["began", "may-end"].map(|name| folder.join(name).display().to_string());
    let script =
        format!("cat >/dev/null; {take}; touch {began}; until [ -e {may_end} ]; do sleep 0.05; done; echo code");
    let mut compiler = in_folder(&script, folder);
    compiler.limits = Some(CompileLimits { memory_bytes: 64 * MIB, ..CompileLimits::for_size(1) });
    compiler
}

fn attempts(compiler: &Compiler) -> Option<u32> {
    match compiler.cache.find(&digest::of(b"code")) {
        Some(Entry::Attempted(count)) => Some(count),
        _ => None,
    }
}

#[test]
fn g3_a_compilation_is_recorded_once_its_compiler_has_much_memory_and_not_before() {
    for (large, expected) in [(true, Some(1)), (false, None)] {
        let folder = tempfile::tempdir().unwrap();
        let compiler = slow(folder.path(), large);
        thread::scope(|scope| {
            let compiled = scope.spawn(|| compiler.compile(b"code"));
            wait("the child begins", || folder.path().join("began").exists());
            if large {
                wait("it is recorded", || attempts(&compiler).is_some());
            }
            thread::sleep(4 * LOOK);
            assert_eq!(attempts(&compiler), expected, "large: {large}");
            fs::write(folder.path().join("may-end"), "").unwrap();
            assert!(compiled.join().unwrap().is_ok());
        });
        assert_eq!(attempts(&compiler), None, "the result replaces it");
    }
}

#[test]
fn g3_a_host_that_ends_in_order_withdraws_what_it_compiles_and_leaves_what_earlier_ones_died_of() {
    for before in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let compiler = slow(folder.path(), true);
        if before > 0 {
            compiler.cache.attempt(&digest::of(b"code"), before).unwrap();
        }
        thread::scope(|scope| {
            scope.spawn(|| compiler.compile(b"code"));
            wait("it is recorded", || attempts(&compiler) == Some(before + 1));
            compiler.withdraw();
            assert_eq!(attempts(&compiler), (before > 0).then_some(before));
            thread::sleep(4 * LOOK);
            assert_eq!(attempts(&compiler), (before > 0).then_some(before), "it stays so");
            fs::write(folder.path().join("may-end"), "").unwrap();
        });
    }
}

#[test]
fn g3_bytes_whose_compiler_had_much_memory_when_the_host_died_three_times_are_refused() {
    let (compiler, folder) = compiler("cat");
    let digest = digest::of(b"code");
    compiler.cache.attempt(&digest, MAX_DEATHS - 1).unwrap();
    assert!(in_folder("cat", folder.path()).compile(b"code").is_ok());
    compiler.cache.attempt(&digest, MAX_DEATHS).unwrap();
    let restarted = in_folder("cat", folder.path());
    let refusal = refused(restarted.compile(b"code"));
    assert_eq!((refusal.reason, runs(&folder)), ("TooCostlyToCompile", 1));
    let record = restarted.cache.record_path(&digest);
    for words in ["the host ended 3 times", "Raise the container's memory limit", &record.display().to_string()] {
        assert!(refusal.message.contains(words), "{words}: {}", refusal.message);
    }
    assert!(restarted.compile(b"other code").is_ok(), "other components compile");
    fs::remove_file(record).unwrap();
    assert!(!restarted.compile(b"code").unwrap().cached);
}

#[test]
fn g3_six_hosts_that_share_a_cache_compile_six_components_once_each() {
    let folder = tempfile::tempdir().unwrap();
    // Another host reads the script's folder for its name.
    let hosts: Vec<Compiler> = (0..6).map(|_| in_folder("cat; sleep 0.2", folder.path())).collect();
    let components: Vec<Vec<u8>> = (0..6).map(|number| vec![b'a' + number; 100]).collect();
    thread::scope(|scope| {
        for host in &hosts {
            for component in &components {
                scope.spawn(|| assert_eq!(code_of(&host.compile(component).unwrap()), *component));
            }
        }
    });
    assert_eq!(runs(&folder), 6);
    assert_eq!(files(&folder).len(), 12, "no lock is left: {:?}", files(&folder));
}

#[test]
fn g3_what_another_host_compiles_is_no_death_and_is_compiled_beside_it_if_that_hangs() {
    let (other, folder) = compiler("cat");
    let digest = digest::of(b"code");
    let lock = other.cache.lock(&digest, Duration::ZERO).expect("nobody has it");
    other.cache.attempt(&digest, MAX_DEATHS).unwrap();
    let mut host = in_folder("cat", folder.path());
    host.limits = Some(CompileLimits { wall: Duration::from_millis(300), ..CompileLimits::for_size(1) });
    assert_eq!(code_of(&host.compile(b"code").unwrap()), b"code");
    drop(lock);
}

#[test]
fn f32_without_a_folder_components_are_compiled_and_run_and_are_kept_once_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::write(&cache, "no folder can be made here").unwrap();
    let log = logged(|| {
        let compiler = in_folder("cat", folder.path());
        assert!(!compiler.cache_is_usable().load(Ordering::Relaxed));
        for component in [b"a", b"b", b"a"] {
            let artifact = compiler.compile(component).unwrap();
            assert_eq!((artifact.cached, code_of(&artifact)), (false, component.to_vec()));
        }
        fs::remove_file(&cache).unwrap();
        assert!(!compiler.compile(b"a").unwrap().cached);
        assert!(compiler.compile(b"a").unwrap().cached, "it is kept now");
        assert!(compiler.cache_is_usable().load(Ordering::Relaxed));
        // Away, and there again with what it had.
        fs::rename(&cache, folder.path().join("away")).unwrap();
        fs::write(&cache, "").unwrap();
        assert!(!compiler.compile(b"a").unwrap().cached);
        fs::remove_file(&cache).unwrap();
        fs::rename(folder.path().join("away"), &cache).unwrap();
        assert!(compiler.compile(b"a").unwrap().cached);
    });
    assert_eq!(log.matches("there is no compile cache").count(), 2, "once each time: {log}");
}

#[test]
fn g3_a_folder_that_others_may_write_into_is_not_used_when_it_comes_back() {
    let (compiler, folder) = compiler("cat");
    let cache = folder.path().join("cache");
    fs::rename(&cache, folder.path().join("away")).unwrap();
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(code_of(&compiler.compile(b"code").unwrap()), b"code");
    assert_eq!(files(&folder), [""; 0]);
}

#[test]
fn f32_when_memory_is_scarce_compilers_end_and_their_components_are_compiled_later() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = slow(folder.path(), true);
    halt_with_much(&compiler);
    assert_eq!((compiler.resident_bytes(), attempts(&compiler)), (0, None));
    fs::write(folder.path().join("may-end"), "").unwrap();
    assert!(compiler.compile(b"code").is_err(), "none begins");
    compiler.halt(false);
    assert!(compiler.compile(b"code").is_ok());
}

/// Compiles a component until its compiler has much memory and ends for that.
fn halt_with_much(compiler: &Compiler) {
    let before = attempts(compiler).unwrap_or_default();
    thread::scope(|scope| {
        let compiled = scope.spawn(|| compiler.compile(b"code"));
        wait("it has much", || attempts(compiler) == Some(before + 1));
        assert!(compiler.resident_bytes() >= 32 * MIB);
        compiler.halt(true);
        let error = compiled.join().unwrap().unwrap_err();
        assert!(matches!(error, CompileError::Host { .. }) && error.to_string().contains("memory limit"), "{error}");
    });
}

/// A component that kills the container at some starts and is halted at others never reached three.
#[test]
fn g3_a_compiler_that_is_ended_for_memory_leaves_what_earlier_hosts_died_of() {
    for before in 1..MAX_DEATHS {
        let folder = tempfile::tempdir().unwrap();
        let compiler = slow(folder.path(), true);
        compiler.cache.attempt(&digest::of(b"code"), before).unwrap();
        halt_with_much(&compiler);
        assert_eq!(attempts(&compiler), Some(before), "neither forgotten nor one more");
    }
}

/// Without room in the folder no result replaces the record, and each start counted as a death.
#[test]
fn g3_a_component_that_is_compiled_into_memory_alone_leaves_no_record_of_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = slow(folder.path(), true);
    compiler.attempts.record(&compiler.cache, &digest::of(b"code"), 0);
    assert_eq!(attempts(&compiler), Some(1));
    compiler.attempts.ended(&compiler.cache, &digest::of(b"code"));
    assert_eq!(attempts(&compiler), None);
}
