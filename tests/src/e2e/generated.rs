//! Values that the host makes, in real Secrets: made once, kept, made anew when that is wanted, seen by no plugin and in
//! no log; and certificates that a TLS client accepts, renewed in time.

use std::sync::Arc;
use std::time::Duration;

use mortise_control_plane::ADMIN;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, sign::CertifiedKey};
use serde_json::{Value, json};

use super::foo::field;
use super::quiet::{calls, wait_until_quiet};
use super::world::{World, built};

/// The shortest life of a certificate, which makes this test as short as possible: it is renewed after 40 s.
const LIFETIME_SECONDS: u64 = 60;
/// A renewal: 40 s, and some for an idle machine.
const RENEWAL: Duration = Duration::from_secs(100);

fn world(name: &str) -> World {
    let mut world = World::new(name);
    start(&mut world);
    world.offer("sealed", &built("test-guests/sealed.wasm"));
    world.wait_ready("sealed");
    world
}

/// A host that logs more than one usually does.
fn start(world: &mut World) {
    world.start_host_as(ADMIN, &["--log-level", "debug"]);
}

fn apply(world: &World, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": world.namespace});
    world.apply(&json!({"apiVersion": "test.mortise.dev/v1", "kind": "Sealed", "metadata": metadata, "spec": spec}));
}

/// A member of the Secret's data, decoded by kubectl; empty without one.
fn value(world: &World, name: &str, key: &str) -> String {
    let path = format!("{{{{with index .data {key:?}}}}}{{{{. | base64decode}}}}{{{{end}}}}");
    let template = format!("go-template={path}");
    let output = world.plane.kubectl_output(&["-n", &world.namespace, "get", "secret", name, "-o", &template]);
    output.unwrap_or_default()
}

fn wait_value(world: &World, name: &str, key: &str, what: &str, is_it: impl Fn(&str) -> bool) -> String {
    world.until(what, || Some(value(world, name, key)).filter(|found| is_it(found)))
}

