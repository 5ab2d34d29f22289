//! What demos run on: the control plane, the host, echoed kubectl commands, and the times of the summary. Of mortise it
//! knows what a user knows: its command line and its namespace.

use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder, File};
use std::io::{Write, stdout};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};
use mortise_control_plane::{ADMIN, Component, ControlPlane, Options, Process, log_tail, node, until};

use crate::checkout::{Checkout, execute, line, quoted};
use crate::control_plane;
use crate::guests;
use crate::terminal::{headline, time};

pub(super) const NAMESPACE: &str = "mortise-system";

/// The label of ConfigMaps that hold plugins.
pub(super) const LABEL: &str = "mortise.dev/plugin=true";

/// The host's user, by which the API server's audit log identifies its requests.
const HOST_USER: &str = "mortise";

/// Far more than any step takes on two busy cores: an overrun means that something is broken.
const DEADLINE: Duration = Duration::from_secs(60);

/// A tick of a schedule comes within a minute; what it starts takes as long as any other step.
pub(super) const TO_A_TICK: Duration = Duration::from_secs(120);

/// Interval of polls, and the precision of the summary's times.
const POLL: Duration = Duration::from_millis(50);

/// What to do with the control plane and the host after the demos.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    End,
    /// Keep them until Ctrl-C.
    Keep,
}

