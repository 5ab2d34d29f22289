//! Writes a CRD as `core::crd` plans it and waits until the API server serves it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use mortise_core::crd::{CrdError, CrdOwner, CrdPlan, Establishment, establishment, plan};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::refusal::Refusal;
use mortise_core::response;
use mortise_core::well_known::HOST;
use mortise_core::write::WriteError;
use mortise_core::write::request::SERVER_TIMEOUT_SECONDS;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::answers::Size;
use crate::client::{ApiServer, NOT_FOUND, READ_TIMEOUT, Response, request};
use crate::discovery::escape;
use crate::failure::Failure;

/// Longest that one registration may take. An API server establishes a definition within a second, and within five more where
/// several of them run; the engine retries after that.
const DEADLINE: Duration = Duration::from_secs(30);
/// The delay before the first read after a write; it doubles up to [`LAST_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(25);
/// Two reads a second at most.
const LAST_DELAY: Duration = Duration::from_millis(500);
/// Rounds of read, plan and write, while others write in between.
const MAX_ROUNDS: usize = 5;

const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Deserialize)]
struct Definition {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Names {
    plural: String,
    kind: String,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    #[serde(default)]
    served: bool,
}

impl Definition {
    /// Whether a response is this definition.
    fn is_in(&self, response: &Response) -> Result<(), Failure> {
        let kind = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definition = ObjectRef { kind, name: Name::new("", &self.metadata.name) };
        match response::object(&response.body, &definition) {
            Ok(_) => Ok(()),
            Err(why) => Err(Failure::Lost(format!("it was written, but the response cannot be read: {why}"))),
        }
    }

    fn served(&self) -> impl Iterator<Item = &Version> {
        self.spec.versions.iter().filter(|version| version.served)
    }
}

impl ApiServer {
    /// Creates or updates a CRD as the core plans it (L4), and waits until every version is served. `body` carries the
    /// host's label and annotations. An unchanged definition costs two reads and no write. After `not_after_ms` nothing is
    /// written, and a definition that needs it is `Unavailable` (X7).
    pub async fn register_crd(&self, body: &str, not_after_ms: Option<u64>) -> Result<CrdOwner, CrdError> {
        let wanted: Definition = serde_json::from_str(body).map_err(|error| {
            CrdError::Refused(Refusal::new("CrdInvalid", format!("the CRD cannot be read: {error}")))
        })?;
        let deadline = Instant::now() + DEADLINE;
        let registering = format!("registering CRD {}", wanted.metadata.name);
        let (seen, owner) = self.reconcile(&wanted, body, not_after_ms).await.map_err(|error| match error {
            Stopped::Failure(failure) => failure.during(&registering).into_crd_error(),
            Stopped::Refusal(refusal) => CrdError::Refused(refusal),
        })?;
        self.wait_until_served(&wanted, seen, deadline).await.map(|()| owner)
    }

    /// Reads a definition.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn read_definition(&self, name: &str) -> Result<Option<Value>, WriteError> {
        let read = async {
            let Some(text) = self.read_text(&format!("{COLLECTION}/{}", escape(name))).await? else { return Ok(None) };
            let live = serde_json::from_str(&text);
            live.map(Some).map_err(|error| Failure::Lost(format!("the response cannot be read: {error}")))
        };
        read.await.map_err(|failure: Failure| failure.during(&format!("reading CRD {name}")).into_write_error())
    }

