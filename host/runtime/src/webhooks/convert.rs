//! Converts objects for the API server: one call for each object, some at once, and one response for all of them within
//! the time that the API server waits. ConversionReviews come in and go out.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use mortise_core::conversion::review::{Failure, Review};
use mortise_core::conversion::{Conversion, ConversionBackend, ConversionRequest, TIMEOUT};
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

/// A conversion in progress.
struct Converting<'a> {
    name: &'a str,
    route: Route<ConversionBackend>,
    review: Arc<Review>,
    /// Of the request's body.
    bytes: usize,
    until: Instant,
    permit: &'a Arc<Permit>,
}

impl Reviewer {
    pub(super) async fn convert(
        &self,
        (name, path): (&str, &str),
        route: Route<ConversionBackend>,
        request: Request,
        permit: &Arc<Permit>,
    ) -> Response {
        let body = match request.body().await {
            Ok(body) => body,
            Err(response) => return *response,
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let bytes = body.len();
        // The review has copies of what it keeps.
        let response = match self.parsing.run(bytes, permit, move || Review::parse(&body)).await {
            Ok(review) => {
                let (review, until) = (Arc::new(review), begin + TIMEOUT);
                json(self.reviewed(Converting { name, route, review, bytes, until, permit }).await)
            }
            Err(why) => text(StatusCode::BAD_REQUEST, why),
        };
        counted.ends(response.status().as_u16(), begin.elapsed());
        response
    }

    async fn reviewed(&self, converting: Converting<'_>) -> String {
        let Converting { name, route, .. } = &converting;
        let other = converting.review.objects().iter().find(|object| !route.backend.converts(object));
        let result = match other {
            // Not counted: a client could invent any number of kinds.
            Some(other) => Err(format!("the plugin {name:?} converts no {} of {}", other["kind"], other["apiVersion"])),
            None => self.all(&converting).await.map_err(|failure| {
                if let Some(fault) = &failure.fault {
                    let digest = &route.backend.digest;
                    log::conversion_fault(&self.faults, name, digest, &failure.object, fault);
                }
                failure.message
            }),
        };
        let Converting { review, bytes, permit, .. } = converting;
        // The review ends there: to drop a large one takes time too.
        let write = move || match result {
            Ok(objects) => review.success(objects),
            Err(message) => review.failure(&message),
        };
        self.parsing.run(bytes, permit, write).await
    }

    /// Converts every object in order, until one fails: the API server takes all or none.
    async fn all(&self, converting: &Converting<'_>) -> Result<Vec<Value>, Box<Failure>> {
        let Converting { name, route: Route { plugin, backend }, review, until, permit, .. } = converting;
        let submit = |request| self.submit((name, plugin), request, backend.limits, *until, Work::Convert, permit);
        let mut converted = Vec::with_capacity(review.objects().len());
        for begin in (0..review.objects().len()).step_by(AT_ONCE) {
            let some = begin..(begin + AT_ONCE).min(review.objects().len());
            let requests = self.requests(converting, some.clone()).await;
            let pending: Vec<_> = requests.into_iter().map(|request| request.map(submit)).collect();
            for (index, pending) in some.zip(pending) {
                let object = &review.objects()[index];
                let pending = match pending {
                    Ok(pending) => pending,
                    Err(same) => {
                        converted.push(same);
                        continue;
                    }
                };
                let result = wait(name, object, pending, *until).await;
                let result = self.checked(converting, index, result).await;
                let controller: Arc<str> = format!("{name}/{}", object["kind"].as_str().unwrap_or_default()).into();
                self.metrics.converted(&controller, result.as_ref().map(drop).map_err(|failure| &**failure));
                converted.push(result?);
            }
        }
        Ok(converted)
    }

    /// The guest's requests for some objects; an object of the wanted version as it is.
    async fn requests(&self, converting: &Converting<'_>, some: Range<usize>) -> Vec<Result<ConversionRequest, Value>> {
        let (review, backend) = (Arc::clone(&converting.review), Arc::clone(&converting.route.backend));
        let now_ms = now().unix_ms;
        let work = move || {
            let objects = review.objects()[some].iter();
            objects.map(|object| review.request(object, &backend, now_ms).ok_or_else(|| object.clone())).collect()
        };
        self.parsing.run(converting.bytes, converting.permit, work).await
    }

    /// The converted object.
    async fn checked(
        &self,
        converting: &Converting<'_>,
        index: usize,
        result: Conversion,
    ) -> Result<Value, Box<Failure>> {
        let bytes = if let Conversion::Object(text) = &result { text.len() } else { 0 };
        let (review, name) = (Arc::clone(&converting.review), converting.name.to_owned());
        let work = move || review.converted(&name, &review.objects()[index], result);
        self.parsing.run(bytes, converting.permit, work).await
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
