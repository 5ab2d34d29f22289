//! A definition whose objects are converted waits for whoever answers, and follows who that is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Event, Host, Offer, component, kind_of, manifest, plugin_name, plugin_object, source_of};
use crate::digest::Digest;
use crate::event::Effect;
use crate::observation::Observation;
use crate::refusal::Refusal;
use crate::time::Now;
use crate::webhook::{Address, Endpoint};

const DEFINITION: &str = "kind0000s.example.com";

/// A version of the plugin whose kind has two versions.
fn converting(host: &mut Host, version: usize) -> Digest {
    let digest = component(0, version);
    let text = manifest(&plugin_name(0), &kind_of(0), version);
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    let versions = &mut manifest["customResources"][0]["spec"]["versions"];
    versions.as_array_mut().unwrap().push(json!({"name": "v1alpha1", "served": true, "storage": false}));
    manifest["conversion"] = json!([{"apiVersion": "example.com/v1alpha1", "kind": &*kind_of(0).kind}]);
    host.manifests.insert(digest.clone(), manifest.to_string().into());
    digest
}

fn endpoint(ca_bundle: &str) -> Endpoint {
    Endpoint {
        address: Address::Url("https://127.0.0.1:9443".into()),
        ca_bundle: Some(ca_bundle.into()),
        namespace: "mortise-system".into(),
    }
}

fn served(host: &mut Host, digest: &Digest, result: Result<Endpoint, Refusal>) {
    host.step(Event::ConversionServed { plugin: plugin_name(0), digest: digest.clone(), result });
}

/// Who the shell was last asked to have convert.
fn asked(host: &mut Host) -> Option<Option<Digest>> {
    let (_, serving) = std::mem::take(&mut host.conversion).pop()?;
    Some(serving.map(|serving| serving.digest.clone()))
}

/// The caBundle with which the definition was last registered.
fn trusted(host: &Host) -> Option<&str> {
    host.definitions.get(DEFINITION)?["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str()
}

fn condition(host: &Host, name: &str) -> (String, String, String) {
    let object = &host.objects[&plugin_object(&plugin_name(0))];
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == name).expect("the condition is there");
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn a_definition_is_registered_with_its_webhook_when_the_host_answers_and_never_before() {
    let mut host = Host::started();
    let digest = converting(&mut host, 1);
    host.offer_component(0, digest.clone());
    assert_eq!(asked(&mut host), Some(Some(digest.clone())));
    host.pass(2_000);
    assert!(!host.definitions.contains_key(DEFINITION), "it would convert by leaving out");
    let (status, _, message) = condition(&host, "Established");
    assert_eq!(status, "Unknown");
    assert!(message.contains("which are registered when the host converts their objects"), "{message}");
    assert_eq!(condition(&host, "Converting").1, "ConversionPending");

    served(&mut host, &digest, Err(Refusal::new("Forbidden", "no Secret")));
    assert_eq!(condition(&host, "Converting").1, "Forbidden");
    assert_eq!(condition(&host, "Ready").2, "no Secret", "what is in the way is said where people look");
    host.pass(60_000);
    assert!(!host.definitions.contains_key(DEFINITION));

    served(&mut host, &digest, Ok(endpoint("one")));
    assert_eq!(trusted(&host), Some("one"));
    assert_eq!(condition(&host, "Converting").1, "Served");
    assert_eq!(condition(&host, "Ready").1, "Serving");
}

#[test]
fn another_certificate_authority_goes_into_the_definition_and_no_news_does_not() {
    let mut host = Host::started();
    let digest = converting(&mut host, 1);
    host.offer_component(0, digest.clone());
    served(&mut host, &digest, Ok(endpoint("one")));
    host.definitions.clear();
    served(&mut host, &digest, Ok(endpoint("one")));
    assert_eq!(trusted(&host), None, "what is no news is not written");
    served(&mut host, &digest, Ok(endpoint("two")));
    assert_eq!(trusted(&host), Some("two"));
    served(&mut host, &Digest("sha256:other".into()), Ok(endpoint("three")));
    assert_eq!(trusted(&host), Some("two"), "that is not about the version that answers");
    served(&mut host, &digest, Err(Refusal::new("CertificateUnreadable", "no file")));
    assert_eq!(condition(&host, "Ready").1, "CertificateUnreadable");
}

#[test]
fn an_authority_that_changes_while_a_definition_is_being_registered_is_written_next() {
    let mut host = Host::started();
    let digest = converting(&mut host, 1);
    host.offer_component(0, digest.clone());
    let now = Now { mono_ms: host.now_ms, unix_ms: 0 };
    let mut step = |event| {
        let mut effects = Vec::new();
        host.engine.step(now, event, &mut effects);
        let mut registered = effects.into_iter().filter_map(|effect| match effect {
            Effect::RegisterCrd { body, .. } => Some(body),
            _ => None,
        });
        registered.next()
    };
    let served = |ca_bundle| Event::ConversionServed {
        plugin: plugin_name(0),
        digest: digest.clone(),
        result: Ok(endpoint(ca_bundle)),
    };
    let registered = || Event::CrdRegistered { plugin: plugin_name(0), crd: DEFINITION.into(), result: Ok(()) };
    assert!(step(served("one")).unwrap().contains(r#""caBundle":"one""#));
    assert_eq!(step(served("two")), None, "one registration at a time");
    assert!(step(registered()).unwrap().contains(r#""caBundle":"two""#));
    assert_eq!(step(registered()), None);
}

#[test]
fn l1_a_version_converts_from_the_step_on_in_which_it_is_registered_and_hands_back_when_it_is_not_to_serve() {
    let mut host = Host::started();
    let first = converting(&mut host, 1);
    host.offer_component(0, first.clone());
    served(&mut host, &first, Ok(endpoint("one")));
    asked(&mut host);
    let second = converting(&mut host, 2);
    host.offer_component(0, second.clone());
    assert_eq!(asked(&mut host), Some(Some(second.clone())));
    assert_eq!(trusted(&host), Some("one"), "where the host is does not change with who answers");
    assert_eq!(condition(&host, "Ready").1, "Serving");

    // Another configuration of the same component is another version too.
    let (name, config) = (plugin_name(0), Arc::from(r#"{"a":1}"#));
    let source = source_of(&name);
    host.step(Event::PluginFound(Offer { name, source, digest: second.clone(), config }));
    assert_eq!(asked(&mut host), Some(Some(second)));

    host.offer_component(0, component(0, 3));
    assert_eq!(asked(&mut host), Some(None), "this version converts nothing");
}

#[test]
fn l3_a_plugin_that_goes_leaves_its_definitions_and_says_what_that_means() {
    let mut host = Host::started();
    let digest = converting(&mut host, 1);
    host.offer_component(0, digest.clone());
    served(&mut host, &digest, Ok(endpoint("one")));
    asked(&mut host);
    host.withdraw(0);
    assert_eq!(asked(&mut host), Some(None));
    let told = host.observed.iter().find_map(|observation| match observation {
        Observation::ConversionLeft { message, .. } => Some(message),
        _ => None,
    });
    assert!(told.unwrap().contains("still has it convert kind0000s.example.com (v1, v1alpha1)"), "{told:?}");
    assert!(host.crds.contains(DEFINITION));
}
