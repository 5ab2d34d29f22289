//! What the Pod security standards forbid. Input: a Pod, or a Pod's template, and the minor version of the standards. Output:
//! what is wrong with it, in the words and the order of the API server. It must not know namespaces.

use serde_json::Value;

use crate::level::Level;
use crate::pod::{Pod, Violation};

type Check = fn(Pod<'_>, u32) -> Option<Violation>;

/// The checks of the level `baseline`; the second field says whether one of `restricted` takes its place, and since when.
const BASELINE: [(Check, Option<u32>); 12] = [
    (app_armor, None),
    (capabilities, Some(22)),
    (host_namespaces, None),
    (host_paths, Some(0)),
    (host_ports, None),
    (hosts_of_probes, None),
    (privileged, None),
    (proc_mount, Some(35)),
    (se_linux, None),
    (seccomp, Some(19)),
    (sysctls, None),
    (host_process, None),
];

/// The checks that `restricted` adds, since when.
const RESTRICTED: [(Check, u32); 7] = [
    (escalation, 8),
    (dropped_capabilities, 22),
    (restricted_proc_mount, 35),
    (volume_types, 0),
    (non_root, 0),
    (root_user, 23),
    (restricted_seccomp, 19),
];

/// What is wrong with a Pod by a level's standards.
pub(super) fn violations(pod: Pod<'_>, level: Level, version: u32) -> Vec<Violation> {
    let restricted = level == Level::Restricted;
    let baseline = BASELINE.iter().filter(|(_, replaced)| !restricted || replaced.is_none_or(|since| version < since));
    let more = RESTRICTED.iter().filter(|(_, since)| restricted && version >= *since).map(|(check, _)| *check);
    let checks = baseline.map(|(check, _)| *check).filter(|_| level != Level::Privileged).chain(more);
    checks.filter_map(|check| check(pod, version)).collect()
}

impl<'a> Pod<'a> {
    /// The names of containers that something is wrong with. The closure is no type parameter, here and below: a component that
    /// has the checks would have this code once for each of them.
    fn bad(self, is_bad: &mut dyn FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        let mut names = Vec::new();
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in array(self.spec, list) {
                if is_bad(container) {
                    names.push(text(container, "name"));
                }
            }
        }
        names
    }

    /// Who has a wrong security context: the Pod, containers, or both.
    fn setters(self, is_bad: &mut dyn FnMut(&'a Value) -> bool) -> Option<String> {
        let own = is_bad(&self.spec["securityContext"]);
        let names = self.bad(&mut |container| is_bad(&container["securityContext"]));
        let containers = (!names.is_empty()).then(|| named("container", &names));
        let all: Vec<String> = own.then(|| "pod".to_owned()).into_iter().chain(containers).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Since version 35 less is asked of Pods with users of their own.
    fn is_relaxed(self, version: u32) -> bool {
        version >= 35 && self.spec["hostUsers"] == false
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn some(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation { reason: reason.to_owned(), detail })
}

/// Values that are wrong, in their order and each once. A set of the standard library would be larger than all checks.
#[derive(Default)]
struct Found(Vec<String>);

impl Found {
    /// Remembers a value that is wrong.
    fn insert(&mut self, value: &str) -> bool {
        if let Err(at) = self.0.binary_search_by(|known| known.as_str().cmp(value)) {
            self.0.insert(at, value.to_owned());
        }
        true
    }

    fn texts(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn quoted(&self) -> String {
        quoted(&self.texts())
    }
}

fn quoted(words: &[&str]) -> String {
    let mut text = String::new();
    for word in words {
        text.push_str(if text.is_empty() { "\"" } else { ", \"" });
        text.push_str(word);
        text.push('"');
    }
    text
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// `container "a"`, `containers "a", "b"`.
fn named(what: &str, names: &[&str]) -> String {
    format!("{} {}", plural(what, names.len()), quoted(names))
}

fn strings<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    array(value, key).iter().filter_map(Value::as_str)
}

fn app_armor(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let mut values = Found::default();
    let setters = pod.setters(&mut |context| {
        let profile = &context["appArmorProfile"];
        let bad = profile.is_object() && !matches!(text(profile, "type"), "RuntimeDefault" | "Localhost");
        bad && values.insert(text(profile, "type"))
    });
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let bad = annotations.filter(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        let allowed = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed
    });
    let bad: Vec<String> = bad.map(|(key, value)| format!("{key}={value}")).collect();
    let of_annotations = (!bad.is_empty()).then(|| plural("annotation", bad.len()));
    let setters: Vec<String> = setters.into_iter().chain(of_annotations).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<&str> = values.0.iter().chain(&bad).map(String::as_str).collect();
    let detail = format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values));
    some(&plural("forbidden AppArmor profile", values.len()), detail)
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add other capabilities, as a sentence.
fn added(pod: Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut found = Found::default();
    let names = pod.bad(&mut |container| {
        let added = strings(&container["securityContext"]["capabilities"], "add");
        added.filter(|name| !allowed.contains(name)).fold(false, |_, name| found.insert(name))
    });
    let sentence = || {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &names),
            found.quoted()
        )
    };
    (!names.is_empty()).then(sentence)
}

