//! From bytes to native code, in a child process that may die (G3). A component goes in; the path of an artifact that
//! [`Engine::load`] takes comes out, from the cache when it was compiled before.
//!
//! Compilers can be made to take minutes and gigabytes by a few kilobytes of input, and an allocation that fails aborts
//! the process it fails in. So the child has limits of memory and processor time on itself, and the host only waits for
//! it. A component that failed is remembered, and not compiled again until the host or the component changes; what the
//! machine is at fault for (no process, no space, no processor time) is not held against it.

mod cache;
mod child;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mortise_core::digest;
use mortise_core::event::{Digest, Refusal};
use rustix::process::Signal;
use tracing::warn;

use self::cache::{Cache, Entry};
pub use self::child::child_main;
use self::child::{Order, REQUEST_VARIABLE};
use crate::engine::{Engine, Profile};

/// Compilers that run at once. Two, so that one slow component does not hold up all others, and a host that starts with
/// a hundred plugins does not become a hundred processes.
const PARALLEL: usize = 2;
/// Largest artifact: native code is two to four times the size of its component.
const MAX_ARTIFACT_BYTES: u64 = 256 << 20;
/// What is kept of the child's stderr, which is one line when all goes as it should.
const MAX_STDERR_BYTES: u64 = 64 << 10;
/// Threads of one compiler: more give little, and each takes address space.
const MAX_THREADS: usize = 4;
const MIB: u64 = 1 << 20;

/// What one compiler may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompileLimits {
    /// Address space of the child.
    pub memory_bytes: u64,
    /// Processor time of the child, over all its threads.
    pub cpu_seconds: u64,
    /// Wall time. Longer than the processor time, because other processes want the machine too; a compiler that has not
    /// used up its processor time by then was kept waiting, which is nothing that its component can help.
    pub wall: Duration,
}

impl CompileLimits {
    /// The default for a component of this size: 1 GiB and 20 s up to 4 MiB (Rust needs a third of a second, JavaScript
    /// 3 s, Go 7 s), then 64 MiB and 4 s more for each MiB (Python's 18 MiB take 23 s).
    pub fn for_size(component_bytes: u64) -> Self {
        let more = component_bytes.div_ceil(MIB).saturating_sub(4);
        let cpu_seconds = 20 + 4 * more;
        Self { memory_bytes: (1 << 30) + 64 * MIB * more, cpu_seconds, wall: Duration::from_secs(3 * cpu_seconds) }
    }
}

/// A compiled component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Artifact {
    /// The component that it was compiled from.
    pub digest: Digest,
    /// Where it stands. The file may be removed once it is loaded.
    pub path: PathBuf,
    /// True when no compiler ran.
    pub cached: bool,
    /// How long the compiler ran; zero when none did.
    pub elapsed: Duration,
}

