//! The keeper before an API server that only keeps objects: what a round asks of it is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use mortise_core::admission::AdmissionBackend;
use mortise_core::digest::Digest;
use mortise_core::limits::CallLimits;
use mortise_core::manifest::Manifest;
use mortise_kube::client::{Access, ApiServer};
use mortise_wasm::workers::Workers;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::config::{Namespace, WebhookConfig};
use crate::log::throttle::Throttle;
use crate::metrics::Metrics;
use crate::server::{Request, Response, response, serve, text};
use crate::supervise::supervisor;

/// Objects by their paths, and how often it was asked for what.
#[derive(Clone, Default)]
struct FakeApi {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    asked: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// Writes of what has this in its name are refused.
    refused: Arc<Mutex<Option<&'static str>>>,
}

impl FakeApi {
    async fn connect(&self) -> ApiServer {
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = self.clone();
        tokio::spawn(serve(listener, None, move |request| api.clone().answer(request)));
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        ApiServer::connect(&Access { kubeconfig: Some(kubeconfig), context: None }).await.unwrap()
    }

    async fn answer(self, request: Request) -> Response {
        let (method, path) = (request.method().clone(), request.path().to_owned());
        let query = request.query().to_owned();
        let one = query.split_once("fieldSelector=metadata.name%3D").map(|(_, name)| name);
        let body: Value = serde_json::from_slice(&request.body().await.unwrap()).unwrap_or_default();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let is_list = path.ends_with("configurations");
        let word = match (&method, is_list, one) {
            (&Method::GET, true, None) => "list",
            (&Method::GET, true, Some(_)) => "list one",
            (&Method::GET, ..) => "get",
            _ => "write",
        };
        *self.asked.lock().unwrap().entry(word).or_default() += 1;
        let refused = *self.refused.lock().unwrap();
        if word == "write" && refused.is_some_and(|part| name.contains(part)) {
            return text(StatusCode::UNPROCESSABLE_ENTITY, "this one is not taken");
        }
        let mut objects = self.objects.lock().unwrap();
        let answer = match method {
            Method::GET if is_list => {
                let is_wanted = |object: &&Value| one.is_none_or(|one| object["metadata"]["name"] == one);
                let here =
                    objects.iter().filter(|(at, _)| at.starts_with(&format!("{path}/"))).map(|(_, object)| object);
                json!({"items": here.filter(is_wanted).collect::<Vec<_>>()})
            }
            Method::GET => match objects.get(&path) {
                Some(object) => object.clone(),
                None => return text(StatusCode::NOT_FOUND, "there is no such object"),
            },
            Method::DELETE => objects.remove(&path).unwrap_or_default(),
            Method::POST => objects.entry(format!("{path}/{name}")).or_insert(body).clone(),
            _ => {
                objects.insert(path, body.clone());
                body
            }
        };
        response(StatusCode::OK, "application/json", answer.to_string())
    }

    /// What was asked since the last time.
    fn asked(&self) -> BTreeMap<&'static str, usize> {
        take(&mut *self.asked.lock().unwrap())
    }
}

struct World {
    api: FakeApi,
    keeper: Keeper,
    inputs: mpsc::Receiver<Input>,
    _workers: Workers,
}

impl World {
    async fn new() -> Self {
        let api = FakeApi::default();
        let (sender, inputs) = mpsc::channel(10_000);
        let (supervisor, _) = supervisor();
        let workers = Workers::start(1, |_| {}).unwrap();
        let namespace: Namespace = "mortise-system".parse().unwrap();
        let mut config = WebhookConfig::new(9443, None, None, false, &namespace);
        config.bind = "127.0.0.1:0".parse().unwrap();
        let webhooks = Webhooks::default();
        let answerer = Answerer {
            webhooks: webhooks.clone(),
            workers: workers.submitter(),
            metrics: Arc::new(Metrics::new()),
            faults: Throttle::default(),
        };
        let keeper = Keeper {
            config,
            namespace: namespace.to_string(),
            api: api.connect().await,
            inputs: sender,
            webhooks,
            answerer,
            supervisor,
            standing: None,
            state: State::default(),
        };
        Self { api, keeper, inputs, _workers: workers }
    }

