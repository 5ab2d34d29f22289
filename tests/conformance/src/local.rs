//! The local cluster as a server of cases, in this process, without controllers. It must not know the real one.

use jiff::{SignedDuration, Timestamp};
use mortise_local_cluster::{Body, Cluster, Credentials, Frame, Method, Options, Reply, Request, User};

use crate::Server;
use crate::case::Step;

pub(crate) struct Local {
    cluster: Cluster,
    now: Timestamp,
}

impl Local {
    pub(crate) fn new(mode: &str) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let options = Options { nodes: 0, controllers: Vec::new(), rbac: mode == "RBAC", ..Options::default() };
        Self { cluster: Cluster::new(options, now), now }
    }
}

impl Server for Local {
    fn ask(&mut self, step: &Step) -> (u16, String, Vec<String>) {
        let (path, query) = step.target.split_once('?').unwrap_or((&step.target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), decoded(value))
        };
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        let request = Request {
            method: match step.method.as_str() {
                "GET" => Method::Get,
                "POST" => Method::Post,
                "PUT" => Method::Put,
                "PATCH" => Method::Patch,
                "DELETE" => Method::Delete,
                other => panic!("{other} is no method of the API server"),
            },
            path: path.to_owned(),
            query: pairs.map(pair).collect(),
            headers: step.headers.clone(),
            credentials: match step.credentials.as_deref() {
                // As the line of the real one's token file.
                None => {
                    let (name, uid) = ("admin".to_owned(), "admin".to_owned());
                    Credentials::User(User { name, uid, groups, ..User::default() })
                }
                Some("none") => Credentials::None,
                Some(token) => Credentials::Token(token.to_owned()),
            },
            body: step.body.clone().into_bytes(),
        };
        self.now += SignedDuration::from_millis(10);
        let response = match self.cluster.request(&request, &[], self.now) {
            Reply::Done(response) => response,
            Reply::Call(call) => return (0, format!("a webhook is asked: {}", call.url), Vec::new()),
        };
        let warnings = response.headers.into_iter().filter(|(name, _)| *name == "Warning").map(|(_, text)| text);
        let body = match response.body {
            Body::Json(value) => value.to_string(),
            Body::Text(text) => text,
            Body::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Body::Watch(mut watch) => {
                let mut frames = String::new();
                for _ in 0..10 {
                    self.now += SignedDuration::from_secs(1);
                    let Reply::Done(sent) = self.cluster.poll(&mut watch, &[], self.now) else { break };
                    for frame in sent {
                        if let Frame::Event(event) = frame {
                            frames.push_str(&event);
                        }
                    }
                }
                frames
            }
        };
        (response.status, body, warnings.collect())
    }
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
