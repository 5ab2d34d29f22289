//! Every kind of write on the real API server, and the classes of its refusals. No host runs: the writes use the host's
//! client.

use std::sync::Arc;

use mortise_core::contract::{PatchKind, Propagation};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::write::{Precondition, Write, WriteError, WriteErrorClass as Class, WriteId, WriteOp, Written};
use mortise_kube::client::{Access, ApiServer};
use serde_json::{Value, json};

use super::world::World;
use mortise_control_plane::ADMIN;

struct Writer<'a> {
    world: &'a World,
    api: ApiServer,
}

impl<'a> Writer<'a> {
    fn new(world: &'a World) -> Self {
        let access = Access { kubeconfig: Some(world.plane.kubeconfig(ADMIN).unwrap()), context: None };
        Self { world, api: world.block_on(ApiServer::connect(&access)).unwrap() }
    }

    fn write(&self, op: WriteOp) -> Result<Written, WriteError> {
        let write = Write {
            id: WriteId(1),
            plugin: Some("writer".into()),
            cause: None,
            service_account: None,
            op,
            not_after_ms: None,
        };
        self.world.block_on(self.api.execute(&write))
    }

    #[track_caller]
    fn refused(&self, op: WriteOp) -> (Class, String) {
        let error = self.write(op).unwrap_err();
        (error.class, error.message)
    }

    fn settings(&self) -> ObjectRef {
        let name = Name::new(&self.world.namespace, "settings");
        ObjectRef { kind: Kind::new("v1", "ConfigMap"), name }
    }

    fn body(&self, data: Value) -> Arc<str> {
        let metadata = json!({"name": "settings", "namespace": self.world.namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string().into()
    }

    fn apply(&self, data: Value, only_if: Precondition) -> WriteOp {
        WriteOp::Apply { target: self.settings(), body: self.body(data), force: false, only_if, draws: None }
    }

    fn data(&self) -> Value {
        let name = ["get", "configmap", "settings", "-n", &self.world.namespace, "-o", "jsonpath={.data}"];
        serde_json::from_str(&self.world.kubectl(&name)).unwrap()
    }
}

#[test]
fn x2_an_apply_creates_only_what_is_absent_and_changes_only_the_uid_that_was_seen() {
    let world = World::new("applies");
    let writer = Writer::new(&world);
    let is = |uid: &str| Precondition::Is(uid.into());
    let (class, _) = writer.refused(writer.apply(json!({"a": "1"}), is("3f0d7a52-0000-0000-0000-000000000000")));
    assert_eq!(class, Class::Conflict, "an object with another UID");

    let made = writer.write(writer.apply(json!({"a": "1"}), Precondition::Absent)).unwrap();
    let again = writer.refused(writer.apply(json!({"a": "1"}), Precondition::Absent));
    assert_eq!(again.0, Class::AlreadyExists, "{}", again.1);

    let changed = writer.write(writer.apply(json!({"a": "2"}), is(&made.uid))).unwrap();
    assert!(changed.uid == made.uid && changed.resource_version > made.resource_version);
    let same = writer.write(writer.apply(json!({"a": "2"}), is(&made.uid))).unwrap();
    assert_eq!(same, changed, "an apply without a change creates no version");

    world.kubectl(&["delete", "configmap", "settings", "-n", &world.namespace]);
    world.kubectl(&["create", "configmap", "settings", "-n", &world.namespace, "--from-literal=theirs=1"]);
    for precondition in [is(&made.uid), Precondition::Absent] {
        let expected = if precondition == Precondition::Absent { Class::AlreadyExists } else { Class::Conflict };
        assert_eq!(writer.refused(writer.apply(json!({"b": "1"}), precondition)).0, expected);
    }
    assert_eq!(writer.data(), json!({"theirs": "1"}), "another owner's object was changed");
}

#[test]
fn x8_each_refusal_of_the_api_server_has_its_class() {
    let world = World::new("refused-writes");
    let writer = Writer::new(&world);
    let (target, body) = (writer.settings(), writer.body(json!({"a": "1"})));
    let create = WriteOp::Create { target: target.clone(), body };
    let made = writer.write(create.clone()).unwrap();
    assert_eq!(writer.refused(create).0, Class::AlreadyExists);

    // The create owns its fields by "Update", so an apply of another value conflicts.
    let (class, message) = writer.refused(writer.apply(json!({"a": "2"}), Precondition::None));
    assert!(class == Class::FieldConflict && message.contains(".data.a"), "{class:?}: {message}");

    let unknown = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "date": {}});
    let unknown = WriteOp::Create { target: target.clone(), body: unknown.to_string().into() };
    let (class, message) = writer.refused(unknown);
    assert!(class == Class::Invalid && message.contains("date"), "{class:?}: {message}");

