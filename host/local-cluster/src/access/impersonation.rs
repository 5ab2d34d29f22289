//! Acting as somebody else: the `Impersonate-*` headers. Input: a request and its real user. Output: the user that it is
//! answered as, or a refusal. It must not know what requests do.
//!
//! Kubernetes 1.36 tries constrained modes first (`impersonate-on:MODE:VERB` for the request and `impersonate:MODE` for each
//! part of the user), then the verb `impersonate` alone. The first refusal is the one that is shown.

use super::action::Action;
use super::rbac;
use crate::Cluster;
use crate::halt::{Halt, Status};
use crate::path::{self, Path};
use crate::request::Request;
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

const AUTHENTICATION: &str = "authentication.k8s.io";

pub(super) fn impersonate(cluster: &Cluster, request: &Request, user: User) -> Result<User, Halt> {
    let wanted = wanted(request);
    if wanted.name.is_empty() {
        if wanted == User::default() {
            return Ok(user);
        }
        let message = format!("requested {} without impersonating a user name", in_go(&wanted));
        return Err(Status::bad_request(message).into());
    }
    let mut refusal = None;
    for mode in modes(&user, &wanted) {
        let found = match mode {
            Some(mode) => on_request(cluster, request, &user, mode)
                .and_then(|()| parts(cluster, &user, &wanted, &format!("impersonate:{mode}"), AUTHENTICATION, true)),
            None => parts(cluster, &user, &wanted, "impersonate", "", false),
        };
        match found {
            Ok(acting) => return Ok(acting),
            Err(status) => drop(refusal.get_or_insert(status)),
        }
    }
    Err(refusal.unwrap_or_else(Status::unauthorized).into())
}

/// A user as Go's `%#v` shows one.
fn in_go(user: &User) -> String {
    let list = |values: &[String]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[]string{{{}}}", values.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    let (name, uid) = (&user.name, &user.uid);
    format!("&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:{groups}, Extra:map[string][]string{extra}}}")
}

/// The user that the headers describe.
fn wanted(request: &Request) -> User {
    let mut user = User::default();
    for (name, value) in &request.headers {
        match name.as_str() {
            "impersonate-user" if user.name.is_empty() => user.name.clone_from(value),
            "impersonate-uid" if user.uid.is_empty() => user.uid.clone_from(value),
            "impersonate-group" => user.groups.push(value.clone()),
            _ => {
                let Some(key) = name.strip_prefix("impersonate-extra-") else { continue };
                let key = key.replace("%2f", "/").replace("%2F", "/");
                match user.extra.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, values)) => values.push(value.clone()),
                    None => user.extra.push((key, vec![value.clone()])),
                }
            }
        }
    }
    user
}

/// The constrained modes that fit, then none: the old one.
fn modes(user: &User, wanted: &User) -> Vec<Option<&'static str>> {
    let only_name = *wanted == User { name: wanted.name.clone(), ..User::default() };
    let node = wanted.name.strip_prefix("system:node:");
    let own_node = |node: &str| {
        let extra = user.extra.iter().find(|(key, _)| key == "authentication.kubernetes.io/node-name");
        extra.is_some_and(|(_, values)| values.as_slice() == [node.to_owned()])
    };
    let mut modes = Vec::new();
    match (node, service_account(&wanted.name)) {
        (Some(node), _) if only_name => {
            modes.extend(own_node(node).then_some(Some("associated-node")));
            modes.push(Some("arbitrary-node"));
        }
        (None, Some(_)) if only_name => modes.push(Some("serviceaccount")),
        (None, None) => modes.push(Some("user-info")),
        _ => {}
    }
    modes.push(None);
    modes
}

fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let fits = |text: &str, more: &str| {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.as_bytes().contains(&byte);
        !text.is_empty() && text.bytes().all(fine)
    };
    (fits(namespace, "-") && fits(name, "-.")).then_some((namespace, name))
}

fn demand(cluster: &Cluster, user: &User, action: &Action<'_>) -> Result<(), Status> {
    let decision = rbac::decide(cluster, user, action);
    if decision.allowed { Ok(()) } else { Err(action.forbidden(&user.name, &decision.reason)) }
}

/// Whether the user may make this very request in a mode.
fn on_request(cluster: &Cluster, request: &Request, user: &User, mode: &str) -> Result<(), Status> {
    match path::parse(&request.path) {
        Path::Resource(address) => {
            let verb = format!("impersonate-on:{mode}:{}", request.verb(&address));
            demand(cluster, user, &Action::at(&verb, &address))
        }
        Path::Document(_) => {
            let method = format!("{:?}", request.method).to_lowercase();
            let verb = format!("impersonate-on:{mode}:{method}");
            demand(cluster, user, &Action { verb: &verb, path: Some(&request.path), ..Action::default() })
        }
    }
}

/// Whether the user may be each part of the wanted one, and that one with the groups that follow.
fn parts(
    cluster: &Cluster,
    user: &User,
    wanted: &User,
    verb: &str,
    group: &str,
    constrained: bool,
) -> Result<User, Status> {
    let mut acting = wanted.clone();
    let ask = |action: Action<'_>| demand(cluster, user, &Action { verb, ..action });
    let node = wanted.name.strip_prefix("system:node:").filter(|_| constrained);
    if let Some(name) = node {
        acting.groups = vec!["system:nodes".to_owned()];
        ask(Action { group, resource: "nodes", name, ..Action::default() })?;
    } else if let Some((namespace, name)) = service_account(&wanted.name) {
        if wanted.groups.is_empty() {
            acting.groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        ask(Action { group, resource: "serviceaccounts", namespace, name, ..Action::default() })?;
    } else {
        ask(Action { group, resource: "users", name: &wanted.name, ..Action::default() })?;
    }
    if !wanted.uid.is_empty() {
        ask(Action { group: AUTHENTICATION, resource: "uids", name: &wanted.uid, ..Action::default() })?;
    }
    for name in &wanted.groups {
        let action = Action { verb, group, resource: "groups", name, ..Action::default() };
        if constrained && name == rbac::MASTERS && cluster.options.rbac {
            return Err(action.forbidden(&user.name, "impersonating the system:masters group is not allowed"));
        }
        ask(action)?;
    }
    for (key, values) in &wanted.extra {
        for name in values {
            let (resource, subresource) = ("userextras", key.as_str());
            ask(Action { group: AUTHENTICATION, resource, subresource, name, ..Action::default() })?;
        }
    }
    let has = |group: &str| acting.groups.iter().any(|known| known == group);
    let missing = match (acting.name == ANONYMOUS, has(UNAUTHENTICATED), has(AUTHENTICATED)) {
        (true, false, _) => Some(UNAUTHENTICATED),
        (false, false, false) => Some(AUTHENTICATED),
        _ => None,
    };
    acting.groups.extend(missing.map(str::to_owned));
    Ok(acting)
}
