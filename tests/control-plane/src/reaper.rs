//! Ends every process of this crate, also when this process is killed and runs no destructor, or is a test binary,
//! which never drops its statics.
//!
//! A small shell reads a pipe of which this process has the only writing end. It receives the process groups that start
//! and end; when the pipe closes, for whatever reason, it kills the remaining ones and removes the temporary directory.
//! Unlike Linux's parent death signal this needs no unsafe code, works on every Unix, and does not fire when only the
//! thread ends that started a process.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Each line is `add GROUP` or `drop GROUP`; the input ends with the owner.
const SCRIPT: &str = r#"
groups=''
while read -r word group; do
  case $word in
    add) groups="$groups $group" ;;
    drop)
      kept=''
      for each in $groups; do
        [ "$each" = "$group" ] || kept="$kept $each"
      done
      groups=$kept
      ;;
  esac
done
for each in $groups; do
  kill -s KILL -- "-$each" 2>/dev/null
done
[ -z "$1" ] || rm -rf -- "$1"
"#;

/// The shell, which briefly outlives this process.
#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Mutex<Child>,
}

impl Reaper {
    /// Starts the shell. It removes `temporary` at the end.
    pub(crate) fn start(temporary: Option<&Path>) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "mortise-reaper"])
            .arg(temporary.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: Ctrl-C in a terminal signals the whole group of the foreground process.
            .process_group(0)
            .spawn()
            .context("start the shell that ends the control plane's processes")?;
        Ok(Self { shell: Mutex::new(shell) })
    }

    /// The shell will kill the group `leader`, unless it is removed.
    pub(crate) fn add(&self, leader: u32) -> Result<()> {
        self.send("add", leader).context("register a new process with the reaper")
    }

    /// The group has ended; another may get its id.
    pub(crate) fn remove(&self, leader: u32) {
        // If the reaper has died, it kills nothing.
        let _ = self.send("drop", leader);
    }

    fn send(&self, word: &str, leader: u32) -> std::io::Result<()> {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = shell.stdin.as_mut().expect("the pipe is open until the reaper is dropped");
        writeln!(pipe, "{word} {leader}")
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(shell.stdin.take());
        // It ends at once, since its input has ended.
        let _ = shell.wait();
    }
}
