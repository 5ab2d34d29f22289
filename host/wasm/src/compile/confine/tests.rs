//! A process that confines itself and then tries what a hostile component would. The test starts its own program anew
//! with one test to run: a process cannot undo its confinement, and a fork of a program with threads may lock up.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, geteuid, getppid, getpriority_process, getrlimit, kill_process, parent_process_death_signal,
};

use super::*;

/// The variable by which a test is the confined process; its value is the folder of the files that it tries.
const CONFINED: &str = "MORTISE_TEST_CONFINED";
const LIMITS: Limits = Limits { memory_bytes: 1 << 40, cpu_seconds: 60 };

/// Runs this test anew in a process of its own, with the variable set; returns its stdout.
fn run_confined(test: &str, folder: &Path) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("compile::confine::tests::{test}"), "--nocapture", "--test-threads=2"])
        .env(CONFINED, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"component").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Prints what became of an attempt, and ends the line.
fn tried<T>(what: &str, result: io::Result<T>) {
    let errno = result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0);
    println!("\n{what}: {errno}");
}

#[track_caller]
fn check(output: &str, expected: &[(&str, i32)]) {
    for (what, errno) in expected {
        assert!(output.lines().any(|line| line == format!("{what}: {errno}")), "not {what}: {errno} in {output}");
    }
}

/// One system call; the result is an error number or 0.
#[expect(unsafe_code, reason = "the standard library makes none of these calls")]
fn call(number: libc::c_long, arguments: [libc::c_long; 4]) -> io::Result<libc::c_long> {
    let [a, b, c, d] = arguments;
    // SAFETY: the tests pass numbers and null pointers alone, which the kernel checks.
    let result = unsafe { libc::syscall(number, a, b, c, d) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What a hostile component would look for.
struct Prey {
    folder: PathBuf,
    parent: Pid,
}

impl Prey {
    /// The files of the folder in the variable; None in the test itself, which is not the confined process.
    fn given() -> Option<Self> {
        let folder = std::env::var_os(CONFINED)?.into();
        Some(Self { folder, parent: getppid().unwrap() })
    }

    /// Files and sockets, each by the number of its error.
    fn try_files(&self) {
        let file = |name: &str| self.folder.join(name);
        tried("read a file", File::open(file("token")));
        tried("read the token", File::open("/var/run/secrets/kubernetes.io/serviceaccount/token"));
        tried("read its environment", File::open("/proc/self/environ"));
        tried("read the parent's memory", File::open(format!("/proc/{}/mem", self.parent.as_raw_nonzero())));
        tried("write a file", File::create(file("planted")));
        tried("list a folder", fs::read_dir(&self.folder));
        tried("connect by TCP", TcpStream::connect(self.port()));
        tried("listen by TCP", TcpListener::bind("127.0.0.1:0"));
        tried("connect to a socket", UnixStream::connect(file("socket")));
        tried("make a pipe", io::pipe());
    }

    /// What needs no open file.
    fn try_the_rest(&self) {
        let file = |name: &str| self.folder.join(name);
        let parent = libc::c_long::from(self.parent.as_raw_nonzero().get());
        tried("remove a file", fs::remove_file(file("token")));
        tried("rename a file", fs::rename(file("token"), file("planted")));
        tried("run a program", Command::new("/bin/true").spawn());
        tried("trace the parent", call(libc::SYS_ptrace, [libc::PTRACE_SEIZE.into(), parent, 0, 0]));
        tried("read another's memory", call(libc::SYS_process_vm_readv, [parent, 0, 0, 0]));
        tried("signal the parent", kill_process(self.parent, Signal::CONT).map_err(Into::into));
        tried("raise a limit", setrlimit(Resource::Nofile, exactly(100)).map_err(Into::into));
    }

    fn try_calls(&self) {
        tried("fork", call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0]));
        tried("start a thread", thread::Builder::new().spawn(|| {}));
        tried("use io_uring", call(libc::SYS_io_uring_setup, [1, 0, 0, 0]));
        let executable = libc::c_long::from(libc::PROT_READ | libc::PROT_EXEC);
        let anonymous = libc::c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        tried("map code", call(libc::SYS_mmap, [0, 4096, executable, anonymous]));
        tried("make code", call(libc::SYS_mprotect, [0, 4096, executable, 0]));
    }

    /// The name of the folder ends in the port that somebody listens on.
    fn port(&self) -> SocketAddr {
        let port = self.folder.to_str().and_then(|name| name.rsplit('-').next());
        ([127, 0, 0, 1], port.unwrap().parse().unwrap()).into()
    }
}

