//! What others do in the cluster: people by acts, other controllers by reactions to changes. Objects come in and out as JSON.

use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::response::Refused;
use mortise_core::scope::Slice;
use mortise_local_cluster::{Method, Watch};
use serde_json::{Map, Value, json};

use super::{Http, Story};
use crate::api::{Ask, Client};

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
/// Another controller.
pub(super) struct Reaction {
    kind: Kind,
    watch: Option<Box<Watch>>,
    /// The merge patch for an object that changed; null for none.
    react: Box<dyn FnMut(&Value) -> Value>,
}

/// A refusal of the cluster, for a person.
fn said(refused: Refused) -> String {
    refused.message
}

/// Whether a merge patch would change nothing of an object: then it is not sent.
fn has(object: &Value, patch: &Value) -> bool {
    match (patch, object) {
        (Value::Object(patch), Value::Object(object)) => patch.iter().all(|(name, patch)| match object.get(name) {
            Some(member) => has(member, patch),
            None => patch.is_null(),
        }),
        _ => patch == object,
    }
}

impl Story {
    /// Which object a tree is; its namespace is "default" when it names none and its kind needs one.
    ///
    /// # Errors
    /// What it lacks, or that its kind is not served.
    pub fn reference(&mut self, object: &Value) -> Result<ObjectRef, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let part = |value: &Value, what: &str| text(value).ok_or_else(|| format!("an object without {what}: {object}"));
        let kind = Kind::new(&part(&object["apiVersion"], "apiVersion")?, &part(&object["kind"], "kind")?);
        let metadata = &object["metadata"];
        let name = part(&metadata["name"], "metadata.name")?;
        let namespaced = self.api.resource(&kind).map_err(said)?.namespaced;
        let namespace = text(&metadata["namespace"]).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Ok(ObjectRef { kind, name: Name::new(if namespaced { &namespace } else { "" }, &name) })
    }

    /// Whether the cluster serves a kind.
    pub fn serves(&mut self, kind: &Kind) -> bool {
        self.api.resource(kind).is_ok()
    }

    /// Applies an object, as `kubectl apply --server-side --force-conflicts` does, and its status, if it has one. Returns it
    /// as the cluster has it.
    ///
    /// # Errors
    /// The API server's message.
    pub fn apply(&mut self, object: &Value) -> Result<Value, String> {
        let target = self.reference(object)?;
        let mut wanted = object.clone();
        let status = wanted.as_object_mut().and_then(|members| members.remove("status"));
        let applied = self.patch(&target, None, APPLY, &wanted)?;
        match status {
            Some(status) => self.patch(&target, Some("status"), MERGE, &json!({"status": status})),
            None => Ok(applied),
        }
    }

    /// Changes an object by a merge patch; its `status` is that of the status subresource.
    ///
    /// # Errors
    /// The API server's message.
    pub fn edit(&mut self, target: &ObjectRef, patch: &Value) -> Result<(), String> {
        let mut own: Map<String, Value> = patch.as_object().cloned().unwrap_or_default();
        let status = own.remove("status");
        if !own.is_empty() {
            self.patch(target, None, MERGE, &Value::Object(own))?;
        }
        if let Some(status) = status {
            self.patch(target, Some("status"), MERGE, &json!({"status": status}))?;
        }
        Ok(())
    }

    /// Deletes an object, as `kubectl delete` does: at once, or when its finalizers and its grace period are over; what it owns
    /// follows.
    ///
    /// # Errors
    /// The API server's message.
    pub fn delete(&mut self, target: &ObjectRef) -> Result<(), String> {
        let [path, _] = self.api.path(target).map_err(said)?;
        // The API server alone would orphan what a Job owns.
        let query = vec![("propagationPolicy", "Background".to_owned())];
        let ask = Ask { method: Method::Delete, query, ..Ask::get(path) };
        self.api.json(Client::Others, ask).map(drop).map_err(said)
    }

    /// One object; None when it is absent.
    pub fn get(&mut self, target: &ObjectRef) -> Option<Value> {
        self.api.get(Client::Others, target).ok().flatten()
    }

    /// All objects of a kind, ordered by namespace and name; none when it is not served.
    pub fn objects(&mut self, kind: &Kind) -> Vec<Value> {
        let denied = std::mem::take(&mut self.api.denied);
        let list: Value = self.api.list(&Slice::from(kind)).unwrap_or_default();
        self.api.denied = denied;
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        for item in &mut items {
            // A list says the kind of its items once.
            item["apiVersion"] = (*kind.api_version).into();
            item["kind"] = (*kind.kind).into();
        }
        items
    }

    /// Sets the reply to the plugin's HTTP requests of a key.
    pub fn respond(&mut self, key: impl Into<String>, reply: Http) {
        self.http.insert(key.into(), reply);
    }

    /// Another controller: called with each object of a kind that is new or has changed; what it returns, unless null, is a
    /// merge patch of the object, with its `status` for the status subresource.
    pub fn on(&mut self, kind: Kind, react: impl FnMut(&Value) -> Value + 'static) {
        self.reactions.push(Reaction { kind, watch: None, react: Box::new(react) });
        self.react();
    }

    fn patch(
        &mut self,
        target: &ObjectRef,
        subresource: Option<&str>,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, String> {
        let [mut path, _] = self.api.path(target).map_err(said)?;
        if let Some(subresource) = subresource {
            path = format!("{path}/{subresource}");
        }
        let mut query = vec![("fieldManager", "story".to_owned()), ("fieldValidation", "Strict".to_owned())];
        if content_type == APPLY {
            query.push(("force", "true".to_owned()));
        }
        let body = body.to_string();
        let ask = Ask { method: Method::Patch, query, content_type, body: body.as_bytes(), ..Ask::get(path) };
        self.api.json(Client::Others, ask).map_err(said)
    }

    /// Lets the other controllers see what changed; whether one of them changed something.
    pub(super) fn react(&mut self) -> bool {
        let before = self.api.cluster.revision();
        let mut reactions = std::mem::take(&mut self.reactions);
        for reaction in &mut reactions {
            self.react_by(reaction);
        }
        self.reactions = reactions;
        self.api.cluster.revision() != before
    }

    fn react_by(&mut self, reaction: &mut Reaction) {
        if reaction.watch.is_none() {
            // From version 0 on: what there is comes first.
            reaction.watch = self.api.watch(&Slice::from(&reaction.kind), 0).ok();
        }
        let Some(watch) = &mut reaction.watch else { return };
        for frame in self.api.poll(watch) {
            let Some(seen) = frame else {
                reaction.watch = None;
                return;
            };
            if seen.event != "ADDED" && seen.event != "MODIFIED" {
                continue;
            }
            let object = seen.tree();
            let patch = (reaction.react)(&object);
            if !patch.is_null()
                && !has(&object, &patch)
                && let Ok(target) = self.reference(&object)
                && let Err(why) = self.edit(&target, &patch)
            {
                self.log.push(format!("another controller cannot change {target}: {why}"));
            }
        }
    }
}
