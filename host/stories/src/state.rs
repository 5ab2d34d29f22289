//! The end of a run as text that is equal in every run that ends the same: UIDs, versions, times, addresses and drawn names are
//! replaced. Objects come in; a text for each comes out, sorted, and two ends come in for how they differ.

use std::collections::BTreeMap;

use mortise_core::object::Kind;
use serde_json::Value;

use crate::diff::diff;
use crate::story::Story;

/// Kinds whose objects come and pass by themselves, or say how a run went.
const PASSING: [(&str, &str); 5] = [
    ("v1", "Event"),
    ("events.k8s.io/v1", "Event"),
    ("coordination.k8s.io/v1", "Lease"),
    ("v1", "Node"),
    ("mortise.dev/v1alpha1", "Plugin"),
];
/// Members of metadata that differ between two runs.
const DIFFERENT: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp"];

/// How texts begin that the cluster draws, within Pods.
const DRAWN: [&str; 2] = ["containerd://", "kube-api-access-"];

/// Every object of the kinds, as its kind and name, and as YAML.
pub fn state(story: &mut Story, kinds: &[Kind]) -> Vec<(String, String)> {
    let is_passing = |kind: &&Kind| !PASSING.contains(&(&*kind.api_version, &*kind.kind));
    let mut objects: Vec<Value> = kinds.iter().filter(is_passing).flat_map(|kind| story.objects(kind)).collect();
    let drawn: BTreeMap<String, String> = objects.iter().filter_map(drawn_name).chain(uids(&objects)).collect();
    let mut texts: Vec<(String, String)> = objects
        .iter_mut()
        .map(|object| {
            simplify(object);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &object["metadata"];
            let name =
                format!("{} {} {}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
            let yaml = serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string());
            (replaced(&name, &drawn), replaced(&yaml, &drawn))
        })
        .collect();
    texts.sort();
    texts
}

/// How two ends differ, by object; None when they do not.
pub fn difference(wanted: &[(String, String)], found: &[(String, String)]) -> Option<String> {
    let only = |one: &[(String, String)], other: &[(String, String)]| -> Vec<(String, String)> {
        one.iter().filter(|text| !other.contains(text)).cloned().collect()
    };
    let (wanted, mut found) = (only(wanted, found), only(found, wanted));
    let mut text = String::new();
    for (name, wanted) in wanted {
        let other = found.iter().position(|(found, _)| *found == name).map(|at| found.remove(at).1);
        text.push_str(&format!("{name}:\n{}", diff(&wanted, &other.unwrap_or_default())));
    }
    for (name, found) in found {
        text.push_str(&format!("{name}:\n{}", diff("", &found)));
    }
    (!text.is_empty()).then_some(text)
}

/// The name of a child that nobody gave it, and what is shown instead: its owner's with its key.
fn drawn_name(object: &Value) -> Option<(String, String)> {
    let metadata = &object["metadata"];
    let mut owners = metadata["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?["name"].as_str()?;
    let name = metadata["name"].as_str()?;
    let key = metadata["annotations"]["mortise.dev/child"].as_str().unwrap_or_default();
    // A given name is the same in each run.
    name.starts_with(&format!("{owner}-")).then(|| (name.to_owned(), format!("<{owner}/{key}>")))
}

fn uids(objects: &[Value]) -> impl Iterator<Item = (String, String)> {
    objects.iter().filter_map(|object| {
        let (uid, name) = (object["metadata"]["uid"].as_str()?, object["metadata"]["name"].as_str()?);
        let shown = drawn_name(object).map_or_else(|| name.to_owned(), |(_, shown)| shown);
        Some((uid.to_owned(), format!("<uid of {shown}>")))
    })
}

fn simplify(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !DIFFERENT.contains(&name.as_str()));
    }
    simplify_within(object);
}

fn simplify_within(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("observedGeneration");
            members.values_mut().for_each(simplify_within);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(simplify_within);
            // Names in a list are ordered by what was drawn.
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) if is_time(text) => "<time>".clone_into(text),
        Value::String(text) if is_address(text) => "<address>".clone_into(text),
        Value::String(text) if DRAWN.iter().any(|drawn| text.starts_with(drawn)) => "<drawn>".clone_into(text),
        _ => {}
    }
}

/// 2026-01-01T00:00:00Z.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[13] == b':' && text.ends_with('Z')
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

/// A text with what was drawn replaced, also within messages; the longest first, since one name may begin like another.
fn replaced(text: &str, drawn: &BTreeMap<String, String>) -> String {
    let mut longest: Vec<(&String, &String)> = drawn.iter().collect();
    longest.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let text = longest.iter().fold(text.to_owned(), |text, (name, shown)| text.replace(*name, shown));
    without_times(&text)
}

/// Times within messages.
fn without_times(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("T").filter(|_| rest.len() >= 20) {
        let begin = at.saturating_sub(10);
        let found = rest.get(begin..begin + 20).filter(|found| is_time(found));
        match found {
            Some(_) => {
                kept.push_str(&rest[..begin]);
                kept.push_str("<time>");
                rest = &rest[begin + 20..];
            }
            None => {
                kept.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
            }
        }
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_names_and_times_are_replaced_wherever_they_are() {
        let drawn = BTreeMap::from([("web-x1".to_owned(), "<web/0>".to_owned())]);
        let text = "Pod web-x1 of T began at 2026-01-01T00:00:00Z, äT 2026-01-01T00:00:07Z";
        assert_eq!(replaced(text, &drawn), "Pod <web/0> of T began at <time>, äT <time>");
    }
}
