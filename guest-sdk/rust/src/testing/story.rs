//! A plugin in a cluster in this process: the host's engine, a model of the API server and its controllers, and the plugin's
//! native function, in virtual time. Acts of a test come in; objects, requests and refusals come out.

use std::rc::Rc;
use std::time::Duration;

use mortise_core::object::Kind;
use mortise_stories::{Denial, Http, Settings};
use serde::Serialize;
use serde_json::Value;

use self::guest::Native;
use crate::engine_contract::{key, reference};
use crate::http::Response;
use crate::manifest::Plugin;
use crate::object::{ObjectKey, Resource};
use crate::scan::{self, FromJson};

mod guest;

/// The seed of the run in another order.
const SEED: u64 = 7;
/// Crashes of one story: after each of its writes, or after so many spread ones when it has more. Each is a run of its own.
const MAX_CRASHES: u64 = 50;
/// How long a host that was started again is watched for writes.
const AGAIN: Duration = Duration::from_secs(5);

/// A plugin in a cluster in memory.
///
/// Unlike a [`Cluster`](super::Cluster), which calls the function with what the test wrote down, a story has what a cluster has:
/// the host's engine decides what is called and written; objects get names, UIDs, generations and defaults, and are refused by
/// their schemas; Kubernetes' controllers and a kubelet run beside it. Nothing waits for real time.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Story;
///
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Web", status = WebStatus)]
/// struct WebSpec {
///     #[schemars(range(max = 5))]
///     replicas: u32,
/// }
///
/// #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// struct WebStatus { ready: u64 }
///
/// #[derive(Projection)]
/// #[projection("apps/v1/Deployment")]
/// struct Deployment {
///     #[field("status.readyReplicas")]
///     ready: Option<u64>,
/// }
///
/// #[reconciler(owns("apps/v1/Deployment"))]
/// fn reconcile(web: &Web, cx: &Context) -> Result<Outcome<WebStatus>, Failure> {
///     let ready = cx.owned::<Deployment>()?.iter().filter_map(|deployment| deployment.ready).sum();
///     let labels = json!({"app": web.metadata.name});
///     let containers = json!([{"name": "web", "image": "nginx"}]);
///     let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
///     let spec = json!({"replicas": web.spec.replicas, "selector": {"matchLabels": labels}, "template": template});
///     let deployment = Json::of_kind("apps/v1", "Deployment", &json!({"spec": spec}));
///     Ok(Outcome::children([Child::new("web", deployment)]).status(&WebStatus { ready }))
/// }
///
/// // All of it runs again with a crash after each write of the host, and ends the same each time.
/// Story::run(&PLUGIN, |story| {
///     let web = Web::new("web", WebSpec { replicas: 3 });
///     story.apply(&web);
///     story.run_until_idle();
///     assert_eq!(story.get(&web).unwrap()["status"]["ready"], 3);
///     let refused = story.try_apply(&Web::new("web", WebSpec { replicas: 6 })).unwrap_err();
///     assert!(refused.contains("spec.replicas in body should be less than or equal to 5"), "{refused}");
/// });
/// ```
///
/// # Panics
/// Methods panic with the API server's message when it refuses what a test does, like an `unwrap`; [`Story::try_apply`] does
/// not.
#[derive(Debug)]
pub struct Story {
    story: mortise_stories::Story,
}

impl Story {
    /// A cluster with one node, in which the host serves a plugin: the `PLUGIN` that `#[reconciler]` defines.
    ///
    /// # Panics
    /// With the host's reason, when it refuses the plugin.
    pub fn of(plugin: &'static Plugin) -> Self {
        Self::with(plugin, Settings::default())
    }

    /// The same with a configuration.
    ///
    /// # Panics
    /// With the host's reason, when it refuses the plugin.
    pub fn with_config(plugin: &'static Plugin, config: Value) -> Self {
        Self::with(plugin, Settings { config, ..Settings::default() })
    }

    fn with(plugin: &'static Plugin, settings: Settings) -> Self {
        let mut story = mortise_stories::Story::new(Rc::new(Native(plugin)), settings);
        must(story.start());
        Self { story }
    }

