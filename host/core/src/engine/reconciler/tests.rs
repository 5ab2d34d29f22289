//! The Reconciler alone: messages, changes and results go in; calls, live reads and messages for the other machines come out.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::*;
use crate::call::{Call, CallDone};
use crate::component::Version;
use crate::contract::{CallResult, Child, Failure, GuestFault, Outcome};
use crate::digest::Digest;
use crate::engine::message::{Message, Owner, ToLifecycle, ToOutbox};
use crate::event::{Effect, Sending};
use crate::finalizer;
use crate::generated::tests::{Counting, completed_body};
use crate::grants::Grants;
use crate::limits::{CONSISTENCY_TIMEOUT_MS, WRITE_TIMEOUT_MS};
use crate::manifest::Manifest;
use crate::object::{Interner, Name, Object, ResourceVersion};
use crate::observation::Observation;
use crate::query::Query;
use crate::store::Store;
use crate::time::Now;
use crate::view::View;
use crate::write::{WriteError, WriteErrorClass, WriteOp, Written};

mod costs;
mod counted;
mod faults;
mod kept;
mod leaving;
mod rejections;
mod requests;
mod shedding;
mod writes;

/// The message of an authorizer.
const DENIED: &str =
    r#"User "system:serviceaccount:a:b" cannot patch resource "configmaps" in API group "" in the namespace "default""#;

type Sent = (Key, WriteOp);

/// A Reconciler, the cache that it reads, and what it has put out.
fn reserved() -> Reserved {
    Reserved { namespace: "mortise-system".into(), from_inside: false }
}

struct Alone {
    reconciler: Reconciler,
    now: Now,
    store: Store,
    version: u64,
    may_write: bool,
    /// Its controllers finalize.
    finalizes: bool,
    /// What its plugins are granted.
    grants: Arc<Grants>,
    /// The kind that its controllers own; the other of ConfigMap and Secret they read.
    owns: &'static str,
    /// Calls that have not returned.
    calls: VecDeque<Call>,
    /// Writes without a result.
    sent: VecDeque<Sent>,
    live_reads: Vec<ObjectRef>,
    /// HTTP requests without a result.
    requested: VecDeque<Sending>,
    /// Messages to the Lifecycle since [`Self::reported`] took them.
    reported: Vec<String>,
    /// Reasons of the Events.
    recorded: Vec<String>,
    /// Their objects and notes.
    notes: Vec<String>,
    observed: Vec<Observation>,
}

fn kind(name: &str) -> Kind {
    let api_version = match name {
        "ConfigMap" | "Secret" => "v1",
        "Deployment" => "apps/v1",
        _ => "example.com/v1",
    };
    Kind::new(api_version, name)
}

fn object(of: &str, name: &str) -> Value {
    let uid = format!("uid-{name}");
    let metadata = json!({"name": name, "namespace": "default", "uid": uid, "generation": 1, "resourceVersion": "1"});
    json!({"apiVersion": &*kind(of).api_version, "kind": of, "metadata": metadata})
}

/// An outcome with so many ConfigMaps as children.
fn wants(children: usize) -> CallResult {
    let object: Arc<str> = json!({"apiVersion": "v1", "kind": "ConfigMap"}).to_string().into();
    let child = |key: usize| Child::new(key.to_string(), Arc::clone(&object));
    CallResult::Done(Outcome { children: Some((0..children).map(child).collect()), ..Outcome::default() })
}

fn phase(phase: &str) -> CallResult {
    let status = Some(json!({"phase": phase}).to_string().into());
    CallResult::Done(Outcome { status, ..Outcome::default() })
}

fn trap(message: &str) -> CallResult {
    CallResult::Fault(GuestFault::BadOutcome { message: message.to_owned() })
}

impl Alone {
    /// One that serves nothing. Every kind of these tests is listed.
    fn new() -> Self {
        let mut store = Store::default();
        for of in ["PodSet", "CronSet", "Deployment", "ConfigMap", "Secret"] {
            store.begin_list(kind(of));
            store.end_list(kind(of), ResourceVersion(1));
        }
        Self {
            reconciler: Reconciler::new(reserved(), 16, 600),
            now: Now { mono_ms: 1_000, unix_ms: 1_700_000_000_000 },
            store,
            version: 1,
            may_write: true,
            finalizes: false,
            grants: Arc::default(),
            owns: "ConfigMap",
            calls: VecDeque::new(),
            sent: VecDeque::new(),
            live_reads: Vec::new(),
            requested: VecDeque::new(),
            reported: Vec::new(),
            recorded: Vec::new(),
            notes: Vec::new(),
            observed: Vec::new(),
        }
    }

