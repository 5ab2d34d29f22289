//! What cells share: reading a field, ages, selectors, names of containers. Input: an object and the time. Output: a cell's
//! value. It must not know kinds.

use jiff::Timestamp;
use serde_json::Value;

use crate::time;

/// One object to print, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    /// What a JSON pointer finds; null when there is nothing.
    pub(super) fn at(self, pointer: &str) -> &'a Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(super) fn str(self, pointer: &str) -> &'a str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    /// A field as text, empty when it is absent.
    pub(super) fn text(self, pointer: &str) -> Value {
        text(self.at(pointer)).into()
    }

    /// A field as text, or what is shown for an absent one.
    pub(super) fn or(self, pointer: &str, absent: &str) -> Value {
        let found = text(self.at(pointer));
        if found.is_empty() { absent.into() } else { found.into() }
    }

    pub(super) fn number(self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or(0)
    }

    pub(super) fn count(self, pointer: &str) -> Value {
        self.number(pointer).into()
    }

    pub(super) fn truth(self, pointer: &str) -> bool {
        self.at(pointer).as_bool().unwrap_or(false)
    }

    /// How many entries a list or a map has.
    pub(super) fn length(self, pointer: &str) -> usize {
        match self.at(pointer) {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        }
    }

    pub(super) fn list(self, pointer: &str) -> &'a [Value] {
        self.at(pointer).as_array().map_or(&[], Vec::as_slice)
    }

    pub(super) fn name(self) -> Value {
        self.text("/metadata/name")
    }

    /// The name, marked when an annotation makes it the default one.
    pub(super) fn name_or_default(self, annotations: &[&str]) -> Value {
        let marked = annotations.iter().any(|key| self.at("/metadata/annotations")[*key] == "true");
        format!("{}{}", self.str("/metadata/name"), if marked { " (default)" } else { "" }).into()
    }

    pub(super) fn age(self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    /// How long ago the time in a field is.
    pub(super) fn since(self, pointer: &str) -> String {
        since(self.at(pointer), self.now)
    }

    /// Whether a condition is there with this status.
    pub(super) fn has_condition(self, kind: &str, status: &str) -> bool {
        let conditions = self.list("/status/conditions");
        conditions.iter().find(|condition| condition["type"] == kind).is_some_and(|found| found["status"] == status)
    }

    pub(super) fn terminates(self) -> bool {
        !self.at("/metadata/deletionTimestamp").is_null()
    }

    /// The names (or images) of the containers of a Pod's spec.
    pub(super) fn containers(self, spec: &str, field: &str) -> Value {
        let containers = self.list(&format!("{spec}/containers")).iter();
        containers.map(|container| container[field].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",").into()
    }

    /// A label selector; `<none>` when it is empty.
    pub(super) fn selector(self, pointer: &str) -> Value {
        or_none(selector(self.at(pointer)))
    }

    /// A map of labels; `<none>` when it is empty.
    pub(super) fn labels(self, pointer: &str) -> Value {
        or_none(labels(self.at(pointer)).join(","))
    }
}

fn or_none(text: String) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// A scalar as text; nothing of what is absent.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

pub(super) fn since(value: &Value, now: Timestamp) -> String {
    time::read(value).map_or_else(|| "<unknown>".to_owned(), |then| human(now.as_second() - then.as_second()))
}

/// A duration with two or three significant figures. Clocks may differ by a second.
pub(super) fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let both = |large: i64, unit: &str, small: i64, rest: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{rest}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => both(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => both(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => both(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => both(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn labels(map: &Value) -> Vec<String> {
    let pairs = map.as_object().into_iter().flatten();
    let mut pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", text(value))).collect();
    pairs.sort();
    pairs
}

/// A label selector as `kubectl -l` takes it, by key.
pub(super) fn selector(value: &Value) -> String {
    let key = |text: &str| text.trim_start_matches('!').split(['=', ' ']).next().unwrap_or_default().to_owned();
    let mut parts = labels(&value["matchLabels"]);
    for expression in value["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort_by_key(|part| key(part));
    parts.join(",")
}

/// The first entries of a list, and how many more there are.
pub(super) fn first(all: &[String], most: usize, between: &str, empty: &str) -> String {
    let shown = all.get(..most).unwrap_or(all).join(between);
    match all.len() {
        0 => empty.to_owned(),
        count if count > most => format!("{shown} + {} more...", count - most),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duration_has_two_or_three_figures() {
        let hour = 3600;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 60, "7h1m"),
            (47 * hour, "47h"),
            (49 * hour, "2d1h"),
            (8 * 24 * hour, "8d"),
            (2 * 365 * 24 * hour, "2y"),
            ((2 * 365 + 3) * 24 * hour, "2y3d"),
            (9 * 365 * 24 * hour, "9y"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(human(seconds), wanted, "{seconds}");
        }
    }

    #[test]
    fn a_selector_is_written_by_key() {
        let all = json!({"matchLabels": {"c": "1", "a": "2"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["y", "x"]}, {"key": "d", "operator": "DoesNotExist"},
        ]});
        assert_eq!(selector(&all), "a=2,b in (x,y),c=1,!d");
        let row = Row { object: &json!({}), now: Timestamp::UNIX_EPOCH };
        assert_eq!(row.selector("/spec/selector"), "<none>");
    }
}
