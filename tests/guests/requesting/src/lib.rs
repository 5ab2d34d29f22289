//! A Fetch sends the HTTP requests that its spec lists. Its status has their responses, and each response that is to be kept
//! becomes a ConfigMap. It may have a Secret "token" for its requests, with a value of its own and one that the host makes.

use std::collections::BTreeMap;

use mortise_sdk::prelude::*;
use mortise_sdk::{Method, Request};

/// Requests and their responses.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Fetch", status = FetchStatus)]
#[serde(rename_all = "camelCase")]
pub struct FetchSpec {
    /// The requests.
    pub requests: Vec<Wanted>,
    /// Make the Secret.
    #[serde(default)]
    pub makes_token: bool,
}

/// What came back.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct FetchStatus {
    /// By key: the status and the first bytes of the body, or the class of the failure.
    pub responses: BTreeMap<String, String>,
}

/// One request.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// Its key.
    pub key: String,
    /// Its URL.
    pub url: String,
    /// POST this body, or GET.
    #[serde(default)]
    pub post: Option<String>,
    /// Its timeout.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// A secret header: the key of the Secret.
    #[serde(default)]
    pub token: Option<String>,
    /// Its refresh.
    #[serde(default)]
    pub refresh_ms: Option<u64>,
    /// Make a ConfigMap of the response.
    #[serde(default)]
    pub keep: bool,
}

// A test replaces the port by that of its server.
#[reconciler(
    owns("v1/ConfigMap", "v1/Secret"),
    http("http://127.0.0.1:10000", "GET", "POST"),
    http("https://127.0.0.1:10000", "GET", secret = "token")
)]
fn reconcile(fetch: &Fetch, cx: &Context) -> Result<Outcome<FetchStatus>, Failure> {
    let mut outcome = Outcome::children([]);
    if fetch.spec.makes_token {
        let data = json!({"own": "czNjcmV0LTBmLXMwbWUwbmU="});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "data": data});
        outcome = outcome.then([Child::new("token", secret).generate("data.made", Generated::alphanumeric(32))]);
    }
    let mut responses = BTreeMap::new();
    for wanted in &fetch.spec.requests {
        let request = request(wanted);
        let text = match cx.response(&request) {
            Ok(Some(response)) => {
                let body = String::from_utf8_lossy(&response.body);
                Some(format!("{} {}", response.status, body.chars().take(40).collect::<String>()))
            }
            Ok(None) => None,
            Err(failure) => Some(format!("{:?}", failure.class)),
        };
        if let Some(text) = text {
            if wanted.keep {
                let kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"response": text}});
                outcome = outcome.then([Child::new(&wanted.key, kept)]);
            }
            responses.insert(wanted.key.clone(), text);
        }
        outcome = outcome.request(request);
    }
    let all = responses.len() == fetch.spec.requests.len();
    Ok(outcome.status(&FetchStatus { responses }).ready(all, "Asked", ""))
}

fn request(wanted: &Wanted) -> Request {
    let method = if wanted.post.is_some() { Method::Post } else { Method::Get };
    let mut request = Request::new(method, &wanted.key, &wanted.url).body(wanted.post.clone().unwrap_or_default());
    if let Some(key) = &wanted.token {
        request = request.bearer("token", key);
    }
    if let Some(milliseconds) = wanted.timeout_ms {
        request = request.timeout(Duration::from_millis(milliseconds));
    }
    if let Some(milliseconds) = wanted.refresh_ms {
        request = request.refresh_after(Duration::from_millis(milliseconds));
    }
    request
}
