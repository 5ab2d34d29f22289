//! Performs one write or one live read. A [`Write`] comes in; the object's UID and version, or a classified error, come out.
//! Nothing is retried here (X8).

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use kube::client::Body;
use mortise_core::contract::{PatchKind, Propagation};
use mortise_core::limits::WRITE_TIMEOUT_MS;
use mortise_core::object::{Interner, Kind, Name, Object, ObjectRef, ResourceVersion};
use mortise_core::write::{Precondition, Write, WriteError, WriteErrorClass, WriteOp, Written};
use serde::Deserialize;

use crate::client::{ApiServer, NOT_FOUND, READ_TIMEOUT, Response, request};
use crate::clock;
use crate::discovery::escape;
use crate::failure::{Failure, Refused};

/// The host's deadline for a write.
const WRITE_TIMEOUT: Duration = Duration::from_millis(WRITE_TIMEOUT_MS);
/// The API server's deadline for a write, in seconds. It is shorter than the host's, so that a write which the host gave up on
/// is not applied later.
pub(crate) const SERVER_TIMEOUT_SECONDS: u64 = 9;
const _: () = assert!(SERVER_TIMEOUT_SECONDS * 1_000 < WRITE_TIMEOUT_MS);
/// The API server's limit for the name of a field manager.
const MAX_MANAGER_CHARS: usize = 128;

/// 409.
pub(crate) const CONFLICT: u16 = 409;
/// 422.
const UNPROCESSABLE: u16 = 422;

/// The error of a write without a claim.
const UNCLAIMED: &str = "not sent: this host does not lead, or could not renew its Lease in time";
/// The error of a write in flight when its claim ended, as after a stop of this process.
const CLAIM_ENDED: &str = "given up: this host's claim to write ended before the response came";

const JSON: &str = "application/json";
/// JSON is YAML, and every supported API server accepts this type.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What is read of a response: a Status when an object is deleted at once, else the object.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    details: Option<Details<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

impl ApiServer {
    /// Sends a write and waits for its response, ten seconds at most. Writes beyond those that may be in flight wait for a
    /// permit; the caller bounds how many wait.
    pub async fn execute(&self, write: &Write) -> Result<Written, WriteError> {
        match self.send_write(write).await {
            Ok(written) => Ok(written),
            Err(failure) => {
                self.forget_if_gone(&write.op, &failure);
                let hides_message = may_repeat_object(&write.op, &failure);
                Err(if hides_message { failure.into_summary() } else { failure.into_write_error() })
            }
        }
    }

