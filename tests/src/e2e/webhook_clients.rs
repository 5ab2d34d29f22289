//! `--webhook-client-ca` with an API server that shows a certificate to admission webhooks, as docs/guide/ports.md describes it.

use http::Request;
use kube::client::Body;
use mortise_control_plane::ADMIN;
use serde_json::json;

use super::admission::{create, forget_authority, picture, try_create, wait_for_webhooks};
use super::conversion;
use super::metrics_access::send;
use super::world::{World, built};

/// The response to a POST to the host's webhook port by somebody who shows no certificate.
fn post(world: &World, path: &str) -> (u16, String) {
    let url = "jsonpath={.webhooks[0].clientConfig.url}";
    let url = world.kubectl(&["get", "validatingwebhookconfiguration", "mortise-admitting", "-o", url]);
    let (server, _) = url.split_once("/validate").unwrap_or_else(|| panic!("no URL of a validation: {url}"));
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "a", "operation": "CREATE", "object": picture(world, "direct", &json!({"image": "nginx"}))},
    });
    let request = Request::post(path).header("content-type", "application/json");
    send(world, server, None, request.body(Body::from(review.to_string().into_bytes())).unwrap())
}

#[test]
fn with_an_authority_of_clients_the_api_servers_reviews_are_answered_and_those_of_others_refused() {
    let mut world = World::new("webhook-clients");
    forget_authority(&world);
    let authority = world.plane.webhook_client_ca();
    let authority = authority.to_str().unwrap();
    let arguments = ["--webhook-client-ca", authority, "--webhook-client-names", "kube-apiserver"];
    world.start_host_as(ADMIN, &arguments);
    world.offer("admitting", &built("test-guests/admitting.wasm"));
    wait_for_webhooks(&mut world);
    let why = world.plane.apply(&picture(&world, "none", &json!({})).to_string()).unwrap_err().to_string();
    assert!(why.contains("The Picture \"none\" is invalid: spec.image: Required value: image is required"), "{why}");
    let stored = create(&world, "good", &json!({"image": "nginx"})).unwrap();
    assert_eq!(stored.data["spec"]["imagePullPolicy"], "Always", "the webhook that mutates is called too");

    for path in ["/validate/admitting", "/mutate/admitting"] {
        let (code, body) = post(&world, path);
        assert!(code == 401 && body.contains("a client certificate of --webhook-client-ca"), "{path}: {code} {body}");
    }
    let (code, body) = post(&world, "/convert/admitting");
    assert!(code == 500 && body.contains("does not convert yet"), "conversions need none: {code} {body}");
    // Since the API server shows none there.
    world.offer("converting", &built("test-guests/converting.wasm"));
    world.wait_ready("converting");
    conversion::create(&world, conversion::V1ALPHA1, "old", &json!({"size": "10Mi"})).unwrap();
    let converted = conversion::get(&world, conversion::V1, "old").unwrap();
    assert_eq!(converted.data["spec"], json!({"size": {"value": 10, "unit": "Mi"}}));
}

#[test]
fn a_certificate_of_another_authority_or_name_ends_the_handshake_and_kubectl_says_so() {
    let mut world = World::new("webhook-clients-other");
    forget_authority(&world);
    let [right, other] = [world.plane.webhook_client_ca(), world.plane.ca()];
    let [right, other] = [&right, &other].map(|authority| authority.to_str().unwrap());
    world.start_host_as(ADMIN, &["--webhook-client-ca", other]);
    world.offer("admitting", &built("test-guests/admitting.wasm"));
    world.wait_condition("admitting", "Admitting", "True", "Served");
    world.wait_ready("admitting");
    refuses_the_api_server(&world);
    world.stop_host();
    world.start_host_as(ADMIN, &["--webhook-client-ca", right, "--webhook-client-names", "somebody-else"]);
    world.wait_condition("admitting", "Admitting", "True", "Served");
    refuses_the_api_server(&world);
}

/// A good object is refused, since the API server's certificate is.
fn refuses_the_api_server(world: &World) {
    let good = json!({"image": "nginx"});
    // Until the API server has read the webhooks, kubectl would store the object, and later find nothing to apply.
    world.until("the API server calls the webhooks", || match try_create(world, &good) {
        Err(kube::Error::Api(status)) => status.message.contains("failed calling webhook").then_some(()),
        _ => None,
    });
    let good = picture(world, "good", &good).to_string();
    // The host may close the connection before the API server reads why, so it is asked again.
    let why = world.until("kubectl says that the host ended the handshake", || {
        let why = world.plane.apply(&good).expect_err("nobody reviews it").to_string();
        why.contains("remote error: tls: ").then_some(why)
    });
    println!("{why}");
    assert!(why.contains("failed calling webhook"), "{why}");
    assert_eq!(world.kubectl_here(&["get", "pictures", "-o", "name"]), "");
}
