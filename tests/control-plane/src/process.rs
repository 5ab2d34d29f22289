//! A child process: in its own process group, with a log file, ended by its owner or else by the reaper.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::reaper::Reaper;

/// A running process, killed with its whole group when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Set once the process has been waited for. From then on its id may be another process's.
    status: Option<ExitStatus>,
    log: PathBuf,
    reaper: Arc<Reaper>,
}

impl Process {
    /// Starts `command` with its output appended to `log`.
    pub(crate) fn spawn(name: &str, mut command: Command, log: &Path, reaper: &Arc<Reaper>) -> Result<Self> {
        if let Some(dir) = log.parent() {
            fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        }
        // It may show objects, to its user alone, as kube-apiserver's audit log does.
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
        let file = file.with_context(|| format!("open {name}'s log {}", log.display()))?;
        let both = file.try_clone().with_context(|| format!("open {name}'s log twice"))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(both)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        if let Err(error) = reaper.add(child.id()) {
            // Without the reaper nothing would be sure to end it.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Self { name: name.to_owned(), child, status: None, log: log.to_owned(), reaper: Arc::clone(reaper) })
    }

    /// The id of the process and of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with its standard output and error.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Its exit status, or `None` while it runs. Kills the remaining processes of its group first.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            // NOWAIT leaves a zombie for `wait` below: until then nothing else gets the id of process and group.
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let ended = waitid(WaitId::Pid(Pid::from_child(&self.child)), look);
            if ended.with_context(|| format!("check whether {} runs", self.name))?.is_some() {
                self.end_group()?;
            }
        }
        Ok(self.status)
    }

    fn end_group(&mut self) -> Result<()> {
        kill_process_group(Pid::from_child(&self.child), Signal::KILL)
            .with_context(|| format!("kill {}", self.name))?;
        self.status = Some(self.child.wait().with_context(|| format!("wait for {} to end", self.name))?);
        self.reaper.remove(self.child.id());
        Ok(())
    }

    /// Sends SIGTERM to the process and its children, and does not wait.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Stops the process and its children (SIGSTOP): connections stay open without responses.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues a paused process (SIGCONT).
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} has ended ({status}); the end of its log:\n{}", self.name, self.tail());
        }
        let group = Pid::from_child(&self.child);
        kill_process_group(group, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Kills the process and its children (SIGKILL), and waits for the end. Does nothing if it has ended.
    pub fn kill(&mut self) -> Result<()> {
        if self.status.is_none() { self.end_group() } else { Ok(()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If this fails, the reaper tries again.
        let _ = self.kill();
    }
}

/// The last lines of a log file, for error messages, or why it cannot be read.
pub fn log_tail(path: &Path) -> String {
    // As much as a person reads below an error, and enough bytes for so many lines.
    const LINES: usize = 20;
    const BYTES: u64 = 16 * 1024;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let lines = text.lines().collect::<Vec<_>>();
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::time::Duration;

    use super::*;
    use crate::wait::until;

    fn sleeper(dir: &Path, reaper: &Arc<Reaper>) -> Process {
        let mut command = Command::new("sh");
        // The child shows that the whole group ends, and the trap that SIGTERM is not what ends it.
        command.args(["-c", "trap '' TERM; sleep 600 & echo \"child $!\"; wait"]);
        Process::spawn("sleeper", command, &dir.join("sleeper.log"), reaper).unwrap()
    }

    fn child_of(process: &Process) -> u32 {
        until("the child's number", Duration::from_secs(10), Duration::from_millis(5), || {
            let log = fs::read_to_string(process.log())?;
            Ok(log.strip_prefix("child ").and_then(|number| number.trim().parse().ok()))
        })
        .unwrap()
    }

    /// Whether a process exists and is not a zombie.
    fn runs(pid: u32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z')))
    }

    fn wait_for_the_end_of(pid: u32) {
        let gone = || Ok((!runs(pid)).then_some(()));
        until("the process to end", Duration::from_secs(10), Duration::from_millis(5), gone).unwrap();
    }

    #[test]
    fn a_dropped_process_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let reaper = Arc::new(Reaper::start(None).unwrap());
        let process = sleeper(dir.path(), &reaper);
        let (leader, child) = (process.pid(), child_of(&process));
        assert!(runs(leader) && runs(child));
        drop(process);
        wait_for_the_end_of(leader);
        wait_for_the_end_of(child);
    }

    #[test]
    fn what_a_process_prints_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let reaper = Arc::new(Reaper::start(None).unwrap());
        let process = sleeper(dir.path(), &reaper);
        assert_eq!(fs::metadata(process.log()).unwrap().mode() & 0o077, 0);
    }

    #[test]
    fn children_of_an_ended_process_are_killed() {
        let dir = tempfile::tempdir().unwrap();
        let reaper = Arc::new(Reaper::start(None).unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo \"child $!\"; exit 3"]);
        let mut process = Process::spawn("short", command, &dir.path().join("short.log"), &reaper).unwrap();
        let child = child_of(&process);
        let ended = || process.ended();
        let status = until("the process to end", Duration::from_secs(10), Duration::from_millis(5), ended).unwrap();
        assert_eq!(status.code(), Some(3));
        wait_for_the_end_of(child);
        assert!(process.terminate().is_err());
    }

    #[test]
    fn the_reaper_ends_processes_of_a_killed_owner() {
        let dir = tempfile::tempdir().unwrap();
        let temporary = dir.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let reaper = Arc::new(Reaper::start(Some(&temporary)).unwrap());
        let mut ended = sleeper(dir.path(), &reaper);
        ended.kill().unwrap();
        fs::remove_file(ended.log()).unwrap();
        let mut left = sleeper(dir.path(), &reaper);
        let child = child_of(&left);
        // As when the owner is killed: no destructor runs, and the kernel closes the pipe.
        left.reaper = Arc::new(Reaper::start(None).unwrap());
        ended.reaper = Arc::clone(&left.reaper);
        drop(reaper);
        wait_for_the_end_of(child);
        until("its leader to end", Duration::from_secs(10), Duration::from_millis(5), || left.ended()).unwrap();
        assert!(!temporary.exists());
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let lines = (0..5000).map(|i| format!("line {i}\n")).collect::<String>();
        fs::write(&path, lines).unwrap();
        let tail = log_tail(&path);
        assert!(tail.ends_with("line 4999") && tail.starts_with("line 4980"), "{tail}");
        assert!(log_tail(&dir.path().join("none")).contains("cannot be read"));
    }
}