    /// One that serves the plugin "podset", whose informers are current, for these objects.
    fn serving(objects: &[&str]) -> Self {
        let mut alone = Self::new();
        alone.serve("podset", "1", &["PodSet"]);
        alone.ready("podset", "PodSet", true);
        objects.iter().for_each(|name| alone.put(object("PodSet", name)));
        alone
    }

    /// An input, and then the queue, as in a step of the engine.
    fn with(&mut self, input: impl FnOnce(&mut Reconciler, &mut Context<'_>)) {
        let (mut effects, mut messages) = (Vec::new(), VecDeque::new());
        let mut cx = Context {
            now: self.now,
            store: &self.store,
            may_write: self.may_write,
            draining: false,
            effects: &mut effects,
            messages: &mut messages,
        };
        self.reconciler.begin_step();
        input(&mut self.reconciler, &mut cx);
        self.reconciler.run_queue(&mut cx);
        self.reconciler.run_requests(&mut cx);
        for effect in effects {
            match effect {
                Effect::Call(call) => self.calls.push_back(*call),
                Effect::ReadLive(target) => self.live_reads.push(target.object),
                Effect::Observe(observation) => self.observed.push(observation),
                Effect::Discard(garbage) => garbage.free(),
                effect => panic!("this is not the Reconciler's: {effect:?}"),
            }
        }
        for message in messages {
            match message {
                Message::ToOutbox(ToOutbox::Send(outgoing)) => {
                    let Owner::Key(key) = outgoing.owner else { panic!("its write is of a key: {outgoing:?}") };
                    assert!(self.may_write, "X7: {:?}", outgoing.op);
                    self.sent.push_back((key, outgoing.op));
                }
                Message::ToOutbox(ToOutbox::Request(sending)) => {
                    assert!(self.may_write, "X7: {:?}", sending.request);
                    self.requested.push_back(*sending);
                }
                Message::ToOutbox(ToOutbox::Record { record, about, .. }) => {
                    self.recorded.push(record.reason);
                    self.notes.push(format!("{}: {}", about.reference(), record.note));
                }
                Message::ToLifecycle(message) => self.reported.push(match message {
                    ToLifecycle::Denied { plugin, permission, .. } => format!("{plugin} denied {}", permission.verb),
                    ToLifecycle::Permitted { plugin, permission } => format!("{plugin} permitted {}", permission.verb),
                    ToLifecycle::NotGranted { plugin, message } => format!("{plugin} not granted: {message:?}"),
                    ToLifecycle::Faulted { plugin, message } => format!("{plugin} faulted: {message}"),
                    ToLifecycle::Recovered { plugin } => format!("{plugin} recovered"),
                    ToLifecycle::Throttled { plugin, message } => format!("{plugin} throttled: {message}"),
                    ToLifecycle::Costliest { plugin, .. } => format!("{plugin} is the costliest"),
                    ToLifecycle::Named { plugin, kind } => format!("{plugin} named {}", kind.kind),
                    message => panic!("this is not the Reconciler's: {message:?}"),
                }),
                message => panic!("this is not the Reconciler's: {message:?}"),
            }
        }
    }

    fn take(&mut self, message: ToReconciler) {
        self.with(|reconciler, cx| reconciler.take(message, cx));
    }

    fn serve(&mut self, plugin: &str, digest: &str, primaries: &[&str]) {
        let http = json!([{"origin": "https://api.example.com", "methods": ["GET", "POST", "PUT", "PATCH", "DELETE"]}]);
        self.serve_with(plugin, digest, primaries, &http);
    }

    fn serve_without_http(&mut self, plugin: &str, digest: &str, primaries: &[&str]) {
        self.serve_with(plugin, digest, primaries, &json!([]));
    }

    fn serve_with(&mut self, plugin: &str, digest: &str, primaries: &[&str], http: &Value) {
        let controller = |primary: &&str| {
            json!({
                "for": {"apiVersion": &*kind(primary).api_version, "kind": primary}, "finalize": self.finalizes,
                "owns": [{"apiVersion": "v1", "kind": self.owns}],
                "reads": [{"apiVersion": "v1", "kind": if self.owns == "Secret" { "ConfigMap" } else { "Secret" }}],
            })
        };
        let controllers: Vec<Value> = primaries.iter().map(controller).collect();
        let manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": plugin, "controllers": controllers,
            "http": http,
        });
        let manifest = Manifest::parse(&manifest.to_string()).unwrap().into();
        let version = Version {
            digest: Digest(digest.into()),
            config: "{}".into(),
            service_account: None,
            namespaces: None,
            grants: Arc::clone(&self.grants),
            rights: None,
        };
        self.take(ToReconciler::Serve { plugin: plugin.into(), version, manifest });
    }

    fn ready(&mut self, plugin: &str, primary: &str, ready: bool) {
        self.take(ToReconciler::SetReady { plugin: plugin.into(), primary: kind(primary), ready });
    }

    fn withdraw(&mut self, plugin: &str) {
        self.take(ToReconciler::Withdraw { plugin: plugin.into() });
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now.mono_ms += milliseconds;
        self.now.unix_ms += milliseconds;
        self.with(|_, _| {});
    }

    /// Somebody creates or changes an object, and its watch shows it.
    fn put(&mut self, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.show(&object);
    }

    /// Somebody changes the Secret that the calls for an object read.
    fn change_secret(&mut self, name: &str) {
        let mut secret = object("Secret", name);
        secret["data"] = json!({"version": self.version});
        self.put(secret);
    }

    fn show(&mut self, object: &Value) {
        let object = Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap();
        let change = self.store.apply(object);
        self.with(|reconciler, cx| reconciler.on_change(&change, false, cx));
    }

    fn delete(&mut self, of: &str, name: &str) {
        self.version += 1;
        let change = self.store.remove(kind(of), &Name::new("default", name), ResourceVersion(self.version));
        self.with(|reconciler, cx| reconciler.on_change(&change, false, cx));
    }

    /// The calls that are under way: controller, digest and object.
    fn called(&self) -> Vec<String> {
        let text = |call: &Call| format!("{} {} {}", call.cause.controller, call.cause.digest, call.object.name.name);
        self.calls.iter().map(text).collect()
    }

    /// The first call returns. Every guest reads the Secret that has the name of its object.
    fn returns(&mut self, result: CallResult) {
        self.returns_with(result, |_| ());
    }

    /// As [`Self::returns`], with more reads.
    fn returns_with(&mut self, result: CallResult, reads: impl FnOnce(&mut View)) {
        let mut call = self.calls.pop_front().expect("a call is under way");
        call.view.get(&ObjectRef { kind: kind("Secret"), name: call.object.name.clone() }, &[]).unwrap();
        reads(&mut call.view);
        let conclusion = call.check.conclude(&call.object, result);
        let done = CallDone { conclusion, reads: call.view.into_dependencies(), elapsed_us: 1 };
        self.with(|reconciler, cx| reconciler.on_call_done(call.id, done, cx));
    }

    /// The writes without a result: the verb and the kind, and the object that they are for.
    fn writes(&self) -> Vec<String> {
        let text = |(key, op): &Sent| format!("{} {} {}", op.verb(), op.target().kind.kind, key.name.name);
        self.sent.iter().map(text).collect()
    }

    fn wrote(&mut self, (key, op): Sent, result: Result<Written, WriteErrorClass>) {
        let result = result.map_err(|class| WriteError { class, message: DENIED.to_owned() });
        self.take(ToReconciler::Wrote { key, op, result });
    }

    /// The first write fails.
    fn fail(&mut self, class: WriteErrorClass) {
        let write = self.sent.pop_front().expect("a write was sent");
        self.wrote(write, Err(class));
    }

    /// The first write succeeds; what it made comes back, and is not shown.
    fn accept(&mut self) -> Value {
        let (key, op) = self.sent.pop_front().expect("a write was sent");
        let made = self.made(&op);
        let (uid, resource_version) = (made["metadata"]["uid"].as_str().unwrap().into(), ResourceVersion(self.version));
        self.wrote((key, op), Ok(Written { uid, resource_version }));
        made
    }

    /// What a write makes.
    fn made(&mut self, op: &WriteOp) -> Value {
        self.version += 1;
        let name = &op.target().name.name;
        let mut made = match op {
            WriteOp::Apply { body, draws: Some(draws), .. } => {
                serde_json::from_str(&completed_body(body, None, draws, &mut Counting::default())).unwrap()
            }
            WriteOp::Apply { body, .. } => serde_json::from_str(body).unwrap(),
            WriteOp::Patch { body, .. } | WriteOp::PatchStatus { body, .. } => {
                let (mut made, patch): (_, Value) = (object("PodSet", name), serde_json::from_str(body).unwrap());
                if let Some(finalizers) = patch["metadata"].get("finalizers") {
                    made["metadata"]["finalizers"] = finalizers.clone();
                } else {
                    made["status"] = patch["status"].clone();
                }
                made
            }
            op => object(&op.target().kind.kind, name),
        };
        made["metadata"]["uid"] = json!(format!("uid-{name}"));
        made["metadata"]["resourceVersion"] = json!(self.version.to_string());
        made
    }

    /// Every write succeeds and is shown, and so is what follows from that.
    fn settle(&mut self) {
        while !self.sent.is_empty() {
            let made = self.accept();
            self.show(&made);
        }
    }

    fn live_read(&mut self, found: Option<Value>) {
        let target = self.live_reads.pop().expect("an object is read live");
        let object = |found: Value| Object::decode(found.to_string().as_bytes(), &mut Interner::default()).unwrap();
        let result = Ok(found.map(|found| Arc::new(object(found))));
        self.with(|reconciler, cx| reconciler.on_live_read(&target.into(), &result, cx));
    }

    fn reported(&mut self) -> Vec<String> {
        std::mem::take(&mut self.reported)
    }

    /// How often a key was taken.
    fn taken(&self) -> usize {
        self.observed.iter().filter(|seen| matches!(seen, Observation::Taken { .. })).count()
    }

    /// In how many milliseconds something is due.
    fn due_in_ms(&self) -> Option<u64> {
        Some(self.reconciler.next_due_ms()? - self.now.mono_ms)
    }
}

