//! Requests by method and status code, as client-go counts them for `rest_client_requests_total`. The client counts, the
//! runtime exports.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::Method;

/// The code of a request without a response, as in client-go.
const NO_RESPONSE: &str = "<error>";

/// The counts. Methods and codes are few, so this stays small.
#[derive(Debug, Default)]
pub struct RequestCounts {
    counts: Mutex<BTreeMap<(Method, Option<u16>), u64>>,
}

/// One line of the counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestCount {
    /// "GET".
    pub method: String,
    /// "200", or "<error>" for a request without a response.
    pub code: String,
    /// How many since the process started.
    pub count: u64,
}

impl RequestCounts {
    /// Counts one request; no code when there was no response.
    pub(crate) fn add(&self, method: Method, code: Option<u16>) {
        // A panic while a number is added leaves the numbers usable.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((method, code)).or_default() += 1;
    }

    /// All counts, sorted.
    pub fn all(&self) -> Vec<RequestCount> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|((method, code), count)| RequestCount {
                method: method.to_string(),
                code: code.map_or_else(|| NO_RESPONSE.to_owned(), |code| code.to_string()),
                count: *count,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_code() {
        let counts = RequestCounts::default();
        for (method, code) in [(Method::GET, Some(200)), (Method::GET, Some(200)), (Method::POST, None)] {
            counts.add(method, code);
        }
        let lines: Vec<String> =
            counts.all().iter().map(|line| format!("{} {} {}", line.method, line.code, line.count)).collect();
        assert_eq!(lines, ["GET 200 2", "POST <error> 1"]);
    }
}