    /// Reads, plans and writes; again when somebody else wrote in between. Returns the state of a definition that was not
    /// written, and whom it was made for.
    async fn reconcile(
        &self,
        wanted: &Definition,
        body: &str,
        not_after_ms: Option<u64>,
    ) -> Result<(Option<Establishment>, CrdOwner), Stopped> {
        let path = format!("{COLLECTION}/{}", escape(&wanted.metadata.name));
        let mut last = None;
        for _ in 0..MAX_ROUNDS {
            let live = self.read_text(&path).await?;
            // A definition that is being deleted cannot be changed; the engine retries.
            let seen = live.as_deref().map(establishment);
            if seen == Some(Establishment::Terminating) {
                return Err(Failure::Lost("the one that exists is being deleted".to_owned()).into());
            }
            let mut next = plan(live.as_deref(), body, true);
            if let (CrdPlan::Narrows { .. }, Some(live)) = (&next, &live)
                && !self.objects_exist(live).await?
            {
                next = plan(Some(live), body, false);
            }
            let written = match next {
                CrdPlan::Nothing(owner) => return Ok((seen, owner)),
                CrdPlan::Refuse(refusal) | CrdPlan::Narrows { refusal, kept: None } => {
                    return Err(Stopped::Refusal(refusal));
                }
                CrdPlan::Create(text) => self.write(wanted, Method::POST, COLLECTION, &text, not_after_ms).await,
                // PUT and not server-side apply: it carries the version that was compared, so nothing else is narrowed,
                // and it removes what the new definition leaves out.
                CrdPlan::Update(text) | CrdPlan::Narrows { kept: Some(text), .. } => {
                    self.write(wanted, Method::PUT, &path, &text, not_after_ms).await
                }
            };
            match written {
                Ok(()) => {
                    tracing::info!(crd = %wanted.metadata.name, "wrote the CustomResourceDefinition");
                    return Ok((None, CrdOwner::Plugin));
                }
                Err(Failure::Response(refused)) if refused.code == 409 => last = Some(Failure::Response(refused)),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(last.unwrap_or_else(|| Failure::Lost("others keep changing it".to_owned())).into())
    }

    async fn write(
        &self,
        wanted: &Definition,
        method: Method,
        path: &str,
        body: &Arc<str>,
        not_after_ms: Option<u64>,
    ) -> Result<(), Failure> {
        let path = format!("{path}?fieldManager={HOST}&timeout={SERVER_TIMEOUT_SECONDS}s");
        let body = Bytes::copy_from_slice(body.as_bytes());
        let request = request(method, &path, Some("application/json"), body)?;
        let response = self.send_while_claimed(request, None, not_after_ms).await?;
        wanted.is_in(&response)
    }

    async fn read_text(&self, path: &str) -> Result<Option<String>, Failure> {
        let kind = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let _permit = self.live_reads().enter(kind).await;
        match self.get(path, READ_TIMEOUT, Size::Object).await {
            Ok(response) => Ok(Some(String::from_utf8_lossy(&response.body).into_owned())),
            Err(Failure::Response(refused)) if refused.code == NOT_FOUND => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Whether any object of a live CRD exists, in any version. True where the host may not list them.
    async fn objects_exist(&self, live: &str) -> Result<bool, Failure> {
        let live: Definition = serde_json::from_str(live)
            .map_err(|error| Failure::Lost(format!("the one that exists cannot be read: {error}")))?;
        let Some(version) = live.served().next() else { return Ok(true) };
        let path = format!(
            "/apis/{}/{}/{}?limit=1",
            escape(&live.spec.group),
            escape(&version.name),
            escape(&live.spec.names.plural)
        );
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            items: Option<Vec<serde::de::IgnoredAny>>,
        }
        match self.get(&path, READ_TIMEOUT, Size::List).await {
            Ok(response) => {
                let list: List = serde_json::from_slice(&response.body)
                    .map_err(|error| Failure::Lost(format!("its objects cannot be listed: {error}")))?;
                Ok(list.items.is_none_or(|items| !items.is_empty()))
            }
            Err(Failure::Response(refused)) if refused.code == 403 => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    /// Established is not enough: the API server serves a definition a moment later, and a watch that came before would get
    /// a 404.
    async fn wait_until_served(
        &self,
        wanted: &Definition,
        mut seen: Option<Establishment>,
        deadline: Instant,
    ) -> Result<(), CrdError> {
        let path = format!("{COLLECTION}/{}", escape(&wanted.metadata.name));
        let mut delay = FIRST_DELAY;
        loop {
            let state = match seen.take() {
                Some(state) => state,
                None => match self.read_text(&path).await {
                    Ok(live) => live.as_deref().map_or(Establishment::Pending, establishment),
                    Err(failure) => return Err(failure.into_crd_error()),
                },
            };
            match state {
                Establishment::Refused(refusal) => return Err(CrdError::Refused(refusal)),
                Establishment::Established if self.serves(wanted).await => return Ok(()),
                _ => {}
            }
            if Instant::now() + delay > deadline {
                return Err(CrdError::Unavailable(format!(
                    "CRD {}: the API server does not serve it {} s after it was registered",
                    wanted.metadata.name,
                    DEADLINE.as_secs()
                )));
            }
            sleep(delay).await;
            delay = (delay * 2).min(LAST_DELAY);
        }
    }

    async fn serves(&self, wanted: &Definition) -> bool {
        for version in wanted.served() {
            let kind = Kind::new(&format!("{}/{}", wanted.spec.group, version.name), &wanted.spec.names.kind);
            // The cached document may be older than the definition.
            self.discovery().forget(&kind.api_version);
            if self.resource(&kind).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Why a definition was not written.
enum Stopped {
    Failure(Failure),
    Refusal(Refusal),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
