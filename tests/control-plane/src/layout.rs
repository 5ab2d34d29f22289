//! The paths and ports of one control plane.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) etcd_client: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api: u16,
}

impl Layout {
    /// Gets free ports from the kernel, all at once so that they differ. Another process may take one before the start,
    /// which is then tried again.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("get a free port on loopback");
        let listeners = [bind()?, bind()?, bind()?];
        let port = |i: usize| listeners[i].local_addr().map(|addr| addr.port()).context("read a listener's port");
        Ok(Self { dir: dir.to_owned(), etcd_client: port(0)?, etcd_peer: port(1)?, api: port(2)? })
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("logs/audit.jsonl")
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.dir.join("audit-policy.yaml")
    }

    pub(crate) fn admission_config(&self) -> PathBuf {
        self.dir.join("admission.json")
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join("kubeconfigs").join(user)
    }

    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api)
    }
}
