//! The control plane's binaries and kstatus: four Go modules in, paths of executables and of kwok's stages out; or one
//! binary that is built already. Go modules are built once per (module files, flags, toolchain) and cached; a lookup
//! takes as long as `go env`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::Progress;
use crate::{cache, go};

/// The oldest kubectl that the demo and the tests support (1.31 added `kubectl wait --for=create`).
const OLDEST_KUBECTL_MINOR: u32 = 31;

/// The variable that names what tests run on: `local` is the one binary with everything that cargo has built; else it is
/// Kubernetes.
const RUN_ON: &str = "MORTISE_E2E_ON";
/// That binary, below the checkout.
const LOCAL: &str = "target/debug/mortise";

/// The executables of one control plane.
#[derive(Clone, Debug)]
pub struct Binaries {
    pub(crate) programs: Programs,
    pub(crate) kubectl: PathBuf,
}

/// What serves the API and acts on it.
#[derive(Clone, Debug)]
pub(crate) enum Programs {
    Kubernetes(Kubernetes),
    /// One binary with a subcommand `cluster`.
    Local(PathBuf),
}

/// The executables of Kubernetes, and the stage files with kwok's behaviour of Nodes and Pods.
#[derive(Clone, Debug)]
pub(crate) struct Kubernetes {
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) kube_controller_manager: PathBuf,
    pub(crate) kube_scheduler: PathBuf,
    pub(crate) kwok: PathBuf,
    pub(crate) stages: Vec<PathBuf>,
}

/// One main package. `output` is the name that `go build` gives its executable: for a package at a module's root, the
/// last path element that is not a major version.
struct Package {
    path: &'static str,
    output: &'static str,
    binary: &'static str,
}

const fn package(path: &'static str, output: &'static str, binary: &'static str) -> Package {
    Package { path, output, binary }
}

const ETCD: &[Package] = &[package("go.etcd.io/etcd/server/v3", "server", "etcd")];
const KUBERNETES: &[Package] = &[
    package("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver", "kube-apiserver"),
    package("k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager", "kube-controller-manager"),
    package("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler", "kube-scheduler"),
];
const KUBECTL: &[Package] = &[package("k8s.io/kubernetes/cmd/kubectl", "kubectl", "kubectl")];
const KWOK: &[Package] = &[package("sigs.k8s.io/kwok/cmd/kwok", "kwok", "kwok")];
/// The one main package of ours.
const KSTATUS: &[Package] = &[package(".", "kstatus", "kstatus")];

/// Nodes become Ready and renew their leases; scheduled Pods run at once; Jobs' Pods succeed.
const STAGES: &[&str] = &[
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
];

/// Our own stage for deleted Pods; the file says why.
const POD_DELETE: &str = "stages/pod-delete.yaml";

impl Binaries {
    /// Finds the binaries in the cache, and builds missing ones, which takes minutes. With `MORTISE_E2E_ON=local` there is
    /// nothing to build but kubectl, if the PATH has none.
    pub fn ensure(report: &mut dyn FnMut(Progress<'_>)) -> Result<Self> {
        let run_on = std::env::var(RUN_ON).unwrap_or_default();
        let programs = match run_on.as_str() {
            "local" => Programs::Local(local()?),
            "" | "kubernetes" => Programs::Kubernetes(Kubernetes::ensure(report)?),
            other => bail!("{RUN_ON}={other} is neither `local` nor `kubernetes`"),
        };
        let kubectl = match kubectl_on_path() {
            Some(path) => path,
            None => {
                let kubernetes = Module::open("kubernetes")?;
                kubernetes.ensure(KUBECTL, report)?;
                kubernetes.entry.join("kubectl")
            }
        };
        Ok(Self { programs, kubectl })
    }

    /// The kubectl on the PATH if it is recent enough, else one built from Kubernetes' own module.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.programs, Programs::Local(_))
    }
}

