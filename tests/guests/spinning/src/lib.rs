//! A guest whose calls never end: 256 at once, each until the longest deadline that there is. Its admission webhook spins too.

use mortise_sdk::prelude::*;

/// Spins.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Spin", plural = "spins")]
#[serde(rename_all = "camelCase")]
pub struct SpinSpec {
    /// Whether creates are asked about, which spins as well.
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
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
