//! Why a request failed, and which error a write, a watch or a registration returns for it. What matters most is whether the
//! request may have taken effect: after [`Failure::NotSent`] it did not, an error response says so, and after
//! [`Failure::Lost`] it is unknown.

use std::error::Error as _;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use mortise_core::crd::CrdError;
use mortise_core::response::{Refused, bounded_ms, chain, cut};
use mortise_core::watch::WatchError;
use mortise_core::write::{WriteError, WriteErrorClass};

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// It was not sent: no connection, or no credentials.
    NotSent(String),
    /// It was sent, and no complete response came back.
    Lost(String),
    /// The API server, or a proxy before it, responded with an error.
    Response(Refused),
    /// The API server serves no such kind.
    NotServed(String),
    /// The request is invalid and was not sent.
    Invalid(String),
    /// The response is larger than the host reads at once.
    TooLarge,
}

/// Reads an error response. A 429 of the API server's flow control has its delay in the header only, since its body is
/// plain text; other delays are in the Status.
pub(crate) fn refused(code: StatusCode, headers: &HeaderMap, body: &Bytes) -> Refused {
    let header_ms = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok())
        .map(bounded_ms);
    let mut refused = Refused::from_status(body)
        .unwrap_or_else(|| Refused { message: cut(String::from_utf8_lossy(body).trim()), ..Refused::default() });
    refused.code = code.as_u16();
    refused.retry_after_ms = header_ms.or(refused.retry_after_ms);
    if refused.message.is_empty() {
        refused.message = format!("HTTP {code}");
    }
    if refused.summary.is_empty() {
        refused.summary = format!("HTTP {code}");
    }
    if code == StatusCode::UNAUTHORIZED {
        refused.message = credentials_not_accepted(&refused.message);
        refused.summary.clone_from(&refused.message);
    }
    refused
}

impl Failure {
    /// From an error of kube's client: there is no response.
    pub(crate) fn of_client(error: &kube::Error) -> Self {
        // Without the name of kube's layer.
        let message = match error {
            kube::Error::Service(inner) => chain(&**inner),
            other => chain(other),
        };
        if never_sent(error) { Self::NotSent(message) } else { Self::Lost(message) }
    }

    /// For people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NotSent(message) | Self::Lost(message) | Self::NotServed(message) | Self::Invalid(message) => {
                message.clone()
            }
            Self::Response(refused) => refused.message.clone(),
            Self::TooLarge => "the response is larger than the host reads at once".to_owned(),
        }
    }

    /// Prefixes the message with the operation.
    pub(crate) fn during(mut self, operation: &str) -> Self {
        match &mut self {
            Self::NotSent(message) | Self::Lost(message) | Self::NotServed(message) | Self::Invalid(message) => {
                *message = format!("{operation}: {message}");
            }
            Self::Response(refused) => refused.message = format!("{operation}: {}", refused.message),
            Self::TooLarge => {}
        }
        self
    }

    pub(crate) fn into_write_error(self) -> WriteError {
        let class = match &self {
            Self::NotSent(_) => WriteErrorClass::Unavailable,
            Self::Lost(_) | Self::TooLarge => WriteErrorClass::Unknown,
            Self::Response(refused) => refused.class(),
            Self::NotServed(_) => WriteErrorClass::NotFound,
            Self::Invalid(_) => WriteErrorClass::Invalid,
        };
        WriteError { class, message: self.message() }
    }

    pub(crate) fn to_watch_error(&self) -> WatchError {
        let message = self.message();
        match self {
            Self::Response(refused) => refused.to_watch_error(),
            Self::NotServed(_) => WatchError::NotServed(message),
            _ => WatchError::Unavailable(message),
        }
    }

    pub(crate) fn into_crd_error(self) -> CrdError {
        let message = self.message();
        match self {
            Self::Response(refused) => match refused.class() {
                WriteErrorClass::Denied => CrdError::Denied(message),
                WriteErrorClass::Invalid => {
                    CrdError::Refused(mortise_core::refusal::Refusal::new("CrdInvalid", message))
                }
                _ => CrdError::Unavailable(message),
            },
            Self::Invalid(_) => CrdError::Refused(mortise_core::refusal::Refusal::new("CrdInvalid", message)),
            _ => CrdError::Unavailable(message),
        }
    }
}

