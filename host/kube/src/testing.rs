//! An API server for this crate's tests: a loopback listener whose responses a test chooses, and a client for it. It speaks
//! HTTP/1.1 and knows nothing of Kubernetes.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Access, ApiServer};

/// A request.
pub(crate) struct Received {
    /// "GET".
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The Accept header.
    pub accept: String,
    /// The user that it is sent as, instead of the client's own.
    pub impersonated: Option<String>,
    pub body: String,
}

/// A status whose response has no end: its body is sent, and then nothing more while the connection stays open.
pub(crate) const UNENDING: &str = "200 Unending";

/// Responds to every request with a status, such as "200 OK", and a body.
pub(crate) async fn serve<F>(respond: F) -> ApiServer
where
    F: Fn(&Received) -> (&'static str, String) + Send + Sync + 'static,
{
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"c",
        "clusters":[{{"name":"c","cluster":{{"server":"http://{}"}}}}],
        "users":[{{"name":"u","user":{{}}}}],"contexts":[{{"name":"c","context":{{"cluster":"c","user":"u"}}}}]}}"#,
        listener.local_addr().unwrap()
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig).unwrap();
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(converse(stream, Arc::clone(&respond)));
        }
    });
    ApiServer::connect(&Access { kubeconfig: Some(file.path().to_owned()), context: None }).await.unwrap()
}

async fn converse<F>(mut stream: TcpStream, respond: Arc<F>)
where
    F: Fn(&Received) -> (&'static str, String),
{
    let mut bytes = Vec::new();
    loop {
        let Some(request) = next(&mut stream, &mut bytes).await else { return };
        let (status, body) = respond(&request);
        let text = match (status, body.len()) {
            (UNENDING, 0) => format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n"),
            (UNENDING, len) => {
                format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n")
            }
            (_, len) => format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n{body}"),
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The next whole request; None when the client is gone.
async fn next(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Received> {
    loop {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let header = |wanted: &str| {
                let mut headers = head.lines().filter_map(|line| line.split_once(':'));
                let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                found.map(|(_, value)| value.trim().to_owned())
            };
            let length = header("content-length").map_or(0, |length| length.parse().unwrap());
            if rest.len() >= length {
                let mut words = head.split(' ');
                let mut word = || words.next().unwrap().to_owned();
                let received = Received {
                    method: word(),
                    path: word(),
                    accept: header("accept").unwrap_or_default(),
                    impersonated: header("impersonate-user"),
                    body: rest[..length].to_owned(),
                };
                bytes.drain(..head.len() + 4 + length);
                return Some(received);
            }
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}
