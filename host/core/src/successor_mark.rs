//! The mark on an object whose children may have had successors (X3): whether an object has it, and the write that sets it.
//! Only the host that created a successor knew its name; of an object without the mark every host knows all names. The
//! engine decides when it is set, and what waits for it.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::contract::PatchKind;
use crate::object::Object;
use crate::well_known::SUCCESSORS_ANNOTATION;
use crate::write::{Precondition, WriteOp};

/// Whether an object has the mark. Only a text that has the name anywhere is parsed.
pub fn is_marked(object: &Object) -> bool {
    #[derive(Deserialize)]
    struct WithMetadata {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        annotations: Option<Annotations>,
    }
    #[derive(Deserialize)]
    struct Annotations {
        #[serde(rename = "mortise.dev/successors")]
        successors: Option<String>,
    }
    if !object.json().contains(SUCCESSORS_ANNOTATION) {
        return false;
    }
    let read = serde_json::from_str::<WithMetadata>(object.json()).ok();
    let annotations = read.and_then(|object| object.metadata.annotations);
    annotations.is_some_and(|annotations| annotations.successors.as_deref() == Some("true"))
}

/// The write that marks an object.
pub fn mark(object: &Object) -> WriteOp {
    let body = json!({"metadata": {"annotations": {SUCCESSORS_ANNOTATION: "true"}}});
    WriteOp::Patch {
        target: object.reference(),
        patch_kind: PatchKind::Merge,
        body: Arc::from(body.to_string()),
        subresource: None,
        only_if: Precondition::Is(Arc::clone(&object.uid)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::object::tests::decode;

    fn object(annotations: &Value) -> Object {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Crowd",
            "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "annotations": annotations},
            "spec": {"note": "mortise.dev/successors is only a text here"}});
        decode(&object.to_string())
    }

    #[test]
    fn an_object_is_marked_by_its_annotation_and_by_nothing_else() {
        let bare = object(&Value::Null);
        assert!(!is_marked(&bare) && !is_marked(&object(&json!({"mortise.dev/successors": "false"}))));
        let WriteOp::Patch { body, only_if, .. } = mark(&bare) else { panic!("a patch") };
        assert_eq!(only_if, Precondition::Is("u".into()), "X4: the object that was seen");
        let patch: Value = serde_json::from_str(&body).unwrap();
        assert!(is_marked(&object(&patch["metadata"]["annotations"])));
    }
}
