//! Tenants: namespaces that bring plugins of their own. Such a plugin is named NAMESPACE.NAME, its source NAMESPACE/NAME; other
//! plugins and sources have neither character in their names. It sees and writes its namespace alone, and what it uses is
//! counted for the namespace. It must not know how a namespace becomes a tenant.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::object::{Interner, Kind, Object};
use crate::refusal::Refusal;
use crate::rights::Namespaces;
use crate::service_account::ServiceAccount;

/// Plugins of one tenant: each costs a compilation, native code in memory, and watches of its kinds. A team has a few.
pub const MAX_PLUGINS: usize = 16;

/// The bound of a DNS label, which is that of a label's value: the host writes names of plugins into labels.
const MAX_NAME_BYTES: usize = 63;

/// The ConfigMap of a tenant's plugin, and what the tenant says there of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantSource {
    /// The tenant.
    pub namespace: Arc<str>,
    /// The ConfigMap's name.
    pub name: Arc<str>,
    /// The ConfigMap's UID, for Events about it.
    pub uid: Arc<str>,
    /// The name of the ServiceAccount that the plugin acts as.
    pub service_account: Arc<str>,
}

impl TenantSource {
    /// The source's name, which no other source has.
    pub fn source(&self) -> Arc<str> {
        format!("{}/{}", self.namespace, self.name).into()
    }

    /// Whom the plugin acts as, unless its Plugin object names another ServiceAccount of the namespace.
    pub fn account(&self, named: Option<&Arc<str>>) -> ServiceAccount {
        let name = Arc::clone(named.unwrap_or(&self.service_account));
        ServiceAccount { namespace: Arc::clone(&self.namespace), name }
    }

    /// Where the plugin sees and acts.
    pub fn namespaces(&self) -> Namespaces {
        BTreeSet::from([Arc::clone(&self.namespace)]).into()
    }

    /// The ConfigMap as far as an Event about it needs it.
    pub fn object(&self) -> Option<Object> {
        let metadata =
            json!({"namespace": *self.namespace, "name": *self.name, "uid": *self.uid, "resourceVersion": "1"});
        let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string();
        Object::decode_as(&Kind::new("v1", "ConfigMap"), text.as_bytes(), &mut Interner::default()).ok()
    }

    /// As [`cannot_be_named`].
    pub fn cannot_be_named(&self) -> Option<Refusal> {
        cannot_be_named(&self.namespace, &self.name)
    }

    /// Why a tenant has no further plugin.
    pub fn too_many(&self) -> Refusal {
        let message = format!(
            "the namespace {} has {MAX_PLUGINS} plugins, the most that a tenant may have: delete one, and this one is read",
            self.namespace
        );
        Refusal::new("TooManyPlugins", message)
    }
}

/// Why no plugin of a tenant can have the name of this ConfigMap.
pub fn cannot_be_named(namespace: &str, name: &str) -> Option<Refusal> {
    let plugin = format!("{namespace}.{name}");
    let message = format!(
        "the plugin of a tenant is named NAMESPACE.NAME with at most {MAX_NAME_BYTES} characters, and {plugin} has {}: give the \
         ConfigMap a shorter name",
        plugin.len()
    );
    (plugin.len() > MAX_NAME_BYTES).then(|| Refusal::new("NameTooLong", message))
}

/// The plugin of a source, unless a Plugin object names it.
pub fn plugin_of(source: &Arc<str>) -> Arc<str> {
    match source.split_once('/') {
        Some((namespace, name)) => format!("{namespace}.{name}").into(),
        None => Arc::clone(source),
    }
}

/// The source of a plugin, unless its Plugin object names one.
pub fn source_of(plugin: &Arc<str>) -> Arc<str> {
    match plugin.split_once('.') {
        Some((namespace, name)) => format!("{namespace}/{name}").into(),
        None => Arc::clone(plugin),
    }
}

/// The tenant whose plugin this is, by its name.
pub fn of_plugin(plugin: &str) -> Option<&str> {
    Some(plugin.split_once('.')?.0)
}

/// The tenant whose source this is.
pub fn of_source(source: &str) -> Option<&str> {
    Some(source.split_once('/')?.0)
}

/// Whose share of time, memory and writes a plugin uses: its own, or that of all plugins of its tenant.
pub fn share(plugin: &Arc<str>) -> Arc<str> {
    match share_name(plugin) {
        Cow::Borrowed(_) => Arc::clone(plugin),
        Cow::Owned(share) => share.into(),
    }
}

/// As [`share`], of a borrowed name.
pub fn share_name(plugin: &str) -> Cow<'_, str> {
    of_plugin(plugin).map_or(Cow::Borrowed(plugin), |tenant| Cow::Owned(format!("{tenant}.*")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_plugins_and_sources_say_whose_they_are() {
        let (own, tenants) = (Arc::from("podset"), Arc::from("team-a.podset"));
        assert_eq!((&*source_of(&own), &*source_of(&tenants)), ("podset", "team-a/podset"));
        assert_eq!((plugin_of(&source_of(&own)), plugin_of(&source_of(&tenants))), (own.clone(), tenants.clone()));
        assert_eq!((of_plugin(&own), of_plugin(&tenants)), (None, Some("team-a")));
        assert_eq!((of_source("podset"), of_source("team-a/podset")), (None, Some("team-a")));
        assert_eq!((&*share(&own), &*share(&tenants)), ("podset", "team-a.*"));
    }

    #[test]
    fn a_name_that_no_label_could_have_is_refused_at_one_character_beyond_the_bound() {
        let source = |length: usize| TenantSource {
            namespace: "team-a".into(),
            name: "x".repeat(length - "team-a.".len()).into(),
            uid: "u".into(),
            service_account: "x".into(),
        };
        assert!(source(63).cannot_be_named().is_none());
        assert_eq!(source(64).cannot_be_named().unwrap().reason, "NameTooLong");
    }

    #[test]
    fn an_event_about_the_source_is_about_its_config_map() {
        let (namespace, name, uid) = ("team-a".into(), "podset".into(), "u-1".into());
        let object = TenantSource { namespace, name, uid, service_account: "p".into() }.object().unwrap();
        assert_eq!(object.reference().to_string(), "ConfigMap team-a/podset");
        assert_eq!(&*object.uid, "u-1");
    }
}