const NONE: [&str; 0] = [];

#[test]
fn r4_keys_are_called_when_their_controller_is_ready_and_wait_while_it_is_not() {
    let mut alone = Alone::new();
    alone.put(object("PodSet", "web"));
    alone.ready("podset", "PodSet", true);
    alone.serve("podset", "1", &["PodSet"]);
    assert_eq!(alone.called(), NONE, "readiness is of a controller, and there was none");
    alone.ready("podset", "PodSet", false);
    alone.ready("other", "PodSet", true);
    alone.ready("podset", "CronSet", true);
    assert_eq!(alone.called(), NONE);
    assert_eq!(alone.reconciler.queue_depths(), [("podset/PodSet".into(), 1)]);
    alone.ready("podset", "PodSet", true);
    assert_eq!(alone.called(), ["podset/PodSet 1 web"]);
    alone.ready("podset", "PodSet", false);
    alone.returns(wants(1));
    assert_eq!(alone.writes(), ["patch ConfigMap web"], "a call that has begun counts");
    alone.settle();
    alone.change_secret("web");
    assert_eq!(alone.called(), NONE);
    alone.ready("podset", "PodSet", true);
    assert_eq!(alone.called(), ["podset/PodSet 1 web"]);
}

#[test]
fn l2_readiness_is_each_plugins_own_where_several_have_one_kind() {
    let mut alone = Alone::new();
    alone.serve("a", "1", &["Deployment"]);
    alone.serve("b", "2", &["Deployment"]);
    alone.ready("b", "Deployment", true);
    alone.put(object("Deployment", "web"));
    assert_eq!(alone.called(), ["b/Deployment 2 web"]);
    alone.withdraw("b");
    assert_eq!(alone.reconciler.queue_depths(), [("a/Deployment".into(), 1)], "the other keeps its key");
    alone.ready("a", "Deployment", true);
    assert_eq!(alone.called(), ["b/Deployment 2 web", "a/Deployment 1 web"]);
}