    let nowhere = ObjectRef { name: Name::new("no-such-namespace", "settings"), ..target.clone() };
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}).to_string().into();
    let (class, message) = writer.refused(WriteOp::Create { target: nowhere, body });
    assert!(class == Class::NotFound && message.contains("no-such-namespace"), "{class:?}: {message}");

    let delete =
        |uid: &str| WriteOp::Delete { target: target.clone(), uid: uid.into(), propagation: Propagation::Background };
    let other = delete("3f0d7a52-0000-0000-0000-000000000000");
    assert_eq!(writer.refused(other).0, Class::Conflict);
    let delete = delete(&made.uid);
    writer.write(delete.clone()).unwrap();
    writer.write(delete).unwrap();
}

#[test]
fn patches_of_each_kind_change_only_the_uid_that_was_seen() {
    let world = World::new("patches");
    let writer = Writer::new(&world);
    let labels = json!({"app": "web"});
    let target = ObjectRef { kind: Kind::new("apps/v1", "Deployment"), name: Name::new(&world.namespace, "web") };
    let main = json!({"name": "main", "image": "one"});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [main]}}}});
    let body: Arc<str> = body.to_string().into();
    let made = writer.write(WriteOp::Create { target: target.clone(), body }).unwrap();
    let patch = |patch_kind, body: Value, subresource: Option<&str>, uid: Option<&str>| WriteOp::Patch {
        target: target.clone(),
        patch_kind,
        body: body.to_string().into(),
        subresource: subresource.map(Arc::from),
        only_if: uid.map_or(Precondition::None, |uid| Precondition::Is(uid.into())),
    };
    let seen = Some(&*made.uid);
    let side = json!({"name": "side", "image": "two"});
    let containers = json!({"spec": {"template": {"spec": {"containers": [side]}}}});
    let strategic = patch(PatchKind::Strategic, containers, None, seen);
    let merge = patch(PatchKind::Merge, json!({"metadata": {"annotations": {"a": "b"}}}), None, seen);
    let test = json!([{"op": "add", "path": "/spec/paused", "value": true}]);
    let operations = patch(PatchKind::Json, test, None, seen);
    let scale = patch(PatchKind::Merge, json!({"spec": {"replicas": 2}}), Some("scale"), None);
    for op in [strategic, merge, operations, scale] {
        assert_eq!(writer.write(op).unwrap().uid, made.uid);
    }
    let path =
        "jsonpath={.spec.template.spec.containers[*].name} {.metadata.annotations.a} {.spec.paused} {.spec.replicas}";
    let found = world.kubectl_here(&["get", "deployment", "web", "-o", path]);
    assert_eq!(found, "side main b true 2", "a strategic patch merges lists by their keys");

    let other = Some("3f0d7a52-0000-0000-0000-000000000000");
    assert_eq!(
        writer.refused(patch(PatchKind::Merge, json!({"spec": {"paused": false}}), None, other)).0,
        Class::Conflict
    );
    let (class, message) = writer.refused(patch(PatchKind::Json, json!([]), None, other));
    assert_eq!(class, Class::Invalid, "{message}");
    let unknown = patch(PatchKind::Merge, json!({"spec": {"pause": true}}), None, None);
    let (class, message) = writer.refused(unknown);
    assert!(class == Class::Invalid && message.contains("pause"), "{class:?}: {message}");
    world.kubectl_here(&["delete", "deployment", "web"]);
    assert_eq!(writer.refused(patch(PatchKind::Merge, json!({}), None, None)).0, Class::NotFound);
}

#[test]
fn an_eviction_against_a_budget_names_it_and_one_with_another_uid_is_a_conflict() {
    let world = World::new("evictions");
    let writer = Writer::new(&world);
    let target = ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new(&world.namespace, "web") };
    world.apply(&json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": world.namespace, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "a", "image": "busybox"}]}}));
    world.apply(&json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web-budget", "namespace": world.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}));
    world.kubectl_here(&["wait", "pdb/web-budget", "--for=jsonpath={.status.currentHealthy}=1", "--timeout=60s"]);
    let uid = world.kubectl_here(&["get", "pod", "web", "-o", "jsonpath={.metadata.uid}"]);
    let evict = |uid: &str| WriteOp::Evict { target: target.clone(), uid: uid.into() };
    let (class, message) = writer.refused(evict(&uid));
    assert!(class == Class::Blocked && message.contains("web-budget needs 1 healthy pods"), "{class:?}: {message}");
    assert!(matches!(
        writer.refused(evict("3f0d7a52-0000-0000-0000-000000000000")).0,
        Class::Blocked | Class::Conflict
    ));
    world.kubectl_here(&["delete", "pdb", "web-budget"]);
    assert_eq!(writer.refused(evict("3f0d7a52-0000-0000-0000-000000000000")).0, Class::Conflict);
    writer.write(evict(&uid)).unwrap();
    world.kubectl_here(&["wait", "pod/web", "--for=delete", "--timeout=60s"]);
    writer.write(evict(&uid)).unwrap();
}
