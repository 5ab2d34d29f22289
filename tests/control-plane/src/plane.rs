//! A running control plane: starts, stops, pauses and restores its processes, and runs kubectl. `component` has their
//! command lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::audit::{self, AuditRecord};
use crate::binaries::Binaries;
use crate::component::Component;
use crate::identity::{self, ADMIN};
use crate::layout::Layout;
use crate::process::{Process, log_tail};
use crate::reaper::Reaper;
use crate::wait::until;

/// Ten times what a start takes on two idle cores.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// Interval of readiness checks: kubectl itself takes about as long.
const POLL: Duration = Duration::from_millis(100);

/// Attempts to start, since another process may take one of the ports that were free.
const PORT_ATTEMPTS: usize = 3;

/// Processes, Nodes and identities of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The processes to start: [`Component::ALL`] or [`Component::API`].
    pub components: &'static [Component],
    /// The number of Nodes that kwok simulates, each with room for 10000 Pods.
    pub nodes: usize,
    /// Users besides the administrator, each with a token and without rights.
    pub users: Vec<String>,
    /// Whether the audit log also has `get`, `list` and `watch` requests.
    pub audit_reads: bool,
    /// Whether Pods get a ServiceAccount with its token, and namespaces the authority's certificate, as in most clusters. Pods
    /// are then refused until their namespace has its ServiceAccount.
    pub service_accounts: bool,
    /// `RBAC` or `AlwaysAllow`: kube-apiserver's flag `--authorization-mode`.
    pub authorization_mode: &'static str,
    /// Gets each kubectl command, with its input, and what it answered.
    pub on_kubectl: Option<fn(&str, &str)>,
    /// The directory of data, keys and logs; a temporary one, removed at the end, when `None`.
    pub dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            components: Component::ALL,
            nodes: 2,
            users: Vec::new(),
            audit_reads: false,
            service_accounts: false,
            authorization_mode: "RBAC",
            on_kubectl: None,
            dir: None,
        }
    }
}

impl Options {
    /// etcd and the API server alone: for tests without garbage collection and running Pods.
    pub fn api_only() -> Self {
        Self { components: Component::API, nodes: 0, ..Self::default() }
    }
}

/// A control plane. Dropping it ends its processes; so does the end of this process, whatever its cause.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: first the processes, then what they use.
    processes: Mutex<BTreeMap<Component, Process>>,
    reaper: Arc<Reaper>,
    layout: Layout,
    binaries: Binaries,
    options: Options,
    _temporary: Option<TempDir>,
}

