//! What the API server says of itself: groups, versions, resources, its version and its health. Input: a path. Output: a
//! document. It must not know objects.

mod groups;
mod health;

use serde_json::{Value, json};

use crate::halt::{Halt, Status};
use crate::published::KUBERNETES;
use crate::request::{Body, Request, Response};
use crate::{Cluster, etag, open_api};

use self::groups::Group;

/// The media type of the document that has all groups in one.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) fn document(cluster: &Cluster, segments: &[&str], request: &Request) -> Result<Response, Halt> {
    let groups = || groups::all(cluster);
    let value = match segments {
        [] => paths(&groups()),
        ["version"] => version(),
        ["healthz" | "livez" | "readyz", check @ ..] => return health::check(segments[0], &check.join("/"), request),
        ["openapi", ..] => return open_api::document(cluster, segments, request),
        ["api"] if wants_aggregated(request) => return Ok(aggregated(request, &groups(), true)),
        ["apis"] if wants_aggregated(request) => return Ok(aggregated(request, &groups(), false)),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups().iter().filter(|group| !group.name.is_empty()).map(Group::entry).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = groups();
            let Some(found) = groups.iter().find(|group| group.name == *name) else { return Ok(missing()) };
            with(found.entry(), &[("kind", "APIGroup"), ("apiVersion", "v1")])
        }
        ["api", version] => groups::resources(&groups(), "", version).ok_or_else(Status::no_resource)?,
        ["apis", group, version] => {
            let groups = groups();
            if groups.iter().all(|known| known.name != *group) {
                return Ok(missing());
            }
            let found = groups::resources(&groups, group, version).ok_or_else(Status::no_resource)?;
            with(found, &[("apiVersion", "v1")])
        }
        _ => return Ok(missing()),
    };
    Ok(Response::json(200, value))
}

/// What the last server of the chain answers when nobody serves a path: text, no status.
fn missing() -> Response {
    let body = Body::Bytes(b"404 page not found\n".to_vec());
    Response { status: 404, headers: Vec::new(), content_type: "text/plain; charset=utf-8", body }
}

fn with(mut value: Value, fields: &[(&str, &str)]) -> Value {
    if let Value::Object(object) = &mut value {
        object.extend(fields.iter().map(|(key, text)| ((*key).to_owned(), (*text).into())));
    }
    value
}

/// Whether the client prefers the aggregated document to the plain one.
fn wants_aggregated(request: &Request) -> bool {
    let accept = request.header("accept").unwrap_or("*/*");
    for entry in accept.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let json = matches!(parts.next(), Some("application/json" | "*/*" | "application/*"));
        let parameters: Vec<&str> = parts.collect();
        let has = |wanted: &str| parameters.contains(&wanted);
        if json && has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") && has("v=v2") {
            return true;
        }
        if json && !parameters.iter().any(|part| part.starts_with("as=")) {
            return false;
        }
    }
    false
}

fn aggregated(request: &Request, groups: &[Group<'_>], core: bool) -> Response {
    let items = groups.iter().filter(|group| group.name.is_empty() == core);
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items.map(Group::aggregated).collect::<Vec<_>>(),
    });
    let bytes = document.to_string().into_bytes();
    etag::respond(request, &etag::hash(&bytes), AGGREGATED, || bytes)
}

/// The version of a release; what a build sets is that of a build without git.
fn version() -> Value {
    let (major, minor) = groups::major_minor(KUBERNETES);
    json!({
        "major": major.to_string(), "minor": minor.to_string(),
        "emulationMajor": major.to_string(), "emulationMinor": minor.to_string(),
        "minCompatibilityMajor": major.to_string(), "minCompatibilityMinor": minor.saturating_sub(1).to_string(),
        "gitVersion": KUBERNETES, "gitCommit": "$Format:%H$", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.8", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// What there is besides resources.
fn paths(groups: &[Group<'_>]) -> Value {
    let fixed = ["/api", "/api/v1", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"];
    let mut paths: Vec<String> = fixed.map(str::to_owned).into();
    for group in groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|(version, _)| format!("/apis/{}/{version}", group.name)));
    }
    paths.extend(health::paths());
    paths.sort();
    json!({"paths": paths})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::AGGREGATED;
    use crate::Method::Get;
    use crate::testing::{ask, quiet, request, respond};
    use crate::{Body, Cluster};

    fn get(cluster: &mut Cluster, path: &str) -> Value {
        let (status, found) = ask(cluster, Get, path, &json!(null));
        assert_eq!(status, 200, "{path}: {found}");
        found
    }

    #[test]
    fn groups_and_resources_are_listed_in_their_order() {
        let mut cluster = quiet();
        let groups = get(&mut cluster, "/apis");
        let names: Vec<&str> =
            groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
        let group = get(&mut cluster, "/apis/autoscaling");
        assert_eq!(group["preferredVersion"], json!({"groupVersion": "autoscaling/v2", "version": "v2"}));
        let apps = get(&mut cluster, "/apis/apps/v1");
        let scale =
            apps["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == "deployments/scale");
        let wanted = json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "kind": "Scale",
            "group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]});
        assert_eq!(scale, Some(&wanted));
        let core = get(&mut cluster, "/api/v1");
        assert_eq!((&core["groupVersion"], &core["apiVersion"]), (&json!("v1"), &json!(null)));
        for gone in ["/apis/none", "/apis/apps/v2", "/api/v2", "/none"] {
            assert_eq!(ask(&mut cluster, Get, gone, &json!(null)).0, 404, "{gone}");
        }
    }

    #[test]
    fn the_aggregated_document_is_sent_once() {
        let mut cluster = quiet();
        let accept = format!("{AGGREGATED},application/json");
        let first = respond(&mut cluster, &request(Get, "/apis", &[("accept", &accept)], &json!(null)));
        assert_eq!((first.status, first.content_type), (200, AGGREGATED));
        let Body::Bytes(bytes) = &first.body else { panic!("no bytes") };
        let document: Value = serde_json::from_slice(bytes).unwrap();
        let apps = &document["items"][1];
        assert_eq!(
            (&apps["metadata"], &apps["versions"][0]["freshness"]),
            (&json!({"name": "apps"}), &json!("Current"))
        );
        assert_eq!(apps["versions"][0]["resources"][2]["subresources"][0]["responseKind"]["kind"], "Scale");
        let tag = &first.headers.iter().find(|(name, _)| *name == "ETag").unwrap().1;
        let headers = [("accept", accept.as_str()), ("if-none-match", tag)];
        let again = respond(&mut cluster, &request(Get, "/apis", &headers, &json!(null)));
        assert_eq!(again.status, 304);
        let plain = respond(&mut cluster, &request(Get, "/apis", &[("accept", "application/json")], &json!(null)));
        assert_eq!(plain.content_type, "application/json");
    }

    #[test]
    fn health_is_reported_as_text() {
        let mut cluster = quiet();
        let mut text = |target: &str| match respond(&mut cluster, &request(Get, target, &[], &json!(null))).body {
            Body::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("no text: {other:?}"),
        };
        assert_eq!(text("/readyz"), "ok");
        assert_eq!(text("/livez/poststarthook/rbac/bootstrap-roles"), "ok");
        let all = text("/readyz?verbose&exclude=etcd");
        assert!(all.starts_with("[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness ok\n"), "{all}");
        assert!(all.ends_with("[+]shutdown ok\nreadyz check passed\n"), "{all}");
        assert!(!text("/livez?verbose").contains("shutdown"));
    }
}
