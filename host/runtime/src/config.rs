//! The checked configuration of a running host. The command line has the raw text; these types are made only from valid
//! text, so no other module checks again.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread::available_parallelism;

use anyhow::Context;
use mortise_core::engine::WriteBudget;
use mortise_core::limits::CallLimits;
use mortise_core::selector::Selector;
use mortise_core::webhook::Address;
use mortise_source::is_dns_label;
use mortise_wasm::compile::CompileLimits;
use mortise_wasm::container::free_bytes;
use mortise_wasm::workers::MIN_WORKERS;
use tokio::net::TcpListener;

/// Kubernetes' limit for the name of an object.
const MAX_NAME_BYTES: usize = 253;

/// The configuration of `mortise run`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// None: `$KUBECONFIG`, else the cluster that the process runs in, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of plugins' ConfigMaps. The host reads nothing else in it unless a plugin does.
    pub namespace: Namespace,
    /// The reporting instance of the host's Events: its Pod's name.
    pub instance: String,
    /// A second source of plugins.
    pub plugin_dir: Option<PathBuf>,
    /// The folder of the compile cache.
    pub cache_dir: PathBuf,
    /// The key of the compile cache; None: one in its folder.
    pub cache_key_file: Option<PathBuf>,
    /// For plugins that their author is writing: quick to compile, and the backtraces of traps have source lines.
    pub development: bool,
    /// Plugins serve only as a ServiceAccount that their Plugin object names.
    pub require_service_account: bool,
    /// The labels of namespaces that bring plugins of their own; None: none does.
    pub tenants: Option<Selector>,
    /// Threads that run reconciles; see [`workers`].
    pub workers: NonZeroUsize,
    /// The budget of each plugin.
    pub write_budget: WriteBudget,
    /// HTTP requests of plugins; None: a plugin that declares any is refused.
    pub http: Option<HttpConfig>,
    /// How often each kind in the cache is compared with a live list; 0: never.
    pub audit_interval_minutes: u64,
    /// None: this is the only host.
    pub leader_election: Option<LeaderElection>,
    /// Serves `/metrics`.
    pub metrics: BindAddress,
    /// Over TLS, to those who may get `/metrics`. None: without TLS, to anybody.
    pub secure_metrics: Option<SecureMetrics>,
    /// Serves `/healthz` and `/readyz`.
    pub probes: BindAddress,
    /// The webhook server.
    pub webhook: WebhookConfig,
}

/// The threads that run reconciles: the requested number, else what this machine or container has room for. At least
/// [`MIN_WORKERS`].
pub fn workers(requested: Option<NonZeroUsize>) -> NonZeroUsize {
    // On Linux, std's documentation says, these are the cores of the process's affinity within the CPU quota of its cgroup, of
    // both versions: more threads than that would only be throttled. A test of it would need a cgroup with a quota, so the
    // tests begin at the number.
    let cores = available_parallelism().map_or(1, usize::from);
    workers_of(requested, cores, free_bytes())
}

fn workers_of(requested: Option<NonZeroUsize>, cores: usize, free_bytes: Option<u64>) -> NonZeroUsize {
    let fewest = NonZeroUsize::new(MIN_WORKERS).unwrap_or(NonZeroUsize::MIN);
    let default = || NonZeroUsize::new(workers_for(cores, free_bytes)).unwrap_or(fewest);
    requested.unwrap_or_else(default).max(fewest)
}

/// The cores and one more, since one plugin never has all threads but should have all cores when it is alone. In a container with
/// less memory no more than have room beside a compiler: a node has many cores, and the kernel kills what exceeds its limit.
fn workers_for(cores: usize, free_bytes: Option<u64>) -> usize {
    let wanted = cores.saturating_add(1);
    let Some(free_bytes) = free_bytes else { return wanted };
    // A guest with the default memory for each, and another for half as many that respond to webhooks.
    let each = CallLimits::default().memory_bytes * 3 / 2;
    let beside = free_bytes.saturating_sub(CompileLimits::for_size(0).memory_bytes);
    wanted.min(usize::try_from(beside / each).unwrap_or(usize::MAX))
}

