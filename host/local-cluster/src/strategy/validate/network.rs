//! What must hold for Services, Endpoints, Ingresses and NetworkPolicies. Input: such an object. Output: causes. It must not
//! know which addresses are free.

use std::net::IpAddr;

use serde_json::Value;

use super::super::field::{Causes, Path, how_many, is_empty, items, text};
use super::super::format;
use super::super::rule::{Check, Rule, between, check};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

const SERVICE_PORT: &[Rule] = &[
    ("name", Check::Text(format::label)),
    ("port", Check::Code(|value, path, causes| between(&value.as_i64().unwrap_or(0).into(), path, 1, 65535, causes))),
    ("protocol", Check::Required("")),
    ("protocol", Check::OneOf(PROTOCOLS)),
    ("targetPort", Check::Port),
    ("appProtocol", Check::Text(format::qualified)),
];
pub(super) const SERVICE: &[Rule] = &[
    ("spec", Check::Code(needed_ports)),
    ("spec", Check::Code(by_type)),
    ("spec", Check::Code(port_names)),
    ("spec.ports", Check::Each(SERVICE_PORT)),
    ("spec.ports", Check::Unique("name")),
    ("spec.selector", Check::Labels),
    ("spec.sessionAffinity", Check::Required("")),
    ("spec.sessionAffinity", Check::OneOf(&["ClientIP", "None"])),
    ("spec.sessionAffinityConfig.clientIP.timeoutSeconds", Check::Between(1, 86400)),
    ("spec", Check::Code(addresses)),
    ("spec.externalIPs", Check::Code(external)),
    ("spec.type", Check::OneOf(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
    ("spec", Check::Code(duplicate_ports)),
    ("spec", Check::Code(of_load_balancers)),
    ("spec", Check::Code(external_policy)),
    ("spec.internalTrafficPolicy", Check::OneOf(&["Cluster", "Local"])),
    ("spec.trafficDistribution", Check::OneOf(&["PreferClose", "PreferSameNode", "PreferSameZone"])),
];
const ENDPOINT_PORT: &[Rule] = &[
    ("name", Check::Text(format::label)),
    ("port", Check::Code(|value, path, causes| between(&value.as_i64().unwrap_or(0).into(), path, 1, 65535, causes))),
    ("protocol", Check::Required("")),
    ("protocol", Check::OneOf(PROTOCOLS)),
];
const SUBSET: &[Rule] = &[
    ("", Check::Code(subset)),
    ("addresses", Check::Each(&[("ip", Check::Code(endpoint_address))])),
    ("notReadyAddresses", Check::Each(&[("ip", Check::Code(endpoint_address))])),
    ("ports", Check::Each(ENDPOINT_PORT)),
];
pub(super) const ENDPOINTS: &[Rule] = &[("subsets", Check::Each(SUBSET))];
const INGRESS_PATH: &[Rule] = &[("", Check::Code(ingress_path))];
const INGRESS_RULE: &[Rule] = &[
    ("host", Check::Code(host)),
    ("http", Check::Within(&[("paths", Check::Required("")), ("paths", Check::Each(INGRESS_PATH))])),
];
const TLS: &[Rule] =
    &[("hosts", Check::Each(&[("", Check::Code(host_name))])), ("secretName", Check::Text(format::subdomain))];
pub(super) const INGRESS: &[Rule] = &[
    ("spec", Check::Code(ingress_content)),
    (
        "spec.defaultBackend",
        Check::Code(|value, path, causes| {
            if value.is_object() {
                backend(value, path, causes)
            }
        }),
    ),
    ("spec.rules", Check::Each(INGRESS_RULE)),
    ("spec.tls", Check::Each(TLS)),
    ("spec.ingressClassName", Check::Text(format::subdomain)),
    ("", Check::Code(ingress_class)),
];
const POLICY_PORT: &[Rule] = &[("protocol", Check::OneOf(&["TCP", "UDP", "SCTP"])), ("", Check::Code(policy_port))];
const PEER: &[Rule] =
    &[("podSelector", Check::Selector), ("namespaceSelector", Check::Selector), ("", Check::Code(peer))];
pub(super) const NETWORK_POLICY: &[Rule] = &[
    ("spec.podSelector", Check::Selector),
    ("spec.ingress", Check::Each(&[("ports", Check::Each(POLICY_PORT)), ("from", Check::Each(PEER))])),
    ("spec.egress", Check::Each(&[("ports", Check::Each(POLICY_PORT)), ("to", Check::Each(PEER))])),
    ("spec.policyTypes", Check::Each(&[("", Check::OneOf(&["Ingress", "Egress"]))])),
];

fn is_headless(spec: &Value) -> bool {
    matches!(items(&spec["clusterIPs"]), [only] if only == "None")
}

fn needed_ports(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if is_empty(&spec["ports"]) && !is_headless(spec) && spec["type"] != "ExternalName" {
        causes.required(&Path::Field(path, "ports"), "");
    }
}

fn by_type(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let list = Path::Field(path, "clusterIPs");
    match text(&spec["type"]) {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let words = format!("may not be set to 'None' for {kind} services");
            causes.invalid(&Path::Index(&list, 0), &"None".into(), &words);
        }
        "ExternalName" => {
            for name in
                ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|name| !is_empty(&spec[*name]))
            {
                causes.forbidden(&Path::Field(path, name), "may not be set for ExternalName services");
            }
            let (name, place) = (text(&spec["externalName"]), Path::Field(path, "externalName"));
            match name.trim_end_matches('.') {
                "" => causes.required(&place, ""),
                name => causes.invalid_text(&place, name, format::subdomain(name)),
            }
        }
        _ => {}
    }
}

