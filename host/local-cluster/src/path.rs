//! What the path of a request names. Input: the path. Output: a resource's address, or a document of the API server's. It
//! must not know which resources are served.

/// What a path asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path<'a> {
    /// Objects: `/api/v1/...` or `/apis/GROUP/VERSION/...` with a resource.
    Resource(Address<'a>),
    /// Anything else: discovery, OpenAPI, version, health. The segments.
    Document(Vec<&'a str>),
}

/// Which objects a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) subresource: Option<&'a str>,
}

pub(crate) fn parse(path: &str) -> Path<'_> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Path::Document(segments),
    };
    let address = Address { group, version, ..Address::default() };
    match rest {
        [] => Path::Document(segments),
        // A namespace itself, and its own subresources.
        ["namespaces"] => Path::Resource(Address { plural: "namespaces", ..address }),
        ["namespaces", name] => Path::Resource(Address { plural: "namespaces", name: Some(name), ..address }),
        ["namespaces", name, sub @ ("status" | "finalize")] => {
            Path::Resource(Address { plural: "namespaces", name: Some(name), subresource: Some(sub), ..address })
        }
        ["namespaces", namespace, plural, rest @ ..] => {
            Path::Resource(object(Address { plural, namespace: Some(namespace), ..address }, rest))
        }
        [plural, rest @ ..] => Path::Resource(object(Address { plural, ..address }, rest)),
    }
}

fn object<'a>(address: Address<'a>, rest: &[&'a str]) -> Address<'a> {
    Address { name: rest.first().copied(), subresource: rest.get(1).copied(), ..address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_objects_of_a_group() {
        let Path::Resource(found) = parse("/apis/apps/v1/namespaces/a/deployments/b/scale") else {
            panic!("no resource")
        };
        let wanted = Address {
            group: "apps",
            version: "v1",
            plural: "deployments",
            namespace: Some("a"),
            name: Some("b"),
            subresource: Some("scale"),
        };
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_namespace_is_an_object_of_its_own() {
        let Path::Resource(found) = parse("/api/v1/namespaces/a/status") else { panic!("no resource") };
        assert_eq!((found.plural, found.name, found.namespace), ("namespaces", Some("a"), None));
        let Path::Resource(found) = parse("/api/v1/namespaces/a/pods") else { panic!("no resource") };
        assert_eq!((found.plural, found.name, found.namespace), ("pods", None, Some("a")));
    }

    #[test]
    fn discovery_is_a_document() {
        assert_eq!(parse("/apis/apps/v1"), Path::Document(vec!["apis", "apps", "v1"]));
        assert_eq!(parse("/api/v1/"), Path::Document(vec!["api", "v1"]));
        assert_eq!(parse("/version"), Path::Document(vec!["version"]));
    }
}
