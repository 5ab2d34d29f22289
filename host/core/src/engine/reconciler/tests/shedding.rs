//! What is given up while memory is short, and who waits when it is scarce.

use super::*;
use crate::engine::reconciler::rejections::FEW;
use crate::http::{Method, Request};
use crate::memory::{Level, Pressure};

const MIB: usize = 1 << 20;

impl Alone {
    fn press(&mut self, level: Level, excess_bytes: usize) {
        let pressure = Pressure { level, excess_bytes: excess_bytes as u64 };
        self.take(ToReconciler::Press { pressure, objects: BTreeMap::new() });
    }

    fn serve_another(&mut self) {
        self.serve("cronset", "1", &["CronSet"]);
        self.ready("cronset", "CronSet", true);
    }

    fn kept(&self, share: &str) -> usize {
        self.reconciler.kept_of(share)
    }
}

#[test]
fn f32_a_share_of_which_nothing_can_be_given_up_does_not_keep_the_others_from_it() {
    let mut alone = Alone::serving(&[]);
    alone.serve_another();
    let keep = |alone: &mut Alone, of: &str, number: usize| {
        alone.put(object(of, &format!("{}-{number}", of.to_lowercase())));
        alone.returns(phase(&"x".repeat(128 << 10)));
        alone.settle();
    };
    (0..40).for_each(|number| keep(&mut alone, "PodSet", number));
    (0..8).for_each(|number| keep(&mut alone, "CronSet", number));
    // Its keys leave in pieces, and their bytes with them.
    alone.withdraw("podset");
    let before = [alone.kept("podset"), alone.kept("cronset")];
    assert!(before[0] > 4 * MIB && before[1] > MIB / 2, "{before:?}");
    alone.press(Level::Short, 1_000 * MIB);
    assert!(alone.kept("podset") > 4 * MIB);
    assert!(alone.kept("cronset") < before[1] / 10, "{} of {}", alone.kept("cronset"), before[1]);
    // What it keeps since is given up too.
    keep(&mut alone, "CronSet", 8);
    let kept = alone.kept("cronset");
    alone.press(Level::Short, 64 << 10);
    assert!(alone.kept("cronset") + (64 << 10) <= kept, "{} of {kept}", alone.kept("cronset"));
}

#[test]
fn f32_rejections_conflicts_and_what_is_remembered_of_writes_are_given_up_too() {
    const CHILDREN: usize = 50;
    let mut alone = Alone::serving(&["web"]);
    alone.returns(wants(CHILDREN));
    // Others have the names of its children.
    while let Some(name) = alone.sent.front().map(|(_, op)| op.target().name.name.to_string()) {
        alone.put(object("ConfigMap", &name));
        alone.fail(WriteErrorClass::Conflict);
        if alone.sent.is_empty() {
            alone.pass(alone.due_in_ms().unwrap());
            while !alone.calls.is_empty() {
                alone.returns(wants(CHILDREN));
            }
        }
    }
    let id = *alone.reconciler.controllers.keys().next().unwrap();
    let key = Key { controller: id, name: Name::new("default", "web") };
    let remembered = |alone: &Alone| {
        let state = alone.reconciler.keys.get(&key).unwrap();
        (state.rejected().len(), state.name_conflicts.len())
    };
    let before = alone.kept("podset");
    assert_eq!(remembered(&alone), (CHILDREN, CHILDREN));
    alone.press(Level::Short, 1_000 * MIB);
    assert_eq!(remembered(&alone), (FEW, FEW), "a person sees the cause all the same");
    assert!(alone.kept("podset") < before / 4, "{} of {before}", alone.kept("podset"));
}

#[test]
fn f32_q4_each_step_looks_at_some_keys_and_the_next_one_continues_where_it_ended() {
    const OBJECTS: usize = 10_000;
    let mut alone = Alone::serving(&[]);
    alone.may_write = false;
    (0..OBJECTS).for_each(|number| alone.put(object("PodSet", &format!("set-{number:05}"))));
    // The last one alone keeps something.
    alone.may_write = true;
    let id = *alone.reconciler.controllers.keys().next().unwrap();
    let key = Key { controller: id, name: Name::new("default", &format!("set-{:05}", OBJECTS - 1)) };
    alone.with(|reconciler, cx| {
        let primary = reconciler.primary_of(&key, cx).unwrap();
        reconciler.call(&key, primary, cx);
    });
    let at = alone.calls.iter().position(|call| call.object.name == key.name).unwrap();
    let call = alone.calls.remove(at).unwrap();
    alone.calls.push_front(call);
    alone.returns(phase(&"x".repeat(100 << 10)));
    alone.settle();
    let before = alone.kept("podset");
    assert!(before > 100 << 10, "{before}");
    alone.press(Level::Short, MIB);
    assert_eq!(alone.kept("podset"), before, "it was not reached");
    alone.press(Level::Short, MIB);
    assert!(alone.kept("podset") < before / 10, "{}", alone.kept("podset"));
}

#[test]
fn f32_who_waits_is_who_takes_most_whatever_it_takes_it_for() {
    let mut alone = Alone::serving(&["web"]);
    alone.serve_another();
    // The honest plugin keeps outcomes of six MiB.
    alone.returns(wants(0));
    for number in 0..48 {
        alone.put(object("PodSet", &format!("web-{number}")));
        alone.returns(phase(&"x".repeat(128 << 10)));
        alone.settle();
    }
    // The other one's requests have eight.
    for number in 0..32 {
        let name = format!("nightly-{number}");
        alone.put(object("CronSet", &name));
        let request = Request {
            method: Method::Post,
            body: "x".repeat(256 << 10).into_bytes().into(),
            ..Request::get(name, "https://api.example.com/a")
        };
        alone.returns(CallResult::Done(Outcome { requests: vec![request], ..Outcome::default() }));
        alone.settle();
    }
    assert!(alone.kept("podset") > 5 * MIB && alone.reconciler.exchanges.kept_of("cronset") > 7 * MIB);
    alone.press(Level::Scarce, 0);
    assert_eq!(alone.reported(), ["cronset is the costliest"]);
    // Objects were made for a tenant.
    let objects = BTreeMap::from([("podset".into(), 20 * MIB)]);
    let pressure = Pressure { level: Level::Scarce, excess_bytes: 0 };
    alone.take(ToReconciler::Press { pressure, objects });
    assert_eq!(alone.reported(), ["podset is the costliest"]);
}
