//! What people want of a plugin, as its Plugin object says it. The API server lets in what the schema allows, but the object may
//! be older than the schema, or somebody may have replaced that. So a field that cannot be read is named, and nothing serves: it
//! might bound the plugin.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::grants::Grants;
use crate::object::{Object, is_object_name};
use crate::rights::Namespaces;
use crate::tenant;
use crate::well_known::HOST_NAMESPACE_LABEL;

/// What is wanted of a plugin. People and their tools write it; the host writes the status alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The source, by the name of its ConfigMap; that of the object unless it says another. That of a tenant's plugin follows from
    /// its name.
    pub source: Arc<str>,
    /// Whether a person made the object, or it names its source: no other plugin has that.
    pub names_source: bool,
    /// Whether somebody has written into the spec, which outlives the source.
    pub is_written: bool,
    /// The component that may serve; any, if there is none.
    pub digest: Option<Digest>,
    /// The configuration as a JSON object, instead of the source's.
    pub config: Option<Arc<str>>,
    /// The name of the ServiceAccount of the host's namespace that it acts as; the host, if there is none.
    pub service_account: Option<Arc<str>>,
    /// Where it sees and acts; everywhere, if there are none.
    pub namespaces: Option<Namespaces>,
    /// What an administrator grants it.
    pub grants: Arc<Grants>,
    /// Nothing is reconciled.
    pub suspend: bool,
    /// The fields that cannot be read, each with why: nothing may serve.
    pub unreadable: Option<Arc<str>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Fields {
    source: Source,
    digest: Option<String>,
    config: Option<Map<String, Value>>,
    service_account_name: Option<Arc<str>>,
    namespaces: Option<BTreeSet<Arc<str>>>,
    grants: Map<String, Value>,
    suspend: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Source {
    config_map: Option<Arc<str>>,
}

/// Reads the spec. One that has another shape than the schema says is [`Spec::unreadable`].
pub fn spec(object: &Object) -> Spec {
    #[derive(Deserialize)]
    struct Parts {
        #[serde(default)]
        spec: Value,
    }
    let mut why = Vec::new();
    let written = match serde_json::from_str(object.json()).map(|Parts { spec }| spec) {
        Ok(Value::Object(fields)) => fields,
        Ok(Value::Null) => Map::new(),
        Ok(_) | Err(_) => {
            why.push("spec is no object".to_owned());
            Map::new()
        }
    };
    let fields: Fields = fields_of(&written, "spec", &mut why);
    let grants = fields_of(&fields.grants, "spec.grants", &mut why);
    if fields.namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
        why.push("spec.namespaces is empty: name a namespace, or leave it out, which means all of them".to_owned());
    }
    if let Some(name) = fields.service_account_name.as_deref().filter(|name| !is_object_name(name)) {
        why.push(format!("spec.serviceAccountName is {name:?}, which cannot be the name of a ServiceAccount"));
    }
    // That of a tenant's plugin is where its name says.
    let tenants = tenant::of_plugin(&object.name.name).map(|_| tenant::source_of(&object.name.name));
    let is_by_person = object.label(HOST_NAMESPACE_LABEL).is_none();
    Spec {
        names_source: is_by_person || fields.source.config_map.is_some(),
        is_written: !written.is_empty() || !why.is_empty(),
        source: tenants.or(fields.source.config_map).unwrap_or_else(|| Arc::clone(&object.name.name)),
        digest: fields.digest.map(|digest| Digest(digest.into())),
        config: fields.config.map(|config| Value::Object(config).to_string().into()),
        service_account: fields.service_account_name,
        namespaces: fields.namespaces.map(Into::into),
        grants: Arc::new(grants),
        suspend: fields.suspend,
        unreadable: (!why.is_empty()).then(|| why.join("; ").into()),
    }
}

/// The fields of an object. Those that cannot be read are left out, and named with the reason. As for the API server, a null is
/// no value.
pub(super) fn fields_of<'a, T>(object: &'a Map<String, Value>, path: &str, why: &mut Vec<String>) -> T
where
    T: Deserialize<'a> + Default,
{
    let given = object.iter().map(|(name, value)| (name.as_str(), value)).filter(|(_, value)| !value.is_null());
    let mut is_readable = |(name, value): &(&'a str, &'a Value)| {
        let read = T::deserialize(MapDeserializer::<_, serde_json::Error>::new(std::iter::once((*name, *value))));
        why.extend(read.as_ref().err().map(|error| format!("{path}.{name} cannot be read: {error}")));
        read.is_ok()
    };
    let readable: Vec<_> = given.filter(|field| is_readable(field)).collect();
    T::deserialize(MapDeserializer::<_, serde_json::Error>::new(readable.into_iter())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::tests::decode;

    fn read(spec: Value) -> Spec {
        let object = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
            "metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}, "spec": spec,
        });
        super::spec(&decode(&object.to_string()))
    }

    #[test]
    fn g10_a_field_that_cannot_be_read_is_named_and_the_others_are_read() {
        for (spec, named) in [
            (json!({"digest": 7}), "spec.digest cannot be read: invalid type: integer `7`, expected a string"),
            (
                json!({"namespaces": "team-a"}),
                "spec.namespaces cannot be read: invalid type: string \"team-a\", expected a sequence",
            ),
            (
                json!({"namespaces": ["team-a", 7]}),
                "spec.namespaces cannot be read: invalid type: integer `7`, expected a",
            ),
            (json!({"namespaces": []}), "spec.namespaces is empty"),
            (
                json!({"suspend": "true"}),
                "spec.suspend cannot be read: invalid type: string \"true\", expected a boolean",
            ),
            (json!({"config": [1]}), "spec.config cannot be read"),
            (json!({"source": "web"}), "spec.source cannot be read"),
            (json!({"serviceAccountName": ["web"]}), "spec.serviceAccountName cannot be read"),
            (json!({"serviceAccountName": "a:b"}), "spec.serviceAccountName is \"a:b\""),
            (json!({"grants": true}), "spec.grants cannot be read"),
            (
                json!({"grants": {"maxObjects": "5"}}),
                "spec.grants.maxObjects cannot be read: invalid type: string \"5\", expected usize",
            ),
            (json!({"grants": {"writesPerMinute": -1}}), "spec.grants.writesPerMinute cannot be read"),
            (json!("none"), "spec is no object"),
        ] {
            let why = read(spec.clone()).unreadable.unwrap_or_else(|| panic!("{spec} is read"));
            assert!(why.starts_with(named) && !why.contains("; "), "{spec}: {why}");
        }
        let read = read(json!({"digest": 7, "suspend": true, "grants": {"maxObjects": "5", "hostNamespace": true}}));
        assert_eq!(read.unreadable.unwrap().matches("cannot be read").count(), 2, "each is named");
        assert!(read.suspend && read.grants.host_namespace && read.is_written);
    }

    #[test]
    fn g10_what_is_absent_or_null_is_not_given() {
        for spec in
            [json!({}), json!(null), json!({"digest": null, "namespaces": null, "suspend": null, "grants": null})]
        {
            let read = read(spec.clone());
            assert_eq!(
                (read.unreadable, read.digest, read.namespaces, read.suspend),
                (None, None, None, false),
                "{spec}"
            );
        }
        let unknown = read(json!({"later": 1, "grants": {"later": [1]}}));
        assert_eq!((unknown.unreadable, &*unknown.grants), (None, &Grants::default()));
    }
}
