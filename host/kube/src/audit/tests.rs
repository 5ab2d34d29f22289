//! The requests of an audit, and what is read of the responses.

use std::sync::Mutex;

use tokio::sync::mpsc;

use super::*;
use crate::testing::serve;

/// What an audit of Pods sends.
async fn audited(respond: impl Fn(&str, usize) -> (&'static str, String) + Send + Sync + 'static) -> Vec<String> {
    audited_slice(Kind::new("v1", "Pod").into(), "/api/v1/pods?", respond).await
}

async fn audited_slice(
    slice: Slice,
    collection: &'static str,
    respond: impl Fn(&str, usize) -> (&'static str, String) + Send + Sync + 'static,
) -> Vec<String> {
    let lists = Mutex::new(0);
    let api = serve(move |request| {
        let Some(query) = request.path.strip_prefix(collection) else {
            return ("200 OK", r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#.to_owned());
        };
        assert!(request.accept.contains("as=PartialObjectMetadataList"), "{}", request.accept);
        let mut lists = lists.lock().unwrap();
        *lists += 1;
        respond(query, *lists)
    });
    let (sink, mut answers) = mpsc::channel(1);
    let listing = tokio::spawn(run(api.await, slice, sink, |answer| answer));
    let mut sent = Vec::new();
    while let Some(answer) = answers.recv().await {
        sent.push(match answer {
            Response::Begun => "begun".to_owned(),
            Response::Failed => "failed".to_owned(),
            Response::Page(page) => {
                let object = |listed: &Listed| format!(" {} {}@{}", listed.name, listed.uid, listed.version.0);
                let objects: String = page.objects.iter().map(object).collect();
                format!("{}:{objects}{}", page.version.0, if page.is_last { "." } else { "" })
            }
        });
    }
    listing.await.unwrap();
    sent
}

fn page_of(names: &[&str], next: &str) -> String {
    let item = |name: &&str| {
        format!(r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"of-{name}","resourceVersion":"7"}}}}"#)
    };
    let items: Vec<String> = names.iter().map(item).collect();
    format!(
        r#"{{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"90","continue":"{next}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

const GONE: &str =
    r#"{"kind":"Status","code":410,"reason":"Expired","message":"The provided continue parameter is too old"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_read_page_by_page_without_a_resource_version() {
    let sent = audited(|query, _| {
        let page = match query {
            "limit=500&continue=" => page_of(&["a", "b"], "next%"),
            "limit=500&continue=next%25" => page_of(&["c"], ""),
            other => panic!("{other}"),
        };
        ("200 OK", page)
    });
    assert_eq!(sent.await, ["begun", "90: ns/a of-a@7 ns/b of-b@7", "90: ns/c of-c@7."]);
    let sent = audited(|_, _| ("200 OK", r#"{"metadata":{"resourceVersion":"90"},"items":null}"#.to_owned()));
    assert_eq!(sent.await, ["begun", "90:."], "Go writes an empty list as null");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_version_is_compacted_restarts_twice_at_most() {
    let sent = audited(|query, lists| match (query, lists) {
        (_, 2) => ("410 Gone", GONE.to_owned()),
        ("limit=500&continue=", 1 | 3) => ("200 OK", page_of(&["a"], "next")),
        ("limit=500&continue=next", 4) => ("200 OK", page_of(&["b"], "")),
        other => panic!("{other:?}"),
    });
    assert_eq!(sent.await, ["begun", "90: ns/a of-a@7", "begun", "90: ns/a of-a@7", "90: ns/b of-b@7."]);
    assert_eq!(audited(|_, _| ("410 Gone", GONE.to_owned())).await, ["begun", "begun", "begun", "failed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_refused_or_cannot_be_parsed_is_a_failed_audit() {
    assert_eq!(audited(|_, _| ("403 Forbidden", String::new())).await, ["begun", "failed"]);
    let of_another = r#"{"metadata":{"resourceVersion":"v1"},"items":[]}"#;
    assert_eq!(audited(|_, _| ("200 OK", of_another.to_owned())).await, ["begun", "failed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_is_listed_in_its_namespace_with_its_labels() {
    let slice =
        Slice { namespace: Some("shop".into()), labels: Some("app=web".into()), ..Kind::new("v1", "Pod").into() };
    let sent = audited_slice(slice, "/api/v1/namespaces/shop/pods?", |query, _| {
        assert_eq!(query, "limit=500&continue=&labelSelector=app%3Dweb");
        ("200 OK", page_of(&["a"], ""))
    });
    assert_eq!(sent.await, ["begun", "90: ns/a of-a@7."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_token_repeats_is_a_failed_audit() {
    let sent = audited(|_, lists| {
        assert!(lists < 9, "it has no end");
        ("200 OK", page_of(&["a"], if lists % 2 == 0 { "even" } else { "odd" }))
    });
    assert_eq!(sent.await, ["begun", "90: ns/a of-a@7", "90: ns/a of-a@7", "failed"]);
}
