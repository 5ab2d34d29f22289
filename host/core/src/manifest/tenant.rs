//! What is left of a manifest in a tenant's namespace: all that it reads and writes is there. What concerns others, a tenant's
//! plugin cannot have: it is refused, but for definitions, which an administrator may have made. It must not know plugins.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Manifest;
use super::controller::ControllerSpec;
use crate::refusal::Refusal;
use crate::scope::Scope;

/// Kinds of one plugin of a tenant. Each is a watch and reviews of its own, and an operator that manages one kind reads a few.
const MAX_KINDS: usize = 16;

impl Manifest {
    /// The manifest of a tenant's plugin.
    ///
    /// # Errors
    /// The refusal names what a tenant's plugin cannot have.
    pub fn of_tenant(&self, namespace: &Arc<str>) -> Result<Self, Refusal> {
        let patterns = self.controllers.iter().find_map(|controller| controller.patterns.first());
        let beyond = [
            self.admission.first().map(|spec| format!("admission webhooks, of {} first", spec.kind)),
            self.conversion.first().map(|spec| format!("a conversion webhook, of {}", spec.crd)),
            self.http.first().map(|rule| format!("HTTP requests of the host, to {} first", rule.origin)),
            patterns.map(|pattern| format!("kinds by a pattern, {pattern}")),
        ];
        if let Some(what) = beyond.into_iter().flatten().next() {
            return Err(beyond_tenant(namespace, &what));
        }
        let kinds = self.scopes().map(|(kind, _)| kind).collect::<BTreeSet<_>>().len();
        if kinds > MAX_KINDS {
            return Err(beyond_tenant(namespace, &format!("{kinds} kinds, of which {MAX_KINDS} are the most")));
        }
        let controllers = self.controllers.iter().map(|controller| in_namespace(controller, namespace));
        Ok(Self {
            custom_resources: Vec::new(),
            described_resources: self.custom_resources.clone(),
            controllers: controllers.collect::<Result<_, _>>()?,
            writes_in: only(namespace),
            ..self.clone()
        })
    }
}

fn only(namespace: &Arc<str>) -> Scope {
    Scope { namespaces: BTreeSet::from([Arc::clone(namespace)]), ..Scope::default() }
}

fn in_namespace(controller: &ControllerSpec, namespace: &Arc<str>) -> Result<ControllerSpec, Refusal> {
    let mut controller = ControllerSpec { scope: only(namespace), ..controller.clone() };
    let owned = controller.owns.iter_mut().map(|owned| (&owned.kind, &mut owned.scope));
    let read = controller.reads.iter_mut().map(|read| (&read.kind, &mut read.scope));
    for (kind, scope) in owned.chain(read) {
        if !scope.has_namespace(namespace) {
            return Err(beyond_tenant(namespace, &format!("{kind} {scope}")));
        }
        scope.namespaces = only(namespace).namespaces;
    }
    Ok(controller)
}

fn beyond_tenant(namespace: &str, what: &str) -> Refusal {
    let message = format!(
        "it asks for {what}. The plugin of a tenant sees and writes the namespace {namespace} alone, and has nothing that the host \
         does for it elsewhere; an administrator can run this plugin from the host's namespace"
    );
    Refusal::new("BeyondTenant", message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(part: &Value) -> Manifest {
        let mut manifest = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "web",
            "customResources": [{
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "webs.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
                    "versions": [
                        {"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": true, "storage": false},
                    ],
                },
            }],
            "controllers": [{"for": {"apiVersion": "example.com/v1", "kind": "Web"}}],
        });
        manifest.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        Manifest::parse(&manifest.to_string()).unwrap()
    }

    fn controller(part: &Value) -> Manifest {
        let mut controller = json!({"for": {"apiVersion": "example.com/v1", "kind": "Web"}});
        controller.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        manifest(&json!({"controllers": [controller]}))
    }

    #[test]
    fn g11_all_that_a_tenants_plugin_declares_is_in_its_namespace_and_it_brings_no_definition() {
        let manifest = controller(&json!({
            "owns": [
                {"apiVersion": "v1", "kind": "Pod"},
                {"apiVersion": "v1", "kind": "Secret", "namespaces": ["team-a", "team-b"]},
            ],
            "reads": [{"apiVersion": "v1", "kind": "Node"}, {"apiVersion": "v1", "kind": "ConfigMap", "labels": "a=b"}],
        }));
        let narrowed = manifest.of_tenant(&"team-a".into()).unwrap();
        let scopes: Vec<String> = narrowed.scopes().map(|(kind, scope)| format!("{kind} {scope}")).collect();
        assert_eq!(
            scopes,
            [
                "example.com/v1/Web in the namespace team-a",
                "v1/Pod in the namespace team-a",
                "v1/Secret in the namespace team-a",
                "v1/Node in the namespace team-a",
                "v1/ConfigMap in the namespace team-a, with the labels a=b",
            ]
        );
        assert!(narrowed.custom_resources.is_empty() && narrowed.writes_in == only(&"team-a".into()));
        assert!(narrowed.controllers.iter().all(|controller| !controller.declares(&controller.primary, "team-b")));
    }

    #[test]
    fn g11_what_concerns_others_is_refused_and_named() {
        let admission = json!({"admission": [{"apiVersion": "example.com/v1", "kind": "Web", "validate": true}]});
        let conversion = json!({"conversion": [{"apiVersion": "example.com/v1", "kind": "Web"}]});
        let http = json!({"http": [{"origin": "https://api.example.com", "methods": ["GET"]}]});
        let elsewhere = json!({"reads": [{"apiVersion": "v1", "kind": "Secret", "namespaces": ["kube-system"]}]});
        let reads = |count: usize| -> Value {
            let kinds = (1..count).map(|kind| json!({"apiVersion": "example.com/v1", "kind": format!("Kind{kind}")}));
            json!({"reads": kinds.collect::<Vec<_>>()})
        };
        assert!(controller(&reads(MAX_KINDS)).of_tenant(&"team-a".into()).is_ok());
        for (manifest, part) in [
            (controller(&reads(MAX_KINDS + 1)), "17 kinds"),
            (manifest(&admission), "admission webhooks, of example.com/v1/Web first"),
            (manifest(&conversion), "a conversion webhook, of webs.example.com"),
            (manifest(&http), "HTTP requests of the host, to https://api.example.com first"),
            (controller(&json!({"reads": [{"apiVersion": "*.example.com/*", "kind": "*"}]})), "kinds by a pattern"),
            (controller(&elsewhere), "v1/Secret in the namespace kube-system"),
        ] {
            let refusal = manifest.of_tenant(&"team-a".into()).unwrap_err();
            assert_eq!(refusal.reason, "BeyondTenant");
            assert!(refusal.message.contains(part), "{}", refusal.message);
        }
    }
}
