//! Admission: the types that an author's functions for defaults and checks take and return, and the calls of these
//! functions with an object's text.
//!
//! The API server gets only a function's changes: fields that the type does not have, and fields that the function did
//! not change, stay as the user wrote them.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Failure, ScheduleError};
use crate::scan::{self, FromJson};
use crate::view::Inputs;

/// The operation that the API server reviews.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object.
    Update,
    /// The deletion of an object.
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The inputs of a function for defaults or checks, besides the object.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// /// A pool of some size, which never shrinks.
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Pool")]
/// struct PoolSpec {
///     size: u32,
///     #[serde(skip_serializing_if = "Option::is_none")]
///     tier: Option<String>,
/// }
///
/// #[reconciler(admission(mutate = complete, validate = check))]
/// fn reconcile(_pool: &Pool, _cx: &Context) -> Result<Outcome, Failure> {
///     Ok(Outcome::new())
/// }
///
/// fn complete(pool: &mut Pool, _review: &Review<Pool>) {
///     pool.spec.tier.get_or_insert_with(|| if pool.spec.size > 10 { "large" } else { "small" }.into());
/// }
///
/// fn check(pool: &Pool, review: &Review<Pool>) -> Verdict {
///     match &review.old {
///         Some(old) if pool.spec.size < old.spec.size => {
///             Violation::invalid("spec.size", &pool.spec.size, "a pool does not shrink").into()
///         }
///         _ => Verdict::allowed(),
///     }
/// }
///
/// let cluster = Cluster::of(&PLUGIN);
/// let pool = |size| Pool::new("a", PoolSpec { size, tier: None });
/// assert_eq!(cluster.create(&pool(3)).unwrap().object["spec"]["tier"], "small");
/// let refused = cluster.update(&pool(3), &pool(2)).unwrap_err();
/// assert_eq!(refused.to_string(), "spec.size: Invalid value: 2: a pool does not shrink");
/// ```
#[derive(Debug)]
pub struct Review<T> {
    /// What the user does.
    pub operation: Operation,
    /// The stored object, for an update and a delete. None also when it does not fit `T`, as one of an older build may.
    pub old: Option<T>,
    inputs: Inputs,
}

impl<T> Review<T> {
    /// Milliseconds since 1970.
    pub fn now_unix_ms(&self) -> u64 {
        self.inputs.now_unix_ms()
    }

    /// When a cron expression fires next; see [`Context::next_tick`].
    ///
    /// # Errors
    /// When the expression or the zone is invalid.
    ///
    /// [`Context::next_tick`]: crate::Context::next_tick
    pub fn next_tick(&self, expression: &str, zone: &str, after_unix_ms: u64) -> Result<Option<u64>, ScheduleError> {
        self.inputs.next_tick(expression, zone, after_unix_ms).map_err(ScheduleError)
    }

    /// The plugin's configuration, `config.yaml` of its ConfigMap, as JSON; `{}` when there is none.
    ///
    /// # Errors
    /// When it does not fit `C`: a violation that refuses the object, which cannot be checked.
    pub fn config<C: DeserializeOwned>(&self) -> Result<C, Violation> {
        serde_json::from_str(&self.inputs.config())
            .map_err(|error| Violation::new("", format!("the plugin's configuration is not valid: {error}")))
    }
}

/// Why an object is refused. `field` is a path as the API server writes it (`spec.image`, `spec.containers[0].name`),
/// empty for the object as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The field's path.
    pub field: String,
    /// What is wrong, for a person.
    pub message: String,
}

impl Violation {
    /// A violation with a message of its own. The other functions follow the API server's own messages, which programs
    /// parse.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// `spec.image: Required value: image is required`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, ["Required value: ", detail].concat())
    }

    /// `spec.size: Invalid value: 2: a pool does not shrink`.
    pub fn invalid<V: Serialize + ?Sized>(field: impl Into<String>, value: &V, detail: &str) -> Self {
        Self::new(field, ["Invalid value: ", &shown(value), ": ", detail].concat())
    }

    /// `spec.policy: Unsupported value: "Never": supported values: "Allow", "Forbid"`.
    pub fn unsupported<V: Serialize + ?Sized>(field: impl Into<String>, value: &V, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(shown).collect();
        let parts = ["Unsupported value: ", &shown(value), ": supported values: ", &supported.join(", ")];
        Self::new(field, parts.concat())
    }

    /// `spec.ports[1]: Duplicate value: 80`.
    pub fn duplicate<V: Serialize + ?Sized>(field: impl Into<String>, value: &V) -> Self {
        Self::new(field, ["Duplicate value: ", &shown(value)].concat())
    }

    /// `spec.class: Forbidden: it may not be changed`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, ["Forbidden: ", detail].concat())
    }
}

/// A value as JSON, as the API server shows invalid values.
fn shown<V: Serialize + ?Sized>(value: &V) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}

/// The result of a check. The object is admitted if there are no violations; kubectl shows the warnings either way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Why the object is refused; the first 64 are reported.
    pub violations: Vec<Violation>,
    /// What the user should know; the first 16 are reported.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// No violations, no warnings.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Adds a violation.
    #[must_use]
    pub fn violation(mut self, violation: Violation) -> Self {
        self.violations.push(violation);
        self
    }

    /// Adds a warning: "spec.size is ignored beside spec.tier".
    #[must_use]
    pub fn warning(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }
}

impl From<Violation> for Verdict {
    fn from(violation: Violation) -> Self {
        Self::allowed().violation(violation)
    }
}

