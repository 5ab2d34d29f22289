//! Results of writes: what each means for its plan and its key.

use super::*;
use crate::contract::Generated;
use crate::engine::reconciler::key::StalledReason;
use crate::engine::reconciler::writes::BOUNDS;
use crate::generated::Recipe;
use crate::plan::Taken;

#[test]
fn r2_a_key_is_not_called_before_its_write_is_shown() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(wants(1));
    let child = alone.accept();
    alone.change_secret("web");
    alone.put(object("Secret", "another"));
    assert_eq!(alone.called(), NONE);
    alone.show(&child);
    assert_eq!(alone.called(), ["podset/PodSet 1 web"]);
    let view = &mut alone.calls[0].view;
    let owned = view.owned(&kind("ConfigMap"), &["metadata.uid".to_owned()]).unwrap();
    assert!(owned.contains(child["metadata"]["uid"].as_str().unwrap()), "{owned}");
}

#[test]
fn r2_a_write_that_is_not_shown_in_time_is_read_live_and_one_that_was_undone_is_repeated() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(wants(1));
    let child = alone.accept();
    alone.pass(CONSISTENCY_TIMEOUT_MS - 1);
    assert_eq!(alone.live_reads, []);
    alone.pass(1);
    assert_eq!(alone.live_reads.len(), 1);
    alone.live_read(Some(child));
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]), "it is there, so the view is behind");
    alone.pass(CONSISTENCY_TIMEOUT_MS);
    alone.live_read(None);
    assert_eq!(alone.writes(), ["patch ConfigMap web"], "somebody has deleted it");
}

#[test]
fn q3_a_failed_write_ends_its_plan_and_the_key_comes_back_with_backoff() {
    for (class, least_ms) in [
        (WriteErrorClass::Conflict, 5),
        (WriteErrorClass::Invalid, 5),
        (WriteErrorClass::Unknown, 5),
        (WriteErrorClass::TooManyRequests { retry_after_ms: 7_000 }, 7_000),
    ] {
        let mut alone = Alone::serving(&["web"]);
        alone.returns(wants(3));
        alone.fail(class);
        let due_ms = alone.due_in_ms().unwrap();
        assert!(
            alone.writes().is_empty() && (least_ms..=least_ms + least_ms / 10 + 1).contains(&due_ms),
            "{class:?}: {due_ms} ms"
        );
        alone.pass(due_ms - 1);
        assert_eq!(alone.writes(), NONE);
        alone.pass(1);
        assert_eq!((alone.writes(), alone.called()), (vec!["patch ConfigMap web".to_owned()], vec![]), "{class:?}");
    }
}

#[test]
fn x4_a_delete_that_finds_another_object_or_none_has_succeeded_and_is_waited_for() {
    for class in [WriteErrorClass::Conflict, WriteErrorClass::NotFound] {
        let mut alone = Alone::serving(&["web"]);
        alone.returns(wants(1));
        let child = alone.accept();
        alone.show(&child);
        alone.change_secret("web");
        alone.returns(wants(0));
        assert_eq!(alone.writes(), ["delete ConfigMap web"]);
        alone.fail(class);
        alone.change_secret("web");
        assert_eq!((alone.called(), alone.writes(), alone.due_in_ms()), (vec![], vec![], Some(CONSISTENCY_TIMEOUT_MS)));
        alone.delete("ConfigMap", child["metadata"]["name"].as_str().unwrap());
        assert_eq!(alone.called(), ["podset/PodSet 1 web"]);
    }
}

