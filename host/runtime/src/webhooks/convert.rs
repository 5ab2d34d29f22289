//! Converts objects for the API server: one call for each object, some at once, and one response for all of them within
//! the time that the API server waits. ConversionReviews come in and go out; their objects stay text.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use mortise_core::conversion::review::{Failure, Original, Review, Success};
use mortise_core::conversion::{Conversion, ConversionBackend, ConversionRequest, TIMEOUT};
use mortise_core::object::Kind;
use mortise_core::text::DENIAL;
use mortise_wasm::workers::Work;

use super::Route;
use super::capacity::{Class, Permit, refusal};
use super::review::{NO_ROOM, Pending, Reviewer, completion, send, unless_it_gives_way};
use crate::clock::now;
use crate::log;
use crate::server::{Request, Response, text};

/// Objects of one request that are submitted at once: enough for every worker of a large machine, and few enough that a
/// long list leaves space in the queue for other requests.
const AT_ONCE: usize = 32;

/// A conversion in progress.
struct Converting<'a> {
    name: &'a str,
    /// Whose share of the workers its calls take.
    share: String,
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
    ) -> Response {
        let connection = request.closing();
        let (body, permit) = match self.body(Class::Conversion, (name, path), request).await {
            Ok(whole) => whole,
            Err(response) => return *response,
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let response = async {
            let bytes = body.len();
            // The review has copies of what it keeps.
            match self.parsing.run(bytes, &permit, move || Review::parse(&body)).await {
                Ok(review) if !permit.set(review.bytes()) => refusal(name),
                Ok(review) => {
                    let (review, until) = (Arc::new(review), begin + TIMEOUT);
                    // Their own share of the workers: API servers show no certificate for them, so anybody may send
                    // them.
                    let share = format!("{name} (conversion)");
                    let text =
                        self.reviewed(Converting { name, share, route, review, bytes, until, permit: &permit }).await;
                    send(name, text, &permit, connection)
                }
                Err(why) => text(StatusCode::BAD_REQUEST, why),
            }
        };
        let response = unless_it_gives_way(name, &permit, response).await;
        counted.ends(response.status().as_u16(), begin.elapsed());
        response
    }

    async fn reviewed(&self, converting: Converting<'_>) -> String {
        let Converting { name, route, .. } = &converting;
        let is_other = |object: &&Original| !route.backend.converts(&object.reference().kind);
        let other = converting.review.objects().iter().find(is_other);
        let result = match other {
            // Not counted: a client could invent any number of kinds.
            Some(other) => {
                let Kind { api_version, kind } = &other.reference().kind;
                Err(DENIAL.own(format!("the plugin {name:?} converts no {kind} of {api_version}")))
            }
            None => self.all(&converting).await.map_err(|failure| {
                if let Some(fault) = &failure.fault {
                    let digest = &route.backend.digest;
                    log::conversion_fault(&self.faults, name, digest, &failure.object, fault);
                }
                failure.message
            }),
        };
        result.unwrap_or_else(|message| converting.review.failure(&message))
    }

    /// Converts every object in order, until one fails: the API server takes all or none.
    async fn all(&self, converting: &Converting<'_>) -> Result<String, Box<Failure>> {
        let Converting { share, route: Route { plugin, backend }, review, until, permit, .. } = converting;
        let submit = |request: &Arc<ConversionRequest>| {
            let weak = Arc::downgrade(request);
            let request = move || Some(ConversionRequest::clone(&*weak.upgrade()?));
            self.submit((share, plugin), request, backend.limits, *until, Work::Convert, permit)
        };
        let mut success = review.success();
        for begin in (0..review.objects().len()).step_by(AT_ONCE) {
            let some = begin..(begin + AT_ONCE).min(review.objects().len());
            let copied = review.objects()[some.clone()].iter().map(|object| object.text().len()).sum();
            if !permit.grow(copied) {
                return Err(failed(&review.objects()[begin], NO_ROOM.to_owned()));
            }
            let requests = self.requests(converting, some.clone()).await;
            let pending: Vec<_> = requests.iter().map(|request| request.as_ref().map(submit)).collect();
            for (index, pending) in some.zip(pending) {
                success = self.next(converting, index, pending, success).await?;
            }
            permit.shrink(copied);
        }
        Ok(success.end())
    }

    /// Waits for one object and adds it to the response.
    async fn next(
        &self,
        converting: &Converting<'_>,
        index: usize,
        pending: Option<Pending<Conversion>>,
        success: Success,
    ) -> Result<Success, Box<Failure>> {
        let Converting { name, review, until, .. } = converting;
        let object = &review.objects()[index];
        let result = match pending {
            Some(pending) => Some(wait(name, object, pending, *until).await),
            None => None,
        };
        let is_called = result.is_some();
        let added = self.added(converting, index, result, success).await;
        if is_called {
            let controller: Arc<str> = format!("{name}/{}", object.reference().kind.kind).into();
            self.metrics.converted(&controller, added.as_ref().map(drop).map_err(|failure| &**failure));
        }
        added
    }

    /// The guest's requests for some objects; None for an object of the wanted version.
    async fn requests(&self, converting: &Converting<'_>, some: Range<usize>) -> Vec<Option<Arc<ConversionRequest>>> {
        let (review, backend) = (Arc::clone(&converting.review), Arc::clone(&converting.route.backend));
        let now_ms = now().unix_ms;
        let work = move || {
            let objects = review.objects()[some].iter();
            objects.map(|object| review.request(object, &backend, now_ms).map(Arc::new)).collect()
        };
        self.parsing.run(converting.bytes, converting.permit, work).await
    }

    /// The response with the converted object, or with the object itself where the guest was not called.
    async fn added(
        &self,
        converting: &Converting<'_>,
        index: usize,
        result: Option<Conversion>,
        mut success: Success,
    ) -> Result<Success, Box<Failure>> {
        let bytes = result.as_ref().map_or(0, Conversion::bytes);
        let read = bytes.max(converting.review.objects()[index].text().len());
        let (review, name) = (Arc::clone(&converting.review), converting.name.to_owned());
        let permit = Arc::clone(converting.permit);
        let work = move || {
            let (object, had) = (&review.objects()[index], success.bytes());
            let added = match result {
                Some(result) => success.push(&review.converted(&name, object, result)?),
                None => success.push(object.text()),
            };
            permit.shrink(bytes);
            let has_room =
                added.and_then(|()| permit.grow(success.bytes() - had).then_some(()).ok_or_else(|| NO_ROOM.to_owned()));
            has_room.map_err(|why| failed(object, why))?;
            Ok(success)
        };
        self.parsing.run(read, converting.permit, work).await
    }
}

/// A failure that is nobody's fault.
fn failed(object: &Original, message: String) -> Box<Failure> {
    Box::new(Failure { object: object.reference().clone(), message, fault: None })
}

async fn wait(name: &str, object: &Original, pending: Pending<Conversion>, until: Instant) -> Conversion {
    let late = || {
        format!(
            "the plugin {name:?} did not convert the objects within {} s, including queueing; try again, or request \
             fewer objects",
            TIMEOUT.as_secs()
        )
    };
    match completion(pending, until, late).await {
        Ok(completion) => {
            log::conversion(name, object.reference(), &completion);
            completion.result
        }
        Err((_, why)) => Conversion::HostFault(why),
    }
}
