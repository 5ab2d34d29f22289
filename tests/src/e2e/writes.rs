//! Every kind of write as the real API server takes it, and what its refusals are taken for. No host runs: the writes go
//! out by the same way as the host's, and nothing here knows who would want them.

use std::sync::Arc;

use mortise_core::contract::Propagation;
use mortise_core::event::{Precondition, Write, WriteError, WriteErrorClass as Class, WriteId, WriteOp, Written};
use mortise_core::object::{Kind, Name, ObjectRef};
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
        let write = Write { id: WriteId(1), plugin: Some("writer".into()), cause: None, op, not_after_ms: None };
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

    /// The ConfigMap with these data.
    fn body(&self, data: Value) -> Arc<str> {
        let metadata = json!({"name": "settings", "namespace": self.world.namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string().into()
    }

    fn apply(&self, data: Value, only_if: Precondition) -> WriteOp {
        WriteOp::Apply { target: self.settings(), body: self.body(data), force: false, only_if }
    }

    fn data(&self) -> Value {
        let name = ["get", "configmap", "settings", "-n", &self.world.namespace, "-o", "jsonpath={.data}"];
        serde_json::from_str(&self.world.kubectl(&name)).unwrap()
    }
}

#[test]
fn x2_an_apply_makes_only_what_is_absent_and_changes_only_what_was_seen() {
    let world = World::new("applies");
    let writer = Writer::new(&world);
    let is = |uid: &str| Precondition::Is(uid.into());
    let (class, _) = writer.refused(writer.apply(json!({"a": "1"}), is("3f0d7a52-0000-0000-0000-000000000000")));
    assert_eq!(class, Class::Conflict, "what was seen is gone");

    let made = writer.write(writer.apply(json!({"a": "1"}), Precondition::Absent)).unwrap();
    let again = writer.refused(writer.apply(json!({"a": "1"}), Precondition::Absent));
    assert_eq!(again.0, Class::AlreadyExists, "{}", again.1);

    let changed = writer.write(writer.apply(json!({"a": "2"}), is(&made.uid))).unwrap();
    assert!(changed.uid == made.uid && changed.resource_version > made.resource_version);
    let same = writer.write(writer.apply(json!({"a": "2"}), is(&made.uid))).unwrap();
    assert_eq!(same, changed, "an apply that changes nothing makes no version");

    world.kubectl(&["delete", "configmap", "settings", "-n", &world.namespace]);
    world.kubectl(&["create", "configmap", "settings", "-n", &world.namespace, "--from-literal=theirs=1"]);
    for precondition in [is(&made.uid), Precondition::Absent] {
        let expected = if precondition == Precondition::Absent { Class::AlreadyExists } else { Class::Conflict };
        assert_eq!(writer.refused(writer.apply(json!({"b": "1"}), precondition)).0, expected);
    }
    assert_eq!(writer.data(), json!({"theirs": "1"}), "another's object was merged into");
}

#[test]
fn x8_each_refusal_of_the_api_server_is_taken_for_what_it_is() {
    let world = World::new("refused-writes");
    let writer = Writer::new(&world);
    let (target, body) = (writer.settings(), writer.body(json!({"a": "1"})));
    let create = WriteOp::Create { target: target.clone(), body };
    let made = writer.write(create.clone()).unwrap();
    assert_eq!(writer.refused(create).0, Class::AlreadyExists);

    // The create's fields are its manager's by "Update", so an apply of another value is a conflict with itself.
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
