//! Whether a definition is right. Input: its object, and the one before it. Output: causes in the words of the API server. It
//! must not know what a right one serves.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field::{array, holds, storage_version, text, truth};
use super::{open_api, structural};
use crate::format::is_uri;
use crate::halt::Cause;
use crate::published;
use crate::schema::path::Path;
use crate::schema::{Schema, cause, dns_1035_label};

const ANNOTATION: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// How many fields of a version can be selected by.
const MAX_SELECTABLE: usize = 8;

/// What a schema may say at its root beside a status subresource, as Go names it.
const ROOT_WORDS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Whether a group of Kubernetes has the approval that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    Approved,
    Bypassed,
    Missing,
    Invalid,
}

/// What is wrong with a definition. The metadata is checked with that of all objects, besides the name.
pub(crate) fn causes(definition: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &definition["spec"];
    let name = text(&definition["metadata"], "name");
    let names = &spec["names"];
    if old.is_none() && name != format!("{}.{}", text(names, "plural"), text(spec, "group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(cause::invalid("metadata.name", &name.into(), detail));
    }
    check_spec(spec, &mut causes);
    if let Some(old) = old {
        immutable(spec, &old["spec"], holds(old, "Established"), &mut causes);
    }
    stored_versions(definition, &mut causes);
    approved(definition, old, &mut causes);
    if spec["preserveUnknownFields"] == true && old.is_none_or(|old| old["spec"]["preserveUnknownFields"] != true) {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(cause::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    causes
}

fn check_spec(spec: &Value, causes: &mut Vec<Cause>) {
    let group = text(spec, "group");
    if group.is_empty() {
        causes.push(cause::required("spec.group", ""));
    } else if let Some(wrong) = not_a_subdomain(group) {
        causes.push(cause::invalid("spec.group", &group.into(), wrong));
    } else if !group.contains('.') {
        causes.push(cause::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    match text(spec, "scope") {
        "" => causes.push(cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => causes.push(cause::not_supported("spec.scope", &other.into(), ["Cluster", "Namespaced"])),
    }
    let versions = array(spec, "versions");
    for (at, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            causes.push(cause::required(format!("spec.versions[{at}].schema.openAPIV3Schema"), ""));
        }
    }
    let shared = shared_schema(versions);
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        check_version(version, &path, shared.is_some(), causes);
        check_parts(version, &path, |key| !is_shared(versions, key), causes);
    }
    let distinct: BTreeSet<&str> = versions.iter().map(|version| text(version, "name")).collect();
    if distinct.len() != versions.len() {
        causes.push(cause::invalid("spec.versions", &spec["versions"], "must contain unique version names"));
    }
    if versions.iter().filter(|version| truth(version, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(cause::invalid("spec.versions", &spec["versions"], detail));
    }
    check_names(&spec["names"], causes);
    if let Some(schema) = shared {
        let status = versions.iter().any(|version| !version["subresources"]["status"].is_null());
        check_root(schema, status, "spec.validation.openAPIV3Schema", causes);
    }
    if let Some(first) = versions.first() {
        check_parts(first, "spec", |key| is_shared(versions, key), causes);
    }
    check_conversion(&spec["conversion"], causes);
}

/// The schema that all versions have in common: the API server moves it out of them and names it there.
fn shared_schema(versions: &[Value]) -> Option<&Value> {
    let schema = &versions.first()?["schema"]["openAPIV3Schema"];
    Some(schema).filter(|schema| is_shared(versions, "schema") && schema.is_object())
}

/// Whether all versions say the same of something.
fn is_shared(versions: &[Value], key: &str) -> bool {
    versions.windows(2).all(|pair| pair[0][key] == pair[1][key])
}

fn check_root(schema: &Value, status: bool, path: &str, causes: &mut Vec<Cause>) {
    if status {
        narrow_root(schema, path, causes);
    }
    check_schema(schema, path, causes);
}

/// What keeps text from being a DNS subdomain.
fn not_a_subdomain(text: &str) -> Option<&'static str> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let right =
        |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(inner);
    if text.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    (!text.split('.').all(right)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
}

fn label(path: String, value: &str, causes: &mut Vec<Cause>) {
    let wrong = dns_1035_label(value);
    if !wrong.is_empty() {
        causes.push(cause::invalid(path, &value.into(), &wrong.join(",")));
    }
}

fn check_names(names: &Value, causes: &mut Vec<Cause>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            causes.push(cause::required(format!("spec.names.{key}"), ""));
        }
    }
    for key in ["plural", "singular"] {
        if !text(names, key).is_empty() {
            label(format!("spec.names.{key}"), text(names, key), causes);
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let wrong = dns_1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            causes.push(cause::invalid(format!("spec.names.{key}"), &name.into(), &detail));
        }
    }
    for key in ["shortNames", "categories"] {
        for (at, name) in array(names, key).iter().enumerate() {
            label(format!("spec.names.{key}[{at}]"), name.as_str().unwrap_or_default(), causes);
        }
    }
    if !text(names, "kind").is_empty() && names["kind"] == names["listKind"] {
        let detail = "kind and listKind may not be the same";
        causes.push(cause::invalid("spec.names.listKind", &names["listKind"], detail));
    }
}

fn check_version(version: &Value, path: &str, shared: bool, causes: &mut Vec<Cause>) {
    label(format!("{path}.name"), text(version, "name"), causes);
    if let Some(warning) = version["deprecationWarning"].as_str() {
        let detail = match warning {
            _ if !truth(version, "deprecated") => Some("can only be set for deprecated versions"),
            "" => Some("must not be an empty string"),
            text if text.len() > 256 => Some("must be <= 256 characters long"),
            _ => None,
        };
        if let Some(detail) = detail {
            causes.push(cause::invalid(format!("{path}.deprecationWarning"), &warning.into(), detail));
        }
    }
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_object() && !shared {
        let status = !version["subresources"]["status"].is_null();
        check_root(schema, status, &format!("{path}.schema.openAPIV3Schema"), causes);
    }
}

/// What a version says besides its schema.
fn check_parts(version: &Value, path: &str, wanted: impl Fn(&str) -> bool, causes: &mut Vec<Cause>) {
    if wanted("subresources") {
        check_scale(&version["subresources"]["scale"], &format!("{path}.subresources"), causes);
    }
    let columns = array(version, "additionalPrinterColumns").iter().filter(|_| wanted("additionalPrinterColumns"));
    for (at, column) in columns.enumerate() {
        check_column(column, &format!("{path}.additionalPrinterColumns[{at}]"), causes);
    }
    if wanted("selectableFields") {
        let schema = &version["schema"]["openAPIV3Schema"];
        check_selectable(array(version, "selectableFields"), schema, &format!("{path}.selectableFields"), causes);
    }
}

/// With a status of its own, a schema says at its root only what does not bind the status to the rest.
fn narrow_root(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let allowed = |word: &str| {
        let name = word.strip_prefix("x-kubernetes-").unwrap_or(word).replace('-', "");
        ROOT_WORDS.iter().any(|known| known.strip_prefix('X').unwrap_or(known).eq_ignore_ascii_case(&name))
    };
    let mut words = schema.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    if words.any(|(word, _)| !allowed(word)) {
        let words = ROOT_WORDS.join(" ");
        let detail =
            format!("only [{words}] fields are allowed at the root of the schema if the status subresource is enabled");
        causes.push(cause::invalid(path, schema, &detail));
    }
}

fn check_schema(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if truth(schema, "nullable") {
        causes.push(cause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    // Where words are not known, nothing is said of the form.
    let odd = |cause: &Cause| cause.message.ends_with("is not supported") || cause.message.contains("and not an array");
    if open_api::causes(schema, path, false).iter().any(odd) {
        return causes.extend(open_api::causes(schema, path, false));
    }
    let mut found = structural::causes(schema, path);
    if found.is_empty() {
        defaults(schema, &Path::Base(path), &mut found);
    }
    let sound = found.is_empty();
    causes.extend(found);
    causes.extend(open_api::causes(schema, path, sound));
}

/// Defaults that their own schema would refuse or prune.
fn defaults(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let own = Schema::part(schema, published::metadata());
        let path = path.field("default").to_string();
        let mut pruned = default.clone();
        if !own.prune(&mut pruned).is_empty() {
            causes.push(cause::invalid(&path, default, "must not have unknown fields"));
        }
        causes.extend(own.validate_value(default, &path));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        defaults(items, &path.field("items"), causes);
    }
    let properties = path.field("properties");
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        defaults(property, &properties.key(name), causes);
    }
}

fn check_scale(scale: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !scale.is_object() {
        return;
    }
    let fields = [
        ("specReplicasPath", &[".spec."][..], true, "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."][..], true, "should be a json path under .status"),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            false,
            "should be a json path under either .spec or .status",
        ),
    ];
    for (key, roots, required, detail) in fields {
        let (value, path) = (text(scale, key), format!("{path}.scale.{key}"));
        if value.is_empty() {
            if required {
                causes.push(cause::required(path, ""));
            }
        } else if !value.starts_with('.') {
            causes.push(cause::invalid(path, &value.into(), "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            causes.push(cause::invalid(path, &value.into(), detail));
        }
    }
}

fn check_column(column: &Value, path: &str, causes: &mut Vec<Cause>) {
    let one_of = |words: &[&str]| format!("must be one of {}", words.join(","));
    if text(column, "name").is_empty() {
        causes.push(cause::required(format!("{path}.name"), ""));
    }
    match text(column, "type") {
        "" => causes.push(cause::required(format!("{path}.type"), &one_of(&COLUMN_TYPES))),
        kind if COLUMN_TYPES.contains(&kind) => {}
        kind => causes.push(cause::invalid(format!("{path}.type"), &kind.into(), &one_of(&COLUMN_TYPES))),
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        causes.push(cause::invalid(format!("{path}.format"), &format.into(), &one_of(&COLUMN_FORMATS)));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        causes.push(cause::required(format!("{path}.JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        causes.push(cause::invalid(format!("{path}.JSONPath"), &json_path.into(), detail));
    }
}

fn check_selectable(fields: &[Value], schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (at, field) in fields.iter().enumerate() {
        let (value, path) = (text(field, "jsonPath"), format!("{path}[{at}].jsonPath"));
        if value.is_empty() {
            causes.push(cause::required(path, ""));
            continue;
        }
        let mut found = value.strip_prefix('.').map(|_| schema);
        for name in value.split('.').skip(1) {
            found = found.and_then(|schema| schema["properties"].get(name));
        }
        if !value.starts_with(['.', '[']) {
            let detail = format!("is an invalid path: expected [ or . but got: {value}");
            causes.push(cause::invalid(path, &value.into(), &detail));
            continue;
        }
        let detail = match found.map(|schema| text(schema, "type")) {
            None => "is an invalid path: does not refer to a valid field",
            Some(_) if value.starts_with(".metadata") => "must not point to fields in metadata",
            Some("string" | "boolean" | "integer") if !seen.insert(value) => {
                causes.push(cause::duplicate(path, &value.into()));
                continue;
            }
            Some("string" | "boolean" | "integer") => continue,
            Some(_) => {
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            }
        };
        causes.push(cause::invalid(path, &value.into(), detail));
    }
    if seen.len() > MAX_SELECTABLE {
        causes.push(cause::too_many(path, seen.len(), MAX_SELECTABLE as u64));
    }
}

fn check_conversion(conversion: &Value, causes: &mut Vec<Cause>) {
    if conversion.is_null() {
        return;
    }
    let webhook = &conversion["webhook"];
    match text(conversion, "strategy") {
        "" => return causes.push(cause::required("spec.conversion.strategy", "")),
        "None" => {
            if !webhook["clientConfig"].is_null() {
                let detail = "should not be set when strategy is not set to Webhook";
                causes.push(cause::forbidden("spec.conversion.webhookClientConfig", detail));
            }
            return;
        }
        "Webhook" => {}
        other => {
            return causes.push(cause::not_supported("spec.conversion.strategy", &other.into(), ["None", "Webhook"]));
        }
    }
    let client = &webhook["clientConfig"];
    if client.is_null() {
        let detail = "required when strategy is set to Webhook";
        causes.push(cause::required("spec.conversion.webhookClientConfig", detail));
    } else if client["url"].is_null() == client["service"].is_null() {
        let detail = "exactly one of url or service is required";
        causes.push(cause::required("spec.conversion.webhookClientConfig", detail));
    }
    let versions = array(webhook, "conversionReviewVersions");
    if versions.is_empty() {
        causes.push(cause::required("spec.conversion.conversionReviewVersions", ""));
    } else if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        let versions = &webhook["conversionReviewVersions"];
        causes.push(cause::invalid("spec.conversion.conversionReviewVersions", versions, detail));
    }
}

fn immutable(spec: &Value, old: &Value, established: bool, causes: &mut Vec<Cause>) {
    let fields = [("/scope", established), ("/names/kind", established), ("/group", true), ("/names/plural", true)];
    for (pointer, fixed) in fields {
        let (new, old) = (spec.pointer(pointer), old.pointer(pointer));
        if fixed && new != old {
            let path = format!("spec{}", pointer.replace('/', "."));
            causes.push(cause::invalid(path, new.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

fn stored_versions(definition: &Value, causes: &mut Vec<Cause>) {
    let all = &definition["status"]["storedVersions"];
    let stored = array(&definition["status"], "storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        return causes.push(cause::invalid("status.storedVersions", &Value::Null, detail));
    }
    if let Some(version) = storage_version(definition).filter(|version| !stored.iter().any(|known| known == version)) {
        let detail = format!("must have the storage version {version}");
        causes.push(cause::invalid("status.storedVersions", all, &detail));
    }
    let versions = array(&definition["spec"], "versions");
    for (at, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let shown = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {shown} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {shown} and removes {shown} from status.storedVersions"
            );
            causes.push(cause::invalid(format!("status.storedVersions[{at}]"), name, &detail));
        }
    }
}

/// The approval of a definition whose group needs one, and the sentence about it.
pub(super) fn approval(definition: &Value) -> Option<(Approval, String)> {
    let group = text(&definition["spec"], "group");
    let within = |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if !within("k8s.io") && !within("kubernetes.io") {
        return None;
    }
    let annotation = text(&definition["metadata"]["annotations"], ANNOTATION);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let has_host = annotation.split_once("://").is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with('/'));
    Some(if annotation.is_empty() {
        (Approval::Missing, format!("protected groups must have approval annotation {ANNOTATION:?}, {see}"))
    } else if annotation.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {annotation:?}"))
    } else if has_host && is_uri(annotation) {
        (Approval::Approved, format!("approved in {annotation}"))
    } else {
        let what = "with either a URL or a reason starting with \"unapproved\"";
        (Approval::Invalid, format!("protected groups must have approval annotation {ANNOTATION:?} {what}, {see}"))
    })
}

fn approved(definition: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let Some((state, reason)) = approval(definition) else { return };
    if old.and_then(approval).is_some_and(|(before, _)| before == state) {
        return;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => causes.push(cause::required(path, &reason)),
        Approval::Invalid => {
            causes.push(cause::invalid(path, &definition["metadata"]["annotations"][ANNOTATION], &reason));
        }
    }
}
