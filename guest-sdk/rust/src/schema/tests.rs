//! Rust types go in, structural schemas come out.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{write, write_status};
use crate::json::RawJson;
use crate::object::PodTemplate;
use crate::text::Text;

fn schema<T: JsonSchema>() -> Value {
    let mut out = Text::default();
    write(T::json_schema, &mut out);
    serde_json::from_str(&out.finish()).unwrap()
}

fn field<T: JsonSchema>(name: &str) -> Value {
    schema::<T>()["properties"][name].clone()
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Plain {
    /// How many.
    #[schemars(range(min = 0))]
    count: i32,
    long_name: Option<String>,
    small: u8,
    unsigned: u32,
    big: Option<u64>,
    ratio: f64,
    #[serde(default)]
    flag: bool,
    #[serde(default)]
    nothing: Option<i64>,
    #[schemars(length(max = 5), regex(pattern = "^a"))]
    short: String,
}

#[test]
fn scalars_keep_formats_that_kubernetes_has_and_become_bounds_otherwise() {
    let fields = schema::<Plain>()["properties"].clone();
    assert_eq!(
        fields["count"],
        json!({"type": "integer", "format": "int32", "minimum": 0, "description": "How many."})
    );
    assert_eq!(fields["longName"], json!({"type": "string", "nullable": true}));
    assert_eq!(fields["small"], json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 255}));
    assert_eq!(fields["unsigned"], json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX}));
    assert_eq!(fields["big"], json!({"type": "integer", "format": "int64", "minimum": 0, "nullable": true}));
    assert_eq!(fields["ratio"], json!({"type": "number", "format": "double"}));
    assert_eq!(fields["flag"], json!({"type": "boolean", "default": false}));
    assert_eq!(
        fields["nothing"],
        json!({"type": "integer", "format": "int64", "nullable": true}),
        "no default of null"
    );
    assert_eq!(fields["short"], json!({"type": "string", "maxLength": 5, "pattern": "^a"}));
}

#[test]
fn only_fields_without_a_default_are_required() {
    assert_eq!(schema::<Plain>()["required"], json!(["count", "small", "unsigned", "ratio", "short"]));
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Strict {
    inner: Inner,
    many: Vec<Inner>,
    set: BTreeSet<String>,
    map: BTreeMap<String, Inner>,
    maybe: Option<Inner>,
}

/// What is inside.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Inner {
    name: String,
}

