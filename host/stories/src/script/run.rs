//! Plays a script once: the objects, the steps, and what does not hold. It must not know that there are other runs.

use std::rc::Rc;

use mortise_core::manifest::Manifest;
use mortise_core::object::Kind;
use serde_json::Value;

use super::file::{Other, Script};
use super::partial;
use crate::guest::Guest;
use crate::story::{Settings, Story};

/// Kinds that stories name without their apiVersion, and that plugins' children have children of.
const USUAL: [(&str, &str); 12] = [
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
];

/// A run that came to its end.
pub(super) struct Played {
    pub(super) story: Story,
    pub(super) kinds: Vec<Kind>,
    /// What does not hold, by step.
    pub(super) failures: Vec<String>,
    pub(super) transcript: String,
    /// The writes of the host until it served.
    pub(super) sent_at_start: u64,
}

/// The kinds that a plugin's stories are about: those of its manifest, and the usual workloads.
pub fn kinds_of(manifest: &str) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = USUAL.iter().map(|(api_version, kind)| Kind::new(api_version, kind)).collect();
    if let Ok(manifest) = Manifest::parse(manifest) {
        kinds.extend(manifest.scopes().map(|(kind, _)| kind));
        kinds.extend(manifest.writes.iter().map(|rule| rule.kind.clone()));
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Every kind that a story may name.
fn kinds(script: &Script, manifest: &str) -> Vec<Kind> {
    let mut kinds = kinds_of(manifest);
    let acts = script.steps.iter().flat_map(|step| &step.acts);
    for object in script.given.iter().chain(acts.filter_map(|act| act.applied())) {
        if let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) {
            kinds.push(Kind::new(api_version, kind));
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Plays a script; `checks` says whether what must hold is checked.
///
/// # Errors
/// What kept it from its end: the plugin does not serve, an act fails, or it does not end.
pub(super) fn play(script: &Script, guest: Rc<dyn Guest>, settings: Settings, checks: bool) -> Result<Played, String> {
    let mut story = Story::new(guest, settings);
    let kinds = kinds(script, story.manifest());
    let mut given: Vec<&Value> = Vec::new();
    for object in &script.given {
        let served = story.reference(object).is_ok();
        match served {
            true => drop(story.apply(object).map_err(|why| format!("given {}: {why}", shown(object)))?),
            // A kind of the plugin, which the host defines.
            false => given.push(object),
        }
    }
    for Other { on, patch } in &script.others {
        let text = |name: &str| on[name].as_str().ok_or_else(|| format!("others: {on} has no {name}"));
        let kind = Kind::new(text("apiVersion")?, text("kind")?);
        let (on, patch) = (on.clone(), patch.clone());
        story.on(kind, move |object| if partial::matches(&on, object) { patch.clone() } else { Value::Null });
    }
    story.start()?;
    for object in given {
        story.apply(object).map_err(|why| format!("given {}: {why}", shown(object)))?;
    }
    story.run_until_idle()?;
    let sent_at_start = story.sent();
    let mut transcript = format!("{}\n\nthe host starts\n{}", script.says.trim(), lines(story.take_log()));
    let mut failures = Vec::new();
    for step in &script.steps {
        let before = story.requests().len();
        for act in &step.acts {
            act.perform(&mut story, &kinds).map_err(|why| format!("{}: {why}", step.when))?;
        }
        story.run_until_idle().map_err(|why| format!("{}: {why}", step.when))?;
        let requests = story.requests()[before..].to_vec();
        if checks {
            let wrong = step.holds.iter().filter_map(|hold| hold.check(&mut story, &requests, &kinds).err());
            failures.extend(wrong.collect::<Vec<_>>().iter().map(|why| format!("{}: {why}", step.when)));
        }
        transcript.push_str(&format!("\n{}\n{}", step.when, lines(story.take_log())));
    }
    Ok(Played { story, kinds, failures, transcript, sent_at_start })
}

fn shown(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

/// Lines of one step that a transcript has: a reader of more reads none.
const MAX_LINES: usize = 100;

fn lines(lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(MAX_LINES);
    let mut text: String =
        lines.iter().take(MAX_LINES).map(|line| format!("  {}\n", line.trim_end().replace('\n', "\n    "))).collect();
    if more > 0 {
        text.push_str(&format!("  and {more} more lines\n"));
    }
    text
}
