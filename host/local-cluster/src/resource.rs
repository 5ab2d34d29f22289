//! What the API server serves: one entry for each resource of each version, built in or from a definition. It must not
//! know objects.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::published;
use crate::schema::Schema;
use crate::version::Version;

/// A subresource, such as `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) verbs: Vec<Arc<str>>,
}

/// One resource in one version, such as `apps/v1 deployments`.
#[derive(Debug)]
pub(crate) struct Resource {
    names: Names,
    pub(crate) version: Arc<str>,
    pub(crate) verbs: Vec<Arc<str>>,
    pub(crate) subresources: Vec<Subresource>,
    /// Where its objects are stored: those of one group and plural are the same in all versions.
    pub(crate) storage: Storage,
    /// The version of a CustomResourceDefinition that serves it; none is built in.
    pub(crate) custom: Option<Arc<Version>>,
    schema: LazyLock<Arc<Schema>, Box<dyn FnOnce() -> Arc<Schema> + Send + Sync>>,
    /// What managed fields compare a new object with.
    pub(crate) before_creation: OnceLock<Value>,
}

/// What a resource is called in all its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
    pub(crate) singular: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) list_kind: Arc<str>,
    pub(crate) short_names: Vec<Arc<str>>,
    pub(crate) categories: Vec<Arc<str>>,
    pub(crate) namespaced: bool,
}

impl Deref for Resource {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.names
    }
}

/// The group and plural that objects are stored by, such as `apps/deployments`; core has an empty group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Storage {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

impl Storage {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }
}

impl Resource {
    /// A resource that a definition's version serves.
    pub(crate) fn custom(version: Arc<Version>, names: Names, subresources: Vec<Subresource>) -> Self {
        let schema = version.schema.clone();
        Self {
            version: version.name.clone(),
            verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
                .map(Into::into)
                .into(),
            subresources,
            storage: Storage { group: names.group.clone(), plural: names.plural.clone() },
            names,
            custom: Some(version),
            schema: LazyLock::new(Box::new(move || schema)),
            before_creation: OnceLock::new(),
        }
    }

    /// `apps/v1`, or `v1` in the core group.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| &**known == verb)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| &*subresource.name == name)
    }

    /// The schema of its objects, compiled when it is first asked for.
    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Whether only `/status` writes the status.
    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Group and version of an `apiVersion`.
pub(crate) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Group, version and plural.
pub(crate) type Key = (Arc<str>, Arc<str>, Arc<str>);
/// All resources that are built in.
pub(crate) type Table = BTreeMap<Key, Arc<Resource>>;

/// What is built in, from the discovery document that Kubernetes publishes.
pub(crate) fn built_in() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut table = Table::new();
        for group in array(published::discovery(), "items") {
            let name: Arc<str> = group["metadata"]["name"].as_str().unwrap_or_default().into();
            for version in array(group, "versions") {
                let label: Arc<str> = text(version, "version");
                for resource in array(version, "resources") {
                    let resource = Arc::new(read(&name, &label, resource));
                    table.insert((name.clone(), label.clone(), resource.plural.clone()), resource);
                }
            }
        }
        table
    });
    &TABLE
}

/// Where the objects of a built-in resource are stored.
fn storage(group: &str, plural: &str) -> Storage {
    match (group, plural) {
        ("events.k8s.io", "events") => Storage::new("", "events"),
        _ => Storage::new(group, plural),
    }
}

fn read(group: &Arc<str>, version: &Arc<str>, value: &Value) -> Resource {
    let kind = text(&value["responseKind"], "kind");
    let subresources = array(value, "subresources").iter().map(|sub| {
        let of = &sub["responseKind"];
        let or = |text: Arc<str>, default: &Arc<str>| if text.is_empty() { default.clone() } else { text };
        let (sub_group, sub_version) = (text(of, "group"), text(of, "version"));
        // An empty group and version mean those of the resource; core's group is empty itself, with a version.
        let sub_group = if sub_version.is_empty() { group.clone() } else { sub_group };
        Subresource {
            name: text(sub, "subresource"),
            group: sub_group,
            version: or(sub_version, version),
            kind: text(of, "kind"),
            verbs: texts(sub, "verbs"),
        }
    });
    let (of_group, of_version, of_kind) = (group.clone(), version.clone(), kind.clone());
    let plural = text(value, "resource");
    let names = Names {
        group: group.clone(),
        singular: text(value, "singularResource"),
        list_kind: format!("{kind}List").into(),
        short_names: texts(value, "shortNames"),
        categories: texts(value, "categories"),
        namespaced: value["scope"] == "Namespaced",
        plural,
        kind,
    };
    Resource {
        version: version.clone(),
        verbs: texts(value, "verbs"),
        subresources: subresources.collect(),
        storage: storage(group, &names.plural),
        names,
        custom: None,
        schema: LazyLock::new(Box::new(move || published::schema(&of_group, &of_version, &of_kind))),
        before_creation: OnceLock::new(),
    }
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> Arc<str> {
    value.get(key).and_then(Value::as_str).unwrap_or_default().into()
}

fn texts(value: &Value, key: &str) -> Vec<Arc<str>> {
    array(value, key).iter().filter_map(Value::as_str).map(Into::into).collect()
}