#[test]
fn l1_a_version_takes_over_between_two_calls_and_keeps_what_was_ready() {
    let mut alone = Alone::serving(&["web"]);
    alone.serve("podset", "2", &["PodSet"]);
    assert_eq!(alone.called(), ["podset/PodSet 1 web"], "one turn of a key at a time");
    alone.returns(wants(1));
    assert_eq!((alone.writes(), alone.called()), (vec![], vec!["podset/PodSet 2 web".to_owned()]));
    alone.returns(wants(1));
    assert_eq!(alone.writes(), ["patch ConfigMap web"]);
    alone.settle();
    // W1: a version is a reason to call, also where nothing else has changed.
    alone.serve("podset", "3", &["PodSet"]);
    assert_eq!(alone.called(), ["podset/PodSet 3 web"]);
}

#[test]
fn a_version_without_one_of_the_controllers_ends_its_keys_and_no_others() {
    let mut alone = Alone::serving(&["web"]);
    alone.serve("podset", "2", &["PodSet", "CronSet"]);
    alone.ready("podset", "CronSet", true);
    alone.put(object("CronSet", "nightly"));
    alone.returns(wants(0));
    assert_eq!(alone.called(), ["podset/CronSet 2 nightly", "podset/PodSet 2 web"]);
    alone.serve("podset", "3", &["PodSet"]);
    alone.returns(wants(1));
    assert_eq!((alone.writes(), alone.reconciler.key_count()), (vec![], 1), "nobody wants this any more");
    alone.put(object("CronSet", "nightly"));
    assert_eq!(alone.called(), ["podset/PodSet 2 web"]);
}

