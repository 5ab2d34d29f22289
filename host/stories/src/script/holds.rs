//! What must hold in a story file when the cluster is idle. A hold comes in with the story and the requests of its step; a
//! sentence comes out when it does not hold.

use mortise_core::object::Kind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acts::target;
use super::partial;
use crate::diff::diff;
use crate::story::Story;

/// What must hold. Partial objects are matched as [`partial`] says.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Hold {
    /// An object that is so exists; with a metadata.name it is that one.
    Exists(Value),
    /// So many objects are so.
    Count {
        /// How many.
        times: usize,
        /// A partial object.
        of: Value,
    },
    /// No object is so, or the object "Pod default/a" does not exist.
    Absent(Value),
    /// A condition of an object.
    Condition {
        /// The object.
        object: String,
        /// Its type.
        r#type: String,
        /// "True", "False" or "Unknown".
        status: String,
        /// Its reason, if it matters.
        #[serde(default)]
        reason: Option<String>,
        /// A part of its message.
        #[serde(default)]
        message: Option<String>,
    },
    /// How many writes the plugin caused in this step.
    Requests(usize),
    /// The beginnings of these writes' lines, in any order: "create Pod default/".
    Writes(Vec<String>),
    /// What woke an object last.
    #[serde(rename = "woken-by")]
    WokenBy {
        /// The object.
        object: String,
        /// Kinds, or objects, of which each was among the causes.
        by: Vec<String>,
    },
    /// An object that the API server refuses.
    Refused {
        /// The object.
        apply: Value,
        /// A part of the message.
        with: String,
    },
}

impl Hold {
    /// Why it does not hold.
    pub(super) fn check(&self, story: &mut Story, requests: &[String], kinds: &[Kind]) -> Result<(), String> {
        match self {
            Self::Exists(said) => exists(story, said),
            Self::Count { times, of } => count(story, *times, of),
            Self::Absent(said) => absent(story, said, kinds),
            Self::Condition { object, r#type, status, reason, message } => {
                let target = target(story, object, kinds)?;
                let found = story.get(&target).ok_or_else(|| format!("{target} does not exist"))?;
                let all = found["status"]["conditions"].as_array().into_iter().flatten();
                let found = all.into_iter().find(|condition| condition["type"] == **r#type);
                let found = found.ok_or_else(|| format!("{target} has no condition {}", r#type))?;
                let mut said = json!({"status": status});
                if let Some(reason) = reason {
                    said["reason"] = json!(reason);
                }
                let text = found["message"].as_str().unwrap_or_default();
                if !partial::matches(&said, found) || message.as_ref().is_some_and(|part| !text.contains(part.as_str()))
                {
                    let has = message.as_ref().map_or(String::new(), |part| format!(", message: \"...{part}...\""));
                    return Err(format!("{target}: condition {}: expected {said}{has}, found {found}", r#type));
                }
                Ok(())
            }
            Self::Requests(wanted) if *wanted == requests.len() => Ok(()),
            Self::Requests(wanted) => {
                Err(format!("expected {wanted} requests, found {}:\n  {}", requests.len(), requests.join("\n  ")))
            }
            Self::Writes(wanted) => writes(wanted, requests),
            Self::WokenBy { object, by } => {
                let object = target(story, object, kinds)?;
                let found = story.woken_by(&object);
                let is_there = |text: &&String| {
                    found.iter().any(|found| found.to_string() == **text || *found.kind.kind == ***text)
                };
                match by.iter().find(|text| !is_there(text)) {
                    None => Ok(()),
                    Some(missing) => {
                        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
                        Err(format!("{object} was not woken by {missing}, but by: {}", found.join(", ")))
                    }
                }
            }
            Self::Refused { apply, with } => match story.apply(apply) {
                Ok(_) => Err(format!("expected a refusal with {with:?}, and it was accepted: {apply}")),
                Err(why) if why.contains(with) => Ok(()),
                Err(why) => Err(format!("expected a refusal with {with:?}, found {why:?}")),
            },
        }
    }
}

fn of_kind(story: &mut Story, said: &Value) -> Result<Vec<Value>, String> {
    let text = |name: &str| said[name].as_str().ok_or_else(|| format!("{said}: a partial object has a {name}"));
    let kind = Kind::new(text("apiVersion")?, text("kind")?);
    if !story.serves(&kind) {
        return Err(format!("the API server does not serve {kind}"));
    }
    Ok(story.objects(&kind))
}

fn shown(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

fn exists(story: &mut Story, said: &Value) -> Result<(), String> {
    let objects = of_kind(story, said)?;
    if objects.iter().any(|object| partial::matches(said, object)) {
        return Ok(());
    }
    let metadata = &said["metadata"];
    let named = objects.iter().find(|object| {
        let own = &object["metadata"];
        let is_there = metadata["namespace"].is_null() || metadata["namespace"] == own["namespace"];
        !metadata["name"].is_null() && metadata["name"] == own["name"] && is_there
    });
    let kind = said["kind"].as_str().unwrap_or_default();
    match named.or_else(|| objects.first().filter(|_| objects.len() == 1)) {
        Some(found) => {
            let name = found["metadata"]["name"].as_str().unwrap_or_default();
            let found = partial::part(said, found);
            Err(format!("{kind} {name} is not so (- expected, + found):\n{}", diff(&shown(said), &shown(&found))))
        }
        None => Err(format!("none of {} objects of the kind {kind} is so:\n{}", objects.len(), shown(said))),
    }
}

fn count(story: &mut Story, times: usize, said: &Value) -> Result<(), String> {
    let objects = of_kind(story, said)?;
    let found = objects.iter().filter(|object| partial::matches(said, object)).count();
    if found == times {
        return Ok(());
    }
    let parts: Vec<String> = objects.iter().map(|object| partial::part(said, object).to_string()).collect();
    Err(format!("expected {times} objects like {said}, found {found} among:\n  {}", parts.join("\n  ")))
}

fn absent(story: &mut Story, said: &Value, kinds: &[Kind]) -> Result<(), String> {
    if let Some(text) = said.as_str() {
        let Ok(target) = target(story, text, kinds) else { return Ok(()) };
        return if story.get(&target).is_none() { Ok(()) } else { Err(format!("{target} exists")) };
    }
    match of_kind(story, said)?.iter().find(|object| partial::matches(said, object)) {
        None => Ok(()),
        Some(found) => Err(format!("{} {} exists", kind_of_object(found), found["metadata"]["name"])),
    }
}

fn kind_of_object(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn writes(wanted: &[String], requests: &[String]) -> Result<(), String> {
    let mut left: Vec<&String> = requests.iter().collect();
    let mut missing = Vec::new();
    for wanted in wanted {
        match left.iter().position(|line| line.starts_with(wanted.as_str())) {
            Some(at) => drop(left.remove(at)),
            None => missing.push(wanted),
        }
    }
    if missing.is_empty() && left.is_empty() {
        return Ok(());
    }
    let lines =
        |sign: char, lines: Vec<&String>| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    Err(format!("the writes differ (- expected, + found):\n{}{}", lines('-', missing), lines('+', left)))
}
