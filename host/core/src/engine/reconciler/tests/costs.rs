//! What the event loop's work costs whom, and how much of it one step does (Q4).

use super::*;

fn serving(objects: usize) -> Alone {
    let names: Vec<String> = (0..objects).map(|number| format!("set-{number}")).collect();
    let mut alone = Alone::serving(&names.iter().map(String::as_str).collect::<Vec<_>>());
    while !alone.calls.is_empty() {
        alone.returns(wants(0));
    }
    alone
}

#[test]
fn q4_a_step_begins_a_bounded_number_of_turns_and_the_next_ones_begin_the_others() {
    let mut alone = serving(1_000);
    let before = alone.taken();
    // Every key's inputs are as before, so no call holds up the next turn.
    alone.with(|reconciler, cx| reconciler.resync(cx));
    let mut steps = 1;
    while alone.taken() - before < 1_000 {
        let due_ms = alone.reconciler.next_due_ms().unwrap();
        assert!(due_ms <= alone.now.mono_ms + 1, "the rest follows at once");
        let so_far = alone.taken();
        alone.pass(1);
        assert!(alone.taken() - so_far <= 400, "some ten microseconds each");
        steps += 1;
    }
    assert!((3..20).contains(&steps), "{steps} steps");
    assert!(alone.calls.is_empty());
}

#[test]
fn w1_every_object_is_enqueued_when_a_version_takes_over_in_pieces() {
    let mut alone = serving(600);
    alone.serve("podset", "2", &["PodSet"]);
    let queued = |alone: &Alone| alone.reconciler.queue_depths()[0].1 + alone.calls.len();
    assert_eq!(queued(&alone), 256);
    // A version that comes meanwhile walks them again after that.
    alone.serve("podset", "3", &["PodSet"]);
    let queued = [(); 2].map(|()| {
        alone.pass(1);
        queued(&alone)
    });
    assert_eq!(queued, [512, 600]);
    let steps = (0..10).take_while(|_| {
        alone.pass(1);
        alone.due_in_ms() == Some(1)
    });
    assert_eq!(steps.count(), 1, "the second walk ends too");
}

#[test]
fn q4_a_plugin_is_charged_for_what_a_step_took_and_not_only_for_what_was_counted() {
    let mut alone = Alone::serving(&["a"]);
    alone.returns(wants(0));
    let change = |alone: &mut Alone| {
        alone.change_secret("a");
        alone.returns(wants(0));
        alone.change_secret("a");
    };
    change(&mut alone);
    let counted_us = alone.reconciler.charges.total_us();
    assert!(counted_us > 0, "its dependency was compared, and its key taken");
    let before_us = alone.reconciler.queue.used_us("podset");
    alone.reconciler.measured(counted_us);
    assert_eq!(alone.reconciler.queue.used_us("podset"), before_us, "as counted");
    change(&mut alone);
    let (counted_us, before_us) = (alone.reconciler.charges.total_us(), alone.reconciler.queue.used_us("podset"));
    alone.reconciler.measured(3 * counted_us);
    assert_eq!(alone.reconciler.queue.used_us("podset"), before_us + 2 * counted_us);
    change(&mut alone);
    let (counted_us, before_us) = (alone.reconciler.charges.total_us(), alone.reconciler.queue.used_us("podset"));
    alone.reconciler.measured(60_000_000);
    assert_eq!(alone.reconciler.queue.used_us("podset"), before_us + 7 * counted_us, "a minute is not its work");
}

