//! Absolute URLs: the origin that a manifest declares, and the path. One parser reads the text that is checked and the
//! parts that are used, so no two readings of one URL can differ.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of a URL. Servers commonly accept 8 KiB for the whole request line.
const MAX_URL_BYTES: usize = 4 << 10;
/// Bytes of a host: the bound of a DNS name.
const MAX_HOST_BYTES: usize = 253;

/// Scheme, host and port: "https://api.example.com".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// Over TLS.
    pub is_https: bool,
    /// A DNS name in lower case, or an IP address without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

/// A URL in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Url {
    pub origin: Origin,
    /// Path and query, at least "/".
    pub path: Arc<str>,
}

impl Origin {
    /// Parses "https://api.example.com", "http://10.0.0.1:8080", "https://[fd00::1]".
    ///
    /// # Errors
    /// What is wrong, without the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let Url { origin, path } = Url::parse(text)?;
        if &*path != "/" || text.ends_with('/') {
            return Err("an origin ends with the host or the port");
        }
        Ok(origin)
    }

    /// The address, for a host that is none by name.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Host and port, as in the header Host: without the scheme's own port, and with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        if self.port == default_port(self.is_https) { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

impl Url {
    /// Parses an absolute URL.
    ///
    /// # Errors
    /// What is wrong, without the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_URL_BYTES {
            return Err("it has more than 4096 bytes");
        }
        let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("it begins with neither https:// nor http://"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if let Some(odd) = path.bytes().find(|byte| !is_of_path(*byte)) {
            return Err(match odd {
                b'#' => "a fragment is not sent to servers",
                _ => "the path has a character that has to be percent-encoded",
            });
        }
        let path = if path.starts_with('/') { Arc::from(path) } else { format!("/{path}").into() };
        let (host, port) = host_and_port(authority)?;
        let port = port.unwrap_or_else(|| default_port(is_https));
        Ok(Self { origin: Origin { is_https, host, port }, path })
    }
}

fn host_and_port(authority: &str) -> Result<(Arc<str>, Option<u16>), &'static str> {
    const WRONG: &str = "the host is neither a DNS name nor an IP address";
    if authority.contains('@') {
        return Err("a URL has no user; put credentials into a header");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(WRONG)?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        // Without a sign, which `parse` would accept.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port > 0).ok_or("the port is not within 1 and 65535")?)
        }
        _ => return Err(WRONG),
    };
    let is_bracketed = authority.starts_with('[');
    let host = host.to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        // In the one form that is compared.
        Ok(address) if address.is_ipv6() == is_bracketed => Ok((address.to_string().into(), port)),
        Err(_) if !is_bracketed && is_dns_name(&host) => Ok((host.into(), port)),
        _ => Err(WRONG),
    }
}

/// A name whose last part is no number: "127.1" and "0x7f.1" are addresses to some resolvers.
fn is_dns_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= MAX_HOST_BYTES
        && host.split('.').all(is_label)
        && !last.starts_with(|first: char| first.is_ascii_digit())
}

/// RFC 3986: unreserved and reserved characters, without those of the fragment, and "%".
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%[]".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_an_origin_and_a_path() {
        for (text, origin, path) in [
            ("https://api.example.com", "https://api.example.com", "/"),
            ("https://API.Example.com:443/a?b=c", "https://api.example.com", "/a?b=c"),
            ("http://10.0.0.1:8080?b", "http://10.0.0.1:8080", "/?b"),
            ("http://[FD00:0::1]:80/%20", "http://[fd00::1]", "/%20"),
            ("http://a/@b:c", "http://a", "/@b:c"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.origin.to_string().as_str(), &*url.path), (origin, path), "{text}");
            assert_eq!(Origin::parse(origin), Ok(url.origin));
        }
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
        for text in [
            "",
            "ftp://a",
            "HTTPS://a",
            "https://",
            "https:///a",
            "https://user@a/",
            "https://a:b@c/",
            "https://a\\@b/",
            "https://a b/",
            "https://a/ b",
            "https://a/\r\nHost: b",
            "https://a/#b",
            "https://a:/",
            "https://a:0/",
            "https://a:+1/",
            "https://a:65536/",
            "https://[::1/",
            "https://::1/",
            "https://[127.0.0.1]/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://a..b/",
            "https://-a/",
            "https://ä.example/",
            "https://%61/",
        ] {
            assert!(Url::parse(text).is_err(), "{text} was read as {:?}", Url::parse(text));
        }
        let path = |bytes: usize| format!("https://a/{}", "x".repeat(bytes - "https://a/".len()));
        assert!(Url::parse(&path(MAX_URL_BYTES)).is_ok() && Url::parse(&path(MAX_URL_BYTES + 1)).is_err());
    }

    #[test]
    fn an_origin_has_no_path() {
        for text in ["https://a/", "https://a/b", "https://a?b"] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }
}
