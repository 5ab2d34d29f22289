//! get, list and watch. Input: a request. Output: objects as they are stored. It must not change anything.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::output;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Body, Request, Response};
use crate::selector::{Fields, Labels};
use crate::store::{Name, Object};
use crate::watch::{Watch, first_bookmark, selects};
use crate::{Cluster, strategy};

/// Base64 as Go reads it: the bits behind the last byte do not matter.
const BASE64_URL_SAFE_NO_PAD: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);
/// How long a watch lasts that does not say: the API server's default is between 30 and 60 minutes.
const WATCH_LASTS: SignedDuration = SignedDuration::from_mins(45);

pub(super) fn get(
    cluster: &Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let object = cluster.store.get(&attributes.resource.storage, &attributes.namespace, &attributes.name);
    let object = object.ok_or_else(|| attributes.not_found())?;
    output::one(cluster, output, attributes, 200, object, context)
}

/// The selectors of a list, a watch or a deletion of a collection.
pub(super) fn selectors(request: &Request, attributes: &Attributes) -> Result<(Labels, Fields), Halt> {
    let labels = Labels::parse(request.parameter("labelSelector").unwrap_or_default());
    let labels = labels.map_err(Status::bad_request)?;
    let fields = Fields::parse(request.parameter("fieldSelector").unwrap_or_default());
    let mut fields = fields.map_err(Status::bad_request)?;
    for (path, _, _) in &mut fields.0 {
        let place = strategy::selectable(&attributes.resource, path).map_err(Status::bad_request)?;
        *path = place.into();
    }
    Ok((labels, fields))
}

/// A resource version in a parameter. Empty and absent are none; `0` is any.
fn revision(request: &Request, name: &str, verb: &str) -> Result<Option<u64>, Halt> {
    match request.parameter(name) {
        None | Some("") => Ok(None),
        Some(text) => {
            let why = format!("{name}: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
            // A watch passes the parser's error on as it is.
            let invalid = |_| match verb {
                "watch" => Status::unforeseen(why),
                _ => Status::bad_request(format!("invalid resource version: {why}")),
            };
            Ok(Some(text.parse().map_err(invalid)?))
        }
    }
}

/// Where the next page begins, as clients carry it.
fn token(revision: u64, last: &Object) -> String {
    let value =
        json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{}/{}", last.namespace(), last.name())});
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

fn page(token: &str) -> Result<(u64, Name), Halt> {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
    if let Some(first) = decoded.as_ref().and_then(|bytes| bytes.first()).filter(|first| **first != b'{') {
        let why = format!("invalid character {:?} looking for beginning of value", char::from(*first));
        return Err(Status::bad_request(format!("invalid continue token: continue key is not valid: {why}")).into());
    }
    let read = || {
        let value: Value = serde_json::from_slice(&decoded?).ok()?;
        let (namespace, name) = value["start"].as_str()?.split_once('/')?;
        Some((value["rv"].as_u64()?, (namespace.into(), name.into())))
    };
    read().ok_or_else(|| Status::bad_request("continue key is not valid: illegal base64 data").into())
}

/// Refuses a version that is not there yet.
fn not_from_the_future(cluster: &Cluster, wanted: u64) -> Result<(), Halt> {
    let current = cluster.store.revision();
    if wanted <= current {
        return Ok(());
    }
    let message = format!("Too large resource version: {wanted}, current: {current}");
    let mut status = Status::bad_request(message);
    (status.code, status.reason) = (504, "Timeout");
    status.details = Some(
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}),
    );
    Err(status.into())
}