#[test]
fn l3_withdraw_ends_keys_and_timers_and_nothing_is_kept_of_them() {
    let names = ["calling", "exists", "faulted", "settled", "waiting", "denied", "writing"];
    let mut alone = Alone::serving(&names);
    alone.calls.rotate_left(1);
    alone.returns(wants(1));
    alone.fail(WriteErrorClass::AlreadyExists);
    alone.returns(trap("it traps"));
    alone.returns(wants(0));
    alone.returns(wants(1));
    alone.accept();
    alone.returns(wants(1));
    alone.fail(WriteErrorClass::Denied);
    alone.returns(wants(3));
    assert_eq!(
        (alone.called(), alone.writes()),
        (vec!["podset/PodSet 1 calling".to_owned()], vec!["patch ConfigMap writing".to_owned()])
    );
    alone.ready("podset", "PodSet", false);
    alone.put(object("PodSet", "queued"));
    alone.take(ToReconciler::Throttle { share: "podset".into(), until_ms: alone.now.mono_ms + 60_000 });
    assert_eq!((alone.reconciler.in_flight(), alone.reported().len()), ((2, 1), 2), "one denied, one faulted");

    alone.withdraw("podset");
    assert_eq!((alone.reconciler.next_due_ms(), alone.reconciler.queue_depths()), (None, vec![]));
    assert_eq!(alone.reconciler.in_flight(), (0, 1));
    // Results that come late are nobody's.
    alone.returns(wants(1));
    alone.accept();
    alone.live_read(Some(object("ConfigMap", "exists")));
    alone.change_secret("settled");
    alone.take(ToReconciler::Resync);
    alone.pass(24 * 3_600_000);
    assert_eq!((alone.called(), alone.writes(), alone.reported()), (vec![], vec![], vec![]));
    assert_eq!(alone.reconciler.in_flight(), (0, 0));
    let left = format!("{:?}", alone.reconciler);
    for part in ["podset", "default/", "v1/"] {
        assert!(!left.contains(part), "no plugin, object or kind is named: {left}");
    }
}

#[test]
fn x7_a_resync_looks_at_every_object_once_and_x5_writes_nothing_that_is_there() {
    let mut alone = Alone::serving(&["a", "b"]);
    for _ in 0..2 {
        alone.returns(wants(1));
    }
    alone.settle();
    alone.pass(2_000);
    let before = alone.taken();
    alone.take(ToReconciler::Resync);
    assert_eq!((alone.taken() - before, alone.called(), alone.writes()), (2, vec![], vec![]));
    let last = alone.observed.iter().rev().find(|seen| matches!(seen, Observation::Reconciled { .. }));
    assert!(matches!(last, Some(Observation::Reconciled { skipped: true, .. })), "W2: {last:?}");
    alone.ready("podset", "PodSet", false);
    alone.take(ToReconciler::Resync);
    assert_eq!(alone.taken() - before, 2, "R4");
}

