//! Kubernetes' JSONPath, as far as columns of custom resources use it. Input: a path such as
//! `.status.conditions[?(@.type=="Ready")].status`. Output: what it finds in an object. It must not know tables.

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name` or `['name']`.
    Field(String),
    /// `[2]`, or `[-1]` from the end.
    Index(i64),
    /// `[*]` or `.*`.
    All,
    /// `[1:3]`.
    Slice(Option<i64>, Option<i64>),
    /// `..name`: wherever it is.
    Descend(String),
    /// `[?(@.path == "value")]`; without a comparison, what has the path.
    Filter(Path, Option<(String, Value)>),
}

/// A parsed path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path(Vec<Step>);

impl Path {
    /// Parses a path; none when it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().trim_start_matches(['$', '@']);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let end = closing(inside)?;
                steps.push(bracket(inside[..end].trim())?);
                rest = &inside[end + 1..];
                continue;
            }
            let (descends, after) = match rest.strip_prefix("..") {
                Some(after) => (true, after),
                None => (false, rest.strip_prefix('.').unwrap_or(rest)),
            };
            let (name, after) = field(after);
            rest = after;
            match (descends, name.as_str()) {
                // A point before a bracket, or at the end.
                (false, "") if rest.starts_with('[') || rest.is_empty() => {}
                (_, "") => return None,
                (true, _) => steps.push(Step::Descend(name)),
                (false, "*") => steps.push(Step::All),
                (false, _) => steps.push(Step::Field(name)),
            }
        }
        Some(Self(steps))
    }

    /// All that the path finds, in order.
    pub(super) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.find(value)).collect();
        }
        found
    }
}

/// A name up to the next step; a backslash keeps the character after it.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, kept)| kept)),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Where the bracket ends that the text is inside of.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_u32, None);
    for (at, character) in text.char_indices() {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(character),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(at),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return filter_step(filter);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name.to_owned()));
    }
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.trim().parse().ok().map(Some) };
    match text.split_once(':') {
        Some((from, to)) => Some(Step::Slice(number(from)?, number(to)?)),
        None => text.parse().ok().map(Step::Index),
    }
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn filter_step(text: &str) -> Option<Step> {
    let operators = ["==", "!=", "<=", ">=", "<", ">"];
    let found = operators.into_iter().filter_map(|operator| Some((text.find(operator)?, operator)));
    let Some((at, operator)) = found.min_by_key(|(at, operator)| (*at, std::cmp::Reverse(operator.len()))) else {
        return Some(Step::Filter(Path::parse(text)?, None));
    };
    let right = text[at + operator.len()..].trim();
    let right = match quoted(right) {
        Some(text) => text.into(),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Filter(Path::parse(&text[..at])?, Some((operator.to_owned(), right))))
}

impl Step {
    fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let from_start = |index: i64| if index < 0 { index + length } else { index };
        let place = |index: i64| usize::try_from(from_start(index)).unwrap_or(usize::MAX);
        match self {
            Self::Field(name) => value.get(name.as_str()).into_iter().collect(),
            Self::Index(index) => items.get(place(*index)).into_iter().collect(),
            Self::All => children(value),
            Self::Slice(from, to) => {
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)).min(items.len()));
                items.get(from..to).unwrap_or_default().iter().collect()
            }
            Self::Descend(name) => {
                let below = children(value).into_iter().flat_map(|child| self.find(child));
                value.get(name.as_str()).into_iter().chain(below).collect()
            }
            Self::Filter(path, comparison) => {
                let holds = |item: &&Value| match (path.find(item).first(), comparison) {
                    (Some(left), Some((operator, right))) => holds(left, operator, right),
                    (found, comparison) => found.is_some() && comparison.is_none(),
                };
                items.iter().filter(holds).collect()
            }
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn holds(left: &Value, operator: &str, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => (left == right).then_some(std::cmp::Ordering::Equal),
    };
    match operator {
        "==" => order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => !order.is_some_and(std::cmp::Ordering::is_eq),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        _ => order.is_some_and(std::cmp::Ordering::is_gt),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_finds_values() {
        let object = json!({
            "spec": {"a.b": 1, "list": [{"n": 1, "v": "x"}, {"n": 2, "v": "y"}, {"n": 3}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
        });
        let cases = [
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type != 'Ready')].type", json!(["Done"])),
            (".spec.list[0].v", json!(["x"])),
            ("spec.list[-1].n", json!([3])),
            (".spec.list[*].v", json!(["x", "y"])),
            (".spec.list[1:].n", json!([2, 3])),
            (".spec.list[?(@.n>=2)].n", json!([2, 3])),
            (".spec.list[?(@.v)].n", json!([1, 2])),
            (".spec['a.b']", json!([1])),
            (".spec.a\\.b", json!([1])),
            ("..type", json!(["Ready", "Done"])),
            (".spec.none[3].x", json!([])),
        ];
        for (path, wanted) in cases {
            let found = Path::parse(path).unwrap_or_else(|| panic!("{path} is no path"));
            assert_eq!(json!(found.find(&object)), wanted, "{path}");
        }
        for wrong in [".a[", ".a[?(@.b==]", ".a[x]", "..", ".a[?(@.b==x)]"] {
            assert_eq!(Path::parse(wrong), None, "{wrong}");
        }
    }
}
