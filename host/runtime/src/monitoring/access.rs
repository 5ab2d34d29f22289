//! Whether a client may read the metrics, as with controller-runtime's secure serving: the user of its bearer token has to
//! be allowed to get /metrics. Requests come in, refusals come out. It must not know what the metrics are.
//!
//! A decision is kept for a short time, so a scrape costs the API server next to nothing, and a right that is given or
//! taken away counts within a minute.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderValue, StatusCode, header};
use mortise_core::digest::{self, Digest};
use mortise_core::write::{WriteError, WriteErrorClass};
use mortise_kube::client::ApiServer;
use tokio::sync::Mutex as AsyncMutex;

use self::decisions::{Decision, Decisions};
use crate::server::{Request, Response, text};

mod decisions;
#[cfg(test)]
mod tests;

/// Asks the API server, one client at a time: an answer takes milliseconds. Clones share the decisions.
#[derive(Clone)]
pub(crate) struct Access {
    api: ApiServer,
    decisions: Arc<Mutex<Decisions>>,
    turn: Arc<AsyncMutex<()>>,
}

impl Access {
    pub(crate) fn new(api: ApiServer) -> Self {
        Self { api, decisions: Arc::default(), turn: Arc::default() }
    }

    /// # Errors
    /// The response to a client that may not get the path.
    pub(crate) async fn check(&self, request: &Request, path: &str) -> Result<(), Box<Response>> {
        let Some(token) = request.bearer_token() else { return Err(unauthenticated()) };
        let token = digest::of(token.as_bytes());
        if let Some(decision) = self.decisions().get(&token, Instant::now()) {
            return respond(&decision);
        }
        let _turn = self.turn.lock().await;
        // Another request with this token may have asked meanwhile.
        let (known, may_ask) = {
            let mut decisions = self.decisions();
            let known = decisions.get(&token, Instant::now());
            let may_ask = known.is_some() || decisions.may_ask(request.peer(), Instant::now());
            (known, may_ask)
        };
        if let Some(decision) = known {
            return respond(&decision);
        }
        if !may_ask {
            return Err(busy());
        }
        let decision = self.ask(request, path).await.map_err(|error| unanswered(&error))?;
        self.keep(token, decision.clone());
        respond(&decision)
    }

    async fn ask(&self, request: &Request, path: &str) -> Result<Decision, WriteError> {
        let token = request.bearer_token().unwrap_or_default();
        let Some(user) = self.api.user_of(token).await? else { return Ok(Decision::Unauthenticated) };
        let is_allowed = self.api.may_get(&user, path).await?;
        Ok(if is_allowed { Decision::Allowed } else { Decision::Denied(user.name().into()) })
    }

    fn keep(&self, token: Digest, decision: Decision) {
        self.decisions().keep(token, decision, Instant::now());
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn respond(decision: &Decision) -> Result<(), Box<Response>> {
    match decision {
        Decision::Allowed => Ok(()),
        Decision::Unauthenticated => Err(unauthenticated()),
        Decision::Denied(user) => {
            let why = format!("{user} may not get the path /metrics; the ClusterRole mortise-metrics-reader may");
            Err(Box::new(text(StatusCode::FORBIDDEN, why)))
        }
    }
}

fn unauthenticated() -> Box<Response> {
    let mut response = text(StatusCode::UNAUTHORIZED, "the metrics need a bearer token that the API server accepts");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Box::new(response)
}

/// The API server's answer is missing, not its refusal of the client: a scraper tries again.
fn unanswered(error: &WriteError) -> Box<Response> {
    let hint = if error.class == WriteErrorClass::Denied {
        "; `mortise rbac --host` prints the rights that the host needs"
    } else {
        ""
    };
    tracing::debug!("a client of the metrics was not checked: {}", error.message);
    let why = format!("the API server did not say whether this client may read the metrics: {}{hint}", error.message);
    Box::new(text(StatusCode::SERVICE_UNAVAILABLE, why))
}

fn busy() -> Box<Response> {
    let why = "this address has sent too many tokens that had to be checked; try again in a minute";
    let mut response = text(StatusCode::TOO_MANY_REQUESTS, why);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
    Box::new(response)
}
