//! The end of every process that this crate starts, also when the process that started it is killed and runs no
//! destructor, or is a test binary whose statics are never dropped.
//!
//! A small shell holds the reading end of a pipe whose only writing end is ours. It is told of each process group as it
//! starts and ends; when the pipe closes, for whatever reason, it kills those that are left and removes the temporary
//! directory. Unlike Linux's parent death signal this needs no unsafe code, works on every Unix, and does not fire when
//! merely the thread that started a process ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Each line is `add GROUP` or `drop GROUP`; the end of the input is the end of the owner.
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

/// The shell that outlives this process by a moment.
#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Mutex<Child>,
}

impl Reaper {
    /// Starts the shell. `temporary` is removed at the end, when given.
    pub(crate) fn start(temporary: Option<&Path>) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "mortise-reaper"])
            .arg(temporary.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group, since Ctrl-C in a terminal goes to the whole group of whoever it ends.
            .process_group(0)
            .spawn()
            .context("start the shell that ends the control plane's processes")?;
        Ok(Self { shell: Mutex::new(shell) })
    }

    /// Ends the group `leader` should this process not do so itself.
    pub(crate) fn add(&self, leader: u32) -> Result<()> {
        self.tell("add", leader).context("tell the reaper of a new process")
    }

    /// The group has ended; its number may soon be another's.
    pub(crate) fn remove(&self, leader: u32) {
        // A reaper that is gone kills nothing, which is what is asked for.
        let _ = self.tell("drop", leader);
    }

    fn tell(&self, word: &str, leader: u32) -> std::io::Result<()> {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = shell.stdin.as_mut().expect("the pipe is open until the reaper is dropped");
        writeln!(pipe, "{word} {leader}")
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(shell.stdin.take());
        // It has nothing left to do but to end.
        let _ = shell.wait();
    }
}
