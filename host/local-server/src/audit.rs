//! The audit log: a line for each request, in the form of kube-apiserver's at the level Metadata. Input: requests and what
//! they came to. Output: lines in a file. It must not know who reads them.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use jiff::Timestamp;
use mortise_local_cluster::{Subject, User};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{clock, file};

/// An open log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<File>,
}

/// What is known of a request when it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) at: Timestamp,
    pub(crate) uri: String,
    pub(crate) peer: String,
    pub(crate) user_agent: String,
    pub(crate) user: User,
    /// The user whom the client wants to be taken for.
    pub(crate) impersonated: Option<String>,
    pub(crate) subject: Subject,
}

impl AuditLog {
    /// Opens a log; lines of earlier starts stay.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        file::ensure_ours(path)?;
        let file = file::append(path)
            .with_context(|| format!("open the audit log {}: does its folder exist?", path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes the line of a request that is answered: before the client has the answer, or when its watch has ended.
    pub(crate) fn write(&self, received: &Received, code: u16) {
        let mut line = received.event(code).to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not stop the cluster, and there is nobody to tell.
        let _ = file.write_all(line.as_bytes());
    }
}

impl Received {
    fn event(&self, code: u16) -> Value {
        let subject = &self.subject;
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": self.id,
            "stage": "ResponseComplete", "requestURI": self.uri, "verb": subject.verb,
            "user": filled([
                ("username", self.user.name.as_str().into()),
                ("uid", self.user.uid.as_str().into()),
                ("groups", self.user.groups.clone().into()),
                ("extra", self.user.extra.iter().cloned().map(|(key, values)| (key, Value::from(values))).collect()),
            ]),
            "sourceIPs": [self.peer],
            "userAgent": self.user_agent,
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": format!("{:.6}", self.at),
            "stageTimestamp": format!("{:.6}", clock::now()),
        });
        if !subject.resource.is_empty() {
            event["objectRef"] = filled([
                ("resource", subject.resource.as_str().into()),
                ("namespace", subject.namespace.as_str().into()),
                ("name", subject.name.as_str().into()),
                ("apiGroup", subject.group.as_str().into()),
                ("apiVersion", subject.version.as_str().into()),
                ("subresource", subject.subresource.as_str().into()),
            ]);
        }
        if let Some(name) = &self.impersonated {
            event["impersonatedUser"] = json!({"username": name});
        }
        event
    }
}

/// An object without its empty fields.
fn filled<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    fields.into_iter().filter(|(_, value)| !empty(value)).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The name in the body of a create, which its path does not have.
pub(crate) fn name_in(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    serde_json::from_slice::<Named>(body).ok().map(|named| named.metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_user_verb_and_object() {
        let subject = Subject {
            verb: "create",
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            namespace: "a".to_owned(),
            name: name_in(br#"{"kind": "Pod", "metadata": {"labels": {}, "name": "b"}}"#).unwrap(),
            ..Subject::default()
        };
        let received = Received {
            id: "1".to_owned(),
            at: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
            uri: "/api/v1/namespaces/a/pods".to_owned(),
            peer: "127.0.0.1".to_owned(),
            user_agent: "kubectl".to_owned(),
            user: User { name: "admin".to_owned(), ..User::default() },
            impersonated: None,
            subject,
        };
        let event = received.event(201);
        let object = json!({"resource": "pods", "namespace": "a", "name": "b", "apiVersion": "v1"});
        assert_eq!((&event["user"], &event["objectRef"]), (&json!({"username": "admin"}), &object));
        assert_eq!(event["requestReceivedTimestamp"], "2026-01-02T03:04:05.000006Z");
        assert_eq!(event["responseStatus"]["code"], 201);
    }
}