/// A folder with a file and two sockets that somebody listens on.
fn prey() -> (tempfile::TempDir, TcpListener, UnixListener) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("-{}", tcp.local_addr().unwrap().port());
    let folder = tempfile::Builder::new().suffix(&name).tempdir().unwrap();
    fs::write(folder.path().join("token"), "secret").unwrap();
    let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
    (folder, tcp, unix)
}

#[test]
fn g3_a_confined_compiler_reaches_no_file_no_network_no_process_and_no_token() {
    if let Some(prey) = Prey::given() {
        let pool = || rayon::ThreadPoolBuilder::new().num_threads(2).build_global().map_err(io::Error::other);
        println!("\nmissing: {:?}", confine(&LIMITS, pool).unwrap());
        let mut component = String::new();
        io::stdin().read_to_string(&mut component).unwrap();
        let (sum, memory) = rayon::join(|| (0..1_000_000_u64).sum::<u64>(), || vec![1_u8; 64 << 20]);
        println!("\nworks: {component} {sum} {}", memory.len());
        let try_all = || (prey.try_files(), prey.try_the_rest(), prey.try_calls());
        try_all();
        // Runs on a thread of the pool.
        rayon::scope(|_| try_all());
        std::process::exit(0);
    }
    let (folder, _tcp, _unix) = prey();
    let output =
        run_confined("g3_a_confined_compiler_reaches_no_file_no_network_no_process_and_no_token", folder.path());
    assert!(output.contains("\nmissing: []\n"), "this kernel has all layers: {output}");
    assert!(output.contains("\nworks: component 499999500000 67108864\n"), "{output}");
    let refused: Vec<&str> = output.lines().filter(|line| line.ends_with(&format!(": {}", libc::EPERM))).collect();
    assert_eq!(refused.len(), 2 * 22, "all is refused, on both threads: {output}");
    assert!(folder.path().join("token").exists() && !folder.path().join("planted").exists());
}

#[test]
fn g3_landlock_keeps_files_and_programs_from_the_compiler_without_seccomp() {
    if let Some(prey) = Prey::given() {
        restrict_files().unwrap();
        prey.try_files();
        prey.try_the_rest();
        std::process::exit(0);
    }
    let (folder, _tcp, _unix) = prey();
    let output = run_confined("g3_landlock_keeps_files_and_programs_from_the_compiler_without_seccomp", folder.path());
    let denied =
        ["read a file", "read its environment", "write a file", "remove a file", "rename a file", "list a folder"];
    check(&output, &denied.map(|what| (what, libc::EACCES)));
    check(&output, &[("run a program", libc::EACCES), ("trace the parent", libc::EPERM)]);
    assert!(folder.path().join("token").exists() && !folder.path().join("planted").exists());
}

#[test]
fn g3_the_limits_of_the_compiler_hold_without_landlock_and_seccomp() {
    if let Some(prey) = Prey::given() {
        close_inherited_files();
        let open = fs::read_dir("/proc/self/fd").unwrap().count();
        limit(&LIMITS).unwrap();
        forbid_files_and_threads().unwrap();
        let soft = |resource| getrlimit(resource).current;
        println!("\nfiles: {open}");
        println!("\nlimits: {:?}", [Resource::Core, Resource::Fsize, Resource::Nofile, Resource::Nproc].map(soft));
        println!("\nnice: {}", getpriority_process(None).unwrap());
        println!("\nparent: {:?}", parent_process_death_signal().unwrap());
        prey.try_files();
        if !geteuid().is_root() {
            tried("start a thread", thread::Builder::new().spawn(|| {}));
        }
        std::process::exit(0);
    }
    let (folder, tcp, _unix) = prey();
    // A file that the new process inherits.
    fcntl_setfd(&tcp, FdFlags::empty()).unwrap();
    let output = run_confined("g3_the_limits_of_the_compiler_hold_without_landlock_and_seccomp", folder.path());
    // Beside the three pipes, the folder that lists them.
    for line in ["files: 4", "limits: [Some(0), Some(0), Some(0), Some(0)]", "nice: 10"] {
        assert!(output.lines().any(|said| said == line), "not {line} in {output}");
    }
    assert!(output.lines().any(|said| said.starts_with("parent: ") && said.contains("KILL")), "{output}");
    let denied = ["read a file", "write a file", "connect by TCP", "connect to a socket", "make a pipe"];
    check(&output, &denied.map(|what| (what, libc::EMFILE)));
    if !geteuid().is_root() {
        check(&output, &[("start a thread", libc::EAGAIN)]);
    }
}
