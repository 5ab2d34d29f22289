//! Answers the cluster's webhooks in this process: reviews come in, the guest is called, reviews with their response come out.
//! It must not know when a plugin serves: the story sets the backends.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use mortise_core::admission::AdmissionBackend;
use mortise_core::admission::review::Review;
use mortise_core::conversion::ConversionBackend;
use mortise_core::conversion::review::Review as ConversionReview;
use mortise_core::webhook::{Address, Endpoint, Purpose, Subject, at_path};
use mortise_local_cluster::Call;
use serde_json::Value;

use crate::api::Answers;
use crate::clock::now;
use crate::guest::Guest;

/// The host's namespace.
pub(crate) const NAMESPACE: &str = "mortise-system";
/// Where the cluster reaches the host: nothing listens there.
const URL: &str = "https://mortise.story";

/// The guest, and what of it is served.
pub(crate) struct Webhooks {
    pub(crate) guest: Rc<dyn Guest>,
    pub(crate) admission: BTreeMap<Arc<str>, Arc<AdmissionBackend>>,
    /// A definition names its webhook for good, so this outlives a host.
    pub(crate) conversion: BTreeMap<Arc<str>, Arc<ConversionBackend>>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served: Vec<&Arc<str>> = self.admission.keys().chain(self.conversion.keys()).collect();
        f.debug_tuple("Webhooks").field(&served).finish()
    }
}

/// The endpoint of all webhooks.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint { address: Address::Url(URL.into()), ca_bundle: None, namespace: NAMESPACE.into() }
}

impl Answers for Webhooks {
    fn answer(&self, call: &Call, now_ms: u64) -> Result<Value, String> {
        let failed = |why: &str| format!("Post {:?}: {why}", call.url);
        let path = call.url.strip_prefix(URL).ok_or_else(|| failed("dial tcp: lookup: no such host"))?;
        let path = path.split('?').next().unwrap_or_default();
        let refused = || failed("dial tcp 127.0.0.1:443: connect: connection refused");
        let (subject, name) = at_path(path).ok_or_else(refused)?;
        let body = call.review.to_string();
        let text = match subject {
            Subject::Admission(purpose) => self.admit(purpose, name, body.as_bytes(), now_ms),
            Subject::Conversion => self.convert(name, body.as_bytes(), now_ms),
        };
        let text = text.ok_or_else(refused)??;
        serde_json::from_str(&text).map_err(|error| failed(&error.to_string()))
    }
}

impl Webhooks {
    pub(crate) fn new(guest: Rc<dyn Guest>) -> Self {
        Self { guest, admission: BTreeMap::new(), conversion: BTreeMap::new() }
    }

    fn admit(&self, purpose: Purpose, name: &str, body: &[u8], now_ms: u64) -> Option<Result<String, String>> {
        let backend = self.admission.get(name)?;
        Some(Review::parse(body, backend).map(|review| match review.request(purpose, now(now_ms).unix_ms) {
            Some(request) => review.answer(name, self.guest.admit(&request, &backend.limits)).text,
            None => review.admitted().text,
        }))
    }

    fn convert(&self, name: &str, body: &[u8], now_ms: u64) -> Option<Result<String, String>> {
        let backend = self.conversion.get(name)?;
        Some(ConversionReview::parse(body).map(|review| {
            let mut success = review.success();
            for object in review.objects() {
                let converted = match review.request(object, backend, now(now_ms).unix_ms) {
                    None => Ok(object.text().to_owned()),
                    Some(request) => review.converted(name, object, self.guest.convert(&request, &backend.limits)),
                };
                let converted = converted.map_err(|failure| failure.message);
                if let Err(why) = converted.and_then(|converted| success.push(&converted)) {
                    return review.failure(&why);
                }
            }
            success.end()
        }))
    }
}
