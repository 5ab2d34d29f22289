//! What an administrator grants a plugin in its Plugin object, beside the rights of its ServiceAccount: what the host itself
//! registers for it, kinds that decide who may do what, the host's namespace, where values go that the host made, and bounds of
//! its own. It must not know how a version comes up.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::Origin;
use crate::limits::CallLimits;
use crate::manifest::Manifest;
use crate::object::{Kind, Name};
use crate::permission::printed_by;
use crate::refusal::Refusal;
use crate::service_account::ServiceAccount;
use crate::tenant;

/// Names, such as of CRDs.
pub type Names = BTreeSet<Arc<str>>;

/// The groups whose objects decide what others may do, or see every request. The API server prevents escalation by roles,
/// and by nothing else of these.
const DECIDING: [&str; 3] = ["admissionregistration.k8s.io", "apiregistration.k8s.io", "rbac.authorization.k8s.io"];

/// `spec.grants` of a Plugin object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Grants {
    /// The CRDs that the host registers for it, "podsets.app.example.com".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_resources: Option<Names>,
    /// The kinds with webhooks of the plugin, "PodSet.app.example.com", "Pod".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Names>,
    /// The CRDs whose objects it converts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Names>,
    /// The kinds of roles, webhooks and the like that it may write, "RoleBinding.rbac.authorization.k8s.io".
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub writes: Names,
    /// It may write in the host's namespace, and ConfigMaps that bring plugins.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_namespace: bool,
    /// The origins that its HTTP requests may carry values to that the host made, "https://dns.example.com".
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub generated_values_to: Names,
    /// The most objects that its outcomes may want, of all its keys together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_objects: Option<usize>,
    /// The most writes in a minute, of 4 KiB each, instead of the host's budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_minute: Option<u32>,
    /// The most linear memory of a call, if its manifest has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The longest call, if its manifest has a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// A kind in grants, as in `status.ownedKinds`: its versions are one resource.
pub fn resource(kind: &Kind) -> Arc<str> {
    match kind.group() {
        "" => Arc::clone(&kind.kind),
        group => format!("{}.{group}", kind.kind).into(),
    }
}

/// What a manifest asks for.
pub fn asked(manifest: &Manifest) -> Grants {
    let some = |names: Names| (!names.is_empty()).then_some(names);
    let owned = manifest.controllers.iter().flat_map(|controller| &controller.owns).map(|owned| &owned.kind);
    let written = manifest.writes.iter().map(|rule| &rule.kind).chain(owned);
    Grants {
        custom_resources: some(manifest.custom_resources.iter().map(|crd| Arc::clone(&crd.name)).collect()),
        admission: some(manifest.admission.iter().map(|spec| resource(&spec.kind)).collect()),
        conversion: some(manifest.conversion.iter().map(|spec| Arc::clone(&spec.crd)).collect()),
        writes: written.filter(|kind| DECIDING.contains(&kind.group())).map(resource).collect(),
        ..Grants::default()
    }
}

impl Grants {
    /// What a manifest asks for and nobody has granted, so that it may not serve. Where grants are `required`, all of it has
    /// to be named. Elsewhere a list that is absent grants what concerns the plugin's own kinds: not those of the `foreign`
    /// CRDs, which exist and were not made for it.
    pub fn lacking(&self, manifest: &Manifest, required: bool, foreign: &Names) -> Option<Self> {
        let asked = asked(manifest);
        let lacking = |asked: Option<&Names>, granted: &Option<Names>, own: Option<&Names>| {
            let granted = granted.as_ref().or(own.filter(|_| !required));
            let is_granted = |name: &&Arc<str>| granted.is_some_and(|granted| granted.contains(*name));
            let lacking: Names = asked?.iter().filter(|name| !is_granted(name)).cloned().collect();
            (!lacking.is_empty()).then_some(lacking)
        };
        let own_kinds = own_kinds(manifest, foreign);
        let of = |names: &Option<Names>, granted| lacking(names.as_ref(), granted, names.as_ref());
        let lacking = Self {
            custom_resources: of(&asked.custom_resources, &self.custom_resources),
            conversion: of(&asked.conversion, &self.conversion),
            admission: lacking(asked.admission.as_ref(), &self.admission, Some(&own_kinds)),
            writes: asked.writes.difference(&self.writes).cloned().collect(),
            ..Self::default()
        };
        (lacking != Self::default()).then_some(lacking)
    }

