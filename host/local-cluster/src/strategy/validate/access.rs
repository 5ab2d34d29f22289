//! What must hold for roles, budgets, autoscalers and webhooks. Input: such an object. Output: causes. It must not know who
//! may write them.

use serde_json::Value;

use super::super::field::{Causes, Path, how_many, is_empty, items, text};
use super::super::format;
use super::super::rule::{Check, Rule, between, check, not_over_all};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) const ROLE: &[Rule] =
    &[("rules", Check::Each(&[("", Check::Code(|rule, path, causes| policy_rule(rule, path, true, causes)))]))];
pub(super) const CLUSTER_ROLE: &[Rule] = &[
    ("rules", Check::Each(&[("", Check::Code(|rule, path, causes| policy_rule(rule, path, false, causes)))])),
    (
        "aggregationRule",
        Check::Within(&[
            (
                "clusterRoleSelectors",
                Check::Required("at least one clusterRoleSelector required if aggregationRule is non-nil"),
            ),
            ("clusterRoleSelectors", Check::Each(&[("", Check::Selector)])),
        ]),
    ),
];
pub(super) const ROLE_BINDING: &[Rule] = &[
    ("roleRef", Check::Code(|value, path, causes| role_ref(value, path, &["Role", "ClusterRole"], causes))),
    ("subjects", Check::Each(&[("", Check::Code(|value, path, causes| subject(value, path, true, causes)))])),
];
pub(super) const CLUSTER_ROLE_BINDING: &[Rule] = &[
    ("roleRef", Check::Code(|value, path, causes| role_ref(value, path, &["ClusterRole"], causes))),
    ("subjects", Check::Each(&[("", Check::Code(|value, path, causes| subject(value, path, false, causes)))])),
];
pub(super) const BUDGET: &[Rule] = &[
    ("spec", Check::Code(budget)),
    ("spec.selector", Check::Selector),
    ("spec.unhealthyPodEvictionPolicy", Check::OneOf(&["AlwaysAllow", "IfHealthyBudget"])),
];
pub(super) const SCALER: &[Rule] = &[
    ("spec.minReplicas", Check::AtLeast(1)),
    ("spec", Check::Code(replicas)),
    ("spec.scaleTargetRef.kind", Check::Required("")),
    ("spec.scaleTargetRef.kind", Check::Text(format::path_segment)),
    ("spec.scaleTargetRef.name", Check::Required("")),
    ("spec.scaleTargetRef.name", Check::Text(format::path_segment)),
    ("spec.metrics", Check::Each(&[("type", Check::Required("must specify a metric source type"))])),
];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const WEBHOOK_RULE: &[Rule] = &[
    ("operations", Check::Required("")),
    ("operations", Check::Code(alone)),
    ("operations", Check::Each(&[("", Check::OneOf(OPERATIONS))])),
    ("apiGroups", Check::Required("")),
    ("apiGroups", Check::Code(alone)),
    ("apiVersions", Check::Required("")),
    ("apiVersions", Check::Code(alone)),
    ("apiVersions", Check::Each(&[("", Check::Required(""))])),
    ("resources", Check::Required("")),
    ("resources", Check::Each(&[("", Check::Required(""))])),
    ("scope", Check::OneOf(&["*", "Cluster", "Namespaced"])),
];
const WEBHOOK: &[Rule] = &[
    ("admissionReviewVersions", Check::Code(review_versions)),
    ("name", Check::Required("")),
    ("name", Check::Text(format::fully_qualified)),
    ("rules", Check::Each(WEBHOOK_RULE)),
    ("failurePolicy", Check::OneOf(&["Fail", "Ignore"])),
    ("matchPolicy", Check::OneOf(&["Equivalent", "Exact"])),
    ("sideEffects", Check::Required("must specify one of None, NoneOnDryRun")),
    ("sideEffects", Check::OneOf(&["None", "NoneOnDryRun"])),
    ("timeoutSeconds", Check::Code(timeout)),
    ("namespaceSelector", Check::Selector),
    ("objectSelector", Check::Selector),
    ("clientConfig", Check::Code(client_config)),
    ("reinvocationPolicy", Check::OneOf(&["IfNeeded", "Never"])),
];
pub(super) const WEBHOOKS: &[Rule] = &[("webhooks", Check::Each(WEBHOOK)), ("webhooks", Check::Unique("name"))];