/// What HTTP requests plugins may send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpConfig {
    /// Also to addresses of this machine and its link.
    pub to_local: bool,
    /// A PEM file with the authorities that servers' certificates are checked with. None: those of this machine.
    pub authorities: Option<PathBuf>,
    /// The budget of each plugin.
    pub requests_per_minute: u32,
}

/// The address and the certificate of the webhook server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookConfig {
    /// For the API server.
    pub address: Address,
    /// The DNS names and IP addresses of the certificate.
    pub names: Vec<String>,
    /// A folder with tls.crt, tls.key and optionally ca.crt, which somebody else writes. None: the host's own
    /// authority.
    pub certificate_dir: Option<PathBuf>,
    /// None: anybody may send reviews.
    pub clients: Option<WebhookClients>,
    /// The server's listener.
    pub bind: BindAddress,
}

/// How the metrics are served over TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecureMetrics {
    /// A folder with tls.crt and tls.key, which somebody else writes. None: the host makes a certificate.
    pub certificate_dir: Option<PathBuf>,
}

/// Who may send admission reviews.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookClients {
    /// A PEM file with the authorities of the API servers' client certificates.
    pub authorities: PathBuf,
    /// The common names of which a certificate has one; without any, all.
    pub names: Vec<String>,
}

/// The Service of the webhooks in a cluster, and its port.
const WEBHOOK_SERVICE: (&str, u16) = ("mortise-webhook", 443);

impl WebhookConfig {
    /// At this URL, else at the Service in a cluster, else on loopback. Port 0 is off.
    pub fn new(
        port: u16,
        url: Option<WebhookUrl>,
        certificate_dir: Option<PathBuf>,
        in_cluster: bool,
        namespace: &Namespace,
    ) -> Self {
        let (address, names, bind) = match url {
            None if in_cluster => {
                let (service, service_port) = WEBHOOK_SERVICE;
                let name = format!("{service}.{namespace}.svc");
                let names = vec![format!("{name}.cluster.local"), name];
                (Address::Service { name: service.into(), port: service_port }, names, BindAddress::Every(port))
            }
            url => {
                let url = url.unwrap_or_else(|| WebhookUrl::on_this_machine(port));
                // A loopback URL is served on loopback alone.
                let bind = if url.is_loopback() {
                    BindAddress::At { host: url.host.clone(), port }
                } else {
                    BindAddress::Every(port)
                };
                (Address::Url(url.text.into()), vec![url.host], bind)
            }
        };
        Self { address, names, certificate_dir, clients: None, bind: if port == 0 { BindAddress::Off } else { bind } }
    }
}

/// An address at which the API server reaches the host: "https://127.0.0.1:9443".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookUrl {
    text: String,
    /// A name or an address, without brackets.
    host: String,
}

impl WebhookUrl {
    fn on_this_machine(port: u16) -> Self {
        let host = Ipv4Addr::LOCALHOST.to_string();
        Self { text: format!("https://{host}:{port}"), host }
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl FromStr for WebhookUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::WebhookUrl(text.to_owned());
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        // The API server accepts no other scheme, no user and no query.
        let is_plain = uri.query().is_none() && !text.contains(['@', '#']);
        if uri.scheme_str() != Some("https") || !is_plain {
            return Err(wrong());
        }
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), text: text.trim_end_matches('/').to_owned() })
    }
}

/// Hosts that name the same Lease exclude each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderElection {
    /// The Lease's namespace.
    pub namespace: Namespace,
    /// The Lease's name.
    pub lease: LeaseName,
}

/// The name of a Lease: DNS labels with dots between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseName(String);

impl LeaseName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a namespace: a DNS label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace(String);

