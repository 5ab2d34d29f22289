//! Rejections: what a guest reads of the writes of its outcomes that were refused or impossible, and when it is called for
//! them.

use super::*;
use crate::rejection::Rejection;

/// The first call reads what was rejected, and wants a child. What it read: the child's key and the reason.
fn reads_rejected(alone: &mut Alone) -> Vec<String> {
    reads_and_returns(alone, wants(1))
}

fn reads_and_returns(alone: &mut Alone, result: CallResult) -> Vec<String> {
    let mut found = Vec::new();
    alone.returns_with(result, |view| {
        let text = |rejection: &Rejection| format!("{:?} {}", rejection.child.as_deref(), rejection.reason);
        found = view.rejected().iter().map(text).collect();
    });
    found
}

#[test]
fn w1_a_refused_write_is_an_input_of_the_next_call_until_it_succeeds() {
    let mut alone = Alone::serving(&["web"]);
    assert_eq!(reads_rejected(&mut alone), NONE);
    alone.fail(WriteErrorClass::Invalid);
    assert_eq!(alone.called(), NONE, "it comes back with backoff");
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(reads_rejected(&mut alone), ["Some(\"0\") Invalid"]);
    alone.fail(WriteErrorClass::Invalid);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!((alone.called(), alone.writes().len()), (vec![], 1), "the same refusal is no reason to call");
    let child = alone.accept();
    alone.show(&child);
    assert_eq!(reads_rejected(&mut alone), NONE);
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]));
}

#[test]
fn w1_a_refused_write_is_forgotten_with_the_generation_that_wanted_it() {
    let mut alone = Alone::serving(&["web"]);
    reads_rejected(&mut alone);
    alone.fail(WriteErrorClass::Invalid);
    let mut changed = object("PodSet", "web");
    changed["metadata"]["generation"] = json!(2);
    alone.put(changed);
    assert_eq!(reads_rejected(&mut alone), NONE);
}

#[test]
fn w1_a_taken_name_is_an_input_of_the_next_call_until_it_is_free() {
    let mut alone = Alone::serving(&["web"]);
    reads_rejected(&mut alone);
    let name = alone.sent[0].1.target().name.name.to_string();
    alone.put(object("ConfigMap", &name));
    alone.fail(WriteErrorClass::Conflict);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(reads_rejected(&mut alone), ["Some(\"0\") ChildExists"], "the cache shows it before a write");
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]), "it is known now");
    alone.delete("ConfigMap", &name);
    assert_eq!(alone.writes(), NONE, "the plugin is asked first");
    assert_eq!(reads_rejected(&mut alone), NONE);
    assert_eq!((alone.called(), alone.writes().len()), (vec![], 1));
    alone.settle();
    assert_eq!(alone.called(), NONE);
}

/// A call has read that the name of its child is taken.
fn with_a_taken_name() -> (Alone, String) {
    let mut alone = Alone::serving(&["web"]);
    reads_rejected(&mut alone);
    let name = alone.sent[0].1.target().name.name.to_string();
    alone.put(object("ConfigMap", &name));
    alone.fail(WriteErrorClass::Conflict);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(alone.called().len(), 1);
    (alone, name)
}

#[test]
fn w1_a_name_that_is_free_again_is_an_input_also_after_a_failure_and_of_a_plugin_that_does_without_it() {
    for result in [CallResult::Failed(Failure::Terminal("taken".to_owned())), wants(0)] {
        let (mut alone, name) = with_a_taken_name();
        assert_eq!(reads_and_returns(&mut alone, result), ["Some(\"0\") ChildExists"]);
        alone.settle();
        assert_eq!(alone.called(), NONE);
        alone.delete("ConfigMap", &name);
        assert_eq!(reads_rejected(&mut alone), NONE);
    }
}

#[test]
fn w1_a_refused_write_of_an_old_spec_is_no_rejection_of_the_new_one() {
    let mut alone = Alone::serving(&["web"]);
    reads_rejected(&mut alone);
    let mut changed = object("PodSet", "web");
    changed["metadata"]["generation"] = json!(2);
    alone.put(changed);
    alone.fail(WriteErrorClass::Invalid);
    assert_eq!(reads_rejected(&mut alone), NONE);
}

#[test]
fn w1_an_edit_of_an_object_without_generations_forgets_what_was_rejected() {
    let mut alone = Alone::serving(&["web"]);
    let mut plain = object("PodSet", "web");
    plain["metadata"].as_object_mut().unwrap().remove("generation");
    alone.put(plain.clone());
    assert_eq!(reads_rejected(&mut alone), NONE, "of a state that is gone");
    assert_eq!(reads_rejected(&mut alone), NONE);
    alone.fail(WriteErrorClass::Invalid);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(reads_rejected(&mut alone), ["Some(\"0\") Invalid"]);
    alone.fail(WriteErrorClass::Invalid);
    plain["spec"] = json!({"edited": true});
    alone.put(plain);
    assert_eq!(reads_rejected(&mut alone), NONE);
}

/// An outcome with a status and one child of a given name, which may be left out.
fn wants_named(key: &str, or_skip: bool, phase: &str) -> CallResult {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "named"}}).to_string();
    let status = Some(json!({"phase": phase}).to_string().into());
    let children = Some(vec![Child { or_skip, ..Child::new(key, object) }]);
    CallResult::Done(Outcome { children, status, ..Outcome::default() })
}