#[test]
fn x1_after_a_resync_a_finalizer_stays_while_a_write_of_the_host_before_may_land() {
    for resyncs in [false, true] {
        let mut alone = Alone::new();
        alone.finalizes = true;
        alone.serve("podset", "1", &["PodSet"]);
        alone.ready("podset", "PodSet", true);
        alone.put(object("PodSet", "web"));
        alone.returns(wants(0));
        alone.settle();
        while !alone.calls.is_empty() {
            alone.returns(wants(0));
        }
        if resyncs {
            alone.take(ToReconciler::Resync);
        }
        let mut deleted = object("PodSet", "web");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        deleted["metadata"]["finalizers"] = json!([finalizer::name("podset")]);
        alone.put(deleted);
        alone.returns(CallResult::Done(Outcome { finalized: true, ..Outcome::default() }));
        if resyncs {
            alone.pass(WRITE_TIMEOUT_MS - 1);
            assert_eq!(alone.writes(), NONE);
            alone.pass(1);
            // What its guest looked at may be what the other host has written.
            alone.live_read(None);
        }
        assert_eq!(alone.writes(), ["patch PodSet web"], "resyncs: {resyncs}");
    }
}

#[test]
fn q4_a_throttled_plugin_ends_what_it_began_and_waits_and_others_do_not() {
    let throttle = |alone: &mut Alone| {
        let until_ms = alone.now.mono_ms + 5_000;
        alone.take(ToReconciler::Throttle { share: "podset".into(), until_ms });
    };
    let mut idle = Alone::serving(&[]);
    throttle(&mut idle);
    assert_eq!(idle.due_in_ms(), Some(5_000));
    let mut alone = Alone::serving(&["web"]);
    alone.serve("cron", "2", &["CronSet"]);
    alone.ready("cron", "CronSet", true);
    alone.returns(wants(3));
    throttle(&mut alone);
    alone.settle();
    let web = crate::object::owner::Owner { uid: "uid-web".into(), namespace: None };
    let of_web = alone.store.snapshot().owned(&kind("ConfigMap"), &web).count();
    assert_eq!(of_web, 3, "its plan was begun");
    alone.change_secret("web");
    alone.put(object("CronSet", "nightly"));
    assert_eq!(alone.called(), ["cron/CronSet 2 nightly"]);
    alone.pass(4_999);
    assert_eq!(alone.called().len(), 1);
    alone.pass(1);
    assert_eq!(alone.called(), ["cron/CronSet 2 nightly", "podset/PodSet 1 web"]);
}

#[test]
fn a_suspended_plugin_ends_what_it_began_and_nothing_begins_until_it_is_resumed() {
    let mut alone = Alone::serving(&["web"]);
    alone.serve("cron", "2", &["CronSet"]);
    alone.ready("cron", "CronSet", true);
    alone.returns(wants(3));
    alone.take(ToReconciler::Suspend { plugin: "podset".into(), suspended: true });
    alone.settle();
    alone.change_secret("web");
    alone.put(object("CronSet", "nightly"));
    alone.pass(3_600_000);
    alone.serve("podset", "3", &["PodSet"]);
    alone.ready("podset", "PodSet", true);
    assert_eq!(alone.called(), ["cron/CronSet 2 nightly"], "the next version neither");
    alone.take(ToReconciler::Suspend { plugin: "podset".into(), suspended: false });
    assert_eq!(alone.called(), ["cron/CronSet 2 nightly", "podset/PodSet 3 web"]);
}

#[test]
fn q4_a_write_with_the_smaller_debt_does_not_end_the_wait_for_the_larger_one() {
    let mut alone = Alone::serving(&["a"]);
    alone.returns(wants(0));
    // The bucket of creates is in debt for two seconds, that of all writes for one, and a patch spends the latter only.
    for debt_ms in [2_000, 1_000] {
        let until_ms = alone.now.mono_ms + debt_ms;
        alone.take(ToReconciler::Throttle { share: "podset".into(), until_ms });
    }
    alone.change_secret("a");
    alone.pass(1_999);
    assert_eq!(alone.called(), [""; 0]);
    alone.pass(1);
    assert_eq!(alone.called(), ["podset/PodSet 1 a"]);
}

