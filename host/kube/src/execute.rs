//! Performs one write or one live read. A [`Write`] comes in; the object's UID and version, or a classified error, come out.
//! Nothing is retried here (X8).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use kube::client::Body;
use mortise_core::event::LiveTarget;
use mortise_core::limits::WRITE_TIMEOUT_MS;
use mortise_core::object::{Interner, Kind, Name, Object, ObjectRef};
use mortise_core::response;
use mortise_core::service_account::ServiceAccount;
use mortise_core::tenant;
use mortise_core::write::{self, Write, WriteError, WriteErrorClass, WriteOp, Written};

use crate::answers::Size;
use crate::client::{ApiServer, NOT_FOUND, READ_TIMEOUT, Response, request};
use crate::clock;
use crate::discovery::escape;
use crate::failure::Failure;

/// The header that names another user. The API server adds the groups of a ServiceAccount itself.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
/// The host's deadline for a write.
const WRITE_TIMEOUT: Duration = Duration::from_millis(WRITE_TIMEOUT_MS);
/// The error of a write without a claim.
const UNCLAIMED: &str = "not sent: this host does not lead, or could not renew its Lease in time";
/// The error of a write that waited for its permit when the host ended.
const DRAINED: &str = "not sent: the host ends";
/// The error of a write in flight when its claim ended, as after a stop of this process.
const CLAIM_ENDED: &str = "given up: this host's claim to write ended before the response came";

impl ApiServer {
    /// Sends a write and waits for its response, ten seconds at most. Writes beyond those that may be in flight wait for a
    /// permit; the caller bounds how many wait.
    pub async fn execute(&self, write: &Write) -> Result<Written, WriteError> {
        match self.send_write(write).await {
            Ok(written) => Ok(written),
            Err(failure) => {
                self.forget_if_gone(&write.op, &failure);
                Err(match failure {
                    Failure::Response(refused) => refused.to_error_of(&write.op),
                    failure => failure.into_write_error(),
                })
            }
        }
    }

