//! The Lifecycle alone: offers, results and messages go in; what it has done and sent comes out, as text.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::audit::{Listed, Page, Response};
use crate::component::{Compiled, Offer};
use crate::crd::{CrdError, CrdOwner};
use crate::engine::message::{Message, Owner, ToOutbox, ToReconciler};
use crate::engine::tests::merge;
use crate::event::Effect;
use crate::kube_event::Words;
use crate::object::{Interner, Name, Object, ResourceVersion};
use crate::observation::Observation;
use crate::permission::Permission;
use crate::refusal::Refusal;
use crate::rights::{IdentityReview, Readable, Review};
use crate::store::Store;
use crate::time::Now;
use crate::watch::WatchError;
use crate::write::{WriteError, WriteErrorClass, WriteOp, Written};

mod cluster;
mod edits;
mod identities;
mod identity;
mod reviews;
mod sources;
mod status;
mod tenants;

type Sent = (PluginWrite, WriteOp);

/// A Lifecycle, the cache that it reads, and what it has put out.
struct Alone {
    lifecycle: Lifecycle,
    now: Now,
    store: Store,
    version: u64,
    may_write: bool,
    draining: bool,
    /// Plugin objects as the API server has them.
    objects: BTreeMap<Arc<str>, Value>,
    /// Writes without a result.
    sent: VecDeque<Sent>,
    /// Reviews without an answer.
    reviews: VecDeque<Review>,
    /// Whether the host may act as ServiceAccounts; None: it is not said, and the reviews wait.
    may_act: Option<bool>,
    identity_reviews: VecDeque<IdentityReview>,
    /// Roles and bindings are listed when they are watched.
    lists_roles: bool,
    /// Everything since [`Self::log`] took it: effects, then messages.
    log: Vec<String>,
}

fn kind(name: &str) -> Kind {
    match name {
        "Plugin" => plugin_object::kind(),
        "ConfigMap" | "Secret" | "Namespace" => Kind::new("v1", name),
        "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
            Kind::new("rbac.authorization.k8s.io/v1", name)
        }
        _ => Kind::new("example.com/v1", name),
    }
}

fn crd_of(kind: &str) -> Arc<str> {
    format!("{}s.example.com", kind.to_lowercase()).into()
}

/// A component that brings a kind of its own, owns ConfigMaps and reads these.
fn compiled(primary: &str, reads: &[&str]) -> Result<Compiled, Refusal> {
    let reads: Vec<Value> = reads.iter().map(|kind| json!({"apiVersion": "v1", "kind": kind})).collect();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": &*crd_of(primary)},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": primary, "plural": format!("{}s", primary.to_lowercase())},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}],
        },
    });
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "any", "customResources": [crd],
        "controllers": [{
            "for": {"apiVersion": "example.com/v1", "kind": primary},
            "owns": [{"apiVersion": "v1", "kind": "ConfigMap"}], "reads": reads,
        }],
    });
    Ok(Compiled { manifest: manifest.to_string().into(), component_bytes: 1, compile_ms: 1, cached: false })
}

fn to_patch() -> Permission {
    Permission { kind: kind("ConfigMap"), verb: "patch", subresource: None, namespace: None }
}

impl Alone {
    fn new(audit_interval_ms: u64) -> Self {
        Self::of(Config { audit_interval_ms, ..crate::engine::tests::config() })
    }

    fn of(config: Config) -> Self {
        Self {
            lifecycle: Lifecycle::new(&config),
            now: Now { mono_ms: 1_000, unix_ms: 1_700_000_000_000 },
            store: Store::default(),
            version: 1,
            may_write: true,
            draining: false,
            objects: BTreeMap::new(),
            sent: VecDeque::new(),
            reviews: VecDeque::new(),
            may_act: Some(true),
            identity_reviews: VecDeque::new(),
            lists_roles: true,
            log: Vec::new(),
        }
    }

    /// One that has started and lists Plugin objects; no source offers anything.
    fn started() -> Self {
        let mut alone = Self::new(0);
        alone.start();
        alone
    }

