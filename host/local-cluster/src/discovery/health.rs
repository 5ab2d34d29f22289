//! Health checks: a cluster that answers is healthy. Input: a path and what to leave out. Output: text. It must not know
//! what the checks would look at.

use crate::halt::{Halt, Status};
use crate::request::{Request, Response};

/// The checks of kube-apiserver in their order; those with a mark belong to `/readyz` alone.
const CHECKS: [&str; 33] = [
    "ping",
    "log",
    "etcd",
    "!etcd-readiness",
    "!informer-sync",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "!shutdown",
];

fn checks(endpoint: &str) -> impl Iterator<Item = &'static str> {
    let ready = endpoint == "readyz";
    CHECKS.into_iter().filter_map(move |check| match check.strip_prefix('!') {
        Some(check) => ready.then_some(check),
        None => Some(check),
    })
}

/// All checks of `healthz`, `livez` or `readyz`, or one of them.
pub(super) fn check(endpoint: &str, one: &str, request: &Request) -> Result<Response, Halt> {
    if !one.is_empty() {
        let known = checks(endpoint).any(|check| check == one);
        return if known { Ok(Response::text("ok")) } else { Err(Status::no_resource().into()) };
    }
    if request.parameter("verbose").is_none() {
        return Ok(Response::text("ok"));
    }
    let excluded: Vec<&str> =
        request.query.iter().filter(|(key, _)| key == "exclude").map(|(_, check)| check.as_str()).collect();
    let mut text = String::new();
    for check in checks(endpoint) {
        let excluded = if excluded.contains(&check) { " excluded:" } else { "" };
        text.push_str(&format!("[+]{check}{excluded} ok\n"));
    }
    let mut unknown: Vec<String> = excluded
        .iter()
        .filter(|wanted| checks(endpoint).all(|check| check != **wanted))
        .map(|check| format!("{check:?}"))
        .collect();
    unknown.sort();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"));
    }
    Ok(Response::text(format!("{text}{endpoint} check passed\n")))
}

/// The paths of all checks.
pub(super) fn paths() -> impl Iterator<Item = String> {
    ["healthz", "livez", "readyz"].into_iter().flat_map(|endpoint| {
        let each = checks(endpoint).map(move |check| format!("/{endpoint}/{check}"));
        std::iter::once(format!("/{endpoint}")).chain(each)
    })
}
