//! The real control plane as a server of cases: etcd and kube-apiserver, without controllers. It must not know the local
//! cluster.

use std::time::{Duration, Instant};

use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mortise_control_plane::{Binaries, ControlPlane, Options, print_progress};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::Server;
use crate::case::Step;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Ten times what it takes on a busy machine.
const ESTABLISHED: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Real {
    runtime: Runtime,
    client: Client,
    /// It sends no credentials of its own.
    nobody: Client,
    _plane: ControlPlane,
}

impl Real {
    pub(crate) fn start(mode: &'static str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let binaries = Binaries::ensure(&mut print_progress()).unwrap();
        let options = Options { authorization_mode: mode, ..Options::api_only() };
        let plane = ControlPlane::start(&binaries, &options).unwrap();
        let runtime = Runtime::new().unwrap();
        let (client, nobody) = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(mortise_control_plane::ADMIN).unwrap()).unwrap();
            let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            config.default_retry = false;
            let mut nobody = config.clone();
            nobody.auth_info = AuthInfo::default();
            (Client::try_from(config).unwrap(), Client::try_from(nobody).unwrap())
        });
        Self { runtime, client, nobody, _plane: plane }
    }
}

impl Real {
    fn send(&self, step: &Step) -> (u16, String, Vec<String>) {
        let mut request = http::Request::builder().method(step.method.as_str()).uri(&step.target);
        for (key, value) in &step.headers {
            request = request.header(key, value);
        }
        let client = if step.credentials.is_some() { &self.nobody } else { &self.client };
        if let Some(token) = step.credentials.as_ref().filter(|said| *said != "none") {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::from(step.body.clone().into_bytes())).unwrap();
        self.runtime.block_on(async {
            let answered = tokio::time::timeout(ESTABLISHED, client.send(request)).await;
            let response = answered.unwrap().unwrap_or_else(|error| panic!("{}: {error}", step.title));
            let status = response.status().as_u16();
            let warnings = response.headers().get_all("warning").iter();
            let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).collect();
            let bytes = tokio::time::timeout(ESTABLISHED, response.into_body().collect_bytes()).await.unwrap().unwrap();
            (status, String::from_utf8_lossy(&bytes).into_owned(), warnings)
        })
    }

    /// Waits until a definition that was created is served or its names are refused, which the real one does some time later.
    fn established(&self, body: &str) {
        let made: Value = serde_json::from_str(body).unwrap();
        let target = format!("{DEFINITIONS}/{}", made["metadata"]["name"].as_str().unwrap());
        let deadline = Instant::now() + ESTABLISHED;
        loop {
            let (_, body, _) = self.send(&Step::get(&target));
            let found: Value = serde_json::from_str(&body).unwrap();
            let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            let decided = [("Established", "True"), ("NamesAccepted", "False")];
            if conditions
                .any(|condition| decided.iter().any(|(of, is)| condition["type"] == *of && condition["status"] == *is))
            {
                return;
            }
            assert!(Instant::now() < deadline, "{target} is not established: {body}");
            std::thread::sleep(POLL);
        }
    }
}

impl Server for Real {
    fn ask(&mut self, step: &Step) -> (u16, String, Vec<String>) {
        let deadline = Instant::now() + ESTABLISHED;
        let (mut status, mut body, mut warnings) = self.send(step);
        while !step.is_answered_by(&body) {
            assert!(Instant::now() < deadline, "{}: {body}", step.title);
            std::thread::sleep(POLL);
            (status, body, warnings) = self.send(step);
        }
        if step.method == "POST" && step.target == DEFINITIONS && status == 201 {
            self.established(&body);
        }
        (status, body, warnings)
    }
}
