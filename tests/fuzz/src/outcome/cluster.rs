//! A cluster for one case: objects by name, to which a plan is written. It merges applies and records their fields as the API
//! server does for a schema whose lists are atomic. It knows no rule of the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_core::certificates::Validity;
use mortise_core::contract::PatchKind;
use mortise_core::digest::fingerprint;
use mortise_core::generated::{Pair, RandomSource, Secret, complete, fingerprint_of};
use mortise_core::object::{Interner, Kind, Object, ObjectRef, ResourceVersion};
use mortise_core::store::Snapshot;
use mortise_core::write::{Precondition, WriteOp};
use serde_json::{Map, Value, json};

use super::{MANAGER, Remembered};

pub(super) struct Cluster {
    kinds: Vec<Kind>,
    objects: BTreeMap<ObjectRef, Value>,
    version: u64,
}

impl Cluster {
    /// Objects that no cluster could have are left out.
    pub(super) fn new(kinds: &[Kind], live: &[Value]) -> Self {
        let mut cluster = Self { kinds: kinds.to_vec(), objects: BTreeMap::new(), version: 100 };
        for object in live {
            if let Some(decoded) = decode(object) {
                cluster.objects.insert(decoded.reference(), object.clone());
            }
        }
        cluster
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let decoded = self.objects.values().map(|object| decode(object).expect("it was decoded when it was stored"));
        Snapshot::of(&self.kinds, decoded)
    }

    /// All objects, to compare.
    pub(super) fn text(&self) -> String {
        self.objects.values().map(|object| format!("{object}\n")).collect()
    }

    /// Performs a write; None when the API server would not accept the object. A write that changes nothing makes no version.
    pub(super) fn write(&mut self, op: &WriteOp) -> Option<ResourceVersion> {
        let target = op.target().clone();
        let live = self.objects.get(&target);
        let changed = match op {
            WriteOp::Delete { .. } => {
                self.objects.remove(&target);
                return Some(self.next());
            }
            WriteOp::Create { body, .. } => created(serde_json::from_str(body).expect("a body is JSON"), self.version),
            WriteOp::Apply { body, draws, only_if, .. } => {
                let text = live.map(Value::to_string);
                let secret = text.as_ref().map(|text| Secret::read(text).expect("a value is JSON"));
                let completed = draws
                    .as_ref()
                    .map(|draws| complete(body, secret.as_ref(), draws, &mut Same).expect("it never fails"));
                let wanted: Value = serde_json::from_str(completed.as_deref().unwrap_or(body)).expect("a body is JSON");
                assert!(live.is_none() == (*only_if == Precondition::Absent));
                applied(live, wanted, self.version)
            }
            WriteOp::Patch { body, patch_kind: PatchKind::Merge, .. } => {
                let mut changed = live.expect("a patched object exists").clone();
                json_patch::merge(&mut changed, &serde_json::from_str(body).expect("a body is JSON"));
                changed
            }
            other => panic!("no plan of children has {other:?}"),
        };
        if live == Some(&changed) {
            return decode(&changed).map(|object| object.resource_version);
        }
        let version = self.next();
        let mut changed = changed;
        changed["metadata"]["resourceVersion"] = json!(version.0.to_string());
        decode(&changed)?;
        self.objects.insert(target, changed);
        Some(version)
    }

    fn next(&mut self) -> ResourceVersion {
        self.version += 1;
        ResourceVersion(self.version)
    }
}

impl Remembered {
    /// As a key remembers a write that succeeded.
    pub(super) fn remember(&mut self, op: &WriteOp, version: ResourceVersion) {
        match op {
            WriteOp::Apply { target, body, draws, .. } => {
                let wanted = draws.as_ref().map_or(&[][..], |draws| &draws.wanted);
                self.applied.insert(target.clone(), (fingerprint_of(body, wanted), version));
                return;
            }
            WriteOp::Patch { target, body, subresource, .. } => {
                self.sent.insert((target.clone(), subresource.clone()), (fingerprint(&[body]), version));
            }
            _ => {}
        }
        self.applied.remove(op.target());
    }
}

fn decode(object: &Value) -> Option<Object> {
    Object::decode(object.to_string().as_bytes(), &mut Interner::default()).ok()
}

fn created(mut object: Value, uid: u64) -> Value {
    object["metadata"]["uid"] = json!(format!("u-{uid}"));
    without_nulls(&mut object);
    object
}

/// The live object with the wanted fields, without those that were wanted before and are not any more.
fn applied(live: Option<&Value>, mut wanted: Value, uid: u64) -> Value {
    without_nulls(&mut wanted);
    let fields = fields_of_object(&wanted);
    let mut object = live.cloned().unwrap_or_else(|| created(json!({"metadata": {}}), uid));
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let (own, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry["manager"] == MANAGER);
    own.iter().for_each(|own| remove(&mut object, &own["fieldsV1"], &fields));
    merge(&mut object, &wanted);
    entries.push(json!({"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}));
    object["metadata"]["managedFields"] = Value::Array(entries);
    object
}

/// An apply of null says nothing of a field.
fn without_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(without_nulls);
    }
}

fn merge(live: &mut Value, wanted: &Value) {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            for (name, wanted) in wanted {
                merge(live.entry(name.clone()).or_insert(Value::Null), wanted);
            }
        }
        (live, wanted) => *live = wanted.clone(),
    }
}

/// Removes the leaves of one field set that another does not have.
fn remove(live: &mut Value, before: &Value, now: &Value) {
    let (Some(members), Some(before)) = (live.as_object_mut(), before.as_object()) else { return };
    for (field, before) in before {
        let Some(name) = field.strip_prefix("f:") else { continue };
        match (now.get(field), before.as_object().is_some_and(Map::is_empty)) {
            (None, true) => drop(members.remove(name)),
            (now, _) => {
                members.get_mut(name).into_iter().for_each(|live| remove(live, before, now.unwrap_or(&Value::Null)))
            }
        }
    }
}

/// The fieldsV1 of an apply: without what identifies the object.
fn fields_of_object(object: &Value) -> Value {
    let mut fields = fields_of(object);
    for name in ["f:apiVersion", "f:kind"] {
        fields.as_object_mut().map(|fields| fields.remove(name));
    }
    let metadata = fields["f:metadata"].as_object_mut();
    metadata.map(|metadata| ["f:name", "f:namespace"].map(|name| metadata.remove(name)));
    fields
}

fn fields_of(value: &Value) -> Value {
    let Value::Object(members) = value else { return json!({}) };
    members.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value))).collect()
}

/// A source of the same values each time.
struct Same;

impl RandomSource for Same {
    type Error = std::convert::Infallible;

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Self::Error> {
        buffer.fill(7);
        Ok(())
    }

    fn pair(&mut self, names: &[Arc<str>], _: Validity) -> Result<Pair, Self::Error> {
        let pem = |what: &str| format!("-----BEGIN CERTIFICATE-----\n{what} {names:?}\n-----END CERTIFICATE-----\n");
        Ok(Pair { certificate: pem("certificate"), key: pem("key"), authority: pem("authority") })
    }
}
