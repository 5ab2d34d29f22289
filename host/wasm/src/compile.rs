//! From bytes to native code, in a child process that may die (G3). A component comes in; an artifact for
//! [`Engine::load`] comes out, from the cache when it was compiled before. A digest that this host has tried before
//! comes out with its [`Trial`], without a read of the component.
//!
//! A few kilobytes of input can make a compiler take minutes and gigabytes, and a failed allocation aborts its process.
//! So the child limits its own memory and processor time and gives up files, network and processes (`confine.rs`), and
//! the host waits for it. A component that does not compile is remembered and not compiled again; an error of the
//! machine (no process, disk space or processor time) is not.
//!
//! The kernel kills a container that runs out of memory as a whole, the host with its child. So a child gets no more
//! than the container leaves (`slots.rs`), and the cache records that one has much memory, so that a
//! component that kills the host is not compiled at every restart (`attempts.rs`). Hosts that share a cache compile a
//! component once (`locks.rs`).
//!
//! The host has a component's bytes in memory, and a chunk of its native code at a time.

mod artifact;
mod attempts;
mod cache;
mod child;
mod children;
mod confine;
mod error;
mod eviction;
mod folder;
mod locks;
mod mac;
mod slots;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use mortise_core::digest;
use mortise_core::digest::Digest;
use mortise_core::refusal::Refusal;
use mortise_core::text::FAILURE;
use rustix::process::Signal;
use tracing::warn;

pub use self::artifact::{Artifact, Trial};
use self::attempts::Attempts;
use self::cache::{Cache, Entry};
pub use self::child::child_main;
use self::child::{Order, REQUEST_VARIABLE};
use self::children::{Children, Stopped};
pub use self::error::CompileError;
use self::error::host_error;
use self::folder::Draft;
use self::locks::Lock;
pub use self::slots::COMPILERS;
use self::slots::Slots;
use crate::container::{Cgroup, resident_bytes};
use crate::engine::{Engine, Profile};

/// Largest artifact: native code is two to four times the size of its component.
const MAX_ARTIFACT_BYTES: u64 = 256 << 20;
/// Bytes of the child's stderr. It writes one line at most, unless it crashes.
const MAX_STDERR_BYTES: u64 = 64 << 10;
/// Threads of one compiler: more bring little, and each takes address space.
const MAX_THREADS: usize = 4;
/// The least address space of a compiler: its own code and its threads' stacks take half of it.
const MIN_MEMORY_BYTES: u64 = 256 * MIB;
/// Times that the host may die while the compiler of the same bytes has much memory. One or two may be a coincidence: a node
/// that fails, another plugin that grows meanwhile.
const MAX_DEATHS: u32 = 3;
const MIB: u64 = 1 << 20;

/// Limits of one compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompileLimits {
    /// Address space of the child.
    pub memory_bytes: u64,
    /// Processor time of the child, over all its threads.
    pub cpu_seconds: u64,
    /// Wall time, for a compiler that hangs. Ten times the processor time: beside a busy thread of the host one of the compiler's
    /// gets a tenth of a core. Exceeding it is the machine's fault, not the component's.
    pub wall: Duration,
}

impl CompileLimits {
    /// The defaults: 1 GiB and 20 s up to 4 MiB (Rust takes a third of a second, JavaScript 3 s, Go 7 s), then 64 MiB
    /// and 4 s more for each MiB (Python's 18 MiB take 23 s).
    pub fn for_size(component_bytes: u64) -> Self {
        let more = component_bytes.div_ceil(MIB).saturating_sub(4);
        let cpu_seconds = 20 + 4 * more;
        Self { memory_bytes: (1 << 30) + 64 * MIB * more, cpu_seconds, wall: Duration::from_secs(10 * cpu_seconds) }
    }
}