#[test]
fn x3_a_create_that_meets_an_object_reads_live_whose_it_is() {
    let exists = || {
        let mut alone = Alone::serving(&["web"]);
        alone.returns(wants(1));
        let (_, op) = alone.sent[0].clone();
        let WriteOp::Apply { body, .. } = op else { panic!("an apply: {op:?}") };
        let mut child: Value = serde_json::from_str(&body).unwrap();
        child["metadata"]["uid"] = json!("uid-first-try");
        child["metadata"]["resourceVersion"] = json!("2");
        alone.fail(WriteErrorClass::AlreadyExists);
        assert_eq!((alone.live_reads.len(), alone.reconciler.in_flight()), (1, (1, 0)), "the plan waits for the read");
        (alone, child)
    };
    let (mut ours, child) = exists();
    ours.live_read(Some(child.clone()));
    assert_eq!((ours.writes(), ours.recorded.len(), ours.due_in_ms()), (vec![], 0, Some(CONSISTENCY_TIMEOUT_MS)));
    ours.show(&child);
    assert!(ours.reconciler.waiting.is_empty());

    let (mut of_another, mut child) = exists();
    child["metadata"]["ownerReferences"] = json!([]);
    of_another.live_read(Some(child));
    assert_eq!(of_another.recorded, ["ChildExists"]);
    assert!(of_another.due_in_ms().is_some_and(|due_ms| due_ms < 10), "it comes back with backoff");

    let (mut gone, _) = exists();
    gone.live_read(None);
    gone.pass(10);
    assert_eq!((gone.recorded.len(), gone.writes()), (0, vec!["patch ConfigMap web".to_owned()]));
}

#[test]
fn w3_the_own_status_wakes_nobody_unless_one_of_unknown_result_may_show_with_it() {
    let mut alone = Alone::serving(&["web"]);
    let looks_at_own_status = |alone: &mut Alone| {
        let (shown, before) = (alone.accept(), alone.taken());
        alone.show(&shown);
        alone.taken() - before
    };
    alone.returns(phase("First"));
    assert_eq!(looks_at_own_status(&mut alone), 0);
    alone.change_secret("web");
    alone.returns(phase("Second"));
    alone.fail(WriteErrorClass::Unknown);
    alone.pass(10);
    assert_eq!(looks_at_own_status(&mut alone), 1, "the first try may have landed between two looks of the watch");
    alone.returns(phase("Second"));
    alone.pass(WRITE_TIMEOUT_MS);
    alone.change_secret("web");
    alone.returns(phase("Third"));
    assert_eq!(looks_at_own_status(&mut alone), 0, "it cannot land any more");
}

#[test]
fn w3_after_a_status_of_unknown_result_the_next_ones_event_wakes_its_key_however_late_it_is() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(phase("First"));
    alone.fail(WriteErrorClass::Unknown);
    alone.pass(10);
    let shown = alone.accept();
    alone.pass(WRITE_TIMEOUT_MS);
    let before = alone.taken();
    alone.show(&shown);
    assert_eq!(alone.taken() - before, 1, "it may have changed nothing and have the version of the first");
}

#[test]
fn a_result_for_an_object_that_is_gone_ends_its_key() {
    let mut alone = Alone::serving(&["calling", "writing"]);
    alone.calls.swap(0, 1);
    alone.returns(wants(1));
    alone.delete("PodSet", "writing");
    alone.delete("PodSet", "calling");
    assert_eq!(alone.reconciler.key_count(), 2);
    alone.accept();
    alone.returns(wants(1));
    assert_eq!((alone.reconciler.key_count(), alone.reconciler.in_flight(), alone.writes()), (0, (0, 0), vec![]));
    let ended = alone.observed.iter().filter(|seen| matches!(seen, Observation::TurnEnded { .. })).count();
    assert_eq!(ended, 2);
}

#[test]
fn r6_after_a_restore_nothing_waits_for_a_version_and_what_was_called_or_read_before_is_void() {
    let mut alone = Alone::serving(&["calling", "reading", "waiting"]);
    alone.calls.rotate_left(1);
    alone.returns(wants(1));
    alone.fail(WriteErrorClass::AlreadyExists);
    alone.returns(wants(1));
    alone.accept();
    alone.with(Reconciler::on_restored);
    assert_eq!(alone.called(), ["podset/PodSet 1 calling"], "one turn of a key at a time");
    assert_eq!(alone.writes(), ["patch ConfigMap waiting"], "its write may have been taken back");
    alone.returns(wants(1));
    assert_eq!((alone.called(), alone.writes().len()), (vec!["podset/PodSet 1 calling".to_owned()], 1));
    alone.live_read(Some(object("ConfigMap", "of-another")));
    assert_eq!(alone.recorded, NONE, "it may be another's no more");
    alone.pass(10);
    assert_eq!(alone.writes(), ["patch ConfigMap waiting", "patch ConfigMap reading"]);
}