#[test]
fn q4_a_share_pays_for_a_step_that_its_own_event_made_long_whatever_was_counted() {
    let results = [
        CallResult::Failed(Failure::Retry("later".to_owned())),
        CallResult::Fault(GuestFault::BadOutcome { message: "no".to_owned() }),
        wants(0),
    ];
    for result in results {
        let mut alone = Alone::serving(&["a"]);
        let before_us = alone.reconciler.queue.used_us("podset");
        let label = format!("{result:?}");
        alone.returns_with(result, |_| ());
        assert!(alone.reconciler.queue.used_us("podset") > before_us, "{label}: nothing is free");
        alone.reconciler.measured(15_000);
        let charged_us = alone.reconciler.queue.used_us("podset") - before_us;
        assert!((15_000..15_010).contains(&charged_us), "{label}: {charged_us}");
        // A change of something that it reads is no event of its own.
        alone.with(|_, _| ());
        let before_us = alone.reconciler.queue.used_us("podset");
        alone.reconciler.measured(15_000);
        assert_eq!(alone.reconciler.queue.used_us("podset"), before_us, "{label}");
    }
    let mut alone = Alone::serving(&["a"]);
    alone.returns(wants(1));
    let before_us = alone.reconciler.queue.used_us("podset");
    alone.fail(WriteErrorClass::Invalid);
    alone.reconciler.measured(60_000_000);
    let charged_us = alone.reconciler.queue.used_us("podset") - before_us;
    assert!((20_000..20_010).contains(&charged_us), "a minute is not its work: {charged_us}");
}

#[test]
fn q4_a_plugin_is_charged_for_the_reads_that_are_indexed_for_it() {
    let charged = |result: CallResult, reads: usize| {
        let mut alone = Alone::serving(&["a"]);
        let before_us = alone.reconciler.queue.used_us("podset");
        alone.returns_with(result, |view| {
            for read in 0..reads {
                let secret = ObjectRef { kind: kind("Secret"), name: Name::new("default", &read.to_string()) };
                view.get(&secret, &[]).unwrap();
            }
        });
        alone.reconciler.queue.used_us("podset") - before_us
    };
    for result in [wants(0), CallResult::Failed(Failure::Retry("later".to_owned()))] {
        let (none, many) = (charged(result.clone(), 0), charged(result, 900));
        assert!((800..1_200).contains(&(many - none)), "{none} and {many} us");
    }
}

/// A ConfigMap with so many members, as an outcome has it.
fn wants_large(members: usize) -> (Value, CallResult) {
    let data: serde_json::Map<_, _> = (0..members).map(|number| (format!("k{number:05}"), json!("0"))).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    let child = Child::new("large", object.to_string());
    (object, CallResult::Done(Outcome { children: Some(vec![child]), ..Outcome::default() }))
}

/// The object as the API server shows it after somebody else has labelled it: with the fields of our apply.
fn labelled(mut made: Value) -> Value {
    let fields: serde_json::Map<_, _> =
        made["data"].as_object().unwrap().keys().map(|name| (format!("f:{name}"), json!({}))).collect();
    let metadata = json!({
        "f:annotations": {"f:mortise.dev/child": {}}, "f:labels": {"f:app.kubernetes.io/managed-by": {}},
        "f:ownerReferences": {"k:{\"uid\":\"uid-a\"}": {}},
    });
    made["metadata"]["managedFields"] = json!([{
        "manager": "mortise/podset", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": fields, "f:metadata": metadata},
    }]);
    made["metadata"]["labels"]["theirs"] = json!("x");
    made
}

#[test]
fn w2_a_turn_whose_comparison_takes_long_is_a_call() {
    // Text, live object and field set have some 190 KB, or 4.
    for (members, calls) in [(5_000, 1), (100, 0)] {
        let mut alone = Alone::serving(&["a"]);
        alone.returns(wants_large(members).1);
        let made = alone.accept();
        alone.show(&made);
        assert!(alone.calls.is_empty(), "its own write is what it remembers");
        alone.put(labelled(made.clone()));
        assert_eq!(alone.calls.len(), calls, "{members} members");
        if calls == 1 {
            alone.returns(wants_large(members).1);
        }
        assert!(alone.sent.is_empty() && alone.calls.is_empty(), "X5: it has what is wanted: {:?}", alone.writes());
        let mut changed = labelled(made);
        changed["data"]["k00007"] = json!("theirs");
        alone.put(changed);
        if calls == 1 {
            alone.returns(wants_large(members).1);
        }
        assert_eq!(alone.writes(), ["patch ConfigMap a"]);
    }
}
