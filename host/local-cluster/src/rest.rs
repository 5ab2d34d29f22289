//! The way of a request: who asks, what for, whether he may, and which verb answers. Input: a request. Output: a response.
//! It must not know what the verbs do.

mod create;
mod delete;
mod output;
mod patch;
mod read;
mod subresource;
mod update;

use std::cell::RefCell;

use jiff::Timestamp;

use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Answer, FirstTry, Halt, Status};
use crate::path::{Address, Path};
use crate::request::{Credentials, Request, Response};
use crate::user::User;
use crate::{Cluster, Reply, access, admission, discovery, path, protobuf, strategy};

pub(crate) use self::create::create;
pub(crate) use self::delete::{delete, finish};
pub(crate) use self::update::{Update, update};

/// Answers a request; nothing is left of one that is refused or that must ask a webhook first.
pub(crate) fn request(cluster: &mut Cluster, request: &Request, answers: &[Answer], now: Timestamp) -> Reply<Response> {
    let mut next = cluster.clone();
    let first = FirstTry::of(answers, cluster.made, now);
    next.made = first.made;
    let mut context = Context {
        user: User::default(),
        manager: manager(request),
        dry_run: false,
        answers,
        now: first.at,
        warnings: RefCell::default(),
    };
    let mut response = match respond(&mut next, request, &mut context) {
        Ok(response) => {
            if !context.dry_run {
                next.made = next.made.max(cluster.made);
                *cluster = next;
            }
            response
        }
        Err(Halt::Call(mut call)) => {
            cluster.made = cluster.made.max(first.reserved());
            call.first_try = first;
            return Reply::Call(call);
        }
        Err(Halt::Status(status)) => refusal(&status),
    };
    for warning in context.warnings.into_inner() {
        response.headers.push(("Warning", format!("299 - {warning:?}")));
    }
    Reply::Done(response)
}

fn refusal(status: &Status) -> Response {
    let mut response = Response::json(status.code, status.to_json());
    let seconds = status.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = seconds {
        response.headers.push(("Retry-After", seconds.to_string()));
    }
    response
}

/// How much of a user agent names a field manager.
const MAX_MANAGER_BYTES: usize = 128;