/// The folder of a compile cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheFolder<'a> {
    /// Created for this user alone.
    pub path: &'a Path,
    /// The file with the key by which the host knows its own entries, of 32 bytes at least. None: a file in the folder,
    /// which is made; then everybody who can read the folder can make entries.
    pub key_file: Option<&'a Path>,
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for CacheFolder<'a> {
    fn from(path: &'a P) -> Self {
        Self { path: path.as_ref(), key_file: None }
    }
}

/// Compiles components, a few at a time, and caches the results.
#[derive(Debug)]
pub struct Compiler {
    program: PathBuf,
    args: Vec<OsString>,
    profile: Profile,
    limits: Option<CompileLimits>,
    threads: usize,
    cache: Cache,
    attempts: Attempts,
    slots: Slots,
    children: Children,
    /// Logs once which layers of the child's confinement the machine does not have.
    unconfined: Once,
}

impl Compiler {
    /// A compiler whose child is `program` with `args`, which must end in [`child_main`], for artifacts of this engine,
    /// cached in this folder.
    ///
    /// # Errors
    /// When others may write into the folder, or the file of its key cannot be used. A folder that is away or cannot be written
    /// is used once that ends.
    pub fn new<'a>(
        program: PathBuf,
        args: Vec<OsString>,
        cache: impl Into<CacheFolder<'a>>,
        engine: &Engine,
    ) -> Result<Self, CompileError> {
        let CacheFolder { path, key_file } = cache.into();
        let host = format!("{} {}", build_of(&program), if engine.pooled() { "pooled" } else { "on demand" });
        Ok(Self {
            program,
            args,
            profile: engine.profile(),
            limits: None,
            threads: thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
            cache: Cache::open(path, key_file, engine.compatibility(), host)?,
            attempts: Attempts::default(),
            slots: Slots::new(Cgroup::default()),
            children: Children::default(),
            unconfined: Once::new(),
        })
    }

    /// Whether the folder of the cache could be used last.
    pub fn cache_is_usable(&self) -> Arc<AtomicBool> {
        self.cache.is_usable()
    }

    /// The host ends in order: what is being compiled does not count as what has ended it.
    pub fn withdraw(&self) {
        self.attempts.withdraw(&self.cache);
    }

    /// Ends the compilers, and lets none begin until it is called with false: memory is scarce. Their components are compiled
    /// later.
    pub fn halt(&self, halted: bool) {
        self.children.halted.store(halted, Ordering::Relaxed);
    }

    /// Bytes of memory that the compilers have.
    pub fn resident_bytes(&self) -> u64 {
        self.children.running().iter().filter_map(|process| resident_bytes(*process)).sum()
    }

    /// A component that this host has compiled and tried before.
    ///
    /// # Errors
    /// The refusal of a component that is known not to compile.
    pub fn tried(&self, digest: &Digest) -> Result<Option<(Artifact, Trial)>, Refusal> {
        let known = self.known(digest)?;
        Ok(known.and_then(|(artifact, trial)| Some((artifact, trial?))))
    }

    /// Records the trial of a component. An error is logged: the next start tries it again.
    pub fn accept(&self, digest: &Digest, trial: &Trial) {
        if let Err(error) = self.cache.accept(digest, trial) {
            warn!(%digest, %error, "cannot record the trial of a component; the next start tries it again");
        }
    }

    /// Compiles a component that [`crate::scan::prescan`] has accepted. Blocks until it is done, here or by another host with
    /// this cache.
    ///
    /// # Errors
    /// [`CompileError::Refused`] when the component cannot be compiled within the limits.
    pub fn compile(&self, wasm: &[u8]) -> Result<Artifact, CompileError> {
        let digest = digest::of(wasm);
        if let Some((artifact, _)) = self.known(&digest)? {
            return Ok(artifact);
        }
        let wanted = self.limits.unwrap_or_else(|| CompileLimits::for_size(wasm.len() as u64));
        // No longer than the other may compile: then it hangs, and this one compiles beside it.
        let lock = self.cache.lock(&digest, wanted.wall);
        let deaths = self.deaths(&digest, lock.as_ref())?;
        let slot = self.slots.take(wanted.memory_bytes);
        // Another thread or host may have compiled it while this one waited.
        if let Some((artifact, _)) = self.known(&digest)? {
            return Ok(artifact);
        }
        let limits = CompileLimits { memory_bytes: slot.bytes, ..wanted };
        if limits.memory_bytes < wanted.memory_bytes.min(MIN_MEMORY_BYTES) || self.children.are_halted() {
            return Err(no_memory(&limits));
        }
        let begin = Instant::now();
        let note = || {
            if lock.is_some() {
                self.attempts.record(&self.cache, &digest, deaths);
            }
        };
        let result = self.run_compiler(wasm, &digest, &limits, wanted.memory_bytes, &note);
        if let Err(CompileError::Refused(refusal)) = &result
            && let Err(error) = self.cache.store_refusal(&digest, refusal)
        {
            warn!(%digest, %error, "cannot record a refusal; the next start compiles the component again");
        }
        self.attempts.ended(&self.cache, &digest);
        result.map(|file| Artifact { digest, file, cached: false, elapsed: begin.elapsed() })
    }

    /// Times that a host ended while the compiler of these bytes had much memory. Without the component's lock, one may be under
    /// way.
    fn deaths(&self, digest: &Digest, lock: Option<&Lock>) -> Result<u32, Refusal> {
        let (Some(_), Some(Entry::Attempted(deaths))) = (lock, self.cache.find(digest)) else { return Ok(0) };
        if deaths < MAX_DEATHS {
            return Ok(deaths);
        }
        let record = self.cache.record_path(digest);
        let message = format!(
            "the host ended {deaths} times while it compiled this component and the compiler had taken most of its memory, most \
             likely because the container ran out of it; it is not tried again. Raise the container's memory limit, then remove \
             {} (a new Pod of the host does so too) and restart the host",
            record.display()
        );
        Err(Refusal::new("TooCostlyToCompile", message))
    }

    /// Runs the compiler. After a crash it runs again: only a crash that repeats is the component's fault. Out of memory
    /// it runs again with one thread: large functions that are compiled at once take their memory at once.
    fn run_compiler(
        &self,
        wasm: &[u8],
        digest: &Digest,
        limits: &CompileLimits,
        wanted_bytes: u64,
        has_much: &dyn Fn(),
    ) -> Result<Arc<File>, CompileError> {
        let (mut crashed, mut threads) = (None, self.threads);
        loop {
            let death = match self.run_child(wasm, limits, threads, has_much)? {
                Ended::Compiled(code) => return self.cache.store(digest, code),
                Ended::Died(Death::OutOfMemory) if threads > 1 => {
                    threads = 1;
                    continue;
                }
                Ended::Died(death) => death,
            };
            // With less memory than a component of this size may take, the component is not at fault.
            if limits.memory_bytes < wanted_bytes && death.may_be_of_memory() {
                return Err(no_memory(limits));
            }
            match death {
                Death::Refused(refusal) => return Err(refusal.into()),
                Death::OutOfMemory => {
                    return Err(too_costly(format!("{} MiB of memory", limits.memory_bytes / MIB)).into());
                }
                Death::Panicked(last) => {
                    let message = format!("the compiler failed on the component: {last}");
                    return Err(Refusal::new("CompileFailed", message).into());
                }
                Death::Crashed(signal, last) if crashed == Some(signal) => {
                    let message = format!("the compiler crashes on the component ({}, twice): {last}", name_of(signal));
                    return Err(Refusal::new("CompileFailed", message).into());
                }
                Death::Crashed(signal, last) if crashed.is_some() => {
                    let doing = "compile a component: the compiler process crashes in one way and then in another";
                    return Err(host_error(doing.to_owned(), io::Error::other(format!("{}: {last}", name_of(signal)))));
                }
                Death::Crashed(signal, _) => crashed = Some(signal),
            }
        }
    }

    fn known(&self, digest: &Digest) -> Result<Option<(Artifact, Option<Trial>)>, Refusal> {
        match self.cache.find(digest) {
            Some(Entry::Compiled(file, trial)) => {
                let artifact = Artifact { digest: digest.clone(), file, cached: true, elapsed: Duration::ZERO };
                Ok(Some((artifact, trial)))
            }
            Some(Entry::Refused(refusal)) => Err(refusal),
            Some(Entry::Attempted(_)) | None => Ok(None),
        }
    }

    /// Runs one compiler process, and calls `has_much` while it has much memory.
    fn run_child(
        &self,
        wasm: &[u8],
        limits: &CompileLimits,
        threads: usize,
        has_much: &dyn Fn(),
    ) -> Result<Ended, CompileError> {
        let draft = self.cache.draft()?;
        let order = Order { profile: self.profile, memory_bytes: limits.memory_bytes, cpu_seconds: limits.cpu_seconds };
        let mut child = Command::new(&self.program)
            .args(&self.args)
            // The child gets nothing of the host's environment, which may hold tokens.
            .env_clear()
            .env(REQUEST_VARIABLE, serde_json::to_string(&order).expect("an order is plain data"))
            .env("RAYON_NUM_THREADS", threads.to_string())
            // jemalloc keeps the address space of what it returns, and the child has little. A Deployment of k8s-openapi
            // takes 950 MiB of it with this setting, 1350 without, and 550 of memory. The confined child starts no thread,
            // so it has none that returns memory in the background.
            .env("_RJEM_MALLOC_CONF", "retain:false,background_thread:false")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| host_error(format!("start the compiler process {}", self.program.display()), source))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (finished, code) = crossbeam_channel::bounded(1);
        let (output, stderr) = thread::scope(|scope| {
            scope.spawn(move || write_component(stdin, wasm));
            let stderr = scope.spawn(move || read_stderr(stderr));
            scope.spawn(move || _ = finished.send(store_code(stdout, draft)));
            // The child closes stdout when it ends in any way.
            let output = self.children.watch(&code, child.id(), (limits.wall, limits.memory_bytes), has_much);
            if output.is_err() {
                // An error means that the child has ended; `wait` returns its status.
                let _ = child.kill();
            }
            (output, stderr.join().unwrap_or_default())
        });
        let stderr = String::from_utf8_lossy(&stderr);
        self.note_missing(&stderr);
        let status = child.wait().map_err(|source| host_error("wait for the compiler process".to_owned(), source))?;
        let code = match output {
            Ok(code) => code,
            Err(Stopped::Halted) => return Err(no_memory(limits)),
            Err(Stopped::TooLong) => {
                return Err(host_error(
                    format!("compile a component: the compiler process did not end within {:?}", limits.wall),
                    io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the machine gave it too little processor time; raise the host's CPU request or limit",
                    ),
                ));
            }
        };
        let code = code.map_err(|source| host_error("write native code into the compile cache".to_owned(), source))?;
        if code.bytes >= MAX_ARTIFACT_BYTES {
            let refusal = too_costly(format!("{MAX_ARTIFACT_BYTES} bytes of native code"));
            return Ok(Ended::Died(Death::Refused(refusal)));
        }
        if status.success() && code.bytes > 0 {
            return Ok(Ended::Compiled(code));
        }
        death(status, &stderr, limits).map(Ended::Died)
    }

    fn note_missing(&self, stderr: &str) {
        let missing = child::missing_in(stderr);
        if !missing.is_empty() {
            self.unconfined.call_once(|| {
                warn!(
                    missing = %cut(&missing.join("; ")),
                    "this machine does not confine the compiler process wholly; it runs with the other layers, and a \
                     component that takes it over may reach more than its pipes"
                );
            });
        }
    }
}

