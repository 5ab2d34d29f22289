//! Admission end to end: refusals with their field, defaults, and what happens when the plugin fails, is replaced or
//! removed, when the host is down, and when certificates change.
//!
//! `MORTISE_E2E_CREATES` raises the number of objects that are created during reloads (200).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use mortise_control_plane::ADMIN;
use mortise_core::certificates::Validity;
use mortise_kube::webhook::authority::Authority;
use serde_json::{Value, json};

use super::reload::append_custom_section;
use super::world::{HOST_NAMESPACE, RESTRICTED, World, built, count_from_env};

const CONFIGURATIONS: [&str; 2] = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];
const CONCURRENCY: usize = 20;
const RELOADS: u32 = 5;
const SECRET: &str = "mortise-webhook-ca";
const DAY_MS: u64 = 24 * 3_600 * 1_000;

fn component() -> Vec<u8> {
    std::fs::read(built("test-guests/admitting.wasm")).unwrap()
}

/// Another digest of the same component.
fn other(content: &str) -> Vec<u8> {
    let mut component = component();
    append_custom_section(&mut component, content.as_bytes());
    component
}

pub(super) fn picture(world: &World, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Picture",
        "metadata": {"name": name, "namespace": world.namespace}, "spec": spec,
    })
}

fn pictures(world: &World) -> Api<DynamicObject> {
    world.api("test.mortise.dev/v1", "Picture", Some(&world.namespace))
}

pub(super) fn create(world: &World, name: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
    let object: DynamicObject = serde_json::from_value(picture(world, name, spec)).unwrap();
    world.block_on(pictures(world).create(&PostParams::default(), &object))
}

/// A create that stores nothing.
pub(super) fn try_create(world: &World, spec: &Value) -> Result<DynamicObject, kube::Error> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object: DynamicObject = serde_json::from_value(picture(world, "probe", spec)).unwrap();
    world.block_on(pictures(world).create(&dry_run, &object))
}

/// The Status of an API error.
#[track_caller]
fn refused<T>(result: Result<T, kube::Error>) -> Box<kube::core::Status> {
    match result {
        Err(kube::Error::Api(status)) => status,
        Err(error) => panic!("no response of the API server: {error}"),
        Ok(_) => panic!("it was admitted"),
    }
}

/// A world in which the API server calls the plugin's webhooks.
fn world(name: &str) -> World {
    let mut world = World::new(name);
    forget_authority(&world);
    world.start_host();
    world.offer_bytes("admitting", &component());
    wait_for_webhooks(&mut world);
    world
}

/// The condition is True once the configurations are written; the API server sees them a moment later.
pub(super) fn wait_for_webhooks(world: &mut World) {
    world.wait_condition("admitting", "Admitting", "True", "Served");
    world.wait_ready("admitting");
    world.until("the API server calls the webhooks", || match try_create(world, &json!({})) {
        Err(kube::Error::Api(status)) => (status.code == 422).then_some(()),
        _ => None,
    });
}

pub(super) fn forget_authority(world: &World) {
    world.kubectl(&["delete", "secret", SECRET, "-n", HOST_NAMESPACE, "--ignore-not-found"]);
}

fn configurations(world: &World) -> String {
    let names = |kind: &&str| world.kubectl(&["get", kind, "-o", "jsonpath={.items[*].metadata.name}"]);
    CONFIGURATIONS.iter().map(names).collect::<Vec<_>>().join("|")
}

