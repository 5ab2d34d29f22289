//! What a request is about, as the API server's audit log and metrics name it. Input: a request. Output: names. It must not
//! know whether the resource is served or the object is there.

use jiff::Timestamp;

use crate::path::{self, Path};
use crate::request::{Method, Request};
use crate::user::User;
use crate::{Cluster, access};

/// What a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; of a document the HTTP method.
    pub verb: &'static str,
    /// The API group, empty for the core group.
    pub group: String,
    /// The version; empty for a document.
    pub version: String,
    /// The plural; empty for a document, such as `/readyz`.
    pub resource: String,
    /// The namespace; of a Namespace its own name.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// `status`, `scale` and the like.
    pub subresource: String,
}

impl Subject {
    /// What a request is about, from its method and path alone.
    pub fn of(request: &Request) -> Self {
        let address = match path::parse(&request.path) {
            Path::Resource(address) => address,
            Path::Document(_) => return Self { verb: method(request.method), ..Self::default() },
        };
        let own = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let is_namespace = address.plural == "namespaces" && address.group.is_empty();
        Self {
            verb: request.verb(&address),
            group: address.group.to_owned(),
            version: address.version.to_owned(),
            resource: address.plural.to_owned(),
            namespace: own(if is_namespace { address.name } else { address.namespace }),
            name: own(address.name),
            subresource: own(address.subresource),
        }
    }
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}

impl Cluster {
    /// Who sends a request, not whom he impersonates; none when the credentials are not known.
    pub fn user(&self, request: &Request, now: Timestamp) -> Option<User> {
        access::sender(self, request, now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::request;

    #[test]
    fn a_subject_has_the_names_of_the_path() {
        for (method, target, wanted) in [
            (Method::Get, "/apis/apps/v1/namespaces/a/deployments/b/scale", "get apps v1 deployments a b scale"),
            (Method::Get, "/api/v1/pods?watch=true", "watch  v1 pods   "),
            (Method::Post, "/api/v1/namespaces/a/pods", "create  v1 pods a  "),
            (Method::Delete, "/api/v1/namespaces/a", "delete  v1 namespaces a a "),
            (Method::Get, "/readyz", "get      "),
        ] {
            let found = Subject::of(&request(method, target, &[], &json!(null)));
            let parts = [
                found.verb,
                &found.group,
                &found.version,
                &found.resource,
                &found.namespace,
                &found.name,
                &found.subresource,
            ];
            assert_eq!(parts.join(" "), wanted, "{target}");
        }
    }
}
