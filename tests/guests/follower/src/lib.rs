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

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Cluster;

    use super::*;

    fn follow(api_version: &str, kind: &str) -> Follow {
        let target_ref = TargetRef { api_version: api_version.into(), kind: kind.into(), name: "web".into() };
        let mut follow = Follow::new("a", FollowSpec { target_ref });
        follow.metadata.namespace = Some("default".into());
        follow
    }

    fn reason(cluster: &Cluster, follow: &Follow) -> String {
        let outcome = cluster.reconcile(follow).expect("the target is within the patterns");
        outcome.condition_of("Ready").expect("it has a Ready").reason.clone()
    }

    #[test]
    fn a_target_of_a_kind_within_the_patterns_is_followed() {
        let mut cluster = Cluster::of(&PLUGIN);
        for (api_version, kind) in [("apps/v1", "StatefulSet"), ("a.follow.mortise.dev/v1", "Gauge")] {
            let follow = follow(api_version, kind);
            assert_eq!(reason(&cluster, &follow), "NotFound");
            cluster.add(&json!({"apiVersion": api_version, "kind": kind, "spec": {"replicas": 3},
                "metadata": {"name": "web", "namespace": "default"}}));
            let outcome = cluster.reconcile(&follow).expect("it is followed");
            assert_eq!(outcome.status_value(), json!({"replicas": 3}));
        }
    }

    #[test]
    fn a_kind_that_is_not_served_is_an_answer_and_one_outside_of_the_patterns_an_error() {
        let mut cluster = Cluster::of(&PLUGIN);
        cluster.set_not_served("a.follow.mortise.dev/v1", "Gauge");
        assert_eq!(reason(&cluster, &follow("a.follow.mortise.dev/v1", "Gauge")), "NotServed");
        let failure = cluster.reconcile(&follow("v1", "Secret")).expect_err("no pattern has it");
        assert!(matches!(&failure, Failure::Terminal(why) if why.contains("no pattern has it")), "{failure}");
    }
}
