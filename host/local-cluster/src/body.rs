//! Bodies of requests. Input: bytes with a content type. Output: objects, patches and options, with fields that the schema
//! does not know refused, reported or dropped as the client wants. It must not know verbs.

mod json;
mod yaml;

use serde_json::Value;

use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Method, Request};
use crate::resource::{Resource, built_in, group_version};
use crate::schema::cause;

/// The largest body, as in the API server.
const MAX_BYTES: usize = 3 * 1024 * 1024;
/// The longest name of a field manager.
const MAX_MANAGER_BYTES: usize = 128;
/// How much of a body a message shows.
const MAX_SUMMARY_BYTES: usize = 30;
/// Versions that are known, but not served any more.
const OLD_VERSIONS: [&str; 4] = ["apps/v1beta1", "apps/v1beta2", "batch/v1beta1", "policy/v1beta1"];
const STRICT: &str = "strict decoding error: ";
pub(crate) const MEDIA_TYPES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The content type of a body without its parameters.
pub(crate) fn media_type(request: &Request) -> &str {
    request.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// That a body's content type is not one of those.
pub(crate) fn unsupported(known: &[&str]) -> Status {
    let known = known.join(", ");
    let message = format!("the body of the request was in an unknown format - accepted media types include: {known}");
    Status::unsupported_media_type(message)
}

/// Whether a body is YAML; else it is JSON, which it is without a content type. Others, such as those that a form has, are refused.
fn is_yaml(request: &Request) -> Result<bool, Halt> {
    match media_type(request) {
        "application/json" | "" | "*/*" => Ok(false),
        "application/yaml" => Ok(true),
        _ => Err(unsupported(&MEDIA_TYPES).into()),
    }
}

/// Refuses a body that is too large.
fn bytes(request: &Request) -> Result<&[u8], Halt> {
    if request.body.len() > MAX_BYTES {
        let message = format!("Request entity too large: limit is {MAX_BYTES}");
        return Err(Status { code: 413, reason: "RequestEntityTooLarge", message, details: None }.into());
    }
    Ok(&request.body)
}

/// An object in JSON or YAML. Fields that are missing in it say the request's kind.
pub(crate) fn object(request: &Request, resource: &Resource, context: &Context<'_>) -> Result<Value, Halt> {
    let is_yaml = is_yaml(request)?;
    let bytes = bytes(request)?;
    check_options(request, None)?;
    let read = if is_yaml { yaml::read(bytes) } else { json::read(bytes).map(|document| (document, Vec::new())) };
    let unrecognized = |why: String| -> Halt {
        let kind = &resource.kind;
        let summary = summary(bytes);
        let message = format!("the object provided is unrecognized (must be of type {kind}): {why} ({summary})");
        Status::bad_request(message).into()
    };
    let parse = |why| unrecognized(format!("couldn't get version/kind; json parse error: {why}"));
    let (document, faults) = read.map_err(if is_yaml { &unrecognized as &dyn Fn(String) -> Halt } else { &parse })?;
    let plain = |fault: String| fault.strip_prefix(yaml::CONVERTING).map(str::to_owned).unwrap_or(fault);
    let mut faults: Vec<String> = faults.into_iter().map(plain).collect();
    faults.extend(document.duplicates.iter().map(|path| format!("duplicate field {path:?}")));
    let mut object = document.value;
    if object.is_null() {
        object = Value::Object(serde_json::Map::new());
    }
    if !object.is_object() {
        let kind = crate::patch::kind(&object);
        // Go names the type that it wants to read.
        let wanted =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(parse(format!("json: cannot unmarshal {kind} into Go value of type {wanted}")));
    }
    if resource.custom.is_some() && object["kind"].as_str().unwrap_or_default().is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(unrecognized(format!("Object 'Kind' is missing in '{text}'")));
    }
    if resource.custom.is_none() {
        complete_kind(&mut object, resource);
    }
    if let Some(version) = object["apiVersion"].as_str().filter(|version| version.matches('/').count() > 1) {
        return Err(unrecognized(format!("unexpected GroupVersion string: {version}")));
    }
    if !faults.is_empty() {
        // All faults are named at once, and then those of the schema are not looked for again.
        let unknown = resource.schema().prune(&mut object);
        faults.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        report(request, resource, &object, &faults, context)?;
    }
    Ok(object)
}

