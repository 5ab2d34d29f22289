//! The registrar with an API server that only stores objects and counts requests. As with the real one, the items of a list do
//! not say what they are, and what is stored has more than what was written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use mortise_core::admission::AdmissionBackend;
use mortise_core::digest::Digest;
use mortise_core::limits::CallLimits;
use mortise_core::manifest::Manifest;
use mortise_wasm::workers::Workers;
use serde_json::{Value, json};

use super::super::capacity::Capacity;
use super::super::parsing::Parsing;
use super::*;
use crate::config::{Namespace, WebhookConfig};
use crate::inputs::{Arrivals, queue};
use crate::log::throttle::Throttle;
use crate::metrics::Metrics;
use crate::server::{Request, Response, response, text};
use crate::supervise::supervisor;
use crate::testing::{api_server, serve_on_loopback};

/// Objects by their paths, and the number of requests by their sort.
#[derive(Clone, Default)]
struct FakeApi {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    counts: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// It refuses writes of objects with this in their names.
    refused: Arc<Mutex<Option<&'static str>>>,
}

impl FakeApi {
    async fn respond(self, request: Request) -> Response {
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
        *self.counts.lock().unwrap().entry(word).or_default() += 1;
        let refused = *self.refused.lock().unwrap();
        if word == "write" && refused.is_some_and(|part| name.contains(part)) {
            return text(StatusCode::UNPROCESSABLE_ENTITY, "refused");
        }
        let mut objects = self.objects.lock().unwrap();
        let body = match method {
            Method::GET if is_list => {
                let is_wanted = |object: &&Value| one.is_none_or(|one| object["metadata"]["name"] == one);
                let listed =
                    objects.iter().filter(|(at, _)| at.starts_with(&format!("{path}/"))).map(|(_, object)| object);
                json!({"items": listed.filter(is_wanted).map(without_type).collect::<Vec<_>>()})
            }
            Method::GET => match objects.get(&path) {
                Some(object) => object.clone(),
                None => return text(StatusCode::NOT_FOUND, "there is no such object"),
            },
            Method::DELETE => {
                objects.remove(&path);
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
            }
            Method::POST => objects.entry(format!("{path}/{name}")).or_insert(stored(body)).clone(),
            _ => {
                let body = stored(body);
                objects.insert(path, body.clone());
                body
            }
        };
        response(StatusCode::OK, "application/json", body.to_string())
    }

    /// The requests since the last call.
    fn requests(&self) -> BTreeMap<&'static str, usize> {
        take(&mut *self.counts.lock().unwrap())
    }
}

/// An item of a list.
fn without_type(object: &Value) -> Value {
    let mut item = object.clone();
    item.as_object_mut().unwrap().retain(|part, _| part != "apiVersion" && part != "kind");
    item
}

/// What the API server adds to what is written.
fn stored(mut object: Value) -> Value {
    for (part, value) in [
        ("uid", json!("u-1")),
        ("resourceVersion", json!("7")),
        ("generation", json!(1)),
        ("creationTimestamp", json!("2026-01-01T00:00:00Z")),
        ("managedFields", json!([{"manager": "mortise", "operation": "Update"}])),
    ] {
        object["metadata"][part] = value;
    }
    object
}

struct World {
    api: FakeApi,
    registrar: Registrar,
    inputs: Arrivals,
    _workers: Workers,
}

impl World {
    async fn new() -> Self {
        let api = FakeApi::default();
        let address = serve_on_loopback({
            let api = api.clone();
            move |request| api.clone().respond(request)
        })
        .await;
        let (sender, inputs) = queue();
        let (supervisor, _) = supervisor();
        let workers = Workers::start(1, |_| {}).unwrap();
        let namespace: Namespace = "mortise-system".parse().unwrap();
        let mut config = WebhookConfig::new(9443, None, None, false, &namespace);
        config.bind = "127.0.0.1:0".parse().unwrap();
        let webhooks = Webhooks::default();
        let reviewer = Reviewer {
            webhooks: webhooks.clone(),
            workers: workers.submitter().clone(),
            metrics: Arc::new(Metrics::new()),
            faults: Throttle::default(),
            capacity: Capacity::default(),
            parsing: Parsing::default(),
            only_verified: false,
        };
        let registrar = Registrar {
            config,
            namespace: namespace.to_string(),
            api: api_server(&address).await,
            inputs: sender,
            webhooks,
            reviewer,
            supervisor,
            clients: None,
            leadership: None,
            state: State::default(),
        };
        Self { api, registrar, inputs, _workers: workers }
    }

