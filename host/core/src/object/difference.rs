//! What makes one version of an object another, as far as the host has to tell.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::Object;

type Members<'a> = BTreeMap<&'a str, &'a str>;

fn members(text: &str) -> Option<Members<'_>> {
    // A name with an escape in it cannot be borrowed; then nothing is known, which is the careful answer.
    let raw: BTreeMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
    Some(raw.into_iter().map(|(name, value)| (name, value.get())).collect())
}

/// The object without its status and its resourceVersion, which every write of a status changes.
fn lasting(text: &str) -> Option<(Members<'_>, Members<'_>)> {
    let mut object = members(text)?;
    object.remove("status");
    let mut metadata = members(object.remove("metadata")?)?;
    metadata.remove("resourceVersion");
    Some((object, metadata))
}

impl Object {
    /// Whether another version of this object differs from it in nothing but its status and its resourceVersion.
    pub fn differs_only_in_status(&self, other: &Self) -> bool {
        lasting(self.json()).is_some_and(|one| Some(one) == lasting(other.json()))
    }
}

#[cfg(test)]
mod tests {
    use crate::object::{Interner, Object};

    #[test]
    fn w3_only_a_status_and_a_version_may_differ() {
        let object = |rest: &str| {
            let text = format!(r#"{{"apiVersion":"a/v1","kind":"A","metadata":{{"name":"n","uid":"u",{rest}}}}}"#);
            Object::decode(text.as_bytes(), &mut Interner::default()).unwrap()
        };
        let before = object(r#""resourceVersion":"1","labels":{"a":"b"}},"spec":{"n":1},"status":{"n":1"#);
        let status = object(r#""resourceVersion":"2","labels":{"a":"b"}},"spec":{"n":1},"status":{"n":2"#);
        let label = object(r#""resourceVersion":"2","labels":{"a":"c"}},"spec":{"n":1},"status":{"n":1"#);
        let spec = object(r#""resourceVersion":"2","labels":{"a":"b"}},"spec":{"n":2},"status":{"n":1"#);
        assert!(before.differs_only_in_status(&status));
        assert!(!before.differs_only_in_status(&label));
        assert!(!before.differs_only_in_status(&spec));
    }
}
