//! The binary `mortise`: one file a subcommand, and here only which one. Every command's work is in a library crate;
//! this one knows what is typed and what is printed.

#[cfg(target_os = "linux")]
mod allocator;
mod cache;
mod component;
mod crd;
mod finalizers;
mod inspect;
mod kubernetes;
mod push;
mod rbac;
mod run;
mod words;
mod yaml;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs Kubernetes controllers that are WebAssembly plugins.
///
/// A plugin is one pure function from an object and a view of the cluster to what should be; the host owns
/// everything that touches Kubernetes. Drop a plugin into a labelled ConfigMap and its API appears.
#[derive(Debug, Parser)]
#[command(
    name = "mortise",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  mortise inspect podset.wasm                     what a plugin is and what it asks for
  mortise rbac podset.wasm | kubectl apply -f -   give the host the rights that it needs
  mortise push podset.wasm                        put it into the cluster
  mortise run --kubeconfig ~/.kube/config         run the host on this machine"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the host
    Run(Box<run::RunArgs>),
    /// Show what a plugin is, asks for and weighs; refuse what the host would refuse
    Inspect(inspect::InspectArgs),
    /// Put a plugin into a labelled ConfigMap of the cluster
    Push(push::PushArgs),
    /// Print the RBAC that a plugin, or the host, needs
    Rbac(rbac::RbacArgs),
    /// Let objects go that a plugin which is gone keeps from being deleted
    Finalizers(finalizers::FinalizersArgs),
    /// Print the CustomResourceDefinition of Plugin objects
    Crd(crd::CrdArgs),
    /// Compile the component on standard input; the host starts this as a child process with limits on itself
    #[command(name = mortise_runtime::loader::COMPILE_SUBCOMMAND, hide = true)]
    CompileComponent,
}

fn main() -> ExitCode {
    // Once a process and before any connection. It fails only when one is installed already, which then serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match Arguments::parse().command {
        Command::Run(args) => run::run(*args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Rbac(args) => rbac::run(&args),
        Command::Finalizers(args) => finalizers::run(&args),
        Command::Crd(args) => crd::run(&args),
        Command::CompileComponent => return mortise_wasm::compile::child_main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", words::failure(&error));
            ExitCode::FAILURE
        }
    }
}
