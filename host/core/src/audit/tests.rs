//! What an audit reports, and when it runs.

use super::*;
use crate::object::Kind;
use crate::object::tests::Sample;

const HOUR_MS: u64 = 3_600_000;

fn pods() -> Slice {
    Kind::new("v1", "Pod").into()
}

fn name(text: &str) -> Name {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Name::new(namespace, name)
}

/// Parses "a/x@3", or "a/x@3 u2" with another UID.
fn parse(text: &str) -> Listed {
    let (text, uid) = text.split_once(' ').unwrap_or((text, "u1"));
    let (text, version) = text.split_once('@').unwrap();
    Listed { name: name(text), uid: uid.into(), version: ResourceVersion(version.parse().unwrap()) }
}

struct World {
    store: Store,
    audits: Audits,
    now_ms: u64,
}

impl World {
    /// A cache of Pods, listed at version 100, whose audit has just begun.
    fn listing(objects: &[&str]) -> Self {
        let mut world = Self { store: Store::new(), audits: Audits::new(HOUR_MS), now_ms: 0 };
        world.store.begin_list(pods());
        objects.iter().for_each(|object| world.list_item(object));
        assert!(world.store.end_list(pods(), ResourceVersion(100)).is_empty());
        world.audits.begin(0, &pods());
        world.next_audit();
        world
    }

    fn next_audit(&mut self) {
        self.now_ms = self.audits.next_due_ms().unwrap();
        assert_eq!(self.step(), Some(Act::List(pods())));
    }

    fn object(text: &str) -> Object {
        let Listed { name, uid, version } = parse(text);
        let namespace = if &*name.namespace == "a" { "a" } else { "b" };
        Sample::pod(namespace, &name.name).uid(&uid).version(version.0).build()
    }

    fn list_item(&mut self, text: &str) {
        self.store.list_item(Self::object(text));
    }

    fn apply(&mut self, text: &str) {
        self.store.apply(Self::object(text));
    }

    fn delete(&mut self, text: &str) {
        let Listed { name, version, .. } = parse(text);
        self.store.remove(pods(), &name, version);
    }

    fn answer(&mut self, answer: Response) {
        self.audits.on_response(self.now_ms, &pods(), answer, &self.store);
    }

    fn page(&mut self, version: u64, is_last: bool, objects: &[&str]) {
        let objects = objects.iter().map(|object| parse(object)).collect();
        self.answer(Response::Page(Page { version: ResourceVersion(version), objects, is_last }));
    }

    fn list(&mut self, version: u64, objects: &[&str]) {
        self.answer(Response::Begun);
        self.page(version, true, objects);
    }

    fn step(&mut self) -> Option<Act> {
        self.audits.step(self.now_ms, &self.store)
    }

    /// The report of an audit that ends now.
    #[track_caller]
    fn report(&mut self) -> String {
        match self.step() {
            Some(Act::Report(report)) => {
                report.differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            other => panic!("no report: {other:?}"),
        }
    }
}

/// Compares a cache with a live list at version 120; the watch's events come after the list.
#[track_caller]
fn check(cached: &[&str], live: &[&str], events: &[&str], expected: &str) {
    let mut world = World::listing(cached);
    world.list(120, live);
    for event in events {
        match event.strip_prefix("-") {
            Some(deleted) => world.delete(deleted),
            None => world.apply(event),
        }
    }
    world.store.progress(pods(), ResourceVersion(120));
    assert_eq!(world.report(), expected, "{cached:?} {live:?} {events:?}");
}

#[test]
fn without_a_difference_the_audit_ends_with_its_last_page() {
    let mut world = World::listing(&["a/x@3", "b/y@4"]);
    world.answer(Response::Begun);
    world.page(150, false, &["a/x@3"]);
    assert_eq!(world.step(), None, "the list is incomplete");
    world.page(150, true, &["b/y@4"]);
    assert_eq!(world.report(), "", "without suspects it does not wait for the watch");
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + HOUR_MS));
}

#[test]
fn what_the_watch_has_lost_is_found() {
    check(&["a/x@3"], &["a/x@3", "a/y@110"], &[], "a/y missing");
    check(&["a/x@3", "a/y@4"], &["a/y@4"], &[], "a/x deleted");
    check(&["a/x@3"], &["a/x@110"], &[], "a/x outdated");
    check(&["a/x@3"], &["a/x@110 u2"], &[], "a/x outdated");
    check(&["a/x@3", "a/z@4"], &["a/y@7", "a/z@9"], &[], "a/y missing, a/z outdated, a/x deleted");
}

#[test]
fn what_the_watch_tells_later_is_no_difference() {
    check(&["a/x@3"], &["a/x@3", "a/y@110"], &["a/y@110"], "");
    check(&["a/x@3"], &["a/x@110"], &["a/x@110"], "");
    check(&["a/x@3", "a/y@4"], &["a/y@4"], &["-a/x@111"], "");
    // Nor are later changes, before and after the list's version.
    check(&["a/x@3"], &["a/x@110"], &["a/x@110", "a/x@130"], "");
    check(&["a/x@3"], &["a/x@110", "a/y@115"], &["a/x@110", "a/y@115", "-a/y@140"], "");
    check(&["a/x@3"], &[], &["-a/x@111", "a/x@125 u2"], "");
}