impl ControlPlane {
    /// Starts the components and returns when the API server is ready and, with kwok, every Node accepts Pods. The
    /// error has the end of the log of the component that did not start.
    pub fn start(binaries: &Binaries, options: &Options) -> Result<Self> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::start_once(binaries, options) {
                Err(error) if lost_a_port(&error) => {}
                other => return other,
            }
        }
        Self::start_once(binaries, options)
    }

    fn start_once(binaries: &Binaries, options: &Options) -> Result<Self> {
        let temporary = match options.dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("mortise-").tempdir().context("create a directory")?),
        };
        let dir = match (&options.dir, &temporary) {
            (Some(dir), _) => std::path::absolute(dir).with_context(|| format!("resolve {}", dir.display()))?,
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => unreachable!("one of the two is set just above"),
        };
        let layout = Layout::new(&dir)?;
        identity::create(&layout, &options.users)?;
        fs::create_dir_all(dir.join("logs")).with_context(|| format!("create {}/logs", dir.display()))?;
        fs::write(layout.audit_policy(), audit::policy(options.audit_reads)).context("write the audit policy")?;
        let plane = Self {
            processes: Mutex::default(),
            reaper: Arc::new(Reaper::start(temporary.as_ref().map(TempDir::path))?),
            layout,
            binaries: binaries.clone(),
            options: options.clone(),
            _temporary: temporary,
        };
        // The API server waits for etcd by itself, so the two start together.
        plane.spawn_components(options.components, |part| Component::API.contains(&part))?;
        plane.wait_for_apiserver()?;
        plane.spawn_components(options.components, |part| !Component::API.contains(&part))?;
        plane.create_nodes(options)?;
        Ok(plane)
    }

    fn spawn_components(&self, components: &[Component], wanted: impl Fn(Component) -> bool) -> Result<()> {
        let separate = |part: &Component| self.process_of(*part) == *part;
        for part in components.iter().copied().filter(separate).filter(|part| wanted(*part)) {
            self.spawn_component(part)?;
        }
        Ok(())
    }

    fn spawn_component(&self, part: Component) -> Result<()> {
        let Options { components, service_accounts, authorization_mode, .. } = self.options;
        let command = part.command(components, service_accounts, authorization_mode, &self.binaries, &self.layout);
        let process = Process::spawn(part.name(), command, &self.layout.log(part.name()), &self.reaper)?;
        self.processes().insert(part, process);
        Ok(())
    }

    /// The component whose process has this part: a local cluster is one process.
    fn process_of(&self, part: Component) -> Component {
        if self.binaries.is_local() { Component::ApiServer } else { part }
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<Component, Process>> {
        // The map is consistent wherever a panic could poison the lock.
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails, with the end of the log, if a component has exited.
    fn check_alive(&self) -> Result<()> {
        for (part, process) in self.processes().iter_mut() {
            if let Some(status) = process.ended()? {
                bail!("{} ended while starting ({status}); the end of its log:\n{}", part.name(), process.tail());
            }
        }
        Ok(())
    }

    fn wait_for_apiserver(&self) -> Result<()> {
        let ready = until("the API server to be ready", READY_DEADLINE, POLL, || {
            if let Err(error) = self.check_alive() {
                return Ok(Some(Err(error)));
            }
            self.kubectl_output(&["get", "--raw", "/readyz"]).map(|_| Some(Ok(())))
        });
        ready.with_context(|| format!("the end of its log:\n{}", log_tail(&self.layout.log("kube-apiserver"))))?
    }

    /// Creates the Nodes, and waits until they are Ready and the node controller has removed the taint of new Nodes.
    fn create_nodes(&self, options: &Options) -> Result<()> {
        let kwok = options.components.contains(&Component::Kwok);
        if options.nodes == 0 || !kwok {
            return Ok(());
        }
        let nodes = (1..=options.nodes).map(|number| node(&format!("node-{number}"))).collect::<Vec<_>>();
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": nodes});
        self.apply(&list.to_string()).context("create the Nodes")?;
        let usable = until("every Node to take Pods", READY_DEADLINE, POLL, || {
            if let Err(error) = self.check_alive() {
                return Ok(Some(Err(error)));
            }
            // One word per Node: its Ready status, followed by the keys of its taints.
            let format = "jsonpath={range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status}{.spec.taints[*].key}{\"\\n\"}{end}";
            let states = self.kubectl_output(&["get", "nodes", "-o", format])?;
            if states.lines().filter(|state| *state == "True").count() == options.nodes {
                return Ok(Some(Ok(())));
            }
            Err(anyhow!("the Nodes are: {}", states.lines().collect::<Vec<_>>().join(", ")))
        });
        usable?
    }

    /// The directory of data, keys and logs.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// The directory of the processes' logs.
    pub fn logs(&self) -> PathBuf {
        self.layout.dir.join("logs")
    }

    /// The API server's address, `https://127.0.0.1:PORT`. It stays the same when the server is stopped and started.
    pub fn server(&self) -> String {
        self.layout.server()
    }

    /// The PEM file of the authority that signed the API server's certificate.
    pub fn ca(&self) -> PathBuf {
        self.layout.pki("ca.crt")
    }

    /// The PEM file of the authority of the certificate that the API server shows to admission webhooks: another one than
    /// [`Self::ca`]. A local cluster shows none.
    pub fn webhook_client_ca(&self) -> PathBuf {
        self.layout.pki("webhook-client-ca.crt")
    }

    /// The kubeconfig of [`ADMIN`] or of a user from [`Options::users`]. The API server reads static tokens once, at
    /// its start; for a later identity see [`Self::service_account_kubeconfig`].
    pub fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let path = self.layout.kubeconfig(user);
        if !path.is_file() {
            bail!("the control plane was started without a user {user:?}: name it in Options::users");
        }
        Ok(path)
    }

    /// The kubeconfig of a ServiceAccount, which is created (with its namespace) if missing. Its user is
    /// `system:serviceaccount:NAMESPACE:NAME`, with the rights of its RoleBindings; the token is valid for a day.
    pub fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let account = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        ]});
        self.apply(&account.to_string())?;
        let token = self.kubectl_output(&["create", "token", name, "--namespace", namespace, "--duration=24h"])?;
        identity::kubeconfig(&self.layout, &format!("{namespace}.{name}"), token.trim())
    }

    /// kubectl as the administrator, ready to run.
    pub fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binaries.kubectl);
        command
            .args(args)
            .env("KUBECONFIG", self.layout.kubeconfig(ADMIN))
            // kubectl caches discovery by host and port, and another control plane may reuse the port.
            .env("KUBECACHEDIR", self.layout.dir.join("kubectl-cache"))
            // Without the user's aliases and defaults.
            .env("KUBERC", "off");
        command
    }

    /// Runs kubectl and returns its standard output. The error has the command and kubectl's message.
    pub fn kubectl_output(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with_input(args, "")
    }

    /// `kubectl apply` of YAML or JSON text.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl_with_input(&["apply", "-f", "-"], manifest).map(drop)
    }

    fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let line = || format!("kubectl {}", args.join(" "));
        let mut child = self
            .kubectl(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(line)?;
        // kubectl reads all of its input before it writes, so the pipes cannot deadlock. If it fails before it reads,
        // its standard error says more than the broken pipe.
        let _ = child.stdin.take().expect("the command above pipes its standard input").write_all(input.as_bytes());
        let output = child.wait_with_output().with_context(line)?;
        let succeeds = output.status.success();
        let answer = String::from_utf8_lossy(if succeeds { &output.stdout } else { &output.stderr });
        if let Some(show) = self.options.on_kubectl {
            show(&format!("{} {input}", line()), answer.trim());
        }
        if !succeeds {
            bail!("{}: {}", line(), answer.trim());
        }
        Ok(answer.into_owned())
    }

    /// Starts a process of the caller: in its own process group, with the log `logs()/NAME.log`, and ended with this
    /// process.
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        Process::spawn(name, command, &self.layout.log(name), &self.reaper)
    }

    /// The requests in the audit log so far, oldest first.
    pub fn audit(&self) -> Result<Vec<AuditRecord>> {
        self.audit_since(0).map(|(records, _)| records)
    }

    /// The requests after `mark` (0 at first), and the mark for the next call.
    pub fn audit_since(&self, mark: u64) -> Result<(Vec<AuditRecord>, u64)> {
        let (mut records, mark) = audit::read(&self.layout.audit_log(), mark)?;
        // A local cluster has no audit policy.
        records.retain(|record| self.options.audit_reads || record.is_write());
        Ok((records, mark))
    }

    /// The process id of a running component.
    pub fn pid(&self, part: Component) -> Result<u32> {
        self.with(part, |process| match process.ended()? {
            None => Ok(process.pid()),
            Some(status) => bail!("{} has ended ({status})", part.name()),
        })
    }

    /// Kills the API server, as a crash of its machine would. Its data stays in etcd.
    pub fn stop_apiserver(&self) -> Result<()> {
        let process = self.processes().remove(&Component::ApiServer);
        process.context("stop the API server: it is not running")?.kill()
    }

    /// Starts the API server again, with the same address and data, and waits until it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.spawn_component(Component::ApiServer)?;
            match self.wait_for_apiserver() {
                // Meanwhile its port may have become the local port of another connection, for a while.
                Err(error) if lost_a_port(&error) && start.elapsed() < READY_DEADLINE => std::thread::sleep(POLL),
                other => return other,
            }
        }
    }

    /// Copies etcd's data.
    pub fn back_up(&self) -> Result<Backup> {
        let dir = tempfile::Builder::new().prefix("mortise-backup-").tempdir().context("create a directory")?;
        // Paused, for a consistent copy; etcd opens it as it would after a crash.
        self.pause(Component::Etcd)?;
        let copied = copy_tree(&self.layout.etcd(), dir.path());
        self.resume(Component::Etcd)?;
        copied.map(|()| Backup { dir })
    }

    /// Replaces etcd's data by a backup, as an administrator does after a disaster. The API server's versions go back
    /// to those of the backup, so every component is restarted: Go clients do not notice.
    pub fn restore(&self, backup: &Backup) -> Result<()> {
        let stopped = std::mem::take(&mut *self.processes());
        let parts: Vec<Component> = stopped.keys().copied().collect();
        for mut process in stopped.into_values() {
            process.kill()?;
        }
        let etcd = self.layout.etcd();
        fs::remove_dir_all(&etcd).with_context(|| format!("remove {}", etcd.display()))?;
        copy_tree(backup.dir.path(), &etcd)?;
        self.spawn_components(&parts, |part| part == Component::Etcd)?;
        self.start_apiserver()?;
        self.spawn_components(&parts, |part| !Component::API.contains(&part))
    }

    /// Stops a component with SIGSTOP: its connections stay open and get no responses.
    pub fn pause(&self, part: Component) -> Result<()> {
        self.with(part, Process::pause)
    }

    /// Continues a paused component.
    pub fn resume(&self, part: Component) -> Result<()> {
        self.with(part, Process::resume)
    }

    fn with<T>(&self, part: Component, act: impl FnOnce(&mut Process) -> Result<T>) -> Result<T> {
        act(self
            .processes()
            .get_mut(&self.process_of(part))
            .with_context(|| format!("{} is not running", part.name()))?)
    }
}

/// A copy of etcd's data; removed when dropped.
#[derive(Debug)]
pub struct Backup {
    dir: TempDir,
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry.with_context(|| format!("read {}", from.display()))?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &copy)?;
        } else {
            fs::copy(&path, &copy).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Whether a component failed because its port was in use, by the system's message, which Go writes in lower case.
fn lost_a_port(error: &anyhow::Error) -> bool {
    format!("{error:#}").to_lowercase().contains("address already in use")
}

/// A Node for which kwok simulates a kubelet.
pub fn node(name: &str) -> serde_json::Value {
    // Far more than any test needs, so that scheduling never fails.
    let room = serde_json::json!({"cpu": "1000", "memory": "1Ti", "pods": "10000"});
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "status": {"allocatable": room, "capacity": room},
    })
}