#[test]
fn q4_what_is_kept_of_a_plugins_calls_is_bounded_and_every_key_still_wakes() {
    const KEYS: usize = 700;
    const BOUND: usize = 64 << 20;
    let mut alone = Alone::serving(&[]);
    (0..KEYS).for_each(|number| alone.put(object("PodSet", &number.to_string())));
    let fields: Vec<String> = (0..90).map(|number| format!("f{number}.{}", "x".repeat(1_000))).collect();
    let return_all = |alone: &mut Alone| {
        while let Some(call) = alone.calls.front_mut() {
            for field in &fields {
                call.view.list(&Query { fields: vec![field.clone()], ..Query::all(kind("Secret")) }).unwrap();
            }
            alone.returns(CallResult::Done(Outcome::default()));
            let bytes = alone.reconciler.kept_bytes.total();
            assert!(bytes <= BOUND + KEYS * 512, "{bytes} with the kinds of those for which there was no room");
        }
    };
    return_all(&mut alone);
    let bytes = alone.reconciler.kept_bytes.total();
    assert!(bytes > BOUND * 9 / 10, "{bytes}");
    alone.serve("podset", "2", &["PodSet"]);
    return_all(&mut alone);
    alone.change_secret("of none");
    (0..4).for_each(|_| alone.pass(1));
    let woken = alone.calls.len() + alone.reconciler.queue_depths()[0].1;
    assert_eq!((alone.reconciler.key_count(), woken), (KEYS, KEYS));
    alone.withdraw("podset");
    while alone.due_in_ms().is_some_and(|due_ms| due_ms <= 1) {
        alone.pass(1);
    }
    assert_eq!(alone.reconciler.kept_bytes.total(), 0);
}

/// What the plugin "podset" is charged for a resync.
fn charged_for_resync(alone: &mut Alone) -> u64 {
    let before = alone.reconciler.queue.used_us("podset");
    alone.take(ToReconciler::Resync);
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]));
    alone.reconciler.queue.used_us("podset") - before
}

#[test]
fn q4_a_plugin_is_charged_for_the_size_of_what_is_compared() {
    let charged = |size: usize| {
        let mut alone = Alone::serving(&["web"]);
        alone.returns(wants(1));
        let mut child = alone.accept();
        let fields = json!({"f:metadata": {
            "f:annotations": {"f:mortise.dev/child": {}}, "f:labels": {"f:app.kubernetes.io/managed-by": {}},
            "f:ownerReferences": {"k:{\"uid\":\"uid-web\"}": {}}}});
        child["metadata"]["managedFields"] = json!([{
            "manager": "mortise/podset", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }]);
        alone.show(&child);
        child["data"] = json!({"of another": "x".repeat(size)});
        alone.ready("podset", "PodSet", false);
        alone.put(child);
        let before = alone.reconciler.queue.used_us("podset");
        alone.ready("podset", "PodSet", true);
        assert_eq!((alone.called(), alone.writes()), (vec![], vec![]));
        (alone.reconciler.queue.used_us("podset") - before, charged_for_resync(&mut alone))
    };
    let ((small, small_again), (large, large_again)) = (charged(10), charged(50 << 10));
    assert!(large > small + 100, "{small} and {large} µs");
    assert_eq!(small_again, large_again, "each version is compared once");
}

#[test]
fn q4_a_plugin_is_charged_for_looks_at_what_it_has_read() {
    let charged = |secrets: usize| {
        let mut alone = Alone::new();
        (0..secrets).for_each(|number| alone.put(object("Secret", &format!("s{number}"))));
        alone.serve("podset", "1", &["PodSet"]);
        alone.ready("podset", "PodSet", true);
        alone.put(object("PodSet", "web"));
        drop(alone.calls[0].view.keys(&Query::all(kind("Secret"))).unwrap());
        alone.returns(wants(0));
        alone.settle();
        let unchanged = charged_for_resync(&mut alone);
        let mut changed = object("Secret", "s0");
        changed["data"] = json!({"key": "value"});
        alone.put(changed);
        (unchanged, charged_for_resync(&mut alone))
    };
    let ((few, few_looks), (many, many_looks)) = (charged(1), charged(1_001));
    assert_eq!(few, many, "nothing is looked at again before something changes");
    assert_eq!(
        (few_looks - few, many_looks - many),
        (0, 200),
        "a thousand looks, where one or none is charged as 1 µs"
    );
}