/// Why there is no artifact.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The component is at fault; trying again changes nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The machine is at fault; trying again may help.
    #[error("cannot {doing}: {source}")]
    Host {
        /// What was being done, to what.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Compiles components, a few at a time, and remembers the results.
#[derive(Debug)]
pub struct Compiler {
    program: PathBuf,
    args: Vec<OsString>,
    profile: Profile,
    limits: Option<CompileLimits>,
    cache: Cache,
    slots: Slots,
}

impl Compiler {
    /// A compiler whose child is `program` with `args`, which must end in [`child_main`], for artifacts of this engine,
    /// cached in `cache_dir`. The folder is created for this user alone.
    ///
    /// # Errors
    /// When the folder cannot be created, or others may write into it.
    pub fn new(program: PathBuf, args: Vec<OsString>, cache_dir: &Path, engine: &Engine) -> Result<Self, CompileError> {
        Ok(Self {
            program,
            args,
            profile: engine.profile(),
            limits: None,
            cache: Cache::open(cache_dir, engine.compatibility())?,
            slots: Slots::new(PARALLEL),
        })
    }

    /// Uses these limits for every component instead of [`CompileLimits::for_size`].
    #[must_use]
    pub fn with_limits(mut self, limits: CompileLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Compiles a component that [`crate::scan::prescan`] let through. Blocks until it is done, so it belongs on a
    /// thread of its own.
    ///
    /// # Errors
    /// [`CompileError::Refused`] when the component cannot be compiled within the limits.
    pub fn compile(&self, wasm: &[u8]) -> Result<Artifact, CompileError> {
        let digest = digest::of(wasm);
        if let Some(artifact) = self.cached(&digest)? {
            return Ok(artifact);
        }
        let _slot = self.slots.take();
        // Another thread may have compiled it while this one waited.
        if let Some(artifact) = self.cached(&digest)? {
            return Ok(artifact);
        }
        let begin = Instant::now();
        let limits = self.limits.unwrap_or_else(|| CompileLimits::for_size(wasm.len() as u64));
        match self.run_child(wasm, &limits) {
            Ok(code) => {
                let path = self.cache.store(&digest, &code)?;
                Ok(Artifact { digest, path, cached: false, elapsed: begin.elapsed() })
            }
            Err(CompileError::Refused(refusal)) => {
                self.cache.store_refusal(&digest, &refusal)?;
                Err(refusal.into())
            }
            Err(error) => Err(error),
        }
    }

    fn cached(&self, digest: &Digest) -> Result<Option<Artifact>, CompileError> {
        match self.cache.find(digest) {
            Some(Entry::Compiled(path)) => {
                Ok(Some(Artifact { digest: digest.clone(), path, cached: true, elapsed: Duration::ZERO }))
            }
            Some(Entry::Refused(refusal)) => Err(refusal.into()),
            None => Ok(None),
        }
    }

    fn run_child(&self, wasm: &[u8], limits: &CompileLimits) -> Result<Vec<u8>, CompileError> {
        let order = Order { profile: self.profile, memory_bytes: limits.memory_bytes, cpu_seconds: limits.cpu_seconds };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let mut child = Command::new(&self.program)
            .args(&self.args)
            // The child needs nothing of this process's surroundings, least of all its tokens.
            .env_clear()
            .env(REQUEST_VARIABLE, serde_json::to_string(&order).expect("an order is plain data"))
            .env("RAYON_NUM_THREADS", threads.to_string())
            // Each allocation arena reserves address space, of which the child has little.
            .env("MALLOC_ARENA_MAX", "2")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| host_error(format!("start the compiler process {}", self.program.display()), source))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (finished, code) = crossbeam_channel::bounded(1);
        let (timed_out, output, said) = thread::scope(|scope| {
            scope.spawn(move || feed(stdin, wasm));
            let said = scope.spawn(move || read_capped(stderr, MAX_STDERR_BYTES));
            scope.spawn(move || finished.send(read_capped(stdout, MAX_ARTIFACT_BYTES)));
            // The child closes stdout when it is done, whatever way.
            let output = code.recv_timeout(limits.wall);
            if output.is_err() {
                // An error means that it has ended by itself; `wait` tells.
                let _ = child.kill();
            }
            (output.is_err(), output, said.join().unwrap_or_default())
        });
        let status = child.wait().map_err(|source| host_error("wait for the compiler process".to_owned(), source))?;
        if timed_out {
            return Err(host_error(
                format!("compile a component: the compiler process did not end within {:?}", limits.wall),
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the machine gave it too little processor time; raise the host's CPU request or limit",
                ),
            ));
        }
        let output = output.unwrap_or_default();
        if output.len() as u64 >= MAX_ARTIFACT_BYTES {
            return Err(too_costly(format!("{MAX_ARTIFACT_BYTES} bytes of native code")).into());
        }
        if status.success() && !output.is_empty() {
            return Ok(output);
        }
        Err(judge(status, &String::from_utf8_lossy(&said), limits))
    }
}

fn host_error(doing: String, source: io::Error) -> CompileError {
    CompileError::Host { doing, source }
}

fn too_costly(limit: String) -> Refusal {
    Refusal::new(
        "TooCostlyToCompile",
        format!("compiling the component takes more than {limit}; it is not tried again until it changes"),
    )
}

/// Writes the component to the child. A child that ends early closes the pipe; its status says why.
fn feed(stdin: Option<ChildStdin>, wasm: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(wasm);
    }
}

/// Reads at most so much of a pipe. What cannot be read is missing, which the caller sees by the child's status.
fn read_capped(pipe: Option<impl Read>, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(limit).read_to_end(&mut bytes);
    }
    bytes
}

/// Tells a component that cannot be compiled from a machine that could not do it.
fn judge(status: ExitStatus, stderr: &str, limits: &CompileLimits) -> CompileError {
    use std::os::unix::process::ExitStatusExt;

    if let Some(message) = child::error_in(stderr) {
        return Refusal::new("CompileFailed", format!("the component does not compile: {message}")).into();
    }
    let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    match (status.signal().and_then(Signal::from_named_raw), status.code()) {
        (Some(Signal::XCPU), _) => too_costly(format!("{} s of processor time", limits.cpu_seconds)).into(),
        (Some(Signal::ABORT), _) => too_costly(format!("{} MiB of memory", limits.memory_bytes / MIB)).into(),
        (_, Some(child::PANICKED)) => {
            Refusal::new("CompileFailed", format!("the compiler failed on the component: {last}")).into()
        }
        _ => {
            warn!(%status, stderr = last, "the compiler process ended in an unexpected way");
            host_error(
                format!("compile a component: the compiler process ended with {status}"),
                io::Error::other(last.to_owned()),
            )
        }
    }
}

/// A counting semaphore over threads.
#[derive(Debug)]
struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One slot; dropping it frees it.
struct Slot<'a>(&'a Slots);

impl Slots {
    fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    fn take(&self) -> Slot<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