fn is_password(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[test]
fn g8_x8_a_password_is_made_once_and_again_when_it_is_rotated_or_removed_and_nobody_sees_it() {
    let mut world = world("generated-password");
    world.mark_audit();
    apply(&world, "a", json!({}));
    let first = wait_value(&world, "a", "password", "the Secret has a password", is_password);
    let created: Vec<_> = world.writes_by_host().into_iter().filter(|write| write.resource == "secrets").collect();
    assert_eq!(created.len(), 1, "it is created with its password, in one request: {created:#?}");
    wait_until_quiet(&world, "sealed");

    apply(&world, "a", json!({"data": {"host": "ZGI="}}));
    wait_value(&world, "a", "host", "the rest of the Secret changes", |host| host == "db");
    assert_eq!((value(&world, "a", "password"), value(&world, "a", "user")), (first.clone(), "app".to_owned()));
    apply(&world, "a", json!({}));
    wait_value(&world, "a", "host", "also when a field is removed", str::is_empty);
    assert_eq!(value(&world, "a", "password"), first);

    wait_until_quiet(&world, "sealed");
    let mut encoded = vec![field(&world, "secret/a", "{.data.password}")];
    let log = world.log_since_start();
    world.kill_host();
    world.mark_audit();
    start(&mut world);
    world.wait_ready("sealed");
    wait_until_quiet(&world, "sealed");
    assert_eq!(world.writes_by_host().iter().filter(|write| write.resource == "secrets").count(), 0);
    assert_eq!(value(&world, "a", "password"), first, "a restart changes nothing");

    apply(&world, "a", json!({"rotation": "2"}));
    let second = wait_value(&world, "a", "password", "it is rotated", |found| is_password(found) && found != first);
    wait_until_quiet(&world, "sealed");
    assert_eq!(value(&world, "a", "password"), second, "once");
    encoded.push(field(&world, "secret/a", "{.data.password}"));
    world.kubectl_here(&["patch", "secret", "a", "--type=json", "-p", r#"[{"op":"remove","path":"/data/password"}]"#]);
    let third = wait_value(&world, "a", "password", "one that is removed is made anew", is_password);
    assert!(third != first && third != second);
    encoded.push(field(&world, "secret/a", "{.data.password}"));
    world.kubectl_here(&["patch", "secret", "a", "-p", r#"{"stringData":{"password":"of a person"}}"#]);
    wait_until_quiet(&world, "sealed");
    assert_eq!(value(&world, "a", "password"), "of a person", "one that a person sets is kept");

    let seen = field(&world, "sealed/a", "{.status.seen[0]}");
    let shown: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(shown["data"], json!({"password": "", "user": "YXBw"}));
    assert!(shown["metadata"]["annotations"]["mortise.dev/generated"].as_str().unwrap().contains("alphanumeric-32"));
    let texts = log + &world.log_since_start() + &field(&world, "sealed/a", "{}");
    for password in encoded.iter().chain([&first, &second, &third]) {
        assert!(password.len() >= 32 && !texts.contains(password.as_str()), "a password is in the log or the status");
    }
    world.kubectl_here(&["delete", "sealed", "a"]);
    world.until("the Secret is deleted with its owner", || value(&world, "a", "user").is_empty().then_some(()));
}

/// The API server repeats the patched object when a patch does not fit.
#[test]
fn g8_a_refused_patch_shows_no_value_to_its_plugin_nor_to_anybody_else() {
    let world = world("generated-patch");
    apply(&world, "a", json!({}));
    let password = wait_value(&world, "a", "password", "the Secret has a password", is_password);
    let encoded = field(&world, "secret/a", "{.data.password}");
    for (name, patch) in [("b", json!({"immutable": "x"})), ("c", json!({"data": {"zz": "!"}}))] {
        apply(&world, name, json!({"patches": {"a": patch.to_string()}}));
        let path = "{.status.conditions[?(@.type==\"Stalled\")].message}";
        let shown = world.until("the patch is refused", || {
            Some(field(&world, &format!("sealed/{name}"), path)).filter(|message| !message.is_empty())
        });
        assert!(shown.contains("patch of Secret") && shown.contains("Invalid: patch (FieldValueInvalid)"), "{shown}");
    }
    wait_until_quiet(&world, "sealed");
    let objects = ["sealed", "events"].map(|kind| field(&world, kind, "{}"));
    let texts = world.log_since_start() + &objects.concat();
    assert!(texts.contains("FieldValueInvalid"), "the refusal is logged or shown");
    for secret in [password, encoded] {
        assert!(
            !texts.contains(&secret) && !texts.contains(&secret[..8]),
            "a password is in the log, a status or an Event"
        );
    }
}

/// What a client of a server with the Secret's certificate finds.
fn verify(world: &World, secret: &str, authorities: &str, server: &str) -> Result<(), rustls::Error> {
    let pem = |key: &str| value(world, secret, key);
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider())).build();
    let certificate = CertificateDer::from_pem_slice(pem("tls.crt").as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem("tls.key").as_bytes()).unwrap();
    CertifiedKey::from_der(vec![certificate.clone()], key, &default_provider())?;
    let name = ServerName::try_from(server.to_owned()).unwrap();
    verifier.unwrap().verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).map(|_| ())
}

#[test]
fn a_certificate_is_accepted_by_its_authority_and_renewed_in_time_also_by_another_process() {
    let mut world = world("generated-certificate");
    let spec = |name: &str| json!({"names": [name, "10.0.0.1"], "lifetimeSeconds": LIFETIME_SECONDS});
    apply(&world, "b", spec("db.example.com"));
    let first = wait_value(&world, "b", "tls.crt", "there is a certificate", |pem| !pem.is_empty());
    let authority = value(&world, "b", "ca.crt");
    for server in ["db.example.com", "10.0.0.1"] {
        verify(&world, "b", &authority, server).unwrap();
    }
    assert!(verify(&world, "b", &authority, "other.example.com").is_err());
    let password = value(&world, "b", "password");
    wait_until_quiet(&world, "sealed");
    world.kill_host();
    start(&mut world);
    world.wait_ready("sealed");
    wait_until_quiet(&world, "sealed");
    assert_eq!(value(&world, "b", "tls.crt"), first);

    let renewed = || Some(value(&world, "b", "tls.crt")).filter(|found| *found != first);
    let second = world.until_within(RENEWAL, "it is renewed", &mut { renewed });
    let both = value(&world, "b", "ca.crt");
    verify(&world, "b", &both, "db.example.com").unwrap();
    assert!(verify(&world, "b", &authority, "db.example.com").is_err(), "it has a new authority");
    assert!(both.ends_with(&authority), "servers that still have the old certificate are accepted");
    assert_eq!(value(&world, "b", "password"), password, "the rest stays");

    apply(&world, "b", spec("db.example.org"));
    wait_value(&world, "b", "tls.crt", "other names are another certificate", |found| found != second);
    verify(&world, "b", &value(&world, "b", "ca.crt"), "db.example.org").unwrap();
    wait_until_quiet(&world, "sealed");
    let seen = field(&world, "sealed/b", "{.status.seen[0]}");
    let shown: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(shown["data"]["tls.key"], "");
    assert!(!shown["data"]["ca.crt"].as_str().unwrap().is_empty(), "an authority is public");
    assert!(calls(&world, "sealed") >= 1.0);
}