#[test]
fn q4_a_plugin_pays_for_the_comparisons_of_changes_with_its_reads() {
    let charged = |lists: usize| {
        let mut alone = Alone::serving(&[]);
        alone.change_secret("other");
        alone.put(object("PodSet", "web"));
        alone.returns_with(wants(0), |view| {
            for number in 0..lists {
                let (selector, fields) = (Some(format!("l{number}!=v")), vec!["metadata.name".to_owned()]);
                view.list(&Query { selector, fields, ..Query::all(kind("Secret")) }).unwrap();
            }
        });
        let before = alone.reconciler.queue.used_us("podset");
        alone.change_secret("other");
        assert_eq!(alone.called(), [""; 0], "no result changed");
        alone.reconciler.queue.used_us("podset") - before
    };
    let (none, many) = (charged(0), charged(100));
    assert!(none == 0 && many >= 20, "{none} and {many} us");
}

#[test]
fn q4_a_plugin_waits_for_quick_calls_of_others_and_not_for_a_slow_one() {
    let mut alone = Alone { reconciler: Reconciler::new(reserved(), 1, 600), ..Alone::new() };
    let (podset, cron) = ("podset/PodSet 1 web", "cron/CronSet 2 nightly");
    for (plugin, digest, of, name) in [("podset", "1", "PodSet", "web"), ("cron", "2", "CronSet", "nightly")] {
        alone.serve(plugin, digest, &[of]);
        alone.ready(plugin, of, true);
        alone.put(object(of, name));
    }
    assert_eq!(alone.called(), [podset], "the only slot is taken");
    alone.returns(wants(0));
    assert_eq!(alone.called(), [cron]);
    alone.put(object("PodSet", "shop"));
    assert_eq!((alone.called(), alone.reconciler.next_due_ms()), (vec![cron.to_owned()], Some(1_050)));
    alone.now.mono_ms = 1_049;
    alone.with(|_, _| {});
    assert_eq!(alone.called(), [cron]);
    alone.now.mono_ms = 1_050;
    alone.with(|_, _| {});
    assert_eq!(alone.called(), [cron, "podset/PodSet 1 shop"]);
    assert!(alone.reconciler.next_due_ms() > Some(2_000), "{:?}", alone.reconciler.next_due_ms());
    alone.put(object("PodSet", "blog"));
    assert_eq!(alone.called().len(), 2, "each plugin has one beyond the slots");
    alone.returns(wants(0));
    assert_eq!(alone.called(), ["podset/PodSet 1 shop"]);
    alone.returns(wants(0));
    assert_eq!(alone.called(), ["podset/PodSet 1 blog"], "its own plugin's call has ended");
}

#[test]
fn g11_however_many_plugins_a_tenant_has_they_have_one_plugins_share_of_calls() {
    let mut alone = Alone { reconciler: Reconciler::new(reserved(), 1, 600), ..Alone::new() };
    let plugins = [("team-a.web", "1", "PodSet"), ("team-a.cron", "2", "CronSet"), ("deploy", "3", "Deployment")];
    for (plugin, digest, of) in plugins {
        alone.serve_without_http(plugin, digest, &[of]);
        alone.ready(plugin, of, true);
    }
    alone.put(object("PodSet", "web"));
    alone.put(object("CronSet", "nightly"));
    alone.put(object("Deployment", "shop"));
    alone.pass(60_000);
    let shop = "deploy/Deployment 3 shop".to_owned();
    assert_eq!(
        alone.called(),
        ["team-a.web/PodSet 1 web".to_owned(), shop.clone()],
        "its other plugin waits for the slow one"
    );
    alone.take(ToReconciler::Suspend { plugin: "team-a.web".into(), suspended: true });
    alone.returns(wants(0));
    alone.put(object("PodSet", "blog"));
    alone.pass(1_000);
    assert_eq!(
        alone.called(),
        [shop.clone(), "team-a.cron/CronSet 2 nightly".to_owned()],
        "a suspended one keeps no place"
    );
    alone.take(ToReconciler::Suspend { plugin: "team-a.web".into(), suspended: false });
    assert_eq!(alone.called().len(), 2);
    alone.returns(wants(0));
    alone.returns(wants(0));
    assert_eq!(alone.called(), ["team-a.web/PodSet 1 blog"]);
}