#[test]
fn invalid_objects_are_refused_with_the_field_and_defaults_are_set() {
    let world = world("admission");
    let message = world.plane.apply(&picture(&world, "none", &json!({})).to_string()).unwrap_err().to_string();
    // The same message as of the API server's own validation.
    let expected = "The Picture \"none\" is invalid: spec.image: Required value: image is required";
    assert!(message.contains(expected), "{message}");

    let status = refused(create(&world, "none", &json!({"image": ""})));
    assert_eq!((status.code, &*status.reason), (422, "Invalid"));
    assert!(status.message.contains("\"validate.pictures.admitting.mortise.dev\" denied"), "{}", status.message);
    let details = status.details.unwrap();
    assert_eq!((&*details.kind, &*details.name), ("Picture", "none"));
    assert_eq!((&*details.causes[0].field, &*details.causes[0].reason), ("spec.image", "FieldValueRequired"));

    // Validation by the schema comes before the plugin's.
    let message = refused(create(&world, "number", &json!({"image": 7}))).message;
    assert!(message.contains("spec.image: Invalid value: \"integer\""), "{message}");

    for (name, image, policy) in [("latest", "nginx", "Always"), ("tagged", "nginx:1.25", "IfNotPresent")] {
        let stored = create(&world, name, &json!({"image": image})).unwrap();
        assert_eq!(stored.data["spec"]["imagePullPolicy"], policy);
        assert_eq!(stored.data["spec"]["keep"], false, "the schema's default");
    }
    let own = create(&world, "own", &json!({"image": "nginx", "imagePullPolicy": "Never"})).unwrap();
    assert_eq!(own.data["spec"]["imagePullPolicy"], "Never");
    let patch = Patch::Merge(json!({"spec": {"image": ""}}));
    let update = world.block_on(pictures(&world).patch("own", &PatchParams::default(), &patch));
    assert_eq!(refused(update).code, 422, "updates are validated too");
    assert!(world.metric("controller_runtime_webhook_requests_total", "webhook=\"/validate/admitting\"") >= 5.0);
    assert!(world.metric("mortise_admission_reviews_total", "result=\"refused\"") >= 3.0);
}

