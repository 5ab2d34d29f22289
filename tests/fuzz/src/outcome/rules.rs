//! What every write of a plan has to keep: whose objects it may write, what its body says of them, and by which precondition.

use mortise_core::limits::{MAX_DELETES_PER_PLAN, MAX_MESSAGE_BYTES};
use mortise_core::manifest::writes::{WriteVerb, allows, allows_subresource};
use mortise_core::object::Object;
use mortise_core::plan::{Diff, is_child};
use mortise_core::store::Snapshot;
use mortise_core::well_known::{CHILD_KEY_ANNOTATION, OWNER_UID_LABEL};
use mortise_core::write::request::request;
use mortise_core::write::{Precondition, Write, WriteId, WriteOp};

use super::case::Case;

pub(super) fn check_diff(case: &Case, snapshot: &Snapshot, diff: &Diff) {
    assert!(diff.deletes.len() <= MAX_DELETES_PER_PLAN);
    for op in &diff.children {
        let live = snapshot.get(&op.target().kind, &op.target().name).map(|live| &**live);
        check_child(case, live, op);
        check_request(op);
    }
    for op in &diff.deletes {
        let WriteOp::Delete { target, uid, .. } = op else { panic!("{op:?} among the deletes") };
        let live = snapshot.get(&target.kind, &target.name).expect("what is deleted was seen");
        assert!(live.uid == *uid && !live.deleting && is_child(&case.spec, &case.primary, live), "{op:?} of {live:?}");
        check_request(op);
    }
    for taken in diff.taken.iter().chain(&diff.skipped) {
        assert!(taken.to_string().len() <= MAX_MESSAGE_BYTES, "{taken}");
    }
}

/// A child that is created or changed is ours, and of nobody else.
fn check_child(case: &Case, live: Option<&Object>, op: &WriteOp) {
    let target = op.target();
    let owned = case.spec.owned(&target.kind).unwrap_or_else(|| panic!("{op:?} of a kind that is not owned"));
    let is_ours = |live: &Object| is_child(&case.spec, &case.primary, live);
    let (body, only_if) = match op {
        WriteOp::Create { body, .. } => (body, &Precondition::Absent),
        WriteOp::Apply { body, only_if, .. } => (body, only_if),
        WriteOp::Patch { only_if, .. } => {
            let live = live.expect("what is patched was seen");
            assert!(is_ours(live) && *only_if == Precondition::Is(live.uid.clone()), "{op:?} of {live:?}");
            return;
        }
        other => panic!("{other:?} among the children"),
    };
    match (only_if, live) {
        (Precondition::Absent, None) => {}
        (Precondition::Is(uid), Some(live)) => assert!(*uid == live.uid && is_ours(live) && !live.deleting, "{op:?}"),
        (Precondition::Unchanged { uid, version }, Some(live)) => {
            assert!(owned.adopt && live.controller.is_none() && *uid == live.uid && *version == live.resource_version);
        }
        (only_if, live) => panic!("{only_if:?} of {live:?}: {op:?}"),
    }
    let body = crate::json_of(body);
    let metadata = &body["metadata"];
    assert_eq!((&body["apiVersion"], &body["kind"]), (&(*target.kind.api_version).into(), &(*target.kind.kind).into()));
    assert_eq!(metadata["name"], *target.name.name);
    assert_eq!(metadata["namespace"].as_str().unwrap_or_default(), &*target.name.namespace);
    assert!(metadata["annotations"][CHILD_KEY_ANNOTATION].is_string());
    for field in ["uid", "resourceVersion", "finalizers", "generateName", "deletionTimestamp", "managedFields"] {
        assert!(metadata[field].is_null(), "metadata.{field} in {body}");
    }
    if owned.tracked {
        assert_eq!(metadata["labels"][OWNER_UID_LABEL], *case.primary.uid);
        assert!(metadata["ownerReferences"].is_null());
    } else {
        let owners = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let [owner] = owners else { panic!("{} owners in {body}", owners.len()) };
        assert!(owner["uid"] == *case.primary.uid && owner["controller"] == true, "{owner}");
    }
}

/// An action is declared, and what it removes was seen.
pub(super) fn check_action(case: &Case, snapshot: &Snapshot, op: &WriteOp) {
    let target = op.target();
    let verb = match op {
        WriteOp::Apply { .. } => WriteVerb::Apply,
        WriteOp::Patch { .. } => WriteVerb::Patch,
        WriteOp::Delete { .. } => WriteVerb::Delete,
        WriteOp::Evict { .. } => WriteVerb::Evict,
        other => panic!("{other:?} among the actions"),
    };
    assert!(allows(&case.spec.writes, &target.kind, verb), "{op:?}");
    if let WriteOp::Patch { subresource: Some(subresource), .. } = op {
        assert!(allows_subresource(&case.spec.writes, &target.kind, subresource));
    }
    if let WriteOp::Delete { uid, .. } | WriteOp::Evict { uid, .. } = op {
        let live = snapshot.get(&target.kind, &target.name).expect("what is removed was seen");
        assert!(live.uid == *uid && !live.deleting);
    }
    check_request(op);
}

fn check_request(op: &WriteOp) {
    let write = Write {
        id: WriteId(1),
        plugin: Some("podset".into()),
        cause: None,
        service_account: None,
        op: op.clone(),
        not_after_ms: None,
    };
    let request = request(&write, None).unwrap_or_else(|why| panic!("{why}: {op:?}"));
    crate::json_of(&request.body);
}