#[test]
fn what_changed_after_the_list_was_made_is_no_difference() {
    let mut world = World::listing(&["a/x@3", "a/y@4", "a/z@5"]);
    world.apply("a/x@130");
    world.delete("a/y@131");
    world.delete("a/z@132");
    world.apply("a/z@133 u2");
    world.apply("a/w@134");
    world.list(120, &["a/x@3", "a/y@4", "a/z@5"]);
    assert_eq!(world.report(), "");
}

#[test]
fn a_cached_state_that_is_newer_than_the_live_one_means_that_etcd_was_restored() {
    check(&["a/x@50"], &["a/x@40"], &[], "a/x undone");
    check(&["a/x@50"], &["a/x@50 u2"], &[], "a/x undone");
    let mut world = World::listing(&["a/x@50"]);
    world.delete("a/x@101");
    world.list(120, &["a/x@50"]);
    world.store.progress(pods(), ResourceVersion(120));
    let Some(Act::Report(report)) = world.step() else { panic!("no report") };
    assert!(report.is_of_a_restore() && report.differences[0].what == What::Undone, "{report:?}");
    assert!(!Report { differences: Vec::new(), ..report }.is_of_a_restore());
}

#[test]
fn a_suspect_waits_until_the_watch_has_passed_the_list_and_five_minutes_at_most() {
    let mut world = World::listing(&["a/x@3"]);
    world.list(120, &["a/x@110"]);
    world.store.progress(pods(), ResourceVersion(119));
    world.now_ms += SETTLE_MS - 1;
    assert_eq!((world.step(), world.audits.next_due_ms()), (None, Some(world.now_ms + 1)));
    world.now_ms += 1;
    assert_eq!(world.report(), "a/x outdated");
}

#[test]
fn a_kind_that_differed_is_audited_again_soon_and_what_a_relist_does_not_repair_is_reported_once() {
    let mut world = World::listing(&["a/x@3"]);
    world.list(90, &["a/x@3", "a/broken@7"]);
    assert_eq!(world.report(), "a/broken missing");
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + AGAIN_MS));
    world.next_audit();
    world.list(90, &["a/x@3", "a/broken@7"]);
    assert_eq!(world.report(), "");
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + HOUR_MS));
    world.next_audit();
    world.list(95, &["a/x@3", "a/broken@8"]);
    assert_eq!(world.report(), "a/broken missing", "its new version may be decodable");
    // It is reported again once it was repaired.
    world.next_audit();
    world.list(95, &["a/x@3"]);
    assert_eq!(world.report(), "");
    world.next_audit();
    world.list(95, &["a/x@3", "a/broken@8"]);
    assert_eq!(world.report(), "a/broken missing");
}

#[test]
fn a_list_that_begins_anew_forgets_what_the_first_one_showed() {
    let mut world = World::listing(&["a/x@3", "a/y@4"]);
    world.answer(Response::Begun);
    world.page(110, false, &["a/x@3", "a/z@9"]);
    world.list(120, &["a/y@4"]);
    world.store.progress(pods(), ResourceVersion(120));
    assert_eq!(world.report(), "a/x deleted");
}

#[test]
fn a_list_that_fails_is_tried_again_and_one_that_never_ends_is_given_up() {
    let mut world = World::listing(&["a/x@3"]);
    world.answer(Response::Failed);
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + AGAIN_MS));
    world.next_audit();
    world.answer(Response::Begun);
    world.now_ms = world.audits.next_due_ms().unwrap();
    assert_eq!(world.step(), None);
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + 2 * AGAIN_MS));
    // The late page is ignored.
    world.list(120, &[]);
    assert_eq!(world.step(), None);
}

#[test]
fn a_list_that_keeps_failing_is_tried_ever_later_up_to_the_interval_until_one_succeeds() {
    let mut world = World::listing(&["a/x@3"]);
    for delay_ms in [AGAIN_MS, 2 * AGAIN_MS, 4 * AGAIN_MS, 8 * AGAIN_MS, HOUR_MS, HOUR_MS] {
        world.answer(Response::Failed);
        assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + delay_ms));
        world.next_audit();
    }
    world.list(120, &["a/x@3"]);
    assert_eq!(world.report(), "");
    world.next_audit();
    world.answer(Response::Failed);
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + AGAIN_MS));
}

