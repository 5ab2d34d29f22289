//! The objects of the measurements, from the files in `sample/`: Pods as an API server shows them, their PodSet, and a
//! template of larger Pods. A test checks their sizes, which tables mention.

use serde_json::{Value, json};

/// The UID of the PodSet that owns sample Pods.
pub(crate) const OWNER_UID: &str = "5f0c8a4e-3b1d-4c55-9f1e-6d2b7a90c3d1";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    /// Its index among the owner's Pods.
    pub(crate) index: usize,
    /// The owner's number; owner 0 has [`OWNER_UID`].
    pub(crate) owner: usize,
    pub(crate) version: u64,
}

impl Pod {
    pub(crate) fn new(owner: usize, index: usize) -> Self {
        Self { index, owner, version: 1 + (owner * 10 + index) as u64 }
    }

    /// 2.3 KB, without managedFields.
    pub(crate) fn json(self) -> String {
        self.value().to_string()
    }

    /// 3.7 KB, as a watch delivers it.
    pub(crate) fn json_with_managed_fields(self) -> String {
        let mut pod = self.value();
        pod["metadata"]["managedFields"] = parse(include_str!("sample/managed-fields.json"));
        pod.to_string()
    }

    fn value(self) -> Value {
        let Self { index, owner, version } = self;
        let mut pod = parse(include_str!("sample/pod.json"));
        let metadata = &mut pod["metadata"];
        metadata["name"] = format!("sample-{owner}-{index}").into();
        metadata["uid"] = format!("8d1f0c66-90aa-4f0e-8d3c-{owner:06x}{index:06x}").into();
        metadata["resourceVersion"] = version.to_string().into();
        metadata["annotations"]["mortise.dev/child"] = index.to_string().into();
        metadata["ownerReferences"][0]["name"] = format!("sample-{owner}").into();
        metadata["ownerReferences"][0]["uid"] = owner_uid(owner).into();
        pod
    }
}

pub(crate) fn owner_uid(owner: usize) -> String {
    if owner == 0 { OWNER_UID.to_owned() } else { format!("5f0c8a4e-3b1d-4c55-9f1e-{owner:012x}") }
}

/// The converged PodSet that owns the Pods of owner 0, with or without a template.
pub(crate) fn pod_set(replicas: usize, template: Option<Value>) -> String {
    let names = (0..replicas).map(|index| format!("sample-0-{index}")).collect::<Vec<_>>();
    let mut set = json!({
        "apiVersion": "app.example.com/v1alpha1", "kind": "PodSet",
        "metadata": {
            "name": "sample-0", "namespace": "default", "uid": OWNER_UID, "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "podNames": names},
    });
    if let Some(template) = template {
        set["spec"]["template"] = template;
    }
    set.to_string()
}

/// A pod template whose running Pods have about 5.4 KB, as those of real workloads.
pub(crate) fn template() -> Value {
    parse(include_str!("sample/template.json"))
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the files in sample/ are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_pods_have_the_sizes_in_the_tables() {
        let pod = Pod::new(0, 3);
        assert!((2_250..2_400).contains(&pod.json().len()), "{}", pod.json().len());
        let managed = pod.json_with_managed_fields().len();
        assert!((3_600..3_850).contains(&managed), "{managed}");
    }
}
