//! The real control plane as a server of cases: etcd and kube-apiserver, without controllers. It must not know the local
//! cluster.

use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mortise_control_plane::{Binaries, ControlPlane, Options, print_progress};
use tokio::runtime::Runtime;

use crate::Server;
use crate::case::Step;

pub(crate) struct Real {
    runtime: Runtime,
    client: Client,
    _plane: ControlPlane,
}

impl Real {
    pub(crate) fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let binaries = Binaries::ensure(&mut print_progress()).unwrap();
        let plane = ControlPlane::start(&binaries, &Options::api_only()).unwrap();
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(mortise_control_plane::ADMIN).unwrap()).unwrap();
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        Self { runtime, client, _plane: plane }
    }
}

impl Server for Real {
    fn ask(&mut self, step: &Step) -> (u16, String) {
        let mut request = http::Request::builder().method(step.method.as_str()).uri(&step.target);
        for (key, value) in &step.headers {
            request = request.header(key, value);
        }
        let request = request.body(Body::from(step.body.clone().into_bytes())).unwrap();
        self.runtime.block_on(async {
            let response = self.client.send(request).await.unwrap();
            let status = response.status().as_u16();
            let bytes = response.into_body().collect_bytes().await.unwrap();
            (status, String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}
