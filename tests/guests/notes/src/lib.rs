//! Several controllers in one plugin. A Deployment with the note annotation gets a Note, and so does a marked Service;
//! a Note gets a ConfigMap; a Binder, which is cluster-scoped, gets a ConfigMap in each namespace that it lists; a
//! Crowd gets a number of Pods with a rolling update.

use mortise_sdk::prelude::*;

plugin!(take, mark, file, bind, gather);

/// A note about a Deployment or Service.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Note", status = NoteStatus)]
pub struct NoteSpec {
    /// The text.
    pub text: String,
}

/// The last observed state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct NoteStatus {
    /// The replicas of the Deployment of the same name, if it exists.
    pub replicas: Option<i32>,
}

#[derive(Projection)]
#[projection("apps/v1/Deployment")]
struct Deployment<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.annotations[\"test.mortise.dev/note\"]")]
    note: Option<String>,
    #[field("spec.replicas")]
    replicas: Option<i32>,
}

/// The note for which the plugin returns a status of the Deployment, which the host refuses.
const WRITE_STATUS: &str = "write my status";

#[controller(owns(Note))]
fn take(deployment: &Deployment, _cx: &Context) -> Result<Outcome<Value>, Failure> {
    let Some(text) = &deployment.note else { return Ok(Outcome::children([])) };
    if text == WRITE_STATUS {
        return Ok(Outcome::new().status(&json!({"replicas": 0})));
    }
    let note = Note::wanted(deployment.name, NoteSpec { text: text.clone() });
    Ok(Outcome::children([Child::new("note", &note)]).event(Event::normal("Noted", text.as_str())))
}

#[derive(Projection)]
#[projection("v1/Service")]
struct Service<'a> {
    #[field("metadata.name")]
    name: &'a str,
}

#[controller(owns(Note), labels = "tier in (web, api)", annotation("test.mortise.dev/noted", "true"))]
fn mark(service: &Service, _cx: &Context) -> Result<Outcome, Failure> {
    let note = Note::wanted("", NoteSpec { text: ["the Service ", service.name].concat() });
    Ok(Outcome::children([Child::new("note", &note)]))
}

#[controller(owns("v1/ConfigMap"), reads(Deployment))]
fn file(note: &Note, cx: &Context) -> Result<Outcome<NoteStatus>, Failure> {
    let about: Option<Deployment> = cx.get(note.metadata.namespace.as_deref(), &note.metadata.name)?;
    let replicas = about.map(|deployment| deployment.replicas.unwrap_or(1));
    let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": note.spec.text}});
    let status = NoteStatus { replicas };
    Ok(Outcome::children([Child::new("text", &text)]).status(&status).ready(true, "Filed", "a ConfigMap has the text"))
}

/// Puts a text into namespaces.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Binder", status = BinderStatus, cluster)]
pub struct BinderSpec {
    /// The namespaces; "" is none, which the host refuses.
    pub namespaces: Vec<String>,
    /// The text.
    pub text: String,
}

/// The last observed state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct BinderStatus {
    /// The namespaces that have the text.
    pub namespaces: Vec<String>,
}

#[derive(Projection)]
#[projection("v1/ConfigMap")]
struct ConfigMap<'a> {
    #[field("metadata.namespace")]
    namespace: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
}

#[controller(owns("v1/ConfigMap", update = "recreate"))]
fn bind(binder: &Binder, cx: &Context) -> Result<Outcome<BinderStatus>, Failure> {
    let config_maps: Vec<ConfigMap> = cx.owned()?;
    let existing = config_maps.iter().filter(|config_map| config_map.deleted_at.is_none());
    let mut namespaces: Vec<String> = existing.map(|config_map| config_map.namespace.to_owned()).collect();
    namespaces.sort();
    let all = namespaces.len() == binder.spec.namespaces.len();
    let children = binder.spec.namespaces.iter().map(|namespace| {
        let mut config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": binder.spec.text}});
        if !namespace.is_empty() {
            config_map["metadata"] = json!({"namespace": namespace});
        }
        // A prefix, since a key must not be empty.
        Child::new(["in-", namespace].concat(), &config_map)
    });
    let outcome = Outcome::children(children).status(&BinderStatus { namespaces });
    let event = if all {
        Event::normal("Bound", "its text is in every namespace")
    } else {
        Event::normal("Binding", "not yet")
    };
    Ok(outcome.event(event).ready(all, if all { "Bound" } else { "Binding" }, ""))
}

/// Runs Pods.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Crowd")]
pub struct CrowdSpec {
    /// The number of Pods.
    pub size: usize,
    /// Their image.
    pub image: String,
}

#[controller(owns("v1/Pod", update = "rolling_recreate", max_unavailable = 1))]
fn gather(crowd: &Crowd, _cx: &Context) -> Result<Outcome, Failure> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": crowd.spec.image}]},
    });
    Ok(Outcome::children((0..crowd.spec.size).map(|index| Child::new(index.to_string(), &pod))))
}
