//! Performs one write, or one live read, and says what the API server made of it. A [`Write`] comes in; the object's UID
//! and version, or a classified error, go out. Nothing is tried twice here (X8).

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
use mortise_core::object::{Interner, Object, ObjectRef, ResourceVersion};
use mortise_core::write::{Precondition, Write, WriteError, WriteErrorClass, WriteOp, Written};
use serde::Deserialize;

use crate::client::{Answer, ApiServer, NOT_FOUND, READ_TIMEOUT, request};
use crate::clock;
use crate::discovery::escape;
use crate::failure::{Failure, Refused};

/// Longest a write may take as the host sees it.
const WRITE_TIMEOUT: Duration = Duration::from_millis(WRITE_TIMEOUT_MS);
/// The deadline that the API server is given, in seconds. It is shorter than the host's, so that a write which the host
/// has given up on does not land later.
pub(crate) const SERVER_TIMEOUT_SECONDS: u64 = 9;
const _: () = assert!(SERVER_TIMEOUT_SECONDS * 1_000 < WRITE_TIMEOUT_MS);
/// The API server's limit for the name of a field manager.
const MAX_MANAGER_CHARS: usize = 128;

/// 409.
const CONFLICT: u16 = 409;

/// What is said of a write that stayed here.
const UNCLAIMED: &str = "not sent: this host stands by, or could not renew its Lease in time";
/// What is said of a write that was under way when this process was stopped.
const CLAIM_ENDED: &str = "given up: this host's claim to write ended before the answer came";