#[test]
fn x7_without_the_right_to_write_no_key_is_taken_and_a_plan_ends_between_two_writes() {
    let mut alone = Alone::serving(&["calling", "writing"]);
    alone.calls.swap(0, 1);
    alone.returns(wants(3));
    alone.may_write = false;
    let child = alone.accept();
    alone.show(&child);
    alone.returns(wants(1));
    alone.put(object("PodSet", "new"));
    alone.pass(60_000);
    assert_eq!((alone.called(), alone.writes()), (vec![], vec![]));
    alone.may_write = true;
    alone.pass(0);
    let mut called = alone.called();
    called.sort();
    assert_eq!(called, ["podset/PodSet 1 calling", "podset/PodSet 1 new"], "what it returned meanwhile is void");
    assert_eq!(alone.writes(), ["patch ConfigMap writing"], "the plan continues where it ended");
}

#[test]
fn x5_a_write_is_remembered_without_its_text_and_as_long_as_it_is_wanted() {
    let mut alone = Alone::serving(&["web"]);
    let wanted = || {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "the text"}}).to_string();
        let children = Some(vec![Child::new("only", object)]);
        CallResult::Done(Outcome { children, ..Outcome::default() })
    };
    let applied = |alone: &mut Alone| {
        let id = *alone.reconciler.controllers.keys().next().unwrap();
        alone.reconciler.keys.states_of(id).map(|state| state.memory.applied.len()).sum::<usize>()
    };
    alone.returns(wanted());
    alone.settle();
    assert!(format!("{:?}", alone.reconciler).contains("the text"), "the outcome is kept");
    alone.change_secret("web");
    assert_eq!((alone.called().len(), alone.writes()), (1, vec![]));
    alone.returns(CallResult::Failed(Failure::Terminal("no".to_owned())));
    alone.settle();
    let left = format!("{:?}", alone.reconciler);
    assert!(!left.contains("the text"), "{left}");
    assert_eq!(applied(&mut alone), 1);
    alone.change_secret("web");
    alone.returns(wanted());
    alone.settle();
    assert_eq!(applied(&mut alone), 1);
    alone.change_secret("web");
    alone.returns(CallResult::Done(Outcome::default()));
    assert_eq!(applied(&mut alone), 0, "an outcome without a list of children wants none of them");
}

#[test]
fn x3_of_several_conflicts_the_first_three_are_named() {
    let message = |count: usize| {
        let taken = |n: usize| {
            let metadata = json!({"name": n.to_string(), "namespace": "a", "uid": "u", "resourceVersion": "1"});
            let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            Taken::new(&crate::object::tests::decode(&object.to_string()), "".into())
        };
        let taken: Vec<Taken> = (0..count).map(taken).collect();
        StalledReason::children_exist(&taken, &kind("PodSet")).map(|stalled| stalled.message)
    };
    assert_eq!(message(0), None);
    for (count, expected) in [
        (1, "Secret a/0 exists already and is not controlled by this PodSet"),
        (2, "Secret a/0 and Secret a/1 exist already and are not controlled by this PodSet"),
        (3, "Secret a/0, Secret a/1 and Secret a/2 exist already and are not controlled by this PodSet"),
        (500, "Secret a/0, Secret a/1, Secret a/2 and 497 more exist already and are not controlled by this PodSet"),
    ] {
        assert_eq!(message(count).as_deref(), Some(expected));
    }
}

#[test]
fn a_slow_start_ends_at_a_bound() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(wants(100));
    let mut batches = Vec::new();
    while !alone.sent.is_empty() {
        batches.push(alone.sent.len());
        (0..alone.sent.len()).for_each(|_| drop(alone.accept()));
    }
    assert_eq!(batches, [1, 2, 4, 8, 16, 16, 16, 16, 16, 5]);
}