impl Kubernetes {
    fn ensure(report: &mut dyn FnMut(Progress<'_>)) -> Result<Self> {
        let etcd = Module::open("etcd")?;
        etcd.ensure(ETCD, report)?;
        let kubernetes = Module::open("kubernetes")?;
        kubernetes.ensure(KUBERNETES, report)?;
        let kwok = Module::open("kwok")?;
        kwok.ensure(KWOK, report)?;
        kstatus(report)?;
        Ok(Self {
            etcd: etcd.entry.join("etcd"),
            kube_apiserver: kubernetes.entry.join("kube-apiserver"),
            kube_controller_manager: kubernetes.entry.join("kube-controller-manager"),
            kube_scheduler: kubernetes.entry.join("kube-scheduler"),
            stages: kwok.stages()?,
            kwok: kwok.entry.join("kwok"),
        })
    }
}

/// The binary kstatus, built if it is not in the cache.
pub(crate) fn kstatus(report: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
    let kstatus = Module::open("kstatus")?;
    kstatus.ensure(KSTATUS, report)?;
    Ok(kstatus.entry.join("kstatus"))
}

/// An executable of the Go module in a folder: its own main package `.`, or one that its `go.mod` names as a tool. Built once
/// for the module's files and cached; `name` is what `go build` calls it, such as `helm` for `helm.sh/helm/v4/cmd/helm`.
///
/// # Errors
/// When there is no Go, or the build fails.
pub fn go_program(
    folder: &Path,
    path: &'static str,
    name: &'static str,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf> {
    let module = Module::read(folder)?;
    module.ensure(&[package(path, name, name)], report)?;
    Ok(module.entry.join(name))
}

fn local() -> Result<PathBuf> {
    let binary = checkout().join(LOCAL);
    if !binary.is_file() {
        bail!("{} is missing: `cargo xtask test --on local` builds it before it runs the tests", binary.display());
    }
    Ok(binary)
}

/// The directory of built programs, outside the checkout: `$MORTISE_CACHE`, or a part of the user's cache directory.
pub fn cache_directory() -> Result<PathBuf> {
    cache::directory(checkout())
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is two folders below the checkout's root")
}

/// A Go module and its entry in the cache.
struct Module {
    folder: PathBuf,
    flags: Vec<String>,
    entry: PathBuf,
}

impl Module {
    /// A folder of this crate.
    fn open(name: &str) -> Result<Self> {
        Self::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
    }

    fn read(folder: &Path) -> Result<Self> {
        let name = folder.file_name().context("a module's folder has a name")?.to_string_lossy();
        let cache = cache_directory()?.join("control-plane");
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let main = folder.join("main.go").is_file().then(|| read("main.go")).transpose()?;
        let flags = flags(&go_mod);
        let toolchain = go::toolchain(folder)?;
        let linked = flags.join("\0");
        let parts = [&go_mod, &go_sum, &linked, &toolchain].into_iter().chain(&main);
        let key = cache::key(&parts.map(String::as_bytes).collect::<Vec<_>>());
        let entry = cache.join(format!("{name}-{key}"));
        Ok(Self { folder: folder.to_owned(), flags, entry })
    }

    /// Builds missing executables. A rename moves each into place, so an existing one is complete.
    fn ensure(&self, packages: &[Package], report: &mut dyn FnMut(Progress<'_>)) -> Result<()> {
        let missing = || packages.iter().filter(|p| !self.entry.join(p.binary).is_file()).collect::<Vec<_>>();
        if missing().is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.entry).with_context(|| format!("create {}", self.entry.display()))?;
        let what = packages.iter().map(|p| p.binary).collect::<Vec<_>>().join(", ");
        let _lock = cache::lock(&self.entry.join("lock"), &what, report)?;
        // The process that held the lock may have built everything.
        let missing = missing();
        if missing.is_empty() {
            return Ok(());
        }
        let built = tempfile::tempdir_in(&self.entry).context("create a directory to build into")?;
        let paths = missing.iter().map(|p| p.path).collect::<Vec<_>>();
        go::build(&self.folder, &self.flags, &paths, built.path(), &what, report)?;
        for package in missing {
            fs::rename(built.path().join(package.output), self.entry.join(package.binary))
                .with_context(|| format!("move {} into {}", package.binary, self.entry.display()))?;
        }
        Ok(())
    }