fn capabilities(pod: Pod<'_>, _: u32) -> Option<Violation> {
    some("non-default capabilities", added(pod, &DEFAULT_CAPABILITIES)?)
}

fn dropped_capabilities(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if version >= 25 && pod.is_windows() {
        return None;
    }
    let kept = pod.bad(&mut |container| {
        !strings(&container["securityContext"]["capabilities"], "drop").any(|name| name == "ALL")
    });
    let kept = (!kept.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named("container", &kept)));
    let details: Vec<String> = kept.into_iter().chain(added(pod, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { some("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| pod.spec[*name] == true);
    let shared: Vec<String> = shared.map(|name| format!("{name}=true")).collect();
    if shared.is_empty() { None } else { some("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let volumes = array(pod.spec, "volumes").iter().filter(|volume| volume["hostPath"].is_object());
    let names: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    if names.is_empty() { None } else { some("hostPath volumes", named("volume", &names)) }
}

/// `container "a" uses hostPort 80`.
fn uses(what: &str, names: &[&str], thing: &str, things: usize, list: &str) -> String {
    let verb = if names.len() == 1 { "uses" } else { "use" };
    format!("{} {verb} {} {list}", named(what, names), plural(thing, things))
}

fn host_ports(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let mut found = Found::default();
    let names = pod.bad(&mut |container| {
        let ports = array(container, "ports").iter().filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).fold(false, |_, port| found.insert(&port.to_string()))
    });
    let detail = || uses("container", &names, "hostPort", found.0.len(), &found.0.join(", "));
    if names.is_empty() { None } else { some("hostPort", detail()) }
}

fn hosts_of_probes(pod: Pod<'_>, version: u32) -> Option<Violation> {
    let (mut found, mut names) = (Found::default(), Found::default());
    pod.bad(&mut |container| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|name| &container[name]);
        let hooks = ["postStart", "preStop"].map(|name| &container["lifecycle"][name]);
        let hosts = probes.into_iter().chain(hooks).flat_map(|of| [&of["httpGet"], &of["tcpSocket"]]);
        let hosts = hosts.map(|of| text(of, "host")).filter(|host| !host.is_empty());
        hosts.fold(false, |_, host| found.insert(host)) && names.insert(text(container, "name"))
    });
    if names.0.is_empty() || version < 34 {
        return None;
    }
    let what = "probe or lifecycle host";
    some(what, uses("container", &names.texts(), what, found.0.len(), &found.quoted()))
}

fn privileged(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let names = pod.bad(&mut |container| container["securityContext"]["privileged"] == true);
    let detail = || format!("{} must not set securityContext.privileged=true", named("container", &names));
    if names.is_empty() { None } else { some("privileged", detail()) }
}

fn proc_mount(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if pod.is_relaxed(version) { None } else { restricted_proc_mount(pod, version) }
}

fn restricted_proc_mount(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let mut found = Found::default();
    let names = pod.bad(&mut |container| {
        let mount = text(&container["securityContext"], "procMount");
        !matches!(mount, "" | "Default") && found.insert(mount)
    });
    let detail =
        || format!("{} must not set securityContext.procMount to {}", named("container", &names), found.quoted());
    if names.is_empty() { None } else { some("procMount", detail()) }
}

fn se_linux(pod: Pod<'_>, version: u32) -> Option<Violation> {
    let (mut types, mut user, mut role) = (Found::default(), false, false);
    let setters = pod.setters(&mut |context| {
        let options = &context["seLinuxOptions"];
        let kind = text(options, "type");
        let known = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || version >= 31 && kind == "container_engine_t";
        if !known {
            types.insert(kind);
        }
        let (sets_user, sets_role) = (!text(options, "user").is_empty(), !text(options, "role").is_empty());
        (user, role) = (user | sets_user, role | sets_role);
        !known || sets_user || sets_role
    })?;
    let said = [
        (!types.0.is_empty()).then(|| named("type", &types.texts())),
        user.then(|| "user may not be set".to_owned()),
        role.then(|| "role may not be set".to_owned()),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    some("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", said.join("; ")))
}

fn seccomp(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let mut found = Found::default();
    let setters = pod.setters(&mut |context| {
        let profile = &context["seccompProfile"];
        let bad = profile.is_object() && !matches!(text(profile, "type"), "RuntimeDefault" | "Localhost");
        bad && found.insert(text(profile, "type"))
    })?;
    some("seccompProfile", format!("{setters} must not set securityContext.seccompProfile.type to {}", found.quoted()))
}

/// Containers that lack what neither they nor their Pod has set.
fn lacking(pod: Pod<'_>, has: &dyn Fn(&Value) -> bool) -> Option<String> {
    let missing = !has(&pod.spec["securityContext"]);
    let names = pod.bad(&mut |container| missing && !has(&container["securityContext"]));
    (!names.is_empty()).then(|| format!("pod or {}", named("container", &names)))
}

fn restricted_seccomp(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if version >= 25 && pod.is_windows() {
        return None;
    }
    let implicit = || {
        let who = lacking(pod, &|context| context["seccompProfile"].is_object())?;
        let wanted = r#"must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#;
        some("seccompProfile", format!("{who} {wanted}"))
    };
    seccomp(pod, version).or_else(implicit)
}

fn sysctls(pod: Pod<'_>, version: u32) -> Option<Violation> {
    const ALLOWED: [(&str, u32); 12] = [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_local_port_range", 0),
        ("net.ipv4.tcp_syncookies", 0),
        ("net.ipv4.ping_group_range", 0),
        ("net.ipv4.ip_unprivileged_port_start", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_keepalive_intvl", 29),
        ("net.ipv4.tcp_keepalive_probes", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_wmem", 32),
    ];
    let names = array(&pod.spec["securityContext"], "sysctls").iter().map(|sysctl| text(sysctl, "name"));
    let allowed = |name: &&str| ALLOWED.iter().any(|(known, since)| known == name && version >= *since);
    let names: Vec<&str> = names.filter(|name| !allowed(name)).collect();
    if names.is_empty() { None } else { some("forbidden sysctls", names.join(", ")) }
}

fn host_process(pod: Pod<'_>, _: u32) -> Option<Violation> {
    let setters = pod.setters(&mut |context| context["windowsOptions"]["hostProcess"] == true)?;
    some("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn escalation(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if version >= 25 && pod.is_windows() {
        return None;
    }
    let names = pod.bad(&mut |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", named("container", &names));
    if names.is_empty() { None } else { some("allowPrivilegeEscalation != false", detail()) }
}

fn volume_types(pod: Pod<'_>, _: u32) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let (mut names, mut types) = (Vec::new(), Found::default());
    for volume in array(pod.spec, "volumes") {
        let mut sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
        let source = sources.next().map_or("unknown", |(key, _)| key.as_str());
        if !ALLOWED.contains(&source) {
            names.push(text(volume, "name"));
            types.insert(source);
        }
    }
    let detail = || uses("volume", &names, "restricted volume type", types.0.len(), &types.quoted());
    if names.is_empty() { None } else { some("restricted volume types", detail()) }
}

fn non_root(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if pod.is_relaxed(version) {
        return None;
    }
    let explicit = pod.setters(&mut |context| context["runAsNonRoot"] == false);
    let explicit = explicit.map(|who| format!("{who} must not set securityContext.runAsNonRoot=false"));
    let implicit = || {
        let who = lacking(pod, &|context| context["runAsNonRoot"].is_boolean())?;
        Some(format!("{who} must set securityContext.runAsNonRoot=true"))
    };
    some("runAsNonRoot != true", explicit.or_else(implicit)?)
}

fn root_user(pod: Pod<'_>, version: u32) -> Option<Violation> {
    if pod.is_relaxed(version) {
        return None;
    }
    let setters = pod.setters(&mut |context| context["runAsUser"] == 0)?;
    some("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