/// An object of a resource's own kind, without the fields that its schema does not know.
pub(crate) fn known_object(request: &Request, resource: &Resource, context: &Context<'_>) -> Result<Value, Halt> {
    let mut object = object(request, resource, context)?;
    check_kind(&object, resource)?;
    unknown_fields(request, resource, &mut object, context)?;
    Ok(object)
}

/// A typed endpoint knows what its body is; custom resources must say it.
fn complete_kind(object: &mut Value, resource: &Resource) {
    for (key, value) in [("apiVersion", resource.api_version()), ("kind", resource.kind.to_string())] {
        if object[key].as_str().unwrap_or_default().is_empty() {
            object[key] = value.into();
        }
    }
}

/// The beginning of a body in a message.
fn summary(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_SUMMARY_BYTES).unwrap_or(bytes);
    let more = if bytes.len() > shown.len() { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + more,
    }
}

/// A patch in JSON.
pub(crate) fn patch(request: &Request) -> Result<Value, Halt> {
    patch_document(request).map(|document| document.value)
}

fn patch_document(request: &Request) -> Result<json::Document, Halt> {
    // A strategic merge says no more than its decoder.
    let what = if media_type(request).starts_with("application/strategic") { "" } else { "error decoding patch: " };
    json::read(bytes(request)?).map_err(|error| Status::bad_request(format!("{what}{error}")).into())
}

/// A patch in JSON, with what is said of the fields that it has twice.
pub(crate) fn checked_patch(request: &Request) -> Result<(Value, Vec<String>), Halt> {
    let document = patch_document(request)?;
    let prefix = if document.value.is_array() { "json patch " } else { "" };
    let faults = document.duplicates.iter().map(|path| format!("{prefix}duplicate field {path:?}")).collect();
    Ok((document.value, faults))
}

/// A document in YAML, which JSON is too.
pub(crate) fn yaml(request: &Request) -> Result<Value, Halt> {
    is_yaml(request)?;
    applied(request).map(|(value, _)| value)
}

/// An applied object, with what a strict reading finds in it: fields that are there twice.
pub(crate) fn applied(request: &Request) -> Result<(Value, Vec<String>), Halt> {
    let read = yaml::read(bytes(request)?);
    let (document, faults) = read.map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    Ok((document.value, faults))
}

/// The options in the body of a deletion; empty without a body.
pub(crate) fn delete_options(request: &Request) -> Result<Value, Halt> {
    if request.body.is_empty() {
        return Ok(Value::Null);
    }
    let sent = if is_yaml(request)? {
        yaml(request)?
    } else {
        let why = |error| Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"));
        json::read(bytes(request)?).map_err(why)?.value
    };
    match sent["kind"].as_str() {
        None | Some("" | "DeleteOptions") => Ok(sent),
        Some(kind) => {
            let version = sent["apiVersion"].as_str().unwrap_or_default();
            Err(Status::bad_request(unregistered(kind, version)).into())
        }
    }
}

fn unregistered(kind: &str, api_version: &str) -> String {
    let scheme = "pkg/api/legacyscheme/scheme.go:30";
    format!("no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}")
}

/// Refuses an object of another kind than the path's.
pub(crate) fn check_kind(object: &Value, resource: &Resource) -> Result<(), Halt> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (kind, api_version, wanted) = (text("kind"), text("apiVersion"), resource.api_version());
    if kind == &*resource.kind && api_version == wanted {
        return Ok(());
    }
    if resource.custom.is_none() {
        check_convertible(kind, api_version, &resource.group, &resource.kind)?;
    } else if api_version == wanted {
        let message = format!("Invalid value: {kind:?}: must be {}", resource.kind);
        let cause = Cause { reason: "FieldValueInvalid", message, field: "kind".to_owned() };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Status::invalid(&resource.group, &resource.kind, name, &[cause]).into());
    }
    let message =
        format!("the API version in the data ({api_version}) does not match the expected API version ({wanted})");
    Err(Status::bad_request(message).into())
}

