//! The server as clients see it: kube-rs over real connections, with the kubeconfig that the server writes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::{Api, Client, Config};
use mortise_local_server::{Options, Server};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

fn options(folder: &Path) -> Options {
    Options { state: Some(folder.join("state")), audit_log: Some(folder.join("audit.jsonl")), ..Options::default() }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn map(name: &str, bytes: usize) -> ConfigMap {
    let data = json!({"text": "x".repeat(bytes)});
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

async fn raw(client: &Client, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.send(request.body(Vec::new().into()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn a_client_lists_watches_and_writes_and_a_restart_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::open(options(folder.path())).unwrap();
    let runtime = runtime();
    let uid = runtime.block_on(async {
        let client = client(&server).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let mut watch = maps.watch(&WatchParams::default().timeout(60), "0").await.unwrap().boxed();
        let created = maps.create(&PostParams::default(), &map("a", 1)).await.unwrap();
        let event = loop {
            let event = timeout(DEADLINE, watch.try_next()).await.unwrap().unwrap().unwrap();
            match event {
                WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a") => break map,
                _ => {}
            }
        };
        assert_eq!(event, created);
        let (_, metrics) = raw(&client, "GET", "/metrics", &[]).await;
        let open = metrics.lines().find(|line| line.starts_with("apiserver_longrunning_requests{"));
        assert!(open.is_some_and(|line| line.contains("resource=\"configmaps\"") && line.ends_with(" 1")), "{metrics}");
        maps.create(&PostParams::default(), &map("b", 1)).await.unwrap();
        maps.delete("b", &DeleteParams::default()).await.unwrap();
        created.metadata.uid
    });
    server.close();

    let server = Server::open(options(folder.path())).unwrap();
    runtime.block_on(async {
        let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
        assert_eq!(maps.get("a").await.unwrap().metadata.uid, uid);
        assert!(maps.get_opt("b").await.unwrap().is_none());
    });
    server.close();
    let log = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_maps = events.filter(|event| event["objectRef"]["resource"] == "configmaps");
    let seen = of_maps
        .map(|event| format!("{} {} {}", event["verb"], event["objectRef"]["name"], event["responseStatus"]["code"]));
    let mut seen = seen.collect::<Vec<_>>();
    // The watch is logged when it ends.
    seen.sort();
    assert_eq!(
        seen,
        [
            r#""create" "a" 201"#,
            r#""create" "b" 201"#,
            r#""delete" "b" 200"#,
            r#""get" "a" 200"#,
            r#""get" "b" 404"#,
            r#""watch" null 200"#,
        ]
    );
}

#[test]
fn what_is_too_large_or_not_served_is_refused_in_the_api_servers_words() {
    let server = Server::open(Options::default()).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        let client = client(&server).await;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let error = maps.create(&PostParams::default(), &map("a", 4 << 20)).await.unwrap_err().to_string();
        assert!(error.contains("Request entity too large: limit is 3145728"), "{error}");
        let upgrade = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let (code, body) = raw(&client, "POST", "/api/v1/namespaces/default/pods/a/exec", &upgrade).await;
        assert!(code == 501 && body.contains("exec, attach and port-forward are not served"), "{code} {body}");
        let (code, body) = raw(&client, "OPTIONS", "/api", &[]).await;
        assert!(code == 405 && body.contains("does not allow this method"), "{code} {body}");
        let namespaces: Api<Namespace> = Api::all(client);
        assert!(namespaces.list(&ListParams::default()).await.unwrap().items.len() >= 4);
    });
    server.close();
}

#[test]
fn a_taken_port_and_a_missing_folder_are_said_with_what_to_do() {
    let server = Server::open(Options::default()).unwrap();
    let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
    let error = Server::open(Options { port, ..Options::default() }).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}: choose another port with --port")), "{error}");
    let error = server.write_kubeconfig(Path::new("/no/such/folder/config")).unwrap_err().to_string();
    assert!(error.starts_with("write /no/such/folder/config: choose a file"), "{error}");
}
