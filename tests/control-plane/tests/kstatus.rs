//! kstatus judges conditions as its documentation says.

use anyhow::Result;
use mortise_control_plane::kstatus::{Status, status_of};
use serde_json::{Value, json};

fn object(conditions: &[(&str, &str)], observed: i64) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(name, status)| json!({"type": name, "status": status, "reason": "Because", "message": "of it"}))
        .collect();
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "a", "namespace": "b", "generation": 2},
        "status": {"observedGeneration": observed, "conditions": conditions},
    })
}

#[test]
fn kstatus_reads_stalled_before_reconciling_before_ready() -> Result<()> {
    for (conditions, observed, expected) in [
        (&[("Ready", "True")][..], 2, Status::Current),
        (&[("Ready", "False")], 2, Status::InProgress),
        (&[("Ready", "False"), ("Reconciling", "True")], 2, Status::InProgress),
        (&[("Ready", "False"), ("Stalled", "True")], 2, Status::Failed),
        (&[("Ready", "True")], 1, Status::InProgress),
        (&[], 2, Status::Current),
    ] {
        assert_eq!(status_of(&object(conditions, observed))?.0, expected, "{conditions:?} at {observed}");
    }
    let mut deleted = object(&[("Ready", "True")], 2);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(status_of(&deleted)?.0, Status::Terminating);
    let (_, message) = status_of(&object(&[("Stalled", "True")], 2))?;
    assert_eq!(message, "of it");
    assert!(status_of(&json!("no object")).is_err());
    Ok(())
}
