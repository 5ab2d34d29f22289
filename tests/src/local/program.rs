//! A running `mortise` with what it printed. Input: arguments. Output: its lines, and the objects of its cluster. It must not
//! know what a test shows.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};

use crate::checkout::built;

/// Bound of every wait; a first build of a plugin takes half of it on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(20);

/// Ended when dropped.
pub(super) struct Program {
    child: Child,
    log: tempfile::NamedTempFile,
    /// Bytes of the log that a test has seen.
    seen: usize,
}

/// `mortise` with these arguments, in a folder, as a user whose umask lets everybody read and write.
pub(super) fn mortise(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(built("debug/mortise"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

impl Program {
    pub(super) fn start(mut command: Command) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let output = || File::options().append(true).open(log.path()).unwrap();
        let child = command.stdout(output()).stderr(output()).spawn().unwrap();
        Self { child, log, seen: 0 }
    }

    /// Waits for a line with this text after those seen before, and returns it.
    pub(super) fn line(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let printed = std::fs::read_to_string(self.log.path()).unwrap();
            if let Some(at) = printed[self.seen..].find(text) {
                let at = self.seen + at;
                let begin = printed[..at].rfind('\n').map_or(0, |newline| newline + 1);
                if let Some(length) = printed[at..].find('\n') {
                    self.seen = at + length;
                    return printed[begin..self.seen].to_owned();
                }
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < DEADLINE, "no line with {text:?} ({ended:?}):\n{printed}");
            std::thread::sleep(PAUSE);
        }
    }

    /// SIGTERM; the program has to end with success.
    pub(super) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        until("the program has ended", || {
            let status = self.child.try_wait().unwrap()?;
            assert!(status.success(), "{status}: {}", std::fs::read_to_string(self.log.path()).unwrap());
            Some(())
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is something to see.
pub(super) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Files and folders below a folder, and itself, that other users may read, write or look into.
pub(super) fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut open = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if found.mode() & 0o077 != 0 {
            open.push(path);
        }
    }
    open
}

/// A client of a kubeconfig's cluster.
pub(super) struct Objects {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Objects {
    /// With the kubeconfig's credentials.
    pub(super) fn of(kubeconfig: &Path) -> Self {
        Self::changed(kubeconfig, |_| ())
    }

    /// With other credentials instead.
    pub(super) fn with(kubeconfig: &Path, credentials: AuthInfo) -> Self {
        Self::changed(kubeconfig, |config| config.auth_info = credentials)
    }

    /// With a part of the kubeconfig changed.
    pub(super) fn changed(kubeconfig: &Path, change: impl FnOnce(&mut Config)) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            change(&mut config);
            Client::try_from(config).unwrap()
        });
        Self { runtime, client }
    }

    /// The HTTP status and the body of a request.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        self.block_on(async {
            let response = self.client.send(request).await.unwrap();
            let status = response.status().as_u16();
            let body = response.into_body().collect_bytes().await.unwrap();
            (status, String::from_utf8_lossy(&body).into_owned())
        })
    }

    /// The objects of a kind, of the namespace `default`.
    pub(super) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Names of Pods that run, sorted.
    pub(super) fn running_pods(&self) -> Vec<String> {
        let pods = self.block_on(self.api("v1", "Pod").list(&kube::api::ListParams::default())).unwrap();
        let running = pods.items.into_iter().filter(|pod| pod.data["status"]["phase"] == "Running");
        let mut names: Vec<String> = running.filter_map(|pod| pod.metadata.name).collect();
        names.sort();
        names
    }
}