/// The control plane with the host.
pub(super) struct Cluster {
    root: PathBuf,
    plane: ControlPlane,
    host: RefCell<Process>,
    host_log: PathBuf,
    kubectl: PathBuf,
    dir: PathBuf,
    /// Held for the whole demo: later demos see that `dir` is in use.
    _lock: File,
    began: Instant,
    times: RefCell<Vec<(&'static str, Duration)>>,
    commands: Cell<usize>,
}

impl Cluster {
    pub(super) fn start(checkout: &Checkout, host: &Path) -> Result<Self> {
        headline("Starting a real control plane: etcd, kube-apiserver, controller manager, scheduler, kwok");
        let binaries = control_plane::binaries()?;
        let (dir, lock) = directory(&checkout.target("demo"))?;
        let began = Instant::now();
        let options = Options { users: vec![HOST_USER.to_owned()], dir: Some(dir.clone()), ..Options::default() };
        let plane = ControlPlane::start(&binaries, &options)?;
        println!("ready after {}, at {}", time(began.elapsed()), plane.server());
        println!("{}", plane.kubectl_output(&["get", "nodes"])?.trim());

        headline("Starting mortise");
        plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
        let binding = ["create", "clusterrolebinding", HOST_USER, "--clusterrole=cluster-admin", "--user", HOST_USER];
        plane.kubectl_output(&binding)?;
        let mut command = Command::new(host);
        command.arg("run").arg("--kubeconfig").arg(plane.kubeconfig(HOST_USER)?).args(["--namespace", NAMESPACE]);
        // Off: their usual ports may be in use.
        command.args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]);
        println!("$ {}", line(&command));
        let host = plane.spawn("mortise", command)?;
        let host_log = host.log().to_owned();
        println!("its log: {}", host_log.display());
        Ok(Self {
            root: checkout.path(""),
            plane,
            host: RefCell::new(host),
            host_log,
            kubectl: binaries.kubectl().to_owned(),
            dir,
            _lock: lock,
            began,
            times: RefCell::default(),
            commands: Cell::new(0),
        })
    }

    /// Prints a kubectl command and runs it with its output shown.
    pub(super) fn kubectl(&self, args: &[&str]) -> Result<()> {
        self.echo(&[args])?;
        execute(&mut self.command(args))
    }

    /// Prints a pipe of kubectl commands and runs it with the last one's output shown.
    pub(super) fn pipe(&self, commands: &[&[&str]]) -> Result<()> {
        self.echo(commands)?;
        let Some((last, first)) = commands.split_last() else { bail!("a pipe of no commands") };
        let mut input = Vec::new();
        for args in first {
            input = feed(self.command(args).stdout(Stdio::piped()), &input)?;
        }
        feed(&mut self.command(last), &input).map(drop)
    }

    /// kubectl in the checkout's root, to which the shown paths are relative.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.plane.kubectl(args);
        command.current_dir(&self.root);
        command
    }

    fn echo(&self, commands: &[&[&str]]) -> Result<()> {
        self.commands.set(self.commands.get() + commands.len());
        let words = |args: &&[&str]| args.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let line = commands.iter().map(|args| format!("kubectl {}", words(args))).collect::<Vec<_>>().join(" | ");
        println!("$ {line}");
        stdout().flush().context("write to the terminal")
    }

    /// The output of a kubectl command that is not shown.
    pub(super) fn read(&self, args: &[&str]) -> Result<String> {
        self.plane.kubectl_output(args)
    }

    /// Waits until `holds` returns true. Fails at once if the host ends.
    pub(super) fn until(&self, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        self.until_within(DEADLINE, what, holds)
    }

    /// The same with another deadline.
    pub(super) fn until_within(&self, deadline: Duration, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        until(what, deadline, POLL, || match self.check_host() {
            Err(error) => Ok(Some(Err(error))),
            Ok(()) => Ok(holds()?.then_some(Ok(()))),
        })?
    }

    fn check_host(&self) -> Result<()> {
        match self.host.borrow_mut().ended()? {
            Some(status) => Err(anyhow!("mortise exited ({status})")),
            None => Ok(()),
        }
    }

    /// Measures a step for the summary.
    pub(super) fn timed(&self, what: &'static str, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        act()?;
        self.times.borrow_mut().push((what, began.elapsed()));
        Ok(())
    }

    /// Installs a plugin that brings a kind, and shows the kind.
    pub(super) fn install(&self, checkout: &Checkout, plugin: &str, crd: &str, what: &'static str) -> Result<()> {
        self.install_with(checkout, plugin, &[], what)?;
        self.kubectl(&["get", "crd", crd])
    }

    /// Installs a plugin through a labelled ConfigMap with further arguments, and waits until it is ready; the summary
    /// shows the time as `what`.
    pub(super) fn install_with(
        &self,
        checkout: &Checkout,
        plugin: &str,
        more: &[&str],
        what: &'static str,
    ) -> Result<()> {
        let wasm = guests::plugin(checkout, plugin);
        let file = format!("--from-file=plugin.wasm={}", checkout.shown(&wasm));
        self.kubectl(&[&["create", "configmap", plugin, "--namespace", NAMESPACE, &file], more].concat())?;
        self.timed(what, || {
            self.kubectl(&["label", "configmap", plugin, "--namespace", NAMESPACE, LABEL])?;
            self.until("the host to report the plugin", || Ok(self.read(&["get", "plugin", plugin]).is_ok()))?;
            self.kubectl(&["wait", "--for=condition=Ready", &format!("plugin/{plugin}"), "--timeout=60s"])
        })?;
        self.kubectl(&["get", "plugin", plugin])
    }

    /// Prints a plugin's sample, and returns its path relative to the checkout.
    pub(super) fn sample(&self, checkout: &Checkout, plugin: &str) -> Result<String> {
        let file = sample_file(plugin);
        let text = fs::read_to_string(checkout.path(&file)).with_context(|| format!("read {file}"))?;
        println!("{}", text.trim());
        Ok(file)
    }

    /// Deletes the objects of a plugin's sample, and waits until their children are deleted.
    pub(super) fn clean_up(&self, plugin: &str) -> Result<()> {
        headline("Its object is deleted, and the garbage collector deletes its children");
        self.kubectl(&["delete", "--ignore-not-found", "-f", &sample_file(plugin)])?;
        self.until("the garbage collector to delete the Pods", || {
            Ok(self.read(&["get", "deployments,jobs,pods", "-o", "name"])?.trim().is_empty())
        })?;
        self.kubectl(&["get", "pods"])
    }

    /// Registers a Node, as its kubelet would.
    pub(super) fn add_node(&self, name: &str) -> Result<()> {
        println!("(a kubelet registers the Node {name})");
        self.plane.apply(&node(name).to_string())
    }

    /// Prints the summary, then ends everything or keeps it until Ctrl-C.
    pub(super) fn close(self, after: After) -> Result<()> {
        self.check_host()?;
        headline("Summary (times include kubectl's own)");
        for (what, took) in self.times.borrow().iter() {
            println!("{what:<52} {:>9}", time(*took));
        }
        let audit = self.plane.audit()?;
        let writes = audit.iter().filter(|record| record.user == HOST_USER).count();
        println!("{:<52} {writes:>9}", "write requests by mortise, from the audit log");
        println!("{:<52} {:>9}", "kubectl commands shown", self.commands.get());
        println!("{:<52} {:>9}", "process id of mortise, the same all along", self.host.borrow().pid());
        println!("{:<52} {:>9}", "total", time(self.began.elapsed()));
        if after == After::Keep {
            return self.keep();
        }
        let Self { plane, host, dir, .. } = self;
        drop((host, plane));
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))
    }

    /// Ctrl-C ends this process and everything that it started.
    fn keep(&self) -> Result<()> {
        headline("The control plane and the host run until Ctrl-C. In another terminal:");
        println!("export KUBECONFIG={}", quoted(&self.plane.kubeconfig(ADMIN)?.display().to_string()));
        if self.kubectl.is_absolute() {
            println!("alias kubectl={}", quoted(&self.kubectl.display().to_string()));
        }
        println!("kubectl get plugins,pods");
        println!("# logs: {}", self.plane.logs().display());
        loop {
            self.check_host()?;
            self.plane.pid(Component::ApiServer)?;
            sleep(Duration::from_secs(1));
        }
    }

    /// Prints what is needed to find the cause of a failure.
    pub(super) fn fail(self, error: Error) -> Error {
        println!("\nThe end of mortise's log:\n{}", log_tail(&self.host_log));
        println!("All logs: {}", self.plane.logs().display());
        error
    }
}

