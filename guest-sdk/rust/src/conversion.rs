//! Conversion of objects between the versions of their kind. An author converts specs and statuses; this file does the
//! rest: an object's text and the requested version go in, its text in that version comes out.
//!
//! No field is lost: values that would not survive the way back are kept in an annotation and restored from it.
//! Metadata and all members besides spec and status are passed through.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admission::carry;
use crate::definition::Definition;
use crate::object::Resource;

/// Fields of a status that the host writes, in every version.
const OF_HOST: [&str; 2] = ["conditions", "observedGeneration"];

/// A version of a kind that a plugin defines. Derived.
pub trait Versioned: Resource {
    /// Its spec.
    type Spec: Serialize + DeserializeOwned;
    /// Its status; [`NoStatus`] for a kind without one.
    type Status: Serialize + DeserializeOwned;
}

/// The status of a kind whose status has conditions alone.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct NoStatus {}

/// Converts a spec or a status to another version. Implemented by `From` or `TryFrom`.
///
/// ```
/// use mortise_sdk::prelude::*;
/// use mortise_sdk::testing::Cluster;
///
/// /// The version that is stored and reconciled.
/// #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
/// #[resource(group = "example.com", version = "v1", kind = "Gauge")]
/// pub struct GaugeSpec {
///     value: u32,
///     unit: String,
/// }
///
/// /// An older version: the type has the same name, so it needs a module of its own.
/// mod v1alpha1 {
///     use mortise_sdk::prelude::*;
///
///     /// A gauge with its size in one text.
///     #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
///     #[resource(group = "example.com", version = "v1alpha1", kind = "Gauge")]
///     pub struct GaugeSpec {
///         pub size: String,
///         #[serde(skip_serializing_if = "Option::is_none")]
///         pub color: Option<String>,
///     }
/// }
///
/// impl TryFrom<v1alpha1::GaugeSpec> for GaugeSpec {
///     type Error = String;
///
///     fn try_from(old: v1alpha1::GaugeSpec) -> Result<Self, String> {
///         let (value, unit) = old.size.split_once(' ').ok_or("spec.size: expected \"10 Mi\"")?;
///         let value = value.parse().map_err(|error| format!("spec.size: {value:?}: {error}"))?;
///         Ok(Self { value, unit: unit.into() })
///     }
/// }
///
/// impl From<GaugeSpec> for v1alpha1::GaugeSpec {
///     fn from(new: GaugeSpec) -> Self {
///         Self { size: format!("{} {}", new.value, new.unit), color: None }
///     }
/// }
///
/// #[reconciler(conversion(v1alpha1::Gauge))]
/// fn reconcile(_gauge: &Gauge, _cx: &Context) -> Result<Outcome, Failure> {
///     Ok(Outcome::new())
/// }
///
/// let cluster = Cluster::of(&PLUGIN);
/// let spec = v1alpha1::GaugeSpec { size: "10 Mi".into(), color: Some("red".into()) };
/// let old = v1alpha1::Gauge::new("a", spec);
/// let new = cluster.convert(&old, "example.com/v1").unwrap();
/// assert_eq!(new["spec"], json!({"value": 10, "unit": "Mi"}));
/// // v1 has no field for the color. The annotation example.com/conversion-v1alpha1 keeps it.
/// let again = cluster.convert(&new, "example.com/v1alpha1").unwrap();
/// assert_eq!(again["spec"], json!({"size": "10 Mi", "color": "red"}));
/// ```
pub trait IntoVersion<T> {
    /// Converts.
    ///
    /// # Errors
    /// Why the value cannot be converted, in the author's words.
    fn into_version(self) -> Result<T, String>;
}

impl<S, T: TryFrom<S>> IntoVersion<T> for S
where
    T::Error: Display,
{
    fn into_version(self) -> Result<T, String> {
        T::try_from(self).map_err(|error| error.to_string())
    }
}

/// A further version of the kind that a controller reconciles. Filled in by macros.
pub struct Version {
    /// Its CustomResourceDefinition.
    pub definition: &'static Definition,
    /// From this version to the reconciled one.
    pub to_reconciled: Convert,
    /// From the reconciled version to this one.
    pub from_reconciled: Convert,
}

/// Converts `spec` and `status`, if present, as members of one JSON object.
pub type Convert = fn(&Value) -> Result<Value, String>;

/// The version `V` of the kind `R`.
///
/// # Panics
/// At compile time, when the two are not versions of one kind.
pub const fn version<R: Versioned, V: Versioned>() -> Version
where
    R::Spec: IntoVersion<V::Spec>,
    R::Status: IntoVersion<V::Status>,
    V::Spec: IntoVersion<R::Spec>,
    V::Status: IntoVersion<R::Status>,
{
    let (Some(reconciled), Some(definition)) = (R::DEFINITION, V::DEFINITION) else {
        panic!("conversion(...) belongs to a kind of the plugin's own, made by #[derive(CustomResource)]");
    };
    assert!(
        same(reconciled.group, definition.group)
            && same(reconciled.kind, definition.kind)
            && same(reconciled.plural, definition.plural)
            && reconciled.namespaced == definition.namespaced,
        "conversion(...) names a version of another kind: group, kind, plural and `cluster` have to be the same in all versions",
    );
    assert!(
        !same(reconciled.version, definition.version),
        "conversion(...) names the reconciled version itself; it takes the other versions of the kind",
    );
    Version { definition, to_reconciled: parts::<V, R>, from_reconciled: parts::<R, V> }
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    one.len() == other.len() && at == one.len()
}

