//! The columns of custom resources: `additionalPrinterColumns`. Input: a definition's version, and objects. Output: columns
//! and cells. It must not know built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{since, text};
use super::json_path::Path;
use crate::published;
use crate::version::Version;

/// One column after the name.
pub(super) struct Column {
    definition: Value,
    kind: String,
    /// None of the name's own column, and of a path that is not one.
    path: Option<Path>,
}

impl Column {
    pub(super) fn definition(&self) -> Value {
        self.definition.clone()
    }

    fn new(name: &str, kind: &str, format: &str, description: &str, priority: i64, path: &str) -> Self {
        let definition =
            json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
        Self { definition, kind: kind.to_owned(), path: Path::parse(path) }
    }
}

/// The name, then the columns of the definition, or the age when it has none.
pub(super) fn columns(version: &Version) -> Vec<Column> {
    let about = |field| published::field_description("api/v1", "ObjectMeta", field);
    let name = Column::new("Name", "string", "name", &about("name"), 0, ".metadata.name");
    let read = |column: &Value| {
        let of = |key: &str| text(&column[key]);
        let path = of("jsonPath");
        let description = match of("description") {
            empty if empty.is_empty() => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description,
        };
        let priority = column["priority"].as_i64().unwrap_or(0);
        Column::new(&of("name"), &of("type"), &of("format"), &description, priority, &path)
    };
    let mut columns = vec![name];
    columns.extend(version.columns.iter().map(read));
    if version.columns.is_empty() {
        let (about, path) = (about("creationTimestamp"), ".metadata.creationTimestamp");
        columns.push(Column::new("Age", "date", "", &about, 0, path));
    }
    columns
}

pub(super) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |column: &Column| {
        let found = column.path.as_ref().and_then(|path| path.find(object).first().copied());
        found.map_or(Value::Null, |found| cell(&column.kind, found, now))
    };
    columns.iter().map(cell).collect()
}

fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "the API server cuts a number to an integer")]
    match (kind, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", value) => value.to_string().into(),
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).into()
        }
        ("number", Value::Number(number)) => number.as_f64().into(),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(date)) if date.is_empty() => "<unknown>".into(),
        ("date", Value::String(date)) if date.parse::<Timestamp>().is_err() => "<invalid>".into(),
        ("date", Value::String(_)) => since(value, now).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_type_of_its_column() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let cases = [
            ("string", json!("a"), json!("a")),
            ("string", json!(3), json!("3")),
            ("string", json!(["a", 1]), json!("[\"a\",1]")),
            ("integer", json!(3), json!(3)),
            ("integer", json!(3.7), json!(3)),
            ("integer", json!("3"), json!(null)),
            ("number", json!(2), json!(2.0)),
            ("boolean", json!(true), json!(true)),
            ("boolean", json!("true"), json!(null)),
            ("date", json!("2026-01-01T00:00:00Z"), json!("60s")),
            ("date", json!("soon"), json!("<invalid>")),
            ("date", json!(7), json!(null)),
        ];
        for (kind, value, wanted) in cases {
            assert_eq!(cell(kind, &value, now), wanted, "{kind} {value}");
        }
    }
}
