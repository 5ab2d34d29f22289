//! The API server's audit policy and log: independent evidence of who wrote what, and that a converged host writes
//! nothing.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// One request that the API server has responded to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRecord {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`; with reads also `get`, `list`, `watch`.
    pub verb: String,
    /// The authenticated user, such as `admin` or `system:serviceaccount:mortise-system:mortise`.
    pub user: String,
    /// The user that it was sent as, if that is another one.
    pub impersonated: Option<String>,
    /// The client's `User-Agent`.
    pub user_agent: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural resource name; empty for requests without objects, such as `/readyz`.
    pub resource: String,
    /// `status`, `scale`, `eviction`, ...; empty when none.
    pub subresource: String,
    /// Empty for requests on a collection, and for a `create` that the server refused before it read the body.
    pub name: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The path and query of the request.
    pub uri: String,
    /// The HTTP status, 0 when the connection ended before the response.
    pub code: u16,
    /// When the API server received it, RFC 3339 with microseconds.
    pub received: String,
}

impl AuditRecord {
    /// Whether the verb is a write.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Records writes, and optionally reads, without bodies.
pub(crate) fn policy(reads: bool) -> String {
    let rest = if reads { "Metadata" } else { "None" };
    format!(
        "apiVersion: audit.k8s.io/v1\n\
         kind: Policy\n\
         omitStages: [RequestReceived, ResponseStarted]\n\
         rules:\n\
         - level: Metadata\n  verbs: [create, update, patch, delete, deletecollection]\n\
         - level: {rest}\n"
    )
}

/// Reads the records from byte `offset` on. Returns them and the offset after the last complete one, since the API
/// server may be writing another. A log that does not exist yet is empty.
pub(crate) fn read(path: &Path, offset: u64) -> Result<(Vec<AuditRecord>, u64)> {
    let name = || format!("read the audit log {}", path.display());
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error).with_context(name),
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_to_end(&mut bytes)).with_context(name)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let mut records = Vec::new();
    for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        // A server that was killed in the middle of a line leaves a fragment, followed by the next record. The request
        // of the fragment had no response, so it is no record.
        if let Ok(event) = serde_json::from_slice::<Value>(line) {
            records.extend(record(&event));
        }
    }
    Ok((records, offset + whole as u64))
}

fn record(event: &Value) -> Option<AuditRecord> {
    if event["stage"] != "ResponseComplete" {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    Some(AuditRecord {
        verb: text(&event["verb"]),
        user: text(&event["user"]["username"]),
        impersonated: event["impersonatedUser"]["username"].as_str().map(str::to_owned),
        user_agent: text(&event["userAgent"]),
        group: text(&object["apiGroup"]),
        resource: text(&object["resource"]),
        subresource: text(&object["subresource"]),
        name: text(&object["name"]),
        namespace: text(&object["namespace"]),
        uri: text(&event["requestURI"]),
        code: event["responseStatus"]["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(0),
        received: text(&event["requestReceivedTimestamp"]),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods/a/status","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"userAgent":"kubectl/v1.36.3","objectRef":{"resource":"pods","namespace":"default","name":"a","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}"#;

    #[test]
    fn a_record_has_user_verb_and_object() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        writeln!(log, "{LINE}").unwrap();
        let (records, end) = read(log.path(), 0).unwrap();
        let [record] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!(end, LINE.len() as u64 + 1);
        assert!(record.is_write());
        assert_eq!(
            (record.user.as_str(), record.verb.as_str(), record.resource.as_str(), record.subresource.as_str()),
            ("admin", "patch", "pods", "status")
        );
        assert_eq!((record.namespace.as_str(), record.name.as_str(), record.code), ("default", "a", 200));
    }

    #[test]
    fn an_incomplete_record_is_left_for_the_next_read() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let (first, second) = LINE.split_at(100);
        write!(log, "{LINE}\n{first}").unwrap();
        let (records, end) = read(log.path(), 0).unwrap();
        assert_eq!(records.len(), 1);
        writeln!(log, "{second}").unwrap();
        assert_eq!(read(log.path(), end).unwrap().0.len(), 1);
    }

    #[test]
    fn other_stages_are_no_records() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        writeln!(log, "{}", LINE.replace("ResponseComplete", "ResponseStarted")).unwrap();
        assert_eq!(read(log.path(), 0).unwrap().0, []);
    }

    #[test]
    fn a_log_that_does_not_exist_yet_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir.path().join("audit.jsonl"), 0).unwrap(), (Vec::new(), 0));
    }
}