    fn start(&mut self) {
        self.with(Lifecycle::start);
        self.registered("", plugin_object::CRD_NAME, Ok(CrdOwner::Plugin));
        self.list("Plugin");
        self.with(Lifecycle::on_sources_listed);
        assert_eq!(self.log(), ["register plugins.mortise.dev", "watch Plugin"]);
    }

    /// One that serves the plugin "podset", which shows that.
    fn serving() -> Self {
        let mut alone = Self::started();
        alone.serve("podset", "1", "PodSet");
        alone
    }

    fn serve(&mut self, name: &str, digest: &str, primary: &str) {
        self.offer(name, digest);
        self.compiled(digest, compiled(primary, &[]));
        self.registered(name, &crd_of(primary), Ok(CrdOwner::Plugin));
        self.list(primary);
        self.list("ConfigMap");
        self.settle();
        assert_eq!(self.ready(name), "True Serving");
        self.log();
    }

    /// An input, and then what is due, as in a step of the engine.
    fn with(&mut self, input: impl FnOnce(&mut Lifecycle, &mut Context<'_>)) {
        let (mut effects, mut messages) = (Vec::new(), VecDeque::new());
        let mut cx = Context {
            now: self.now,
            store: &self.store,
            may_write: self.may_write,
            draining: self.draining,
            effects: &mut effects,
            messages: &mut messages,
        };
        input(&mut self.lifecycle, &mut cx);
        self.lifecycle.run_timers(&mut cx);
        self.lifecycle.run_audits(&mut cx);
        let mut roles = Vec::new();
        for effect in effects {
            self.log.extend(match effect {
                Effect::StartWatch(slice) => {
                    roles.extend(Some(Arc::clone(&slice.kind.kind)).filter(|_| is_rbac(&slice.kind)));
                    Some(format!("watch {}", slice.kind.kind))
                }
                Effect::StopWatch(slice) => Some(format!("stop {}", slice.kind.kind)),
                Effect::Relist(slice) => Some(format!("relist {}", slice.kind.kind)),
                Effect::Audit(slice) => Some(format!("audit {}", slice.kind.kind)),
                Effect::WatchTenant(namespace) => Some(format!("watch tenant {namespace}")),
                Effect::StopTenant(namespace) => Some(format!("stop tenant {namespace}")),
                Effect::Compile(digest) => Some(format!("compile {digest}")),
                Effect::Review(review) => {
                    self.reviews.push_back((*review).clone());
                    Some(format!("review {} {}", review.account, review.kind.kind))
                }
                Effect::ReviewIdentity(review) => {
                    self.identity_reviews.push_back(review);
                    None
                }
                Effect::Unload(digest) => Some(format!("unload {digest}")),
                Effect::Observe(Observation::Refused { plugin, refusal }) => {
                    Some(format!("refused {plugin}: {}", refusal.reason))
                }
                Effect::Observe(Observation::Throttled { plugin, .. }) => Some(format!("throttled {plugin}")),
                Effect::Observe(Observation::WriteFailed { target, .. }) => Some(format!("failed {}", target.name)),
                Effect::Observe(_) => None,
                effect => panic!("this is not the Lifecycle's, or not of these plugins: {effect:?}"),
            });
        }
        for message in messages {
            let text = self.text(message);
            self.log.push(text);
        }
        roles.retain(|_| self.lists_roles);
        roles.iter().for_each(|kind| self.list(kind));
        if let Some(may_act) = self.may_act {
            self.lend(may_act);
        }
    }

    /// All reviews of identities have this answer.
    fn lend(&mut self, may_act: bool) {
        while let Some(review) = self.identity_reviews.pop_front() {
            self.with(|lifecycle, cx| lifecycle.on_identity_reviewed(review, Ok(may_act), cx));
        }
    }

    fn text(&mut self, message: Message) -> String {
        match message {
            Message::ToReconciler(ToReconciler::Serve { plugin, version, .. }) => {
                format!("serve {plugin} {}", version.digest)
            }
            Message::ToReconciler(ToReconciler::Withdraw { plugin }) => format!("withdraw {plugin}"),
            Message::ToReconciler(ToReconciler::Suspend { plugin, suspended }) => {
                format!("{} {plugin}", if suspended { "suspend" } else { "resume" })
            }
            Message::ToReconciler(ToReconciler::SetReady { plugin, primary, ready }) => {
                format!("{plugin}/{} {}", primary.kind, if ready { "ready" } else { "unready" })
            }
            Message::ToOutbox(ToOutbox::Send(outgoing)) => {
                let Owner::Lifecycle(write) = outgoing.owner else { panic!("its own write: {outgoing:?}") };
                assert!(self.may_write && outgoing.by.plugin.is_none(), "X7, and the host's own field manager");
                let text = format!("{} {}", outgoing.op.verb(), outgoing.op.target().name);
                self.sent.push_back((write, outgoing.op));
                text
            }
            Message::ToOutbox(ToOutbox::Record { by, record, about }) => {
                let is_hosts = record.words == Words::Host && by.service_account.is_none();
                assert!(is_hosts && by.plugin.is_some(), "L5: the host says it, of a plugin: {by:?}");
                let of_tenant = &*about.kind.kind == "ConfigMap";
                let about = if of_tenant { format!(" about {}", about.name) } else { String::new() };
                format!("event {}{about}", record.reason)
            }
            Message::ToOutbox(ToOutbox::Register { crd, .. }) => format!("register {crd}"),
            Message::ToLifecycle(ToLifecycle::KindsReleased) => "kinds released".to_owned(),
            Message::Drop(slice) => {
                drop(self.store.drop_slice(&slice));
                self.store.drop_next(usize::MAX);
                format!("drop {slice}")
            }
            Message::Forget(kind) => {
                drop(self.store.forget(&kind));
                format!("forget {}", kind.kind)
            }
            Message::Restored { slice, lists, .. } => format!("restored {}, which lists: {lists}", slice.kind.kind),
            message => panic!("this is not the Lifecycle's: {message:?}"),
        }
    }

    fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn take(&mut self, message: ToLifecycle) {
        self.with(|lifecycle, cx| lifecycle.take(message, cx));
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now.mono_ms += milliseconds;
        self.with(|_, _| {});
    }

    fn offer(&mut self, name: &str, digest: &str) {
        self.take_offer(Offer::new(name, format!("file {name}.wasm"), Digest(digest.into()), "{}"));
    }

    fn take_offer(&mut self, offer: Offer) {
        self.with(|lifecycle, cx| lifecycle.on_source_found(offer, cx));
    }

    fn gone(&mut self, name: &str) {
        let source = format!("file {name}.wasm").into();
        self.with(|lifecycle, cx| lifecycle.on_source_gone(&name.into(), &source, cx));
    }

    fn compiled(&mut self, digest: &str, result: Result<Compiled, Refusal>) {
        self.with(|lifecycle, cx| lifecycle.on_compiled(&Digest(digest.into()), result, cx));
    }

    fn registered(&mut self, plugin: &str, crd: &str, result: Result<CrdOwner, CrdError>) {
        self.with(|lifecycle, cx| lifecycle.on_crd_registered(&plugin.into(), &crd.into(), result, cx));
    }

    /// The informer of a kind completes a list; of objects those that there are.
    fn list(&mut self, of: &str) {
        self.store.begin_list(kind(of));
        let objects: Vec<Value> = self.objects.values().filter(|_| of == "Plugin").cloned().collect();
        for object in objects {
            self.store.list_item(decoded(&object));
        }
        self.store.end_list(kind(of), ResourceVersion(self.version));
        self.with(|lifecycle, cx| lifecycle.on_kind_served(&kind(of).into(), cx));
    }

    /// The informer of a kind completes a list of one namespace, which has no objects.
    fn list_in(&mut self, of: &str, namespace: &str) {
        let slice = Slice { kind: kind(of), namespace: Some(namespace.into()), labels: None };
        self.store.begin_list(&slice);
        self.store.end_list(&slice, ResourceVersion(self.version));
        self.with(|lifecycle, cx| lifecycle.on_kind_served(&slice, cx));
    }

    /// The informers of roles and bindings complete their lists, and all reviews have this answer.
    fn review(&mut self, readable: &Readable) {
        for kind in ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"] {
            if !self.store.synced(self::kind(kind)) {
                self.list(kind);
            }
        }
        self.answer(readable);
    }

