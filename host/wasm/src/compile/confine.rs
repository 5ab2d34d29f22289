//! What the compiler process gives up before it reads a byte of a component. Native code of an attacker's choice may
//! run in it one day, by a fault of the compiler. It must then find no file, no network, no other process and no
//! credential: only memory, its threads and its three pipes. Nothing here knows what is compiled.
//!
//! Each layer holds alone what matters most, since a kernel or a container runtime may lack one:
//!
//! | layer | since | what it refuses |
//! |---|---|---|
//! | resource limits | always | opening and writing files, core dumps; unless it is root, threads and processes |
//! | landlock | Linux 5.13 | every file and folder, also to remove or to rename; TCP from 6.7, signals from 6.12 |
//! | seccomp | any Linux | every system call but those of [`ALLOWED`], and executable memory |
//!
//! A layer that the machine refuses is returned as a sentence, and the process continues with the others: the host
//! would otherwise serve nothing on such a machine, and an older kernel is no reason to run the compiler without any of
//! it.

use std::io;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setpriority_process, setrlimit};

/// The compiler's nice value. A thread of it gets a tenth of what the event loop, requests and reviews get when both want one
/// core, and half of what a reconcile gets: a compilation ends, also beside plugins whose reconciles do not. 17, a tenth of
/// a reconcile's, would leave it 2 per cent of a core that others keep busy, and it would exceed its wall time.
const NICE: i32 = 10;

/// Processor time and memory of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) memory_bytes: u64,
    pub(super) cpu_seconds: u64,
}

/// Gives everything up. Calls `start_threads` in between: landlock counts for threads that start afterwards, and once
/// they run the process needs no right to start others. Returns the layers that this machine does not have.
///
/// # Errors
/// When a limit cannot be set that every kernel has, or `start_threads` fails.
pub(super) fn confine(limits: &Limits, start_threads: impl FnOnce() -> io::Result<()>) -> io::Result<Vec<String>> {
    close_inherited_files();
    limit(limits)?;
    let mut missing: Vec<String> = restrict_files().err().into_iter().collect();
    start_threads()?;
    forbid_files_and_threads()?;
    missing.extend(filter_calls().err());
    Ok(missing)
}

fn limit(limits: &Limits) -> io::Result<()> {
    // A host that died before this line has closed the pipes, at which the process ends soon.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A kernel that kills one process of a container out of memory should kill this one. Errors are harmless: other
    // kernels kill all of them, or have no such file.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    setpriority_process(None, NICE)?;
    setrlimit(Resource::As, exactly(limits.memory_bytes))?;
    // The hard limit of processor time is a second later, because the soft one only sends a signal.
    let cpu = Rlimit { current: Some(limits.cpu_seconds), maximum: Some(limits.cpu_seconds + 1) };
    setrlimit(Resource::Cpu, cpu)?;
    setrlimit(Resource::Core, exactly(0))?;
    setrlimit(Resource::Fsize, exactly(0))?;
    Ok(())
}

/// The open pipes and the running threads stay.
fn forbid_files_and_threads() -> io::Result<()> {
    setrlimit(Resource::Nofile, exactly(0))?;
    // The kernel counts all processes and threads of the user, on the whole machine and in all its containers. No
    // number but 0 means the same everywhere.
    setrlimit(Resource::Nproc, exactly(0))?;
    Ok(())
}

fn exactly(value: u64) -> Rlimit {
    Rlimit { current: Some(value), maximum: Some(value) }
}

/// Closes what the host's own parent may have left open over `exec`; the host opens nothing in this way.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a file is closed that no value of this process owns")]
fn close_inherited_files() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = folder.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        // SAFETY: called before the process opens a file of its own, so nothing uses the number. That of the folder,
        // which is closed already, is in the list too: closing it again is an error without effect.
        unsafe { libc::close(number) };
    }
}

#[cfg(not(target_os = "linux"))]
fn close_inherited_files() {}

/// Landlock: no file may be opened, made, removed, renamed or executed, whatever its mode.
#[cfg(target_os = "linux")]
fn restrict_files() -> Result<(), String> {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};

    // The newest that the crate knows; an older kernel enforces what it has of it.
    const NEWEST: ABI = ABI::V10;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        // Without a rule everything that is handled is refused.
        .and_then(|rules| rules.restrict_self())
        .map_err(|error| format!("landlock: {error}"))?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(format!("landlock: {:?}", status.landlock)),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn restrict_files() -> Result<(), String> {
    Err("landlock: only Linux has it".to_owned())
}

/// What the compiler and its threads call once they run. A number that is missing here fails with EPERM, which the
/// allocator and the standard library survive: a new version of them may try a call first that this list lacks.
#[cfg(target_os = "linux")]
const ALLOWED: [libc::c_long; 28] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Seccomp, for all threads. Beside [`ALLOWED`]: memory that is not executable, since native code is written to a pipe
/// and not run, and signals to this process itself, with which `abort` ends it.
#[cfg(target_os = "linux")]
fn filter_calls() -> Result<(), String> {
    use seccompiler::SeccompCmpArgLen::Dword;
    use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
    use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

    let program = || -> Result<BpfProgram, seccompiler::BackendError> {
        let only = |condition| SeccompRule::new(vec![condition]).map(|rule| vec![rule]);
        let not_executable = || SeccompCondition::new(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0).and_then(only);
        let to_itself = SeccompCondition::new(0, Dword, Eq, u64::from(std::process::id())).and_then(only);
        let mut rules: std::collections::BTreeMap<_, _> = ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
        rules.insert(libc::SYS_mmap, not_executable()?);
        rules.insert(libc::SYS_mprotect, not_executable()?);
        rules.insert(libc::SYS_tgkill, to_itself?);
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        SeccompFilter::new(rules, refuse, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
    };
    let program = program().map_err(|error| format!("seccomp: {error}"))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| format!("seccomp: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn filter_calls() -> Result<(), String> {
    Err("seccomp: only Linux has it".to_owned())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests;
