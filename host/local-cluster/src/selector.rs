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
        let tokens = tokens(text);
        let mut reader = Reader { tokens: &tokens };
        let mut requirements = Vec::new();
        while let Some(next) = reader.first() {
            if !reader.begins() {
                return Err(format!("found '{next}', expected: !, identifier, or 'end of string'"));
            }
            requirements.push(reader.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
            match reader.take() {
                "" => break,
                "," if reader.begins() => {}
                "," => return Err(format!("found '{}', expected: identifier after ','", reader.next())),
                found => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
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
    /// Its key, and the values that it names.
    pub(crate) fn parts(&self) -> (&str, &[Arc<str>]) {
        match self {
            Self::In(key, values) | Self::NotIn(key, values) => (&**key, values.as_slice()),
            Self::Exists(key) | Self::Absent(key) | Self::Greater(key, _) | Self::Less(key, _) => (&**key, &[]),
        }
    }

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

/// The words and signs of a selector. Signs that make no operator together are apart.
fn tokens(text: &str) -> Vec<&str> {
    let special = |c: char| "=!(),><".contains(c);
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if special(first) {
            1
        } else {
            rest.find(|c: char| special(c) || c.is_ascii_whitespace()).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Reads requirements, and says what it found instead of what it expected. The end reads as an empty word.
struct Reader<'a> {
    tokens: &'a [&'a str],
}

impl<'a> Reader<'a> {
    fn first(&self) -> Option<&'a str> {
        self.tokens.first().copied()
    }

    fn next(&self) -> &'a str {
        self.first().unwrap_or_default()
    }

    fn take(&mut self) -> &'a str {
        let next = self.next();
        self.tokens = self.tokens.get(1..).unwrap_or_default();
        next
    }

    fn is_word(token: &str) -> bool {
        !token.is_empty() && !token.starts_with(|c: char| "=!(),><".contains(c))
    }

    /// Whether a requirement may begin here.
    fn begins(&self) -> bool {
        self.next() == "!" || Self::is_word(self.next())
    }

    fn word(&mut self) -> Result<&'a str, String> {
        let found = self.take();
        if Self::is_word(found) { Ok(found) } else { Err(format!("found '{found}', expected: identifier")) }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.next() == "!";
        if absent {
            self.take();
        }
        let key: Arc<str> = self.word()?.into();
        match (absent, self.next()) {
            (true, _) => return Ok(Requirement::Absent(key)),
            (false, "" | ",") => return Ok(Requirement::Exists(key)),
            _ => {}
        }
        match self.take() {
            "in" => Ok(Requirement::In(key, self.values()?)),
            "notin" => Ok(Requirement::NotIn(key, self.values()?)),
            "=" | "==" => Ok(Requirement::In(key, vec![self.value()?.into()])),
            "!=" => Ok(Requirement::NotIn(key, vec![self.value()?.into()])),
            ">" => Ok(Requirement::Greater(key, self.bound()?)),
            "<" => Ok(Requirement::Less(key, self.bound()?)),
            found => Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn value(&mut self) -> Result<&'a str, String> {
        if matches!(self.next(), "" | ",") { Ok("") } else { self.word() }
    }

    fn bound(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: {why}"))
    }

    fn values(&mut self) -> Result<Vec<Arc<str>>, String> {
        let found = self.take();
        if found != "(" {
            return Err(format!("found '{found}' expected: '('"));
        }
        if !matches!(self.next(), "," | ")") && !Self::is_word(self.next()) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.next()));
        }
        let mut values = Vec::new();
        loop {
            // Between two commas, and between brackets alone, is an empty value.
            values.push(if matches!(self.next(), "," | ")") { "".into() } else { self.word()?.into() });
            match self.take() {
                "," => {}
                ")" => return Ok(values),
                found => return Err(format!("found '{found}', expected: ',' or ')'")),
            }
        }
    }
}

/// A selector of fields: each path has, or has not, a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(Arc<str>, bool, Arc<str>)>);

impl Fields {
    /// Reads `metadata.name=a,status.phase!=Running`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        for part in terms(text).into_iter().filter(|part| !part.trim().is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(format!("invalid selector: '{part}'; can't understand '{part}'"));
            };
            fields.push((path.trim().into(), equal, unescaped(value.trim())?.into()));
        }
        Ok(Self(fields))
    }

    /// Whether an object matches. A field that it lacks is the empty string.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| (field(object, path) == **wanted) == *equal)
    }
}

/// What is between commas; one after a backslash belongs to a value.
fn terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == ',' && !escaped {
            terms.push(&text[start..at]);
            start = at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.push(&text[start..]);
    terms
}

fn unescaped(value: &str) -> Result<String, String> {
    let (mut plain, mut letters) = (String::with_capacity(value.len()), value.chars());
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match (letter, escaped) {
            ('\\', Some(next @ ('\\' | ',' | '='))) => plain.push(next),
            ('\\', next) => {
                let next = next.map(String::from).unwrap_or_default();
                return Err(format!("invalid field selector: invalid escape sequence: \\{next}"));
            }
            ('=', _) => return Err("invalid field selector: unescaped character in value: 61".to_owned()),
            _ => plain.push(letter),
        }
    }
    Ok(plain)
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
        for (text, why) in [
            ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("l in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("l=a b", "found 'b', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
        ] {
            assert_eq!(Labels::parse(text).unwrap_err(), why);
        }
    }

    #[test]
    fn a_field_that_is_absent_is_empty() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}});
        let selected = |text: &str| Fields::parse(text).unwrap().matches(&object);
        assert!(selected("metadata.name=a,spec.nodeName="));
        assert!(selected("spec.unschedulable=true") && !selected("metadata.name!=a"));
        assert!(Fields::parse("metadata.name").is_err());
        let parsed = Fields::parse(r"a=b\,c\=\\,d!=e").unwrap();
        assert_eq!(parsed.0, [("a".into(), true, r"b,c=\".into()), ("d".into(), false, "e".into())]);
        assert_eq!(Fields::parse(r"a=\b").unwrap_err(), r"invalid field selector: invalid escape sequence: \b");
        let selected = |text: &str| Fields(vec![("spec.a|metadata.name".into(), true, text.into())]).matches(&object);
        assert!(selected("a") && !selected("b"));
        assert!(Fields(vec![("spec.a|=no".into(), true, "no".into())]).matches(&object));
    }
}
