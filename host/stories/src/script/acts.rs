//! What others do in a story file. An act comes in with the names of the story's kinds; the story changes.

use mortise_core::object::{Kind, Name, ObjectRef};
use serde::Deserialize;
use serde_json::{Value, json};

use super::named::{Named, kind_of};
use super::period::Period;
use crate::story::{Denial, Http, Story};

/// An act of others. Objects are written as "Pod default/a", or "Pod default/web#0" for the child "0" of web.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// Applies an object, with its status if it has one.
    Apply(Value),
    /// Changes an object by a merge patch.
    Edit {
        /// The object.
        object: String,
        /// The merge patch.
        patch: Value,
    },
    /// Changes an object's status by a merge patch, as its own controller does.
    Status {
        /// The object.
        object: String,
        /// The part of the status.
        status: Value,
    },
    /// Deletes an object.
    Delete(String),
    /// Lets time pass: "10d", "1h30m", "45s".
    Advance(Period),
    /// Revokes the host's rights for a kind: "v1/Secret".
    Deny(String),
    /// Refuses writes of the host.
    Refuse {
        /// The object; "Pod default/*" is every Pod there.
        object: String,
        /// What the API server says.
        message: String,
        /// The HTTP status.
        #[serde(default = "forbidden_code")]
        code: u16,
        /// The status' reason.
        #[serde(default = "forbidden")]
        reason: String,
        /// How many writes; all until `allow` unless given.
        #[serde(default)]
        times: Option<u64>,
    },
    /// Gives all rights back, and refuses nothing any more.
    Allow,
    /// The host ends without a word, and starts again.
    Crash,
    /// The reply to HTTP requests of the plugin.
    Respond {
        /// Their key.
        key: String,
        /// The HTTP status.
        status: u16,
        /// The body: text, or JSON.
        #[serde(default)]
        body: Value,
    },
}

fn forbidden_code() -> u16 {
    403
}

fn forbidden() -> String {
    "Forbidden".to_owned()
}

/// The annotation with a child's key.
const CHILD_KEY: &str = "mortise.dev/child";

/// The object that a text names.
pub(super) fn target(story: &mut Story, text: &str, kinds: &[Kind]) -> Result<ObjectRef, String> {
    let named = Named::parse(text, kinds)?;
    let Some(key) = &named.child else { return Ok(named.reference()) };
    let is_it = |object: &&Value| {
        let metadata = &object["metadata"];
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        metadata["namespace"] == named.namespace
            && metadata["annotations"][CHILD_KEY] == **key
            && metadata["deletionTimestamp"].is_null()
            && owners.any(|owner| owner["name"] == named.name)
    };
    let objects = story.objects(&named.kind);
    let found = objects.iter().find(is_it).ok_or_else(|| format!("there is no {text}"))?;
    let name = found["metadata"]["name"].as_str().unwrap_or_default();
    Ok(ObjectRef { kind: named.kind.clone(), name: Name::new(&named.namespace, name) })
}

impl Act {
    /// The object that is applied.
    pub(super) fn applied(&self) -> Option<&Value> {
        match self {
            Self::Apply(object) => Some(object),
            _ => None,
        }
    }

    /// Does it.
    pub(super) fn perform(&self, story: &mut Story, kinds: &[Kind]) -> Result<(), String> {
        match self {
            Self::Apply(object) => story.apply(object).map(drop),
            Self::Edit { object, patch } => {
                let target = target(story, object, kinds)?;
                story.edit(&target, patch)
            }
            Self::Status { object, status } => {
                let target = target(story, object, kinds)?;
                story.edit(&target, &json!({"status": status}))
            }
            Self::Delete(object) => {
                let target = target(story, object, kinds)?;
                story.delete(&target)
            }
            Self::Advance(period) => story.advance(period.0),
            Self::Deny(kind) => {
                story.deny(&kind_of(kind, kinds)?);
                Ok(())
            }
            Self::Refuse { object, message, code, reason, times } => {
                let target = target(story, object, kinds)?;
                let (message, reason) = (message.clone(), reason.clone());
                story.refuse(Denial { target, code: *code, reason, message, times: *times });
                Ok(())
            }
            Self::Allow => {
                story.allow();
                Ok(())
            }
            Self::Crash => {
                story.crash_host();
                Ok(())
            }
            Self::Respond { key, status, body } => {
                let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                story.respond(key.as_str(), Http { status: *status, body: body.into_bytes().into() });
                Ok(())
            }
        }
    }
}
