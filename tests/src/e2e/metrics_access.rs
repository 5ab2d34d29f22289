//! Metrics for those who may read them: the host asks the API server whose a bearer token is and what it may do. The host
//! has the rights that `mortise rbac --host` prints.

use http::Request;
use kube::Client;
use kube::client::Body;

use super::rights::start_restricted_with;
use super::world::{RESTRICTED, World};

/// The status and the body of a scrape over TLS.
fn scrape(world: &World, token: Option<&str>) -> (u16, String) {
    let port = world.host.as_ref().expect("a host runs").metrics_port();
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    send(world, &format!("https://127.0.0.1:{port}"), token, request)
}

/// The status and the body of a response over TLS, whose certificate is not checked, and no client's is shown.
pub(super) fn send(world: &World, server: &str, token: Option<&str>, request: Request<Body>) -> (u16, String) {
    let mut config = kube::Config::new(server.parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    world.block_on(async {
        let client = Client::try_from(config).unwrap();
        let Ok(response) = client.send(request).await else { return (0, String::new()) };
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.unwrap_or_default();
        (code, String::from_utf8_lossy(&body).into_owned())
    })
}

/// A token of a ServiceAccount in the test's namespace.
fn token_of(world: &World, account: &str) -> String {
    world.kubectl_here(&["create", "serviceaccount", account]);
    world.kubectl_here(&["create", "token", account])
}

/// The host's requests since the mark that check a client of the metrics.
fn reviews(world: &World) -> usize {
    let of_clients = ["tokenreviews", "subjectaccessreviews"];
    world.requests_by(RESTRICTED).iter().filter(|record| of_clients.contains(&&*record.resource)).count()
}

#[test]
fn the_metrics_are_for_tokens_whose_user_may_get_their_path_and_a_scrape_costs_the_api_server_nothing() {
    let mut world = World::new("metrics");
    start_restricted_with(&mut world, &["--metrics-secure"]);
    let (code, body) = world.until("the metrics are served", || {
        let response = scrape(&world, None);
        (response.0 != 0).then_some(response)
    });
    assert_eq!(code, 401, "{body}");
    assert_eq!(scrape(&world, Some("nobody's")).0, 401);

    let token = token_of(&world, "prometheus");
    let (code, body) = scrape(&world, Some(&token));
    let user = format!("system:serviceaccount:{}:prometheus", world.namespace);
    assert!(code == 403 && body.starts_with(&format!("{user} may not get the path /metrics")), "{code} {body}");

    // The binding that deploy/ leaves to an administrator counts within seconds.
    let binding = ["create", "clusterrolebinding", "e2e-metrics", "--clusterrole=mortise-metrics-reader"];
    world.kubectl(&[&binding[..], &[&format!("--user={user}")]].concat());
    let body = world.until("the scraper is let in", || {
        let (code, body) = scrape(&world, Some(&token));
        (code == 200).then_some(body)
    });
    assert!(body.contains("rest_client_requests_total"), "{body}");

    world.mark_audit();
    for _ in 0..20 {
        assert_eq!(scrape(&world, Some(&token)).0, 200);
    }
    // None, unless the minute of the decision ends meanwhile.
    let reviews = reviews(&world);
    assert!(reviews <= 2, "{reviews} requests for 20 scrapes");
}
