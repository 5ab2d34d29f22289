//! One round with the cluster as a value: requests without a transport, and its answers as bytes.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use mortise_control_plane::usage_of;
use mortise_local_cluster::{Body, Cluster, Credentials, Frame, Method, Options, Reply, Request, Response, User};

use super::load::{PAGE, PATH, PODS, Round, Sample, pod};

/// How many Pods a watch catches up with: the log of changes has bounded bytes, which all Pods exceed.
const BEHIND: usize = PODS / 2;
/// Copies per measurement, since one is shorter than reading the clock.
const COPIES: usize = 1_000;

/// The round, and the bytes of anonymous memory that a Pod took.
pub(super) fn round() -> Result<(Round, f64)> {
    let mut round = Round::new();
    let options = Options { nodes: 0, controllers: Vec::new(), ..Options::default() };
    let began = Instant::now();
    let mut cluster = Cluster::new(options, Timestamp::now());
    round.push(("start", Sample::since(began, 1, 0)));

    let bodies: Vec<Vec<u8>> = (0..PODS).map(|number| pod(number).to_string().into_bytes()).collect();
    let (sent, before) = (bodies.iter().map(Vec::len).sum(), anonymous()?);
    let began = Instant::now();
    for body in bodies {
        let made = answer(&mut cluster, &request(Method::Post, &[], body))?;
        ensure!(made.status == 201, "a Pod is refused: {:?}", made.body);
    }
    round.push(("create", Sample::since(began, PODS, sent)));
    let each = (anonymous()?.saturating_sub(before)) as f64 / PODS as f64;

    let began = Instant::now();
    let bytes = document(&mut cluster, &[])?.len();
    round.push(("list", Sample::since(began, PODS, bytes)));
    let limit = PAGE.to_string();
    let began = Instant::now();
    let bytes = document(&mut cluster, &[("limit", &limit)])?.len();
    round.push(("list a page", Sample::since(began, PAGE, bytes)));
    round.push(("watch from the start", watch(&mut cluster, "", PODS)?));
    let behind = cluster.revision() - BEHIND as u64;
    round.push(("watch from half of the Pods", watch(&mut cluster, &behind.to_string(), BEHIND)?));
    let began = Instant::now();
    for _ in 0..COPIES {
        drop(black_box(cluster.clone()));
    }
    round.push(("copy the cluster", Sample::since(began, COPIES, 0)));
    Ok((round, each))
}

fn anonymous() -> Result<u64> {
    Ok(usage_of(std::process::id())?.anonymous_bytes)
}

fn request(method: Method, query: &[(&str, &str)], body: Vec<u8>) -> Request {
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    Request {
        method,
        path: PATH.to_owned(),
        query: query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        credentials: Credentials::User(User { name: "bench".to_owned(), groups, ..User::default() }),
        body,
    }
}

fn answer(cluster: &mut Cluster, request: &Request) -> Result<Response> {
    match cluster.request(request, &[], Timestamp::now()) {
        Reply::Done(response) => Ok(response),
        Reply::Call(call) => bail!("a webhook is asked: {}", call.url),
    }
}

fn document(cluster: &mut Cluster, query: &[(&str, &str)]) -> Result<Vec<u8>> {
    match answer(cluster, &request(Method::Get, query, Vec::new()))?.body {
        Body::Watch(_) => bail!("a list is a watch"),
        document => Ok(document.bytes()),
    }
}

/// Watches until that many Pods were seen.
fn watch(cluster: &mut Cluster, version: &str, pods: usize) -> Result<Sample> {
    let began = Instant::now();
    let query = [("watch", "true"), ("resourceVersion", version)];
    let Body::Watch(mut watch) = answer(cluster, &request(Method::Get, &query, Vec::new()))?.body else {
        bail!("a watch is refused")
    };
    let (mut seen, mut bytes) = (0, 0);
    while seen < pods {
        let Reply::Done(frames) = cluster.poll(&mut watch, &[], Timestamp::now()) else { bail!("a webhook is asked") };
        ensure!(!frames.is_empty(), "the watch ended after {seen} Pods");
        for frame in frames {
            if let Frame::Event(event) = frame {
                bytes += event.len();
                seen += 1;
            }
        }
    }
    Ok(Sample::since(began, seen, bytes))
}
