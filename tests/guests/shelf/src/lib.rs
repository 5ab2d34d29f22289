//! A Shelf's status shows what the plugin sees: it declares the Secrets of one namespace and the ConfigMaps with a
//! label. `tests/guests/library` declares all Secrets.

use mortise_sdk::prelude::*;

/// Shows what the plugin sees.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Shelf", plural = "shelves", status = ShelfStatus)]
pub struct ShelfSpec {
    /// A namespace to read a Secret "x" of.
    pub elsewhere: String,
}

/// What the last call saw.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ShelfStatus {
    /// Secrets, as "namespace/name".
    pub secrets: Vec<String>,
    /// ConfigMaps.
    pub config_maps: Vec<String>,
    /// The error of the read elsewhere.
    pub elsewhere: String,
}

fn spoken(keys: Vec<ObjectKey>) -> Vec<String> {
    let one = |key: ObjectKey| [key.namespace.as_deref().unwrap_or_default(), "/", &key.name].concat();
    keys.into_iter().map(one).collect()
}

#[reconciler(
    reads("v1/Secret", namespaces = ["e2e-scopes-a"]),
    reads("v1/ConfigMap", labels = "test.mortise.dev/shelf=yes")
)]
fn reconcile(shelf: &Shelf, cx: &Context) -> Result<Outcome<ShelfStatus>, Failure> {
    let secrets = spoken(cx.keys(&Query::<Object>::of_kind("v1", "Secret"))?);
    let config_maps = spoken(cx.keys(&Query::<Object>::of_kind("v1", "ConfigMap"))?);
    let elsewhere = Query::<Object>::of_kind("v1", "Secret").namespace(&shelf.spec.elsewhere);
    let elsewhere = cx.keys(&elsewhere).err().map(|error| error.to_string()).unwrap_or_default();
    Ok(Outcome::default().status(&ShelfStatus { secrets, config_maps, elsewhere }))
}
