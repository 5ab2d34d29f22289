//! Asks whether the host may act as a ServiceAccount, by a SelfSubjectAccessReview, which every user may make. It must not know
//! why, or what follows.

use bytes::Bytes;
use http::Method;
use mortise_core::object::Kind;
use mortise_core::permission::IMPERSONATE;
use mortise_core::rights::IdentityReview;
use mortise_core::write::WriteError;
use serde_json::json;

use crate::access_review::allowed;
use crate::answers::Size;
use crate::client::{ApiServer, READ_TIMEOUT, request};
use crate::failure::Failure;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const KIND: &str = "SelfSubjectAccessReview";

impl ApiServer {
    /// Whether the host may act as the ServiceAccount, whatever it asks for: a request names its user, whose groups the API server
    /// adds itself, so it takes the verb `impersonate` on the ServiceAccount and nothing else.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn review_identity(&self, review: &IdentityReview) -> Result<bool, WriteError> {
        self.may_act(review).await.map_err(Failure::into_write_error)
    }

    async fn may_act(&self, IdentityReview { account, .. }: &IdentityReview) -> Result<bool, Failure> {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": KIND,
            "spec": {"resourceAttributes": {
                "group": "", "version": "v1", "resource": "serviceaccounts", "verb": IMPERSONATE,
                "namespace": *account.namespace, "name": *account.name,
            }},
        });
        // As other reviews: they wait for each other, and for no reads of objects.
        let _permit = self.live_reads().enter(Kind::new("authorization.k8s.io/v1", KIND)).await;
        let request = request(Method::POST, PATH, Some("application/json"), Bytes::from(body.to_string()))?;
        let response = self.send(request, READ_TIMEOUT, Size::Small).await?;
        allowed(KIND, &response.body)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use mortise_core::service_account::ServiceAccount;
    use mortise_core::write::WriteErrorClass;
    use serde_json::Value;

    use super::*;
    use crate::testing::serve;

    fn backup() -> IdentityReview {
        let account = ServiceAccount { namespace: "team-a".into(), name: "backup".into() };
        IdentityReview { id: 1, plugin: "team-a.reader".into(), account: Arc::new(account) }
    }

    #[tokio::test]
    async fn g9_the_host_asks_as_itself_for_the_verb_that_each_of_its_requests_for_the_plugin_takes() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&received);
        let api = serve(move |request| {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            seen.lock().unwrap().push((
                request.method.clone(),
                request.path.clone(),
                request.impersonated.clone(),
                body,
            ));
            ("201 Created", json!({"kind": KIND, "status": {"allowed": true}}).to_string())
        })
        .await;
        assert_eq!(api.review_identity(&backup()).await, Ok(true));
        let attributes = json!({
            "group": "", "version": "v1", "resource": "serviceaccounts", "verb": "impersonate", "namespace": "team-a",
            "name": "backup",
        });
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        assert_eq!(*received.lock().unwrap(), [("POST".to_owned(), path, None, body)]);
    }

    #[tokio::test]
    async fn g9_what_does_not_say_that_the_host_may_does_not_let_it() {
        for (status, body, expected) in [
            ("201 Created", json!({"kind": KIND, "status": {"allowed": false, "denied": true}}).to_string(), Ok(false)),
            ("201 Created", json!({"kind": "Status", "status": "Failure"}).to_string(), Err(WriteErrorClass::Unknown)),
            ("201 Created", "{".to_owned(), Err(WriteErrorClass::Unknown)),
            ("403 Forbidden", String::new(), Err(WriteErrorClass::Denied)),
            ("503 Service Unavailable", String::new(), Err(WriteErrorClass::Unavailable)),
        ] {
            let shown = body.clone();
            let api = serve(move |_| (status, body.clone())).await;
            let answer = api.review_identity(&backup()).await.map_err(|error| error.class);
            assert_eq!(answer, expected, "{status} {shown}");
        }
    }
}
