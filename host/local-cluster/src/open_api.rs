//! The OpenAPI documents. Input: a path below `/openapi`. Output: the document. It must not know objects.

mod custom;
mod protobuf;
mod v2;

use std::collections::BTreeMap;

use serde_json::json;

use crate::halt::{Halt, Status};
use crate::request::{Body, Request, Response};
use crate::resource::Resource;
use crate::{Cluster, etag, published};

const JSON: &str = "application/json";
/// What kubectl asks for, with an `@` as the real server writes it or without.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

pub(crate) fn document(cluster: &Cluster, segments: &[&str], request: &Request) -> Result<Response, Halt> {
    match segments {
        ["openapi", "v2"] => version_2(cluster, request),
        ["openapi", "v3"] => Ok(index(cluster, request)),
        ["openapi", "v3", path @ ..] => version_3(cluster, &path.join("/"), request),
        _ => Err(Status::no_resource().into()),
    }
}

/// The custom resources of each group and version, by the path of their document.
fn custom_resources(cluster: &Cluster) -> BTreeMap<String, Vec<&Resource>> {
    let mut all: BTreeMap<String, Vec<&Resource>> = BTreeMap::new();
    for resource in cluster.resources().filter(|resource| resource.custom.is_some()) {
        all.entry(format!("apis/{}", resource.api_version())).or_default().push(resource);
    }
    all
}

/// The hash of a published document, which does not change; it is not made from its megabytes.
fn published_hash(path: &str, text: &str) -> String {
    etag::hash(format!("{} {path} {}", published::KUBERNETES, text.len()).as_bytes())
}

fn index(cluster: &Cluster, request: &Request) -> Response {
    let built_in = published::open_api_paths()
        .filter_map(|path| Some((path.to_owned(), published_hash(path, published::open_api(path)?))));
    let custom = custom_resources(cluster);
    let custom = custom.iter().map(|(path, resources)| (path.clone(), custom::hash(resources)));
    let entry = |(path, hash): (String, String)| {
        let url = json!({"serverRelativeURL": url(&path, &hash)});
        (path, url)
    };
    let paths: serde_json::Map<_, _> = built_in.chain(custom).map(entry).collect();
    let bytes = json!({"paths": paths}).to_string().into_bytes();
    etag::respond(request, &etag::hash(&bytes), JSON, || bytes)
}

fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// Which of some media types the client prefers.
fn accepted(request: &Request, known: &[&'static str]) -> Option<&'static str> {
    let accept = request.header("accept").filter(|accept| !accept.is_empty()).unwrap_or("*/*");
    accept.split(',').find_map(|entry| {
        let wanted = entry.split(';').next().unwrap_or_default().trim();
        known.iter().copied().find(|known| wanted == *known || matches!(wanted, "*/*" | "application/*"))
    })
}

fn not_acceptable() -> Response {
    Response { status: 406, ..Response::text("") }
}

fn version_3(cluster: &Cluster, path: &str, request: &Request) -> Result<Response, Halt> {
    if accepted(request, &[JSON]).is_none() {
        return Ok(not_acceptable());
    }
    let custom = custom_resources(cluster);
    let (hash, bytes): (String, Box<dyn FnOnce() -> Vec<u8>>) = match (published::open_api(path), custom.get(path)) {
        (Some(text), _) => (published_hash(path, text), Box::new(|| text.as_bytes().to_vec())),
        (None, Some(resources)) => {
            (custom::hash(resources), Box::new(|| custom::document(resources).to_string().into_bytes()))
        }
        (None, None) => return Err(Status::no_resource().into()),
    };
    let wanted = request.parameter("hash").filter(|wanted| !wanted.is_empty());
    if wanted.is_some_and(|wanted| wanted != hash) {
        let headers = vec![("Location", url(path, &hash))];
        return Ok(Response { status: 301, headers, content_type: JSON, body: Body::Bytes(Vec::new()) });
    }
    let mut response = etag::respond(request, &hash, JSON, bytes);
    if let (Some(_), Some(control)) = (wanted, response.headers.iter_mut().find(|(name, _)| *name == "Cache-Control")) {
        "public, immutable".clone_into(&mut control.1);
    }
    Ok(response)
}

fn version_2(cluster: &Cluster, request: &Request) -> Result<Response, Halt> {
    let custom = custom_resources(cluster);
    let hashes: Vec<String> = custom.values().map(|resources| custom::hash(resources)).collect();
    let hash = etag::hash(format!("{} {}", published::KUBERNETES, hashes.join(" ")).as_bytes());
    Ok(match accepted(request, &[JSON, PROTOBUF, PROTOBUF_OLD]) {
        Some(JSON) => etag::respond(request, &hash, JSON, || v2::json(custom.values()).into_bytes()),
        Some(_) => etag::respond(request, &hash, PROTOBUF, || v2::protobuf(custom.values())),
        None => not_acceptable(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use crate::Method::Get;
    use crate::request::{Body, Response};
    use crate::resource::{Names, Resource, Subresource};
    use crate::schema::Schema;
    use crate::testing::{quiet, request, respond};
    use crate::version::Version;

    fn document(response: &Response) -> Value {
        assert_eq!(response.status, 200);
        let Body::Bytes(bytes) = &response.body else { panic!("no bytes") };
        serde_json::from_slice(bytes).unwrap()
    }

    /// A resource as a definition makes it.
    fn tabs() -> Resource {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"cron": {"type": "string"}}}}});
        let definition = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        let version = Version {
            name: "v1".into(),
            schema: Arc::new(Schema::anything()),
            columns: Vec::new(),
            scale: None,
            selectable: vec!["spec.cron".into()],
            deprecated: None,
            definition: Arc::new(definition),
        };
        let names = Names {
            group: "stable.example.com".into(),
            plural: "crontabs".into(),
            singular: "crontab".into(),
            kind: "CronTab".into(),
            list_kind: "CronTabList".into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
        };
        let status = Subresource {
            name: "status".into(),
            group: names.group.clone(),
            version: "v1".into(),
            kind: names.kind.clone(),
            verbs: ["get", "patch", "update"].map(Into::into).into(),
        };
        Resource::custom(Arc::new(version), names, vec![status])
    }

    #[test]
    fn the_index_names_documents_by_their_hashes() {
        let mut cluster = quiet();
        let get = |target: &str| request(Get, target, &[], &json!(null));
        let index = document(&respond(&mut cluster, &get("/openapi/v3")));
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
        let found = respond(&mut cluster, &get(&url));
        assert!(found.headers.contains(&("Cache-Control", "public, immutable".to_owned())));
        assert!(document(&found)["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
        let moved = respond(&mut cluster, &get("/openapi/v3/apis/apps/v1?hash=OLD"));
        assert_eq!((moved.status, moved.headers[0].clone()), (301, ("Location", url)));
        assert_eq!(respond(&mut cluster, &get("/openapi/v3/apis/none/v1")).status, 404);
    }

    #[test]
    fn a_definition_has_a_document_of_its_own() {
        let mut cluster = quiet();
        let key = ("stable.example.com".into(), "v1".into(), "crontabs".into());
        cluster.definitions.insert(key, Arc::new(tabs()));
        let path = "/openapi/v3/apis/stable.example.com/v1";
        let found = document(&respond(&mut cluster, &request(Get, path, &[], &json!(null))));
        let schema = &found["components"]["schemas"]["com.example.stable.v1.CronTab"];
        assert_eq!(schema["properties"]["spec"]["properties"]["cron"], json!({"type": "string"}));
        assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "CronTab");
        assert_eq!(schema["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.cron"}]));
        let reference = schema["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap();
        assert!(
            found["components"]["schemas"][reference.rsplit('/').next().unwrap()]["properties"]["name"].is_object()
        );
        let item = &found["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"];
        assert_eq!(item["patch"]["operationId"], "patchStableExampleComV1NamespacedCronTab");
        assert_eq!(item["patch"]["tags"], json!(["stableExampleCom_v1"]));
        assert!(item["patch"]["parameters"].as_array().unwrap().iter().any(|of| of["name"] == "fieldValidation"));
        assert!(
            found["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/status"].is_object()
        );
        let second = document(&respond(&mut cluster, &request(Get, "/openapi/v2", &[], &json!(null))));
        let schema = &second["definitions"]["com.example.stable.v1.CronTab"];
        assert_eq!(
            schema["properties"]["metadata"]["$ref"],
            "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
        assert!(second["paths"]["/apis/stable.example.com/v1/crontabs"]["get"].is_object());
    }
}