/// Whether the request cannot have reached the API server: there was no connection, or there were no credentials.
fn never_sent(error: &kube::Error) -> bool {
    if matches!(error, kube::Error::Auth(_) | kube::Error::HttpError(_)) {
        return true;
    }
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        source = error.source();
    }
    // kube boxes the connection's error, which is then not among the sources.
    match error {
        kube::Error::Service(error) => {
            error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect())
        }
        _ => false,
    }
}

/// Many read the API server's "Unauthorized" as a missing right.
fn credentials_not_accepted(message: &str) -> String {
    format!(
        "the host's credentials were not accepted ({message}): its token or certificate has expired or is of another \
         cluster; renew those of the kubeconfig, or the pod's ServiceAccount token"
    )
}

#[cfg(test)]
mod tests {
    use mortise_core::limits::MAX_MESSAGE_CHARS;
    use mortise_core::response::MAX_RETRY_AFTER_MS;

    use super::*;

    fn refused(code: u16, retry_after: Option<&str>, body: &str) -> Refused {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
        }
        super::refused(StatusCode::from_u16(code).unwrap(), &headers, &Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn each_error_response_has_its_class() {
        use WriteErrorClass as Class;
        let status = |reason: &str| format!(r#"{{"kind":"Status","message":"why","reason":"{reason}"}}"#);
        let table = [
            (409, status("AlreadyExists"), Class::AlreadyExists),
            (409, status("Conflict"), Class::Conflict),
            (404, status("NotFound"), Class::NotFound),
            (422, status("Invalid"), Class::Invalid),
            (400, status("BadRequest"), Class::Invalid),
            (413, String::new(), Class::Invalid),
            (401, status("Unauthorized"), Class::Unavailable),
            (403, status("Forbidden"), Class::Denied),
            (500, status("InternalError"), Class::Unknown),
            (503, status("ServiceUnavailable"), Class::Unavailable),
            (504, status("Timeout"), Class::Unknown),
            (
                500,
                r#"{"message":"failed to create typed patch object (/a; v1): .x: expected string"}"#.into(),
                Class::Invalid,
            ),
            (422, r#"{"message":"Pod \"a\" is invalid: metadata.uid: Invalid value: \"u\""}"#.into(), Class::Conflict),
        ];
        for (code, body, class) in table {
            let error = Failure::Response(refused(code, None, &body)).into_write_error();
            assert_eq!(error.class, class, "{code}");
            assert!(!error.message.is_empty(), "{code} has a message");
        }
    }

    #[test]
    fn the_delay_of_a_429_is_read_from_the_header_or_the_status() {
        use WriteErrorClass::TooManyRequests;
        let class = |refused: Refused| Failure::Response(refused).into_write_error().class;
        let plain = refused(429, Some("7"), "Too many requests, please try again later.\n");
        assert_eq!(plain.message, "Too many requests, please try again later.");
        assert_eq!(class(plain), TooManyRequests { retry_after_ms: 7_000 });
        let status = refused(429, None, r#"{"message":"m","details":{"retryAfterSeconds":2}}"#);
        assert_eq!(class(status), TooManyRequests { retry_after_ms: 2_000 });
        assert_eq!(class(refused(429, None, "")), TooManyRequests { retry_after_ms: 0 });
    }

    #[test]
    fn an_eviction_that_a_budget_does_not_allow_names_the_budget() {
        let cause =
            r#"{"reason":"DisruptionBudget","message":"The disruption budget web needs 2 healthy pods and has 2"}"#;
        let body = format!(
            r#"{{"message":"Cannot evict pod as it would violate the pod's disruption budget.",
                "reason":"TooManyRequests","details":{{"causes":[{cause}]}}}}"#
        );
        let error = Failure::Response(refused(429, None, &body)).into_write_error();
        assert_eq!(error.class, WriteErrorClass::Blocked);
        assert_eq!(error.message, "The disruption budget web needs 2 healthy pods and has 2");
        let two = r#"{"message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}"#;
        assert_eq!(Failure::Response(refused(500, None, two)).into_write_error().class, WriteErrorClass::Blocked);
        let busy = r#"{"message":"too many requests","reason":"TooManyRequests"}"#;
        let class = Failure::Response(refused(429, None, busy)).into_write_error().class;
        assert_eq!(class, WriteErrorClass::TooManyRequests { retry_after_ms: 0 }, "no budget is involved");
    }

    #[test]
    fn a_version_that_the_api_server_has_not_seen_is_expired_and_another_timeout_is_not() {
        let response = |causes: &str| {
            let body = format!(
                r#"{{"kind":"Status","status":"Failure","reason":"Timeout","code":504,
                    "message":"Timeout: Too large resource version: 9, current: 7",
                    "details":{{"causes":[{causes}],"retryAfterSeconds":1}}}}"#
            );
            refused(504, None, &body)
        };
        let cause = r#"{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}"#;
        assert!(response(cause).is_expired());
        assert!(!response("").is_expired());
    }

