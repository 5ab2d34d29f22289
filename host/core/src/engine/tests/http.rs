//! Whether a plugin that declares HTTP requests is served.

use super::*;

fn sending() -> Value {
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["http"] = json!([{"origin": "https://api.example.com", "methods": ["GET"]}]);
    manifest
}

#[test]
fn a_plugin_that_sends_requests_is_refused_with_the_flag_unless_the_host_allows_them() {
    let mut host = Host::started();
    host.offer_manifest(0, 1, &sending());
    assert_eq!(host.reason(0, "Ready"), "HttpNotAllowed");
    let is_explained = |observed: &Observation| match observed {
        Observation::Refused { refusal, .. } => {
            refusal.message.contains("https://api.example.com") && refusal.message.contains("--allow-http")
        }
        _ => false,
    };
    assert_eq!(host.count_observed(is_explained), 1);
    let mut host = Host::started_as(Config { http_requests_per_minute: Some(600), ..config() });
    host.offer_manifest(0, 1, &sending());
    assert_eq!(host.reason(0, "Ready"), "Serving");
}