    /// Wants webhooks for a version of a plugin, which has no backend.
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
        let admission = Admission::Served(Arc::new(backend));
        self.registrar.webhooks.change(&name(number), |wanted| wanted.admission = admission);
    }

    /// The reports to the engine since the last call, by plugin.
    fn reports(&mut self) -> BTreeMap<String, &'static str> {
        let mut reports = BTreeMap::new();
        while let Some(input) = self.inputs.try_recv() {
            match input {
                Input::Event(Event::AdmissionServed { plugin, result, .. }) => {
                    reports.insert(plugin.to_string(), result.map_or_else(|refusal| refusal.reason, |()| "Served"));
                }
                Input::Event(Event::AdmissionEnded { plugin }) => drop(reports.insert(plugin.to_string(), "Ended")),
                other => panic!("{other:?}"),
            }
        }
        reports
    }

    fn configurations(&self) -> usize {
        self.api.objects.lock().unwrap().keys().filter(|path| path.contains("webhookconfigurations/")).count()
    }
}

fn name(number: usize) -> Arc<str> {
    format!("plugin-{number}").into()
}

#[tokio::test]
async fn a_round_reads_only_what_changed_for_any_number_of_plugins() {
    let mut world = World::new().await;
    for number in 0..100 {
        world.admits(number, 0);
    }
    world.registrar.round().await;
    assert_eq!(
        world.api.requests(),
        [("get", 1), ("list", 2), ("write", 101)].into(),
        "the Secret and the configurations"
    );
    assert_eq!((world.configurations(), world.reports().len()), (100, 100));

    world.registrar.round().await;
    assert_eq!(world.api.requests(), BTreeMap::new(), "nothing has changed");
    world.admits(7, 10);
    world.registrar.round().await;
    assert_eq!(world.api.requests(), [("list one", 2), ("write", 1)].into());
    assert_eq!(world.reports(), [("plugin-7".to_owned(), "Served")].into());

    world.registrar.webhooks.end(&name(3));
    world.registrar.round().await;
    assert_eq!(world.api.requests(), [("list one", 2), ("write", 1)].into());
    assert_eq!((world.configurations(), world.reports()), (99, [("plugin-3".to_owned(), "Ended")].into()));

    // Somebody else deletes one.
    world.api.objects.lock().unwrap().retain(|path, _| !path.ends_with("mortise-plugin-9"));
    world.registrar.state.resync_at = None;
    world.registrar.round().await;
    assert_eq!(world.api.requests(), [("get", 1), ("list", 2), ("write", 1)].into());
    assert_eq!((world.configurations(), world.reports()), (99, BTreeMap::new()));
}

#[tokio::test]
async fn a_configuration_that_cannot_be_written_delays_no_other_and_is_retried_alone() {
    let mut world = World::new().await;
    *world.api.refused.lock().unwrap() = Some("plugin-1");
    for number in 0..5 {
        world.admits(number, 0);
    }
    world.registrar.round().await;
    let reports = world.reports();
    assert_eq!(reports["plugin-1"], "WebhookNotWritten");
    let served = reports.values().filter(|report| **report == "Served").count();
    assert!(served == 4 && world.configurations() == 4, "{reports:?}");

    world.api.requests();
    *world.api.refused.lock().unwrap() = None;
    world.registrar.state.later_at = None;
    world.registrar.round().await;
    assert_eq!(world.api.requests(), [("list one", 2), ("write", 1)].into());
    assert_eq!(world.reports(), [("plugin-1".to_owned(), "Served")].into());
}

#[tokio::test]
async fn q4_a_configuration_that_is_refused_for_good_is_retried_once_a_minute_and_a_change_begins_anew() {
    let mut world = World::new().await;
    *world.api.refused.lock().unwrap() = Some("plugin-1");
    (0..2).for_each(|number| world.admits(number, 0));
    let pause = async |world: &mut World| {
        world.registrar.state.later_at = world.registrar.state.later_at.map(|_| Instant::now());
        world.registrar.round().await;
        let later_at = world.registrar.state.later_at.expect("it is tried again");
        later_at.saturating_duration_since(Instant::now()).as_secs()
    };
    let mut pauses = Vec::new();
    for _ in 0..12 {
        pauses.push(pause(&mut world).await);
    }
    assert!(pauses[0] == 0 && pauses[11] >= 59, "{pauses:?}");
    world.admits(0, 1);
    assert_eq!(pause(&mut world).await, 0, "what has changed may have been the reason");
}

#[tokio::test]
async fn x5_p3_an_hour_of_full_rounds_writes_nothing() {
    let mut world = World::new().await;
    for number in 0..5 {
        world.admits(number, 0);
    }
    world.registrar.round().await;
    assert_eq!(world.api.requests()["write"], 6, "the Secret and the configurations");
    let secret = |world: &World| world.registrar.state.bundle.clone().unwrap();
    let first = secret(&world);
    for _ in 0..60 {
        world.registrar.state.resync_at = None;
        world.registrar.round().await;
    }
    assert_eq!(world.api.requests(), [("get", 60), ("list", 120)].into());
    assert_eq!(secret(&world), first, "the same authority");
}
