//! JSON as text: what a plugin returns ([`Json`]) and what it passes on unparsed ([`RawJson`]). Trees of values are a
//! convenience for authors ([`crate::json!`]); the SDK needs none to reconcile.

use std::borrow::Cow;
use std::rc::Rc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, Value};

use crate::error::Failure;

/// JSON text for the host. Clones share the text, so a template of many children is serialized once.
///
/// ```
/// use mortise_sdk::{Child, Json, json};
///
/// let pod = Json::of_kind("v1", "Pod", &json!({"spec": {"containers": []}}));
/// let children: Vec<Child> = (0..3).map(|n| Child::new(n.to_string(), pod.clone())).collect();
/// assert_eq!(children[2].object.text().unwrap(), r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[]}}"#);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Json(Result<Rc<String>, Rc<String>>);

impl Json {
    /// Serializes a value. An error (a map whose keys are not strings) is kept and becomes a terminal failure of the
    /// call, so that building an outcome needs no `?` for each object.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_string(value).map(Rc::new).map_err(|error| Rc::new(error.to_string())))
    }

    /// Serializes the object `body` with apiVersion and kind in front.
    pub fn of_kind<T: Serialize + ?Sized>(api_version: &str, kind: &str, body: &T) -> Self {
        let Self(Ok(body)) = Self::new(body) else { return Self::new(body) };
        let Some(fields) = body.strip_prefix('{') else {
            return Self(Err(Rc::new(format!("the body of a {kind} is no JSON object"))));
        };
        let comma = if fields == "}" { "" } else { "," };
        let parts = ["{\"apiVersion\":\"", api_version, "\",\"kind\":\"", kind, "\"", comma, fields];
        Self::raw(parts.concat())
    }

    /// Text that is JSON already. The host refuses it if it does not parse.
    pub fn raw(text: impl Into<String>) -> Self {
        Self(Ok(Rc::new(text.into())))
    }

    /// The text.
    ///
    /// # Errors
    /// Terminal, when the value could not be written as JSON.
    pub fn text(&self) -> Result<&str, Failure> {
        match &self.0 {
            Ok(text) => Ok(text),
            Err(reason) => Err(Failure::terminal(format!("a value cannot be written as JSON: {reason}"))),
        }
    }

    pub(crate) fn into_text(self) -> Result<String, Failure> {
        match self.0 {
            Ok(text) => Ok(Rc::unwrap_or_clone(text)),
            Err(_) => self.text().map(str::to_owned),
        }
    }

    /// The text as a tree, for tests.
    ///
    /// # Errors
    /// Terminal, when the text is no JSON.
    pub fn value(&self) -> Result<Value, Failure> {
        serde_json::from_str(self.text()?).map_err(|error| Failure::terminal(format!("this is no JSON: {error}")))
    }
}

impl<T: Serialize + ?Sized> From<&T> for Json {
    fn from(value: &T) -> Self {
        Self::new(value)
    }
}

/// For [`crate::json!`] in place: `Child::new("config", json!({...}))`.
impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::new(&value)
    }
}

/// Any JSON, as its text: for parts of a spec that a plugin passes on unparsed. Its schema is
/// `x-kubernetes-preserve-unknown-fields`.
///
/// Inside `#[serde(flatten)]`, untagged and internally tagged enums serde buffers values, and a `RawJson` cannot be
/// read from such a buffer; use [`Value`] there.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Serializes a value.
    ///
    /// # Errors
    /// Terminal, when the value cannot be written as JSON.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, Failure> {
        match serde_json::value::to_raw_value(value) {
            Ok(raw) => Ok(Self(raw)),
            Err(error) => Err(Failure::terminal(format!("a value cannot be written as JSON: {error}"))),
        }
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Deserializes the text.
    ///
    /// # Errors
    /// Terminal, with the place where the text does not fit the type.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        serde_json::from_str(self.get()).map_err(|error| Failure::terminal(error.to_string()))
    }
}

impl std::str::FromStr for RawJson {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match RawValue::from_string(text.to_owned()) {
            Ok(raw) => Ok(Self(raw)),
            Err(error) => Err(Failure::terminal(format!("this is no JSON: {error}"))),
        }
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get())
    }
}

impl JsonSchema for RawJson {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawJson".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Child, Json, json};

    #[test]
    fn a_tree_is_taken_by_value_as_by_reference() {
        let tree = json!({"data": {"text": "hello"}});
        assert_eq!(Child::new("a", &tree), Child::new("a", tree.clone()));
        assert_eq!(Json::from(tree).text(), Ok(r#"{"data":{"text":"hello"}}"#));
    }
}
