//! A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok,
//! built from Go modules and run as plain processes, for tests, the demo and the benchmarks.
//!
//! [`Binaries::ensure`] builds the `go.mod` files beside this crate into cached binaries; [`ControlPlane::start`]
//! runs them on free ports with identities of its own, and ends them however this process ends. A test gets a
//! kubeconfig, a `kubectl`, and the API server's audit log.
//!
//! With `MORTISE_E2E_ON=local` the same control plane is one process: a binary under target/ with a subcommand `cluster`.
//!
//! It must know nothing of mortise, so that tests cannot rely on a shared mistake.

mod audit;
mod binaries;
mod cache;
mod component;
mod go;
mod identity;
pub mod kstatus;
mod layout;
mod plane;
mod process;
mod progress;
mod reaper;
mod usage;
mod wait;

pub use audit::AuditRecord;
pub use binaries::{Binaries, cache_directory, go_program};
pub use component::Component;
pub use go::module_dir;
pub use identity::ADMIN;
pub use plane::{Backup, ControlPlane, Options, node};
pub use process::{Process, log_tail};
pub use progress::{Progress, print_progress};
pub use usage::{Usage, usage_of};
pub use wait::until;