impl Namespace {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not a namespace's name.
    #[error(
        "{0:?} is not the name of a namespace: lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit"
    )]
    Namespace(String),
    /// Not a Lease's name.
    #[error(
        "{0:?} is not the name of a Lease: lower-case letters, digits, '-' and '.', at most 253, each part beginning and ending with a letter or digit"
    )]
    LeaseName(String),
    /// Not an address to listen on.
    #[error(
        "{0:?} is not an address to listen on: write \":8080\", \"127.0.0.1:8080\", \"[::1]:8080\", or \"0\" for none"
    )]
    Address(String),
    /// Not a webhook URL.
    #[error(
        "{0:?} is not an address for webhooks: write \"https://HOST:PORT\", as the API server reaches this machine"
    )]
    WebhookUrl(String),
}

impl FromStr for Namespace {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if is_dns_label(text) { Ok(Self(text.to_owned())) } else { Err(ConfigError::Namespace(text.to_owned())) }
    }
}

impl FromStr for LeaseName {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let is_name = text.len() <= MAX_NAME_BYTES && text.split('.').all(is_dns_label);
        if is_name { Ok(Self(text.to_owned())) } else { Err(ConfigError::LeaseName(text.to_owned())) }
    }
}

/// An address to listen on, as in controller-runtime's flags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindAddress {
    /// "0".
    Off,
    /// ":8080": every address of the machine.
    Every(u16),
    /// "127.0.0.1:8080", "localhost:8080".
    At {
        /// A name or an address, without brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

impl FromStr for BindAddress {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == "0" {
            return Ok(Self::Off);
        }
        let wrong = || ConfigError::Address(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        if host.is_empty() {
            return Ok(Self::Every(port));
        }
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|inner| inner.parse::<Ipv6Addr>().is_ok()).ok_or_else(wrong)?,
            None => host,
        };
        if host.is_empty() || host.contains(char::is_whitespace) || text.matches(':').count() > 1 && !text.contains('[')
        {
            return Err(wrong());
        }
        Ok(Self::At { host: host.to_owned(), port })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Every(port) => write!(f, ":{port}"),
            Self::At { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::At { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl BindAddress {
    /// Opens the listener; None when it is off.
    ///
    /// # Errors
    /// When the address is in use or not this machine's; the message names the `flag` to change.
    pub async fn listen(&self, flag: &str) -> anyhow::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Off => return Ok(None),
            // On a machine with IPv6 this serves IPv4 too.
            Self::Every(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await,
            },
            Self::At { host, port } => TcpListener::bind((host.as_str(), *port)).await,
        };
        let listener = listener
            .with_context(|| format!("cannot listen on {self}; choose another address with {flag}, or 0 for none"))?;
        Ok(Some(listener))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_controller_runtimes_format() {
        let at = |host: &str, port| BindAddress::At { host: host.to_owned(), port };
        for (text, wanted) in [
            ("0", BindAddress::Off),
            (":8080", BindAddress::Every(8080)),
            ("127.0.0.1:0", at("127.0.0.1", 0)),
            ("localhost:8081", at("localhost", 8081)),
            ("[::1]:8080", at("::1", 8080)),
        ] {
            let parsed: BindAddress = text.parse().unwrap();
            assert_eq!(parsed, wanted, "{text}");
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_examples() {
        for text in ["", "8080", ":", ":http", ":70000", "::1:8080", "[::1:8080", "[x]:1", "a b:1"] {
            let error = text.parse::<BindAddress>().expect_err(text).to_string();
            assert!(error.contains("\":8080\"") && error.contains("\"0\" for none"), "{text}: {error}");
        }
    }

    #[test]
    fn a_namespace_is_a_dns_label() {
        assert_eq!("mortise-system".parse::<Namespace>().unwrap().as_str(), "mortise-system");
        for text in ["", "-a", "a-", "A", "a.b", "a/b", &"a".repeat(64)] {
            assert!(text.parse::<Namespace>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn a_lease_has_the_name_of_an_object() {
        assert_eq!("mortise.example.com".parse::<LeaseName>().unwrap().as_str(), "mortise.example.com");
        for text in ["", "a/b", "A", "a..b", "-a", &"a".repeat(254)] {
            let error = text.parse::<LeaseName>().expect_err(text).to_string();
            assert!(error.contains("not the name of a Lease"), "{text}: {error}");
        }
    }

    #[test]
    fn q4_there_are_enough_workers_for_isolation_also_with_few_cores() {
        let requested = |count| workers(NonZeroUsize::new(count)).get();
        assert_eq!([requested(1), requested(3), requested(7)], [3, 3, 7]);
        assert!(workers(None).get() >= 3);
    }

    #[test]
    fn q4_a_container_has_a_worker_for_each_core_of_its_quota_and_one_more_but_three_at_least() {
        let workers = |quota| workers_of(None, quota, None).get();
        assert_eq!([1, 2, 3, 64].map(workers), [3, 3, 4, 65]);
        assert_eq!(workers_of(NonZeroUsize::new(7), 64, None).get(), 7, "what is requested precedes");
        assert_eq!(workers_of(None, 64, Some(0)).get(), 3, "also without memory");
    }

    #[test]
    fn g2_a_large_node_does_not_start_more_guests_than_the_container_has_memory_for() {
        const GIB: u64 = 1 << 30;
        assert_eq!([workers_for(2, None), workers_for(64, None)], [3, 65]);
        // The limit of deploy/.
        assert_eq!([workers_for(2, Some(2 * GIB)), workers_for(64, Some(2 * GIB))], [3, 10]);
        assert_eq!([workers_for(64, Some(8 * GIB)), workers_for(64, Some(GIB / 2))], [65, 0]);
    }

    fn webhook(port: u16, url: Option<&str>, in_cluster: bool) -> WebhookConfig {
        let namespace = "mortise-system".parse().unwrap();
        WebhookConfig::new(port, url.map(|url| url.parse().unwrap()), None, in_cluster, &namespace)
    }

    #[test]
    fn webhooks_are_at_the_url_or_the_service_or_on_loopback() {
        let here = webhook(9443, None, false);
        assert_eq!(here.address, Address::Url("https://127.0.0.1:9443".into()));
        assert_eq!((here.bind.to_string(), here.names), ("127.0.0.1:9443".to_owned(), vec!["127.0.0.1".to_owned()]));

        let in_cluster = webhook(9443, None, true);
        assert_eq!(in_cluster.address, Address::Service { name: "mortise-webhook".into(), port: 443 });
        assert!(in_cluster.names.contains(&"mortise-webhook.mortise-system.svc".to_owned()), "{:?}", in_cluster.names);
        assert_eq!(in_cluster.bind, BindAddress::Every(9443));

        let elsewhere = webhook(9443, Some("https://laptop.example.com:8443/"), true);
        assert_eq!(elsewhere.address, Address::Url("https://laptop.example.com:8443".into()));
        assert_eq!(
            (elsewhere.bind, elsewhere.names),
            (BindAddress::Every(9443), vec!["laptop.example.com".to_owned()])
        );
        assert_eq!(webhook(1, Some("https://[::1]:1"), false).names, ["::1"]);
        assert_eq!(webhook(0, None, true).bind, BindAddress::Off);
    }

    #[test]
    fn an_invalid_webhook_address_is_refused_with_the_format() {
        for text in ["", "127.0.0.1:9443", "http://a:1", "https://", "https://a:1?b=c", "https://u@a:1"] {
            let error = text.parse::<WebhookUrl>().expect_err(text).to_string();
            assert!(error.contains("https://HOST:PORT"), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error_that_names_the_flag() {
        let address: BindAddress = "127.0.0.1:0".parse().unwrap();
        let first = address.listen("--metrics-bind-address").await.unwrap().unwrap();
        let taken: BindAddress = first.local_addr().unwrap().to_string().parse().unwrap();
        let error = taken.listen("--metrics-bind-address").await.expect_err("two listeners on one port");
        assert!(error.to_string().contains("--metrics-bind-address"), "{error}");
        assert!(BindAddress::Off.listen("--metrics-bind-address").await.unwrap().is_none());
    }
}
