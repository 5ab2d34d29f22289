//! Small plugins by the thousand: the component `reader` with a manifest written into it, so that each has a digest and a
//! kind of its own, and its objects. Numbers go in; components, manifests, objects and kinds come out.

use anyhow::{Result, ensure};
use kube::api::{ApiResource, GroupVersionKind};
use mortise_core::object::Kind;
use serde_json::{Value, json};

use crate::programs;

/// What the component holds where the manifest and the kinds that it lists go.
const MANIFEST: &[u8] = b"<the manifest>";
const KINDS: &[u8] = b"<the kinds>";
/// The configuration with which a plugin lists what it reads; without one it asks nothing.
pub(crate) const LISTS: &str = "lists: true\n";

/// A kind that plugins read and none of them reconciles.
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

    /// How many plugins read it.
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

/// The kind of a plugin.
pub(crate) fn kind(plugin: usize) -> Kind {
    Kind::new(&format!("n{plugin}.bench.test/v1"), "Reader")
}

/// The resource of a kind.
pub(crate) fn resource(kind: &Kind) -> ApiResource {
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind.kind))
}

/// The name of a plugin.
pub(crate) fn name(plugin: usize) -> String {
    format!("n{plugin}")
}

/// An object of a plugin's kind.
pub(crate) fn object(plugin: usize, number: usize) -> Value {
    json!({
        "apiVersion": kind(plugin).api_version, "kind": "Reader",
        "metadata": {"name": format!("object-{number}"), "namespace": "default"}, "spec": {"size": 1},
    })
}

/// What a plugin reads: the Nodes, and unless they are to be all, perhaps one kind of Samples.
fn reads(plugin: usize, samples: bool) -> Vec<Read> {
    Read::ALL.into_iter().filter(|read| *read == Read::Node || samples && plugin < read.readers(usize::MAX)).collect()
}

/// A plugin's manifest.
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

/// The CustomResourceDefinition of a kind, with conditions and observedGeneration in its status as plugins' kinds have
/// them; or of one that lives outside namespaces and has no status.
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

/// The components of the first plugins, made of one build.
#[derive(Debug)]
pub(crate) struct Components {
    template: Vec<u8>,
    manifest_at: usize,
    kinds_at: usize,
}

impl Components {
    pub(crate) fn read() -> Result<Self> {
        let template = programs::test_guest("reader")?;
        let (manifest_at, kinds_at) = (place(&template, MANIFEST)?, place(&template, KINDS)?);
        Ok(Self { template, manifest_at, kinds_at })
    }

    /// The component of a plugin.
    pub(crate) fn of(&self, plugin: usize, samples: bool) -> Result<Vec<u8>> {
        let kinds = reads(plugin, samples).into_iter().map(Read::kind);
        let kinds = kinds.map(|kind| format!("{} {}\n", kind.api_version, kind.kind)).collect::<String>();
        let mut component = self.template.clone();
        write(&mut component, self.manifest_at, MANIFEST, &manifest(plugin, samples))?;
        write(&mut component, self.kinds_at, KINDS, &kinds)?;
        Ok(component)
    }
}

/// Where the one placeholder with this marker begins.
fn place(component: &[u8], marker: &[u8]) -> Result<usize> {
    let mut places = component.windows(marker.len()).enumerate().filter(|(_, window)| *window == marker);
    let found = (places.next(), places.next());
    let (Some((at, _)), None) = found else {
        anyhow::bail!("the component does not hold the text {:?} once", String::from_utf8_lossy(marker))
    };
    Ok(at)
}

/// Writes a text in the place of a marker and of as many of the blanks behind it as it takes.
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

    #[test]
    fn a_text_takes_the_place_of_a_marker_and_its_blanks_and_no_more() {
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
    fn the_component_that_is_built_has_room_for_what_is_written_into_it() {
        let components = Components::read().unwrap();
        assert_ne!(components.of(0, true).unwrap(), components.of(9_999, true).unwrap());
    }

    #[test]
    fn one_plugin_reads_one_kind_of_samples_and_ten_read_the_other() {
        let readers = |read| (0..100).filter(|plugin| reads(*plugin, true).contains(&read)).count();
        assert_eq!(Read::ALL.map(readers), Read::ALL.map(|read| read.readers(100)));
        assert_eq!(reads(0, false), [Read::Node]);
    }

    #[test]
    fn a_manifest_is_one_that_the_host_takes() {
        let manifest = mortise_core::manifest::Manifest::parse(&manifest(7, true)).unwrap();
        assert_eq!(manifest.controllers[0].primary, kind(7));
        assert_eq!(manifest.controllers[0].reads.len(), 2);
    }
}