pub(super) fn list(
    cluster: &Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let (labels, fields) = selectors(request, attributes)?;
    let wanted = revision(request, "resourceVersion", "list")?;
    let matching = request.parameter("resourceVersionMatch").filter(|text| !text.is_empty());
    check_match(request, wanted, matching)?;
    not_from_the_future(cluster, wanted.unwrap_or(0))?;
    let exact = matching == Some("Exact");
    if exact && wanted.is_some_and(|wanted| wanted != cluster.store.revision() && wanted <= cluster.store.compacted()) {
        let message = "The provided resource version is too old to be listed. Start a new list.";
        return Err(Status::expired(message).into());
    }
    let limit = number(request, "limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
    let (revision, from) = match request.parameter("continue").filter(|text| !text.is_empty()) {
        Some(token) => page(token).map(|(revision, name)| (revision, Some(name)))?,
        None if exact => (wanted.unwrap_or(0), None),
        None => (cluster.store.revision(), None),
    };
    if revision < cluster.store.compacted() {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                       without the continue parameter, or use the continue token in this response to retrieve the remainder of the results.";
        return Err(Status::expired(message).into());
    }
    let namespace = Some(attributes.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let all = at_revision(cluster, attributes, namespace, from.as_ref(), revision);
    let mut found = all.into_iter().filter(|object| selects(object, &labels, &fields));
    let objects: Vec<Arc<Object>> =
        if limit == 0 { found.by_ref().collect() } else { found.by_ref().take(limit).collect() };
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let rest = found.count();
    if let (true, Some(last)) = (rest > 0, objects.last()) {
        metadata["continue"] = token(revision, last).into();
        if labels.0.is_empty() && fields.0.is_empty() {
            metadata["remainingItemCount"] = rest.into();
        }
    }
    output::list(cluster, output, &attributes.resource, &objects, metadata, context)
}

/// Refuses a combination of options.
fn refused(reason: &'static str, message: String) -> Halt {
    let cause = Cause { reason, message, field: "resourceVersionMatch".to_owned() };
    Status::invalid("meta.k8s.io", "ListOptions", "", &[cause]).into()
}

/// A number in a parameter.
fn number(request: &Request, name: &str) -> Result<Option<i64>, Halt> {
    let text = request.parameter(name).filter(|text| !text.is_empty());
    let wrong = |text| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    Ok(text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?)
}

fn check_match(request: &Request, wanted: Option<u64>, matching: Option<&str>) -> Result<(), Halt> {
    let message = match (matching, wanted) {
        (Some("Exact" | "NotOlderThan"), None) => {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        }
        (Some("Exact"), Some(0)) => "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        (Some(_), _) if request.parameter("continue").is_some_and(|token| !token.is_empty()) => {
            "resourceVersionMatch is forbidden when continue is provided"
        }
        (Some("Exact" | "NotOlderThan") | None, _) => return Ok(()),
        (Some(other), _) => {
            let known = r#""Exact", "NotOlderThan", """#;
            let message = format!("Unsupported value: {other:?}: supported values: {known}");
            return Err(refused("FieldValueNotSupported", message));
        }
    };
    Err(refused("FieldValueForbidden", format!("Forbidden: {message}")))
}

/// The objects as they were at a version that the log still reaches.
fn at_revision(
    cluster: &Cluster,
    attributes: &Attributes,
    namespace: Option<&str>,
    from: Option<&Name>,
    revision: u64,
) -> Vec<Arc<Object>> {
    let storage = &attributes.resource.storage;
    let now = cluster.store.list(storage, namespace, from);
    if revision == cluster.store.revision() {
        return now.cloned().collect();
    }
    let mut objects: std::collections::BTreeMap<Name, Arc<Object>> =
        now.map(|object| ((object.namespace().into(), object.name().into()), object.clone())).collect();
    let changes: Vec<_> = cluster.store.changes(revision).filter(|change| change.storage == *storage).collect();
    for change in changes.into_iter().rev() {
        let name = change.object.key();
        let outside =
            namespace.is_some_and(|namespace| *namespace != *name.0) || from.is_some_and(|from| name <= *from);
        match &change.previous {
            _ if outside => {}
            Some(previous) => drop(objects.insert(name, previous.clone())),
            None => drop(objects.remove(&name)),
        }
    }
    objects.into_values().collect()
}

pub(super) fn watch(
    cluster: &Cluster,
    request: &Request,
    attributes: &Attributes,
    now: Timestamp,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let (labels, fields) = selectors(request, attributes)?;
    let truth = |name: &str| request.parameter(name).is_some_and(|value| value == "true" || value == "1");
    let wanted = revision(request, "resourceVersion", "watch")?;
    let sends_initial = check_initial(request)?;
    // A watch may begin with a change that is still to come; what is there at a version must have been there.
    if sends_initial == Some(true) {
        not_from_the_future(cluster, wanted.unwrap_or(0))?;
    }
    let seconds = number(request, "timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let lasts = seconds.map_or(WATCH_LASTS, SignedDuration::from_secs);
    let mut watch = Watch {
        resource: attributes.resource.clone(),
        namespace: Some(attributes.namespace.as_str()).filter(|namespace| !namespace.is_empty()).map(Into::into),
        labels,
        fields,
        output,
        bookmarks: truth("allowWatchBookmarks"),
        initial: VecDeque::new(),
        marks_end: sends_initial == Some(true) && truth("allowWatchBookmarks"),
        position: cluster.store.revision(),
        ends_at: now + lasts,
        next_bookmark: first_bookmark(now),
        ended: false,
        has_columns: false,
    };
    match wanted {
        Some(wanted) if wanted > 0 && sends_initial != Some(true) => watch.position = wanted,
        // Without a version a watch begins with what is there.
        _ if sends_initial != Some(false) => {
            let all = cluster.store.list(&attributes.resource.storage, watch.namespace.as_deref(), None);
            watch.initial = all.filter(|object| selects(object, &watch.labels, &watch.fields)).cloned().collect();
        }
        _ => {}
    }
    Ok(Response { body: Body::Watch(Box::new(watch)), ..Response::json(200, Value::Null) })
}

fn check_initial(request: &Request) -> Result<Option<bool>, Halt> {
    let sends = request.parameter("sendInitialEvents").filter(|text| !text.is_empty()).map(|text| text == "true");
    let matching = request.parameter("resourceVersionMatch").filter(|text| !text.is_empty());
    let message = match (sends, matching) {
        (None, None) => return Ok(None),
        (None, Some(_)) => "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        (Some(_), Some("NotOlderThan")) => return Ok(sends),
        (Some(_), _) => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    };
    Err(refused("FieldValueForbidden", format!("Forbidden: {message}")))
}