/// Refuses an object that cannot become one of a built-in kind, in whatever version.
pub(crate) fn check_convertible(kind: &str, api_version: &str, group: &str, wanted: &str) -> Result<(), Halt> {
    let (own_group, version) = group_version(api_version);
    let same = kind == wanted && own_group == group;
    let registered = |resource: &Resource| {
        let known = *resource.kind == *kind || *resource.list_kind == *kind;
        known && *resource.group == *own_group && *resource.version == *version
    };
    let why = if same && OLD_VERSIONS.contains(&api_version) {
        return Ok(());
    } else if !same && !built_in().values().any(|resource| registered(resource)) {
        unregistered(kind, api_version)
    } else if !same {
        let short = group.split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
        format!("converting ({version}.{kind}) to ({short}.{wanted}): unknown conversion")
    } else if !built_in().values().any(|resource| *resource.group == *group && *resource.version == *version) {
        unregistered(kind, api_version)
    } else {
        return Ok(());
    };
    let message = format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}");
    Err(Status::bad_request(message).into())
}

/// Drops what the schema does not know, and says so as `fieldValidation` wants: `Strict` refuses, `Warn` warns, `Ignore`
/// is silent.
pub(crate) fn unknown_fields(
    request: &Request,
    resource: &Resource,
    object: &mut Value,
    context: &Context<'_>,
) -> Result<(), Halt> {
    if let Some(misfit) = resource.schema().misfit(object) {
        let (kind, version) = (&resource.kind, &resource.version);
        let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {misfit}");
        return Err(Status::bad_request(message).into());
    }
    let unknown = resource.schema().prune(object);
    let faults: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    report(request, resource, object, &faults, context)
}

fn report(
    request: &Request,
    resource: &Resource,
    object: &Value,
    faults: &[String],
    context: &Context<'_>,
) -> Result<(), Halt> {
    match request.parameter("fieldValidation").unwrap_or_default() {
        "Ignore" => {}
        "Strict" if !faults.is_empty() => {
            let faults = faults.join(", ");
            let kind = object["kind"].as_str().unwrap_or_default();
            let version = group_version(object["apiVersion"].as_str().unwrap_or_default()).1;
            let wanted = &resource.kind;
            let message = format!("{kind} in version {version:?} cannot be handled as a {wanted}: {STRICT}{faults}");
            return Err(Status::bad_request(message).into());
        }
        _ => warn(faults, context),
    }
    Ok(())
}

/// Warns of faults: YAML's come as a block of lines.
fn warn(faults: &[String], context: &Context<'_>) {
    for line in faults.iter().flat_map(|fault| fault.lines()).map(str::trim) {
        if !line.is_empty() && !line.ends_with("unmarshal errors:") {
            context.warn(line);
        }
    }
}

/// What is unknown in a patched object, or twice in its patch, is refused or reported as the client wants. A refusal shows the
/// object, or of a strategic merge the patch.
pub(crate) fn patched(
    request: &Request,
    resource: &Resource,
    object: &mut Value,
    strategic: Option<&Value>,
    mut faults: Vec<String>,
    context: &Context<'_>,
) -> Result<(), Halt> {
    let shown = strategic.map_or_else(|| object.to_string(), crate::patch::go);
    if let Some(misfit) = resource.schema().misfit(object) {
        let misfit = strategic.and_then(|_| converted(&misfit)).unwrap_or(misfit);
        let message = format!("Invalid value: {shown:?}: {misfit}");
        let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
        return Err(Status::invalid("", "", "", &[cause]).into());
    }
    faults.extend(resource.schema().prune(object).iter().map(|path| format!("unknown field {path:?}")));
    match request.parameter("fieldValidation").unwrap_or_default() {
        "Ignore" => {}
        "Strict" if !faults.is_empty() => {
            let message = format!("Invalid value: {shown:?}: {STRICT}{}", faults.join(", "));
            let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".to_owned() };
            return Err(Status::invalid("", "", "", &[cause]).into());
        }
        _ => warn(&faults, context),
    }
    Ok(())
}

