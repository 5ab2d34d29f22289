//! Plugins without wasm: native functions from an object and its view to an outcome, with their manifests; and one real
//! plugin. A digest names a guest and its version.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_core::component::Compiled;
use mortise_core::contract::{
    Action, CallResult, Child, Condition, ConditionStatus, Failure, GuestEvent, GuestFault, Handling, Outcome,
    PatchKind, Propagation,
};
use mortise_core::dependencies::Dependencies;
use mortise_core::digest::Digest;
use mortise_core::http::{Method, Request};
use mortise_core::limits::CallLimits;
use mortise_core::manifest::Manifest;
use mortise_core::object::{Kind, Name, Object, ObjectRef};
use mortise_core::query::Query;
use mortise_core::refusal::Refusal;
use mortise_core::scope::Scope;
use mortise_core::view::{AccessError, View};
use serde_json::{Value, json};

use super::cluster::{config_map, pod};
use super::component;

/// A version of podset that replaces Pods when they are gone; the others do it at once.
pub const WAITING: u32 = 3;
/// A version that does not compile.
const TRUNCATED: u32 = 98;
/// A version with an invalid manifest.
const WITHOUT_MANIFEST: u32 = 99;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    PodSet,
    /// One ConfigMap, by server-side apply. From its second version on: in the second group and exact, after one that is
    /// created once or kept, and beside one that may be left out.
    Site,
    /// Owns nothing; counts Pods by label and reads one ConfigMap by name. From its second version on these are dynamic
    /// kinds.
    Census,
    /// Labels a ConfigMap that is not its child, and removes the label when finalized.
    Tenant,
    /// A ConfigMap in each of several namespaces.
    Spread,
    /// Asks a server by HTTP.
    Lookup,
    /// Counts Secrets of some namespaces, and Services with a label. Its later versions read others and more.
    Shelf,
    /// The same with a kind of its own, so that two plugins read parts of one kind.
    Rack,
    /// Returns the outcome in its configuration.
    Scripted,
    /// The same with a finalizer, until its second version, and with actions.
    Keeper,
    /// The real component.
    CronTab,
}

/// Those of a random run.
pub const PROGRAMS: [Program; 6] =
    [Program::PodSet, Program::Site, Program::Census, Program::Tenant, Program::Spread, Program::Lookup];
/// Those of scenarios.
const OTHERS: [Program; 5] = [Program::Scripted, Program::Keeper, Program::CronTab, Program::Shelf, Program::Rack];

/// A version of a program, which a digest identifies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Guest {
    pub program: Program,
    pub version: u32,
}

pub fn podset_kind() -> Kind {
    Kind::new("app.example.com/v1alpha1", "PodSet")
}

pub fn site_kind() -> Kind {
    Kind::new("web.example.com/v1", "Site")
}

pub fn census_kind() -> Kind {
    Kind::new("web.example.com/v1", "Census")
}

pub fn tenant_kind() -> Kind {
    Kind::new("web.example.com/v1", "Tenant")
}

pub fn spread_kind() -> Kind {
    Kind::new("web.example.com/v1", "Spread")
}

pub fn lookup_kind() -> Kind {
    Kind::new("web.example.com/v1", "Lookup")
}

pub fn shelf_kind() -> Kind {
    Kind::new("web.example.com/v1", "Shelf")
}

pub fn rack_kind() -> Kind {
    Kind::new("web.example.com/v1", "Rack")
}

pub fn secret() -> Kind {
    Kind::new("v1", "Secret")
}

pub fn service() -> Kind {
    Kind::new("v1", "Service")
}

pub fn keeper_kind() -> Kind {
    Kind::new("web.example.com/v1", "Keeper")
}

pub fn crontab_kind() -> Kind {
    Kind::new("stable.example.com/v1beta1", "CronTab")
}

pub fn widget_kind() -> Kind {
    Kind::new("web.example.com/v1", "Widget")
}

