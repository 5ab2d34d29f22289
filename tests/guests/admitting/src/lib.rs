//! A guest with admission: it requires an image, sets a default policy, and misbehaves if the image says so. Its
//! reconcile does nothing.

use mortise_sdk::Operation;
use mortise_sdk::prelude::*;

/// Something with an image.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Picture")]
#[serde(rename_all = "camelCase")]
pub struct PictureSpec {
    /// "trap" and "loop" name what the validation does.
    #[serde(default)]
    pub image: String,
    /// When it is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Refuse deletion.
    #[serde(default)]
    pub keep: bool,
}

#[reconciler(admission(mutate = complete, validate = check, operations("create", "update", "delete")))]
fn reconcile(_picture: &Picture, _cx: &Context) -> Result<Outcome, Failure> {
    Ok(Outcome::new().ready(true, "Hung", "it needs nothing"))
}

/// Kubernetes' own rule, in part.
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
    loop {
        std::hint::spin_loop();
    }
}
