//! One case: a controller, an object, what a guest returned for it, and what the cluster has. All of it is made of the bytes of
//! an input. Texts are mostly from short lists, so that names and kinds meet; some are any text.

use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Result, Unstructured};
use mortise_core::contract::{
    Action, Child, Condition, ConditionStatus, Generated, GuestEvent, Handling, Outcome, PatchKind, Propagation,
};
use mortise_core::generated::Recipe;
use mortise_core::http::{Method, Request, SecretHeader};
use mortise_core::manifest::{ControllerSpec, Manifest};
use mortise_core::object::{Interner, Kind, Name, Object, ObjectRef};
use serde_json::{Map, Value, json};

use crate::worst::Maker;

const MANIFEST: &str = include_str!("manifest.json");
const UID: &str = "3b1e2c44-0000-4000-8000-000000000001";

/// Kinds that the controllers own, read or write, and one that is none of these.
const KINDS: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("apps/v1", "Deployment"),
    ("v1", "Node"),
    ("example.com/v1", "Note"),
    ("batch/v1", "Job"),
    ("v1", "Service"),
];
const NAMES: [&str; 8] = ["web", "web-0", "a", "b", "A b", "", "x.y", "node-1"];
const NAMESPACES: [&str; 4] = ["default", "team-a", "", "other"];
const FIELDS: [&str; 12] = [
    "spec",
    "data",
    "a",
    "b",
    "stringData",
    "status",
    "metadata",
    "labels",
    "annotations",
    "k.v",
    "tls.key",
    "conditions",
];
const KEYS: [&str; 6] = ["mortise.dev/child", "mortise.dev/plugin", "app", "$patch", "example.com/on", "finalizers"];
const POINTERS: [&str; 12] = [
    "/spec",
    "/spec/a",
    "/spec/a/a",
    "/data/a",
    "/metadata/labels/app",
    "/metadata/labels",
    "/a",
    "/a/-",
    "/a/0",
    "",
    "/metadata/labels/mortise.dev~1plugin",
    "/metadata/finalizers",
];
const OPERATIONS: [&str; 7] = ["add", "remove", "replace", "move", "copy", "test", "other"];
const PATHS: [&str; 6] = ["data", "spec.a", "spec.a.b", "data[\"k.v\"]", "data.a", "metadata.labels"];
const WORDS: [&str; 6] = ["Ready", "Stalled", "Synced", "example.com/Synced", "not a word", "Available"];
const URLS: [&str; 4] = [
    "https://api.example.com/a",
    "https://api.example.com:443/?b=c",
    "http://other.example.com",
    "https://api.example.com",
];
const HEADERS: [&str; 5] = ["accept", "host", "x-a", "idempotency-key", "bad name"];

/// The choices of an object that is neither deleted nor has successors.
const PLAIN: [u8; 8] = [0xfe; 8];

/// The controllers of the manifest.
static CONTROLLERS: LazyLock<Vec<ControllerSpec>> =
    LazyLock::new(|| Manifest::parse(MANIFEST).expect("the manifest of this target is valid").controllers);

#[derive(Debug)]
pub(super) struct Case {
    pub spec: ControllerSpec,
    pub primary: Object,
    pub outcome: Outcome,
    pub live: Vec<Value>,
}

impl Case {
    /// # Errors
    /// The input has too few bytes, or its object cannot be decoded.
    pub(super) fn read(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let spec = bytes.choose(&CONTROLLERS)?.clone();
        let primary = primary(&spec.primary, bytes)?;
        let live = list(bytes, 4, |bytes| live(&primary, bytes))?;
        let outcome = outcome(bytes)?;
        Ok(Self { spec, primary, outcome, live })
    }

    /// One with the content that costs most, in a cluster without objects.
    ///
    /// # Errors
    /// As those of `read`.
    pub(super) fn made(maker: &mut Maker<'_>) -> Result<Self> {
        let spec = CONTROLLERS[maker.up_to(CONTROLLERS.len() - 1)].clone();
        let primary = primary(&spec.primary, &mut Unstructured::new(&PLAIN))?;
        Ok(Self { spec, primary, outcome: made(maker), live: Vec::new() })
    }

