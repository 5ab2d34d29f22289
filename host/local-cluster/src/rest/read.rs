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
use crate::schema::cause;
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
    not_from_the_future(cluster, revision(request, "resourceVersion", "get")?.unwrap_or(0))?;
    let object = cluster.store.get(&attributes.resource.storage, &attributes.namespace, &attributes.name);
    let object = object.ok_or_else(|| attributes.not_found())?;
    output::one(cluster, output, attributes, 200, object, context)
}

/// The selectors of a list, a watch or a deletion of a collection.
fn selectors(request: &Request, attributes: &Attributes) -> Result<(Labels, Fields), Halt> {
    let labels = Labels::parse(request.parameter("labelSelector").unwrap_or_default());
    let labels = labels.and_then(|labels| check_labels(&labels).map(|()| labels)).map_err(Status::bad_request)?;
    let fields = Fields::parse(request.parameter("fieldSelector").unwrap_or_default());
    let mut fields = fields.map_err(Status::bad_request)?;
    for (path, _, _) in &mut fields.0 {
        let place = strategy::selectable(&attributes.resource, path).map_err(Status::bad_request)?;
        *path = place.into();
    }
    Ok((labels, fields))
}

/// Refuses what is no key or value of a label.
fn check_labels(labels: &Labels) -> Result<(), String> {
    for requirement in &labels.0 {
        let (key, values) = requirement.parts();
        let named = std::iter::once(("<nil>".to_owned(), key, strategy::qualified(key)));
        let values = values.iter().enumerate();
        let values = values.map(|(at, value)| (format!("values[{at}][{key}]"), &**value, strategy::label_value(value)));
        if let Some((place, text, wrong)) = named.chain(values).find(|(.., wrong)| !wrong.is_empty()) {
            return Err(format!("unable to parse requirement: {place}: Invalid value: {text:?}: {}", wrong.join("; ")));
        }
    }
    Ok(())
}