impl Guest {
    pub fn new(program: Program, version: u32) -> Self {
        Self { program, version }
    }

    pub fn name(self) -> &'static str {
        match self.program {
            Program::PodSet => "podset",
            Program::Site => "site",
            Program::Census => "census",
            Program::Tenant => "tenant",
            Program::Spread => "spread",
            Program::Lookup => "lookup",
            Program::Shelf => "shelf",
            Program::Rack => "rack",
            Program::Scripted => "scripted",
            Program::Keeper => "keeper",
            Program::CronTab => "crontab",
        }
    }

    pub fn primary(self) -> Kind {
        match self.program {
            Program::PodSet => podset_kind(),
            Program::Site => site_kind(),
            Program::Census => census_kind(),
            Program::Tenant => tenant_kind(),
            Program::Spread => spread_kind(),
            Program::Lookup => lookup_kind(),
            Program::Shelf => shelf_kind(),
            Program::Rack => rack_kind(),
            Program::Scripted => widget_kind(),
            Program::Keeper => keeper_kind(),
            Program::CronTab => crontab_kind(),
        }
    }

    pub fn digest(self) -> Digest {
        Digest(format!("sha256:{}-{}", self.name(), self.version).into())
    }

    pub fn of(digest: &Digest) -> Option<Self> {
        let (name, version) = digest.0.strip_prefix("sha256:")?.rsplit_once('-')?;
        let mut guests =
            PROGRAMS.into_iter().chain(OTHERS).map(|program| Self::new(program, version.parse().unwrap_or_default()));
        guests.find(|guest| guest.name() == name)
    }

    pub fn readable(self) -> Vec<(Kind, Scope)> {
        let manifest = Manifest::parse(&self.compiled().manifest).expect("the model's manifests are valid");
        manifest.scopes().collect()
    }

    /// Its compilation result if it compiles.
    pub fn compiled(self) -> Compiled {
        let manifest = match self.program {
            Program::CronTab => Arc::clone(component::crontab().manifest()),
            _ => self.manifest().to_string().into(),
        };
        Compiled { manifest, component_bytes: 1_000, compile_ms: 1, cached: true }
    }

    /// The CRD of its kind, as the host registers it.
    pub fn definition(self) -> Arc<str> {
        mortise_core::crd::prepare(self.name(), &crd(&self.primary()).to_string(), None)
    }

    /// Its compilation result.
    pub fn compiles(self) -> Result<Compiled, Refusal> {
        match self.version {
            TRUNCATED => Err(Refusal::of_bytes("Malformed", "the bytes end in the middle of a section")),
            WITHOUT_MANIFEST => Ok(Compiled { manifest: "{".into(), ..self.compiled() }),
            _ => Ok(self.compiled()),
        }
    }

    fn manifest(self) -> Value {
        let owned =
            |kind: Kind, update: &str| json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "update": update});
        let read = |kind: Kind| json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind});
        let mut replaced = owned(pod(), "recreate");
        replaced["replace"] = json!(if self.version == WAITING { "whenGone" } else { "atOnce" });
        let (owns, reads) = match self.program {
            Program::PodSet => (json!([replaced]), json!([])),
            Program::Site => (json!([owned(config_map(), "apply")]), json!([])),
            Program::Census if self.version < 2 => (json!([]), json!([read(pod()), read(config_map())])),
            Program::Census => (json!([]), json!([{"apiVersion": "v1", "kind": "*"}])),
            Program::Lookup => (json!([]), json!([])),
            Program::Shelf | Program::Rack => (json!([]), shelf_reads(self.version)),
            Program::Tenant => (json!([]), json!([read(config_map())])),
            Program::Spread => (json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespaces": "any"}]), json!([])),
            Program::Scripted => {
                let mut owns = json!([owned(pod(), "recreate"), owned(config_map(), "apply")]);
                owns[0]["adopt"] = json!(true);
                owns[1]["adopt"] = json!(true);
                (owns, json!([]))
            }
            Program::Keeper => (json!([owned(config_map(), "apply")]), json!([read(pod())])),
            Program::CronTab => unreachable!("a component has a manifest of its own"),
        };
        let finalize = match self.program {
            Program::Tenant => true,
            Program::Keeper => self.version < 2,
            _ => false,
        };
        let write =
            |kind: Kind, verbs: Value| json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "verbs": verbs});
        let writes = match self.program {
            Program::Tenant => json!([write(config_map(), json!(["patch"]))]),
            Program::Keeper => {
                json!([write(config_map(), json!(["patch", "delete"])), write(pod(), json!(["patch", "evict"]))])
            }
            _ => json!([]),
        };
        let http = match self.program {
            Program::Lookup => json!([{"origin": DICTIONARY, "methods": ["POST", "PUT"]}]),
            _ => json!([]),
        };
        let primary = self.primary();
        json!({
            "apiVersion": "mortise.dev/v1alpha1",
            "kind": "PluginManifest",
            "name": self.name(),
            "version": format!("0.{}.0", self.version),
            "customResources": [crd(&primary)],
            "controllers": [{"for": read(primary), "owns": owns, "reads": reads, "finalize": finalize}],
            "writes": writes,
            "http": http,
        })
    }

    pub fn call(self, object: &Object, mut view: View, limits: &CallLimits) -> (CallResult, Dependencies) {
        if self.program == Program::CronTab {
            let report = component::crontab().call(object.json(), view, limits);
            return (report.result, report.reads);
        }
        let result = self.run(object, &mut view);
        (result, view.into_dependencies())
    }

    fn run(self, object: &Object, view: &mut View) -> CallResult {
        let parsed: Value = serde_json::from_str(object.json()).expect("the API server sends JSON");
        let result = match self.program {
            Program::PodSet => podset(self.version, &parsed, view),
            Program::Site => site(self.version, &parsed),
            Program::Census => census(&parsed, view),
            Program::Tenant => tenant(&parsed, view),
            Program::Spread => spread(&parsed, view),
            Program::Lookup => Ok(lookup(&parsed, view)),
            Program::Shelf | Program::Rack => shelf(view),
            Program::Scripted | Program::Keeper => return scripted(&parsed, view),
            Program::CronTab => unreachable!("the component is called above"),
        };
        match result {
            Ok(outcome) => CallResult::Done(outcome),
            Err(AccessError::Waits(kind)) => CallResult::Waits(kind),
            Err(error) => CallResult::Failed(Failure::Retry(error.to_string())),
        }
    }
}

