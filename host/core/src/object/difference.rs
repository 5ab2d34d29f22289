//! Compares two versions of one object.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::Object;

type Members<'a> = BTreeMap<&'a str, &'a str>;

fn members(text: &str) -> Option<Members<'_>> {
    // A name with an escape cannot be borrowed. Then None lets the versions count as different, which is safe.
    let raw: BTreeMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
    Some(raw.into_iter().map(|(name, value)| (name, value.get())).collect())
}

/// The members that a write of the status leaves as they are.
fn lasting(text: &str) -> Option<(Members<'_>, Members<'_>)> {
    let mut object = members(text)?;
    object.remove("status");
    let mut metadata = members(object.remove("metadata")?)?;
    metadata.remove("resourceVersion");
    Some((object, metadata))
}

impl Object {
    /// Whether the versions differ only in status and resourceVersion.
    pub fn differs_only_in_status(&self, other: &Self) -> bool {
        lasting(self.json()).is_some_and(|one| Some(one) == lasting(other.json()))
    }
}

#[cfg(test)]
mod tests {
    use crate::object::tests::decode;

    #[test]
    fn w3_only_a_status_and_a_version_may_differ() {
        let object = |rest: &str| {
            decode(&format!(r#"{{"apiVersion":"a/v1","kind":"A","metadata":{{"name":"n","uid":"u",{rest}}}}}"#))
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