    /// The stage files of the kwok module, copied to the cache entry so that Go's module cache may be cleaned.
    fn stages(&self) -> Result<Vec<PathBuf>> {
        let name = |stage: &str| stage.replace('/', "-");
        let folder = self.entry.join("stages");
        if !folder.is_dir() {
            let source = go::module_dir(&self.folder, "sigs.k8s.io/kwok")?.join("kustomize/stage");
            let copied = tempfile::tempdir_in(&self.entry).context("create a directory for kwok's stages")?;
            for stage in STAGES {
                let from = source.join(stage);
                // Not fs::copy: files of the module cache are read-only, and copies would be too.
                let text = fs::read(&from).with_context(|| format!("read kwok's stage {}", from.display()))?;
                fs::write(copied.path().join(name(stage)), text).with_context(|| format!("write stage {stage}"))?;
            }
            // Another process may have been faster; its files are the same.
            if let Err(error) = fs::rename(copied.path(), &folder)
                && !folder.is_dir()
            {
                return Err(error).with_context(|| format!("move kwok's stages to {}", folder.display()));
            }
        }
        let copied = STAGES.iter().map(|stage| folder.join(name(stage)));
        Ok(copied.chain([self.folder.join(POD_DELETE)]).collect())
    }
}

/// The flags of `go build`. The linker sets Kubernetes' version; without it the API server reports v0.0.0-master, which
/// clients refuse or warn about.
fn flags(go_mod: &str) -> Vec<String> {
    let mut linker = "-s -w".to_owned();
    if let Some(version) = required_version(go_mod, "k8s.io/kubernetes") {
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
            linker.push_str(&format!(" -X k8s.io/component-base/version.{name}={value}"));
        }
    }
    vec!["-trimpath".to_owned(), "-buildvcs=false".to_owned(), format!("-ldflags={linker}")]
}

fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next())?
    })
}

/// The kubectl on the PATH, if it runs and is recent enough. It may be a wrapper.
fn kubectl_on_path() -> Option<PathBuf> {
    let output = Command::new("kubectl").args(["version", "--client", "--output=json"]).output().ok()?;
    let version = serde_json::from_slice::<serde_json::Value>(&output.stdout).ok()?;
    let version = version["clientVersion"]["gitVersion"].as_str()?;
    check_kubectl(version).is_ok().then(|| "kubectl".into())
}

fn check_kubectl(version: &str) -> Result<()> {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(1)), Some(Ok(minor))) if minor >= OLDEST_KUBECTL_MINOR => Ok(()),
        _ => bail!("kubectl {version} is older than 1.{OLDEST_KUBECTL_MINOR}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_is_linked_with_the_version_that_its_go_mod_requires() {
        let go_mod = "module x\n\nreplace k8s.io/api => k8s.io/api v0.36.3\n\nrequire (\n\tk8s.io/kubectl v0.0.0 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";
        let flags = flags(go_mod).join(" ");
        assert!(flags.contains("gitVersion=v1.36.3"), "{flags}");
        assert!(flags.contains("gitMajor=1") && flags.contains("gitMinor=36"), "{flags}");
        assert!(!super::flags("module x\n").join(" ").contains("version."));
    }

    #[test]
    fn a_kubectl_that_is_too_old_is_not_used() {
        assert!(check_kubectl("v1.32.4-dispatcher").is_ok());
        assert!(check_kubectl("v1.36.3").is_ok());
        assert!(check_kubectl("v1.30.9").is_err());
        assert!(check_kubectl("nonsense").is_err());
    }
}
