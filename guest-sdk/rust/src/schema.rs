//! Structural schemas for CustomResourceDefinitions from Rust types: the schema that schemars derives, inlined, and
//! rewritten where Kubernetes does not accept JSON Schema. The rules are those of kube's CRD derive, so that a type
//! gives the same schema with both. This file must not know kinds or plugins.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

use crate::text::Text;

#[cfg(test)]
mod tests;

type Object = Map<String, Value>;

const ANY: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Keywords that are copied. Keywords that are neither here nor handled below are dropped, because the API server
/// refuses those that it does not know.
const KEPT: [&str; 12] = [
    "title",
    "description",
    "pattern",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
];

/// The schema of status.conditions: a map by type, so that each of several writers owns its own conditions.
const CONDITIONS: &str = concat!(
    r#"{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"#,
    r#""status":{"type":"string","enum":["True","False","Unknown"]},"reason":{"type":"string"},"#,
    r#""message":{"type":"string"},"lastTransitionTime":{"type":"string","format":"date-time"},"#,
    r#""observedGeneration":{"type":"integer","format":"int64"}},"#,
    r#""required":["type","status","lastTransitionTime","reason","message"]},"#,
    r#""x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"]}"#
);

/// Generates the schema of a type: [`schemars::JsonSchema::json_schema`].
pub type Schema = fn(&mut SchemaGenerator) -> schemars::Schema;

/// Writes the structural schema of a spec.
pub(crate) fn write(schema: Schema, out: &mut Text) {
    Node::of(&[derive(schema)]).write(out, false);
}

/// Writes the structural schema of a status. It always has conditions, since an outcome has them beside its status. No
/// field is required: the API server would refuse a condition that the host writes before the plugin's first status.
pub(crate) fn write_status(schema: Schema, out: &mut Text) {
    Node::of(&[derive(schema)]).write(out, true);
}

/// Writes the schema of a status that has conditions alone, in which the host reports errors.
pub(crate) fn write_bare_status(out: &mut Text) {
    out.open(b'{').text("type", "object").name("properties").open(b'{').name("conditions").raw(CONDITIONS);
    out.close(b'}').close(b'}');
}

/// The schema that schemars derives. Leaked: this runs twice in an instance that ends right afterwards, and the code
/// that frees these trees would be a good part of a small component.
fn derive(schema: Schema) -> &'static Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let generator = Box::leak(Box::new(settings.into_generator()));
    Box::leak(Box::new(schema(generator).to_value()))
}

/// One schema with everything that applies at its place: itself, members of its allOf, and an alternative that is the
/// only one besides null.
#[derive(Default)]
struct Node<'a> {
    layers: Vec<&'a Object>,
    alternatives: Option<(&'static str, Vec<&'a Value>)>,
    nullable: bool,
    /// Accepts anything, because no structural schema can describe it.
    any: bool,
}

impl<'a> Node<'a> {
    fn of(schemas: &[&'a Value]) -> Self {
        let mut node = Self::default();
        for schema in schemas {
            node.add(schema);
        }
        node
    }

    fn add(&mut self, schema: &'a Value) {
        // `true` accepts everything. `false` accepts nothing, and only generic code uses it; a reference is left only
        // where a type contains itself. Both become "anything".
        let Some(layer) = schema.as_object().filter(|layer| !layer.contains_key("$ref")) else {
            self.any = true;
            return;
        };
        self.layers.push(layer);
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let Some(all) = layer.get(keyword).and_then(Value::as_array) else { continue };
            let variants: Vec<&Value> = all.iter().filter(|variant| !is_null(variant)).collect();
            self.nullable |= variants.len() < all.len();
            if keyword == "allOf" || variants.len() == 1 {
                variants.into_iter().for_each(|variant| self.add(variant));
            } else {
                self.alternatives = Some((keyword, variants));
            }
        }
    }

    fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.layers.iter().find_map(|layer| layer.get(keyword))
    }

    fn write(mut self, out: &mut Text, is_status: bool) {
        out.open(b'{');
        for keyword in KEPT {
            if let Some(value) = self.get(keyword) {
                out.name(keyword).value(value);
            }
        }
        // serde assumes a default of null anyway, and the API server accepts it on nullable fields alone.
        if let Some(default) = self.get("default").filter(|default| !default.is_null()) {
            out.name("default").value(default);
        }
        for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
            if let Some(limit) = self.get(exclusive) {
                out.name(bound).value(limit).flag(exclusive);
            }
        }
        self.write_format(out);
        let variants = self.alternatives.take();
        let values = self.values(variants.as_ref());
        let objects = match &variants {
            Some((keyword, variants)) if values.is_empty() && variants.iter().all(|each| is_object(each)) => {
                Some((*keyword, variants.as_slice()))
            }
            _ => None,
        };
        if !values.is_empty() {
            out.name("enum").value(&values);
        }
        let fields = self.fields(objects.map_or(&[], |(_, variants)| variants));
        let kind = self.write_type(&values, variants.as_ref(), !fields.is_empty(), out);
        self.write_contents(fields, kind, is_status, out);
        if let Some((keyword, variants)) = objects {
            write_alternatives(keyword, variants, out);
        }
        self.write_extensions(out);
        if self.nullable {
            out.flag("nullable");
        }
        if self.any {
            out.flag(ANY);
        }
        out.close(b'}');
    }

    /// Kubernetes has signed integers of 32 and 64 bits; others become the next wider one with bounds.
    fn write_format(&self, out: &mut Text) {
        let Some(format) = self.get("format").and_then(Value::as_str) else { return };
        let known = match format {
            "int8" | "int16" | "uint8" | "uint16" => "int32",
            "uint32" => {
                if self.get("maximum").is_none() {
                    out.name("maximum").value(&u32::MAX);
                }
                "int64"
            }
            "uint64" | "int" | "uint" => "int64",
            "int128" | "uint128" => return,
            other => other,
        };
        out.text("format", known);
    }

    /// The values of an enumeration, or of alternatives with one value each. Null makes it nullable.
    fn values(&mut self, variants: Option<&(&str, Vec<&'a Value>)>) -> Vec<&'a Value> {
        let mut values = Vec::new();
        for layer in &self.layers {
            values.extend(values_of(layer));
        }
        if let Some((_, variants)) = variants {
            let listed: Vec<Vec<&Value>> =
                variants.iter().filter_map(|each| Some(values_of(each.as_object()?))).collect();
            if listed.iter().all(|values| !values.is_empty()) {
                values.extend(listed.into_iter().flatten());
            }
        }
        let all = values.len();
        values.retain(|value| !value.is_null());
        self.nullable |= values.len() < all;
        values
    }

    /// The fields of an object, each with all schemas that it has here and in alternatives.
    fn fields(&self, variants: &[&'a Value]) -> Vec<(&'a str, Vec<&'a Value>)> {
        let mut fields: Vec<(&str, Vec<&Value>)> = Vec::new();
        let more = variants.iter().filter_map(|each| each.as_object());
        for layer in self.layers.iter().copied().chain(more) {
            for (name, schema) in layer.get("properties").and_then(Value::as_object).into_iter().flatten() {
                match fields.iter_mut().find(|(existing, _)| existing == name) {
                    None => fields.push((name, vec![schema])),
                    Some((_, schemas)) if schemas.contains(&schema) => {}
                    Some((_, schemas)) => schemas.push(schema),
                }
            }
        }
        fields
    }

    /// Writes the type, or the one of its values or fields if none is given. Returns it; empty if no type can be
    /// written.
    fn write_type(
        &mut self,
        values: &[&Value],
        variants: Option<&(&str, Vec<&'a Value>)>,
        has_fields: bool,
        out: &mut Text,
    ) -> &'a str {
        let mut types: Vec<&str> = Vec::new();
        for name in self.type_names(variants) {
            if name == "null" {
                self.nullable = true;
            } else if !types.contains(&name) {
                types.push(name);
            }
        }
        let is_map = self.get("additionalProperties").is_some_and(|schema| *schema != Value::Bool(false));
        let name = match (types.as_slice(), values.first()) {
            ([one], _) if !one.is_empty() => one,
            (["integer", "string"] | ["string", "integer"], None) => {
                out.flag(INT_OR_STRING);
                return "";
            }
            (_, Some(Value::String(_))) => "string",
            (_, Some(Value::Number(_))) => "integer",
            (_, Some(Value::Bool(_))) => "boolean",
            _ if has_fields || is_map => "object",
            _ => {
                self.any |= self.get(INT_OR_STRING).is_none();
                return "";
            }
        };
        out.text("type", name);
        name
    }

    /// The types that are named here, or else in the alternatives; an alternative without one counts as "".
    fn type_names(&self, variants: Option<&(&str, Vec<&'a Value>)>) -> Vec<&'a str> {
        match self.get("type") {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(one) => one.as_str().into_iter().collect(),
            None => variants
                .map_or(&[][..], |(_, all)| all)
                .iter()
                .map(|each| each["type"].as_str().unwrap_or_default())
                .collect(),
        }
    }

    /// Writes the contents of an array or object. Properties and additionalProperties exclude each other in a
    /// structural schema. `additionalProperties: false` is never written, because the API server prunes unknown fields
    /// anyway.
    fn write_contents(&mut self, fields: Vec<(&'a str, Vec<&'a Value>)>, kind: &str, is_status: bool, out: &mut Text) {
        match kind {
            "object" => {}
            "array" => {
                out.name("items");
                return Node::of(&[self.get("items").unwrap_or(&Value::Bool(true))]).write(out, false);
            }
            _ => return,
        }
        let required: Vec<&Value> =
            self.layers.iter().filter_map(|layer| layer.get("required")?.as_array()).flatten().collect();
        if !required.is_empty() && !is_status {
            out.name("required").value(&required);
        }
        let additional = self.get("additionalProperties").filter(|schema| **schema != Value::Bool(false));
        let add_conditions = is_status && !fields.iter().any(|(name, _)| *name == "conditions");
        if fields.is_empty() && !add_conditions {
            match additional {
                Some(Value::Object(_)) => {
                    out.name("additionalProperties");
                    additional.into_iter().for_each(|schema| Node::of(&[schema]).write(out, false));
                }
                Some(_) => self.any = true,
                None => {}
            }
            return;
        }
        self.any |= additional.is_some();
        out.name("properties").open(b'{');
        for (name, schemas) in fields {
            out.name(name);
            write_field(&schemas, out);
        }
        if add_conditions {
            out.name("conditions").raw(CONDITIONS);
        }
        out.close(b'}');
    }

    /// Kubernetes' own keywords, which authors add by `#[schemars(extend(...))]`.
    fn write_extensions(&mut self, out: &mut Text) {
        for layer in &self.layers {
            for (name, value) in layer.iter().filter(|(name, _)| name.starts_with("x-kubernetes-")) {
                if name == ANY {
                    self.any |= *value == true;
                } else {
                    out.name(name).value(value);
                }
            }
        }
    }
}

/// Writes a field of one or several alternatives: a tag enumerates all its values; a field with two types accepts
/// anything.
fn write_field(schemas: &[&Value], out: &mut Text) {
    let values: Vec<&Value> = schemas.iter().filter_map(|schema| schema.as_object()).flat_map(values_of).collect();
    match schemas {
        [one] => Node::of(&[one]).write(out, false),
        [first, ..] if values.len() >= schemas.len() => {
            let kind = first["type"].as_str().unwrap_or("string");
            out.open(b'{').text("type", kind).name("enum").value(&values).close(b'}');
        }
        _ => {
            out.open(b'{').flag(ANY).close(b'}');
        }
    }
}

/// Writes what distinguishes alternatives whose fields are in the parent, as a structural schema requires: their
/// required fields and the values of their tags.
fn write_alternatives(keyword: &str, variants: &[&Value], out: &mut Text) {
    out.name(keyword).open(b'[');
    for variant in variants {
        out.open(b'{');
        if let Some(required) = variant.get("required") {
            out.name("required").value(required);
        }
        let fields = variant.get("properties").and_then(Value::as_object).into_iter().flatten();
        let tags: Vec<(&String, Vec<&Value>)> = fields
            .filter_map(|(name, schema)| Some((name, values_of(schema.as_object()?))))
            .filter(|(_, values)| values.len() == 1)
            .collect();
        if !tags.is_empty() {
            out.name("properties").open(b'{');
            for (name, values) in &tags {
                out.name(name).open(b'{').name("enum").value(values).close(b'}');
            }
            out.close(b'}');
        }
        out.close(b'}');
    }
    out.close(b']');
}

fn values_of(layer: &Object) -> Vec<&Value> {
    let listed = layer.get("enum").and_then(Value::as_array).into_iter().flatten();
    layer.get("const").into_iter().chain(listed).collect()
}

fn is_object(schema: &Value) -> bool {
    schema["type"] == "object"
}

fn is_null(schema: &Value) -> bool {
    let enumerates_null = matches!(schema["enum"].as_array().map(Vec::as_slice), Some([Value::Null]));
    schema["type"] == "null" || schema.get("const").is_some_and(Value::is_null) || enumerates_null
}