pub fn crd_name(kind: &Kind) -> String {
    format!("{}.{}", plural(kind), kind.group())
}

fn plural(kind: &Kind) -> String {
    format!("{}s", kind.kind.to_lowercase())
}

fn crd(kind: &Kind) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd_name(kind)},
        "spec": {
            "group": kind.group(),
            "scope": "Namespaced",
            "names": {"kind": &*kind.kind, "plural": plural(kind)},
            "versions": [{
                "name": kind.version(), "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    })
}

/// The Pod of every replica. It shows the plugin's version and configuration, so that a change of either causes writes.
fn podset_pod(version: u32, spec: &Value, config: &Value) -> Value {
    let image = spec["image"].as_str().or(config["image"].as_str()).unwrap_or("busybox");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"app": "podset", "version": version.to_string()}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

fn podset(version: u32, object: &Value, view: &mut View) -> Result<Outcome, AccessError> {
    let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let config: Value = serde_json::from_str(&view.config()).unwrap_or_default();
    let fields =
        ["metadata.name", "metadata.annotations[\"mortise.dev/child\"]", "metadata.deletionTimestamp", "status.phase"];
    let pods: Vec<Value> = serde_json::from_str(&view.owned(&pod(), &fields.map(str::to_owned))?).unwrap_or_default();
    let is_finished = |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    let is_deleting = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let key = |pod: &Value| pod["metadata"]["annotations"]["mortise.dev/child"].as_str().map(str::to_owned);
    // Omits the key of a finished Pod once, so that the host deletes it; then it returns the key again.
    let finished: BTreeSet<String> =
        pods.iter().filter(|pod| is_finished(pod) && !is_deleting(pod)).filter_map(key).collect();
    let alive = pods.iter().filter(|pod| !is_finished(pod) && !is_deleting(pod));
    let names: BTreeSet<&str> = alive.filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    let body: Arc<str> = podset_pod(version, &object["spec"], &config).to_string().into();
    let keys = (0..replicas).map(|index| index.to_string()).filter(|key| !finished.contains(key));
    Ok(Outcome {
        children: Some(keys.map(|key| Child::new(key, Arc::clone(&body))).collect()),
        status: Some(json!({"replicas": names.len(), "podNames": names}).to_string().into()),
        ..Outcome::default()
    })
}

/// The key of a Site's child that is never changed.
pub const TOKEN: &str = "token";
/// The name of a Site's child that is left out while another's object has it.
pub const PAGE: &str = "page";

/// Whether a Site creates its token; else it keeps one.
pub fn has_token(text: &str) -> bool {
    text.ends_with(['0', '2', '4'])
}

/// The content of a Site, and what its later versions have beside it.
fn site_children(version: u32, text: &str, content: Child) -> Vec<Child> {
    if version < 2 {
        return vec![content];
    }
    let identity = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut token = identity.clone();
    let handling = if has_token(text) { Handling::CreateOnce } else { Handling::Keep };
    if handling == Handling::CreateOnce {
        token["data"] = json!({"for": text});
    }
    let mut page = identity;
    page["metadata"] = json!({"name": PAGE});
    page["data"] = json!({"text": text});
    vec![
        Child { group: 1, exact: vec!["data".into()], ..content },
        Child { handling, ..Child::new(TOKEN, token.to_string()) },
        Child { group: 1, or_skip: true, ..Child::new("page", page.to_string()) },
    ]
}

fn site(version: u32, object: &Value) -> Result<Outcome, AccessError> {
    let text = object["spec"]["text"].as_str().unwrap_or_default();
    let mut data = json!({"index.html": text});
    if let Some(extra) = object["spec"]["extra"].as_str() {
        data["extra"] = json!(extra);
    }
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"app": "site"}}, "data": data});
    let ready = Condition {
        name: "Ready".to_owned(),
        status: if text.is_empty() { ConditionStatus::False } else { ConditionStatus::True },
        reason: if text.is_empty() { "Empty" } else { "Published" }.to_owned(),
        message: format!("{} bytes", text.len()),
    };
    Ok(Outcome {
        children: Some(site_children(version, text, Child::new("content", body.to_string()))),
        conditions: vec![ready],
        status: Some(json!({"bytes": text.len()}).to_string().into()),
        ..Outcome::default()
    })
}