    /// The refusal of a plugin that lacks these. For a tenant no command prints its Plugin, which an administrator writes.
    pub fn not_granted(&self, plugin: &str, account: Option<&ServiceAccount>, host_namespace: &str) -> Refusal {
        let lists = json!({ "spec": { "grants": self } });
        let own = ServiceAccount { namespace: host_namespace.into(), name: plugin.into() };
        let who = match tenant::of_plugin(plugin) {
            Some(_) => "Only an administrator of the cluster may write that".to_owned(),
            None => {
                let printed_by = printed_by(plugin, account.or(Some(&own)), host_namespace);
                format!("`{printed_by}` prints a Plugin with all that it asks for")
            }
        };
        let message = format!(
            "the plugin asks for what nobody has granted it: add to the lists of the Plugin {plugin}, if it should have it: {lists}. \
             {who}"
        );
        Refusal::new("NotGranted", message)
    }

    /// Whether requests to this origin may carry values that the host made. A text that is no origin grants none.
    pub fn gives_generated_values_to(&self, origin: &Origin) -> bool {
        self.generated_values_to.iter().any(|granted| Origin::parse(granted).as_ref() == Ok(origin))
    }

    /// The bounds of the plugin's calls.
    pub fn bound(&self, limits: CallLimits) -> CallLimits {
        CallLimits {
            memory_bytes: self.memory_bytes.map_or(limits.memory_bytes, |most| most.min(limits.memory_bytes)),
            deadline_ms: self.deadline_ms.map_or(limits.deadline_ms, |most| most.min(limits.deadline_ms)),
            ..limits
        }
    }
}

/// Why a request is not sent that would carry a value which the host made.
pub fn generated_not_granted(plugin: &str, secret: &Name, key: &str, origin: &Origin) -> String {
    let only_an_administrator = match tenant::of_plugin(plugin) {
        Some(_) => ". Only an administrator of the cluster may write that",
        None => "",
    };
    format!(
        "Secret {secret}: the host made {key:?}, and it sends what it made to no origin that nobody has granted it to: add {:?} to \
         spec.grants.generatedValuesTo of the Plugin {plugin}, if that server should have it{only_an_administrator}",
        origin.to_string()
    )
}

