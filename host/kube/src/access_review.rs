//! Asks where a ServiceAccount may read a kind, by SubjectAccessReviews. It must not know why, or what follows.

use bytes::Bytes;
use http::Method;
use mortise_core::object::Kind;
use mortise_core::rights::{Readable, Review};
use mortise_core::write::WriteError;
use serde::Deserialize;
use serde_json::json;

use crate::answers::Size;
use crate::client::{ApiServer, READ_TIMEOUT, request};
use crate::discovery::Resource;
use crate::failure::Failure;

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl ApiServer {
    /// Where the ServiceAccount may read the kind: everywhere, or in which of the namespaces of the review. A
    /// request for each verb, up to the first that is not allowed.
    ///
    /// # Errors
    /// The first request that has no answer.
    pub async fn review(&self, review: &Review) -> Result<Readable, WriteError> {
        self.reviewed(review).await.map_err(Failure::into_write_error)
    }

    async fn reviewed(&self, review: &Review) -> Result<Readable, Failure> {
        let resource = self.resource(&review.kind).await?;
        if review.everywhere && self.may_read(review, &resource, "").await? {
            return Ok(Readable::Everywhere);
        }
        let mut readable = Readable::In(Default::default());
        for namespace in review.namespaces.iter().filter(|_| resource.namespaced) {
            if self.may_read(review, &resource, namespace).await?
                && let Readable::In(namespaces) = &mut readable
            {
                namespaces.insert(namespace.clone());
            }
        }
        Ok(readable)
    }

    async fn may_read(&self, review: &Review, resource: &Resource, namespace: &str) -> Result<bool, Failure> {
        for verb in review.verbs() {
            if !self.may(verb, review, resource, namespace).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn may(&self, verb: &str, review: &Review, resource: &Resource, namespace: &str) -> Result<bool, Failure> {
        let (kind, account) = (&review.kind, &review.account);
        let attributes = json!({
            "group": kind.group(), "version": kind.version(), "resource": resource.plural, "verb": verb, "namespace": namespace,
        });
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": account.user(), "groups": account.groups(), "resourceAttributes": attributes},
        });
        // Reviews wait for each other, and for no reads of objects.
        let _permit = self.live_reads().enter(Kind::new("authorization.k8s.io/v1", "SubjectAccessReview")).await;
        let request = request(Method::POST, PATH, Some("application/json"), Bytes::from(body.to_string()))?;
        let response = self.send(request, READ_TIMEOUT, Size::Small).await?;
        allowed("SubjectAccessReview", &response.body)
    }
}

/// The answer to a review of this kind. One that does not say it is none: the API server always writes `allowed`.
pub(crate) fn allowed(review: &str, body: &[u8]) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct Answer {
        kind: String,
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
    }
    let unreadable = |why: String| Failure::Lost(format!("the answer to a {review} cannot be read: {why}"));
    match serde_json::from_slice::<Answer>(body) {
        Ok(Answer { kind, status }) if kind == review => Ok(status.allowed),
        Ok(Answer { kind, .. }) => Err(unreadable(format!("it is a {kind}"))),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_an_answer_that_does_not_say_whether_it_is_allowed_is_none() {
        let answer = |kind: &str, status: &str| {
            allowed("SubjectAccessReview", format!(r#"{{"kind":"{kind}","status":{status}}}"#).as_bytes())
        };
        assert_eq!(answer("SubjectAccessReview", r#"{"allowed":true}"#), Ok(true));
        assert_eq!(answer("SubjectAccessReview", r#"{"allowed":false,"reason":"no role"}"#), Ok(false));
        for (kind, status) in [
            ("SubjectAccessReview", "{}"),
            ("SubjectAccessReview", r#"{"allowed":"true"}"#),
            ("SubjectAccessReview", r#"{"allowed":null}"#),
            ("Status", r#"{"allowed":true}"#),
            ("Status", r#""Success""#),
        ] {
            assert!(matches!(answer(kind, status), Err(Failure::Lost(_))), "{kind} {status}");
        }
    }
}