#[test]
fn nested_types_are_inlined_and_additional_properties_are_left_to_pruning() {
    let all = schema::<Strict>();
    let inner = json!({"type": "object", "description": "What is inside.", "required": ["name"],
        "properties": {"name": {"type": "string"}}});
    assert_eq!(all.get("additionalProperties"), None);
    assert_eq!(all["properties"]["inner"], inner);
    assert_eq!(all["properties"]["many"], json!({"type": "array", "items": inner}));
    assert_eq!(all["properties"]["set"], json!({"type": "array", "items": {"type": "string"}}), "no uniqueItems");
    assert_eq!(all["properties"]["map"], json!({"type": "object", "additionalProperties": inner}));
    let mut nullable = inner;
    nullable["nullable"] = true.into();
    assert_eq!(all["properties"]["maybe"], nullable);
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Untyped {
    value: Value,
    raw: Option<RawJson>,
    map: serde_json::Map<String, Value>,
    template: PodTemplate,
    pair: (String, i32),
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[test]
fn untyped_json_is_preserved() {
    const ANY: &str = "x-kubernetes-preserve-unknown-fields";
    let all = schema::<Untyped>();
    assert_eq!(all[ANY], true, "flattened maps accept any field");
    assert_eq!(all["properties"]["value"], json!({ANY: true}));
    assert_eq!(all["properties"]["raw"][ANY], true);
    assert_eq!(all["properties"]["map"], json!({"type": "object", ANY: true}));
    assert_eq!(all["properties"]["template"]["properties"]["spec"]["type"], "object");
    assert_eq!(all["properties"]["template"]["properties"]["spec"][ANY], true);
    assert_eq!(all["properties"]["pair"]["items"], json!({ANY: true}));
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Policy {
    Always,
    Never,
}

/// Documented variants make schemars write one schema for each.
#[derive(Serialize, Deserialize, JsonSchema)]
enum Documented {
    /// At once.
    Now,
    /// Some time.
    Later,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Enums {
    policy: Policy,
    maybe: Option<Policy>,
    documented: Documented,
    maybe_documented: Option<Documented>,
}

#[test]
fn enumerations_are_one_enum_of_strings() {
    let policy = json!({"type": "string", "enum": ["Always", "Never"]});
    assert_eq!(field::<Enums>("policy"), policy);
    assert_eq!(field::<Enums>("maybe"), json!({"type": "string", "enum": ["Always", "Never"], "nullable": true}));
    assert_eq!(field::<Enums>("documented")["enum"], json!(["Now", "Later"]));
    assert_eq!(field::<Enums>("documented").get("oneOf"), None);
    assert_eq!(field::<Enums>("maybe_documented")["enum"], json!(["Now", "Later"]));
    assert_eq!(field::<Enums>("maybe_documented")["nullable"], true);
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Source {
    Git { url: String },
    Inline(BTreeMap<String, String>),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Tagged {
    A { size: i32 },
    B { name: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum PortName {
    Number(i32),
    Name(String),
}

#[test]
fn alternatives_of_objects_have_their_fields_in_the_parent() {
    let source = schema::<Source>();
    assert_eq!(source["type"], "object");
    assert_eq!(source["oneOf"], json!([{"required": ["git"]}, {"required": ["inline"]}]));
    assert_eq!(source["properties"]["git"]["properties"]["url"], json!({"type": "string"}));
    assert_eq!(source["properties"]["inline"]["additionalProperties"], json!({"type": "string"}));
}

#[test]
fn tags_enumerate_their_values_and_distinguish_alternatives() {
    let tagged = schema::<Tagged>();
    assert_eq!(tagged["properties"]["type"], json!({"type": "string", "enum": ["A", "B"]}));
    assert_eq!(tagged["properties"]["size"], json!({"type": "integer", "format": "int32"}));
    assert_eq!(tagged["oneOf"][1]["properties"]["type"], json!({"enum": ["B"]}));
    assert_eq!(tagged["oneOf"][1]["required"], json!(["type", "name"]));
}

#[test]
fn a_number_or_a_text_is_int_or_string() {
    assert_eq!(schema::<PortName>()["x-kubernetes-int-or-string"], true);
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[test]
fn a_type_that_contains_itself_ends_in_anything() {
    let text = schema::<Tree>().to_string();
    assert!(!text.contains("$ref"), "{text}");
    assert!(text.contains("x-kubernetes-preserve-unknown-fields"), "{text}");
}

/// Those of the API server's rules for structural schemas that these schemas could break.
fn assert_structural(schema: &Value, at: &str) {
    const KNOWN: [&str; 33] = [
        "additionalProperties",
        "allOf",
        "anyOf",
        "default",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "nullable",
        "oneOf",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    let object = schema.as_object().unwrap_or_else(|| panic!("{at}: {schema} is no object"));
    for name in object.keys() {
        assert!(KNOWN.contains(&name.as_str()), "{at}: {name} is unknown to the API server");
    }
    let open = ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
    assert!(schema["type"].is_string() || open.iter().any(|name| schema[name] == true), "{at}: no type in {schema}");
    assert!(
        !(object.contains_key("properties") && object.contains_key("additionalProperties")),
        "{at}: both kinds of fields"
    );
    assert_ne!(schema["additionalProperties"], false, "{at}");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        assert_structural(field, &format!("{at}.{name}"));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = object.get(name) {
            assert_structural(inner, &format!("{at}.{name}"));
        }
    }
}

#[test]
fn every_schema_here_is_structural() {
    let all = [
        schema::<Plain>(),
        schema::<Strict>(),
        schema::<Untyped>(),
        schema::<Enums>(),
        schema::<Source>(),
        schema::<Tagged>(),
        schema::<PortName>(),
        schema::<Tree>(),
        schema::<Option<PortName>>(),
    ];
    for schema in all {
        assert_structural(&schema, "schema");
    }
}

#[test]
fn a_status_has_conditions_unless_it_declares_its_own() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Own {
        conditions: Vec<String>,
    }
    let status = |schema| {
        let mut out = Text::default();
        write_status(schema, &mut out);
        serde_json::from_str::<Value>(&out.finish()).unwrap()
    };
    let inner = status(Inner::json_schema);
    assert_structural(&inner, "status");
    assert_eq!(inner["properties"]["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(inner["properties"]["name"], json!({"type": "string"}));
    assert_eq!(inner.get("required"), None, "conditions may be there before anything else is");
    assert_eq!(status(Own::json_schema)["properties"]["conditions"]["items"], json!({"type": "string"}));
}
