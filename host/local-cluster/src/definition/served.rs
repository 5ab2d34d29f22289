//! What a definition serves: one resource for each served version. Input: the definition's object. Output: entries among the
//! cluster's resources. It must not know conditions.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use super::field::{array, holds, is_definition, text, truth};
use crate::Cluster;
use crate::published;
use crate::resource::{Names, Resource, Subresource};
use crate::schema::{ScalePaths, Schema};
use crate::store::Object;
use crate::version::Version;

/// Serves what a created or changed definition says; other objects change nothing.
pub(crate) fn changed(cluster: &mut Cluster, resource: &Resource, object: &Arc<Object>) {
    if is_definition(resource) {
        withdraw(cluster, &object.value);
        if holds(&object.value, "Established") {
            serve(cluster, &object.value);
        }
    }
}

/// Stops to serve what a definition said.
pub(super) fn withdraw(cluster: &mut Cluster, definition: &Value) {
    let (group, plural) = (text(&definition["spec"], "group"), text(&definition["spec"]["names"], "plural"));
    let own = |(of, _, name): &&(Arc<str>, Arc<str>, Arc<str>)| **of == *group && **name == *plural;
    let own: Vec<_> = cluster.definitions.keys().filter(own).cloned().collect();
    for key in own {
        cluster.definitions.remove(&key);
    }
}

fn serve(cluster: &mut Cluster, object: &Value) {
    let definition = Arc::new(object.clone());
    let (spec, names) = (&object["spec"], &object["status"]["acceptedNames"]);
    let words =
        |key: &str| array(names, key).iter().filter_map(Value::as_str).map(Into::into).collect::<Vec<Arc<str>>>();
    let names = Names {
        group: text(spec, "group").into(),
        plural: text(names, "plural").into(),
        singular: text(names, "singular").into(),
        kind: text(names, "kind").into(),
        list_kind: text(names, "listKind").into(),
        short_names: words("shortNames"),
        categories: words("categories"),
        namespaced: spec["scope"] == "Namespaced",
    };
    let terminates = holds(object, "Terminating");
    for version in array(spec, "versions").iter().filter(|version| truth(version, "served")) {
        let name: Arc<str> = text(version, "name").into();
        let subresources = subresources(&names, &name, version);
        let served = Arc::new(read(&definition, version));
        let mut resource = Resource::custom(served, names.clone(), subresources);
        let verbs: &[&str] = if terminates {
            &["delete", "deletecollection", "get", "list", "watch"]
        } else {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        };
        resource.verbs = verbs.iter().map(|verb| (*verb).into()).collect();
        cluster.definitions.insert((names.group.clone(), name, names.plural.clone()), Arc::new(resource));
    }
}

fn subresources(names: &Names, version: &Arc<str>, of: &Value) -> Vec<Subresource> {
    let verbs: Vec<Arc<str>> = ["get", "patch", "update"].map(Into::into).into();
    let own = (names.group.clone(), version.clone(), names.kind.clone());
    let scale = ("autoscaling".into(), "v1".into(), "Scale".into());
    let known = [("status", own), ("scale", scale)];
    let there = known.into_iter().filter(|(name, _)| !of["subresources"][*name].is_null());
    let one = |(name, (group, version, kind)): (&str, _)| Subresource {
        name: name.into(),
        group,
        version,
        kind,
        verbs: verbs.clone(),
    };
    there.map(one).collect()
}

fn read(definition: &Arc<Value>, version: &Value) -> Version {
    let scale = Some(&version["subresources"]["scale"]).filter(|scale| scale.is_object());
    let paths = scale.map(|scale| ScalePaths {
        spec_replicas: text(scale, "specReplicasPath").to_owned(),
        status_replicas: text(scale, "statusReplicasPath").to_owned(),
    });
    let schema = &version["schema"]["openAPIV3Schema"];
    let fields = array(version, "selectableFields").iter().filter_map(|field| field["jsonPath"].as_str());
    let warning = version["deprecationWarning"].as_str().map(str::to_owned);
    Version {
        name: text(version, "name").into(),
        schema: Arc::new(Schema::custom(schema, published::metadata(), paths)),
        columns: array(version, "additionalPrinterColumns").to_vec(),
        scale: scale.cloned(),
        selectable: fields.map(|path| path.trim_start_matches('.').into()).collect(),
        deprecated: truth(version, "deprecated").then(|| warning.unwrap_or_else(|| deprecation(definition, version))),
        definition: definition.clone(),
    }
}

/// The warning of a deprecated version that has none of its own.
fn deprecation(definition: &Value, version: &Value) -> String {
    let (spec, name) = (&definition["spec"], text(version, "name"));
    let (group, kind) = (text(spec, "group"), text(&spec["names"], "kind"));
    let versions = array(spec, "versions").iter();
    let newer = versions.filter(|other| truth(other, "served") && !truth(other, "deprecated"));
    let newer = newer.map(|other| text(other, "name")).filter(|other| by_age(name, other) == Ordering::Less);
    let message = format!("{group}/{name} {kind} is deprecated");
    match newer.max_by(|a, b| by_age(a, b)) {
        Some(newest) => format!("{message}; use {group}/{newest} {kind}"),
        None => message,
    }
}

/// Orders versions by their age: `v1` after `v1beta2` after `v1alpha1` after what is no such version.
fn by_age(a: &str, b: &str) -> Ordering {
    fn parts(version: &str) -> Option<(u64, u8, u64)> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        match &rest[end..] {
            "" => Some((2, u8::MAX, major)),
            rest => {
                let (stage, minor) = match rest.strip_prefix("beta") {
                    Some(minor) => (1, minor),
                    None => (0, rest.strip_prefix("alpha")?),
                };
                Some((stage, u8::try_from(major).unwrap_or(u8::MAX), minor.parse().ok()?))
            }
        }
    }
    // Of two that are no such versions the first by name is newer.
    parts(a).cmp(&parts(b)).then_with(|| if parts(a).is_none() { b.cmp(a) } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_age() {
        let ordered = ["zoo", "foo", "v1alpha1", "v2alpha1", "v1beta1", "v1beta2", "v1", "v2", "v10"];
        for pair in ordered.windows(2) {
            assert_eq!(by_age(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
    }
}