/// The field manager: as the client says, or the first part of its user agent.
fn manager(request: &Request) -> String {
    if let Some(said) = request.parameter("fieldManager").filter(|name| !name.is_empty()) {
        return said.to_owned();
    }
    let agent = request.header("user-agent").and_then(|agent| agent.split('/').next()).unwrap_or_default();
    let mut name = String::new();
    for letter in agent.chars().filter(|letter| !letter.is_control()) {
        if name.len() + letter.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}

/// Why a request is refused whatever its body says. Who has credentials is only asked for them.
pub(crate) fn refuse(cluster: &Cluster, head: &Request, now: Timestamp) -> Option<Status> {
    let admit = || -> Result<(), Halt> {
        match &head.credentials {
            Credentials::None => {}
            Credentials::User(_) => return Ok(()),
            Credentials::Token(token) => {
                let user = access::user_of(cluster, token, now);
                return user.map(drop).ok_or_else(|| Status::unauthorized().into());
            }
        }
        let user = access::authenticate(cluster, head, now)?;
        match path::parse(&head.path) {
            Path::Document(_) => access::authorize_path(cluster, &user, head),
            Path::Resource(address) => authorized(cluster, head, &address, &user).map(drop),
        }
    };
    match admit() {
        Err(Halt::Status(status)) => Some(*status),
        // No webhook is asked who somebody is.
        Ok(()) | Err(Halt::Call(_)) => None,
    }
}

fn respond(cluster: &mut Cluster, request: &Request, context: &mut Context<'_>) -> Result<Response, Halt> {
    context.user = access::authenticate(cluster, request, context.now)?;
    match path::parse(&request.path) {
        Path::Document(segments) => {
            access::authorize_path(cluster, &context.user, request)?;
            discovery::document(cluster, &segments, request)
        }
        Path::Resource(address) => {
            let decoded = protobuf::as_json(request)?;
            objects(cluster, decoded.as_ref().unwrap_or(request), &address, context)
        }
    }
}

fn objects(
    cluster: &mut Cluster,
    request: &Request,
    address: &Address<'_>,
    context: &mut Context<'_>,
) -> Result<Response, Halt> {
    let Some(attributes) = authorized(cluster, request, address, &context.user)? else {
        let mut groups = cluster.resources().filter(|known| *known.group == *address.group);
        return if groups.any(|known| *known.version == *address.version) {
            Err(Status::no_resource().into())
        } else {
            Ok(Response { status: 404, ..Response::text("404 page not found\n") })
        };
    };
    served(&attributes, address)?;
    output::acceptable(request, &attributes.resource)?;
    context.dry_run = dry_run(request);
    let deprecated = match &attributes.resource.custom {
        Some(version) => version.deprecated.as_deref(),
        None => strategy::deprecation(&attributes.resource),
    };
    if let Some(warning) = deprecated {
        context.warn(warning);
    }
    if let Some(special) = subresource::special(cluster, request, &attributes, context)? {
        return Ok(special);
    }
    match attributes.verb {
        "get" => read::get(cluster, request, &attributes, context),
        "list" => read::list(cluster, request, &attributes, context),
        "watch" => read::watch(cluster, request, &attributes, context.now),
        "create" => create::from_request(cluster, request, &attributes, context),
        "update" => update::from_request(cluster, request, &attributes, context),
        "patch" => patch::from_request(cluster, request, &attributes, context),
        "delete" => delete::from_request(cluster, request, &attributes, context),
        _ => delete::collection(cluster, request, &attributes, context),
    }
}

/// What a request is about, if the user may ask for it; None if nothing of the kind is served.
fn authorized(
    cluster: &Cluster,
    request: &Request,
    address: &Address<'_>,
    user: &User,
) -> Result<Option<Attributes>, Halt> {
    let verb = request.verb(address);
    let Some(resource) = cluster.resource(address.group, address.version, address.plural).cloned() else {
        access::authorize_unserved(cluster, user, verb, address)?;
        return Ok(None);
    };
    let attributes = Attributes {
        verb,
        namespace: address.namespace.unwrap_or_default().to_owned(),
        name: address.name.unwrap_or_default().to_owned(),
        subresource: address.subresource.unwrap_or_default().to_owned(),
        resource,
    };
    access::authorize(cluster, user, &attributes, request)?;
    Ok(Some(attributes))
}

/// Whether the resource has the verb, and the path fits its scope.
fn served(attributes: &Attributes, address: &Address<'_>) -> Result<(), Halt> {
    let resource = &attributes.resource;
    let allowed = match attributes.subresource.as_str() {
        // Discovery hides some verbs of a definition that is being deleted.
        "" => resource.custom.is_some() || resource.allows(attributes.verb),
        name => {
            let missing = || if resource.custom.is_some() { attributes.not_found() } else { Status::no_resource() };
            let subresource = resource.subresource(name).ok_or_else(missing)?;
            subresource.verbs.iter().any(|verb| **verb == *attributes.verb)
        }
    };
    let needs_namespace = resource.namespaced && (attributes.verb == "create" || address.name.is_some());
    if address.namespace.is_some() && !resource.namespaced || needs_namespace && address.namespace.is_none() {
        return Err(Status::no_resource().into());
    }
    let on_all = address.name.is_none() && matches!(attributes.verb, "update" | "patch");
    if !allowed || on_all || attributes.verb == "create" && address.name.is_some() && address.subresource.is_none() {
        return Err(Status::method_not_allowed().into());
    }
    Ok(())
}

/// Whether the client wants nothing to be kept. The verbs refuse other values than `All`.
fn dry_run(request: &Request) -> bool {
    request.parameter("dryRun").is_some_and(|value| !value.is_empty())
}

/// The objects that an API server makes when it starts.
pub(crate) fn bootstrap(cluster: &mut Cluster, now: Timestamp) {
    let context = Context { manager: "kube-apiserver".to_owned(), ..Context::system("system:apiserver", &[], now) };
    let mut objects = strategy::bootstrap(&cluster.options);
    objects.extend(access::bootstrap());
    objects.extend(admission::bootstrap());
    for object in objects {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let (group, version) = crate::resource::group_version(&api_version);
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = cluster.kind(group, version, kind).cloned().expect("bootstrap objects are of built-in kinds");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let attributes = Attributes::of("create", &resource, &namespace, "");
        create(cluster, &context, &attributes, object).expect("bootstrap objects are valid");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Get, Post, Put};
    use crate::testing::{ask, quiet};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    #[test]
    fn an_object_is_created_read_updated_and_deleted() {
        let mut cluster = quiet();
        let (code, made) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        assert_eq!((code, &made["kind"], &made["data"]["k"]), (201, &json!("ConfigMap"), &json!("v")));
        let mut changed = made.clone();
        changed["data"]["k"] = "w".into();
        let (code, updated) = ask(&mut cluster, Put, &format!("{MAPS}/a"), &changed);
        assert_eq!((code, &updated["data"]["k"]), (200, &json!("w")));
        let (code, refused) = ask(&mut cluster, Put, &format!("{MAPS}/a"), &changed);
        assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
        let (_, list) = ask(&mut cluster, Get, MAPS, &json!(null));
        assert_eq!(
            (list["items"][0]["metadata"].clone(), &list["items"][0]["kind"]),
            (updated["metadata"].clone(), &json!(null))
        );
        let (code, gone) = ask(&mut cluster, Delete, &format!("{MAPS}/a"), &json!(null));
        assert_eq!((code, &gone["status"]), (200, &json!("Success")));
        let (code, missing) = ask(&mut cluster, Get, &format!("{MAPS}/a"), &json!(null));
        assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
    }

    #[test]
    fn a_refused_or_dry_request_leaves_nothing() {
        let mut cluster = quiet();
        let before = cluster.revision();
        let (code, _) = ask(&mut cluster, Post, &format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "a"}}));
        assert_eq!(code, 201);
        let (code, _) = ask(&mut cluster, Post, MAPS, &json!({"metadata": {}}));
        assert_eq!(code, 422);
        let (code, _) =
            ask(&mut cluster, Post, "/api/v1/namespaces/gone/configmaps", &json!({"metadata": {"name": "a"}}));
        assert_eq!(code, 404);
        assert_eq!(cluster.revision(), before);
    }
}