    /// Reads one object from the API server's newest state; None when it does not exist. Reads beyond those that may be in
    /// flight wait for a permit; the caller bounds how many wait.
    pub async fn read_live(&self, target: &ObjectRef) -> Result<Option<Arc<Object>>, WriteError> {
        match self.get_live(target).await {
            // Interning would save nothing for one object.
            Ok(response) => match Object::decode_as(&target.kind, &response.body, &mut Interner::default()) {
                Ok(object) => Ok(Some(Arc::new(object))),
                Err(error) => Err(WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            },
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    /// A Secret as it is, with the values that the host has made and no [`Object`] shows (G8); None when it does not exist.
    pub async fn read_secret(&self, name: &Name) -> Result<Option<serde_json::Value>, WriteError> {
        let target = ObjectRef { kind: Kind::new("v1", "Secret"), name: name.clone() };
        match self.get_live(&target).await {
            Ok(response) => match serde_json::from_slice(&response.body) {
                Ok(secret) => Ok(Some(secret)),
                Err(error) => Err(WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            },
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    /// Waits for a permit and reads one object.
    pub(crate) async fn get_live(&self, target: &ObjectRef) -> Result<Response, Failure> {
        let path = self.resource(&target.kind).await?.object(&target.name)?;
        let _permit = self.live_reads().enter(target.kind.clone()).await;
        self.get(&path, READ_TIMEOUT).await
    }

    async fn send_write(&self, write: &Write) -> Result<Written, Failure> {
        let manager = field_manager(write)?;
        let target = write.op.target();
        let resource = self.resource(&target.kind).await?;
        let query = |more: &str| format!("fieldManager={manager}&timeout={SERVER_TIMEOUT_SECONDS}s{more}");
        // kubectl's default: a field that the schema does not have is an error instead of being dropped.
        let strict = "&fieldValidation=Strict";
        let body = |text: &Arc<str>| Bytes::copy_from_slice(text.as_bytes());
        let request = match &write.op {
            WriteOp::Create { target, body: text } => {
                let path = format!("{}?{}", resource.collection_of(&target.name)?, query(strict));
                request(Method::POST, &path, Some(JSON), body(text))
            }
            WriteOp::Apply { target, body: text, force, only_if, draws } => {
                let path = format!("{}?{}", resource.object(&target.name)?, query(&format!("&force={force}{strict}")));
                let text = match draws {
                    Some(draws) => &self.with_generated(target, text, only_if, draws).await?,
                    None => text,
                };
                request(Method::PATCH, &path, Some(APPLY), conditioned(text, only_if)?)
            }
            WriteOp::PatchStatus { target, body: text } => {
                let path = format!("{}/status?{}", resource.object(&target.name)?, query(""));
                request(Method::PATCH, &path, Some(MERGE), body(text))
            }
            WriteOp::Patch { target, patch_kind, body: text, subresource, only_if } => {
                let subresource = subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
                let path = format!("{}{subresource}?{}", resource.object(&target.name)?, query(strict));
                request(
                    Method::PATCH,
                    &path,
                    Some(media_type(*patch_kind)),
                    conditioned_patch(text, *patch_kind, only_if)?,
                )
            }
            WriteOp::Delete { target, uid, propagation } => {
                let path = format!("{}?timeout={SERVER_TIMEOUT_SECONDS}s", resource.object(&target.name)?);
                request(Method::DELETE, &path, Some(JSON), Bytes::from(delete_options(uid, *propagation)))
            }
            WriteOp::Evict { target, uid } => {
                let path = format!("{}/eviction?{}", resource.object(&target.name)?, query(""));
                request(Method::POST, &path, Some(JSON), Bytes::from(eviction(target, uid)))
            }
        }?;
        self.sent(request, write).await
    }

    /// Sends the request of a write, and reads its response.
    async fn sent(&self, request: Request<Body>, write: &Write) -> Result<Written, Failure> {
        match (self.send_while_claimed(request, write.plugin.clone(), write.not_after_ms).await, &write.op) {
            (Ok(response), _) => written(&response.body),
            (Err(Failure::Response(refused)), WriteOp::Delete { .. } | WriteOp::Evict { .. })
                if refused.code == NOT_FOUND && refused.names_object =>
            {
                Ok(Written { uid: "".into(), resource_version: ResourceVersion(0) })
            }
            // Only an object that exists conflicts with an apply that must create it.
            (Err(Failure::Response(refused)), WriteOp::Apply { only_if: Precondition::Absent, .. })
                if refused.code == CONFLICT =>
            {
                let reason = "AlreadyExists".to_owned();
                Err(Failure::Response(Refused { reason, field_conflict: false, ..refused }))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// X7: sends a request that changes something, for a plugin or for the host itself. It is not sent after `not_after_ms`,
    /// however long it waited for its permit or this process was stopped, and given up when the claim ends, which is the
    /// timeout of a write later.
    ///
    /// Each poll of the request checks the clock: before a connection is requested, and after each step of opening one.
    /// Between the last check and the bytes in the socket there is no waiting. A process that is stopped just there for longer
    /// than its claim sends one write late; only the UIDs and versions in every write protect against that, since an API
    /// server does not know who leads.
    pub(crate) async fn send_while_claimed(
        &self,
        request: Request<Body>,
        plugin: Option<Arc<str>>,
        not_after_ms: Option<u64>,
    ) -> Result<Response, Failure> {
        let _permit = self.writes().enter(plugin).await;
        let Some(not_after_ms) = not_after_ms else { return self.send(request, WRITE_TIMEOUT).await };
        if clock::now_ms() > not_after_ms {
            return Err(Failure::NotSent(UNCLAIMED.to_owned()));
        }
        let claim_ends_ms = not_after_ms.saturating_add(WRITE_TIMEOUT_MS);
        let mut sending = pin!(self.send(request, WRITE_TIMEOUT));
        poll_fn(|context| {
            if clock::now_ms() > claim_ends_ms {
                return Poll::Ready(Err(Failure::Lost(CLAIM_ENDED.to_owned())));
            }
            sending.as_mut().poll(context)
        })
        .await
    }

    /// A 404 that names no object is about the path: the kind is no longer served there.
    fn forget_if_gone(&self, op: &WriteOp, failure: &Failure) {
        if let Failure::Response(refused) = failure
            && refused.code == NOT_FOUND
            && !refused.names_object
        {
            self.discovery().forget(&op.target().kind.api_version);
        }
    }
}

/// Whether the message of an error response may have what a plugin does not see. That of a patch that does not fit has the
/// patched object, whose kind the plugin may not read (G4); that of any write of a Secret may have its values (G8).
fn may_repeat_object(op: &WriteOp, failure: &Failure) -> bool {
    let is_unfit = matches!(failure, Failure::Response(refused) if refused.code == UNPROCESSABLE);
    op.target().kind.is_secret() || (is_unfit && matches!(op, WriteOp::Patch { .. }))
}

/// The field manager as a query's value. The API server's rules are checked here, because its error for an invalid name would
/// look like a fault of the object.
fn field_manager(write: &Write) -> Result<String, Failure> {
    let manager = write.manager();
    let printable = manager.chars().all(|char| !char.is_control());
    if manager.chars().count() > MAX_MANAGER_CHARS || !printable {
        return Err(Failure::Invalid(format!(
            "the field manager {manager:?} must be printable and have at most {MAX_MANAGER_CHARS} characters; give the \
             plugin a shorter name"
        )));
    }
    Ok(escape(&manager))
}

/// The body of an apply or a patch with its precondition in the metadata. The API server creates an absent object whatever
/// resourceVersion the body has, and does not change an existing one that has another version. No object has version 1, so
/// that one means "only if absent".
fn conditioned(text: &Arc<str>, only_if: &Precondition) -> Result<Bytes, Failure> {
    let (uid, version) = match only_if {
        Precondition::None => return Ok(Bytes::copy_from_slice(text.as_bytes())),
        Precondition::Absent => (None, Some("1".to_owned())),
        Precondition::Is(uid) => (Some(uid), None),
        Precondition::Unchanged { uid, version } => (Some(uid), Some(version.0.to_string())),
    };
    let mut body: serde_json::Value =
        serde_json::from_str(text).map_err(|error| Failure::Invalid(format!("the object to write: {error}")))?;
    if let Some(uid) = uid {
        body["metadata"]["uid"] = (**uid).into();
    }
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = version.into();
    }
    Ok(body.to_string().into())
}

fn media_type(patch_kind: PatchKind) -> &'static str {
    match patch_kind {
        PatchKind::Merge => MERGE,
        PatchKind::Json => JSON_PATCH,
        PatchKind::Strategic => STRATEGIC,
    }
}

/// A patch with its precondition: the UID is in the metadata of the patch, or its first operation tests it.
fn conditioned_patch(text: &Arc<str>, patch_kind: PatchKind, only_if: &Precondition) -> Result<Bytes, Failure> {
    match (only_if, patch_kind) {
        (Precondition::Is(uid) | Precondition::Unchanged { uid, .. }, PatchKind::Json) => {
            let mut operations: Vec<serde_json::Value> =
                serde_json::from_str(text).map_err(|error| Failure::Invalid(format!("the JSON patch: {error}")))?;
            operations.insert(0, serde_json::json!({"op": "test", "path": "/metadata/uid", "value": &**uid}));
            Ok(serde_json::Value::Array(operations).to_string().into())
        }
        (Precondition::Is(_) | Precondition::Unchanged { .. }, _) => conditioned(text, only_if),
        // A patch never creates.
        (Precondition::Absent | Precondition::None, _) => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

fn delete_options(uid: &str, propagation: Propagation) -> String {
    let propagation = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    serde_json::json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": {"uid": uid}, "propagationPolicy": propagation,
    })
    .to_string()
}

fn eviction(pod: &ObjectRef, uid: &str) -> String {
    serde_json::json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"namespace": &*pod.name.namespace, "name": &*pod.name.name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
    .to_string()
}

/// UID and version of the written object. The Status after a delete has no version; the watch will show it.
fn written(body: &[u8]) -> Result<Written, Failure> {
    let unreadable =
        |why: &str| Failure::Lost(format!("the write was accepted, but the response cannot be read: {why}"));
    let head: Head<'_> = serde_json::from_slice(body).map_err(|error| unreadable(&error.to_string()))?;
    if head.kind == "Status" {
        let uid = head.details.map(|details| details.uid).unwrap_or_default();
        return Ok(Written { uid: (&*uid).into(), resource_version: ResourceVersion(0) });
    }
    let metadata = head.metadata.ok_or_else(|| unreadable("it has no metadata"))?;
    let version = metadata.resource_version.parse().map_err(|_| {
        unreadable(&format!("metadata.resourceVersion {:?} is not a decimal number", metadata.resource_version))
    })?;
    Ok(Written { uid: (&*metadata.uid).into(), resource_version: ResourceVersion(version) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use mortise_core::crd::CrdError;
    use mortise_core::generated::Draws;
    use mortise_core::write::WriteId;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::testing::serve;

    fn write(plugin: Option<&str>) -> Write {
        let target = ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("ns", "a") };
        Write {
            id: WriteId(1),
            plugin: plugin.map(Into::into),
            cause: None,
            op: WriteOp::Delete { target, uid: "u".into(), propagation: Propagation::Background },
            not_after_ms: None,
        }
    }

    #[test]
    fn responses_have_uid_and_version_and_a_status_has_the_uid() {
        let object = br#"{"kind":"Pod","metadata":{"name":"a","uid":"u-1","resourceVersion":"12"},"spec":{}}"#;
        let status = br#"{"kind":"Status","metadata":{},"status":"Success","details":{"name":"a","uid":"u-1"}}"#;
        let of = |uid: &str, version| Written { uid: uid.into(), resource_version: ResourceVersion(version) };
        assert_eq!(written(object), Ok(of("u-1", 12)));
        assert_eq!(written(status), Ok(of("u-1", 0)));
        for broken in [&b"{"[..], b"{}", br#"{"metadata":{"resourceVersion":"x"}}"#] {
            assert!(matches!(written(broken), Err(Failure::Lost(_))), "the write happened, so it is not refused");
        }
    }

    const PODS_AND_NODES: &str = r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true},
        {"name":"nodes","kind":"Node","namespaced":false}]}"#;

    /// An API server that accepts every write, and the number of writes.
    async fn accepting() -> (ApiServer, Arc<AtomicUsize>) {
        let writes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&writes);
        let api = serve(move |request| {
            if request.method != "GET" {
                count.fetch_add(1, Ordering::SeqCst);
                return ("200 OK", r#"{"kind":"Status","status":"Success","details":{"uid":"u"}}"#.to_owned());
            }
            match &*request.path {
                "/api/v1" => ("200 OK", PODS_AND_NODES.to_owned()),
                _ => ("404 Not Found", r#"{"kind":"Status","code":404,"details":{"name":"x"}}"#.to_owned()),
            }
        });
        (api.await, writes)
    }

    #[tokio::test]
    async fn x7_a_write_is_sent_while_the_claim_outlasts_it_and_no_later() {
        let (api, writes) = accepting().await;
        let with = |not_after_ms| Write { not_after_ms, ..write(Some("podset")) };
        for not_after_ms in [Some(0), Some(clock::now_ms() - 1)] {
            let error = api.execute(&with(not_after_ms)).await.unwrap_err();
            assert_eq!(error.class, WriteErrorClass::Unavailable, "it did not happen");
            assert!(error.message.contains("does not lead"), "{}", error.message);
        }
        assert_eq!(writes.load(Ordering::SeqCst), 0);
        for not_after_ms in [None, Some(clock::now_ms() + 5_000)] {
            api.execute(&with(not_after_ms)).await.unwrap();
        }
        assert_eq!(writes.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn x7_a_write_that_waited_for_its_permit_for_too_long_is_not_sent() {
        let (api, writes) = accepting().await;
        let plugin: Arc<str> = "podset".into();
        // Writes that hang hold every permit of the plugin.
        let mut permits = Vec::new();
        while let Some(permit) = api.writes().enter(Some(Arc::clone(&plugin))).now_or_never() {
            permits.push(permit);
        }
        let not_after_ms = clock::now_ms() + 100;
        let waiting = Write { not_after_ms: Some(not_after_ms), ..write(Some("podset")) };
        let api = api.clone();
        let executed = tokio::spawn(async move { api.execute(&waiting).await });
        while clock::now_ms() <= not_after_ms {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(!executed.is_finished(), "it waits for its permit");
        drop(permits);
        let error = timeout(Duration::from_secs(30), executed).await.unwrap().unwrap().unwrap_err();
        assert_eq!((error.class, writes.load(Ordering::SeqCst)), (WriteErrorClass::Unavailable, 0));
    }

    #[tokio::test]
    async fn live_reads_of_a_kind_wait_for_a_permit_and_those_of_another_do_not() {
        let (api, _) = accepting().await;
        let [pod, node] =
            ["Pod", "Node"].map(|kind| ObjectRef { kind: Kind::new("v1", kind), name: Name::new("", "a") });
        let pod = ObjectRef { name: Name::new("ns", "a"), ..pod };
        let mut permits = Vec::new();
        while let Some(permit) = api.live_reads().enter(pod.kind.clone()).now_or_never() {
            permits.push(permit);
        }
        let reading = {
            let (api, pod) = (api.clone(), pod.clone());
            tokio::spawn(async move { api.read_live(&pod).await })
        };
        // A write that needs what is live reads as others do.
        let completing = {
            let (api, draws) = (api.clone(), Draws { wanted: Arc::default(), now_unix_ms: 0 });
            tokio::spawn(async move { api.with_generated(&pod, "{}", &Precondition::Is("u".into()), &draws).await })
        };
        assert!(matches!(timeout(Duration::from_secs(30), api.read_live(&node)).await.unwrap(), Ok(None)));
        assert!(!reading.is_finished() && !completing.is_finished(), "they wait for a permit");
        drop(permits);
        assert!(matches!(timeout(Duration::from_secs(30), reading).await.unwrap().unwrap(), Ok(None)));
        assert!(timeout(Duration::from_secs(30), completing).await.unwrap().unwrap().is_err(), "it does not exist");
    }

    /// A refusal as the API server words it: the message has the whole patched object.
    fn unfit(reason: &str, code: u16, value: &str) -> String {
        let object = format!("{{\"data\":{{\"a\":\"{}\"}}}}", value.repeat(100));
        let message = format!(" \"\" is invalid: patch: Invalid value: {object:?}: cannot unmarshal string");
        let causes = [serde_json::json!({"reason": "FieldValueInvalid", "message": message, "field": "patch"})];
        let details = serde_json::json!({"causes": causes});
        serde_json::json!({"kind": "Status", "reason": reason, "code": code, "message": message, "details": details})
            .to_string()
    }

    #[tokio::test]
    async fn g8_a_message_repeats_no_value() {
        const KINDS: &str = r#"{"resources":[{"name":"secrets","kind":"Secret","namespaced":true},
            {"name":"configmaps","kind":"ConfigMap","namespaced":true}]}"#;
        const VALUE: &str = "c2VjcmV0IHZhbHVlIQ==";
        let api = serve(|request| match (&*request.method, &*request.path) {
            ("GET", "/api/v1") => ("200 OK", KINDS.to_owned()),
            // The names of objects choose the refusal.
            (_, path) if path.contains("/bad") => ("400 Bad Request", unfit("BadRequest", 400, VALUE)),
            _ => ("422 Unprocessable Entity", unfit("Invalid", 422, VALUE)),
        })
        .await;
        let refusal = async |kind: &str, name: &str, op: &dyn Fn(ObjectRef) -> WriteOp| {
            let target = ObjectRef { kind: Kind::new("v1", kind), name: Name::new("ns", name) };
            let error = api.execute(&Write { op: op(target), ..write(Some("p")) }).await.unwrap_err();
            assert_eq!(error.class, WriteErrorClass::Invalid);
            error.message
        };
        let patch = |patch_kind| {
            move |target| {
                let body: Arc<str> = if patch_kind == PatchKind::Json { "[]" } else { "{}" }.into();
                WriteOp::Patch { target, patch_kind, body, subresource: None, only_if: Precondition::None }
            }
        };
        let invalid =
            "Invalid: patch (FieldValueInvalid); the API server's message is not shown, since it may repeat the object";
        for kind in ["Secret", "ConfigMap"] {
            for patch_kind in [PatchKind::Merge, PatchKind::Json, PatchKind::Strategic] {
                assert_eq!(refusal(kind, "a", &patch(patch_kind)).await, invalid);
            }
        }
        let create = |target| WriteOp::Create { target, body: "{}".into() };
        let apply = |target| WriteOp::Apply {
            target,
            body: "{}".into(),
            force: true,
            only_if: Precondition::None,
            draws: None,
        };
        for op in [&patch(PatchKind::Merge) as &dyn Fn(ObjectRef) -> WriteOp, &apply] {
            assert!(!refusal("Secret", "bad", op).await.contains(&VALUE[..4]), "whatever the refusal");
        }
        assert_eq!(refusal("Secret", "a", &create).await, invalid);
        assert!(refusal("ConfigMap", "a", &create).await.contains("cannot unmarshal"), "a child's own object");
    }

    #[tokio::test]
    async fn x7_without_a_claim_a_crd_is_read_and_not_written() {
        let (api, writes) = accepting().await;
        let crd = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
                     "versions": [{"name": "v1", "served": true, "storage": true}]},
        });
        let error = api.register_crd(&crd.to_string(), Some(0)).await.unwrap_err();
        let CrdError::Unavailable(message) = error else { panic!("{error:?}") };
        assert!(message.contains("webs.example.com") && message.contains("does not lead"), "{message}");
        assert_eq!(writes.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn invalid_field_managers_are_refused_before_the_request() {
        assert_eq!(field_manager(&write(Some("podset"))).unwrap(), "mortise%2Fpodset");
        assert_eq!(field_manager(&write(None)).unwrap(), "mortise");
        assert!(field_manager(&write(Some(&"x".repeat(121)))).is_err());
        assert!(field_manager(&write(Some("a\nb"))).is_err());
    }
}