    /// Reads one object from the API server's newest state; None when it does not exist. Reads beyond those that may be in
    /// flight wait for a permit; the caller bounds how many wait.
    pub async fn read_live(&self, target: &LiveTarget) -> Result<Option<Arc<Object>>, WriteError> {
        match self.get_live(&target.object, target.service_account.as_deref()).await {
            // Interning would save nothing for one object.
            Ok(response) => match Object::decode_as(&target.object.kind, &response.body, &mut Interner::default()) {
                Ok(object) => Ok(Some(Arc::new(object))),
                Err(error) => Err(WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            },
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    /// A Secret as it is, with the values that the host has made and no [`Object`] shows (G8); None when it does not exist.
    pub async fn read_secret(
        &self,
        name: &Name,
        account: Option<&ServiceAccount>,
    ) -> Result<Option<String>, WriteError> {
        let target = ObjectRef { kind: Kind::new("v1", "Secret"), name: name.clone() };
        match self.get_live(&target, account).await {
            Ok(response) => match String::from_utf8(response.body.to_vec()) {
                Ok(secret) => Ok(Some(secret)),
                Err(error) => Err(WriteError { class: WriteErrorClass::Invalid, message: error.to_string() }),
            },
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure.into_write_error()),
        }
    }

    /// Waits for a permit and reads one object, as a ServiceAccount or as the host.
    pub(crate) async fn get_live(
        &self,
        target: &ObjectRef,
        account: Option<&ServiceAccount>,
    ) -> Result<Response, Failure> {
        let path = self.resource(&target.kind).await?.object(&target.name)?;
        let _permit = self.live_reads().enter(target.kind.clone()).await;
        let request = request(Method::GET, &path, None, Bytes::new())?;
        let response = self.send(impersonating(request, account)?, READ_TIMEOUT, Size::Object).await?;
        let unreadable = |why| Failure::Lost(format!("the response to a read of {target} cannot be read: {why}"));
        response::object(&response.body, target).map_err(unreadable)?;
        Ok(response)
    }

    async fn send_write(&self, write: &Write) -> Result<Written, Failure> {
        let target = write.op.target();
        let resource = self.resource(&target.kind).await?;
        let body = match &write.op {
            WriteOp::Apply { target, body, only_if, draws: Some(draws), .. } => {
                let account = write.service_account.as_deref();
                Some(self.with_generated(target, body, only_if, draws, account).await?)
            }
            _ => None,
        };
        let wanted = write::request::request(write, body).map_err(Failure::Invalid)?;
        let mut path =
            if wanted.to_collection { resource.collection_of(&target.name)? } else { resource.object(&target.name)? };
        if let Some(subresource) = &wanted.subresource {
            path = format!("{path}/{subresource}");
        }
        for (at, (name, value)) in wanted.query.iter().enumerate() {
            path.push_str(&format!("{}{name}={}", if at == 0 { '?' } else { '&' }, escape(value)));
        }
        let method = match wanted.method {
            write::request::Method::Post => Method::POST,
            write::request::Method::Patch => Method::PATCH,
            write::request::Method::Delete => Method::DELETE,
        };
        let body = Bytes::copy_from_slice(wanted.body.as_bytes());
        let request = request(method, &path, Some(wanted.content_type), body)?;
        self.sent(impersonating(request, write.service_account.as_deref())?, write).await
    }

    /// Sends the request of a write, and reads its response.
    async fn sent(&self, request: Request<Body>, write: &Write) -> Result<Written, Failure> {
        match self.send_while_claimed(request, write.plugin.as_ref().map(tenant::share), write.not_after_ms).await {
            Ok(response) => response::written(&response.body, &write.op).map_err(Failure::Lost),
            Err(Failure::Response(refused)) => response::refused(refused, &write.op).map_err(Failure::Response),
            Err(failure) => Err(failure),
        }
    }

    /// X7: sends a request that changes something, for a plugin or for the host itself. It is not sent after `not_after_ms`, or
    /// until when the claim was renewed while it waited for its permit, however long this process was stopped, and given up
    /// when the claim ends, which is the timeout of a write later. Nor is it sent when it has no permit some seconds after the host
    /// began to drain.
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
        let _permit = tokio::select! {
            biased;
            permit = self.writes().enter(plugin) => permit,
            () = self.drained() => return Err(Failure::NotSent(DRAINED.to_owned())),
        };
        let Some(not_after_ms) = not_after_ms else { return self.send(request, WRITE_TIMEOUT, Size::Object).await };
        let not_after_ms = self.renewed(not_after_ms);
        if clock::now_ms() > not_after_ms {
            return Err(Failure::NotSent(UNCLAIMED.to_owned()));
        }
        let claim_ends_ms = not_after_ms.saturating_add(WRITE_TIMEOUT_MS);
        let mut sending = pin!(self.send(request, WRITE_TIMEOUT, Size::Object));
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

/// A request as the ServiceAccount, with its rights; the host's own, if there is none.
fn impersonating(mut request: Request<Body>, account: Option<&ServiceAccount>) -> Result<Request<Body>, Failure> {
    if let Some(account) = account {
        let user = HeaderValue::try_from(account.user())
            .map_err(|_| Failure::Invalid(format!("{account} is no ServiceAccount's name")))?;
        request.headers_mut().insert(IMPERSONATE_USER, user);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use mortise_core::contract::{PatchKind, Propagation};
    use mortise_core::crd::CrdError;
    use mortise_core::generated::Draws;
    use mortise_core::lease::{Claim, LEASE_DURATION_MS};
    use mortise_core::write::{Precondition, WriteId};
    use tokio::sync::watch;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::leadership::Leadership;
    use crate::testing::serve;

    fn write(plugin: Option<&str>) -> Write {
        let target = ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("ns", "a") };
        Write {
            id: WriteId(1),
            plugin: plugin.map(Into::into),
            cause: None,
            service_account: None,
            op: WriteOp::Delete { target, uid: "u".into(), propagation: Propagation::Background },
            not_after_ms: None,
        }
    }

    const PODS_AND_NODES: &str = r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true},
        {"name":"nodes","kind":"Node","namespaced":false}]}"#;