/// How a compiler process ended, other than by the machine's fault.
enum Ended {
    Compiled(Draft),
    Died(Death),
}

/// Why there is no native code.
enum Death {
    Refused(Refusal),
    /// It aborted, as a failed allocation does.
    OutOfMemory,
    /// It panicked; with the last line of its stderr.
    Panicked(String),
    /// It died of SIGSEGV, SIGILL or SIGBUS; with the last line of its stderr.
    Crashed(Signal, String),
}

impl Death {
    /// Whether more memory might have helped: a stack that cannot grow is a crash, a thread that cannot start a panic.
    fn may_be_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory | Self::Panicked(_) | Self::Crashed(..))
    }
}

fn no_memory(limits: &CompileLimits) -> CompileError {
    let left = limits.memory_bytes / MIB;
    host_error(
        format!("compile a component with the {left} MiB that the container's memory limit leaves to the compiler"),
        io::Error::new(io::ErrorKind::OutOfMemory, "raise the memory limit of the host's container"),
    )
}

fn too_costly(limit: String) -> Refusal {
    Refusal::new(
        "TooCostlyToCompile",
        format!(
            "compiling the component takes more than {limit}; it is not tried again until it changes. Smaller functions \
             take less: in Rust, `opt-level = \"z\"` under [profile.release], and types with fewer fields"
        ),
    )
}