    #[test]
    fn retry_after_is_bounded() {
        let delay = |refused: Refused| refused.retry_after_ms;
        let greatest = u64::MAX.to_string();
        let status = format!(r#"{{"message":"m","details":{{"retryAfterSeconds":{greatest}}}}}"#);
        for refused in [refused(429, Some(&greatest), ""), refused(429, Some("86400"), ""), refused(429, None, &status)]
        {
            assert_eq!(delay(refused), Some(MAX_RETRY_AFTER_MS));
        }
        assert_eq!(delay(refused(503, Some("299"), "")), Some(299_000));
    }

    #[test]
    fn rejected_credentials_are_no_missing_right() {
        let unauthorized = || {
            let body =
                r#"{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
            Failure::Response(refused(401, None, body))
        };
        let write = unauthorized().into_write_error();
        assert_eq!(write.class, WriteErrorClass::Unavailable);
        let WatchError::Unavailable(watch) = unauthorized().to_watch_error() else { panic!("a watch is denied") };
        let CrdError::Unavailable(crd) = unauthorized().into_crd_error() else { panic!("a registration is denied") };
        for words in [write.message, watch, crd] {
            assert!(words.contains("credentials were not accepted (Unauthorized)"), "{words}");
        }
    }

    #[test]
    fn a_request_that_was_not_sent_is_unavailable_and_a_lost_one_is_unknown() {
        let class = |failure: Failure| failure.into_write_error().class;
        assert_eq!(class(Failure::NotSent("refused".into())), WriteErrorClass::Unavailable);
        assert_eq!(class(Failure::Lost("reset".into())), WriteErrorClass::Unknown);
    }

    #[test]
    fn watches_distinguish_denied_and_not_served_from_passing_errors() {
        let error = |code| Failure::Response(refused(code, None, r#"{"message":"m"}"#)).to_watch_error();
        assert_eq!(error(403), WatchError::Denied("m".into()));
        assert_eq!(error(404), WatchError::NotServed("m".into()));
        assert_eq!(error(503), WatchError::Unavailable("m".into()));
    }

    #[test]
    fn a_page_of_html_is_cut_in_its_middle() {
        let page = format!("what failed {} and why", "x".repeat(9_000));
        let message = refused(502, None, &page).message;
        assert_eq!(message.len(), MAX_MESSAGE_CHARS);
        assert!(message.starts_with("what failed x") && message.ends_with("x and why"), "{message}");
        assert_eq!(cut(&"ä".repeat(MAX_MESSAGE_CHARS)).chars().count(), MAX_MESSAGE_CHARS);
    }
}