    #[tokio::test]
    async fn g9_what_a_plugin_sends_is_its_service_accounts_and_what_is_looked_up_for_it_the_hosts() {
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let api = serve(move |request| {
            let path = request.path.split('?').next().unwrap().to_owned();
            sender.send((request.method.clone(), path, request.impersonated.clone())).unwrap();
            match &*request.path {
                "/api/v1" => ("200 OK", PODS_AND_NODES.to_owned()),
                _ if request.method == "GET" => ("404 Not Found", r#"{"kind":"Status","code":404}"#.to_owned()),
                _ => ("200 OK", r#"{"kind":"Status","status":"Success","details":{"uid":"u"}}"#.to_owned()),
            }
        });
        let api = api.await;
        let account = Arc::new(ServiceAccount { namespace: "mortise-system".into(), name: "podset".into() });
        let user = Some("system:serviceaccount:mortise-system:podset".to_owned());
        let write = Write { service_account: Some(Arc::clone(&account)), ..write(Some("podset")) };
        api.execute(&write).await.unwrap();
        let object = write.op.target().clone();
        api.read_live(&LiveTarget { object: object.clone(), service_account: Some(Arc::clone(&account)) })
            .await
            .unwrap();
        api.read_live(&object.into()).await.unwrap();
        let pod = "/api/v1/namespaces/ns/pods/a".to_owned();
        let mut next = || seen.try_recv().unwrap();
        assert_eq!(next(), ("GET".into(), "/api/v1".into(), None));
        assert_eq!(next(), ("DELETE".into(), pod.clone(), user.clone()));
        assert_eq!(next(), ("GET".into(), pod.clone(), user));
        assert_eq!(next(), ("GET".into(), pod, None), "the host's own");
        let odd = ServiceAccount { namespace: "a".into(), name: "b\nc".into() };
        let write = Write { service_account: Some(Arc::new(odd)), ..write };
        assert_eq!(api.execute(&write).await.unwrap_err().class, WriteErrorClass::Invalid);
        assert!(seen.try_recv().is_err(), "nothing is sent with a header that means something else");
    }

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
    async fn x7_a_write_that_waits_for_its_permit_is_sent_if_its_claim_is_renewed_meanwhile_and_not_if_another_began() {
        for (began_before, drains, sent) in [(true, false, 1), (false, false, 0), (true, true, 0)] {
            let (api, writes) = accepting().await;
            let plugin: Arc<str> = "podset".into();
            let mut permits = Vec::new();
            while let Some(permit) = api.writes().enter(Some(Arc::clone(&plugin))).now_or_never() {
                permits.push(permit);
            }
            let now_ms = clock::now_ms();
            let claim = |renewed_ms| Some(renewed_ms + LEASE_DURATION_MS);
            let first = Leadership { claim_until_ms: claim(now_ms), since_ms: now_ms };
            let (leadership, follow) = watch::channel(first);
            api.follow(follow);
            let not_after_ms = Claim::of(first.claim_until_ms).not_after_ms();
            let waiting = Write { not_after_ms: not_after_ms.map(|at| at - 4_900), ..write(Some("podset")) };
            // As if it had waited for five seconds.
            let since_ms = if began_before { now_ms - 4_900 } else { now_ms };
            leadership.send_replace(Leadership { claim_until_ms: claim(now_ms), since_ms });
            let executed = tokio::spawn({
                let api = api.clone();
                async move { api.execute(&waiting).await }
            });
            while clock::now_ms() <= now_ms + 200 {
                sleep(Duration::from_millis(10)).await;
            }
            if drains {
                api.drain();
            } else {
                permits.clear();
            }
            let result = timeout(Duration::from_secs(30), executed).await.unwrap().unwrap();
            assert_eq!((result.is_ok(), writes.load(Ordering::SeqCst)), (sent == 1, sent), "{result:?}");
        }
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
            tokio::spawn(async move { api.read_live(&pod.into()).await })
        };
        // A write that needs what is live reads as others do.
        let completing = {
            let (api, draws) = (api.clone(), Draws { wanted: Arc::default(), now_unix_ms: 0 });
            tokio::spawn(
                async move { api.with_generated(&pod, "{}", &Precondition::Is("u".into()), &draws, None).await },
            )
        };
        assert!(matches!(timeout(Duration::from_secs(30), api.read_live(&node.into())).await.unwrap(), Ok(None)));
        assert!(!reading.is_finished() && !completing.is_finished(), "they wait for a permit");
        drop(permits);
        assert!(matches!(timeout(Duration::from_secs(30), reading).await.unwrap().unwrap(), Ok(None)));
        assert!(timeout(Duration::from_secs(30), completing).await.unwrap().unwrap().is_err(), "it does not exist");
    }

    #[tokio::test]
    async fn x8_a_response_of_success_that_is_a_failure_or_another_object_is_of_an_unknown_result() {
        let pod = |name: &str| {
            let metadata = serde_json::json!({"namespace": "ns", "name": name, "uid": "u", "resourceVersion": "7"});
            serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).to_string()
        };
        let failure = r#"{"kind":"Status","metadata":{},"status":"Failure","message":"no","reason":"Gone","code":410}"#;
        for (body, happened) in
            [(pod("a"), true), (pod("b"), false), (failure.to_owned(), false), ("{}".to_owned(), false)]
        {
            let api = serve(move |request| match &*request.path {
                "/api/v1" => ("200 OK", PODS_AND_NODES.to_owned()),
                _ => ("200 OK", body.clone()),
            })
            .await;
            let target = write(None).op.target().clone();
            let apply = WriteOp::Apply {
                target: target.clone(),
                body: "{}".into(),
                force: true,
                only_if: Precondition::None,
                draws: None,
            };
            for op in [apply, WriteOp::Create { target: target.clone(), body: "{}".into() }, write(None).op] {
                let result = api.execute(&Write { op, ..write(Some("podset")) }).await;
                assert_eq!(
                    result.map(|_| ()).map_err(|error| error.class),
                    if happened { Ok(()) } else { Err(WriteErrorClass::Unknown) }
                );
            }
            assert_eq!(api.read_live(&target.into()).await.is_ok(), happened);
        }
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
}