    fn answer(&mut self, readable: &Readable) {
        while let Some(review) = self.reviews.pop_front() {
            self.with(|lifecycle, cx| lifecycle.on_reviewed(review, Ok(readable.clone()), cx));
        }
    }

    fn watch_fails(&mut self, of: &str, error: WatchError) {
        self.with(|lifecycle, cx| lifecycle.on_watch_failed(&kind(of).into(), error, cx));
    }

    fn wrote(&mut self, (write, op): Sent, result: Result<Written, WriteErrorClass>) {
        let result = result.map_err(|class| WriteError { class, message: "no".to_owned() });
        self.take(ToLifecycle::Wrote { write, op, result });
    }

    /// The first write fails.
    fn fail(&mut self) {
        let write = self.sent.pop_front().expect("a write was sent");
        self.wrote(write, Err(WriteErrorClass::Unavailable));
    }

    /// The first write succeeds; [`Self::show`] shows what it made.
    fn accept(&mut self) -> Arc<str> {
        let (write, op) = self.sent.pop_front().expect("a write was sent");
        self.version += 1;
        let name = Arc::clone(&op.target().name.name);
        match &op {
            WriteOp::Create { body, .. } => {
                let mut object: Value = serde_json::from_str(body).unwrap();
                object["metadata"]["uid"] = json!(format!("uid-{name}"));
                self.objects.insert(Arc::clone(&name), object);
            }
            WriteOp::PatchStatus { body, .. } => {
                let patch: Value = serde_json::from_str(body).unwrap();
                let object = self.objects.get_mut(&name).unwrap();
                merge(&mut object["status"], &patch["status"]);
            }
            _ => _ = self.objects.remove(&name),
        }
        if let Some(object) = self.objects.get_mut(&name) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        let written = Written { uid: format!("uid-{name}").into(), resource_version: ResourceVersion(self.version) };
        self.wrote((write, op), Ok(written));
        name
    }

