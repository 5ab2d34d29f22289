//! Creates an Eru for each annotated Deployment: from a Deployment to the Eru that it should own, if any. This file
//! must not know ticks.

use mortise_sdk::Value;
use mortise_sdk::prelude::*;

use crate::Eru;

/// The fields of a Deployment that are read.
#[derive(Projection)]
#[projection("apps/v1/Deployment")]
pub(crate) struct Deployment<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.annotations[\"mtsre.meitu.com/eru\"]")]
    eru: Option<String>,
    #[field("metadata.annotations[\"mtsre.meitu.com/eru-schedule\"]")]
    schedule: Option<String>,
}

/// It has no predicate, because the Eru of a Deployment whose annotation was removed has to be deleted.
#[controller(owns(Eru))]
pub(crate) fn adopt(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
    let is_annotated = deployment.eru.as_deref() == Some("true");
    Ok(Outcome::children(is_annotated.then(|| Child::new("eru", eru(deployment)))))
}

/// It has only the fields that the Deployment determines; users own the others.
fn eru(deployment: &Deployment) -> Value {
    let mut spec = json!({"deployment": deployment.name});
    if let Some(schedule) = &deployment.schedule {
        spec["schedule"] = json!(schedule);
    }
    json!({
        "apiVersion": Eru::API_VERSION,
        "kind": Eru::KIND,
        "metadata": {"name": deployment.name},
        "spec": spec,
    })
}