    /// Runs a story several times: once, with the host started again at its end, with another seed, and with a crash of the host
    /// after each of its writes: after 50 of them, evenly spread, when there are more. A host that starts again must write
    /// nothing, and each run must end with the same objects, but for what is drawn and for times. What the story asserts must
    /// hold in each run, so counts of requests are for stories that are run once.
    ///
    /// # Panics
    /// When the ends differ, or an assertion of the story does not hold.
    pub fn run(plugin: &'static Plugin, acts: impl Fn(&mut Self)) {
        let end = |settings: Settings| {
            let mut story = Self::with(plugin, settings);
            let sent_at_start = story.story.sent();
            acts(&mut story);
            story.run_until_idle();
            let kinds = mortise_stories::script::kinds_of(story.story.manifest());
            let end = mortise_stories::state(&mut story.story, &kinds);
            (story, sent_at_start, end)
        };
        let (mut first, sent_at_start, wanted) = end(Settings::default());
        let sent = first.story.sent();
        let before = first.requests().len();
        first.crash_host();
        first.advance(AGAIN);
        assert_eq!(first.requests()[before..], Vec::<String>::new()[..], "a host that starts again writes");
        let mut order = Settings { reversed: true, ..Settings::default() };
        order.cluster.seed = SEED;
        let (.., found) = end(order);
        same("in another order", &wanted, &found);
        let writes = sent - sent_at_start;
        let crashes = writes.min(MAX_CRASHES);
        for at in (1..=crashes).map(|n| sent_at_start + n * writes / crashes) {
            let (.., found) = end(Settings { crash_after: Some(at), ..Settings::default() });
            same(&format!("with a crash after write {at}"), &wanted, &found);
        }
    }

    /// Applies an object, as `kubectl apply --server-side` does, and its status, if it has one. Returns it as the cluster has
    /// it: with its UID and its defaults. An object without a namespace is in "default", if its kind has any.
    pub fn apply<T: Serialize>(&mut self, object: &T) -> Value {
        must(self.try_apply(object))
    }

    /// The same.
    ///
    /// # Errors
    /// The API server's message, when it refuses the object.
    pub fn try_apply<T: Serialize>(&mut self, object: &T) -> Result<Value, String> {
        let mut object = tree(object);
        // What the host writes: types have it, and a user does not.
        if object["status"].is_null()
            && let Some(members) = object.as_object_mut()
        {
            members.remove("status");
        }
        self.story.apply(&object)
    }

    /// Changes an object by a merge patch; its `status` is that of the status subresource.
    pub fn edit<T: Serialize>(&mut self, object: &T, patch: &Value) {
        let target = must(self.story.reference(&tree(object)));
        must(self.story.edit(&target, patch));
    }

    /// Deletes an object; it is gone when its finalizers and its grace period are over.
    pub fn delete<T: Serialize>(&mut self, object: &T) {
        let target = must(self.story.reference(&tree(object)));
        must(self.story.delete(&target));
    }

    /// An object as it is now, by any value with its apiVersion, kind and name.
    pub fn get<T: Serialize>(&mut self, object: &T) -> Option<Value> {
        let target = self.story.reference(&tree(object)).ok()?;
        self.story.get(&target)
    }

    /// The objects of a kind, "v1/Pod", ordered by namespace and name.
    pub fn objects(&mut self, kind: &str) -> Vec<Value> {
        self.story.objects(&kind_of(kind))
    }

