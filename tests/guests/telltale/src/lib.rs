//! A plugin that tells what it sees: the data of each Secret are its last words.

use mortise_sdk::prelude::*;

#[derive(Projection)]
#[projection("v1/Secret")]
struct Secret<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("data")]
    data: Option<Value>,
}

#[reconciler]
fn reconcile(secret: &Secret, _cx: &Context) -> Result<Outcome, Failure> {
    match &secret.data {
        Some(data) => panic!("{} holds {data}", secret.name),
        None => Ok(Outcome::new()),
    }
}
