//! The data of a kind that a plugin defines, as its derive writes it, and the CustomResourceDefinition made of it. Runs
//! once per digest, so this file is written for size. It must not know which controller reconciles the kind.

use schemars::JsonSchema;

use crate::schema::{self, Schema};
use crate::text::Text;

/// What `#[resource(...)]` says.
pub struct Definition {
    /// The API group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The name in URLs and RBAC.
    pub plural: &'static str,
    /// The singular name that kubectl accepts.
    pub singular: &'static str,
    /// Short names for kubectl.
    pub short_names: &'static [&'static str],
    /// Groups of kinds for kubectl ("all").
    pub categories: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The description of the kind.
    pub description: &'static str,
    /// The scale subresource.
    pub scale: Option<Scale>,
    /// The columns of `kubectl get`.
    pub columns: &'static [Column],
    /// Annotations of the CustomResourceDefinition, by key.
    pub annotations: &'static [(&'static str, &'static str)],
    /// The schema of the spec.
    pub spec: Schema,
    /// The schema of the status; without one the status has conditions alone.
    pub status: Option<Schema>,
}

/// The paths of a scale subresource.
pub struct Scale {
    /// Wanted replicas.
    pub spec: &'static str,
    /// Observed replicas.
    pub status: &'static str,
    /// A label selector as a string, for autoscalers.
    pub selector: Option<&'static str>,
}

/// A column of `kubectl get`.
pub struct Column {
    /// The title.
    pub name: &'static str,
    /// "string", "integer", "date", ...
    pub kind: &'static str,
    /// A JSON path.
    pub path: &'static str,
    /// Above 0: only with `-o wide`.
    pub priority: i32,
    /// What the column shows.
    pub description: &'static str,
}

impl Definition {
    /// Writes the CustomResourceDefinition. Objects are stored in this version.
    pub(crate) fn write<'a>(&self, others: impl Iterator<Item = &'a Self>, out: &mut Text) {
        out.open(b'{').text("apiVersion", "apiextensions.k8s.io/v1").text("kind", "CustomResourceDefinition");
        let name = [self.plural, ".", self.group].concat();
        out.name("metadata").open(b'{').text("name", &name).pairs("annotations", self.annotations).close(b'}');
        out.name("spec").open(b'{').text("group", self.group);
        out.text("scope", if self.namespaced { "Namespaced" } else { "Cluster" });
        out.name("names").open(b'{').text("kind", self.kind).text("listKind", &[self.kind, "List"].concat());
        out.text("plural", self.plural).text("singular", self.singular);
        out.texts("shortNames", self.short_names).texts("categories", self.categories).close(b'}');
        out.name("versions").open(b'[');
        self.write_version(true, out);
        for other in others {
            other.write_version(false, out);
        }
        out.close(b']').close(b'}').close(b'}');
    }

    fn write_version(&self, is_stored: bool, out: &mut Text) {
        out.open(b'{').text("name", self.version).flag("served").name("storage").value(&is_stored);
        self.write_subresources(out);
        out.list("additionalPrinterColumns", self.columns, Column::write);
        out.name("schema").open(b'{').name("openAPIV3Schema").open(b'{').text("type", "object");
        if !self.description.is_empty() {
            out.text("description", self.description);
        }
        out.texts("required", &["spec"]).name("properties").open(b'{').name("spec");
        schema::write(self.spec, out);
        match self.status {
            Some(status) => schema::write_status(status, out.name("status")),
            None => schema::write_bare_status(out.name("status")),
        }
        for bracket in *b"}}}}" {
            out.close(bracket);
        }
    }

    fn write_subresources(&self, out: &mut Text) {
        out.name("subresources").open(b'{').name("status").open(b'{').close(b'}');
        if let Some(scale) = &self.scale {
            out.name("scale").open(b'{').text("specReplicasPath", scale.spec).text("statusReplicasPath", scale.status);
            if let Some(selector) = scale.selector {
                out.text("labelSelectorPath", selector);
            }
            out.close(b'}');
        }
        out.close(b'}');
    }
}

impl Column {
    fn write(&self, out: &mut Text) {
        out.open(b'{').text("name", self.name).text("type", self.kind).text("jsonPath", self.path);
        if self.priority != 0 {
            out.name("priority").value(&self.priority);
        }
        if !self.description.is_empty() {
            out.text("description", self.description);
        }
        out.close(b'}');
    }
}

/// The schema of a type, for [`Definition`].
pub const fn schema_of<T: JsonSchema>() -> Schema {
    T::json_schema
}
