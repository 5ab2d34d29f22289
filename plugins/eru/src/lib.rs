//! Eru, the elegant rolling update, restarts Deployments at the ticks of a schedule. It has two controllers: one
//! creates an Eru for every annotated Deployment, the other restarts the Deployment of an Eru. The Deployment
//! controller rolls the Pods, and the host evaluates schedules.

use mortise_sdk::prelude::*;

mod adopt;
mod restart;
#[cfg(test)]
mod tests;

plugin!(adopt::adopt, restart::restart);

/// Restarts a Deployment at the ticks of a schedule.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "mtsre.meitu.com", version = "v1", kind = "Eru", status = EruStatus,
    column(name = "Deployment", path = ".spec.deployment"),
    column(name = "Schedule", path = ".spec.schedule"),
    column(name = "Suspend", type = "boolean", path = ".spec.suspend"),
    column(name = "Last Restart", type = "date", path = ".status.lastRestartTime"),
    column(name = "Restarts", type = "integer", path = ".status.restarts"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct EruSpec {
    /// The name of the Deployment, in the namespace of the Eru.
    #[schemars(length(min = 1, max = 253))]
    pub deployment: String,
    /// The schedule: five fields (minute, hour, day of month, month, day of week), or a macro such as @daily. Nothing
    /// is restarted without it.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The IANA time zone of the schedule; UTC unless given.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Nothing is restarted while this is true. Afterwards the newest missed tick restarts the Deployment.
    #[serde(default)]
    pub suspend: bool,
}

/// The last observed state of an Eru.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct EruStatus {
    /// The newest tick at which the Deployment was restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart_time: Option<Timestamp>,
    /// The next tick; none while suspended, and when the schedule never fires or does not parse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_restart_time: Option<Timestamp>,
    /// How often the Deployment was restarted.
    pub restarts: i64,
}
