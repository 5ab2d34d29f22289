//! Every structure that grows with what plugins and users do, with its worst content: the bytes that are counted for it against
//! those that the allocator gave. docs/bounds.md says who pays for which, and what happens at the bound.

use std::collections::BTreeMap;

use super::kept::maps;
use super::*;
use crate::allocations::counted;
use crate::audit::{self, Listed, Page};
use crate::call::{CallId, Conclusion};
use crate::contract::{self, Condition, ConditionStatus, Generated, GuestEvent};
use crate::dependencies::Dependencies;
use crate::dependency_index::DependencyIndex;
use crate::engine::reconciler::enqueuing::Enqueuing;
use crate::event::Event;
use crate::generated::Recipe;
use crate::heap::{allocation, shared};
use crate::http::{Method, OutgoingRequest, Reply, Request, Response, SecretHeader};
use crate::object::Verdict;
use crate::object::tests::{Sample, decode};
use crate::plan::{self, Applied, Prepared};
use crate::rejection::{MAX_REJECTIONS, Rejection, Rejections};
use crate::scope::Slice;
use crate::store::{Answer, Snapshot};
use crate::view::Access;
use crate::watch::WatchEvent;
use crate::workqueue::Lane;

/// A structure with its content, the bytes that are counted, those that the allocator gave, and those that the process has more in
/// memory.
struct Row {
    name: &'static str,
    counted: usize,
    allocated: usize,
    resident: isize,
}

/// `make` returns what is counted, and the structure.
fn row<T>(name: &'static str, make: impl FnOnce() -> (usize, T)) -> Row {
    let (count, (counted, kept)) = counted(make);
    drop(kept);
    Row { name, counted, allocated: count.held_bytes.unsigned_abs(), resident: count.resident_bytes }
}

fn long(text: &str, number: usize, bytes: usize) -> String {
    format!("{text}{number}{}", "n".repeat(bytes - text.len() - number.to_string().len()))
}

