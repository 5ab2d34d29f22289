//! A Follow shows how many replicas the object of `spec.targetRef` wants, whose kind the author of the plugin does not
//! know: one of apps/v1, or of a group below follow.mortise.dev.

use mortise_sdk::ReadError;
use mortise_sdk::prelude::*;

/// Follows another object.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Follow", status = FollowStatus)]
#[serde(rename_all = "camelCase")]
pub struct FollowSpec {
    /// What to follow, in the same namespace.
    pub target_ref: TargetRef,
}

/// An object of any kind.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The last observed state.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct FollowStatus {
    /// The target's `spec.replicas`.
    pub replicas: Option<i64>,
}

#[reconciler(reads("apps/v1/*", "*.follow.mortise.dev/*"))]
fn reconcile(follow: &Follow, cx: &Context) -> Result<Outcome<FollowStatus>, Failure> {
    let TargetRef { api_version, kind, name } = &follow.spec.target_ref;
    let key = ObjectKey::new(api_version, kind, follow.metadata.namespace.as_deref(), name);
    let target: Option<Object> = match cx.get_key_fields(&key, &["spec.replicas"]) {
        Err(ReadError::NotServed(why)) => return Ok(Outcome::new().ready(false, "NotServed", why)),
        target => target?,
    };
    let Some(target) = target else { return Ok(Outcome::new().ready(false, "NotFound", "there is no such object")) };
    let replicas = target.at("spec.replicas").and_then(Value::as_i64);
    Ok(Outcome::new().status(&FollowStatus { replicas }).ready(true, "Followed", "see status.replicas"))
}
