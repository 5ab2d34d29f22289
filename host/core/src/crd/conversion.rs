//! What a definition says of conversion between its versions: the part that has the host asked, and whether a live one
//! asks it and trusts it. Definitions come in as JSON; the requests that follow are read in [`crate::conversion`].

use serde_json::{Value, json};

use super::keeper::is_kept_for;
use crate::webhook::{Endpoint, Subject, path_of};

/// What a definition says under `spec.conversion`.
pub fn strategy(plugin: &str, endpoint: &Endpoint) -> Value {
    json!({
        "strategy": WEBHOOK,
        "webhook": {
            "clientConfig": endpoint.client(Subject::Conversion, plugin),
            "conversionReviewVersions": ["v1"],
        },
    })
}

const WEBHOOK: &str = "Webhook";

/// Whether a definition has its objects converted at all.
pub(super) fn is_by_webhook(crd: &Value) -> bool {
    crd["spec"]["conversion"]["strategy"] == WEBHOOK
}

/// Whether a definition has this plugin asked, wherever the host is.
pub(super) fn asks(crd: &Value, plugin: &str) -> bool {
    let client = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
    let path = path_of(Subject::Conversion, plugin);
    let is_there = |text: &Value| text.as_str().is_some_and(|text| text.ends_with(&path));
    is_by_webhook(crd) && (is_there(&client["url"]) || is_there(&client["service"]["path"]))
}

/// Whether nobody asks this plugin by a live definition who does not believe whom `endpoint` names: one that is somebody
/// else's has its trust from somebody else too.
pub fn trusts(live: &Value, plugin: &str, endpoint: &Endpoint) -> bool {
    let trusted = live["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str();
    !is_kept_for(live, plugin) || !asks(live, plugin) || trusted == endpoint.ca_bundle.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::Address;

    fn endpoint(ca_bundle: &str) -> Endpoint {
        Endpoint {
            address: Address::Service { name: "mortise-webhook".into(), port: 443 },
            ca_bundle: Some(ca_bundle.into()),
            namespace: "mortise-system".into(),
        }
    }

    #[test]
    fn a_definition_asks_the_plugin_and_is_seen_to_trust_the_host_when_it_has_its_bundle() {
        let conversion = strategy("gauges", &endpoint("b25l"));
        assert_eq!(conversion["webhook"]["clientConfig"]["service"]["path"], "/convert/gauges");
        let mut live = json!({
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "mortise"}, "annotations": {"mortise.dev/plugin": "gauges"},
            },
            "spec": {"conversion": conversion},
        });
        assert!(asks(&live, "gauges") && !asks(&live, "auges"));
        assert!(trusts(&live, "gauges", &endpoint("b25l")));
        assert!(!trusts(&live, "gauges", &endpoint("dHdv")));
        live["metadata"] = json!({});
        assert!(trusts(&live, "gauges", &endpoint("dHdv")), "whoever keeps it keeps its trust too");
    }
}