/// The body of every [`Convert`].
fn parts<A: Versioned, B: Versioned>(given: &Value) -> Result<Value, String>
where
    A::Spec: IntoVersion<B::Spec>,
    A::Status: IntoVersion<B::Status>,
{
    let mut made = Map::new();
    if let Some(spec) = given.get("spec") {
        let spec: A::Spec = A::Spec::deserialize(spec)
            .map_err(|error| format!("its spec does not fit the plugin's type of {}: {error}", A::API_VERSION))?;
        made.insert("spec".to_owned(), written(&spec.into_version()?)?);
    }
    if let Some(status) = given.get("status") {
        // A status that does not fit has conditions alone, or an older build wrote it; the annotation keeps its fields.
        let mut converted = match A::Status::deserialize(status) {
            Ok(status) => written(&status.into_version()?)?,
            Err(_) => Value::Object(Map::new()),
        };
        for name in OF_HOST {
            if let (Some(fields), Some(value)) = (converted.as_object_mut(), status.get(name)) {
                fields.insert(name.to_owned(), value.clone());
            }
        }
        made.insert("status".to_owned(), converted);
    }
    Ok(Value::Object(made))
}

fn written<T: Serialize>(value: &T) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// A conversion between two versions, and its inverse.
struct Way {
    from: &'static Definition,
    to: &'static Definition,
    forth: Convert,
    back: Convert,
}

impl Way {
    fn into(reconciled: &'static Definition, version: &'static Version) -> Self {
        let Version { definition, to_reconciled, from_reconciled } = version;
        Self { from: definition, to: reconciled, forth: *to_reconciled, back: *from_reconciled }
    }

    fn out_of(reconciled: &'static Definition, version: &'static Version) -> Self {
        let Version { definition, to_reconciled, from_reconciled } = version;
        Self { from: reconciled, to: definition, forth: *from_reconciled, back: *to_reconciled }
    }

    fn convert(&self, object: &mut Map<String, Value>) -> Result<(), String> {
        let given = taken(object);
        let mut made = (self.forth)(&given)?;
        if let Some(kept) = annotations(object).and_then(|all| all.remove(&annotation(self.to))) {
            self.restore(&kept, &mut made);
        }
        // Converting the result back unchanged has to give the original.
        let returned = (self.back)(&made).unwrap_or_default();
        let lost: Map<String, Value> = members(given)
            .filter(|(name, part)| !returned.get(name).is_some_and(|returned| covers(returned, part)))
            .collect();
        if !lost.is_empty() {
            let text = Value::String(Value::Object(lost).to_string());
            if let Some(all) = annotations(object) {
                all.insert(annotation(self.from), text);
            }
        }
        if annotations(object).is_some_and(|all| all.is_empty())
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
        object.insert("apiVersion".to_owned(), Value::String([self.to.group, "/", self.to.version].concat()));
        object.extend(members(made));
        Ok(())
    }

    /// Restores what was kept when the object left this version, with the changes made since.
    fn restore(&self, kept: &Value, made: &mut Value) {
        let Some(Ok(mut kept)) = kept.as_str().map(serde_json::from_str::<Value>) else { return };
        let Ok(unchanged) = (self.back)(&kept).and_then(|shown| (self.forth)(&shown)) else { return };
        carry(&unchanged, made, &mut kept);
        *made = kept;
    }
}

/// Removes the spec and the status from an object.
fn taken(object: &mut Map<String, Value>) -> Value {
    let part = |name: &str| object.remove(name).map(|part| (name.to_owned(), part));
    Value::Object(["spec", "status"].into_iter().filter_map(part).collect())
}

fn members(value: Value) -> impl Iterator<Item = (String, Value)> {
    let members = if let Value::Object(members) = value { members } else { Map::new() };
    members.into_iter()
}

/// An object's annotations, created if absent.
fn annotations(object: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    annotations.as_object_mut()
}

/// The annotation that keeps values of an object in this version.
fn annotation(of: &Definition) -> String {
    [of.group, "/conversion-", of.version].concat()
}

/// Whether `whole` contains everything of `part`. It may contain more, such as defaults.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| covers(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| covers(whole, part))
        }
        _ => whole == part,
    }
}

/// Converts an object between two versions of a kind.
pub(crate) fn convert(
    reconciled: &'static Definition,
    versions: &'static [Version],
    mut object: Map<String, Value>,
    to_api_version: &str,
) -> Result<String, String> {
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let find = |api_version: &str| {
        let is_it = |definition: &Definition| [definition.group, "/", definition.version].concat() == api_version;
        if is_it(reconciled) {
            return Ok(None);
        }
        let found = versions.iter().find(|version| is_it(version.definition));
        found.map(Some).ok_or_else(|| ["the plugin knows no ", reconciled.kind, " of ", api_version].concat())
    };
    let ways = [
        find(&from)?.map(|version| Way::into(reconciled, version)),
        find(to_api_version)?.map(|version| Way::out_of(reconciled, version)),
    ];
    if from != to_api_version {
        for way in ways.iter().flatten() {
            way.convert(&mut object)?;
        }
    }
    Ok(Value::Object(object).to_string())
}
