//! Asks the API server who a client of the host is, by a TokenReview, and whether it may get a path, by a
//! SubjectAccessReview. It must not know why, or what follows.

use bytes::Bytes;
use http::Method;
use mortise_core::write::WriteError;
use serde_json::{Value, json};

use crate::client::{ApiServer, READ_TIMEOUT, request};
use crate::failure::Failure;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Who a token is, as the API server describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct User(Value);

impl User {
    /// "system:serviceaccount:monitoring:prometheus".
    pub fn name(&self) -> &str {
        self.0["username"].as_str().unwrap_or_default()
    }
}

impl ApiServer {
    /// Whose bearer token it is; None: nobody's.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn user_of(&self, token: &str) -> Result<Option<User>, WriteError> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let status = self.asked(TOKENS, &body).await.map_err(Failure::into_write_error)?;
        let user = (status["authenticated"] == true).then(|| User(status["user"].clone()));
        Ok(user.filter(|user| !user.name().is_empty()))
    }

    /// Whether the user may `get` a path that is no object's.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn may_get(&self, user: &User, path: &str) -> Result<bool, WriteError> {
        let User(who) = user;
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": who["username"], "uid": who["uid"], "groups": who["groups"], "extra": who["extra"],
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        });
        let status = self.asked(ACCESS, &body).await.map_err(Failure::into_write_error)?;
        Ok(status["allowed"] == true)
    }

    /// The status of a review.
    async fn asked(&self, path: &'static str, body: &Value) -> Result<Value, Failure> {
        let request = request(Method::POST, path, Some("application/json"), Bytes::from(body.to_string()))?;
        let response = self.send(request, READ_TIMEOUT).await?;
        let mut answer: Value = serde_json::from_slice(&response.body)
            .map_err(|error| Failure::Lost(format!("the answer to a review cannot be read: {error}")))?;
        Ok(answer["status"].take())
    }
}
