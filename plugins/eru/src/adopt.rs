//! Which Deployments have an Eru of their own: those whose annotation says so. A Deployment goes in, and the Eru that it
//! should own comes out, or none. It knows nothing of ticks.

use mortise_sdk::Value;
use mortise_sdk::prelude::*;

use crate::Eru;

/// What of a Deployment asks for an Eru.
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

/// Every Deployment is looked at, and not a selection: the Eru of one whose annotation was taken away has to go.
#[controller(owns(Eru))]
pub(crate) fn adopt(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
    let asks = deployment.eru.as_deref() == Some("true");
    Ok(Outcome::children(asks.then(|| Child::new("eru", &eru(deployment)))))
}

/// Of the spec it has only what the Deployment says: the rest is set by people on the Eru, and stays theirs.
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
