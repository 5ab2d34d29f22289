//! Asks the API server who a client of the host is, by a TokenReview, and whether it may get a path, by a
//! SubjectAccessReview. It must not know why, or what follows.

use bytes::Bytes;
use http::Method;
use mortise_core::write::WriteError;
use serde_json::{Value, json};

use crate::access_review::allowed;
use crate::answers::Size;
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
        let answer = self.asked(TOKENS, &body).await.map_err(Failure::into_write_error)?;
        user(&answer).map_err(Failure::into_write_error)
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
        let answer = self.asked(ACCESS, &body).await.map_err(Failure::into_write_error)?;
        allowed("SubjectAccessReview", &answer).map_err(Failure::into_write_error)
    }

    /// The answer to a review.
    async fn asked(&self, path: &'static str, body: &Value) -> Result<Bytes, Failure> {
        let request = request(Method::POST, path, Some("application/json"), Bytes::from(body.to_string()))?;
        Ok(self.send(request, READ_TIMEOUT, Size::Small).await?.body)
    }
}

/// The answer to a TokenReview. The API server leaves out `authenticated` where it is false.
fn user(answer: &[u8]) -> Result<Option<User>, Failure> {
    let unreadable = |why: String| Failure::Lost(format!("the answer to a TokenReview cannot be read: {why}"));
    let mut answer: Value = serde_json::from_slice(answer).map_err(|error| unreadable(error.to_string()))?;
    if answer["kind"] != "TokenReview" || !answer["status"].is_object() {
        return Err(unreadable("it is another object".to_owned()));
    }
    let status = answer["status"].take();
    let user = (status["authenticated"] == true).then(|| User(status["user"].clone()));
    Ok(user.filter(|user| !user.name().is_empty()))
}
