//! Objects that the API server wants in another version: one call of the guest for each, a few at once, and one answer for
//! all of them within the time that the API server gives. ConversionReviews come in and go out.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use mortise_core::conversion::review::{Failure, Review};
use mortise_core::conversion::{Conversion, ConversionBackend, PATIENCE};
use mortise_wasm::plugin::Completion;
use mortise_wasm::workers::{QueueFull, WebhookCall, Work};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::Route;
use super::answer::{Answerer, json, now_unix_ms};
use crate::log;
use crate::server::{Request, Response, text};

/// Objects of one request that are handed out at once: enough for every worker of a large machine, and few enough that a
/// long list leaves room in the queue for everybody else.
const AT_ONCE: usize = 32;

type Asking = Result<oneshot::Receiver<Completion<Conversion>>, Box<QueueFull>>;

impl Answerer {
    /// Answers one request at a plugin's path.
    pub(super) async fn convert(&self, name: &str, path: &str, request: Request) -> Response {
        let body = match request.body().await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        let review = Review::parse(&body);
        let Some(route) = self.webhooks.converter(name) else {
            return review
                .map_or_else(|why| text(StatusCode::BAD_REQUEST, why), |review| json(review.failure(&unserved(name))));
        };
        let begin = Instant::now();
        let counted = self.metrics.webhook_begins(path);
        let answer = match review {
            Ok(review) => json(self.reviewed(name, &route, &review, begin).await),
            Err(why) => text(StatusCode::BAD_REQUEST, why),
        };
        counted.ends(answer.status().as_u16(), begin.elapsed());
        answer
    }

    async fn reviewed(&self, name: &str, route: &Route<ConversionBackend>, review: &Review, begin: Instant) -> String {
        if let Some(other) = review.objects().iter().find(|object| !route.serving.converts(object)) {
            // Not counted: a client could make up as many kinds as it likes.
            return review
                .failure(&format!("the plugin {name:?} converts no {} of {}", other["kind"], other["apiVersion"]));
        }
        match self.all(name, route, review, begin).await {
            Ok(objects) => review.success(objects),
            Err(failure) => {
                if let Some(fault) = &failure.fault {
                    let digest = &route.serving.digest;
                    log::conversion_fault(&self.faults, name, digest, &failure.object, fault);
                }
                review.failure(&failure.message)
            }
        }
    }

    /// Every object in its turn; the first that cannot be converted ends it, since the API server takes all or none.
    async fn all(
        &self,
        name: &str,
        route: &Route<ConversionBackend>,
        review: &Review,
        begin: Instant,
    ) -> Result<Vec<Value>, Box<Failure>> {
        let mut converted = Vec::with_capacity(review.objects().len());
        for some in review.objects().chunks(AT_ONCE) {
            let asked: Vec<Option<Asking>> =
                some.iter().map(|object| self.begin(name, route, review, object, begin + PATIENCE)).collect();
            for (object, asking) in some.iter().zip(asked) {
                let Some(asking) = asking else {
                    converted.push(object.clone());
                    continue;
                };
                let answer = self.wait(name, object, asking, begin + PATIENCE).await;
                let result = review.converted(name, object, answer);
                let controller: Arc<str> = format!("{name}/{}", object["kind"].as_str().unwrap_or_default()).into();
                self.metrics.converted(&controller, result.as_ref().map(drop).map_err(|failure| &**failure));
                converted.push(result?);
            }
        }
        Ok(converted)
    }

    /// Hands an object out; None when it is in the wanted version already.
    fn begin(
        &self,
        name: &str,
        route: &Route<ConversionBackend>,
        review: &Review,
        object: &Value,
        until: Instant,
    ) -> Option<Asking> {
        let Route { plugin, serving } = route;
        let question = review.question(object, serving, now_unix_ms())?;
        let (sender, report) = oneshot::channel();
        let convert = WebhookCall {
            plugin: name.into(),
            question,
            limits: serving.limits,
            until,
            answer: Box::new(move |report| {
                // Another object may have failed meanwhile.
                let _ = sender.send(report);
            }),
        };
        Some(self.submit(plugin, Work::Convert(Box::new(convert))).map(|()| report))
    }

    async fn wait(&self, name: &str, object: &Value, asking: Asking, until: Instant) -> Conversion {
        let report = match asking {
            Ok(report) => timeout_at(until.into(), report).await,
            Err(full) => return Conversion::HostFault(format!("mortise has too much to do: {full}; try again")),
        };
        match report {
            Ok(Ok(report)) => {
                log::conversion(name, object, &report);
                report.answer
            }
            Ok(Err(_)) => Conversion::HostFault("mortise is ending; try again".to_owned()),
            Err(_) => Conversion::HostFault(format!(
                "the plugin {name:?} did not convert what was asked for within {} s, its own calls and those before them \
                 together; try again, or ask for fewer objects",
                PATIENCE.as_secs()
            )),
        }
    }
}

fn unserved(name: &str) -> String {
    format!("the plugin {name:?} does not convert yet; `kubectl get plugin {name}` shows how far it is")
}
