//! The conversion webhook of a definition: the part that names the host, and whether a live definition calls and trusts
//! the host. Definitions come in as JSON; [`crate::conversion`] reads the requests.

use serde_json::{Value, json};

use super::managed_by::is_managed_for;
use crate::webhook::{Endpoint, Subject, path_of};

/// The `spec.conversion` of a definition.
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

pub(super) fn is_by_webhook(crd: &Value) -> bool {
    crd["spec"]["conversion"]["strategy"] == WEBHOOK
}

/// Whether a definition calls this plugin for conversion, at any address.
pub(super) fn calls(crd: &Value, plugin: &str) -> bool {
    let client = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
    let path = path_of(Subject::Conversion, plugin);
    let has_path = |text: &Value| text.as_str().is_some_and(|text| text.ends_with(&path));
    is_by_webhook(crd) && (has_path(&client["url"]) || has_path(&client["service"]["path"]))
}

/// Whether a live definition that the host manages and that calls this plugin trusts the endpoint's authorities. Any
/// other definition counts as trusting: somebody else sets its caBundle.
pub fn trusts(live: &Value, plugin: &str, endpoint: &Endpoint) -> bool {
    let trusted = live["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].as_str();
    !is_managed_for(live, plugin) || !calls(live, plugin) || trusted == endpoint.ca_bundle.as_deref()
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
    fn a_definition_calls_the_plugin_and_trusts_the_host_when_it_has_the_hosts_ca_bundle() {
        let conversion = strategy("gauges", &endpoint("b25l"));
        assert_eq!(conversion["webhook"]["clientConfig"]["service"]["path"], "/convert/gauges");
        let mut live = json!({
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "mortise"}, "annotations": {"mortise.dev/plugin": "gauges"},
            },
            "spec": {"conversion": conversion},
        });
        assert!(calls(&live, "gauges") && !calls(&live, "auges"));
        assert!(trusts(&live, "gauges", &endpoint("b25l")));
        assert!(!trusts(&live, "gauges", &endpoint("dHdv")));
        live["metadata"] = json!({});
        assert!(trusts(&live, "gauges", &endpoint("dHdv")), "somebody else manages it, and its caBundle");
    }
}