fn manifest() -> Manifest {
    let manifest = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "podset",
        "controllers": [{
            "for": {"apiVersion": "example.com/v1", "kind": "PodSet"},
            "owns": [{"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "v1", "kind": "Secret"}],
            "reads": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        }],
        "writes": [{"apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["patch"], "subresources": ["scale"]}],
        "http": [{"origin": "https://api.example.com", "methods": ["GET", "POST"], "secrets": ["token"]}],
    });
    Manifest::parse(&manifest.to_string()).unwrap()
}

/// A checked outcome.
fn prepared(outcome: impl FnOnce() -> Outcome) -> (usize, Prepared) {
    let primary = decode(&object("PodSet", "web").to_string());
    let prepared = plan::prepare(&manifest().controllers[0], &primary, &outcome(), None).unwrap();
    (prepared.bytes(), prepared)
}

fn config_map(number: usize) -> Arc<str> {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": number.to_string()}}).to_string().into()
}

fn of_outcomes() -> Vec<Row> {
    let condition = |number: usize| Condition {
        name: long("C", number, 128),
        status: ConditionStatus::Unknown,
        reason: long("R", number, 128),
        message: "ä".repeat(2_048),
    };
    let event = |number: usize| GuestEvent {
        warning: true,
        reason: "R".to_owned(),
        message: "m".to_owned(),
        regarding: Some(ObjectRef { kind: kind("Secret"), name: Name::new(&"s".repeat(253), &long("n", number, 253)) }),
    };
    let request = |number: usize| Request {
        method: Method::Post,
        headers: (0..32).map(|header| (format!("h{header}").into(), "".into())).collect(),
        secret_headers: vec![SecretHeader {
            name: "authorization".into(),
            prefix: "Bearer ".into(),
            secret: "token".into(),
            key: "k".repeat(253).into(),
        }],
        ..Request::get(long("k", number, 253), format!("https://api.example.com/{}", "p".repeat(4_000)))
    };
    let patch = |number: usize| contract::Action::Patch {
        target: ObjectRef { kind: kind("Deployment"), name: Name::new(&"s".repeat(253), &long("n", number, 253)) },
        patch_kind: contract::PatchKind::Merge,
        body: "{}".into(),
        subresource: Some("scale".to_owned()),
    };
    vec![
        row("outcome: a status of empty keys", || {
            prepared(|| Outcome { status: Some(maps(250 << 10)), ..Outcome::default() })
        }),
        row("outcome: conditions with long messages", || {
            prepared(|| Outcome { conditions: (0..32).map(condition).collect(), ..Outcome::default() })
        }),
        row("outcome: Events about the longest names", || {
            prepared(|| Outcome { events: (0..16).map(event).collect(), ..Outcome::default() })
        }),
        row("outcome: patches of the longest names", || {
            prepared(|| Outcome { actions: (0..500).map(patch).collect(), ..Outcome::default() })
        }),
        row("outcome: requests with many headers", || {
            prepared(|| Outcome { requests: (0..16).map(request).collect(), ..Outcome::default() })
        }),
    ]
}

fn of_children() -> Vec<Row> {
    let children = |count: usize, child: &dyn Fn(usize) -> Child| Outcome {
        children: Some((0..count).map(child).collect()),
        ..Outcome::default()
    };
    let certificate = |number: usize| {
        let names = (0..100).map(|name| format!("{name}.a").into()).collect();
        let generated = Generated {
            at: "data".into(),
            recipe: Recipe::Tls { names, lifetime_seconds: 3_600 },
            rotation: "r".repeat(253).into(),
        };
        let object = json!({"apiVersion": "v1", "kind": "Secret"}).to_string();
        Child { generated: vec![generated], ..Child::new(number.to_string(), object) }
    };
    vec![
        row("outcome: 5,000 small children", || {
            prepared(|| children(5_000, &|number| Child::new(number.to_string(), config_map(number))))
        }),
        row("outcome: 5,000 children of one text", || {
            prepared(|| children(5_000, &|number| Child::new(number.to_string(), config_map(0))))
        }),
        row("outcome: children with exact maps", || {
            let exact = || vec![["a"; 16].join(".").into(); 16];
            prepared(|| {
                children(500, &|number| Child {
                    exact: exact(),
                    ..Child::new(long("k", number, 253), config_map(number))
                })
            })
        }),
        row("outcome: certificates with many names", || prepared(|| children(200, &certificate))),
    ]
}

/// The reads of so many calls, and the index of them. Their list is counted, since it has what is in the states of keys
/// otherwise, in what every key takes.
fn reads(calls: usize, read: impl Fn(usize, &mut View)) -> (usize, (DependencyIndex, Vec<Dependencies>)) {
    let snapshot = Snapshot::of(&[kind("PodSet"), kind("Secret")], []);
    let primary = Arc::new(decode(&object("PodSet", "web").to_string()));
    // The kinds of a manifest, whose text all reads share.
    let access = Arc::new(Access::new(vec![kind("Secret")], 1 << 20));
    let (mut index, mut all) = (DependencyIndex::default(), Vec::with_capacity(calls));
    for number in 0..calls {
        let mut view = View::new(snapshot.clone(), Arc::clone(&primary), Arc::clone(&access), 0, "{}".into());
        read(number, &mut view);
        let mut reads = view.into_dependencies();
        let key = Key { controller: ControllerId(1), name: Name::new("default", &number.to_string()) };
        index.insert(&"podset".into(), &key, &mut reads);
        all.push(reads);
    }
    let of_list = allocation(all.capacity() * size_of::<Dependencies>());
    (of_list + all.iter().map(Dependencies::bytes).sum::<usize>(), (index, all))
}

fn of_reads() -> Vec<Row> {
    let secret = |name: &str| ObjectRef { kind: kind("Secret"), name: Name::new("default", name) };
    vec![
        row("reads: gets of names that do not exist", || {
            reads(20, |call, view| {
                for number in 0..500 {
                    view.get(&secret(&format!("{call}-{number}")), &[]).unwrap();
                }
            })
        }),
        row("reads: gets of the longest names", || {
            reads(20, |call, view| {
                for number in 0..500 {
                    view.get(&secret(&long(&format!("{call}-"), number, 253)), &[]).unwrap();
                }
            })
        }),
        row("reads: kinds as a whole", || {
            reads(500, |_, view| drop(view.get(&secret(&"n".repeat(1 << 20)), &[]).unwrap()))
        }),
        row("reads: one list of many keys", || {
            reads(5_000, |_, view| drop(view.list(&Query::all(kind("Secret"))).unwrap()))
        }),
    ]
}

fn of_queries() -> Vec<Row> {
    vec![
        row("reads: counts of distinct labels that are absent", || {
            reads(20, |call, view| {
                for number in 0..300 {
                    let selector = Some(format!("!l{call}-{number}"));
                    view.count(&Query { selector, ..Query::all(kind("Secret")) }).unwrap();
                }
            })
        }),
        row("reads: lists by distinct labels", || {
            reads(20, |call, view| {
                for number in 0..300 {
                    let selector = Some(format!("l{call}-{number}=v"));
                    view.count(&Query { selector, ..Query::all(kind("Secret")) }).unwrap();
                }
            })
        }),
        row("reads: projections of one-letter members", || {
            reads(20, |call, view| {
                for number in 0..2 {
                    let fields = vec![format!("f{call}.{number}{}", ".x".repeat(500))];
                    view.count(&Query { fields, ..Query::all(kind("Secret")) }).unwrap();
                }
            })
        }),
        row("reads: field selectors with the longest values", || {
            reads(20, |call, view| {
                for number in 0..10 {
                    let requirement =
                        |at: usize| (format!("{}{at}", "a.".repeat(20)), (&*long("v", call, 1_000)).into());
                    let field_selector = (number..number + 8).map(requirement).collect();
                    view.count(&Query { field_selector, ..Query::all(kind("Secret")) }).unwrap();
                }
            })
        }),
        row("queries that a controller has parsed", || {
            let access = Access::new(vec![kind("Secret")], 1 << 20);
            let snapshot = Snapshot::of(&[kind("PodSet"), kind("Secret")], []);
            let primary = Arc::new(decode(&object("PodSet", "web").to_string()));
            let access = Arc::new(access);
            let mut view = View::new(snapshot, primary, Arc::clone(&access), 0, "{}".into());
            for number in 0..250 {
                let fields = vec![format!("f{number}"), format!("g{number}")];
                let selector = Some(format!("!a{number},!b{number}"));
                view.count(&Query { fields, selector, ..Query::all(kind("Secret")) }).unwrap();
            }
            drop(view);
            (access.bytes(), access)
        }),
    ]
}

/// A key's memory of its writes, beside its last call.
fn of_writes() -> Vec<Row> {
    // Its text is one that all share.
    let kind = kind("Secret");
    let target =
        |number: usize| ObjectRef { kind: kind.clone(), name: Name::new(&"s".repeat(253), &long("n", number, 253)) };
    let state = |fill: &dyn Fn(&mut key::KeyState)| {
        let mut state = key::KeyState::default();
        fill(&mut state);
        (state.count_bytes(), state)
    };
    let applied = |names: usize| -> Applied {
        let name = |number: usize| if names == 0 { number.to_string() } else { long("n", number, names) };
        (0..5_000)
            .map(|number| {
                (ObjectRef { kind: kind.clone(), name: Name::new("a", &name(number)) }, (1, ResourceVersion(1)))
            })
            .collect()
    };
    vec![
        row("writes: applies that were compared", || state(&|state| state.memory.applied = applied(0))),
        row("writes: patches that were sent", || {
            state(&|state| {
                let sent = |number| ((target(number), Some("scale".into())), (1, ResourceVersion(1)));
                state.memory.sent = (0..500).map(sent).collect();
            })
        }),
        row("writes: expected in the cache", || {
            let expectation = |number| crate::expectation::Expectation {
                target: target(number),
                uid: "u".repeat(36).into(),
                version: Some(ResourceVersion(1)),
            };
            state(&|state| (0..500).for_each(|number| state.expectations.expect(expectation(number))))
        }),
        row("writes: evictions that are blocked", || {
            state(&|state| {
                (0..500).for_each(|number| state.memory.blocked.refuse(&target(number), &"m".repeat(1_024), 0));
            })
        }),
        row("rejections", || {
            let rejection = |number| Rejection {
                target: target(number),
                subresource: Some("scale".into()),
                child: Some("k".repeat(253).into()),
                reason: "Invalid".into(),
                message: "m".repeat(512).into(),
            };
            let mut rejections = Rejections::default();
            rejections.replace(|_| true, (0..MAX_REJECTIONS).map(rejection), MAX_REJECTIONS);
            (rejections.bytes(), rejections)
        }),
        row("objects that block keys, with their index", || {
            let mut index = DependencyIndex::default();
            let states: Vec<key::KeyState> = (0..10)
                .map(|number| {
                    let name_conflicts = (0..1_000).map(|object| target(number * 1_000 + object)).collect();
                    let state = key::KeyState { name_conflicts, ..key::KeyState::default() };
                    let key = Key { controller: ControllerId(1), name: Name::new("default", &number.to_string()) };
                    index.replace_conflicts(&key, &[], &state.name_conflicts);
                    state
                })
                .collect();
            (states.iter().map(key::KeyState::count_bytes).sum(), (index, states))
        }),
    ]
}

fn of_exchanges() -> Vec<Row> {
    let fill = |reply: &dyn Fn() -> Option<Response>| {
        let mut exchanges = Exchanges::new(1_000_000);
        for number in 0..500 {
            let key = Key { controller: ControllerId(1), name: Name::new("default", &number.to_string()) };
            let request = Arc::new(OutgoingRequest::sample("zone", 1));
            assert!(exchanges.want(&"podset".into(), &key, &[request], 0));
            for (id, ..) in exchanges.run(0, true) {
                if let Some(response) = reply() {
                    exchanges.on_done(id, crate::http::Sent::Response(response), Now { mono_ms: 0, unix_ms: 0 });
                }
            }
        }
        (exchanges.kept_bytes(), exchanges)
    };
    let response = |headers: usize, body: usize| Response {
        status: 200,
        headers: (0..headers).map(|header| (format!("h{header}").into(), "".into())).collect(),
        body: vec![0; body].into(),
    };
    vec![
        row("HTTP: requests without replies", || fill(&|| None)),
        row("HTTP: replies of many short headers", || fill(&|| Some(response(32, 0)))),
        row("HTTP: replies with a body", || fill(&|| Some(response(0, 64 << 10)))),
        row("HTTP: one reply that is empty", || {
            let reply = Arc::new(Reply { result: Ok(response(0, 0)), received_unix_ms: 0 });
            (reply.bytes(), reply)
        }),
    ]
}

fn of_the_cache() -> Vec<Row> {
    let projected = |members: usize, fields: usize| {
        let body: Vec<String> = (0..members).map(|member| format!(r#""m{member}":"{}""#, "v".repeat(1_000))).collect();
        let pod = Arc::new(Sample::pod("a", "x").body(&format!(r#""spec":{{{}}}"#, body.join(","))).build());
        // The plugin keeps its projections; they are counted with its reads.
        let projections: Vec<_> = (0..fields)
            .map(|field| crate::projection::Projection::parse(&["spec".to_owned(), format!("f{field}")]).unwrap())
            .collect();
        projections.iter().for_each(|projection| _ = projection.project(&pod));
        let of_projections = projections.iter().map(crate::projection::Projection::bytes).sum::<usize>();
        let of_kind = [&pod.kind.api_version, &pod.kind.kind, &pod.name.namespace].map(|text| shared(text.len()));
        (
            pod.bytes() + of_projections + of_kind.iter().sum::<usize>() + allocation(projections.len() * 8),
            (pod, projections),
        )
    };
    let compared = |patch_bytes: usize| {
        let pod = decode(&object("Pod", "a").to_string());
        for number in 0..8_u128 {
            pod.remember_verdict(number, Verdict::Needs("p".repeat(patch_bytes).into()));
        }
        let of_kind = [&pod.kind.api_version, &pod.kind.kind, &pod.name.namespace].map(|text| shared(text.len()));
        (pod.bytes() + of_kind.iter().sum::<usize>(), Arc::new(pod))
    };
    vec![
        row("cache: what comparisons of an object have found", || compared(1)),
        row("cache: the patches that comparisons of an object have found", || compared(10_000)),
        row("cache: an object without projections", || projected(100, 0)),
        row("cache: an object that four projections copy", || projected(100, 4)),
        row("cache: answers to queries", || {
            let snapshot = Snapshot::of(&[kind("Secret")], []);
            let texts = |number: usize| Query { selector: Some(format!("!l{number}")), ..Query::all(kind("Secret")) };
            for number in 0..500 {
                let query = Arc::new(texts(number).compile().unwrap());
                let answer = Answer { text: &"x".repeat(2_000), hash: 1, objects: 100, looks: 1 };
                snapshot.keep_answer(&query, answer);
            }
            (snapshot.kept_answer_bytes(), snapshot)
        }),
    ]
}

/// What waits for the event loop, and what it walks in pieces.
fn of_the_loop() -> Vec<Row> {
    let labels: Vec<(String, String)> = (0..500).map(|number| (format!("l{number}"), "v".to_owned())).collect();
    let pod = |name: usize| {
        let metadata = json!({
            "namespace": "default", "name": name.to_string(), "uid": name.to_string(), "resourceVersion": "1",
            "labels": labels.iter().cloned().collect::<BTreeMap<_, _>>(),
        });
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).to_string()
    };
    let slice = || Slice::from(Kind::new("v1", "Pod"));
    let listed = |objects: Vec<Object>| Event::Watch(slice(), WatchEvent::Listed(objects));
    let texts: Vec<String> = (0..100).map(pod).collect();
    let name = |number: usize| Listed {
        name: Name::new(&"s".repeat(253), &long("n", number, 253)),
        uid: "u".repeat(36).into(),
        version: ResourceVersion(1),
    };
    let sized = |event: Event| (event.bytes(), event);
    vec![
        row("inputs: listed objects of many labels", || sized(listed(texts.iter().map(|text| decode(text)).collect()))),
        row("inputs: a page of an audit with the longest names", || {
            let page = Page { version: ResourceVersion(1), objects: (0..500).map(name).collect(), is_last: true };
            sized(Event::Audit(slice(), audit::Response::Page(page)))
        }),
        row("inputs: the outcome of a call", || {
            let outcome = prepared(|| Outcome { status: Some(maps(250 << 10)), ..Outcome::default() }).1;
            let conclusion = Conclusion::Wants(Arc::new(outcome));
            let done = CallDone { conclusion, reads: Dependencies::default(), elapsed_us: 0 };
            sized(Event::CallDone(CallId(1), done))
        }),
        row("inputs: an HTTP response of many short headers", || {
            let headers = (0..32).map(|header| (format!("h{header}").into(), "".into())).collect();
            let response = Response { status: 200, headers, body: vec![0; 64 << 10].into() };
            sized(Event::HttpDone(crate::http::HttpId(1), crate::http::Sent::Response(response)))
        }),
        row("walks of all controllers that are enqueued", || {
            let mut enqueuing = Enqueuing::default();
            (0..6_400).for_each(|number| enqueuing.add(ControllerId(number), Lane::Resync, 0));
            (6_400 * ENQUEUED_BYTES, enqueuing)
        }),
    ]
}

/// Of one controller, whose name of the last object is shared with the cache: a place in a tree that is half empty, and a turn.
const ENQUEUED_BYTES: usize = 192;

#[test]
fn p18_every_structure_that_grows_is_counted_as_the_allocator_gives_it() {
    let rows: Vec<Row> = [
        of_outcomes(),
        of_children(),
        of_reads(),
        of_queries(),
        of_writes(),
        of_exchanges(),
        of_the_cache(),
        of_the_loop(),
    ]
    .into_iter()
    .flatten()
    .collect();
    println!("| structure | counted | allocated | ratio | resident |\n|---|---|---|---|---|");
    for Row { name, counted, allocated, resident } in &rows {
        println!("| {name} | {counted} | {allocated} | {:.2} | {resident} |", *allocated as f64 / *counted as f64);
    }
    for Row { name, counted, allocated, .. } in rows {
        assert!(counted + counted / 20 >= allocated, "{name}: {counted} bytes were counted, {allocated} allocated");
        assert!(counted <= 3 * allocated + 8_192, "{name}: {counted} bytes were counted, {allocated} allocated");
    }
}
