//! HTTP requests of outcomes: when a plan sends them, and how their replies become inputs.

use super::*;
use crate::http::{
    Failure as HttpFailure, FailureClass, Method, OutgoingRequest, Request, Response, SecretHeader, Sent,
};

const URL: &str = "https://api.example.com/zone";

/// An outcome with children, and a GET of this URL.
fn requests(children: usize, url: &str) -> CallResult {
    let CallResult::Done(outcome) = wants(children) else { unreachable!("it wants children") };
    CallResult::Done(Outcome { requests: vec![Request::get("zone", url)], ..outcome })
}

/// The status of the response to [`URL`] that a call reads.
fn read(view: &mut View) -> Option<u16> {
    let reply = view.response(&Request::get("zone", URL))?;
    reply.result.as_ref().ok().map(|response| response.status)
}

impl Alone {
    fn responds(&mut self, status: u16) {
        let sending = self.requested.pop_front().expect("a request was sent");
        let response = Response { status, headers: Vec::new(), body: Arc::default() };
        self.with(|reconciler, cx| reconciler.on_http_done(sending.id, Sent::Response(response), cx));
    }

    fn requested(&self) -> Vec<String> {
        let text = |sending: &Sending| format!("{} {}", sending.cause.object.name.name, sending.request.path);
        self.requested.iter().map(text).collect()
    }
}

#[test]
fn a_request_is_sent_after_the_writes_of_its_outcome_and_its_response_is_read_by_the_next_call() {
    let mut alone = Alone::serving(&["web"]);
    let mut found = Some(0);
    alone.returns_with(requests(1, URL), |view| found = read(view));
    assert_eq!((found, alone.requested()), (None, vec![]), "its child is being written");
    alone.settle();
    assert_eq!((alone.requested(), alone.called()), (vec!["web /zone".to_owned()], vec![]));
    alone.responds(200);
    alone.returns_with(requests(1, URL), |view| found = read(view));
    assert_eq!((found, alone.requested(), alone.called()), (Some(200), vec![], vec![]), "and then all is quiet");
}

#[test]
fn a_request_of_an_outcome_whose_writes_fail_is_not_sent_and_one_that_it_lacks_is_forgotten() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    assert_eq!(alone.requested(), ["web /zone"]);
    alone.change_secret("web");
    alone.returns(requests(1, "https://api.example.com/other"));
    alone.fail(WriteErrorClass::Invalid);
    assert_eq!(alone.requested(), ["web /zone"]);
    alone.responds(200);
    assert_eq!(alone.called(), NONE, "nobody wants that response any more");
    alone.pass(10);
    alone.settle();
    assert_eq!(alone.requested(), ["web /other"]);
}

#[test]
fn w2_a_response_that_no_call_has_read_causes_none() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    alone.responds(200);
    assert_eq!(alone.called(), NONE);
}

#[test]
fn a_response_during_a_call_is_not_lost() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    alone.change_secret("web");
    alone.responds(200);
    let mut found = None;
    alone.returns_with(requests(0, URL), |view| found = read(view));
    assert_eq!((found, alone.called().len()), (None, 1));
    alone.returns_with(requests(0, URL), |view| found = read(view));
    assert_eq!((found, alone.called()), (Some(200), vec![]));
}

#[test]
fn l1_a_version_that_declares_less_sends_less() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    alone.responds(503);
    alone.serve_without_http("podset", "2", &["PodSet"]);
    alone.pass(60_000);
    assert_eq!(alone.requested(), NONE);
}

#[test]
fn l1_a_version_that_takes_over_during_the_writes_sends_nothing_of_the_former() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(1, URL));
    alone.serve_without_http("podset", "2", &["PodSet"]);
    alone.settle();
    assert_eq!((alone.requested(), alone.called()), (vec![], vec!["podset/PodSet 2 web".to_owned()]));
}