fn census(object: &Value, view: &mut View) -> Result<Outcome, AccessError> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let query =
        Query { namespaces: vec![namespace.to_owned()], selector: Some("app=podset".to_owned()), ..Query::all(pod()) };
    let pods = view.keys(&query)?.len();
    let name = object["spec"]["configMap"].as_str().unwrap_or("settings");
    let target = ObjectRef { kind: config_map(), name: Name::new(namespace, name) };
    let text = view.get(&target, &[])?;
    let parsed: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    let settings = parsed.map_or(Value::Null, |parsed| parsed["data"]["text"].clone());
    Ok(Outcome { status: Some(json!({"pods": pods, "settings": settings}).to_string().into()), ..Outcome::default() })
}

/// What the versions of a Shelf read: each other namespaces or labels, the third all.
fn shelf_reads(version: u32) -> Value {
    let mut secrets = json!({"apiVersion": "v1", "kind": "Secret"});
    let mut services = json!({"apiVersion": "v1", "kind": "Service"});
    match version {
        1 => (secrets["namespaces"], services["labels"]) = (json!(["north"]), json!("tier=gold")),
        2 => (secrets["namespaces"], services["labels"]) = (json!(["north", "south"]), json!("tier=silver")),
        _ => {}
    }
    json!([secrets, services])
}

