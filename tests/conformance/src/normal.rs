//! Answers without what differs between two runs: UIDs, versions, times, drawn names and addresses. Input: a body. Output:
//! text to compare. It must not know which answer is right.

use std::collections::BTreeMap;

use serde_json::Value;

/// The drawn names that were seen, each with its replacement.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, String>);

/// Letters of `generateName`'s suffixes.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn text(body: &str, names: &mut Names) -> String {
    if body.trim().is_empty() {
        return String::new();
    }
    let frames = serde_json::Deserializer::from_str(body).into_iter::<Value>().collect::<Result<Vec<Value>, _>>();
    let Ok(mut frames) = frames else { return plain(body) };
    let mut texts = Vec::new();
    for frame in &mut frames {
        drawn_names(frame, names);
        normalise(frame, "", names);
        texts.push(serde_json::to_string_pretty(frame).unwrap());
    }
    texts.join("\n")
}

/// Remembers names that the server drew.
fn drawn_names(value: &Value, names: &mut Names) {
    match value {
        Value::Object(fields) => {
            let base = fields.get("generateName").and_then(Value::as_str);
            let name = fields.get("name").and_then(Value::as_str);
            if let (Some(base), Some(name)) = (base, name)
                && let Some(suffix) = name.strip_prefix(base)
                && suffix.len() == 5
                && suffix.chars().all(|letter| LETTERS.contains(letter))
            {
                let count = names.0.len();
                names.0.entry(name.to_owned()).or_insert_with(|| format!("{base}<drawn {count}>"));
            }
            fields.values().for_each(|value| drawn_names(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| drawn_names(item, names)),
        _ => {}
    }
}

fn normalise(value: &mut Value, key: &str, names: &Names) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| normalise(value, key, names)),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| normalise(item, key, names));
            // The real one lists the conflicts of an apply in the order of a map.
            if key == "causes" && items.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
                items.sort_by_cached_key(Value::to_string);
            }
            // They are in the order of their times, which are equal or not by chance.
            if key == "managedFields" {
                items.sort_by_cached_key(|entry| {
                    ["manager", "operation", "subresource", "apiVersion"].map(|field| entry[field].to_string())
                });
            }
        }
        Value::String(text) => {
            let replacement = match key {
                "uid" if text.len() == 36 => Some("<uid>".to_owned()),
                "resourceVersion" if text.parse::<u64>().is_ok_and(|version| version > 0) => {
                    Some("<version>".to_owned())
                }
                "serverAddress" => Some("<address>".to_owned()),
                "continue" if !text.is_empty() => Some("<continue>".to_owned()),
                "clusterIP" | "clusterIPs" if text.starts_with("10.") => Some("<address>".to_owned()),
                _ if is_age(text) => Some("<age>".to_owned()),
                _ if is_time(text) => Some("<time>".to_owned()),
                _ => None,
            };
            *text = replacement.unwrap_or_else(|| {
                let named =
                    names.0.iter().fold(text.clone(), |text, (name, replacement)| text.replace(name, replacement));
                plain(&named)
            });
        }
        Value::Number(_) if key == "nodePort" => *value = "<port>".into(),
        _ => {}
    }
}

/// An age below a minute, as rows of a table have it.
fn is_age(text: &str) -> bool {
    text.strip_suffix('s')
        .is_some_and(|seconds| (1..=2).contains(&seconds.len()) && seconds.chars().all(|c| c.is_ascii_digit()))
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

/// A text without UIDs, and versions after words that announce one.
fn plain(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
        let end = word.len()
            - word.chars().next_back().filter(|c| !(c.is_ascii_alphanumeric() || *c == '-')).map_or(0, char::len_utf8);
        let (core, rest) = word.split_at(end);
        let is_uid = core.len() == 36 && core.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        let announced =
            ["version: ", "version (", "current: ", "(", "ResourceVersion in object meta: ", "precondition: "];
        let is_version = !core.is_empty()
            && core.chars().all(|c| c.is_ascii_digit())
            && announced.iter().any(|word| result.ends_with(word))
            && text.contains("version");
        result.push_str(if is_uid {
            "<uid>"
        } else if is_version {
            "<version>"
        } else {
            core
        });
        result.push_str(rest);
    }
    result
}