#[test]
fn a_request_of_a_former_outcome_is_not_repeated_after_a_terminal_failure_unless_that_has_read_its_reply() {
    for has_read in [false, true] {
        let mut alone = Alone::serving(&["web"]);
        alone.returns_with(requests(0, URL), |view| _ = read(view));
        for _ in 0..3 {
            alone.responds(503);
            alone.pass(600_000);
        }
        let failed = CallResult::Failed(Failure::Terminal("no".to_owned()));
        alone.returns_with(failed, |view| drop(view.response(&Request::get(if has_read { "zone" } else { "b" }, URL))));
        alone.settle();
        alone.responds(if has_read { 200 } else { 503 });
        alone.pass(600_000);
        assert_eq!((alone.requested(), alone.called().len()), (vec![], usize::from(has_read)));
    }
}

#[test]
fn the_requests_of_an_object_end_when_it_is_deleted_though_another_finalizer_holds_it() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    let mut held = object("PodSet", "web");
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    held["metadata"]["finalizers"] = json!(["example.com/another"]);
    alone.put(held);
    alone.responds(503);
    alone.pass(600_000);
    assert_eq!((alone.requested(), alone.called()), (vec![], vec![]));
}

#[test]
fn x1_a_finalizer_stays_while_a_request_that_changes_something_is_in_flight() {
    let mut alone = Alone::new();
    alone.finalizes = true;
    alone.serve("podset", "1", &["PodSet"]);
    alone.ready("podset", "PodSet", true);
    let mut web = object("PodSet", "web");
    alone.put(web.clone());
    let post = Request { method: Method::Post, ..Request::get("zone", URL) };
    let posts = || CallResult::Done(Outcome { requests: vec![post.clone()], ..Outcome::default() });
    alone.returns(posts());
    alone.settle();
    while !alone.calls.is_empty() {
        alone.returns(posts());
    }
    assert_eq!(alone.requested(), ["web /zone"]);
    web["metadata"]["finalizers"] = json!([finalizer::name("podset")]);
    web["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    web["metadata"]["generation"] = json!(2);
    alone.put(web);
    alone.returns(CallResult::Done(Outcome { finalized: true, ..Outcome::default() }));
    alone.pass(WRITE_TIMEOUT_MS - 1);
    assert_eq!(alone.writes(), NONE);
    alone.responds(200);
    alone.pass(1_000);
    assert_eq!(alone.writes(), ["patch PodSet web"]);
}

#[test]
fn q4_an_outcome_whose_requests_have_no_room_is_stalled_and_compared_again_in_a_minute() {
    const LATER_MS: u64 = 86_400_000;
    let mut alone = Alone::serving(&["web"]);
    let another = Key { controller: ControllerId(99), name: Name::new("default", "another") };
    let body: Arc<[u8]> = vec![0; 64 << 10].into();
    let filling = |content| OutgoingRequest { body: Arc::clone(&body), ..OutgoingRequest::sample("zone", content) };
    let filling: Vec<_> = (0..1_024).map(|content| Arc::new(filling(content))).collect();
    let exchanges = &mut alone.reconciler.exchanges;
    assert!(!exchanges.want(&"podset".into(), &another, &filling, LATER_MS));
    let post = Request { method: Method::Post, body: Arc::clone(&body), ..Request::get("zone", URL) };
    let CallResult::Done(outcome) = wants(1) else { unreachable!("it wants children") };
    alone.returns(CallResult::Done(Outcome { requests: vec![post], ..outcome }));
    assert_eq!(alone.writes(), ["patch ConfigMap web"]);
    alone.settle();
    assert_eq!(
        (alone.recorded.clone(), alone.requested(), alone.called()),
        (vec!["NoRoom".to_owned()], vec![], vec![])
    );
    alone.reconciler.exchanges.drop_key(&another);
    alone.pass(60_000);
    alone.settle();
    assert_eq!(alone.requested(), ["web /zone"]);
}

#[test]
fn the_requests_of_an_object_end_with_it() {
    let mut alone = Alone::serving(&["web"]);
    alone.returns(requests(0, URL));
    alone.delete("PodSet", "web");
    alone.responds(503);
    alone.pass(60_000);
    assert_eq!((alone.requested(), alone.called(), alone.due_in_ms()), (vec![], vec![], None));
}

#[test]
fn an_idempotency_key_follows_from_owner_and_content_alone_and_idempotent_methods_have_none() {
    let key_of = |method: Method, body: &[u8]| {
        let mut alone = Alone::serving(&["web"]);
        let request = Request { method, body: body.into(), ..Request::get("zone", URL) };
        alone.returns(CallResult::Done(Outcome { requests: vec![request], ..Outcome::default() }));
        let sending = alone.requested.pop_front().expect("a request was sent");
        sending.request.headers.first().map(|(name, value)| (name.to_string(), value.to_string()))
    };
    let (name, value) = key_of(Method::Post, b"a").expect("POST has one");
    assert_eq!((&*name, value.len()), ("idempotency-key", 32));
    assert_eq!(key_of(Method::Post, b"a"), Some((name, value)), "another host computes the same");
    assert_ne!(key_of(Method::Post, b"a"), key_of(Method::Post, b"b"));
    assert!(key_of(Method::Patch, b"a").is_some());
    for (method, body) in [(Method::Put, &b"a"[..]), (Method::Delete, b""), (Method::Get, b"")] {
        assert_eq!(key_of(method, body), None, "{method:?}: it would not repair a drift");
    }
}

#[test]
fn l5_a_plugin_that_is_over_its_budget_of_requests_is_reported_each_time_and_those_within_it_are_not() {
    let mut alone = Alone::new();
    alone.reconciler = Reconciler::new(reserved(), 16, 2);
    alone.serve("podset", "1", &["PodSet"]);
    alone.ready("podset", "PodSet", true);
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        alone.put(object("PodSet", name));
        alone.returns(requests(0, URL));
        assert_eq!((alone.requested().len(), alone.reported().len()), ((number + 1).min(3), usize::from(number == 2)));
    }
    alone.pass(30_000);
    let [throttled] = &alone.reported()[..] else { panic!("one message") };
    assert!(throttled.starts_with("podset throttled: podset is over its budget of 2 HTTP requests"), "{throttled}");
    assert!(throttled.contains("--plugin-requests-per-minute"), "{throttled}");
    assert_eq!(alone.requested().len(), 4);
}

