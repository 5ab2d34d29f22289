//! Several controllers in one plugin. A Deployment that is annotated with a note gets a Note, and so does a Service that is
//! marked; a Note becomes a ConfigMap; a Binder, which lives outside namespaces, lays a ConfigMap into each namespace that it
//! names; and a Crowd is a number of Pods that are replaced one by one.

use mortise_sdk::prelude::*;

plugin!(take, mark, file, bind, gather);

/// What somebody notes about a Deployment.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Note", status = NoteStatus)]
pub struct NoteSpec {
    /// What is noted.
    pub text: String,
}

/// What was last observed of a Note.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct NoteStatus {
    /// What the Deployment of the same name wants; none when there is none.
    pub replicas: Option<i32>,
}

/// What of a Deployment matters here.
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

/// The note by which a Deployment asks for what no plugin may: its status.
const MISDEED: &str = "write my status";

#[controller(owns(Note))]
fn take(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
    let Some(text) = &deployment.note else { return Ok(Outcome::children([])) };
    if text == MISDEED {
        return Ok(Outcome::new().status(&json!({"replicas": 0})));
    }
    let note = Note::wanted(deployment.name, NoteSpec { text: text.clone() });
    Ok(Outcome::children([Child::new("note", &note)]).event(Event::normal("Noted", text.as_str())))
}

/// What of a Service matters here.
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
fn file(note: &Note, cx: &Context) -> Result<Outcome, Failure> {
    let about: Option<Deployment> = cx.get(note.metadata.namespace.as_deref(), &note.metadata.name)?;
    let replicas = about.map(|deployment| deployment.replicas.unwrap_or(1));
    let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": note.spec.text}});
    let status = NoteStatus { replicas };
    Ok(Outcome::children([Child::new("text", &text)]).status(&status).ready(true, "Filed", "a ConfigMap has the text"))
}

/// Lays a text into namespaces.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Binder", status = BinderStatus, cluster)]
pub struct BinderSpec {
    /// Where it lays its text; "" is no namespace, and wrong.
    pub namespaces: Vec<String>,
    /// What it lays there.
    pub text: String,
}

/// What was last observed of a Binder.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct BinderStatus {
    /// Where its text lies.
    pub namespaces: Vec<String>,
}

/// What of a ConfigMap matters here.
#[derive(Projection)]
#[projection("v1/ConfigMap")]
struct Sheet<'a> {
    #[field("metadata.namespace")]
    namespace: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
}

#[controller(owns("v1/ConfigMap", update = "recreate"))]
fn bind(binder: &Binder, cx: &Context) -> Result<Outcome, Failure> {
    let sheets: Vec<Sheet> = cx.owned()?;
    let lying = sheets.iter().filter(|sheet| sheet.deleted_at.is_none());
    let mut namespaces: Vec<String> = lying.map(|sheet| sheet.namespace.to_owned()).collect();
    namespaces.sort();
    let all = namespaces.len() == binder.spec.namespaces.len();
    let children = binder.spec.namespaces.iter().map(|namespace| {
        let mut sheet = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": binder.spec.text}});
        if !namespace.is_empty() {
            sheet["metadata"] = json!({"namespace": namespace});
        }
        // A key has one byte at least.
        Child::new(["in-", namespace].concat(), &sheet)
    });
    let outcome = Outcome::children(children).status(&BinderStatus { namespaces });
    let said =
        if all { Event::normal("Bound", "its text lies everywhere") } else { Event::normal("Binding", "not yet") };
    Ok(outcome.event(said).ready(all, if all { "Bound" } else { "Binding" }, ""))
}

/// A number of Pods of an image.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Crowd")]
pub struct CrowdSpec {
    /// How many.
    pub size: usize,
    /// Of which image.
    pub image: String,
}

#[controller(owns("v1/Pod", update = "rolling_recreate", max_unavailable = 1))]
fn gather(crowd: &Crowd, _cx: &Context) -> Result<Outcome, Failure> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": crowd.spec.image}]},
    });
    Ok(Outcome::children((0..crowd.spec.size).map(|index| Child::new(index.to_string(), &pod))))
}