/// The kinds that a plugin brings, except of foreign CRDs.
fn own_kinds(manifest: &Manifest, foreign: &Names) -> Names {
    let own = manifest.custom_resources.iter().filter(|crd| !foreign.contains(&crd.name));
    own.flat_map(|crd| crd.kinds.iter().map(resource)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(part: serde_json::Value) -> Manifest {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "webs.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true, "storage": false}],
            },
        });
        let mut manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "web", "customResources": [crd],
            "controllers": [
                {"for": {"apiVersion": "example.com/v1", "kind": "Web"}},
                {"for": {"apiVersion": "v1", "kind": "Pod"}},
            ],
        });
        manifest.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        Manifest::parse(&manifest.to_string()).unwrap()
    }

    fn grants(spec: serde_json::Value) -> Grants {
        serde_json::from_value(spec).unwrap()
    }

    /// The grants that a refusal asks for.
    fn lacking(grants: &Grants, manifest: &Manifest, required: bool, foreign: &[&str]) -> serde_json::Value {
        let foreign = foreign.iter().map(|name| Arc::from(*name)).collect();
        let Some(lacking) = grants.lacking(manifest, required, &foreign) else { return json!(null) };
        let refusal = lacking.not_granted("web", None, "mortise-system");
        assert_eq!(refusal.reason, "NotGranted");
        let json = &refusal.message[refusal.message.find('{').unwrap()..];
        let mut read = serde_json::Deserializer::from_str(json).into_iter::<serde_json::Value>();
        read.next().unwrap().unwrap()["spec"]["grants"].take()
    }

    fn with_webhooks() -> Manifest {
        let admits = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "validate": true});
        manifest(json!({
            "admission": [admits("example.com/v1", "Web"), admits("v1", "Pod")],
            "conversion": [{"apiVersion": "example.com/v1", "kind": "Web"}],
        }))
    }

    #[test]
    fn g10_where_grants_are_required_all_that_the_host_registers_has_to_be_named() {
        let manifest = with_webhooks();
        let all = json!({
            "customResources": ["webs.example.com"], "admission": ["Pod", "Web.example.com"], "conversion": ["webs.example.com"],
        });
        assert_eq!(lacking(&Grants::default(), &manifest, true, &[]), all);
        assert_eq!(lacking(&grants(all), &manifest, true, &["webs.example.com"]), json!(null));
        let some = grants(json!({"customResources": ["webs.example.com"], "admission": ["Web.example.com"]}));
        let rest = json!({"admission": ["Pod"], "conversion": ["webs.example.com"]});
        assert_eq!(lacking(&some, &manifest, true, &[]), rest);
    }

    #[test]
    fn g10_elsewhere_admission_of_a_kind_that_the_plugin_did_not_bring_first_has_to_be_named() {
        let manifest = with_webhooks();
        assert_eq!(lacking(&Grants::default(), &manifest, false, &[]), json!({"admission": ["Pod"]}));
        let a_copy = json!({"admission": ["Pod", "Web.example.com"]});
        assert_eq!(lacking(&Grants::default(), &manifest, false, &["webs.example.com"]), a_copy);
        assert_eq!(lacking(&grants(a_copy), &manifest, false, &["webs.example.com"]), json!(null));
        let none = grants(json!({"customResources": [], "conversion": [], "admission": ["Pod", "Web.example.com"]}));
        let named = json!({"customResources": ["webs.example.com"], "conversion": ["webs.example.com"]});
        assert_eq!(lacking(&none, &manifest, false, &[]), named, "a list that is there is all");
    }

    #[test]
    fn g10_a_refusal_names_the_command_that_prints_the_grants_and_for_a_tenant_who_gives_them() {
        let lacking = grants(json!({"writes": ["RoleBinding.rbac.authorization.k8s.io"]}));
        let account = |name: &str| ServiceAccount { namespace: "plugins".into(), name: name.into() };
        let message = |plugin: &str, account| lacking.not_granted(plugin, account, "plugins").message;
        let of_host = "`mortise rbac FILE.wasm --name web --service-account web -n plugins` prints a Plugin with all that it asks for";
        assert!(message("web", None).ends_with(of_host), "{}", message("web", None));
        let (named, of_tenant) = (message("web", Some(&account("w"))), message("team-a.web", Some(&account("web"))));
        assert!(named.contains("--name web --service-account w -n plugins`"), "{named}");
        assert!(of_tenant.contains("the Plugin team-a.web") && !of_tenant.contains("mortise rbac"), "{of_tenant}");
        assert!(of_tenant.ends_with("Only an administrator of the cluster may write that"), "{of_tenant}");
    }

    #[test]
    fn g10_roles_and_webhooks_are_written_with_a_grant_alone() {
        let kind = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
        let write =
            |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "verbs": ["apply"]});
        let manifest = manifest(json!({
            "controllers": [{
                "for": kind("example.com/v1", "Web"),
                "owns": [kind("v1", "ConfigMap"), kind("rbac.authorization.k8s.io/v1", "RoleBinding")],
            }],
            "writes": [
                write("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
                write("apiregistration.k8s.io/v1", "APIService"), write("apps/v1", "Deployment"),
            ],
        }));
        let all = json!({"writes": [
            "APIService.apiregistration.k8s.io", "RoleBinding.rbac.authorization.k8s.io",
            "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
        ]});
        assert_eq!(lacking(&Grants::default(), &manifest, false, &[]), all);
        assert_eq!(lacking(&grants(all), &manifest, false, &[]), json!(null));
    }

    #[test]
    fn g8_values_that_the_host_made_go_to_the_origins_that_are_named_and_to_no_other() {
        let origin = |text: &str| Origin::parse(text).unwrap();
        let named =
            grants(json!({"generatedValuesTo": ["https://DNS.example.com:443", "https://", "*", "https://a/b"]}));
        assert!(named.gives_generated_values_to(&origin("https://dns.example.com")));
        for other in ["https://dns.example.com:8443", "http://dns.example.com:443", "https://example.com", "https://a"]
        {
            assert!(!named.gives_generated_values_to(&origin(other)), "{other}");
            assert!(!Grants::default().gives_generated_values_to(&origin(other)), "{other}");
        }
        let message = |plugin| generated_not_granted(plugin, &Name::new("shop", "db"), "token", &origin("https://a"));
        let of_host = message("dns");
        assert!(of_host.starts_with(r#"Secret shop/db: the host made "token""#), "{of_host}");
        assert!(of_host.contains(r#"add "https://a" to spec.grants.generatedValuesTo of the Plugin dns"#), "{of_host}");
        assert!(message("team-a.dns").ends_with("Only an administrator of the cluster may write that"));
    }

    #[test]
    fn g10_a_granted_bound_is_the_most_and_gives_nothing_that_the_manifest_lacks() {
        let limits = CallLimits::default();
        let bound = |spec| {
            let CallLimits { memory_bytes, deadline_ms, .. } = grants(spec).bound(limits);
            (memory_bytes, deadline_ms)
        };
        assert_eq!(bound(json!({})), (limits.memory_bytes, limits.deadline_ms));
        assert_eq!(bound(json!({"memoryBytes": 1 << 20, "deadlineMs": 100})), (1 << 20, 100));
        assert_eq!(
            bound(json!({"memoryBytes": 1_u64 << 40, "deadlineMs": 9_999})),
            (limits.memory_bytes, limits.deadline_ms)
        );
    }
}
