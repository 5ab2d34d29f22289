//! A Sealed has a Secret with a password and a certificate that the host makes. Its status shows what the plugin sees of
//! the Secret, so that a test can look for the values there.

use std::collections::BTreeMap;

use mortise_sdk::prelude::*;

/// A Secret with generated values.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Sealed", status = SealedStatus)]
#[serde(rename_all = "camelCase")]
pub struct SealedSpec {
    /// A new text asks for a new password.
    #[serde(default)]
    pub rotation: String,
    /// The names of the certificate; without one there is none.
    #[serde(default)]
    pub names: Vec<String>,
    /// How long the certificate is valid.
    #[serde(default)]
    pub lifetime_seconds: u64,
    /// The Secret's own data.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// Merge patches of other Secrets, by name.
    #[serde(default)]
    pub patches: BTreeMap<String, String>,
}

/// The last observed state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct SealedStatus {
    /// The Secrets as JSON, without their versions.
    pub seen: Vec<String>,
}

#[reconciler(owns("v1/Secret"), writes("v1/Secret", "patch"))]
fn reconcile(sealed: &Sealed, cx: &Context) -> Result<Outcome<SealedStatus>, Failure> {
    let spec = &sealed.spec;
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": sealed.metadata.name},
        "data": spec.data});
    secret["data"]["user"] = json!("YXBw");
    let password = Generated::alphanumeric(32).rotation(spec.rotation.as_str());
    let mut child = Child::new("secret", secret).generate("data.password", password);
    if !spec.names.is_empty() {
        child = child.generate("data", Generated::tls(&spec.names, Duration::from_secs(spec.lifetime_seconds)));
    }
    let secrets: Vec<Object> = cx.owned_of_kind("v1", "Secret", &["data", "metadata.annotations"])?;
    let seen = secrets.iter().map(|secret| secret.value().to_string()).collect();
    let mut outcome = Outcome::children([child]);
    for (name, body) in &spec.patches {
        let target = ObjectKey::new("v1", "Secret", sealed.metadata.namespace.as_deref(), name);
        outcome = outcome.action(Patch::merge(target, Json::raw(body.as_str())));
    }
    Ok(outcome.status(&SealedStatus { seen }).ready(!secrets.is_empty(), "Seen", ""))
}