    /// Another controller: called with each object of a kind that is new or has changed. What it returns is a merge patch of the
    /// object, with its `status` for the status subresource; null changes nothing.
    ///
    /// ```
    /// # use mortise_sdk::prelude::*;
    /// # use mortise_sdk::testing::Story;
    /// # #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    /// # #[resource(group = "example.com", version = "v1", kind = "Front")]
    /// # struct FrontSpec {}
    /// #[derive(Projection)]
    /// #[projection("v1/Service")]
    /// struct Service {
    ///     #[field("spec.type")]
    ///     kind: String,
    ///     #[field("status.loadBalancer.ingress")]
    ///     ingress: Option<Vec<Value>>,
    /// }
    ///
    /// # #[reconciler(owns("v1/Service"))]
    /// # fn reconcile(front: &Front, cx: &Context) -> Result<Outcome, Failure> {
    /// #     let balanced = cx.owned::<Service>()?.iter().any(|service| service.ingress.is_some());
    /// #     let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    /// #     let service = Child::new("front", Json::of_kind("v1", "Service", &json!({"spec": spec})));
    /// #     Ok(Outcome::children([service]).ready(balanced, "Balanced", ""))
    /// # }
    /// let mut story = Story::of(&PLUGIN);
    /// story.on::<Service>(|service| match service.kind == "LoadBalancer" && service.ingress.is_none() {
    ///     true => json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
    ///     false => Value::Null,
    /// });
    /// let front = Front::new("web", FrontSpec {});
    /// story.apply(&front);
    /// story.run_until_idle();
    /// assert!(story.is(&front, "Ready"));
    /// ```
    pub fn on<T: Resource + for<'a> FromJson<'a>>(&mut self, mut react: impl FnMut(&T) -> Value + 'static) {
        self.story.on(Kind::new(T::API_VERSION, T::KIND), move |object| {
            let text = object.to_string();
            match scan::read::<T>(&text) {
                Ok(object) => react(&object),
                Err(why) => panic!("a {} does not fit the type of a reaction: {why}", T::KIND),
            }
        });
    }

    /// Lets time pass until nothing but heartbeats was written for 40 s; 15 minutes at most.
    pub fn run_until_idle(&mut self) {
        must(self.story.run_until_idle());
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Duration) {
        must(self.story.advance(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
    }

    /// Revokes the host's rights for a kind, "v1/Secret". It notices at once.
    pub fn deny(&mut self, kind: &str) {
        self.story.deny(&kind_of(kind));
    }

    /// Refuses the host's writes of an object with 403 and a message, as an admission webhook or a quota does. The name `*` is
    /// every object of the kind in the namespace.
    pub fn refuse(&mut self, target: &ObjectKey, message: &str) {
        self.story.refuse(Denial::forbidden(reference(target), message));
    }

    /// Gives all rights back, and refuses nothing any more.
    pub fn allow(&mut self) {
        self.story.allow();
    }

    /// Sets the reply to the plugin's HTTP requests of a key. A request without one is not connected.
    pub fn respond(&mut self, key: impl Into<String>, response: Response) {
        self.story.respond(key, Http { status: response.status, body: response.body.into() });
    }

    /// The host ends without finishing anything, and starts again at once.
    pub fn crash_host(&mut self) {
        self.story.crash_host();
    }

    /// Whether a condition of an object is true.
    pub fn is<T: Serialize>(&mut self, object: &T, condition: &str) -> bool {
        self.condition(object, condition).is_some_and(|condition| condition["status"] == "True")
    }

    /// A condition of an object.
    pub fn condition<T: Serialize>(&mut self, object: &T, condition: &str) -> Option<Value> {
        let found = self.get(object)?;
        found["status"]["conditions"].as_array()?.iter().find(|each| each["type"] == condition).cloned()
    }

    /// The changes that the host saw between an object's last call and the one before it, of what concerns the object: itself,
    /// its children, and what its call before had read.
    pub fn woken_by<T: Serialize>(&mut self, object: &T) -> Vec<ObjectKey> {
        let target = must(self.story.reference(&tree(object)));
        self.story.woken_by(&target).iter().map(key).collect()
    }

    /// The plugin's writes so far, a line each: "create Pod default/web-x1", "status Web default/web {...}". Without Events.
    pub fn requests(&self) -> &[String] {
        self.story.requests()
    }

    /// How often the plugin was called.
    pub fn calls(&self) -> u64 {
        self.story.calls()
    }
}

fn same(how: &str, wanted: &[(String, String)], found: &[(String, String)]) {
    if let Some(lines) = mortise_stories::difference(wanted, found) {
        panic!("{how} it ends otherwise (- in the first run, + then):\n{lines}");
    }
}

#[track_caller]
fn must<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|why| panic!("{why}"))
}

fn tree<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_else(|error| panic!("the object cannot be written as JSON: {error}"))
}

/// "apps/v1/Deployment".
fn kind_of(text: &str) -> Kind {
    let (api_version, kind) = text.rsplit_once('/').unwrap_or_else(|| panic!("{text:?} is no kind: write \"v1/Pod\""));
    Kind::new(api_version, kind)
}