#[test]
fn a_kind_whose_lists_succeed_is_audited_in_time_however_many_others_time_out() {
    const TIMEOUT_MS: u64 = 60_000;
    let good = Slice::from(Kind::new("example.com/v1", "Good"));
    let hung = (0..64).map(|number| Kind::new("example.com/v1", &format!("Hung{number}")).into());
    let (mut store, mut audits) = (Store::new(), Audits::new(HOUR_MS));
    for kind in hung.chain([good.clone()]) {
        store.begin_list(&kind);
        store.end_list(&kind, ResourceVersion(1));
        audits.begin(0, &kind);
    }
    let (mut now_ms, mut audited_ms, mut tried) = (0, Vec::new(), BTreeSet::new());
    while now_ms < 24 * HOUR_MS {
        now_ms = audits.next_due_ms().unwrap().max(now_ms);
        let Some(Act::List(kind)) = audits.step(now_ms, &store) else { panic!("nothing is due") };
        if kind == good {
            audited_ms.push(now_ms);
            let page = Page { version: ResourceVersion(1), objects: Vec::new(), is_last: true };
            audits.on_response(now_ms, &kind, Response::Page(page), &store);
            assert!(matches!(audits.step(now_ms, &store), Some(Act::Report(_))));
        } else {
            now_ms += TIMEOUT_MS;
            audits.on_response(now_ms, &kind, Response::Failed, &store);
            tried.insert(kind);
        }
    }
    let is_in_time = |pair: &[u64]| pair[1] - pair[0] <= HOUR_MS + TIMEOUT_MS;
    assert!(audited_ms.len() > 22 && audited_ms.windows(2).all(is_in_time), "{audited_ms:?}");
    assert_eq!(tried.len(), 64, "the others are tried all the same");
}

#[test]
fn a_kind_that_is_listed_anew_is_not_audited_meanwhile() {
    let mut world = World::listing(&["a/x@3"]);
    world.answer(Response::Begun);
    world.store.rewind(&pods().kind);
    assert_eq!(world.step(), None);
    let postponed = world.now_ms + POSTPONE_MS;
    assert_eq!(world.audits.next_due_ms(), Some(postponed));
    world.now_ms = postponed;
    assert_eq!(world.step(), None);
    assert_eq!(world.audits.next_due_ms(), Some(postponed + POSTPONE_MS));
}

#[test]
fn kinds_are_audited_one_at_a_time_and_spread_over_the_interval() {
    let mut store = Store::new();
    let mut audits = Audits::new(HOUR_MS);
    let kind = |number| Kind::new("example.com/v1", &format!("Kind{number}")).into();
    let kinds: Vec<Slice> = (0..100).map(kind).collect();
    for kind in &kinds {
        store.begin_list(kind);
        store.end_list(kind, ResourceVersion(1));
        audits.begin(0, kind);
    }
    let (mut begun, mut now_ms) = (Vec::new(), 0);
    while begun.len() < kinds.len() {
        now_ms = audits.next_due_ms().unwrap().max(now_ms);
        let Some(Act::List(kind)) = audits.step(now_ms, &store) else { panic!("nothing is due") };
        assert_eq!(audits.step(now_ms + HOUR_MS / 100, &store), None, "one at a time");
        let page = Page { version: ResourceVersion(1), objects: Vec::new(), is_last: true };
        audits.on_response(now_ms, &kind, Response::Page(page), &store);
        assert!(matches!(audits.step(now_ms, &store), Some(Act::Report(_))));
        begun.push((now_ms, kind));
    }
    assert!(now_ms < HOUR_MS, "each was audited within the interval");
    let in_quarter = |quarter: u64| begun.iter().filter(|(at_ms, _)| at_ms / (HOUR_MS / 4) == quarter).count();
    assert!((0..4).all(|quarter| in_quarter(quarter) > 10), "{begun:?}");
    let all: BTreeSet<&Slice> = begun.iter().map(|(_, kind)| kind).collect();
    assert_eq!(all.len(), kinds.len());
}

#[test]
fn a_kind_that_nobody_reads_is_not_audited_and_an_interval_of_0_disables_audits() {
    let mut world = World::listing(&["a/x@3"]);
    world.list(120, &["a/x@110"]);
    world.audits.end(&pods());
    assert_eq!((world.step(), world.audits.next_due_ms()), (None, None));
    let mut audits = Audits::new(0);
    audits.begin(0, &pods());
    assert_eq!((audits.step(u64::MAX, &world.store), audits.next_due_ms()), (None, None));
}

#[test]
fn with_more_suspects_than_are_kept_the_kind_is_audited_again_soon() {
    let mut world = World::listing(&[]);
    let live: Vec<String> = (0..=MAX_SUSPECTS).map(|number| format!("a/p{number}@{}", 101 + number)).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    world.list(2_000, &live);
    live.iter().for_each(|object| world.apply(object));
    world.store.progress(pods(), ResourceVersion(2_000));
    assert_eq!(world.report(), "", "the watch was behind");
    assert_eq!(world.audits.next_due_ms(), Some(world.now_ms + AGAIN_MS));
    world.next_audit();
    live.iter().for_each(|object| world.delete(&object.replace('@', "@9")));
    world.list(3_000, &live);
    world.now_ms += SETTLE_MS;
    let Some(Act::Report(report)) = world.step() else { panic!("no report") };
    assert_eq!(report.differences.len(), 0, "their deletions are newer than the list");
}