/// A child that ends early closes the pipe; its status says why.
fn write_component(stdin: Option<ChildStdin>, wasm: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(wasm);
    }
}

/// Writes the child's stdout to a file, up to the size of the largest artifact.
fn store_code(stdout: Option<ChildStdout>, mut draft: Draft) -> io::Result<Draft> {
    if let Some(stdout) = stdout {
        io::copy(&mut stdout.take(MAX_ARTIFACT_BYTES), &mut draft)?;
    }
    Ok(draft)
}

fn read_stderr(stderr: Option<ChildStderr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stderr) = stderr {
        let _ = stderr.take(MAX_STDERR_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// Distinguishes the component's fault from the machine's.
fn death(status: ExitStatus, stderr: &str, limits: &CompileLimits) -> Result<Death, CompileError> {
    use std::os::unix::process::ExitStatusExt;

    if let Some(message) = child::error_in(stderr) {
        let message = format!("the component does not compile: {}", cut(&message));
        return Ok(Death::Refused(Refusal::new("CompileFailed", message)));
    }
    let last = cut(stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim());
    match (status.signal().and_then(Signal::from_named_raw), status.code()) {
        (Some(Signal::XCPU), _) => {
            Ok(Death::Refused(too_costly(format!("{} s of processor time", limits.cpu_seconds))))
        }
        (Some(Signal::ABORT), _) => Ok(Death::OutOfMemory),
        (Some(signal @ (Signal::SEGV | Signal::ILL | Signal::BUS)), _) => Ok(Death::Crashed(signal, last)),
        (_, Some(child::PANICKED)) => Ok(Death::Panicked(last)),
        _ => {
            warn!(%status, stderr = last, "the compiler process ended in an unexpected way");
            Err(host_error(
                format!("compile a component: the compiler process ended with {status}"),
                io::Error::other(last),
            ))
        }
    }
}

/// Errors have a line or two, but a name in one may be as long as the component.
fn cut(text: &str) -> String {
    FAILURE.text(text).into_owned()
}

/// Identifies a build of a program: a trial by another build is void, since that may link and refuse differently. The
/// ctime is part of it, because archives set the mtime. An unreadable program equals no other.
fn build_of(program: &Path) -> String {
    let file = match std::fs::metadata(program) {
        Ok(file) => file,
        Err(error) => return format!("{error}, {:?}", SystemTime::now()),
    };
    let (modified, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    format!("{} bytes of {modified:?}, there since {changed:?}", file.len())
}

fn name_of(signal: Signal) -> &'static str {
    match signal {
        Signal::SEGV => "SIGSEGV",
        Signal::ILL => "SIGILL",
        _ => "SIGBUS",
    }
}
