//! Label and field selectors. Input: the text of a query parameter, and objects. Output: whether an object is selected. It
//! must not know which fields a kind can be selected by: its resource says that.

use std::sync::Arc;

use serde_json::Value;

/// One requirement on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    In(Arc<str>, Vec<Arc<str>>),
    NotIn(Arc<str>, Vec<Arc<str>>),
    Exists(Arc<str>),
    Absent(Arc<str>),
    Greater(Arc<str>, i64),
    Less(Arc<str>, i64),
}

/// A selector of labels: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(pub(crate) Vec<Requirement>);

impl Labels {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if !part.is_empty() {
                requirements.push(requirement(part).ok_or_else(|| format!("unable to parse requirement: {part:?}"))?);
            }
        }
        Ok(Self(requirements))
    }

    /// Reads a `LabelSelector` object (`matchLabels`, `matchExpressions`); an empty one selects everything.
    pub(crate) fn read(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement::In(key.as_str().into(), vec![value.as_str().unwrap_or_default().into()]));
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key: Arc<str> = expression["key"].as_str().unwrap_or_default().into();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(Into::into).collect();
            requirements.push(match expression["operator"].as_str() {
                Some("In") => Requirement::In(key, values),
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("DoesNotExist") => Requirement::Absent(key),
                _ => Requirement::Exists(key),
            });
        }
        Self(requirements)
    }

    /// Whether an object's labels match.
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Value) -> bool {
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        let number = |key: &str| label(key).and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(key, values) => label(key).is_some_and(|found| values.iter().any(|value| **value == *found)),
            Self::NotIn(key, values) => label(key).is_none_or(|found| values.iter().all(|value| **value != *found)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
            Self::Greater(key, bound) => number(key).is_some_and(|found| found > *bound),
            Self::Less(key, bound) => number(key).is_some_and(|found| found < *bound),
        }
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Option<Requirement> {
    let key = |text: &str| {
        let text = text.trim();
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(fine)).then(|| Arc::<str>::from(text))
    };
    if let Some(absent) = part.strip_prefix('!') {
        return Some(Requirement::Absent(key(absent)?));
    }
    for (operator, holds) in [(" notin ", false), (" in ", true)] {
        if let Some((name, values)) =
            part.split_once(operator).or_else(|| part.split_once(&format!("{}(", operator.trim_end())))
        {
            let values = values.trim().trim_start_matches('(').strip_suffix(')')?;
            let values = values.split(',').map(|value| value.trim().into()).collect();
            let name = key(name)?;
            return Some(if holds { Requirement::In(name, values) } else { Requirement::NotIn(name, values) });
        }
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, vec![value.trim().into()]));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(key(name)?, vec![value.trim().into()]));
    }
    if let Some((name, bound)) = part.split_once('>') {
        return Some(Requirement::Greater(key(name)?, bound.trim().parse().ok()?));
    }
    if let Some((name, bound)) = part.split_once('<') {
        return Some(Requirement::Less(key(name)?, bound.trim().parse().ok()?));
    }
    Some(Requirement::Exists(key(part)?))
}

/// A selector of fields: each path has, or has not, a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(Arc<str>, bool, Arc<str>)>);

impl Fields {
    /// Reads `metadata.name=a,status.phase!=Running`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(format!("invalid selector: '{part}'; can't understand '{part}'"));
            };
            fields.push((path.trim().into(), equal, value.trim().into()));
        }
        Ok(Self(fields))
    }

    /// Whether an object matches. A field that it lacks is the empty string.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| (field(object, path) == **wanted) == *equal)
    }
}

/// The text at a place: at the first of several paths (between `|`) that has one, or what is after `=`.
fn field(object: &Value, place: &str) -> String {
    for path in place.split('|') {
        if let Some(text) = path.strip_prefix('=') {
            return text.to_owned();
        }
        match path.split('.').try_fold(object, |value, part| value.get(part)) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(Value::String(text)) => return text.clone(),
            Some(other) => return other.to_string(),
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected_as_kubectl_writes_them() {
        let labels = json!({"app": "web", "tier": "front", "n": "5"});
        let selected = |text: &str| Labels::parse(text).unwrap().matches(&labels);
        for text in [
            "",
            "app=web",
            "app == web",
            "app!=x",
            "app in (web, db),tier",
            "tier notin (back)",
            "!gone",
            "n>4",
            "x!=y",
            "app in(web)",
        ] {
            assert!(selected(text), "{text}");
        }
        for text in ["app=x", "app in (a,b)", "!app", "n<5", "gone", "x in (y)"] {
            assert!(!selected(text), "{text}");
        }
        assert!(Labels::parse("a b c").is_err());
    }

    #[test]
    fn a_field_that_is_absent_is_empty() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}});
        let selected = |text: &str| Fields::parse(text).unwrap().matches(&object);
        assert!(selected("metadata.name=a,spec.nodeName="));
        assert!(selected("spec.unschedulable=true") && !selected("metadata.name!=a"));
        assert!(Fields::parse("metadata.name").is_err());
        let selected = |text: &str| Fields(vec![("spec.a|metadata.name".into(), true, text.into())]).matches(&object);
        assert!(selected("a") && !selected("b"));
        assert!(Fields(vec![("spec.a|=no".into(), true, "no".into())]).matches(&object));
    }
}
