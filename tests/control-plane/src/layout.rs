//! Where one control plane keeps its files, and which ports it listens on. Plain data: paths and numbers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One control plane's directory and ports.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) etcd_client: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api: u16,
}

impl Layout {
    /// Takes free ports from the kernel. All are held until the last one is known, so that no two are the same; from
    /// then on another process may take one, which is why a start that fails on a taken port is tried again.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("take a free port on loopback");
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

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join("kubeconfigs").join(user)
    }

    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api)
    }
}
