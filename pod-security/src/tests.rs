//! The standards in the words of the API server.

use serde_json::{Value, json};

use super::{Level, Pod, Standard, Version, details};

fn found(standard: (&str, &str), spec: &Value) -> String {
    let (level, version) = (Level::named(standard.0).unwrap(), Version::named(standard.1).unwrap());
    details(&Standard { level, version }.violations(Pod { metadata: &Value::Null, spec }))
}

#[test]
fn each_level_forbids_what_the_one_before_it_forbids_and_more() {
    let plain = json!({"containers": [{"name": "c", "image": "i"}]});
    let host = json!({"hostNetwork": true, "volumes": [{"name": "h", "hostPath": {"path": "/"}}],
        "containers": [{"name": "c", "image": "i"}]});
    let safe = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]});
    let shares = "host namespaces (hostNetwork=true)";
    let keeps = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
                 unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])";
    let root = "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
                seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    for (level, spec, wanted) in [
        ("privileged", &host, String::new()),
        ("baseline", &plain, String::new()),
        ("baseline", &host, format!("{shares}, hostPath volumes (volume \"h\")")),
        ("restricted", &plain, format!("{keeps}, {root}")),
        (
            "restricted",
            &host,
            format!(
                "{shares}, {keeps}, \
                 restricted volume types (volume \"h\" uses restricted volume type \"hostPath\"), {root}"
            ),
        ),
        ("restricted", &safe, String::new()),
    ] {
        assert_eq!(found((level, "latest"), spec), wanted, "{level} {spec}");
    }
}

#[test]
fn init_and_ephemeral_containers_count_like_containers() {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let spec = json!({list: [{"name": "c", "securityContext": {"privileged": true}}]});
        let wanted = "privileged (container \"c\" must not set securityContext.privileged=true)";
        assert_eq!(found(("baseline", "latest"), &spec), wanted, "{list}");
    }
}

#[test]
fn a_version_has_the_rules_that_it_had() {
    let spec = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}});
    assert_eq!(found(("baseline", "v1.31"), &spec), "forbidden sysctls (net.ipv4.tcp_rmem)");
    assert_eq!(found(("baseline", "v1.32"), &spec), "");
    assert_eq!(found(("baseline", "v1.99"), &spec), found(("baseline", "latest"), &spec), "later ones are the newest");
}

#[test]
fn levels_and_versions_are_read_and_shown_as_kubernetes_labels_have_them() {
    for (level, version) in [("privileged", "latest"), ("baseline", "v1.0"), ("restricted", "v1.34")] {
        let standard = Standard { level: Level::named(level).unwrap(), version: Version::named(version).unwrap() };
        assert_eq!(standard.to_string(), format!("{level}:{version}"));
        assert_eq!(serde_json::from_value::<Level>(json!(level)).unwrap(), standard.level);
    }
    for wrong in ["", "v1", "v1.", "v1.034", "v1.+4", "1.34", "v2.1", "v1.99999999999", "Latest"] {
        assert_eq!(Version::named(wrong), None, "{wrong}");
    }
    let refused = serde_json::from_value::<Level>(json!("strict")).unwrap_err();
    assert_eq!(refused.to_string(), "\"strict\": must be one of privileged, baseline, restricted");
}
