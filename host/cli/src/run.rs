//! `mortise run`: turns command line arguments into a validated [`Config`]; the host itself is in the runtime crate.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mortise_core::engine::WriteBudget;
use mortise_core::selector::Selector;
use mortise_kube::client::Access;
use mortise_runtime::config::{
    self, BindAddress, Config, HttpConfig, LeaderElection, LeaseName, Namespace, SecureMetrics, WebhookClients,
    WebhookConfig, WebhookUrl,
};
use mortise_runtime::log;
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  In a cluster, with the ServiceAccount of deploy/:
      mortise run

  On a laptop, against the cluster that a kubeconfig names, with plugins from a folder:
      mortise run --kubeconfig ~/.kube/config --plugin-dir target/plugins

Plugins:
  A ConfigMap with the label mortise.dev/plugin=true in the host's namespace, which holds the
  component under binaryData[\"plugin.wasm\"] (or plugin.wasm.gz, plugin.wasm.zst) and optionally its
  configuration under data[\"config.yaml\"]. `mortise push` makes one; so does
      kubectl -n mortise-system create configmap podset --from-file=plugin.wasm=podset.wasm
      kubectl -n mortise-system label configmap podset mortise.dev/plugin=true
  With --plugin-dir, also every NAME.wasm in that folder, with NAME.yaml as its configuration.
  `kubectl get plugins` shows the state of each.

Several hosts:
  Two hosts that write to one cluster undo each other's work. With --leader-elect any number of them may
  run: one leads, the others stand by with warm caches and compiled plugins and write nothing. A leader
  that shuts down releases its Lease and another takes over at once; after a crash, within 15 s. Without
  --leader-elect, run one host per cluster and let it end before the next one starts.

Signals:
  SIGTERM or SIGINT shuts the host down: it finishes writes in flight and starts no others, 10 s at most.
  A second signal ends it at once. Every write is safe to repeat, so nothing is lost either way.")]
pub struct RunArgs {
    /// Kubeconfig to reach the API server; without it, $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the plugins' ConfigMaps
    #[arg(long, short, value_name = "NAMESPACE", default_value = "mortise-system")]
    namespace: Namespace,
    /// Folder with NAME.wasm files as a second source of plugins; it takes precedence over a ConfigMap of the same name
    #[arg(long, value_name = "DIR")]
    plugin_dir: Option<PathBuf>,
    /// Folder that only this host writes, for compiled plugins [default: a folder `mortise` in $XDG_CACHE_HOME,
    /// ~/.cache, /var/cache or the system's temporary folder, the first that can be made]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// File with a key, 32 bytes or more, by which the host knows the compiled plugins that it has written itself; for a
    /// cache folder that others can read, such as from a Secret [default: a file in the cache folder, made by the host]
    #[arg(long, value_name = "FILE")]
    cache_key_file: Option<PathBuf>,
    /// Refuse plugins whose Plugin object names no ServiceAccount; without it, they act as the host itself
    #[arg(long)]
    require_service_account: bool,
    /// Labels of namespaces that bring plugins of their own, in ConfigMaps with the label mortise.dev/plugin=true: such a
    /// plugin sees and writes its namespace alone, as a ServiceAccount there. "mortise.dev/tenant=true"
    #[arg(long, value_name = "SELECTOR", value_parser = tenants)]
    tenant_namespaces: Option<Selector>,
    /// Threads that run reconciles, at least 3; admission and conversion have half as many, also at least 3
    /// [default: the cores that the container may use plus one, or fewer where its memory has room for fewer guests]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Writes of 4 KiB that each plugin may send in a minute, a larger one counts as several; the host slows down a plugin
    /// that exceeds it, and reports it
    #[arg(long, value_name = "N", default_value_t = WriteBudget::default().writes_per_minute)]
    plugin_writes_per_minute: u32,
    /// Creates among these
    #[arg(long, value_name = "N", default_value_t = WriteBudget::default().creates_per_minute)]
    plugin_creates_per_minute: u32,
    /// Send HTTP requests for plugins that declare them, to the origins that they declare: "remote" refuses loopback,
    /// link-local and the clouds' metadata addresses, "local" does not. Without it such plugins are refused
    #[arg(long, value_name = "ADDRESSES", num_args = 0..=1, require_equals = true, default_missing_value = "remote")]
    allow_http: Option<Addresses>,
    /// PEM file with the authorities of these requests' servers [default: those that this machine trusts]
    #[arg(long, value_name = "FILE", requires = "allow_http")]
    http_ca: Option<PathBuf>,
    /// HTTP requests that each plugin may send in a minute; further ones wait
    #[arg(long, value_name = "N", default_value_t = 600, requires = "allow_http")]
    plugin_requests_per_minute: u32,
    /// How often the host compares each kind in its cache with a live list, and relists it on a difference; 0 is off
    #[arg(long, value_name = "N", default_value_t = 60)]
    audit_interval_minutes: u64,
    /// Write only while this host holds a Lease, so that several hosts may run in one cluster
    #[arg(long)]
    leader_elect: bool,
    /// Namespace of that Lease [default: the namespace of --namespace]
    #[arg(long, value_name = "NAMESPACE", requires = "leader_elect")]
    leader_election_namespace: Option<Namespace>,
    /// Name of that Lease; hosts with the same one exclude each other
    #[arg(long, value_name = "NAME", default_value = "mortise", requires = "leader_elect")]
    leader_election_id: LeaseName,
    /// Where /metrics is served; "0" is off
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    metrics_bind_address: BindAddress,
    /// Serve /metrics over HTTPS, to bearer tokens whose user may get the path /metrics, as the ClusterRole
    /// mortise-metrics-reader allows
    #[arg(long)]
    metrics_secure: bool,
    /// Folder with tls.crt and tls.key for that, such as from cert-manager, instead of a certificate that the host makes
    /// and nobody can check; reloaded when they change
    #[arg(long, value_name = "DIR", requires = "metrics_secure")]
    metrics_cert_path: Option<PathBuf>,
    /// Where /healthz and /readyz are served; "0" is off
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    health_probe_bind_address: BindAddress,
    /// Port of the admission and conversion webhooks; 0 is off. Nothing listens until a plugin needs it
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    webhook_port: u16,
    /// How the API server reaches that port [default: the Service mortise-webhook inside a cluster, else
    /// https://127.0.0.1:PORT]
    #[arg(long, value_name = "URL")]
    webhook_url: Option<WebhookUrl>,
    /// Folder with tls.crt, tls.key and ca.crt for that port, such as from cert-manager, instead of certificates that
    /// the host issues itself; reloaded when they change
    #[arg(long, value_name = "DIR")]
    webhook_cert_path: Option<PathBuf>,
    /// PEM file with the authorities of the API server's client certificate: admission reviews are refused without one.
    /// Reloaded when it changes. The API server needs a kubeconfig for webhooks; without this flag anybody who reaches
    /// the port may send reviews
    #[arg(long, value_name = "FILE")]
    webhook_client_ca: Option<PathBuf>,
    /// Common names of that certificate, separated by commas [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "webhook_client_ca")]
    webhook_client_names: Vec<String>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,
    /// Log level: error, warn, info, debug or trace, or per crate such as "info,mortise_kube=debug"
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: log::Level,
}

/// Only what somebody has labelled is a tenant.
fn tenants(text: &str) -> Result<Selector, String> {
    let selector = Selector::parse(text).map_err(|error| error.to_string())?;
    if !selector.is_positive() {
        let message =
            "it selects namespaces without a label, kube-system among them; name one, such as mortise.dev/tenant=true";
        return Err(message.to_owned());
    }
    Ok(selector)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Addresses {
    Remote,
    Local,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Human,
    Json,
}

/// Runs the host until a signal ends it.
pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let format = match args.log_format {
        LogFormat::Human => log::Format::Human,
        LogFormat::Json => log::Format::Json,
    };
    log::start(format, &args.log_level)?;
    raise_open_files();
    let leader_election = args.leader_elect.then(|| LeaderElection {
        namespace: args.leader_election_namespace.unwrap_or_else(|| args.namespace.clone()),
        lease: args.leader_election_id,
    });
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: None };
    let webhook = WebhookConfig::new(
        args.webhook_port,
        args.webhook_url,
        args.webhook_cert_path,
        access.is_in_cluster(),
        &args.namespace,
    );
    let names = args.webhook_client_names;
    let clients = args.webhook_client_ca.map(|authorities| WebhookClients { authorities, names });
    let webhook = WebhookConfig { clients, ..webhook };
    let config = Config {
        kubeconfig: args.kubeconfig,
        leader_election,
        namespace: args.namespace,
        instance: instance(),
        plugin_dir: args.plugin_dir,
        cache_dir: crate::cache::folder(args.cache_dir)?,
        cache_key_file: args.cache_key_file,
        development: false,
        require_service_account: args.require_service_account,
        tenants: args.tenant_namespaces,
        workers: config::workers(args.workers),
        write_budget: WriteBudget {
            writes_per_minute: args.plugin_writes_per_minute,
            creates_per_minute: args.plugin_creates_per_minute,
        },
        http: args.allow_http.map(|addresses| HttpConfig {
            to_local: addresses == Addresses::Local,
            authorities: args.http_ca,
            requests_per_minute: args.plugin_requests_per_minute,
        }),
        audit_interval_minutes: args.audit_interval_minutes,
        metrics: args.metrics_bind_address,
        secure_metrics: args.metrics_secure.then_some(SecureMetrics { certificate_dir: args.metrics_cert_path }),
        probes: args.health_probe_bind_address,
        webhook,
    };
    mortise_runtime::run(config)
}

/// Raises the limit of open files to the hard limit. A plugin takes two, its compiled form and the connection of its
/// watches, and the soft limit is often 1024, for programs that still call `select`.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the limit of open files; a few hundred plugins may reach it");
    }
}

/// The pod's name, from the downward API or the hostname.
fn instance() -> String {
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    named("POD_NAME").or_else(|| named("HOSTNAME")).unwrap_or_else(|| "mortise".to_owned())
}