    /// The watch shows a Plugin object as it is now.
    fn show(&mut self, name: &str) {
        let change = match self.objects.get(name) {
            Some(object) => self.store.apply(decoded(object)),
            None => self.store.remove(kind("Plugin"), &Name::new("", name), ResourceVersion(self.version)),
        };
        self.with(|lifecycle, cx| lifecycle.on_change(&change, cx));
    }

    /// A person writes a Plugin object, and the watch shows it.
    fn want(&mut self, name: &str, spec: Value) {
        self.version += 1;
        let made = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 0},
        });
        let object = self.objects.entry(name.into()).or_insert(made);
        object["spec"] = spec;
        object["metadata"]["generation"] = (object["metadata"]["generation"].as_i64().unwrap_or_default() + 1).into();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.show(name);
    }

    /// A person deletes a Plugin object.
    fn unwant(&mut self, name: &str) {
        self.version += 1;
        self.objects.remove(name);
        self.show(name);
    }

    /// A ConfigMap that is a plugin only where a Plugin object names it.
    fn source(&mut self, name: &str, digest: &str) {
        let place = format!("ConfigMap mortise-system/{name}");
        let offer = Offer::new(name, place, Digest(digest.into()), "{}");
        self.take_offer(Offer { only_named: true, source_version: "17".into(), ..offer });
    }

    /// The component of this digest comes up.
    fn comes_up(&mut self, name: &str, digest: &str) {
        self.compiled(digest, compiled("PodSet", &[]));
        self.registered(name, "podsets.example.com", Ok(CrdOwner::Plugin));
        self.list("PodSet");
        self.list("ConfigMap");
        self.settle();
    }

    /// Somebody changes a Plugin object, and the watch shows it.
    fn edit(&mut self, name: &str) {
        self.version += 1;
        let metadata = &mut self.objects.get_mut(name).unwrap()["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["annotations"] = json!({"example.com/edited": self.version.to_string()});
        self.show(name);
    }

    /// Every write succeeds and is shown, and so is what follows from that.
    fn settle(&mut self) {
        while !self.sent.is_empty() {
            let name = self.accept();
            self.show(&name);
        }
    }

    /// What a Plugin object shows of a condition: its status and reason.
    fn condition(&self, name: &str, of: &str) -> String {
        let mut conditions = self.objects[name]["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == of).unwrap_or(&Value::Null);
        let text = |field: &str| found[field].as_str().unwrap_or("none").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    fn shows(&self, name: &str, path: &str) -> &Value {
        self.objects[name]["status"].pointer(path).unwrap_or(&Value::Null)
    }

    fn ready(&self, name: &str) -> String {
        self.condition(name, "Ready")
    }

    fn restored(&mut self, of: &str, lists: bool) {
        // As the engine does before it delivers the message.
        let kinds: Vec<Kind> = self.lifecycle.watched().cloned().collect();
        kinds.iter().for_each(|kind| self.store.rewind(kind));
        self.with(|lifecycle, cx| lifecycle.on_restored(kind(of).into(), lists, "it was".to_owned(), cx));
    }
}

fn decoded(object: &Value) -> Object {
    Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap()
}

const NONE: [&str; 0] = [];
/// What is written when a plugin's claims change, or its conditions in a way that is an Event.
const STATUS: &str = "patch podset";

#[test]
fn l1_an_offer_serves_when_it_is_compiled_r4_its_crds_are_established_and_its_kinds_listed() {
    let mut alone = Alone::started();
    alone.offer("podset", "1");
    assert_eq!(alone.log(), ["compile 1", "create podset"]);
    alone.settle();
    alone.offer("podset", "1");
    assert_eq!(alone.log(), NONE, "the same offer again");
    alone.compiled("1", compiled("PodSet", &[]));
    assert_eq!(alone.log(), ["register podsets.example.com", STATUS], "L2: other hosts see its claim at once");
    alone.settle();
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    assert_eq!(alone.log(), ["watch PodSet", "watch ConfigMap"]);
    alone.list("PodSet");
    assert_eq!(alone.log(), NONE);
    alone.list("ConfigMap");
    assert_eq!(alone.log(), ["serve podset 1", "podset/PodSet ready", STATUS, "event Serving"]);
    alone.settle();
    assert_eq!((alone.ready("podset"), alone.log()), ("True Serving".to_owned(), vec![]));
    alone.pass(24 * 3_600_000);
    assert_eq!(alone.log(), NONE, "X5: what is shown is not written again");
}

#[test]
fn l1_a_version_that_fails_on_its_way_leaves_the_one_before_serving() {
    let mut alone = Alone::serving();
    alone.offer("podset", "2");
    alone.compiled("2", Err(Refusal::of_bytes("NotWebAssembly", "text")));
    assert_eq!(
        alone.log(),
        ["compile 2", "refused podset: NotWebAssembly", STATUS, "event NotWebAssembly", "event ServingPrevious"]
    );
    alone.settle();
    assert_eq!(alone.ready("podset"), "True ServingPrevious");
    alone.offer("podset", "3");
    assert_eq!(alone.log(), ["compile 3", "unload 2"], "what serves stays loaded");
    alone.compiled("3", compiled("PodSet", &[]));
    alone.registered("podset", "podsets.example.com", Err(CrdError::Refused(Refusal::new("CrdNarrows", "a field"))));
    assert_eq!(alone.log(), ["register podsets.example.com", "refused podset: CrdNarrows", STATUS, "event CrdNarrows"]);
    alone.settle();
    alone.offer("podset", "4");
    alone.compiled("4", compiled("PodSet", &["Secret"]));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.watch_fails("Secret", WatchError::Denied("no Secrets".to_owned()));
    alone.settle();
    assert_eq!(alone.condition("podset", "Permitted"), "False Forbidden");
    assert!(!alone.log().iter().any(|line| line.starts_with("serve") || line.contains("podset/PodSet")), "4 is listed");
    alone.list("Secret");
    let log = alone.log();
    assert_eq!(log[..4], ["unload 1", "serve podset 4", "podset/PodSet ready", STATUS], "{log:?}");
}

#[test]
fn l3_a_plugin_that_is_gone_is_withdrawn_if_it_served_and_its_object_is_deleted() {
    let mut alone = Alone::serving();
    alone.gone("podset");
    let mut log = alone.log();
    log.sort();
    let ends = ["forget ConfigMap", "forget PodSet", "kinds released", "stop ConfigMap", "stop PodSet", "unload 1"];
    assert_eq!(log, [&["delete podset"][..], &ends[..], &["withdraw podset"]].concat());
    let mut alone = Alone::started();
    alone.offer("podset", "1");
    alone.settle();
    alone.log();
    alone.gone("podset");
    assert_eq!(alone.log(), ["unload 1", "delete podset"], "it never served");
    alone.compiled("1", compiled("PodSet", &[]));
    assert_eq!(alone.log(), NONE, "nobody wants it any more");
}

#[test]
fn an_informer_and_a_component_last_as_long_as_one_plugin_needs_them() {
    let mut alone = Alone::serving();
    alone.serve("cron", "2", "CronSet");
    alone.gone("podset");
    let log = alone.log();
    assert!(log.contains(&"forget PodSet".to_owned()) && log.contains(&"stop PodSet".to_owned()), "{log:?}");
    assert!(!log.iter().any(|line| line.contains("ConfigMap")), "the other reads ConfigMaps: {log:?}");
    alone.gone("cron");
    let log = alone.log();
    assert!(log.contains(&"forget ConfigMap".to_owned()) && log.contains(&"unload 2".to_owned()), "{log:?}");
    assert!(!alone.store.synced(kind("ConfigMap")) && alone.store.synced(kind("Plugin")));
}

#[test]
fn l2_kinds_released_brings_up_the_first_plugin_that_waits_for_them_and_no_other() {
    let mut alone = Alone::serving();
    alone.serve("cron", "2", "CronSet");
    for name in ["second", "third"] {
        alone.offer(name, "1");
        alone.settle();
        assert_eq!(alone.ready(name), "False KindOwned");
    }
    alone.log();
    alone.take(ToLifecycle::KindsReleased);
    assert_eq!(alone.log(), NONE, "it is not free");
    alone.gone("cron");
    alone.take(ToLifecycle::KindsReleased);
    assert!(!alone.log().iter().any(|line| line.starts_with("register")), "another kind is free");
    alone.gone("podset");
    assert!(alone.log().contains(&"kinds released".to_owned()));
    assert_eq!(alone.ready("second"), "False KindOwned", "before the message");
    alone.take(ToLifecycle::KindsReleased);
    let log = alone.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("register")).count(), 1, "{log:?}");
    assert!(!log.iter().any(|line| line.starts_with("compile")), "{log:?}");
    alone.registered("second", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.list("PodSet");
    alone.list("ConfigMap");
    alone.settle();
    assert_eq!(
        (alone.ready("second"), alone.ready("third")),
        ("True Serving".to_owned(), "False KindOwned".to_owned())
    );
    // A version that turns to another kind releases its own as well.
    alone.log();
    alone.serve("second", "5", "CronSet");
    alone.offer("second", "6");
    alone.compiled("6", compiled("JobSet", &[]));
    alone.registered("second", "jobsets.example.com", Ok(CrdOwner::Plugin));
    assert!(!alone.log().contains(&"kinds released".to_owned()), "the one that serves has it still");
    alone.list("JobSet");
    assert!(alone.log().contains(&"kinds released".to_owned()));
}

#[test]
fn an_event_of_a_watch_of_one_namespace_concerns_those_alone_who_declare_it() {
    let scope = crate::scope::tests::scope;
    let mut alone = Alone::started();
    let informer = alone.lifecycle.informers.entry(kind("Secret")).or_default();
    for (plugin, namespaces) in [("a", &["a"][..]), ("b", &["b"]), ("both", &["a", "b"]), ("all", &[])] {
        informer.readers.insert(plugin.into(), scope(namespaces, ""));
    }
    let readers = |of: &str| {
        let readers = alone.lifecycle.readers_of(&crate::scope::tests::slice(kind("Secret"), of));
        readers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!((readers("a"), readers("b")), (vec!["a".into(), "both".into()], vec!["b".into(), "both".into()]));
    assert_eq!(readers("*"), ["a", "all", "b", "both"]);
}