    /// The API server is to ask a version of a plugin, without anybody who would answer.
    fn admits(&self, number: usize, version: usize) {
        let kind = format!("Kind{number}");
        let manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "p",
            "customResources": [{
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("kind{number}s.example.com")},
                "spec": {
                    "group": "example.com", "scope": "Namespaced",
                    "names": {"kind": kind, "plural": format!("kind{number}s")},
                    "versions": [{"name": "v1", "served": true, "storage": true}],
                },
            }],
            "controllers": [{"for": {"apiVersion": "example.com/v1", "kind": kind}}],
            "admission": [{"apiVersion": "example.com/v1", "kind": kind, "validate": true}],
        });
        let backend = AdmissionBackend {
            digest: Digest(format!("sha256:{version}").into()),
            config: "{}".into(),
            limits: CallLimits { deadline_ms: 1_000 * (version as u64 + 5), ..CallLimits::default() },
            specs: Manifest::parse(&manifest.to_string()).unwrap().admission.into(),
        };
        let admission = Admission::Asked(Arc::new(backend));
        self.keeper.webhooks.change(&name(number), |wanted| wanted.admission = admission);
    }

    /// What the driver was told since the last time: plugins that are asked, those that are not with the reason, and those
    /// whose webhooks are gone.
    fn told(&mut self) -> BTreeMap<String, &'static str> {
        let mut told = BTreeMap::new();
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                Input::Event(Event::AdmissionServed { plugin, result, .. }) => {
                    told.insert(plugin.to_string(), result.map_or_else(|refusal| refusal.reason, |()| "Served"));
                }
                Input::Event(Event::AdmissionEnded { plugin }) => drop(told.insert(plugin.to_string(), "Ended")),
                other => panic!("{other:?}"),
            }
        }
        told
    }

    fn configurations(&self) -> usize {
        self.api.objects.lock().unwrap().keys().filter(|path| path.contains("webhookconfigurations/")).count()
    }
}

fn name(number: usize) -> Arc<str> {
    format!("plugin-{number}").into()
}

#[tokio::test]
async fn a_round_asks_for_what_changed_however_many_plugins_there_are() {
    let mut world = World::new().await;
    for number in 0..100 {
        world.admits(number, 0);
    }
    world.keeper.round().await;
    assert_eq!(
        world.api.asked(),
        [("get", 1), ("list", 2), ("write", 101)].into(),
        "the Secret and the configurations"
    );
    assert_eq!((world.configurations(), world.told().len()), (100, 100));

    world.keeper.round().await;
    assert_eq!(world.api.asked(), BTreeMap::new(), "nothing has changed");
    world.admits(7, 10);
    world.keeper.round().await;
    assert_eq!(world.api.asked(), [("list one", 2), ("write", 1)].into());
    assert_eq!(world.told(), [("plugin-7".to_owned(), "Served")].into());

    world.keeper.webhooks.end(&name(3));
    world.keeper.round().await;
    assert_eq!(world.api.asked(), [("list one", 2), ("write", 1)].into());
    assert_eq!((world.configurations(), world.told()), (99, [("plugin-3".to_owned(), "Ended")].into()));

    // Somebody has deleted one meanwhile.
    world.api.objects.lock().unwrap().retain(|path, _| !path.ends_with("mortise-plugin-9"));
    world.keeper.state.look_at = None;
    world.keeper.round().await;
    assert_eq!(world.api.asked(), [("get", 1), ("list", 2), ("write", 1)].into());
    assert_eq!((world.configurations(), world.told()), (99, BTreeMap::new()));
}

#[tokio::test]
async fn a_configuration_that_cannot_be_written_holds_up_no_other_and_is_tried_again_alone() {
    let mut world = World::new().await;
    *world.api.refused.lock().unwrap() = Some("plugin-1");
    for number in 0..5 {
        world.admits(number, 0);
    }
    world.keeper.round().await;
    let told = world.told();
    assert_eq!(told["plugin-1"], "WebhookNotWritten");
    assert!(told.values().filter(|word| **word == "Served").count() == 4 && world.configurations() == 4, "{told:?}");

    world.api.asked();
    *world.api.refused.lock().unwrap() = None;
    world.keeper.state.later_at = None;
    world.keeper.round().await;
    assert_eq!(world.api.asked(), [("list one", 2), ("write", 1)].into());
    assert_eq!(world.told(), [("plugin-1".to_owned(), "Served")].into());
}