    /// The kinds that the cache has.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.spec.readable()
    }
}

/// At most so many items.
fn list<T>(
    bytes: &mut Unstructured<'_>,
    most: u8,
    mut item: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = bytes.int_in_range(0..=most)?;
    (0..count).map(|_| item(bytes)).collect()
}

/// Mostly one of these.
fn text(bytes: &mut Unstructured<'_>, of: &[&'static str]) -> Result<String> {
    if bytes.ratio(1, 16)? { String::arbitrary(bytes) } else { Ok((*bytes.choose(of)?).to_owned()) }
}

fn maybe<T>(bytes: &mut Unstructured<'_>, item: impl FnOnce(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if bool::arbitrary(bytes)? { item(bytes).map(Some) } else { Ok(None) }
}

fn primary(kind: &Kind, bytes: &mut Unstructured<'_>) -> Result<Object> {
    let mut object = json!({
        "apiVersion": &*kind.api_version, "kind": &*kind.kind,
        "metadata": {"name": "web", "namespace": "default", "uid": UID, "resourceVersion": "10", "generation": 2},
    });
    if bytes.ratio(1, 4)? {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if bytes.ratio(1, 3)? {
        object["metadata"]["annotations"] = json!({"mortise.dev/successors": "true"});
    }
    Object::decode(object.to_string().as_bytes(), &mut Interner::default())
        .map_err(|_| arbitrary::Error::IncorrectFormat)
}

/// An object of the cluster: a child, a former child, or one of somebody else.
fn live(primary: &Object, bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut object = object(bytes)?;
    let uid = bytes.int_in_range(1..=99_u8)?;
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(format!("live-{uid}"));
    metadata["resourceVersion"] = json!(uid.to_string());
    if !metadata["name"].is_string() {
        metadata["name"] = json!("a");
    }
    let is_child = bool::arbitrary(bytes)?;
    if is_child {
        metadata["namespace"] = json!("default");
        let key = text(bytes, &NAMES)?;
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"]["mortise.dev/child"] = json!(key);
    }
    let owner = if is_child { &*primary.uid } else { "of-another" };
    if is_child || bool::arbitrary(bytes)? {
        metadata["ownerReferences"] = json!([{
            "apiVersion": &*primary.kind.api_version, "kind": &*primary.kind.kind, "name": "web", "uid": owner,
            "controller": true, "blockOwnerDeletion": true,
        }]);
    }
    if bytes.ratio(1, 4)? {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Ok(object)
}

fn outcome(bytes: &mut Unstructured<'_>) -> Result<Outcome> {
    Ok(Outcome {
        children: maybe(bytes, |bytes| list(bytes, 8, child))?,
        actions: list(bytes, 4, action)?,
        status: maybe(bytes, |bytes| Ok(value(bytes, 4)?.to_string().into()))?,
        conditions: list(bytes, 3, condition)?,
        events: list(bytes, 2, event)?,
        requeue_after_ms: Option::arbitrary(bytes)?,
        finalized: bytes.ratio(1, 8)?,
        requests: list(bytes, 2, request)?,
    })
}

fn made(maker: &mut Maker<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let child = |key: usize, object: String, handling| Child {
        key: format!("{key}").into(),
        object: object.into(),
        handling,
        or_skip: false,
        adopt: false,
        group: 0,
        exact: Vec::new(),
        generated: Vec::new(),
    };
    let members = |maker: &mut Maker<'_>| match maker.up_to(2) {
        0 => format!(r#"{{"spec":{}}}"#, maker.value()),
        1 => maker.members(|number| format!(r#""{number:x}":"""#)),
        _ => maker.value(),
    };
    let mut children = Vec::new();
    for _ in 0..maker.up_to(3) {
        let (api_version, kind) = KINDS[maker.up_to(KINDS.len() - 1)];
        let (data, labels) = (members(maker), maker.members(|number| format!(r#""l{number:x}":"""#)));
        let object = format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"labels":{labels}}},"data":{data},"spec":{data}}}"#
        );
        let handling = [Handling::Managed, Handling::CreateOnce, Handling::Keep][maker.up_to(2)];
        for _ in 0..maker.count(object.len()).min(32) {
            children.push(child(children.len(), object.clone(), handling));
        }
    }
    outcome.children = Some(children);
    outcome.status = (maker.up_to(1) == 1).then(|| members(maker).into());
    let long = "m".repeat(maker.count(1));
    let reason = maker.one(&WORDS).to_owned();
    for number in 0..maker.up_to(40) {
        let (name, message) = (format!("C{number}"), long.clone());
        outcome.conditions.push(Condition { name, status: ConditionStatus::True, reason: reason.clone(), message });
    }
    for _ in 0..maker.up_to(20) {
        let name = Name::new("default", &long);
        let regarding = Some(ObjectRef { kind: Kind::new("v1", "Pod"), name });
        outcome.events.push(GuestEvent { warning: true, reason: reason.clone(), message: long.clone(), regarding });
    }
    for _ in 0..maker.up_to(3) {
        let target = ObjectRef { kind: Kind::new("v1", "Node"), name: Name::new("", "node-1") };
        let (patch_kind, body) = (PatchKind::Merge, members(maker).into());
        outcome.actions.push(Action::Patch { target, patch_kind, body, subresource: None });
    }
    outcome
}

fn child(bytes: &mut Unstructured<'_>) -> Result<Child> {
    let object: Arc<str> = match bytes.ratio(1, 32)? {
        true => String::arbitrary(bytes)?.into(),
        false => object(bytes)?.to_string().into(),
    };
    Ok(Child {
        key: text(bytes, &NAMES)?.into(),
        object,
        handling: *bytes.choose(&[Handling::Managed, Handling::Managed, Handling::CreateOnce, Handling::Keep])?,
        or_skip: bytes.ratio(1, 8)?,
        adopt: bytes.ratio(1, 8)?,
        group: u32::from(bytes.int_in_range(0..=2_u8)?),
        exact: if bytes.ratio(1, 4)? { list(bytes, 3, |bytes| Ok(text(bytes, &PATHS)?.into()))? } else { Vec::new() },
        generated: if bytes.ratio(1, 4)? { list(bytes, 2, generated)? } else { Vec::new() },
    })
}

fn generated(bytes: &mut Unstructured<'_>) -> Result<Generated> {
    let recipe = match bytes.int_in_range(0..=2_u8)? {
        0 => Recipe::Alphanumeric(bytes.int_in_range(0..=40)?),
        1 => Recipe::Bytes(bytes.int_in_range(0..=40)?),
        _ => Recipe::Tls {
            names: list(bytes, 2, |bytes| Ok(text(bytes, &["a.example.com", "10.0.0.1", "*.b"])?.into()))?,
            lifetime_seconds: bytes.arbitrary()?,
        },
    };
    let at = text(bytes, &["data.password", "data", "data[\"k.v\"]", "data.a"])?.into();
    Ok(Generated { at, recipe, rotation: text(bytes, &["", "1"])?.into() })
}

/// An object as a guest writes it, whole or nearly so.
fn object(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let (api_version, kind) = *bytes.choose(&KINDS)?;
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    let mut metadata = Map::new();
    if let Some(name) = maybe(bytes, |bytes| text(bytes, &NAMES))? {
        metadata.insert("name".to_owned(), json!(name));
    }
    if let Some(namespace) = maybe(bytes, |bytes| text(bytes, &NAMESPACES))? {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    for map in ["labels", "annotations"] {
        if bytes.ratio(1, 4)? {
            metadata.insert(map.to_owned(), json!({text(bytes, &KEYS)?: text(bytes, &NAMES)?}));
        }
    }
    if bytes.ratio(1, 16)? {
        metadata.insert(text(bytes, &KEYS)?, value(bytes, 2)?);
    }
    if !metadata.is_empty() {
        object["metadata"] = Value::Object(metadata);
    }
    for _ in 0..bytes.int_in_range(0..=3_u8)? {
        object[text(bytes, &FIELDS)?] = value(bytes, 4)?;
    }
    Ok(object)
}

fn value(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    Ok(match bytes.int_in_range(0..=9_u8)? {
        0 => Value::Null,
        1 => bool::arbitrary(bytes)?.into(),
        2 => i64::arbitrary(bytes)?.into(),
        3 => f64::arbitrary(bytes)?.into(),
        4 | 5 => text(bytes, &NAMES)?.into(),
        6 if depth > 0 => list(bytes, 3, |bytes| value(bytes, depth - 1))?.into(),
        _ if depth > 0 => {
            let member = |bytes: &mut Unstructured<'_>| Ok((text(bytes, &FIELDS)?, value(bytes, depth - 1)?));
            Value::Object(list(bytes, 3, member)?.into_iter().collect())
        }
        _ => json!({}),
    })
}

fn reference(bytes: &mut Unstructured<'_>) -> Result<ObjectRef> {
    let (api_version, kind) = *bytes.choose(&KINDS)?;
    let (namespace, name) = (text(bytes, &NAMESPACES)?, text(bytes, &NAMES)?);
    Ok(ObjectRef { kind: Kind::new(api_version, kind), name: Name::new(&namespace, &name) })
}

fn action(bytes: &mut Unstructured<'_>) -> Result<Action> {
    Ok(match bytes.int_in_range(0..=5_u8)? {
        0 => Action::Apply { object: object(bytes)?.to_string().into(), force: bool::arbitrary(bytes)? },
        1 => Action::Delete {
            target: reference(bytes)?,
            propagation: *bytes.choose(&[Propagation::Background, Propagation::Foreground, Propagation::Orphan])?,
        },
        2 => Action::Evict { target: reference(bytes)? },
        _ => {
            let patch_kind = *bytes.choose(&[PatchKind::Json, PatchKind::Merge, PatchKind::Strategic])?;
            let body = match patch_kind {
                PatchKind::Json => Value::Array(list(bytes, 32, operation)?),
                PatchKind::Merge | PatchKind::Strategic => value(bytes, 4)?,
            };
            let subresource = maybe(bytes, |bytes| text(bytes, &["status", "scale"]))?;
            Action::Patch { target: reference(bytes)?, patch_kind, body: body.to_string().into(), subresource }
        }
    })
}

fn operation(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let (op, path) = (*bytes.choose(&OPERATIONS)?, text(bytes, &POINTERS)?);
    Ok(match op {
        "move" | "copy" => json!({"op": op, "path": path, "from": text(bytes, &POINTERS)?}),
        "remove" => json!({"op": op, "path": path}),
        _ => json!({"op": op, "path": path, "value": value(bytes, 3)?}),
    })
}

fn condition(bytes: &mut Unstructured<'_>) -> Result<Condition> {
    let status = *bytes.choose(&[ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown])?;
    let (name, reason, message) = (text(bytes, &WORDS)?, text(bytes, &WORDS)?, text(bytes, &NAMES)?);
    Ok(Condition { name, status, reason, message })
}

fn event(bytes: &mut Unstructured<'_>) -> Result<GuestEvent> {
    let (warning, reason, message) = (bool::arbitrary(bytes)?, text(bytes, &WORDS)?, text(bytes, &NAMES)?);
    Ok(GuestEvent { warning, reason, message, regarding: maybe(bytes, reference)? })
}

fn request(bytes: &mut Unstructured<'_>) -> Result<Request> {
    let header = |bytes: &mut Unstructured<'_>| Ok((text(bytes, &HEADERS)?.into(), text(bytes, &NAMES)?.into()));
    let secret_header = |bytes: &mut Unstructured<'_>| {
        let (name, secret) = (text(bytes, &HEADERS)?.into(), text(bytes, &["token", "other"])?.into());
        Ok(SecretHeader { name, prefix: "Bearer ".into(), secret, key: text(bytes, &NAMES)?.into() })
    };
    Ok(Request {
        method: *bytes.choose(&Method::ALL)?,
        headers: list(bytes, 2, header)?,
        secret_headers: list(bytes, 1, secret_header)?,
        body: Vec::<u8>::arbitrary(bytes)?.into(),
        timeout_ms: Option::arbitrary(bytes)?,
        refresh_after_ms: Option::arbitrary(bytes)?,
        ..Request::get(text(bytes, &NAMES)?, text(bytes, &URLS)?)
    })
}
