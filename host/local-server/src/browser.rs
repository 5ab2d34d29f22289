//! What a web page can make a browser send is refused from its head. Input: the head of a request. Output: a refusal, or none. It
//! must not know who asks.
//!
//! A browser sends a page's requests from the developer's own machine. It says the page's origin in `Origin`, what the page is to
//! the server in `Sec-Fetch-Site`, and the name that it resolved to this address in `Host`.

use anyhow::{Context as _, Result};
use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use mortise_local_cluster::Status;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::server::ParsedCertificate;

use crate::decode::refusal;

const HTTPS: u16 = 443;

/// What the server is called.
#[derive(Debug)]
pub(crate) struct Names {
    certificate: CertificateDer<'static>,
    port: u16,
}

impl Names {
    /// The names of a certificate, and those of loopback at a port.
    pub(crate) fn new(certificate: CertificateDer<'static>, port: u16) -> Result<Self> {
        ParsedCertificate::try_from(&certificate).context("read the names of the certificate to serve with")?;
        Ok(Self { certificate, port })
    }

    /// Whether a client that named the server so meant it. The names of the certificate are the server's on every port: a port of
    /// another machine may be forwarded to it. A page of another server can have a name of neither, whatever its DNS says.
    fn has(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let Ok(name) = ServerName::try_from(host.to_ascii_lowercase()) else { return false };
        let is_loopback = match &name {
            ServerName::IpAddress(IpAddr::V4(address)) => address.as_ref()[0] == 127,
            ServerName::DnsName(name) => name.as_ref() == "localhost",
            _ => false,
        };
        let is_here = is_loopback && authority.port_u16().unwrap_or(HTTPS) == self.port;
        let certificate = ParsedCertificate::try_from(&self.certificate);
        is_here || certificate.is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

/// Refuses a request for another server's name, and one of another server's page.
pub(crate) fn check(head: &Parts, names: &Names) -> Result<(), Status> {
    let authority = authority(head)?;
    if !names.has(&authority) {
        let message = format!(
            "{:?} is not a name of this server: serve with a certificate that has it, or use one of the kubeconfig",
            authority.as_str()
        );
        return Err(refusal(421, "", &message));
    }
    let own = format!("https://{authority}");
    if let Some(origin) = texts(head, &ORIGIN).find(|origin| !origin.eq_ignore_ascii_case(&own)) {
        return Err(foreign(&format!("of the origin {origin:?}")));
    }
    let site = HeaderName::from_static("sec-fetch-site");
    match texts(head, &site).find(|site| !matches!(site.as_str(), "none" | "same-origin")) {
        Some(site) => Err(foreign(&site)),
        None => Ok(()),
    }
}

fn foreign(page: &str) -> Status {
    refusal(403, "Forbidden", &format!("requests of web pages of others are refused: this page is {page}"))
}

/// The one name that a request has for the server: HTTP/2 has it in the target, HTTP/1.1 in `Host` or in both.
fn authority(head: &Parts) -> Result<Authority, Status> {
    let named: Vec<Option<Authority>> = head
        .uri
        .authority()
        .map(|target| Some(target.clone()))
        .into_iter()
        .chain(head.headers.get_all(HOST).iter().map(|host| Authority::try_from(host.as_bytes()).ok()))
        .collect();
    match named.as_slice() {
        [Some(first), rest @ ..]
            if !first.as_str().contains('@') && rest.iter().all(|other| other.as_ref() == Some(first)) =>
        {
            Ok(first.clone())
        }
        _ => Err(refusal(400, "BadRequest", "a request has one Host")),
    }
}

fn texts<'a>(head: &'a Parts, name: &HeaderName) -> impl Iterator<Item = String> + use<'a> {
    head.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority as Issuer;

    fn code(lines: &[(&str, &str)]) -> u16 {
        let serving = Issuer::open(None).unwrap().serving(None).unwrap();
        let names = Names::new(serving.chain[0].clone(), 6443).unwrap();
        let (mut builder, mut target) = (http::Request::builder(), "/api");
        for (name, value) in lines {
            match *name {
                "target" => target = value,
                _ => builder = builder.header(*name, *value),
            }
        }
        let (head, ()) = builder.uri(target).body(()).unwrap().into_parts();
        check(&head, &names).map_or_else(|status| status.code, |()| 200)
    }

    #[test]
    fn a_name_that_dns_may_lead_here_is_not_the_servers() {
        for host in
            ["127.0.0.1:6443", "localhost:6443", "LOCALHOST:6443", "127.9.9.9:6443", "127.0.0.1:1", "kubernetes"]
        {
            assert_eq!(code(&[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example:6443", "127.0.0.1.evil.example:6443", "127.9.9.9:1", "10.0.0.1:6443", "[::1]:6443"] {
            assert_eq!(code(&[("host", host)]), 421, "{host}");
        }
        for hosts in [&[][..], &["localhost:6443", "evil.example:6443"], &["a@localhost:6443"], &["local host"]] {
            let lines: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            assert_eq!(code(&lines), 400, "{hosts:?}");
        }
        assert_eq!(code(&[("target", "https://localhost:6443/api")]), 200);
        assert_eq!(code(&[("target", "https://evil.example:6443/api")]), 421);
        assert_eq!(code(&[("target", "https://evil.example:6443/api"), ("host", "localhost:6443")]), 400);
    }

    #[test]
    fn a_page_of_another_origin_is_refused_on_any_port_of_this_machine() {
        let host = ("host", "127.0.0.1:6443");
        assert_eq!(code(&[host, ("origin", "https://127.0.0.1:6443")]), 200);
        for origin in ["null", "", "http://127.0.0.1:6443", "https://127.0.0.1:8000", "https://localhost:6443"] {
            assert_eq!(code(&[host, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(code(&[host, ("origin", "https://127.0.0.1:6443"), ("origin", "https://evil.example")]), 403);
        for (site, wanted) in [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("", 403)]
        {
            assert_eq!(code(&[host, ("sec-fetch-site", site)]), wanted, "{site}");
        }
    }
}