fn shelf(view: &mut View) -> Result<Outcome, AccessError> {
    let (secrets, services) = (view.keys(&Query::all(secret()))?.len(), view.keys(&Query::all(service()))?.len());
    let status = json!({"secrets": secrets, "services": services}).to_string();
    Ok(Outcome { status: Some(status.into()), ..Outcome::default() })
}

/// The label that a Tenant sets on the ConfigMap.
pub fn tenant_label(name: &str) -> String {
    format!("tenant-{name}")
}

fn tenant(object: &Value, view: &mut View) -> Result<Outcome, AccessError> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let target = ObjectRef { kind: config_map(), name: Name::new(text("namespace"), "settings") };
    let is_there = view.get(&target, &[])?.is_some();
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    let mark = if deleted { Value::Null } else { json!("on") };
    let body = json!({"metadata": {"labels": {tenant_label(text("name")): mark}}}).to_string().into();
    let patch = Action::Patch { target, patch_kind: PatchKind::Merge, body, subresource: None };
    Ok(Outcome {
        actions: is_there.then_some(patch).into_iter().collect(),
        status: Some(json!({"marks": is_there}).to_string().into()),
        finalized: deleted,
        ..Outcome::default()
    })
}

/// The name of a Spread's copies.
pub fn copy_name(spread: &str) -> String {
    format!("copy-of-{spread}")
}

fn spread(object: &Value, view: &mut View) -> Result<Outcome, AccessError> {
    let copies: Vec<Value> =
        serde_json::from_str(&view.owned(&config_map(), &["metadata.name".to_owned()])?).unwrap_or_default();
    let name = copy_name(object["metadata"]["name"].as_str().unwrap_or_default());
    let copy = |namespace: &str| {
        let metadata = json!({"name": name, "namespace": namespace});
        let copy =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": object["spec"]["data"]});
        Child::new(namespace, copy.to_string())
    };
    let namespaces = object["spec"]["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Outcome {
        children: Some(namespaces.map(copy).collect()),
        status: Some(json!({"copies": copies.len()}).to_string().into()),
        ..Outcome::default()
    })
}

/// The server of a Lookup.
const DICTIONARY: &str = "https://words.example.com";

/// Half of the words are posted. Without a reply yet it leaves the status, so that a restart of the host writes nothing.
fn lookup(object: &Value, view: &mut View) -> Outcome {
    let word = object["spec"]["word"].as_str().unwrap_or_default();
    let method = if word.ends_with(['1', '3']) { Method::Post } else { Method::Put };
    let request = Request { method, ..Request::get("meaning", format!("{DICTIONARY}/{word}")) };
    let reply = view.response(&request);
    let status = reply.map(|reply| match &reply.result {
        Ok(response) => json!({"code": response.status, "meaning": String::from_utf8_lossy(&response.body)}),
        Err(failure) => json!({"error": failure.class.as_str()}),
    });
    Outcome { requests: vec![request], status: status.map(|status| status.to_string().into()), ..Outcome::default() }
}

/// `patch`, `delete` or `evict` of an object. Also reads it, so that a change of it wakes the key.
fn scripted_action(action: &Value, view: &mut View) -> Action {
    let object = |what: &Value, kind: Kind| {
        let name = what["name"].as_str().or(what.as_str()).unwrap_or_default();
        ObjectRef { kind, name: Name::new("default", name) }
    };
    let (what, target) = [("patch", config_map()), ("delete", config_map()), ("evict", pod())]
        .into_iter()
        .find_map(|(verb, kind)| action.get(verb).map(|what| (verb, object(what, kind))))
        .expect("a scenario's action is a patch, a delete or an eviction");
    let _ = view.get(&target, &[]);
    match what {
        "patch" => {
            let body = action["patch"]["body"].to_string().into();
            Action::Patch { target, patch_kind: PatchKind::Merge, body, subresource: None }
        }
        "delete" => Action::Delete { target, propagation: Propagation::Background },
        _ => Action::Evict { target },
    }
}

