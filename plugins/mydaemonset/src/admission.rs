//! Admission of a MyDaemonSet: its image is required, and its pull policy defaults to Kubernetes' rule. This file must
//! not know Pods.

use mortise_sdk::prelude::*;

use crate::{ImagePullPolicy, MyDaemonSet};

/// Sets Kubernetes' default, so that `kubectl get -o yaml` shows it.
pub(crate) fn complete(set: &mut MyDaemonSet, _review: &Review<MyDaemonSet>) {
    if !set.spec.image.trim().is_empty() {
        set.spec.image_pull_policy.get_or_insert_with(|| pull_policy(&set.spec.image));
    }
}

pub(crate) fn check(set: &MyDaemonSet, _review: &Review<MyDaemonSet>) -> Verdict {
    if set.spec.image.trim().is_empty() {
        return Violation::required("spec.image", "image is required").into();
    }
    Verdict::allowed()
}

/// Always for the tag `latest`, which is the default without tag and digest; otherwise IfNotPresent.
fn pull_policy(image: &str) -> ImagePullPolicy {
    let (named, digest) = image.split_once('@').map_or((image, None), |(named, digest)| (named, Some(digest)));
    // A colon before the last slash precedes a registry's port.
    let last = named.rsplit_once('/').map_or(named, |(_, last)| last);
    match (last.split_once(':').map(|(_, tag)| tag), digest) {
        (Some("latest"), _) | (None, None) => ImagePullPolicy::Always,
        _ => ImagePullPolicy::IfNotPresent,
    }
}