/// Of several ports each needs a name.
fn port_names(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (ports, list) = (items(&spec["ports"]), Path::Field(path, "ports"));
    for (index, _) in ports.iter().enumerate().filter(|(_, port)| ports.len() > 1 && is_empty(&port["name"])) {
        causes.required(&Path::Field(&Path::Index(&list, index), "name"), "");
    }
}

fn addresses(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if spec["type"] == "ExternalName" {
        return;
    }
    let (one, all, list) = (&spec["clusterIP"], &spec["clusterIPs"], Path::Field(path, "clusterIPs"));
    match (text(one), items(all)) {
        ("", []) => {}
        ("", _) => causes.invalid(&list, all, "must be empty when `clusterIP` is not specified"),
        (_, []) => causes.required(&list, ""),
        (_, [first, ..]) if first != one => causes.invalid(&list, all, "first value must match `clusterIP`"),
        _ => {}
    }
    let families = Path::Field(path, "ipFamilies");
    for (index, family) in items(&spec["ipFamilies"]).iter().enumerate() {
        check(family, &Path::Index(&families, index), &[("", Check::OneOf(&["IPv4", "IPv6"]))], causes);
    }
    let known = Check::OneOf(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    check(spec, path, &[("ipFamilyPolicy", known)], causes);
    for (index, address) in items(all).iter().enumerate() {
        if index == 0 && address == "None" {
            if items(all).len() > 1 {
                causes.invalid(&list, all, "'None' must be the first and only value");
            }
        } else if text(address).parse::<IpAddr>().is_err() {
            let words = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.invalid(&Path::Index(&list, index), address, words);
        }
    }
    if items(all).len() > 2 {
        causes.invalid(&list, all, "may only hold up to 2 values");
    }
    let bare = is_headless(spec) && is_empty(&spec["selector"]);
    if spec["ipFamilyPolicy"] == "RequireDualStack" && !bare {
        let words = "this cluster is not configured for dual-stack services";
        causes.invalid(&Path::Field(path, "ipFamilyPolicy"), &spec["ipFamilyPolicy"], words);
    }
}

fn external(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    for (index, address) in items(value).iter().enumerate() {
        if text(address).parse::<IpAddr>().is_err() {
            let words = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.invalid(&Path::Index(path, index), address, words);
        }
    }
}

fn duplicate_ports(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (ports, list) = (items(&spec["ports"]), Path::Field(path, "ports"));
    let same = |one: &Value, other: &Value, name: &str| {
        let number = one[name].as_i64().unwrap_or(0);
        number != 0 && one[name] == other[name] && one["protocol"] == other["protocol"]
    };
    for (index, port) in ports.iter().enumerate() {
        let place = Path::Index(&list, index);
        if spec["type"] == "ClusterIP" && port["nodePort"].as_i64().unwrap_or(0) != 0 {
            causes.forbidden(&Path::Field(&place, "nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        let before = || ports.iter().take(index);
        if before().any(|other| same(port, other, "nodePort")) {
            causes.duplicate(&Path::Field(&place, "nodePort"), &port["nodePort"]);
        }
        if before().any(|other| same(port, other, "port")) {
            // The key that Go compares by, as it prints.
            let key = serde_json::json!({
                "Name": "", "Protocol": port["protocol"], "AppProtocol": null, "Port": port["port"], "TargetPort": 0, "NodePort": 0,
            });
            causes.duplicate(&place, &key);
        }
    }
}

fn of_load_balancers(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if spec["type"] == "LoadBalancer" {
        return;
    }
    let ranges = !is_empty(&spec["loadBalancerSourceRanges"]);
    for (name, set) in [
        ("LoadBalancerSourceRanges", ranges),
        ("allocateLoadBalancerNodePorts", !spec["allocateLoadBalancerNodePorts"].is_null()),
        ("loadBalancerClass", !spec["loadBalancerClass"].is_null()),
    ] {
        if set {
            causes.forbidden(&Path::Field(path, name), "may only be used when `type` is 'LoadBalancer'");
        }
    }
}

fn external_policy(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let kind = text(&spec["type"]);
    let reachable =
        matches!(kind, "NodePort" | "LoadBalancer") || kind == "ClusterIP" && !is_empty(&spec["externalIPs"]);
    let (policy, place) = (&spec["externalTrafficPolicy"], Path::Field(path, "externalTrafficPolicy"));
    if !reachable && !is_empty(policy) {
        causes.invalid(&place, policy, "may only be set for externally-accessible services");
    }
    if reachable {
        check(policy, &place, &[("", Check::OneOf(&["Cluster", "Local"]))], causes);
    }
    let port = &spec["healthCheckNodePort"];
    let needs = kind == "LoadBalancer" && policy == "Local";
    if !needs && port.as_i64().unwrap_or(0) != 0 {
        let words = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.invalid(&Path::Field(path, "healthCheckNodePort"), port, words);
    }
}

/// A Service keeps its addresses.
pub(super) fn addresses_update(new: &Value, old: &Value, causes: &mut Causes) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let external = spec["type"] == "ExternalName" || before["type"] == "ExternalName";
    if external || is_headless(spec) && is_headless(before) {
        return;
    }
    let (all, list) = (&spec["clusterIPs"], Path::Field(&Path::Root, "spec.clusterIPs"));
    if is_empty(all) && !is_empty(&before["clusterIPs"]) {
        return causes.invalid(&Path::Index(&list, 0), all, "primary clusterIP can not be unset");
    }
    for (index, (is, was)) in items(all).iter().zip(items(&before["clusterIPs"])).enumerate() {
        if is != was {
            causes.invalid(&Path::Index(&list, index), all, "may not change once set");
        }
    }
}

fn subset(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if is_empty(&value["addresses"]) && is_empty(&value["notReadyAddresses"]) {
        causes.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    port_names(value, path, causes);
}

fn endpoint_address(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let Ok(address) = text(value).parse::<IpAddr>() else {
        return causes.invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    };
    let link_local = matches!(address, IpAddr::V4(address) if address.is_link_local());
    for (wrong, words) in [
        (address.is_unspecified(), "may not be unspecified (0.0.0.0 or ::)"),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
    ] {
        if wrong {
            causes.invalid(path, value, words);
        }
    }
}

fn ingress_content(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if is_empty(&spec["rules"]) && spec["defaultBackend"].is_null() {
        let rules = if spec["rules"].is_null() { Value::Null } else { spec["rules"].clone() };
        causes.invalid(path, &rules, "either `defaultBackend` or `rules` must be specified");
    }
}

fn ingress_class(value: &Value, _: &Path<'_>, causes: &mut Causes) {
    let name = "kubernetes.io/ingress.class";
    let (old, new) = (&value["metadata"]["annotations"][name], &value["spec"]["ingressClassName"]);
    if !old.is_null() && !new.is_null() && old != new {
        let words = "must match `ingressClassName` when both are specified";
        causes.invalid(&Path::Field(&Path::Field(&Path::Root, "annotations"), name), old, words);
    }
}

fn host(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let name = text(value);
    if name.is_empty() {
        return;
    }
    if name.parse::<IpAddr>().is_ok() {
        causes.invalid(path, value, "must be a DNS name, not an IP address");
    }
    host_name(value, path, causes);
}

fn host_name(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let name = text(value);
    let wrong = if name.contains('*') { format::wildcard(name) } else { format::subdomain(name) };
    causes.invalid_text(path, name, wrong);
}

fn ingress_path(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (kind, given) = (&value["pathType"], text(&value["path"]));
    let place = Path::Field(path, "path");
    let mut wrong = |words: &str| causes.invalid(&place, &given.into(), words);
    match text(kind) {
        "" => return causes.required(&Path::Field(path, "pathType"), "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                wrong("must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| given.contains(part)) {
                wrong(&format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| given.ends_with(end)) {
                wrong(&format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if !given.is_empty() && !given.starts_with('/') => wrong("must be an absolute path"),
        "ImplementationSpecific" => {}
        _ => {
            let known = &["Exact", "ImplementationSpecific", "Prefix"];
            causes.not_supported(&Path::Field(path, "pathType"), kind, known);
        }
    }
    backend(&value["backend"], &Path::Field(path, "backend"), causes);
}

fn backend(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (service, empty) = (&value["service"], Value::from(""));
    match (value["resource"].is_object(), service.is_object()) {
        (true, true) => return causes.invalid(path, &empty, "cannot set both resource and service backends"),
        (true, false) => {
            let rules = &[("resource.kind", Check::Required("")), ("resource.name", Check::Required(""))];
            return check(value, path, rules, causes);
        }
        (false, false) => return causes.invalid(path, &empty, "resource or service backend is required"),
        (false, true) => {}
    }
    check(value, path, &[("service.name", Check::Required("")), ("service.name", Check::Text(format::label))], causes);
    let (name, number) = (&service["port"]["name"], &service["port"]["number"]);
    match (is_empty(name), number.as_i64().unwrap_or(0) == 0) {
        (true, true) => causes.required(path, "port name or number is required"),
        (false, false) => causes.invalid(path, &empty, "cannot set both port name & port number"),
        (false, true) => check(value, path, &[("service.port.name", Check::Text(format::port_name))], causes),
        (true, false) => check(value, path, &[("service.port.number", Check::Between(1, 65535))], causes),
    }
}

fn policy_port(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (port, end) = (&value["port"], &value["endPort"]);
    if !port.is_null() {
        check(value, path, &[("port", Check::Port)], causes);
    }
    if end.is_null() {
        return;
    }
    let place = Path::Field(path, "endPort");
    match port {
        Value::Null => causes.invalid(&place, end, "may not be specified when `port` is not specified"),
        Value::String(_) => causes.invalid(&place, end, "may not be specified when `port` is non-numeric"),
        port => {
            if end.as_i64() < port.as_i64() {
                causes.invalid(&place, port, "must be greater than or equal to `port`");
            }
            between(end, &place, 1, 65535, causes);
        }
    }
}

fn peer(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let set = how_many(value, &["podSelector", "namespaceSelector", "ipBlock"]);
    if set == 0 {
        causes.required(path, "must specify a peer");
    } else if set > 1 && !value["ipBlock"].is_null() {
        causes.forbidden(path, "may not specify both ipBlock and another peer");
    }
}
