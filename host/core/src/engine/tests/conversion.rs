//! A CRD with a conversion webhook is registered when the host serves that webhook, and again when its endpoint
//! changes.

use super::*;
use crate::refusal::Refusal;
use crate::webhook::{Address, Endpoint};

const CRD: &str = "kind0000s.example.com";

/// Offers a version of the plugin whose kind has two versions.
fn offer_converting(host: &mut Host, version: usize) -> Digest {
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), version));
    let versions = &mut manifest["customResources"][0]["spec"]["versions"];
    versions.as_array_mut().unwrap().push(json!({"name": "v1alpha1", "served": true, "storage": false}));
    manifest["conversion"] = json!([{"apiVersion": "example.com/v1alpha1", "kind": &*kind_of(0).kind}]);
    host.offer_manifest(0, version, &manifest)
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

/// The backend that was set last, since the last time.
fn backend(host: &mut Host) -> Option<Option<Digest>> {
    let (_, backend) = std::mem::take(&mut host.conversion).pop()?;
    Some(backend.map(|backend| backend.digest.clone()))
}

/// The caBundle in the last registration of the CRD.
fn ca_bundle(host: &Host) -> Option<&str> {
    host.definitions.get(CRD)?["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str()
}

#[test]
fn a_crd_is_registered_when_its_conversion_webhook_is_served_and_never_before() {
    let mut host = Host::started();
    let digest = offer_converting(&mut host, 1);
    assert_eq!(backend(&mut host), Some(Some(digest.clone())));
    host.pass(2_000);
    assert!(!host.definitions.contains_key(CRD), "the API server would drop fields");
    let [status, _, message] = host.condition(0, "Established").unwrap();
    assert_eq!(status, "Unknown");
    assert!(message.contains("which are registered when the host converts their objects"), "{message}");
    assert_eq!(host.reason(0, "Converting"), "ConversionPending");

    served(&mut host, &digest, Err(Refusal::new("Forbidden", "no Secret")));
    assert_eq!(host.reason(0, "Converting"), "Forbidden");
    assert_eq!(host.condition(0, "Ready").unwrap()[2], "no Secret");
    host.pass(60_000);
    assert!(!host.definitions.contains_key(CRD));

    served(&mut host, &digest, Ok(endpoint("one")));
    assert_eq!(ca_bundle(&host), Some("one"));
    assert_eq!(host.reason(0, "Converting"), "Served");
    assert_eq!(host.reason(0, "Ready"), "Serving");
}

#[test]
fn a_crd_is_registered_again_when_the_certificate_authority_changes_and_not_otherwise() {
    let mut host = Host::started();
    let digest = offer_converting(&mut host, 1);
    served(&mut host, &digest, Ok(endpoint("one")));
    host.definitions.clear();
    served(&mut host, &digest, Ok(endpoint("one")));
    assert_eq!(ca_bundle(&host), None);
    served(&mut host, &digest, Ok(endpoint("two")));
    assert_eq!(ca_bundle(&host), Some("two"));
    served(&mut host, &Digest("sha256:other".into()), Ok(endpoint("three")));
    assert_eq!(ca_bundle(&host), Some("two"), "a result of another version is ignored");
    served(&mut host, &digest, Err(Refusal::new("CertificateUnreadable", "no file")));
    assert_eq!(host.reason(0, "Ready"), "CertificateUnreadable");
}

#[test]
fn a_crd_whose_certificate_authority_changes_during_a_registration_is_registered_again_afterwards() {
    let mut host = Host::started();
    let digest = offer_converting(&mut host, 1);
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
    let registered = || Event::CrdRegistered { plugin: plugin_name(0), crd: CRD.into(), result: Ok(CrdOwner::Plugin) };
    assert!(step(served("one")).unwrap().contains(r#""caBundle":"one""#));
    assert_eq!(step(served("two")), None, "one registration at a time");
    assert!(step(registered()).unwrap().contains(r#""caBundle":"two""#));
    assert_eq!(step(registered()), None);
}

#[test]
fn l1_the_backend_changes_in_the_step_in_which_a_version_begins_to_be_registered() {
    let mut host = Host::started();
    let first = offer_converting(&mut host, 1);
    served(&mut host, &first, Ok(endpoint("one")));
    backend(&mut host);
    let second = offer_converting(&mut host, 2);
    assert_eq!(backend(&mut host), Some(Some(second.clone())));
    assert_eq!(ca_bundle(&host), Some("one"), "the endpoint is the same for all versions");
    assert_eq!(host.reason(0, "Ready"), "Serving");

    // Another configuration of the same component is another version too.
    let (name, config) = (plugin_name(0), Arc::from(r#"{"a":1}"#));
    let source = source_of(&name);
    host.step(Event::PluginFound(Offer::new(name, source, second.clone(), config)));
    assert_eq!(backend(&mut host), Some(Some(second)));

    host.offer_component(0, component(0, 3));
    assert_eq!(backend(&mut host), Some(None), "this version does not convert");
}

#[test]
fn l3_the_removal_of_a_plugin_that_converts_leaves_its_crds_and_is_observed() {
    let mut host = Host::started();
    let digest = offer_converting(&mut host, 1);
    served(&mut host, &digest, Ok(endpoint("one")));
    backend(&mut host);
    host.withdraw(0);
    assert_eq!(backend(&mut host), Some(None));
    let message = host.observed.iter().find_map(|observation| match observation {
        Observation::ConversionLeft { message, .. } => Some(message),
        _ => None,
    });
    let expected = "still calls its conversion webhook for kind0000s.example.com (v1, v1alpha1)";
    assert!(message.unwrap().contains(expected), "{message:?}");
    assert!(host.crds.contains(CRD));
}
