//! Groups with their versions and resources, in the order that clients prefer. Input: the cluster's resources. Output:
//! entries of discovery documents. It must not know paths.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Cluster;
use crate::published;
use crate::resource::{Resource, Subresource, api_version};

/// One group with its versions, the preferred one first.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) versions: Vec<(&'a str, Vec<&'a Resource>)>,
}

/// All groups: those that are built in by their priority, then those of definitions by name.
pub(super) fn all(cluster: &Cluster) -> Vec<Group<'_>> {
    let built_in = published::discovery()["items"].as_array().map_or(&[][..], Vec::as_slice);
    let rank =
        |name: &str| built_in.iter().position(|group| group["metadata"]["name"] == name).unwrap_or(built_in.len());
    let mut groups: BTreeMap<(usize, &str), BTreeMap<Preference<'_>, Vec<&Resource>>> = BTreeMap::new();
    for resource in cluster.resources() {
        let versions = groups.entry((rank(&resource.group), &*resource.group)).or_default();
        versions.entry(preference(&resource.version)).or_default().push(resource);
    }
    let groups = groups.into_iter().map(|((_, name), versions)| Group {
        name,
        versions: versions.into_iter().map(|((.., version), resources)| (version, resources)).collect(),
    });
    groups.collect()
}

/// The kind of a version, its two numbers, and its name.
type Preference<'a> = (u8, Reverse<u64>, Reverse<u64>, &'a str);

/// The place of a version among others: releases first, then betas, then alphas, the newest of each first, then other names.
fn preference(version: &str) -> Preference<'_> {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        for (class, word) in [(1, "beta"), (2, "alpha")] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((class, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((0, rest.parse().ok()?, 0))
    };
    let (class, major, minor) = parse().unwrap_or((3, 0, 0));
    (class, Reverse(major), Reverse(minor), version)
}

/// The numbers of a release such as `v1.36.3`.
pub(super) fn major_minor(version: &str) -> (u64, u64) {
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The `APIResourceList` of a version.
pub(super) fn resources(groups: &[Group<'_>], group: &str, version: &str) -> Option<Value> {
    let group = groups.iter().find(|known| known.name == group)?;
    let (_, resources) = group.versions.iter().find(|(known, _)| *known == version)?;
    let mut listed = Vec::new();
    for resource in resources {
        if !resource.verbs.is_empty() {
            let mut entry = json!({
                "name": *resource.plural, "singularName": *resource.singular, "namespaced": resource.namespaced,
                "kind": *resource.kind, "verbs": resource.verbs,
            });
            add_names(&mut entry, resource);
            if resource.verbs.iter().any(|verb| &**verb == "watch") {
                entry["storageVersionHash"] = storage_hash(resource, version).into();
            }
            listed.push(entry);
        }
        listed.extend(resource.subresources.iter().map(|subresource| {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": *subresource.kind, "verbs": subresource.verbs,
            });
            if !is_own(resource, subresource) {
                (entry["group"], entry["version"]) = ((*subresource.group).into(), (*subresource.version).into());
            }
            entry
        }));
    }
    Some(json!({
        "kind": "APIResourceList", "groupVersion": api_version(group.name, version), "resources": listed,
    }))
}

/// The hash of the version that a resource is stored in. Two kinds are stored in another one than they are served in.
fn storage_hash(resource: &Resource, version: &str) -> String {
    let (group, version) = match (&*resource.group, &*resource.kind) {
        ("events.k8s.io", "Event") => ("", "v1"),
        (group @ "apiextensions.k8s.io", _) => (group, "v1beta1"),
        (group, _) => (group, version),
    };
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind));
    STANDARD.encode(&digest[..8])
}

fn add_names(entry: &mut Value, resource: &Resource) {
    let lists: [(&str, &Vec<Arc<str>>); 2] =
        [("shortNames", &resource.short_names), ("categories", &resource.categories)];
    for (key, names) in lists {
        if !names.is_empty() {
            entry[key] = json!(names);
        }
    }
}

/// Whether a subresource has the group and version of its resource.
fn is_own(resource: &Resource, subresource: &Subresource) -> bool {
    subresource.group == resource.group && subresource.version == resource.version
}

impl Group<'_> {
    /// The entry of an `APIGroupList`.
    pub(super) fn entry(&self) -> Value {
        let version = |version: &str| json!({"groupVersion": api_version(self.name, version), "version": version});
        let versions: Vec<Value> = self.versions.iter().map(|(name, _)| version(name)).collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }

    /// The entry of an `APIGroupDiscoveryList`.
    pub(super) fn aggregated(&self) -> Value {
        let versions = self.versions.iter().map(|(version, resources)| {
            let resources: Vec<Value> = resources.iter().map(|resource| aggregated(resource)).collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        });
        let metadata = if self.name.is_empty() { json!({}) } else { json!({"name": self.name}) };
        json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
    }
}

fn aggregated(resource: &Resource) -> Value {
    // A built-in kind of the group and version that it is listed in leaves them empty; definitions say them.
    let kind = |group: &str, version: &str, kind: &str, own: bool| {
        let (group, version) = if own && resource.custom.is_none() { ("", "") } else { (group, version) };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = json!({
        "resource": *resource.plural, "responseKind": kind(&resource.group, &resource.version, &resource.kind, true),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": *resource.singular, "verbs": resource.verbs,
    });
    add_names(&mut entry, resource);
    let subresources = resource.subresources.iter().map(|subresource| {
        let own = is_own(resource, subresource);
        json!({
            "subresource": *subresource.name, "verbs": subresource.verbs,
            "responseKind": kind(&subresource.group, &subresource.version, &subresource.kind, own),
        })
    });
    let subresources: Vec<Value> = subresources.collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_and_steadier_versions_are_preferred() {
        let mut versions = [
            "v1beta1",
            "foo10",
            "v2",
            "v11alpha2",
            "v1",
            "v10beta3",
            "v3beta1",
            "foo1",
            "v12alpha1",
            "v10",
            "v11beta2",
        ];
        versions.sort_by_key(|version| preference(version));
        let wanted = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
        ];
        assert_eq!(versions, wanted);
    }

    #[test]
    fn a_release_has_two_numbers() {
        assert_eq!(major_minor("v1.36.3"), (1, 36));
    }
}