const JSON: &str = "application/json";
/// JSON is YAML, so an apply body in JSON goes under the type that every supported API server knows.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What is read of an answer: a Status when an object is gone at once, else the object.
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
    /// Sends a write and waits for its answer, ten seconds at most. Writes beyond those that may be in flight wait for a
    /// permit; how many wait is the caller's to bound.
    pub async fn execute(&self, write: &Write) -> Result<Written, WriteError> {
        match self.send_write(write).await {
            Ok(written) => Ok(written),
            Err(failure) => {
                self.forget_if_gone(&write.op, &failure);
                Err(failure.into_write_error())
            }
        }
    }

    /// Reads one object from the API server's newest state; None when there is none. Reads beyond those that may be in
    /// flight wait for a permit; how many wait is the caller's to bound.
    pub async fn read_live(&self, target: &ObjectRef) -> Result<Option<Arc<Object>>, WriteError> {
        let read = async {
            let path = self.resource(&target.kind).await?.object(&target.name)?;
            let _permit = self.live_reads().enter(target.kind.clone()).await;
            self.get(&path, READ_TIMEOUT).await
        };
        match read.await {
            // Interning would save nothing for one object.
            Ok(answer) => match Object::decode_as(&target.kind, &answer.body, &mut Interner::default()) {
                Ok(object) => Ok(Some(Arc::new(object))),
                Err(error) => Err(WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            },
            Err(Failure::Answered(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    async fn send_write(&self, write: &Write) -> Result<Written, Failure> {
        let manager = field_manager(write)?;
        let target = write.op.target();
        let resource = self.resource(&target.kind).await?;
        let query = |more: &str| format!("fieldManager={manager}&timeout={SERVER_TIMEOUT_SECONDS}s{more}");
        // kubectl's own default: a field that the API server does not know is an error, not a silent loss.
        let strict = "&fieldValidation=Strict";
        let body = |text: &Arc<str>| Bytes::copy_from_slice(text.as_bytes());
        let request = match &write.op {
            WriteOp::Create { target, body: text } => {
                let path = format!("{}?{}", resource.collection_of(&target.name)?, query(strict));
                request(Method::POST, &path, Some(JSON), body(text))
            }
            WriteOp::Apply { target, body: text, force, only_if } => {
                let path = format!("{}?{}", resource.object(&target.name)?, query(&format!("&force={force}{strict}")));
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
        match (self.ask_while_claimed(request, write.plugin.clone(), write.not_after_ms).await, &write.op) {
            (Ok(answer), _) => written(&answer.body),
            (Err(Failure::Answered(refused)), WriteOp::Delete { .. } | WriteOp::Evict { .. })
                if refused.code == NOT_FOUND && refused.names_object =>
            {
                Ok(Written { uid: "".into(), resource_version: ResourceVersion(0) })
            }
            // What is to be absent has fields of nobody's, so whatever conflicts is an object that is there.
            (Err(Failure::Answered(refused)), WriteOp::Apply { only_if: Precondition::Absent, .. })
                if refused.code == CONFLICT =>
            {
                let reason = "AlreadyExists".to_owned();
                Err(Failure::Answered(Refused { reason, field_conflict: false, ..refused }))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// X7: any request that changes something, for a plugin or for the host itself. It is sent until `not_after_ms` and no
    /// later, however long it has waited for its permit or this process was stopped, and given up before the claim ends, which
    /// is a write's time later.
    ///
    /// The clock is looked at each time that the request is gone on with: before the connection for it is asked for, and again
    /// after each step of a new one. Between the last look and the bytes in the socket there are some instructions and no
    /// waiting. A process that is stopped just there for longer than its claim sends one write late; against that there are
    /// only the UIDs and versions in every write, as no API server knows who leads.
    pub(crate) async fn ask_while_claimed(
        &self,
        request: Request<Body>,
        plugin: Option<Arc<str>>,
        not_after_ms: Option<u64>,
    ) -> Result<Answer, Failure> {
        let _permit = self.writes().enter(plugin).await;
        let Some(not_after_ms) = not_after_ms else { return self.ask(request, WRITE_TIMEOUT).await };
        if clock::now_ms() > not_after_ms {
            return Err(Failure::NotSent(UNCLAIMED.to_owned()));
        }
        let claim_ends_ms = not_after_ms.saturating_add(WRITE_TIMEOUT_MS);
        let mut asked = pin!(self.ask(request, WRITE_TIMEOUT));
        poll_fn(|context| {
            if clock::now_ms() > claim_ends_ms {
                return Poll::Ready(Err(Failure::Lost(CLAIM_ENDED.to_owned())));
            }
            asked.as_mut().poll(context)
        })
        .await
    }

    /// A 404 that names no object is about the path: the kind went away, or moved.
    fn forget_if_gone(&self, op: &WriteOp, failure: &Failure) {
        if let Failure::Answered(refused) = failure
            && refused.code == NOT_FOUND
            && !refused.names_object
        {
            self.discovery().forget(&op.target().kind.api_version);
        }
    }
}

/// The field manager as a query's value; the API server's rules are checked here, because its answer to a name that
/// breaks them would look like a fault of the object.
fn field_manager(write: &Write) -> Result<String, Failure> {
    let manager = write.manager();
    let printable = manager.chars().all(|char| !char.is_control());
    if manager.chars().count() > MAX_MANAGER_CHARS || !printable {
        return Err(Failure::Invalid(format!(
            "the field manager {manager:?} has to be printable and of at most {MAX_MANAGER_CHARS} characters; \
             give the plugin a shorter name"
        )));
    }
    Ok(escape(&manager))
}

/// The body of an apply or a patch with its precondition in the metadata. An API server creates what is not there whatever
/// resourceVersion the body names, and refuses to change what is there when it has another one; no object has the first
/// version of all, so that one says "only if there is none".
fn conditioned(text: &Arc<str>, only_if: &Precondition) -> Result<Bytes, Failure> {
    let (field, value) = match only_if {
        Precondition::None => return Ok(Bytes::copy_from_slice(text.as_bytes())),
        Precondition::Absent => ("resourceVersion", "1"),
        Precondition::Is(uid) => ("uid", &**uid),
    };
    let mut body: serde_json::Value =
        serde_json::from_str(text).map_err(|error| Failure::Invalid(format!("the object to write: {error}")))?;
    body["metadata"][field] = value.into();
    Ok(body.to_string().into())
}

/// How the API server is told what a patch is.
fn media_type(patch_kind: PatchKind) -> &'static str {
    match patch_kind {
        PatchKind::Merge => MERGE,
        PatchKind::Json => JSON_PATCH,
        PatchKind::Strategic => STRATEGIC,
    }
}

/// A patch with its precondition: the UID stands in the metadata that it changes, or is tested by its first operation.
fn conditioned_patch(text: &Arc<str>, patch_kind: PatchKind, only_if: &Precondition) -> Result<Bytes, Failure> {
    match (only_if, patch_kind) {
        (Precondition::Is(uid), PatchKind::Json) => {
            let mut operations: Vec<serde_json::Value> =
                serde_json::from_str(text).map_err(|error| Failure::Invalid(format!("the JSON patch: {error}")))?;
            operations.insert(0, serde_json::json!({"op": "test", "path": "/metadata/uid", "value": &**uid}));
            Ok(serde_json::Value::Array(operations).to_string().into())
        }
        (Precondition::Is(_), _) => conditioned(text, only_if),
        // A patch creates nothing, so there is nothing to be said of what is absent.
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

/// UID and version of what was written. The Status that answers a delete has no version: the watch will tell it.
fn written(body: &[u8]) -> Result<Written, Failure> {
    let unreadable = |why: &str| Failure::Lost(format!("the write was accepted, but its answer cannot be read: {why}"));
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
    use mortise_core::object::{Kind, Name};
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
    fn answers_give_uid_and_version_and_a_status_gives_the_uid() {
        let object = br#"{"kind":"Pod","metadata":{"name":"a","uid":"u-1","resourceVersion":"12"},"spec":{}}"#;
        let status = br#"{"kind":"Status","metadata":{},"status":"Success","details":{"name":"a","uid":"u-1"}}"#;
        let answer = |uid: &str, version| Written { uid: uid.into(), resource_version: ResourceVersion(version) };
        assert_eq!(written(object), Ok(answer("u-1", 12)));
        assert_eq!(written(status), Ok(answer("u-1", 0)));
        for broken in [&b"{"[..], b"{}", br#"{"metadata":{"resourceVersion":"x"}}"#] {
            assert!(matches!(written(broken), Err(Failure::Lost(_))), "the write happened, so it is not refused");
        }
    }

    const PODS_AND_NODES: &str = r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true},
        {"name":"nodes","kind":"Node","namespaced":false}]}"#;

    /// An API server that takes everything and counts what it was asked to change.
    async fn willing() -> (ApiServer, Arc<AtomicUsize>) {
        let writes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&writes);
        let api = serve(move |asked| {
            if asked.method != "GET" {
                count.fetch_add(1, Ordering::SeqCst);
                return ("200 OK", r#"{"kind":"Status","status":"Success","details":{"uid":"u"}}"#.to_owned());
            }
            match &*asked.path {
                "/api/v1" => ("200 OK", PODS_AND_NODES.to_owned()),
                _ => ("404 Not Found", r#"{"kind":"Status","code":404,"details":{"name":"x"}}"#.to_owned()),
            }
        });
        (api.await, writes)
    }

    #[tokio::test]
    async fn x7_a_write_leaves_while_the_claim_has_room_for_it_and_no_later() {
        let (api, writes) = willing().await;
        let with = |not_after_ms| Write { not_after_ms, ..write(Some("podset")) };
        for not_after_ms in [Some(0), Some(clock::now_ms() - 1)] {
            let error = api.execute(&with(not_after_ms)).await.unwrap_err();
            assert_eq!(error.class, WriteErrorClass::Unavailable, "it did not happen");
            assert!(error.message.contains("stands by"), "{}", error.message);
        }
        assert_eq!(writes.load(Ordering::SeqCst), 0);
        for not_after_ms in [None, Some(clock::now_ms() + 5_000)] {
            api.execute(&with(not_after_ms)).await.unwrap();
        }
        assert_eq!(writes.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn x7_a_write_that_has_waited_for_its_permit_until_the_claim_was_short_is_not_sent() {
        let (api, writes) = willing().await;
        let plugin: Arc<str> = "podset".into();
        // Every permit that it may have is taken, by writes that hang.
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
        let (api, _) = willing().await;
        let [pod, node] =
            ["Pod", "Node"].map(|kind| ObjectRef { kind: Kind::new("v1", kind), name: Name::new("", "a") });
        let pod = ObjectRef { name: Name::new("ns", "a"), ..pod };
        let mut permits = Vec::new();
        while let Some(permit) = api.live_reads().enter(pod.kind.clone()).now_or_never() {
            permits.push(permit);
        }
        let reading = {
            let api = api.clone();
            tokio::spawn(async move { api.read_live(&pod).await })
        };
        assert!(matches!(timeout(Duration::from_secs(30), api.read_live(&node)).await.unwrap(), Ok(None)));
        assert!(!reading.is_finished(), "it waits for a permit");
        drop(permits);
        assert!(matches!(timeout(Duration::from_secs(30), reading).await.unwrap().unwrap(), Ok(None)));
    }

    #[tokio::test]
    async fn x7_a_crd_is_looked_at_without_a_claim_and_not_written() {
        let (api, writes) = willing().await;
        let crd = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webs.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
                     "versions": [{"name": "v1", "served": true, "storage": true}]},
        });
        let error = api.register_crd(&crd.to_string(), Some(0)).await.unwrap_err();
        let CrdError::Unavailable(message) = error else { panic!("{error:?}") };
        assert!(message.contains("webs.example.com") && message.contains("stands by"), "{message}");
        assert_eq!(writes.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn field_managers_that_the_api_server_would_refuse_are_refused_here() {
        assert_eq!(field_manager(&write(Some("podset"))).unwrap(), "mortise%2Fpodset");
        assert_eq!(field_manager(&write(None)).unwrap(), "mortise");
        assert!(field_manager(&write(Some(&"x".repeat(121)))).is_err());
        assert!(field_manager(&write(Some("a\nb"))).is_err());
    }
}
