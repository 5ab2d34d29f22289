//! `mortise dev` and `mortise new`: turns command line arguments into a session's options and a new plugin's name. The work is in
//! mortise-dev.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use mortise_core::engine::WriteBudget;
use mortise_dev::{NewPlugin, Options};
use mortise_local_server::Server;
use mortise_runtime::config::{self, BindAddress, Config, Namespace, WebhookConfig};
use mortise_runtime::log;

use crate::{cache, component, words};

/// What a session keeps in the folder it is started in: the kubeconfig, components.
const FOLDER: &str = ".mortise";
/// Writes a minute: an author's loop should show at once, not be slowed down.
const WRITES_PER_MINUTE: u32 = 60_000;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  mortise dev                       the plugin of this folder, on a local cluster in this process
  mortise dev plugins/podset        another one; of a workspace, all its plugins
  mortise dev --kubeconfig ~/.kube/config
                                    on a cluster of yours instead
  mortise dev --kubeconfig ~/.kube/config --dry-run
                                    what it would write there: a diff; the cluster is only read

Each save builds the plugin again; when it builds, the new version takes over between two calls, else the one
before serves on. sample.yaml and samples/*.yaml are applied when the plugin first serves. kubectl works meanwhile:
    kubectl --kubeconfig .mortise/kubeconfig get pods")]
pub struct DevArgs {
    /// Folders of plugins
    #[arg(value_name = "DIR", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Use the cluster of this kubeconfig, with its rights, instead of a local one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Keep the local cluster in this folder between sessions
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    state: Option<PathBuf>,
    /// Nodes of the local cluster
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "kubeconfig")]
    nodes: u32,
    /// Print lines instead of a screen, also on a terminal
    #[arg(long)]
    plain: bool,
    /// Run on a copy of what the plugins read in the cluster of --kubeconfig until nothing happens any more, and print a unified
    /// diff of what they would write. The cluster itself is only read. Kinds that a plugin names at run time are not copied
    #[arg(long, requires = "kubeconfig")]
    dry_run: bool,
    /// Apply no samples
    #[arg(long)]
    no_samples: bool,
    /// Log level of the host, which logs to .mortise/host.log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: log::Level,
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// The plugin's name, such as web-site; its folder is made in this one
    name: String,
    /// The kind that it reconciles [default: the name, such as WebSite]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// The kind's group, a domain of yours
    #[arg(long, value_name = "GROUP", default_value = "example.com")]
    group: String,
    /// The folder of mortise-sdk, guest-sdk/rust of mortise's repository [default: that of the checkout around this folder]
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// Makes a plugin's folder.
pub fn create(args: NewArgs) -> anyhow::Result<()> {
    let here = std::env::current_dir().context("reading the current folder")?;
    let sdk = match args.sdk {
        Some(sdk) => sdk.canonicalize().with_context(|| format!("cannot open {}", sdk.display()))?,
        None => {
            sdk_around(&here).context("mortise-sdk is on no registry yet: name the folder guest-sdk/rust with --sdk")?
        }
    };
    let plugin = NewPlugin {
        name: args.name,
        kind: args.kind,
        group: args.group,
        sdk: format!("{{ path = {:?} }}", sdk.display().to_string()),
    };
    let folder = mortise_dev::create(&here, &plugin)?;
    let shown = folder.strip_prefix(&here).unwrap_or(&folder).display();
    words::print(&format!(
        "{shown}: made\n\n    mortise dev {shown}     # runs it, and builds it again at every save\n    mortise test {shown}    # runs its stories\n    cd {shown} && cargo test\n"
    ))
}

fn sdk_around(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().map(|above| above.join("guest-sdk/rust")).find(|sdk| sdk.join("Cargo.toml").is_file())
}

/// Runs a session.
pub fn run(args: DevArgs) -> anyhow::Result<()> {
    let here = std::env::current_dir().context("reading the current folder")?;
    let folder = here.join(FOLDER);
    cache::make(&folder)?;
    log::start_in_file(&folder.join("host.log"), &args.log_level)?;
    if let (true, Some(kubeconfig)) = (args.dry_run, &args.kubeconfig) {
        return dry_run(&folder, kubeconfig, &args.folders);
    }
    let (kubeconfig, server) = match args.kubeconfig {
        Some(kubeconfig) => (kubeconfig, None),
        None => local_cluster(&folder, args.state.as_deref(), args.nodes).map(|(file, server)| (file, Some(server)))?,
    };
    let title = match &server {
        Some(server) => format!("local cluster at {}: export KUBECONFIG={}", server.url(), kubeconfig.display()),
        None => format!("cluster of {}", kubeconfig.display()),
    };
    let host = host(&folder, &kubeconfig)?;
    let ended = mortise_dev::run(Options {
        folders: args.folders,
        kubeconfig,
        title,
        plain: args.plain,
        no_samples: args.no_samples,
        host,
    });
    if let Some(server) = server {
        server.close();
    }
    ended
}

/// Prints what the plugins would write to a cluster, from a run on a copy of it.
fn dry_run(folder: &Path, kubeconfig: &Path, folders: &[PathBuf]) -> anyhow::Result<()> {
    let plugins = mortise_dev::components(folders, None)?;
    let mut kinds = Vec::new();
    for plugin in &plugins {
        kinds.extend(component::load(&plugin.file, None)?.manifest.scopes());
    }
    let copy = mortise_dev::Copied::read(kubeconfig, kinds)?;
    // Without controllers and nodes: what is written is what the plugins write.
    let cluster = mortise_local_cluster::Options {
        nodes: 0,
        controllers: Vec::new(),
        ..mortise_local_cluster::Options::default()
    };
    let objects = Some(copy.objects());
    let server =
        Server::open(mortise_local_server::Options { cluster, objects, ..mortise_local_server::Options::default() })?;
    let local = folder.join("dry-run.kubeconfig");
    server.write_kubeconfig(&local)?;
    let diff = mortise_dev::dry_run(&plugins, &copy, &local, host(folder, &local)?);
    server.close();
    match diff?.as_str() {
        "" => words::print("The plugins would write nothing.\n"),
        diff => words::print(diff),
    }
}

/// A local cluster in this process, and the file of its administrator's kubeconfig.
fn local_cluster(folder: &Path, state: Option<&Path>, nodes: u32) -> anyhow::Result<(PathBuf, Server)> {
    let cluster = mortise_local_cluster::Options { nodes, ..mortise_local_cluster::Options::default() };
    let state = state.map(Path::to_owned);
    let server =
        Server::open(mortise_local_server::Options { cluster, state, ..mortise_local_server::Options::default() })?;
    let kubeconfig = folder.join("kubeconfig");
    server.write_kubeconfig(&kubeconfig)?;
    Ok((kubeconfig, server))
}

/// The host of a session: alone, on loopback.
fn host(folder: &Path, kubeconfig: &Path) -> anyhow::Result<Config> {
    let namespace: Namespace = "mortise-system".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(Config {
        kubeconfig: Some(kubeconfig.to_owned()),
        leader_election: None,
        webhook: WebhookConfig::new(free_port()?, None, None, false, &namespace),
        namespace,
        instance: "mortise-dev".to_owned(),
        plugin_dir: Some(folder.join("components")),
        cache_dir: cache::folder(None)?,
        cache_key_file: None,
        development: true,
        require_service_account: false,
        tenants: None,
        workers: config::workers(None),
        write_budget: WriteBudget { writes_per_minute: WRITES_PER_MINUTE, creates_per_minute: WRITES_PER_MINUTE },
        http: None,
        audit_interval_minutes: 0,
        metrics: BindAddress::Off,
        secure_metrics: None,
        probes: BindAddress::Off,
    })
}

/// A port that is free now.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
