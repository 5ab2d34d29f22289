//! Asking a webhook, of admission or of conversion. Input: where it is and a review. Output: its answer if the door has
//! brought one, or a call to be made first. It must not know what reviews say.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::halt::{Answer, Call, FirstTry, Halt, ServiceReference};

/// The webhook's review, or why there is none. `client` is a `WebhookClientConfig`.
pub(crate) fn ask(
    client: &Value,
    review: Value,
    timeout_seconds: u64,
    answers: &[Answer],
) -> Result<Result<Value, String>, Halt> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let service = client.get("service").filter(|service| service.is_object()).map(|service| ServiceReference {
        namespace: text(&service["namespace"]),
        name: text(&service["name"]),
        port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(443),
    });
    let server_name = service.as_ref().map(|service| format!("{}.{}.svc", service.name, service.namespace));
    let base = match (&service, &server_name) {
        (Some(service), Some(host)) => {
            let path = text(&client["service"]["path"]);
            format!("https://{host}:{}/{}", service.port, path.trim_start_matches('/'))
        }
        _ => text(&client["url"]),
    };
    let joint = if base.contains('?') { '&' } else { '?' };
    let url = format!("{base}{joint}timeout={timeout_seconds}s");
    // An answer belongs to one request: what is asked and where tell its calls apart.
    if let Some(answer) = answers.iter().find(|answer| answer.call.url == url && answer.call.review == review) {
        return Ok(answer.result.clone());
    }
    let ca_bundle = BASE64_STANDARD.decode(text(&client["caBundle"])).unwrap_or_default();
    let first_try = FirstTry::default();
    Err(Call { url, ca_bundle, server_name, service, review, timeout_seconds, first_try, step: None }.into())
}
