//! A guest whose calls never end: 256 at once, each until the longest deadline. Its admission may spin too.

use mortise_sdk::prelude::*;

/// Spins.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Spin", plural = "spins")]
#[serde(rename_all = "camelCase")]
pub struct SpinSpec {
    /// Whether the validation spins too.
    pub also_admission: bool,
}

#[reconciler(owns("v1/ConfigMap"), concurrency = 256, limits(deadline_ms = 10000), admission(validate = check))]
fn reconcile(_: &Spin, _: &Context) -> Result<Outcome, Failure> {
    spin()
}

fn check(spin: &Spin, _: &Review<Spin>) -> Verdict {
    if spin.spec.also_admission { self::spin() } else { Verdict::allowed() }
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
