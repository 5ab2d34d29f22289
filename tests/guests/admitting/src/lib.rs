//! A guest that is asked before objects are stored: it wants an image, fills in a policy, and misbehaves when the image says
//! so. Reconciling is no matter here; it owns nothing.

use mortise_sdk::Operation;
use mortise_sdk::prelude::*;

/// Something with an image.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Picture")]
#[serde(rename_all = "camelCase")]
pub struct PictureSpec {
    /// Which image; "trap" and "loop" are what the check does then.
    #[serde(default)]
    pub image: String,
    /// When it is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Nobody may delete it.
    #[serde(default)]
    pub keep: bool,
}

#[reconciler(admission(mutate = complete, validate = check, operations("create", "update", "delete")))]
fn reconcile(_picture: &Picture, _cx: &Context) -> Result<Outcome, Failure> {
    Ok(Outcome::new().ready(true, "Hung", "it needs nothing"))
}

/// Kubernetes' own rule, as far as these tests need it.
fn complete(picture: &mut Picture, _review: &Review<Picture>) {
    let policy = if picture.spec.image.contains(':') { "IfNotPresent" } else { "Always" };
    picture.spec.image_pull_policy.get_or_insert_with(|| policy.to_owned());
}

fn check(picture: &Picture, review: &Review<Picture>) -> Verdict {
    if review.operation == Operation::Delete && picture.spec.keep {
        return Violation::new("", "it is kept").into();
    }
    match &*picture.spec.image {
        "" => Violation::required("spec.image", "image is required").into(),
        "trap" => panic!("it traps because spec.image is trap"),
        "loop" => spin(),
        "old" => Verdict::allowed().warning("spec.image: \"old\" is deprecated"),
        _ => Verdict::allowed(),
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
