//! A Library's status shows what the plugin sees: it declares all Secrets, of which `tests/guests/shelf` declares a part.

use mortise_sdk::prelude::*;

/// Shows what the plugin sees.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Library", plural = "libraries", status = LibraryStatus)]
pub struct LibrarySpec {
    /// A label selector.
    pub labels: String,
}

/// What the last call saw.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct LibraryStatus {
    /// Secrets, as "namespace/name".
    pub secrets: Vec<String>,
}

#[reconciler(reads("v1/Secret"))]
fn reconcile(library: &Library, cx: &Context) -> Result<Outcome<LibraryStatus>, Failure> {
    let keys = cx.keys(&Query::<Object>::of_kind("v1", "Secret").selector(&library.spec.labels))?;
    let spoken = |key: ObjectKey| [key.namespace.as_deref().unwrap_or_default(), "/", &key.name].concat();
    Ok(Outcome::default().status(&LibraryStatus { secrets: keys.into_iter().map(spoken).collect() }))
}
