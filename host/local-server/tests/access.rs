//! Who is answered: requests as other users of the machine and web pages send them, byte for byte.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mortise_local_cluster::User;
use mortise_local_server::{Options, Server};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const DEADLINE: Duration = Duration::from_secs(30);
const SECRETS: &str = "GET /api/v1/namespaces/default/secrets";
const CREATE: &str = "POST /api/v1/namespaces/default/configmaps";

struct Tried {
    server: Server,
    runtime: Runtime,
    address: String,
}

impl Tried {
    fn open(rbac: bool) -> Self {
        let user = User { name: "jane".to_owned(), ..User::default() };
        let tokens = vec![("the-token-of-jane".to_owned(), user)];
        let defaults = mortise_local_cluster::Options::default();
        let cluster = mortise_local_cluster::Options { rbac, tokens, ..defaults };
        let server = Server::open(Options { cluster, ..Options::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = server.url().strip_prefix("https://").unwrap().to_owned();
        Self { server, runtime, address }
    }

    /// The status and the rest of what is answered to a head, of which no body follows whatever it says.
    fn ask(&self, is_admin: bool, line: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let named = headers.iter().any(|(name, _)| *name == "Host");
        let own = Some(("Host", self.address.as_str())).filter(|_| !named);
        let lines = own.iter().chain(headers).map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!("{line} HTTP/1.1\r\n{}Connection: close\r\n\r\n", lines.collect::<String>());
        let answered = self.runtime.block_on(async { timeout(DEADLINE, self.exchange(is_admin, &head)).await });
        let text = answered.unwrap_or_else(|_| panic!("no answer to {head}"));
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }

    async fn exchange(&self, is_admin: bool, head: &str) -> String {
        let config: Value = serde_json::from_str(self.server.kubeconfig()).unwrap();
        let pem = |value: &Value| BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
        let certificate = |value: &Value| CertificateDer::from_pem_slice(&pem(value)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&config["clusters"][0]["cluster"]["certificate-authority-data"])).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let admin = &config["users"][0]["user"];
        let tls = if is_admin {
            let key = PrivateKeyDer::from_pem_slice(&pem(&admin["client-key-data"])).unwrap();
            builder.with_client_auth_cert(vec![certificate(&admin["client-certificate-data"])], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close without the last word of TLS.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

#[test]
fn without_credentials_nothing_is_answered_but_the_health_and_the_version() {
    let tried = Tried::open(false);
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(tried.ask(false, &format!("GET {path}"), &[]).0, 200, "{path}");
        assert_eq!(tried.ask(false, &format!("DELETE {path}"), &[]).0, 401, "{path}");
        assert_eq!(tried.ask(false, &format!("GET {path}/x"), &[]).0, 401, "{path}");
    }
    for line in [SECRETS, CREATE, "GET /", "GET /api", "GET /apis", "GET /metrics", "GET /openapi/v2", "GET /none"] {
        let (code, answer) = tried.ask(false, line, &[]);
        assert!(code == 401 && answer.contains(r#""reason":"Unauthorized""#), "{line}: {answer}");
        assert_ne!(tried.ask(true, line, &[]).0, 401, "{line}");
    }
    // What says that nobody serves it says so to those with credentials alone.
    for (line, header) in
        [("OPTIONS /api", ("Accept", "*/*")), (CREATE, ("Upgrade", "SPDY/3.1")), ("GET /%ff", ("a", "b"))]
    {
        assert_eq!(tried.ask(false, line, &[header]).0, 401, "{line}");
    }
}

#[test]
fn only_known_tokens_and_certificates_are_credentials() {
    for rbac in [false, true] {
        let tried = Tried::open(rbac);
        let with = |value: &str| tried.ask(false, SECRETS, &[("Authorization", value)]).0;
        let jane = if rbac { 403 } else { 200 };
        assert_eq!(with("Bearer the-token-of-jane"), jane, "rbac: {rbac}");
        for wrong in ["Bearer the-token-of-jan", "Bearer the-token-of-janex", "Bearer x.y.z"] {
            assert_eq!(with(wrong), 401, "{wrong}, rbac: {rbac}");
        }
        // With RBAC they are of nobody, who may do nothing.
        let nobody = if rbac { 403 } else { 401 };
        for none in ["Basic amFuZTp0aGUtdG9rZW4tb2YtamFuZQ==", "the-token-of-jane", "Bearer", ""] {
            assert_eq!(with(none), nobody, "{none:?}, rbac: {rbac}");
        }
        assert_eq!(tried.ask(false, SECRETS, &[("Cookie", "token=the-token-of-jane")]).0, nobody);
        assert_eq!(tried.ask(false, &format!("{SECRETS}?access_token=the-token-of-jane"), &[]).0, nobody);
        let protocol = "base64url.bearer.authorization.k8s.io.dGhlLXRva2VuLW9mLWphbmU";
        assert_eq!(tried.ask(false, SECRETS, &[("Sec-WebSocket-Protocol", protocol)]).0, nobody);
        assert_eq!(tried.ask(true, SECRETS, &[]).0, 200);
    }
}

#[test]
fn a_body_is_read_of_those_alone_who_may_send_it() {
    for (rbac, code) in [(false, 401), (true, 403)] {
        let tried = Tried::open(rbac);
        // The body never comes.
        let headers = [("Content-Type", "application/json"), ("Content-Length", "3000000")];
        assert_eq!(tried.ask(false, CREATE, &headers).0, code);
        let evil = [headers[0], headers[1], ("Origin", "https://evil.example")];
        assert_eq!(tried.ask(true, CREATE, &evil).0, 403);
    }
}

#[test]
fn what_a_web_page_can_make_a_browser_send_is_refused_also_with_credentials() {
    let tried = Tried::open(false);
    let (port, token) = (tried.address.rsplit(':').next().unwrap(), ("Authorization", "Bearer the-token-of-jane"));
    let (rebound, local) = (format!("evil.example:{port}"), format!("localhost:{port}"));
    for (host, wanted) in
        [(rebound.as_str(), 421), ("evil.example", 421), (&local, 200), ("kubernetes.default.svc", 200)]
    {
        for (is_admin, headers) in [(true, vec![("Host", host)]), (false, vec![("Host", host), token])] {
            assert_eq!(tried.ask(is_admin, SECRETS, &headers).0, wanted, "{host}");
        }
    }
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "http://127.0.0.1:8000"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        for line in [SECRETS, "GET /version", "OPTIONS /api"] {
            let (code, answer) = tried.ask(true, line, &[(name, value)]);
            assert_eq!(code, 403, "{line} with {name}: {value}");
            assert!(!answer.to_ascii_lowercase().contains("access-control-"), "{answer}");
        }
    }
    let own = format!("https://{}", tried.address);
    assert_eq!(tried.ask(true, SECRETS, &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).0, 200);
}