#[test]
fn a_failing_plugin_refuses_writes_and_blocks_no_delete() {
    let mut world = world("admission-faults");
    let status = refused(create(&world, "trap", &json!({"image": "trap"})));
    assert_eq!(status.code, 500);
    assert!(status.message.contains("it traps because spec.image is trap"), "{}", status.message);
    assert_eq!(world.metric("mortise_guest_faults_total", "reason=\"Trap\""), 1.0, "counted once");
    let status = refused(create(&world, "loop", &json!({"image": "loop"})));
    assert!(status.message.contains("deadline of 1000 ms"), "{}", status.message);
    assert!(world.host().process.ended().unwrap().is_none());

    let delete = |name: &str| world.block_on(pictures(&world).delete(name, &DeleteParams::default())).map(drop);
    create(&world, "kept", &json!({"image": "nginx", "keep": true})).unwrap();
    let status = refused(delete("kept"));
    assert_eq!(status.code, 403);
    assert!(
        status.message.contains("pictures.test.mortise.dev \"kept\" is forbidden: it is kept"),
        "{}",
        status.message
    );
    world.kubectl_here(&["patch", "picture/kept", "--type=merge", "-p", r#"{"spec":{"keep":false}}"#]);
    delete("kept").unwrap();
}

#[test]
fn without_the_host_nothing_is_stored_unvalidated_and_everything_can_be_deleted() {
    let mut world = world("admission-away");
    create(&world, "before", &json!({"image": "nginx"})).unwrap();
    world.kubectl_here(&["patch", "picture/before", "--type=merge", "-p", r#"{"metadata":{"finalizers":["a.b/c"]}}"#]);
    let authority = world.kubectl(&["get", "secret", SECRET, "-n", HOST_NAMESPACE, "-o", "jsonpath={.data}"]);
    world.kill_host();
    assert!(
        refused(create(&world, "unchecked", &json!({"image": "nginx"}))).message.contains("failed calling webhook")
    );
    world.kubectl_here(&["delete", "picture/before", "--wait=false"]);
    world.kubectl_here(&["patch", "picture/before", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    world.until("the deleted object is gone", || {
        world.block_on(pictures(&world).get_opt("before")).unwrap().is_none().then_some(())
    });
    // The webhooks exclude the host's namespace.
    let mut elsewhere = picture(&world, "elsewhere", &json!({}));
    elsewhere["metadata"]["namespace"] = json!(HOST_NAMESPACE);
    world.apply(&elsewhere);
    world.kubectl(&["delete", "picture/elsewhere", "-n", HOST_NAMESPACE]);

    world.start_host();
    wait_for_webhooks(&mut world);
    create(&world, "after", &json!({"image": "nginx"})).unwrap();
    let kept = world.kubectl(&["get", "secret", SECRET, "-n", HOST_NAMESPACE, "-o", "jsonpath={.data}"]);
    assert_eq!(kept, authority, "a restart creates no new authority");
}

#[test]
fn l3_webhooks_of_a_removed_plugin_are_deleted_also_if_no_host_ran_meanwhile() {
    let mut world = world("admission-gone");
    assert_eq!(configurations(&world), "mortise-admitting|mortise-admitting");
    world.kubectl(&["delete", "validatingwebhookconfiguration", "mortise-admitting"]);
    world.offer_bytes("admitting", &other("again"));
    world.until("a deleted configuration is created again", || {
        (configurations(&world) == "mortise-admitting|mortise-admitting").then_some(())
    });
    world.withdraw("admitting");
    world.until("the configurations are gone", || (configurations(&world) == "|").then_some(()));
    create(&world, "unchecked", &json!({})).unwrap();

    world.offer_bytes("admitting", &component());
    wait_for_webhooks(&mut world);
    world.kill_host();
    world.withdraw("admitting");
    world.start_host();
    world.until("those of a plugin that was removed meanwhile are gone", || {
        (configurations(&world) == "|").then_some(())
    });
}

/// Creates valid and invalid objects in turn until stopped; counts lost requests and wrongly admitted objects.
#[derive(Default)]
struct Load {
    created: AtomicUsize,
    lost: AtomicUsize,
    wrong: AtomicUsize,
    stop: AtomicBool,
    last_error: std::sync::Mutex<String>,
}

impl Load {
    /// One of several tasks: at most so many objects, with names of its own.
    async fn run(self: Arc<Self>, api: Api<DynamicObject>, namespace: String, task: usize, most: usize) {
        for number in 0..most {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let is_good = number % 2 == 0;
            let spec = if is_good { json!({"image": "nginx"}) } else { json!({}) };
            let object = json!({
                "apiVersion": "test.mortise.dev/v1", "kind": "Picture",
                "metadata": {"name": format!("p-{task}-{number}"), "namespace": namespace}, "spec": spec,
            });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let counter = match (api.create(&PostParams::default(), &object).await, is_good) {
                (Ok(stored), true) if stored.data["spec"]["imagePullPolicy"] == "Always" => &self.created,
                (Err(kube::Error::Api(status)), false) if status.code == 422 => &self.created,
                (Ok(_), _) => &self.wrong,
                (Err(error), _) => {
                    *self.last_error.lock().unwrap() = error.to_string();
                    &self.lost
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(world: &World, each: usize, tasks: usize) -> (Arc<Self>, Vec<tokio::task::JoinHandle<()>>) {
        let load = Arc::new(Self::default());
        let start = |task| world.spawn(Arc::clone(&load).run(pictures(world), world.namespace.clone(), task, each));
        let tasks = (0..tasks).map(start).collect();
        (load, tasks)
    }

    #[track_caller]
    fn assert_none_lost(&self) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let last_error = self.last_error.lock().unwrap();
        assert_eq!((count(&self.lost), count(&self.wrong)), (0, 0), "lost and wrong; the last error: {last_error}");
    }
}

#[test]
fn l1_reloads_lose_no_admission_request_and_admit_none_wrongly() {
    let mut world = world("admission-reload");
    let creates = count_from_env("MORTISE_E2E_CREATES", 200);
    let (load, tasks) = Load::start(&world, creates / CONCURRENCY, CONCURRENCY);
    for reload in 0..RELOADS {
        let before = world.plugin_digest("admitting");
        world.offer_bytes("admitting", &other(&format!("reload {reload}")));
        world.until("the new version serves", || (world.plugin_digest("admitting") != before).then_some(()));
    }
    for task in tasks {
        world.block_on(task).unwrap();
    }
    load.assert_none_lost();
    assert_eq!(load.created.load(Ordering::Relaxed), creates / CONCURRENCY * CONCURRENCY);
    world.wait_ready("admitting");
}

/// The Secret of an authority of this age and remaining lifetime.
pub(super) fn authority_secret(age_ms: u64, left_ms: i64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    let until_ms = now_ms.saturating_add_signed(left_ms);
    let authority = Authority::create(Validity { from_ms: now_ms - age_ms, until_ms }).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": HOST_NAMESPACE},
        "stringData": {"ca.crt": authority.certificate, "ca.key": authority.key},
    })
}

pub(super) fn kept(world: &World) -> Value {
    let secret = world.kubectl(&["get", "secret", SECRET, "-n", HOST_NAMESPACE, "-o", "json"]);
    serde_json::from_str::<Value>(&secret).unwrap()["data"].clone()
}

#[test]
fn an_authority_is_replaced_at_two_thirds_of_its_life_and_no_call_fails_meanwhile() {
    let mut world = World::new("admission-rotation");
    forget_authority(&world);
    world.apply(&authority_secret(3 * DAY_MS, DAY_MS.cast_signed()));
    let before = kept(&world)["ca.crt"].clone();
    world.start_host();
    world.offer_bytes("admitting", &component());
    wait_for_webhooks(&mut world);
    let next = world.until("the next authority is trusted", || {
        let next = kept(&world)["next.crt"].clone();
        next.is_string().then_some(next)
    });
    assert_eq!(kept(&world)["ca.crt"], before, "it does not issue yet");
    let (load, tasks) = Load::start(&world, usize::MAX, 1);
    world.until_within(Duration::from_secs(150), "the next authority issues", &mut || {
        (kept(&world)["ca.crt"] == next).then_some(())
    });
    assert_eq!((kept(&world)["previous.crt"].clone(), kept(&world).get("next.crt").cloned()), (before, None));
    let created = load.created.load(Ordering::Relaxed);
    world.until("objects are created after that", || {
        (load.created.load(Ordering::Relaxed) > created + 20).then_some(())
    });
    load.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        world.block_on(task).unwrap();
    }
    load.assert_none_lost();
    forget_authority(&world);
}

#[test]
fn an_authority_that_expired_while_the_host_was_down_is_replaced_before_anything_depends_on_it() {
    let mut world = World::new("admission-expired");
    forget_authority(&world);
    world.apply(&authority_secret(9 * DAY_MS, -DAY_MS.cast_signed()));
    let before = kept(&world)["ca.crt"].clone();
    world.start_host();
    world.offer_bytes("admitting", &component());
    wait_for_webhooks(&mut world);
    assert_ne!(kept(&world)["ca.crt"], before);
    create(&world, "good", &json!({"image": "nginx"})).unwrap();
    forget_authority(&world);
}

/// Writes a self-signed certificate, in the files of a mounted Secret. Returns the caBundle.
fn write_certificate(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let files =
        [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem()), ("ca.crt", made.cert.pem())];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    serde_json::to_value(k8s_openapi::ByteString(made.cert.pem().into_bytes())).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn a_certificate_from_files_is_served_and_reloaded_when_it_changes() {
    let mut world = World::new("admission-files");
    forget_authority(&world);
    let folder = tempfile::tempdir().unwrap();
    let first = write_certificate(folder.path());
    world.start_host_as(ADMIN, &["--webhook-cert-path", folder.path().to_str().unwrap()]);
    world.offer_bytes("admitting", &component());
    wait_for_webhooks(&mut world);
    let trusted = || {
        let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
        world.kubectl(&["get", "validatingwebhookconfiguration", "mortise-admitting", "-o", path])
    };
    assert_eq!(trusted(), first);
    let second = write_certificate(folder.path());
    world.until("the configuration has the next one", || (trusted() == second).then_some(()));
    world.until("and the API server trusts it", || create(&world, "good", &json!({"image": "nginx"})).ok());
    let secrets = world.kubectl(&["get", "secrets", "-n", HOST_NAMESPACE, "-o", "name"]);
    assert!(!secrets.contains(SECRET), "the host stores no copy: {secrets}");

    std::fs::write(folder.path().join("tls.key"), "not a key").unwrap();
    let message = world.wait_condition("admitting", "Admitting", "False", "CertificateUnusable");
    assert!(message.contains("--webhook-cert-path"), "{message}");
}

#[test]
fn l5_a_host_without_the_right_to_write_webhooks_reports_the_missing_right() {
    let mut world = World::new("admission-forbidden");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "e2e-no-webhooks"},
        "rules": [{
            "apiGroups": ["", "events.k8s.io", "apiextensions.k8s.io", "mortise.dev", "test.mortise.dev"],
            "resources": ["*"], "verbs": ["*"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "e2e-no-webhooks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-no-webhooks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": RESTRICTED}],
    });
    world.apply(&role);
    world.apply(&binding);
    world.start_host_as(RESTRICTED, &[]);
    world.offer_bytes("admitting", &component());
    let message = world.wait_condition("admitting", "Admitting", "False", "Forbidden");
    assert!(message.contains("webhookconfigurations") && message.contains("mortise rbac --host"), "{message}");
    world.wait_condition("admitting", "Ready", "False", "Forbidden");
    world.kubectl(&["delete", "clusterrole,clusterrolebinding", "e2e-no-webhooks"]);
}
