//! A Bundle's spec lists its children and what the host does with each, so that a test can try everything that an
//! outcome says of a child.

use std::collections::BTreeMap;

use mortise_sdk::prelude::*;

/// Children in groups.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Bundle", status = BundleStatus)]
pub struct BundleSpec {
    /// The groups in their order.
    pub groups: Vec<Vec<Item>>,
}

/// The last observed state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct BundleStatus {
    /// Children that exist.
    pub children: u32,
    /// Keys of children that were rejected, and why.
    pub rejected: BTreeMap<String, String>,
}

/// One child.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its key.
    pub key: String,
    /// Its name, unless the host derives one.
    pub name: Option<String>,
    /// A ConfigMap's data; without it the child is a Pod.
    pub data: Option<BTreeMap<String, String>>,
    /// The Pod's node selector.
    #[serde(default)]
    pub on: BTreeMap<String, String>,
    /// What the host does with it.
    #[serde(default)]
    pub handling: Handling,
    /// Leave it out while its name is taken.
    #[serde(default)]
    pub or_skip: bool,
    /// Make an existing object of its name a child.
    #[serde(default)]
    pub adopt: bool,
    /// Its data has no other members.
    #[serde(default)]
    pub exact: bool,
    /// Do without it when the API server refuses it.
    #[serde(default)]
    pub optional: bool,
}

/// As in the contract.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Default, Debug)]
#[serde(rename_all = "camelCase")]
pub enum Handling {
    /// Changed as its kind says.
    #[default]
    Managed,
    /// Not changed after.
    CreateOnce,
    /// Not deleted.
    Keep,
}

#[reconciler(owns("v1/ConfigMap", adopt = true), owns("v1/Pod", update = "recreate", adopt = true))]
fn reconcile(bundle: &Bundle, cx: &Context) -> Result<Outcome<BundleStatus>, Failure> {
    let rejected: BTreeMap<String, String> =
        cx.rejected().into_iter().filter_map(|rejected| Some((rejected.child?, rejected.reason))).collect();
    let mut outcome = Outcome::children([]);
    for group in &bundle.spec.groups {
        let possible = group.iter().filter(|item| !(item.optional && rejected.contains_key(&item.key)));
        outcome = outcome.then(possible.map(child));
    }
    let config_maps: Vec<Object> = cx.owned_of_kind("v1", "ConfigMap", &["metadata.name"])?;
    let pods: Vec<Object> = cx.owned_of_kind("v1", "Pod", &["metadata.name"])?;
    let children = (config_maps.len() + pods.len()) as u32;
    Ok(outcome.status(&BundleStatus { children, rejected }).ready(true, "Bundled", ""))
}

fn child(item: &Item) -> Child {
    let kind = if item.data.is_some() { "ConfigMap" } else { "Pod" };
    if matches!(item.handling, Handling::Keep) {
        return Child::keep(item.key.as_str(), "v1", kind);
    }
    let mut object = match &item.data {
        Some(data) => json!({"data": data}),
        None => json!({"spec": {"containers": [{"name": "main", "image": "busybox"}], "nodeSelector": item.on}}),
    };
    if let Some(name) = &item.name {
        object["metadata"] = json!({"name": name});
    }
    let mut child = Child::new(item.key.as_str(), Json::of_kind("v1", kind, &object));
    if matches!(item.handling, Handling::CreateOnce) {
        child = child.create_once();
    }
    if item.or_skip {
        child = child.or_skip();
    }
    if item.adopt {
        child = child.adopt();
    }
    if item.exact {
        child = child.exact("data");
    }
    child
}