/// A resource version in a parameter. Empty and absent are none; `0` is any.
fn revision(request: &Request, name: &str, verb: &str) -> Result<Option<u64>, Halt> {
    match request.parameter(name) {
        None | Some("") => Ok(None),
        Some(text) => {
            let why = format!("{name}: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
            // Only a list makes a refusal of the parser's error.
            let invalid = |_| match verb {
                "watch" | "get" => Status::unforeseen(why),
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
    let read = || {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| ": illegal base64 data".to_owned())?;
        if let Some(first) = decoded.first().filter(|first| **first != b'{') {
            return Err(format!(": invalid character {:?} looking for beginning of value", char::from(*first)));
        }
        let value: Value = serde_json::from_slice(&decoded).map_err(|_| ": unexpected end of JSON input".to_owned())?;
        let (version, revision) = (value["v"].as_str().unwrap_or_default(), value["rv"].as_u64().unwrap_or(0));
        let start = value["start"].as_str().unwrap_or_default();
        let place = start.split_once('/').map(|(namespace, name)| (namespace.into(), name.into()));
        match place {
            _ if version != "meta.k8s.io/v1" => {
                Err(format!(": server does not recognize this encoded version {version}"))
            }
            _ if revision == 0 => Err(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned()),
            _ if start.is_empty() => Err(": encoded start key empty (version meta.k8s.io/v1)".to_owned()),
            Some(place) => Ok((revision, place)),
            None => Err(format!(": {start}")),
        }
    };
    let wrong = |why| Status::bad_request(format!("invalid continue token: continue key is not valid{why}")).into();
    read().map_err(wrong)
}

/// Refuses a version that is not there yet.
fn not_from_the_future(cluster: &Cluster, wanted: u64) -> Result<(), Halt> {
    let current = cluster.store.revision();
    if wanted <= current {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
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
    let (objects, metadata) = find(cluster, request, attributes)?;
    output::list(cluster, output, &attributes.resource, &objects, metadata, context)
}

/// The objects that a list selects, with the list's metadata.
pub(super) fn find(
    cluster: &Cluster,
    request: &Request,
    attributes: &Attributes,
) -> Result<(Vec<Arc<Object>>, Value), Halt> {
    let (labels, fields) = selectors(request, attributes)?;
    number(request, "timeoutSeconds")?;
    let limit = number(request, "limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
    check_options(request, false)?;
    let wanted = revision(request, "resourceVersion", "list")?;
    not_from_the_future(cluster, wanted.unwrap_or(0))?;
    let page_token = request.parameter("continue").filter(|text| !text.is_empty());
    if page_token.is_some() && wanted.is_some_and(|wanted| wanted > 0) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(Status::bad_request(message).into());
    }
    let matching = request.parameter("resourceVersionMatch").unwrap_or_default();
    // The first page of a list at a version is of that version, unless the client takes a later one.
    let exact = matching == "Exact" || matching.is_empty() && limit > 0 && wanted.is_some_and(|wanted| wanted > 0);
    // What is there at any version comes from a cache, whole.
    let limit = if wanted == Some(0) { 0 } else { limit };
    if exact && wanted.is_some_and(|wanted| wanted != cluster.store.revision() && wanted <= cluster.store.compacted()) {
        let message = "The provided resource version is too old to be listed. Start a new list.";
        return Err(Status::expired(message).into());
    }
    let (revision, from) = match page_token {
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
    let mut rest = all.into_iter();
    let mut found = rest.by_ref().filter(|object| selects(object, &labels, &fields));
    let objects: Vec<Arc<Object>> =
        if limit == 0 { found.by_ref().collect() } else { found.by_ref().take(limit).collect() };
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    // What is behind the page counts, selected or not; one name is looked for alone.
    let one = fields.0.iter().any(|(path, equal, _)| *equal && **path == *"metadata.name");
    let rest = if one { 0 } else { rest.count() };
    if let (true, Some(last)) = (rest > 0, objects.last()) {
        metadata["continue"] = token(revision, last).into();
        if labels.0.is_empty() && fields.0.is_empty() {
            metadata["remainingItemCount"] = rest.into();
        }
    }
    Ok((objects, metadata))
}

/// A number in a parameter.
fn number(request: &Request, name: &str) -> Result<Option<i64>, Halt> {
    let text = request.parameter(name).filter(|text| !text.is_empty());
    let wrong = |text| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    Ok(text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?)
}

/// Whether a client sent an option that is a truth; anything but `false` and `0` is.
fn truth(request: &Request, name: &str) -> Option<bool> {
    request.parameter(name).map(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
}

/// Refuses combinations of the options of a list or a watch.
fn check_options(request: &Request, watches: bool) -> Result<(), Halt> {
    let text = |name: &str| request.parameter(name).unwrap_or_default();
    let (matching, has_version) = (text("resourceVersionMatch"), !text("resourceVersion").is_empty());
    let sends_initial = request.parameter("sendInitialEvents").is_some();
    let fits = matching == "NotOlderThan" || !watches && matching == "Exact";
    let version_match = "resourceVersionMatch";
    let rules = [
        (
            watches && sends_initial && matching != "NotOlderThan",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            watches && !sends_initial && !matching.is_empty(),
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            !watches && !matching.is_empty() && !has_version,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            !watches && !matching.is_empty() && !text("continue").is_empty(),
            "resourceVersionMatch is forbidden when continue is provided",
        ),
    ];
    let forbidden = |field: &str, why: &str| cause::forbidden(field, why);
    let mut causes: Vec<Cause> =
        rules.iter().filter(|(broken, _)| *broken).map(|(_, why)| forbidden(version_match, why)).collect();
    if !matching.is_empty() && !fits {
        let known: &[&str] = if watches { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
        causes.push(cause::not_supported(version_match, &matching.into(), known.iter().copied()));
    }
    // A watch from any version is one with initial events.
    let is_implied = !sends_initial && matches!(text("resourceVersion"), "" | "0");
    if watches && (!matching.is_empty() || is_implied) && !text("continue").is_empty() {
        causes.push(forbidden(version_match, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if !watches && matching == "Exact" && text("resourceVersion") == "0" {
        causes.push(forbidden(version_match, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
    if !watches && sends_initial {
        causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", &causes).into()) }
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
    let seconds = number(request, "timeoutSeconds")?.filter(|seconds| *seconds > 0);
    check_options(request, true)?;
    let wanted = revision(request, "resourceVersion", "watch")?;
    let sends_initial = truth(request, "sendInitialEvents");
    let bookmarks = truth(request, "allowWatchBookmarks") == Some(true);
    // A watch may begin with a change that is still to come; what is there at a version must have been there.
    if sends_initial == Some(true) {
        not_from_the_future(cluster, wanted.unwrap_or(0))?;
    }
    let lasts = seconds.map_or(WATCH_LASTS, SignedDuration::from_secs);
    let mut watch = Watch {
        resource: attributes.resource.clone(),
        namespace: Some(attributes.namespace.as_str()).filter(|namespace| !namespace.is_empty()).map(Into::into),
        labels,
        fields,
        output,
        bookmarks,
        initial: VecDeque::new(),
        marks_end: sends_initial == Some(true) && bookmarks,
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