fn sample_file(plugin: &str) -> String {
    format!("plugins/{plugin}/sample.yaml")
}

/// Creates and locks this demo's directory. It is not a temporary one, since logs must outlast a failure; directories
/// of demos that have ended are removed here.
fn directory(demos: &Path) -> Result<(PathBuf, File)> {
    const LOCK: &str = "lock";
    fs::create_dir_all(demos).with_context(|| format!("create {}", demos.display()))?;
    for entry in fs::read_dir(demos).with_context(|| format!("list {}", demos.display()))? {
        let old = entry.with_context(|| format!("list {}", demos.display()))?.path();
        // The kernel releases a lock when its process ends, however it ends.
        let in_use = File::open(old.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err());
        if !in_use {
            fs::remove_dir_all(&old).with_context(|| format!("remove the ended demo {}", old.display()))?;
        }
    }
    let dir = demos.join(std::process::id().to_string());
    // It has keys, and the objects of the cluster.
    DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join(LOCK)).with_context(|| format!("create a lock in {}", dir.display()))?;
    lock.try_lock().with_context(|| format!("lock {}", dir.display()))?;
    Ok((dir, lock))
}

/// Runs a command on `input` and returns its piped output.
fn feed(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = command.stdin(Stdio::piped()).spawn().with_context(|| format!("run `{}`", line(command)))?;
    let mut pipe = child.stdin.take().context("open a pipe to kubectl")?;
    // No deadlock: kubectl reads all of its input before it writes.
    pipe.write_all(input).with_context(|| format!("write to `{}`", line(command)))?;
    drop(pipe);
    let output = child.wait_with_output().with_context(|| format!("wait for `{}`", line(command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", line(command), output.status);
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_demo_removes_the_directories_of_ended_demos_only() {
        let demos = tempfile::tempdir().unwrap();
        let running = demos.path().join("running");
        let ended = demos.path().join("ended");
        for dir in [&running, &ended] {
            fs::create_dir(dir).unwrap();
            File::create(dir.join("lock")).unwrap();
        }
        let held = File::open(running.join("lock")).unwrap();
        held.try_lock().unwrap();
        let (own, _lock) = directory(demos.path()).unwrap();
        assert!(own.is_dir() && running.is_dir() && !ended.exists());
        assert_eq!(own.metadata().unwrap().mode() & 0o077, 0, "others look into it");
    }
}
