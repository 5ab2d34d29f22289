//! Thousands of small plugins: the component `reader` with a manifest written into it, so that each has a digest and a
//! kind of its own, and their objects.

use anyhow::{Result, ensure};
use kube::api::{ApiResource, GroupVersionKind};
use mortise_core::object::Kind;
use serde_json::{Value, json};

/// The markers of the component's placeholders for the manifest and for the kinds to list.
const MANIFEST: &[u8] = b"<the manifest>";
const KINDS: &[u8] = b"<the kinds>";
/// The configuration with which a plugin lists the kinds that it reads.
pub(crate) const LISTS: &str = "lists: true\n";

/// A kind that plugins read and none reconciles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    /// v1/Node, which all read.
    Node,
    /// A Sample that ten plugins read.
    Ten,
    /// A Sample that one plugin reads.
    One,
}

impl Read {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Ten, Self::Node];
    pub(crate) const SAMPLES: [Self; 2] = [Self::One, Self::Ten];

    /// The number of plugins that read it.
    pub(crate) fn readers(self, plugins: usize) -> usize {
        match self {
            Self::Node => plugins,
            Self::Ten => plugins.min(10),
            Self::One => 1,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Node => Kind::new("v1", "Node"),
            Self::Ten => Kind::new("ten.bench.test/v1", "Sample"),
            Self::One => Kind::new("one.bench.test/v1", "Sample"),
        }
    }

    pub(crate) fn resource(self) -> ApiResource {
        resource(&self.kind())
    }
}

pub(crate) fn kind(plugin: usize) -> Kind {
    Kind::new(&format!("n{plugin}.bench.test/v1"), "Reader")
}

pub(crate) fn resource(kind: &Kind) -> ApiResource {
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind.kind))
}

pub(crate) fn name(plugin: usize) -> String {
    format!("n{plugin}")
}

pub(crate) fn object(plugin: usize, number: usize) -> Value {
    json!({
        "apiVersion": kind(plugin).api_version, "kind": "Reader",
        "metadata": {"name": format!("object-{number}"), "namespace": "default"}, "spec": {"size": 1},
    })
}

/// The kinds that a plugin reads: the Nodes and, with `samples`, perhaps one kind of Samples.
fn reads(plugin: usize, samples: bool) -> Vec<Read> {
    Read::ALL.into_iter().filter(|read| *read == Read::Node || samples && plugin < read.readers(usize::MAX)).collect()
}

pub(crate) fn manifest(plugin: usize, samples: bool) -> String {
    let (own, name) = (kind(plugin), name(plugin));
    let kind_of = |kind: Kind| json!({"apiVersion": kind.api_version, "kind": kind.kind});
    let reads = reads(plugin, samples).into_iter().map(|read| kind_of(read.kind())).collect::<Vec<_>>();
    json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": name, "version": "0.1.0",
        "customResources": [definition(&own, true)],
        "controllers": [{"for": kind_of(own), "reads": reads}],
    })
    .to_string()
}

/// The CRD of a kind: with a status for plugins' kinds, else cluster-scoped and without one.
pub(crate) fn definition(kind: &Kind, status: bool) -> Value {
    let ApiResource { group, version, plural, .. } = resource(kind);
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
        "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    }});
    let conditions = json!({"type": "array", "items": condition,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]});
    let of_status = json!({"type": "object", "properties": {
        "phase": {"type": "string"}, "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": conditions,
    }});
    let properties = if status {
        json!({"spec": open, "status": of_status})
    } else {
        json!({"spec": open, "beat": {"type": "integer"}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": if status { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind.kind, "plural": plural, "singular": kind.kind.to_lowercase()},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "subresources": if status { json!({"status": {}}) } else { json!({}) },
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

/// Makes the plugins' components from one build.
pub(crate) struct Components {
    template: Vec<u8>,
    manifest_at: usize,
    kinds_at: usize,
}

impl Components {
    pub(crate) fn new(template: Vec<u8>) -> Result<Self> {
        let (manifest_at, kinds_at) = (place(&template, MANIFEST)?, place(&template, KINDS)?);
        Ok(Self { template, manifest_at, kinds_at })
    }

    pub(crate) fn of(&self, plugin: usize, samples: bool) -> Result<Vec<u8>> {
        let kinds = reads(plugin, samples).into_iter().map(Read::kind);
        let kinds = kinds.map(|kind| format!("{} {}\n", kind.api_version, kind.kind)).collect::<String>();
        let mut component = self.template.clone();
        write(&mut component, self.manifest_at, MANIFEST, &manifest(plugin, samples))?;
        write(&mut component, self.kinds_at, KINDS, &kinds)?;
        Ok(component)
    }
}

/// The position of the only placeholder with this marker.
fn place(component: &[u8], marker: &[u8]) -> Result<usize> {
    let mut places = component.windows(marker.len()).enumerate().filter(|(_, window)| *window == marker);
    let found = (places.next(), places.next());
    let (Some((at, _)), None) = found else {
        anyhow::bail!("the component must contain the text {:?} exactly once", String::from_utf8_lossy(marker))
    };
    Ok(at)
}

/// Replaces a marker and the blanks after it by a text.
fn write(component: &mut [u8], at: usize, marker: &[u8], text: &str) -> Result<()> {
    let blanks = component[at + marker.len()..].iter().take_while(|byte| **byte == b' ').count();
    let room = marker.len() + blanks;
    ensure!(text.len() <= room, "a text of {} bytes does not fit into a placeholder of {room}", text.len());
    component[at..at + room].fill(b' ');
    component[at..at + text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;

    #[test]
    fn a_text_replaces_a_marker_and_its_blanks_only() {
        let mut component = b"\0asm<the kinds>   \0<the manifest>    \0".to_vec();
        let (kinds, manifest) = (place(&component, KINDS).unwrap(), place(&component, MANIFEST).unwrap());
        write(&mut component, kinds, KINDS, "v1 Node").unwrap();
        assert!(write(&mut component, manifest, MANIFEST, &"x".repeat(19)).is_err(), "a byte too many");
        write(&mut component, manifest, MANIFEST, &"x".repeat(18)).unwrap();
        assert_eq!(component, b"\0asmv1 Node       \0xxxxxxxxxxxxxxxxxx\0");
        assert!(place(b"\0asm", KINDS).is_err());
        assert!(place(b"<the kinds><the kinds>", KINDS).is_err());
    }

    #[test]
    fn the_built_component_has_room_for_manifest_and_kinds() {
        let components = Components::new(programs::own_component("test-guests/reader.wasm").unwrap()).unwrap();
        assert_ne!(components.of(0, true).unwrap(), components.of(9_999, true).unwrap());
    }

    #[test]
    fn one_plugin_reads_one_kind_of_samples_and_ten_read_the_other() {
        let readers = |read| (0..100).filter(|plugin| reads(*plugin, true).contains(&read)).count();
        assert_eq!(Read::ALL.map(readers), Read::ALL.map(|read| read.readers(100)));
        assert_eq!(reads(0, false), [Read::Node]);
    }

    #[test]
    fn the_manifest_is_valid() {
        let manifest = mortise_core::manifest::Manifest::parse(&manifest(7, true)).unwrap();
        assert_eq!(manifest.controllers[0].primary, kind(7));
        assert_eq!(manifest.controllers[0].reads.len(), 2);
    }
}
