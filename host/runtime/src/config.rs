//! What a running host is told, checked. The command line holds what was typed; every type here can only be made from
//! text that is right, so nothing after this module asks again.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use mortise_source::is_dns_label;
use tokio::net::TcpListener;

/// Kubernetes' limit for the name of an object.
const MAX_NAME_BYTES: usize = 253;

/// Everything that `mortise run` needs to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// None: what `$KUBECONFIG` says, else the cluster that the process runs in, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Where plugins' ConfigMaps are, and where nothing else is read unless a plugin needs it.
    pub namespace: Namespace,
    /// How the host signs the Events it sends: its pod's name.
    pub instance: String,
    /// A second source of plugins.
    pub plugin_dir: Option<PathBuf>,
    /// Where compiled components are kept.
    pub cache_dir: PathBuf,
    /// Threads that run guests.
    pub workers: NonZeroUsize,
    /// Which other hosts there may be. None: there are none.
    pub leader_election: Option<LeaderElection>,
    /// Where `/metrics` is served.
    pub metrics: BindAddress,
    /// Where `/healthz` and `/readyz` are served.
    pub probes: BindAddress,
}

/// Hosts that name the same Lease exclude each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderElection {
    /// Where the Lease is.
    pub namespace: Namespace,
    /// What it is called.
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

/// Why a text is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// It names no namespace.
    #[error(
        "{0:?} is no name of a namespace: lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit"
    )]
    Namespace(String),
    /// It names no Lease.
    #[error(
        "{0:?} is no name of a Lease: lower-case letters, digits, '-' and '.', at most 253, each part beginning and ending with a letter or digit"
    )]
    LeaseName(String),
    /// It names no address to listen on.
    #[error("{0:?} is no address to listen on: write \":8080\", \"127.0.0.1:8080\", \"[::1]:8080\", or \"0\" for none")]
    Address(String),
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

/// Where to listen, in the spelling that controller-runtime's flags have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindAddress {
    /// "0": nowhere.
    Off,
    /// ":8080": on every address of the machine.
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
    /// Listens there; None when it is off.
    ///
    /// # Errors
    /// When the address is taken or not this machine's; `flag` names the option to change.
    pub async fn listen(&self, flag: &str) -> anyhow::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Off => return Ok(None),
            // Where the machine has IPv6, this serves IPv4 as well.
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
    fn an_address_is_written_as_controller_runtime_has_it() {
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
    fn a_wrong_address_is_refused_with_the_ways_to_write_it() {
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
            assert!(error.contains("no name of a Lease"), "{text}: {error}");
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
