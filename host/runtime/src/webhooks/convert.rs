//! Converts objects for the API server: one call for each object, some at once, and one response for all of them within
//! the time that the API server waits. ConversionReviews come in and go out.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use mortise_core::conversion::review::{Failure, Review};
use mortise_core::conversion::{Conversion, ConversionBackend, TIMEOUT};
use mortise_wasm::workers::Work;
use serde_json::Value;

use super::Route;
use super::capacity::Permit;
use super::review::{Pending, Reviewer, completion, json};
use crate::clock::now;
use crate::log;
use crate::server::{Request, Response, text};

/// Objects of one request that are submitted at once: enough for every worker of a large machine, and few enough that a
/// long list leaves space in the queue for other requests.
const AT_ONCE: usize = 32;

impl Reviewer {
    pub(super) async fn convert(&self, name: &str, path: &str, request: Request, permit: &Arc<Permit>) -> Response {
        let body = match request.body().await {
            Ok(body) => body,
            Err(response) => return *response,
        };
        let review = Review::parse(&body);
        // The review has copies of what it keeps.
        drop(body);
        let Some(route) = self.webhooks.converter(name) else {
            let why =
                format!("the plugin {name:?} does not convert yet; `kubectl get plugin {name}` shows how far it is");
            return review.map_or_else(|why| text(StatusCode::BAD_REQUEST, why), |review| json(review.failure(&why)));
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let response = match review {
            Ok(review) => json(self.reviewed(name, &route, &review, begin + TIMEOUT, permit).await),
            Err(why) => text(StatusCode::BAD_REQUEST, why),
        };
        counted.ends(response.status().as_u16(), begin.elapsed());
        response
    }

    async fn reviewed(
        &self,
        name: &str,
        route: &Route<ConversionBackend>,
        review: &Review,
        until: Instant,
        permit: &Arc<Permit>,
    ) -> String {
        if let Some(other) = review.objects().iter().find(|object| !route.backend.converts(object)) {
            // Not counted: a client could invent any number of kinds.
            return review
                .failure(&format!("the plugin {name:?} converts no {} of {}", other["kind"], other["apiVersion"]));
        }
        match self.all(name, route, review, until, permit).await {
            Ok(objects) => review.success(objects),
            Err(failure) => {
                if let Some(fault) = &failure.fault {
                    let digest = &route.backend.digest;
                    log::conversion_fault(&self.faults, name, digest, &failure.object, fault);
                }
                review.failure(&failure.message)
            }
        }
    }

    /// Converts every object in order, until one fails: the API server takes all or none.
    async fn all(
        &self,
        name: &str,
        route: &Route<ConversionBackend>,
        review: &Review,
        until: Instant,
        permit: &Arc<Permit>,
    ) -> Result<Vec<Value>, Box<Failure>> {
        let Route { plugin, backend } = route;
        let submit = |object| {
            let request = review.request(object, backend, now().unix_ms)?;
            Some(self.submit((name, plugin), request, backend.limits, until, Work::Convert, permit))
        };
        let mut converted = Vec::with_capacity(review.objects().len());
        for chunk in review.objects().chunks(AT_ONCE) {
            let pending: Vec<_> = chunk.iter().map(submit).collect();
            for (object, pending) in chunk.iter().zip(pending) {
                let Some(pending) = pending else {
                    // It is of the wanted version already.
                    converted.push(object.clone());
                    continue;
                };
                let result = review.converted(name, object, wait(name, object, pending, until).await);
                let controller: Arc<str> = format!("{name}/{}", object["kind"].as_str().unwrap_or_default()).into();
                self.metrics.converted(&controller, result.as_ref().map(drop).map_err(|failure| &**failure));
                converted.push(result?);
            }
        }
        Ok(converted)
    }
}

async fn wait(name: &str, object: &Value, pending: Pending<Conversion>, until: Instant) -> Conversion {
    let late = || {
        format!(
            "the plugin {name:?} did not convert the objects within {} s, including queueing; try again, or request \
             fewer objects",
            TIMEOUT.as_secs()
        )
    };
    match completion(pending, until, late).await {
        Ok(completion) => {
            log::conversion(name, object, &completion);
            completion.result
        }
        Err((_, why)) => Conversion::HostFault(why),
    }
}
