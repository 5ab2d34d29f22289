//! The binary `mortise`: one file per subcommand. The work is in library crates; this one parses arguments and prints.

#[cfg(all(target_os = "linux", feature = "jemalloc"))]
mod allocator;
mod cache;
mod cluster;
mod component;
mod crd;
mod dev;
mod finalizers;
mod inspect;
mod kubernetes;
mod manifests;
mod push;
mod rbac;
mod run;
mod test;
mod words;
mod yaml;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mortise_runtime::log;

/// Runs Kubernetes controllers that are WebAssembly plugins.
///
/// A plugin is one pure function from an object and a view of the cluster to the desired state; the host does
/// everything that touches Kubernetes. Put a plugin into a labelled ConfigMap and its API appears.
#[derive(Debug, Parser)]
#[command(
    name = "mortise",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  mortise inspect podset.wasm                     show a plugin's manifest, imports and sizes
  mortise push podset.wasm                        put it into the cluster
  mortise rbac podset.wasm --service-account podset | kubectl apply -f -
                                                  give it a ServiceAccount with the rights that it needs
  mortise run --kubeconfig ~/.kube/config         run the host on this machine
  mortise cluster --kubeconfig local.yaml         run a Kubernetes cluster to try it on"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the folder of a new plugin
    New(dev::NewArgs),
    /// Run plugins while you write them: each save is built and swapped in
    Dev(dev::DevArgs),
    /// Run the stories of plugins: story files on a cluster in this process
    Test(test::TestArgs),
    /// Run the host
    Run(Box<run::RunArgs>),
    /// Show a plugin's manifest, imports and sizes; refuse what the host would refuse
    Inspect(inspect::InspectArgs),
    /// Run a local Kubernetes cluster, for development and tests
    Cluster(cluster::ClusterArgs),
    /// Put a plugin into a labelled ConfigMap of the cluster
    Push(push::PushArgs),
    /// Print the RBAC that a plugin, or the host, needs
    Rbac(rbac::RbacArgs),
    /// Write a folder for Git with a plugin, its rights and its Plugin object
    Manifests(manifests::ManifestsArgs),
    /// Remove the finalizers of a removed plugin, so that its objects can be deleted
    Finalizers(finalizers::FinalizersArgs),
    /// Print the CustomResourceDefinition of Plugin objects, or those that a plugin brings
    Crd(crd::CrdArgs),
    /// Compile the component on standard input; the host starts this as a child process with limits
    #[command(name = mortise_runtime::loader::COMPILE_SUBCOMMAND, hide = true)]
    CompileComponent,
}

fn main() -> ExitCode {
    // Fails only when a provider is installed already, which then serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match Arguments::parse().command {
        Command::New(args) => dev::create(args),
        Command::Dev(args) => dev::run(args),
        Command::Test(args) => return test::run(&args),
        Command::Run(args) => run::run(*args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Cluster(args) => cluster::run(args),
        Command::Push(args) => push::run(&args),
        Command::Rbac(args) => rbac::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Finalizers(args) => finalizers::run(&args),
        Command::Crd(args) => crd::run(&args),
        Command::CompileComponent => return mortise_wasm::compile::child_main(),
    };
    match result {
        Ok(()) => {
            log::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::print_error(&words::failure(&error));
            ExitCode::FAILURE
        }
    }
}
