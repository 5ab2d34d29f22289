//! `mortise rbac`: the exact rights that a plugin, or the host itself, needs.

use std::path::PathBuf;

use clap::Args;
use mortise_core::rbac;
use mortise_runtime::config::Namespace;

/// What was typed.
#[derive(Debug, Args)]
#[command(
    override_usage = "mortise rbac <FILE.wasm> [OPTIONS]\n       mortise rbac --host [OPTIONS]",
    after_long_help = "\
Examples:
  Let the host run a plugin:
      mortise rbac podset.wasm | kubectl apply -f -

  Set up the host's own rights, and the role that gathers those of all plugins:
      mortise rbac --host | kubectl apply -f -

A plugin's ClusterRole carries the label mortise.dev/aggregate-to-host=true, by which Kubernetes
adds its rules to the host's ClusterRole; delete it to take them back. The resources of kinds that
the plugin brings no CRD for are the English plurals of the kinds, as Kubernetes itself names them."
)]
pub struct RbacArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm", required_unless_present = "host", conflicts_with = "host")]
    file: Option<PathBuf>,
    /// Print the host's own roles and bindings instead
    #[arg(long)]
    host: bool,
    /// Name of the plugin in the cluster [default: the file's name]
    #[arg(long, value_name = "NAME", conflicts_with = "host")]
    name: Option<String>,
    /// Namespace of the host
    #[arg(long, short, value_name = "NAMESPACE", default_value = "mortise-system", requires = "host")]
    namespace: Namespace,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Prints the roles as YAML.
pub fn run(args: &RbacArgs) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return crate::words::print(&crate::yaml::documents(&rbac::host(args.namespace.as_str()))?);
    };
    let name = crate::kubernetes::plugin_name(args.name.as_deref(), file)?;
    let component = crate::component::load(file, args.cache_dir.clone())?;
    crate::words::print(&crate::yaml::documents(&[rbac::cluster_role(&name, &component.manifest)])?)
}