impl From<Vec<Violation>> for Verdict {
    fn from(violations: Vec<Violation>) -> Self {
        Self { violations, warnings: Vec::new() }
    }
}

impl From<Result<(), Violation>> for Verdict {
    fn from(result: Result<(), Violation>) -> Self {
        result.err().map_or_else(Self::allowed, Self::from)
    }
}

/// What a function that sets defaults may return: nothing, or violations.
pub trait Completed {
    /// The violations; none if the object is complete.
    fn violations(self) -> Vec<Violation>;
}

impl Completed for () {
    fn violations(self) -> Vec<Violation> {
        Vec::new()
    }
}

impl Completed for Result<(), Violation> {
    fn violations(self) -> Vec<Violation> {
        self.err().into_iter().collect()
    }
}

impl Completed for Result<(), Vec<Violation>> {
    fn violations(self) -> Vec<Violation> {
        self.err().unwrap_or_default()
    }
}

/// A request of the API server.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) operation: Operation,
    pub(crate) object: String,
    pub(crate) old: Option<String>,
    pub(crate) inputs: Inputs,
}

/// Sets defaults in an object's text.
pub type Mutate = fn(&Request) -> Result<String, Vec<Violation>>;
/// Checks an object's text.
pub type Validate = fn(&Request) -> Verdict;

/// Defaults and checks for a controller's kind. Filled in by macros.
pub struct Admission {
    /// The operations that are reviewed.
    pub operations: &'static [Operation],
    /// Sets defaults.
    pub mutate: Option<Mutate>,
    /// Checks.
    pub validate: Option<Validate>,
}

/// Calls an author's check: the body of every `Validate`.
pub fn validate<T, V: Into<Verdict>>(request: &Request, check: impl FnOnce(&T, &Review<T>) -> V) -> Verdict
where
    T: for<'a> FromJson<'a>,
{
    match scan::read::<T>(&request.object) {
        Ok(object) => check(&object, &request.review()).into(),
        Err(reason) => Violation::new("", ["the object does not fit the plugin's type: ", &reason].concat()).into(),
    }
}

/// Calls an author's function that sets defaults: the body of every `Mutate`.
///
/// # Errors
/// The function's violations.
pub fn mutate<T, C: Completed>(
    request: &Request,
    complete: impl FnOnce(&mut T, &Review<T>) -> C,
) -> Result<String, Vec<Violation>>
where
    T: for<'a> FromJson<'a> + Serialize,
{
    // An object that does not fit is left to the schema, whose error names the field.
    let Ok(mut object) = scan::read::<T>(&request.object) else { return Ok(request.object.clone()) };
    let unwritable = |error: serde_json::Error| vec![Violation::new("", error.to_string())];
    let before = serde_json::to_value(&object).map_err(unwritable)?;
    let violations = complete(&mut object, &request.review()).violations();
    if !violations.is_empty() {
        return Err(violations);
    }
    let after = serde_json::to_value(&object).map_err(unwritable)?;
    if before == after {
        return Ok(request.object.clone());
    }
    let mut whole: Value = serde_json::from_str(&request.object).map_err(unwritable)?;
    carry(&before, &after, &mut whole);
    Ok(whole.to_string())
}

/// Applies to `whole` the changes from `before` to `after`.
pub(crate) fn carry(before: &Value, after: &Value, whole: &mut Value) {
    if before == after {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        *whole = after.clone();
        return;
    };
    if !whole.is_object() {
        *whole = Value::Object(Map::new());
    }
    let Value::Object(fields) = whole else { return };
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        fields.remove(name);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(was) if was == value => {}
            was => carry(was.unwrap_or(&Value::Null), value, fields.entry(name.as_str()).or_insert(Value::Null)),
        }
    }
}

impl Request {
    fn review<T: for<'a> FromJson<'a>>(&self) -> Review<T> {
        let old = self.old.as_deref().and_then(|old| scan::read(old).ok());
        Review { operation: self.operation, old, inputs: self.inputs.clone() }
    }

    pub(crate) fn kind(&self) -> Result<Header, Failure> {
        serde_json::from_str(&self.object).map_err(|error| Failure::terminal(error.to_string()))
    }
}

/// The fields that identify a kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_are_carried_over() {
        let before = json!({"spec": {"a": 1, "b": {"c": 2}, "gone": true, "none": null}});
        let after = json!({"spec": {"a": 1, "b": {"c": 3}, "none": null, "new": [1]}});
        let mut whole = json!({"spec": {"b": {"c": 2, "unknown": "x"}, "gone": true, "foreign": 1}, "kind": "A"});
        carry(&before, &after, &mut whole);
        let wanted = json!({"spec": {"b": {"c": 3, "unknown": "x"}, "foreign": 1, "new": [1]}, "kind": "A"});
        assert_eq!(whole, wanted, "neither the default of a, which the user did not write, nor the null is written");
    }

    #[test]
    fn violations_have_the_words_of_the_api_server() {
        let cases = [
            (Violation::required("spec.image", "image is required"), "spec.image: Required value: image is required"),
            (Violation::invalid("spec.at", "x", "no time"), "spec.at: Invalid value: \"x\": no time"),
            (
                Violation::unsupported("spec.p", "c", &["a", "b"]),
                "spec.p: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (Violation::duplicate("spec.ports[1]", &80), "spec.ports[1]: Duplicate value: 80"),
            (Violation::forbidden("spec.class", "it stays"), "spec.class: Forbidden: it stays"),
            (Violation::new("", "it cannot be"), "it cannot be"),
        ];
        for (violation, words) in cases {
            assert_eq!(violation.to_string(), words);
        }
    }
}
