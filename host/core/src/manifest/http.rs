//! `http` in a manifest: the origins that a plugin's requests may be sent to, and the Secrets that they may carry there.
//! Every request is checked against these rules; whether this host sends any is not known here.

use std::sync::Arc;

use serde::Deserialize;

use super::place::{MAX_ENTRIES, at_most, refuse};
use crate::http::{Method, Origin};
use crate::object::is_object_name;
use crate::refusal::Refusal;

/// Origins of one plugin. Each is a place that an administrator has to trust.
const MAX_ORIGINS: usize = 32;
/// Secrets of one origin: a token, and its successor, for each of some accounts.
const MAX_SECRETS: usize = 16;

/// What may be sent to one origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRule {
    /// Scheme, host and port.
    pub origin: Origin,
    /// Sorted, each once.
    pub methods: Vec<Method>,
    /// Names of Secrets; sorted, each once.
    pub secrets: Vec<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawHttp {
    origin: String,
    methods: Vec<String>,
    #[serde(default)]
    secrets: Vec<String>,
}

/// The rule of an origin.
pub fn rule_of<'a>(rules: &'a [HttpRule], origin: &Origin) -> Option<&'a HttpRule> {
    rules.iter().find(|rule| rule.origin == *origin)
}

/// Merges the entries of one origin: several controllers of a plugin may each bring theirs.
pub(super) fn parse(raw: Vec<RawHttp>) -> Result<Vec<HttpRule>, Refusal> {
    at_most("http", raw.len(), MAX_ENTRIES)?;
    let mut rules: Vec<HttpRule> = Vec::new();
    for (index, entry) in raw.into_iter().enumerate() {
        let next = rule(&format!("http[{index}]"), entry)?;
        if let Some(known) = rules.iter_mut().find(|known| known.origin == next.origin) {
            known.methods.extend(next.methods);
            known.secrets.extend(next.secrets);
        } else {
            rules.push(next);
        }
    }
    at_most("http", rules.len(), MAX_ORIGINS)?;
    for rule in &mut rules {
        rule.methods.sort();
        rule.methods.dedup();
        rule.secrets.sort();
        rule.secrets.dedup();
    }
    Ok(rules)
}

fn rule(place: &str, raw: RawHttp) -> Result<HttpRule, Refusal> {
    let origin = Origin::parse(&raw.origin).or_else(|why| {
        refuse(format!("{place}.origin: {:?} is not such as \"https://api.example.com\": {why}", raw.origin))
    })?;
    let method = |word: &String| match Method::ALL.into_iter().find(|method| method.as_str() == word) {
        Some(method) => Ok(method),
        None => refuse(format!("{place}.methods: {word:?} is none of GET, HEAD, POST, PUT, PATCH and DELETE")),
    };
    let methods: Vec<Method> = raw.methods.iter().map(method).collect::<Result<_, _>>()?;
    if methods.is_empty() {
        return refuse(format!("{place}.methods: there is none, so nothing could be sent to {origin}"));
    }
    if let Some(odd) = raw.secrets.iter().find(|name| !is_object_name(name)) {
        return refuse(format!("{place}.secrets: {odd:?} is not the name of a Secret"));
    }
    if raw.secrets.len() > MAX_SECRETS {
        let count = raw.secrets.len();
        return refuse(format!("{place}.secrets: there are {count}, the most is {MAX_SECRETS}"));
    }
    if !raw.secrets.is_empty() && !origin.is_https {
        return refuse(format!("{place}.secrets: {origin} is not encrypted, so it gets no Secrets; use https"));
    }
    Ok(HttpRule { origin, methods, secrets: raw.secrets.into_iter().map(Arc::from).collect() })
}