#[test]
fn x11_a_status_from_before_a_rejection_was_known_is_not_written() {
    let mut alone = Alone::serving(&["web"]);
    alone.put(object("ConfigMap", "named"));
    assert_eq!(reads_and_returns(&mut alone, wants_named("a", true, "All")), NONE);
    assert_eq!((alone.called().len(), alone.writes()), (1, vec![]));
    assert_eq!(reads_and_returns(&mut alone, wants_named("a", true, "Without")), ["Some(\"a\") ChildExists"]);
    assert_eq!(alone.writes(), ["patch PodSet web"]);
    assert_eq!(alone.accept()["status"]["phase"], "Without");
}

#[test]
fn a_plugin_that_names_its_child_anew_in_every_outcome_is_not_called_for_that() {
    let mut alone = Alone::serving(&["web"]);
    alone.put(object("ConfigMap", "named"));
    let mut calls = 0;
    while !alone.calls.is_empty() {
        calls += 1;
        assert!(calls < 5, "it is called again and again");
        reads_and_returns(&mut alone, wants_named(&calls.to_string(), true, "Same"));
        alone.settle();
    }
}

#[test]
fn what_is_said_of_a_child_is_known_when_there_is_no_room_for_its_outcome() {
    let mut alone = Alone::serving(&["web"]);
    alone.reconciler.kept_bytes.add(&"podset".into(), 1 << 30);
    reads_and_returns(&mut alone, wants_named("a", true, "All"));
    alone.fail(WriteErrorClass::AlreadyExists);
    alone.live_read(Some(object("ConfigMap", "named")));
    assert_eq!(alone.recorded, NONE, "the child may be left out");
    alone.pass(alone.due_in_ms().unwrap());
    reads_and_returns(&mut alone, wants_named("a", true, "All"));
    alone.fail(WriteErrorClass::Invalid);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(reads_rejected(&mut alone), ["Some(\"a\") Invalid"]);
}

#[test]
fn q4_a_share_without_room_keeps_few_rejections_and_conflicts_of_each_key() {
    for (used, most, conflicts) in [(0, 100, 200), (1 << 30, 4, 4)] {
        let mut alone = Alone::serving(&["web"]);
        (0..200).for_each(|number| alone.put(object("ConfigMap", &format!("named-{number}"))));
        alone.reconciler.kept_bytes.add(&"podset".into(), used);
        let named = |number: usize| {
            let metadata = json!({"name": format!("named-{number}"), "namespace": "default"});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            Child::new(number.to_string(), object.to_string())
        };
        let mut calls = 0;
        while !alone.calls.is_empty() {
            calls += 1;
            assert!(calls < 5, "it is called again and again");
            let children = Some((0..200).map(named).collect());
            alone
                .returns_with(CallResult::Done(Outcome { children, ..Outcome::default() }), |view| _ = view.rejected());
            alone.settle();
        }
        let id = *alone.reconciler.controllers.keys().next().unwrap();
        let of_key = |state: &mut key::KeyState| (state.rejected().len(), state.name_conflicts.len());
        let found: Vec<_> = alone.reconciler.keys.states_of(id).map(of_key).collect();
        assert_eq!(found, [(most, conflicts)]);
    }
}

#[test]
fn l5_a_right_that_a_plugin_does_without_since_it_is_denied_is_reported_until_that_is_forgotten() {
    let mut alone = Alone::serving(&["web"]);
    reads_rejected(&mut alone);
    alone.fail(WriteErrorClass::Denied);
    assert_eq!(alone.reported(), ["podset denied patch"]);
    alone.pass(alone.due_in_ms().unwrap());
    assert_eq!(reads_and_returns(&mut alone, wants(0)), ["Some(\"0\") Forbidden"]);
    alone.settle();
    assert_eq!(alone.reported(), NONE);
    let mut changed = object("PodSet", "web");
    changed["metadata"]["generation"] = json!(2);
    alone.put(changed);
    assert_eq!(reads_and_returns(&mut alone, wants(0)), NONE);
    alone.settle();
    assert_eq!(alone.reported(), ["podset permitted patch"]);
}

#[test]
fn an_exact_child_that_is_gone_when_members_are_removed_is_no_reason_to_stall() {
    let mut alone = Alone::serving(&["web"]);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}).to_string();
    let child = Child { exact: vec!["data".into()], ..Child::new("only", object) };
    let outcome = Outcome { children: Some(vec![child]), ..Outcome::default() };
    alone.returns(CallResult::Done(outcome));
    let mut made = alone.accept();
    made["data"]["theirs"] = json!("2");
    alone.show(&made);
    let [(_, WriteOp::Patch { .. })] = alone.sent.make_contiguous() else { panic!("{:?}", alone.sent) };
    alone.fail(WriteErrorClass::NotFound);
    assert_eq!(alone.recorded, NONE);
    alone.delete("ConfigMap", made["metadata"]["name"].as_str().unwrap());
    alone.pass(10);
    assert!(alone.sent.iter().all(|(_, op)| !matches!(op, WriteOp::PatchStatus { .. })), "{:?}", alone.sent);
}