fn policy_rule(value: &Value, path: &Path<'_>, namespaced: bool, causes: &mut Causes) {
    if is_empty(&value["verbs"]) {
        causes.required(&Path::Field(path, "verbs"), "verbs must contain at least one value");
    }
    let (urls, place) = (&value["nonResourceURLs"], Path::Field(path, "nonResourceURLs"));
    if !is_empty(urls) {
        if namespaced {
            causes.invalid(&place, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !is_empty(&value[*name])) {
            causes.invalid(&place, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    let rules = &[
        ("apiGroups", Check::Required("resource rules must supply at least one api group")),
        ("resources", Check::Required("resource rules must supply at least one resource")),
    ];
    check(value, path, rules, causes);
}

fn role_ref(value: &Value, path: &Path<'_>, kinds: &'static [&'static str], causes: &mut Causes) {
    let group = &value["apiGroup"];
    if group != GROUP {
        causes.not_supported(&Path::Field(path, "apiGroup"), &text(group).into(), &[GROUP]);
    }
    if !kinds.contains(&text(&value["kind"])) {
        causes.not_supported(&Path::Field(path, "kind"), &text(&value["kind"]).into(), kinds);
    }
    check(value, path, &[("name", Check::Required("")), ("name", Check::Text(format::path_segment))], causes);
}

fn subject(value: &Value, path: &Path<'_>, namespaced: bool, causes: &mut Causes) {
    check(value, path, &[("name", Check::Required(""))], causes);
    let (group, place) = (text(&value["apiGroup"]), Path::Field(path, "apiGroup"));
    match text(&value["kind"]) {
        "ServiceAccount" => {
            check(value, path, &[("name", Check::Text(format::subdomain))], causes);
            if !group.is_empty() {
                causes.not_supported(&place, &group.into(), &[""]);
            }
            if !namespaced && is_empty(&value["namespace"]) {
                causes.required(&Path::Field(path, "namespace"), "");
            }
        }
        "User" | "Group" if group == GROUP => {}
        "User" | "Group" => causes.not_supported(&place, &group.into(), &[GROUP]),
        other => {
            causes.not_supported(&Path::Field(path, "kind"), &other.into(), &["ServiceAccount", "User", "Group"]);
        }
    }
}

fn budget(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if how_many(spec, &["minAvailable", "maxUnavailable"]) == 2 {
        // Go prints the fields of its own type.
        let shown = serde_json::json!({
            "MinAvailable": spec["minAvailable"], "Selector": spec["selector"], "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec["unhealthyPodEvictionPolicy"],
        });
        causes.invalid(path, &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for name in ["minAvailable", "maxUnavailable"].into_iter().filter(|name| !spec[*name].is_null()) {
        let place = Path::Field(path, name);
        check(&spec[name], &place, &[("", Check::IntOrPercent)], causes);
        not_over_all(&spec[name], &place, causes);
    }
}

fn replicas(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let place = Path::Field(path, "maxReplicas");
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    match most {
        0 => causes.required(&place, "must be set and greater than 0"),
        most if most < 0 => causes.invalid(&place, &most.into(), "must be greater than or equal to 1"),
        _ => {}
    }
    if spec["minReplicas"].as_i64().is_some_and(|least| most < least) {
        causes.invalid(&place, &most.into(), "must be greater than or equal to `minReplicas`");
    }
}

/// `*` is alone in its list.
fn alone(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let list = items(value);
    if list.len() < 2 || list.iter().all(|item| item != "*") {
        return;
    }
    let what = match path {
        Path::Field(_, "operations") => "operations",
        Path::Field(_, "apiGroups") => "API groups",
        _ => "API versions",
    };
    causes.invalid(path, value, &format!("if '*' is present, must not specify other {what}"));
}

fn review_versions(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let list = items(value);
    if list.is_empty() {
        causes.required(path, "must specify one of v1, v1beta1");
    } else if !list.iter().any(|version| matches!(text(version), "v1" | "v1beta1")) {
        causes.invalid(path, value, "must include at least one of v1, v1beta1");
    }
    for (index, version) in
        list.iter().enumerate().filter(|(index, version)| list.iter().take(*index).any(|v| v == *version))
    {
        causes.invalid(&Path::Index(path, index), version, "duplicate version");
    }
}

fn timeout(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        causes.invalid(path, value, "the timeout value must be between 1 and 30 seconds");
    }
}

fn client_config(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (url, service) = (&value["url"], &value["service"]);
    match (url.is_null(), service.is_null()) {
        (true, true) | (false, false) => causes.required(path, "exactly one of url or service is required"),
        (false, true) => {
            let (scheme, rest) = text(url).split_once("://").unwrap_or(("", text(url)));
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let place = Path::Field(path, "url");
            let mut wrong = |given: &str, words: String| causes.invalid(&place, &given.into(), &words);
            if scheme != "https" {
                wrong(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
            }
            if host.is_empty() || scheme.is_empty() {
                wrong("", format!("host must be specified{FORM}"));
            }
            if let Some((user, _)) = host.split_once('@') {
                wrong(user, "user information is not permitted in the URL".to_owned());
            }
            if let Some((_, fragment)) = rest.split_once('#') {
                wrong(fragment, "fragments are not permitted in the URL".to_owned());
            }
            if let Some((_, query)) = rest.split('#').next().and_then(|rest| rest.split_once('?')) {
                wrong(query, "query parameters are not permitted in the URL".to_owned());
            }
        }
        (true, false) => {
            let place = Path::Field(path, "service");
            let rules = &[("name", Check::Required("")), ("namespace", Check::Required(""))];
            check(service, &place, rules, causes);
            between(&service["port"], &Path::Field(&place, "port"), 1, 65535, causes);
            let urlpath = text(&service["path"]);
            if !urlpath.is_empty() && !urlpath.starts_with('/') {
                causes.invalid(&Path::Field(&place, "path"), &service["path"], "must start with a '/'");
            }
        }
    }
}