#[test]
fn a_certificate_that_is_due_is_renewed_without_a_call_also_after_a_lost_write() {
    let mut alone = Alone { owns: "Secret", ..Alone::new() };
    alone.serve("podset", "1", &["PodSet"]);
    alone.ready("podset", "PodSet", true);
    alone.put(object("PodSet", "web"));
    let recipe = Recipe::Tls { names: vec!["a".into()], lifetime_seconds: 3_600 };
    let generated = vec![Generated { at: "data".into(), recipe, rotation: "".into() }];
    let child = Child { generated, ..Child::new("s", r#"{"apiVersion":"v1","kind":"Secret"}"#) };
    alone.returns(CallResult::Done(Outcome { children: Some(vec![child]), ..Outcome::default() }));
    alone.settle();
    for is_lost in [false, true, false] {
        assert_eq!((alone.writes(), alone.called()), (vec![], vec![]));
        let due_ms = alone.due_in_ms().unwrap();
        assert!((2_388_000..=2_400_000).contains(&due_ms), "two thirds of an hour, less what has passed: {due_ms}");
        alone.pass(due_ms);
        assert_eq!((alone.writes(), alone.called()), (vec!["patch Secret web".to_owned()], vec![]));
        if is_lost {
            let (key, op) = alone.sent.pop_front().unwrap();
            let made = alone.made(&op);
            alone.wrote((key, op), Err(WriteErrorClass::Unknown));
            alone.show(&made);
            alone.pass(10_000);
            // Without a record of who owns its fields the apply is repeated; what was made stays.
            let (_, WriteOp::Apply { body, draws: Some(draws), .. }) = &alone.sent[0] else { panic!("an apply") };
            let again = completed_body(body, Some(&made), draws, &mut Counting::default());
            assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["data"], made["data"]);
        }
        alone.settle();
    }
}

#[test]
fn q4_plans_of_many_bytes_wait_for_each_other_and_other_plugins_do_not() {
    let names: Vec<String> = (0..40).map(|number| format!("object-{number}")).collect();
    let mut alone = Alone::serving(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // A plan of some 8 MiB: eight of them are a share's.
    let large = |number: usize| {
        let data = json!({"a": "v".repeat(500 << 10)});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data}).to_string();
        Child::new(number.to_string(), object)
    };
    while !alone.calls.is_empty() {
        alone.returns(CallResult::Done(Outcome { children: Some((0..8).map(large).collect()), ..Outcome::default() }));
    }
    let (writing, _) = alone.reconciler.in_flight();
    let bytes = alone.reconciler.writing_bytes.total();
    assert!((BOUNDS.share..BOUNDS.share + 17 * (6 << 20)).contains(&bytes), "{bytes} bytes of {writing} plans");
    assert!(writing < 40, "the others wait");
    alone.serve("other", "1", &["CronSet"]);
    alone.ready("other", "CronSet", true);
    alone.put(object("CronSet", "a"));
    assert_eq!(alone.called(), ["other/CronSet 1 a"]);
    let mut plans = 0;
    while let Some(write) = alone.sent.pop_front() {
        alone.version += 1;
        let written = Written { uid: "uid".into(), resource_version: ResourceVersion(alone.version) };
        alone.wrote(write, Ok(written));
        while alone.calls.len() > 1 {
            alone.calls.rotate_left(1);
            plans += 1;
            alone.returns(CallResult::Done(Outcome::default()));
        }
    }
    assert_eq!(writing + plans, 40, "each has its turn");
    assert_eq!(alone.reconciler.writing_bytes.total(), 0);
}

#[test]
fn q4_x3_forged_objects_in_the_owners_namespace_are_left_out_of_its_reads_and_reported() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(wants(1));
    let child = alone.accept();
    alone.show(&child);
    let text = "x".repeat(1 << 20);
    for number in 0..17 {
        let mut forged = object("ConfigMap", &format!("forged-{number}"));
        forged["metadata"]["ownerReferences"] = child["metadata"]["ownerReferences"].clone();
        // It has a finalizer of its own.
        forged["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        forged["data"] = json!({"a": &*text});
        alone.put(forged);
    }
    alone.change_secret("web");
    alone.recorded.clear();
    alone.returns_with(wants(1), |view| {
        let owned = view.owned(&kind("ConfigMap"), &[]).unwrap();
        let owned: Vec<Value> = serde_json::from_str(&owned).unwrap();
        assert_eq!(
            owned.iter().map(|object| &object["metadata"]["name"]).collect::<Vec<_>>(),
            [&child["metadata"]["name"]]
        );
    });
    assert_eq!((alone.recorded, alone.sent.len()), (vec!["ObjectsLeftOut".to_owned()], 0));
}
