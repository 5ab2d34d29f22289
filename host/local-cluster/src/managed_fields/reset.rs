//! What a write to a resource or a subresource does not keep, and nobody owns by it: the API server's strategies call them
//! reset fields. Input: a resource and a subresource. Output: a set of fields. It must not know objects.

use super::fields::Fields;
use crate::resource::Resource;

/// The built-in resources whose `/status` keeps the whole metadata from writes.
const METADATA_STAYS: &[&str] = &[
    "apiservices",
    "flowschemas",
    "prioritylevelconfigurations",
    "servicecidrs",
    "storageversions",
    "storageversionmigrations",
    "resourceclaims",
    "validatingadmissionpolicies",
    "volumeattachments",
];

/// The fields that a write there does not keep.
pub(crate) fn fields(resource: &Resource, subresource: &str) -> Fields {
    let (group, plural) = (&*resource.group, &*resource.plural);
    match subresource {
        "" | "finalize" if plural == "certificatesigningrequests" => Fields::of(&[&["spec"], &["status"]]),
        "" | "finalize" if resource.has_status() => Fields::of(&[&["status"]]),
        "approval" => Fields::of(&[&["spec"], &["status", "certificate"]]),
        "status" if resource.custom.is_some() || METADATA_STAYS.contains(&plural) => {
            Fields::of(&[&["metadata"], &["spec"]])
        }
        "status" => match (group, plural) {
            ("", "pods") => {
                Fields::of(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("apps", "deployments") => Fields::of(&[&["spec"], &["metadata", "labels"]]),
            ("certificates.k8s.io", "certificatesigningrequests") => {
                Fields::of(&[&["spec"], &["status", "conditions"]])
            }
            _ => Fields::of(&[&["spec"]]),
        },
        _ => Fields::default(),
    }
}