/// The configuration is the outcome: `children`, `actions`, `status`, `conditions`, `events`, `requeueAfterMs`,
/// `finalized`, or `failed`, `terminal`, `trap`; `deleted` is the outcome for an object that is being deleted.
/// `readsTime` makes it read the time, `showsTime` puts it into the status, with `flips` it wants its children only while it
/// has none, and with `trapsOddly` it traps in every second second.
fn scripted(object: &Value, view: &mut View) -> CallResult {
    let mut script: Value = serde_json::from_str(&view.config()).unwrap_or_default();
    if !object["metadata"]["deletionTimestamp"].is_null() {
        script = script["deleted"].take();
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(message) = text(&script["trap"]) {
        return CallResult::Fault(GuestFault::Trap { message, detail: String::new() });
    }
    if let Some(message) = text(&script["failed"]) {
        return CallResult::Failed(Failure::Retry(message));
    }
    if let Some(message) = text(&script["terminal"]) {
        return CallResult::Failed(Failure::Terminal(message));
    }
    let mut outcome =
        Outcome { status: script.get("status").map(|status| status.to_string().into()), ..Outcome::default() };
    outcome.children =
        script["children"].as_array().map(|children| children.iter().flat_map(scripted_children).collect());
    outcome.requeue_after_ms = script["requeueAfterMs"].as_u64().and_then(|ms| ms.try_into().ok());
    outcome.finalized = script["finalized"] == true;
    outcome.actions =
        script["actions"].as_array().into_iter().flatten().map(|one| scripted_action(one, view)).collect();
    for condition in script["conditions"].as_array().into_iter().flatten() {
        outcome.conditions.push(Condition {
            name: text(&condition["type"]).unwrap_or_default(),
            status: if condition["status"] == "True" { ConditionStatus::True } else { ConditionStatus::False },
            reason: text(&condition["reason"]).unwrap_or_default(),
            message: text(&condition["message"]).unwrap_or_default(),
        });
    }
    for event in script["events"].as_array().into_iter().flatten() {
        outcome.events.push(GuestEvent {
            warning: event["warning"] == true,
            reason: text(&event["reason"]).unwrap_or_default(),
            message: text(&event["message"]).unwrap_or_default(),
            regarding: None,
        });
    }
    if script["readsTime"] == true {
        view.now_unix_ms();
    }
    if script["trapsOddly"] == true && view.now_unix_ms() / 1_000 % 2 == 1 {
        return CallResult::Fault(GuestFault::Trap { message: "an odd second".to_owned(), detail: String::new() });
    }
    if script["showsTime"] == true {
        outcome.status = Some(json!({"at": view.now_unix_ms()}).to_string().into());
    }
    if script["flips"] == true && view.owned(&config_map(), &[]).is_ok_and(|owned| &*owned != "[]") {
        outcome.children = Some(Vec::new());
    }
    CallResult::Done(outcome)
}

/// `{key, object, adopt}` is one child, `{count, object}` is many, with the keys "0", "1", ....
fn scripted_children(child: &Value) -> Vec<Child> {
    let object: Arc<str> = child["object"].as_str().map_or_else(|| child["object"].to_string(), str::to_owned).into();
    let adopt = child["adopt"] == true;
    let one = |key: String| Child { adopt, ..Child::new(key, Arc::clone(&object)) };
    match child["count"].as_u64() {
        Some(count) => (0..count).map(|index| one(index.to_string())).collect(),
        None => vec![one(child["key"].as_str().unwrap_or_default().to_owned())],
    }
}