#[test]
fn g8_a_request_says_whether_its_origin_gets_what_the_host_made_and_a_grant_sends_at_once_what_waits_for_it() {
    let http = json!([{"origin": "https://api.example.com", "methods": ["GET"], "secrets": ["token"]}]);
    let mut alone = Alone::new();
    alone.serve_with("podset", "1", &["PodSet"], &http);
    alone.ready("podset", "PodSet", true);
    alone.put(object("PodSet", "web"));
    let secret = SecretHeader { name: "a".into(), prefix: "".into(), secret: "token".into(), key: "key".into() };
    let get = Request { secret_headers: vec![secret], ..Request::get("zone", URL) };
    let outcome = || CallResult::Done(Outcome { requests: vec![get.clone()], ..Outcome::default() });
    let mut found = None;
    alone.returns_with(outcome(), |view| found = view.response(&get));
    let sending = alone.requested.pop_front().expect("it is sent");
    assert!(found.is_none() && !sending.gets_generated && *sending.plugin == *"podset");
    alone.with(|reconciler, cx| reconciler.on_http_done(sending.id, Sent::NotGranted("add it".into()), cx));
    assert_eq!(alone.reported(), ["podset not granted: Some(\"add it\")"]);
    alone.returns_with(outcome(), |view| found = view.response(&get));
    let shown = Some(Err(HttpFailure { class: FailureClass::Secret, message: "add it".into() }));
    assert_eq!(found.map(|reply| reply.result.clone()), shown, "without waiting for a third failure");
    assert_eq!(alone.requested(), NONE);

    let granted = ["https://api.example.com".into()].into();
    alone.grants = Grants { generated_values_to: granted, ..Grants::default() }.into();
    alone.serve_with("podset", "1", &["PodSet"], &http);
    let sending = alone.requested.pop_front().expect("it is sent at once");
    assert!(sending.gets_generated);
    let response = Response { status: 200, headers: Vec::new(), body: Arc::default() };
    alone.with(|reconciler, cx| reconciler.on_http_done(sending.id, Sent::Response(response), cx));
    assert_eq!(alone.reported(), ["podset not granted: None"]);
    alone.delete("PodSet", "web");
    assert_eq!(alone.reported(), NONE);
}