/// A decoder's sentence about a value of the wrong type as Go's converter says it, which knows less.
fn converted(misfit: &str) -> Option<String> {
    let (is, wanted) = misfit.strip_prefix("json: cannot unmarshal ")?.split_once(" into Go ")?;
    let (is, (_, wanted)) = (is.split(' ').next()?, wanted.rsplit_once(" of type ")?);
    let is = match is {
        "array" => "slice",
        "object" => "map",
        other => other,
    };
    Some(match wanted {
        "string" if is == "number" => "cannot convert int64 to string".to_owned(),
        _ if is == "number" && wanted.starts_with("int") => format!("cannot convert float64 to {wanted}"),
        _ if wanted.starts_with("map[") => format!("cannot restore map from {is}"),
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {is}"),
        _ if wanted.contains('.') => format!("cannot restore struct from: {is}"),
        _ => format!("unrecognized type: {wanted}"),
    })
}

/// What an applied object has twice is refused or reported as the client wants.
pub(crate) fn applied_faults(request: &Request, faults: &[String], context: &Context<'_>) -> Result<(), Halt> {
    match request.parameter("fieldValidation").unwrap_or_default() {
        "Ignore" => {}
        "Strict" if !faults.is_empty() => {
            let message = format!("error strict decoding YAML: {}", faults.join(", "));
            return Err(Status::bad_request(message).into());
        }
        _ => warn(faults, context),
    }
    Ok(())
}

/// The values of the parameter `dryRun`.
pub(crate) fn dry_runs(request: &Request) -> Vec<&str> {
    request.query.iter().filter(|(key, _)| key == "dryRun").map(|(_, value)| value.as_str()).collect()
}

pub(crate) fn wrong_dry_run(values: &[&str]) -> Option<Cause> {
    let wrong = values.iter().any(|value| *value != "All");
    wrong.then(|| cause::not_supported("dryRun", &values.into(), ["All"]))
}

/// Checks the query parameters of a write. `applies` says of a patch whether it is one of server-side apply.
pub(crate) fn check_options(request: &Request, applies: Option<bool>) -> Result<(), Halt> {
    let cause = |reason, message: String, field: &str| Cause { reason, message, field: field.to_owned() };
    let manager = request.parameter("fieldManager").unwrap_or_default();
    let mut causes = Vec::new();
    if applies == Some(true) && manager.is_empty() {
        let message = "Required value: is required for apply patch".to_owned();
        causes.push(cause("FieldValueRequired", message, "fieldManager"));
    }
    if applies == Some(false) && request.parameter("force").is_some_and(|force| !force.is_empty()) {
        let message = "Forbidden: may not be specified for non-apply patch".to_owned();
        causes.push(cause("FieldValueForbidden", message, "force"));
    }
    if manager.len() > MAX_MANAGER_BYTES {
        let message = format!("Too long: may not be more than {MAX_MANAGER_BYTES} bytes");
        causes.push(cause("FieldValueTooLong", message, "fieldManager"));
    }
    for (at, found) in manager.char_indices().filter(|(_, found)| found.is_control()) {
        let message =
            format!("Invalid value: {manager:?}: invalid character U+{:04X} (at position {at})", u32::from(found));
        causes.push(cause("FieldValueInvalid", message, "fieldManager"));
    }
    causes.extend(wrong_dry_run(&dry_runs(request)));
    let validation = request.parameter("fieldValidation").unwrap_or_default();
    if !matches!(validation, "" | "Ignore" | "Strict" | "Warn") {
        let known = r#""", "Ignore", "Strict", "Warn""#;
        let message = format!("Unsupported value: {validation:?}: supported values: {known}");
        causes.push(cause("FieldValueNotSupported", message, "fieldValidation"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let kind = match request.method {
        Method::Post => "CreateOptions",
        Method::Put => "UpdateOptions",
        Method::Patch => "PatchOptions",
        _ => "DeleteOptions",
    };
    Err(Status::invalid("meta.k8s.io", kind, "", &causes).into())
}

#[cfg(test)]
mod tests;
