//! A terminal: a folder, a shell, and a kubeconfig in its environment. Input: commands. Output: what they print. It must not
//! know what is right.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::{normal, transcript};

/// Many times what the longest command takes, such as a drain.
const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(5);

pub(crate) struct Terminal {
    folder: TempDir,
    path: String,
}

impl Terminal {
    /// A terminal whose commands are found in these folders first.
    pub(crate) fn new(kubeconfig: &Value, programs: &[PathBuf]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        // JSON is YAML.
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let known = std::env::var_os("PATH").unwrap_or_default();
        let programs = programs.iter().cloned().chain(std::env::split_paths(&known));
        let path = std::env::join_paths(programs).unwrap().into_string().unwrap();
        Self { folder, path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a command prints, as a transcript has it.
    pub(crate) fn run(&self, command: &str) -> String {
        let (out, err) = (self.file(".out"), self.file(".err"));
        let mut child = Command::new("sh")
            .args(["-c", command])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.file("kubeconfig"))
            .env("KUBECACHEDIR", self.file(".cache"))
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.file("tmp"))
            .env("CHARTS", concat!(env!("CARGO_MANIFEST_DIR"), "/charts"))
            .env("TZ", "UTC")
            // Without the user's aliases and defaults.
            .env("KUBERC", "off")
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > DEADLINE {
                kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
            }
            std::thread::sleep(POLL);
        };
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let mut printed = transcript::trimmed(&read(&out));
        for line in read(&err).lines() {
            printed.push_str(&format!("! {line}\n"));
        }
        if !status.success() {
            printed.push_str(&format!("= {}\n", status.code().map_or("killed".to_owned(), |code| code.to_string())));
        }
        let folder = self.folder.path().to_str().unwrap();
        transcript::trimmed(&normal::text(&printed.replace(folder, "<folder>")))
    }
}
