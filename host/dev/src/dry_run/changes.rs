//! What became of a copy, as a unified diff. Input: the copy, and the objects that were written. Output: text. It must not
//! know who wrote them.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use mortise_core::object::{Kind, Name, ObjectRef};
use serde_json::Value;
use similar::TextDiff;

use super::copy::Copied;
use crate::samples;

/// Lines around a change.
const CONTEXT: usize = 3;
/// What the API server sets in every object, and what differs from run to run.
const OF_THE_SERVER: [&str; 5] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The diff of each object that was written, and of definitions. Events are left out: they say what the rest shows.
pub(super) async fn text(client: &Client, copy: &Copied, written: &BTreeSet<ObjectRef>) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut targets = definitions(client).await?;
    targets.extend(written.iter().filter(|target| &*target.kind.kind != "Event").cloned());
    for target in targets {
        let now = read(client, &target).await?;
        text += &diff(&target.to_string(), copy.get(&target), now.as_ref());
    }
    Ok(text)
}

/// The definitions that the host registers for plugins, but not its own.
async fn definitions(client: &Client) -> anyhow::Result<BTreeSet<ObjectRef>> {
    let kind = Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let of = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk_with_plural(&of, "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let names = api.list(&ListParams::default()).await?.items.into_iter().filter_map(|found| found.metadata.name);
    let names = names.filter(|name| name != "plugins.mortise.dev");
    Ok(names.map(|name| ObjectRef { kind: kind.clone(), name: Name::new("", &name) }).collect())
}

async fn read(client: &Client, target: &ObjectRef) -> anyhow::Result<Option<Value>> {
    let (group, version) = target.kind.api_version.split_once('/').unwrap_or(("", &target.kind.api_version));
    let kind = GroupVersionKind::gvk(group, version, &target.kind.kind);
    let found = samples::api(client, &kind, &target.name.namespace).await?.get_opt(&target.name.name).await?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

fn diff(name: &str, before: Option<&Value>, now: Option<&Value>) -> String {
    let (old, new) = (shown(before), shown(now));
    if old == new {
        return String::new();
    }
    let side = |there: bool| if there { name.to_owned() } else { "/dev/null".to_owned() };
    let diff = TextDiff::from_lines(&old, &new);
    let mut unified = diff.unified_diff();
    unified.context_radius(CONTEXT).header(&side(before.is_some()), &side(now.is_some())).to_string()
}

/// An object as YAML, without what the API server sets.
fn shown(object: Option<&Value>) -> String {
    let Some(mut object) = object.cloned() else { return String::new() };
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !OF_THE_SERVER.contains(&key.as_str()));
    }
    let mut text = serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string());
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_plugin_decides_is_shown() {
        let object = |version: &str, replicas: u32| json!({"kind": "Set", "metadata": {"name": "a", "resourceVersion": version}, "spec": {"replicas": replicas}});
        let (before, now) = (object("1", 2), object("9", 3));
        assert_eq!(diff("v1/Set d/a", Some(&before), Some(&object("9", 2))), "");
        let changed = diff("v1/Set d/a", Some(&before), Some(&now));
        assert!(changed.starts_with("--- v1/Set d/a\n+++ v1/Set d/a\n@@"), "{changed}");
        assert!(
            changed.contains("\n-  replicas: 2\n+  replicas: 3\n") && !changed.contains("resourceVersion"),
            "{changed}"
        );
        let made = diff("v1/Set d/a", None, Some(&now));
        assert!(made.starts_with("--- /dev/null\n+++ v1/Set d/a\n") && !made.contains("\n-"), "{made}");
    }
}
