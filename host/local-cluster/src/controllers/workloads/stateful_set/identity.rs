//! What the Pods and claims of a StatefulSet are called, and how they are made. It must not know when.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::field::{int, list, set, text};
use super::super::ownership::{CLAIMS, PODS, STATEFUL_SETS, controller, refusal};
use super::super::{history, pod};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::Object;

pub(super) const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// The name of the StatefulSet in a Pod's name, and the Pod's ordinal.
pub(super) fn parse(name: &str) -> Option<(&str, i64)> {
    let (parent, ordinal) = name.rsplit_once('-')?;
    let digits = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    Some((parent, ordinal.parse::<i32>().ok().filter(|_| digits)?.into()))
}

pub(super) fn ordinal(pod: &Object) -> i64 {
    parse(pod.name()).map_or(-1, |(_, ordinal)| ordinal)
}

/// The ordinals that a StatefulSet wants.
pub(super) fn range(of: &Object) -> std::ops::Range<i64> {
    let start = int(&of.value["spec"]["ordinals"]["start"]);
    start..start.saturating_add(int(&of.value["spec"]["replicas"]).max(0))
}

fn claim_name(template: &Value, of: &Object, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", text(&template["metadata"]["name"]), of.name())
}

fn claim_templates(of: &Object) -> &[Value] {
    list(&of.value["spec"]["volumeClaimTemplates"])
}

/// The Pod of an ordinal, of a revision.
pub(super) fn pod(of: &Object, ordinal: i64, revision: &Object) -> Value {
    let mut pod = pod::from_template(&history::template(revision), of, STATEFUL_SETS.reference(of));
    let name = format!("{}-{ordinal}", of.name());
    pod["metadata"]["name"] = name.as_str().into();
    identify(&mut pod, &name, ordinal);
    set(&mut pod, "labels", REVISION, revision.name());
    if pod["spec"].is_object() {
        pod["spec"]["hostname"] = name.into();
        if !text(&of.value["spec"]["serviceName"]).is_empty() {
            pod["spec"]["subdomain"] = of.value["spec"]["serviceName"].clone();
        }
        let claims = claim_templates(of).iter().map(|template| {
            let claim = claim_name(template, of, ordinal);
            json!({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
        });
        let mut volumes: Vec<Value> = claims.collect();
        let others = list(&pod["spec"]["volumes"]).iter();
        let others =
            others.filter(|other| claim_templates(of).iter().all(|of| of["metadata"]["name"] != other["name"]));
        volumes.extend(others.cloned().collect::<Vec<_>>());
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = volumes.into();
        }
    }
    pod
}

fn identify(pod: &mut Value, name: &str, ordinal: i64) -> bool {
    let changed = set(pod, "labels", POD_NAME, name);
    set(pod, "labels", "apps.kubernetes.io/pod-index", &ordinal.to_string()) || changed
}

/// Gives a Pod that was adopted, or whose labels somebody took, its labels again.
pub(super) fn restore(
    cluster: &mut Cluster,
    context: &Context<'_>,
    of: &Object,
    pod: &Arc<Object>,
) -> Result<(), Halt> {
    if pod.label(POD_NAME) == Some(pod.name()) {
        return Ok(());
    }
    write::change(cluster, context, pod, |value| {
        identify(value, pod.name(), ordinal(pod));
    })?;
    let message = format!("Update Pod {} in StatefulSet {} successful", pod.name(), of.name());
    write::event(cluster, context, of, "Normal", "SuccessfulUpdate", &message)
}

/// Creates the claims of an ordinal that are missing. Says what is in the way, if anything is.
pub(super) fn create_claims(
    cluster: &mut Cluster,
    context: &Context<'_>,
    of: &Object,
    ordinal: i64,
) -> Result<Option<String>, Halt> {
    let mut problem = None;
    for template in claim_templates(of) {
        let name = claim_name(template, of, ordinal);
        match CLAIMS.get(cluster, &(of.namespace().into(), name.as_str().into())) {
            Some(known) if known.terminates() => problem = Some(format!("pvc {name} is being deleted")),
            Some(_) => {}
            None => {
                let claim = claim(template, of, &name);
                let pod = format!("{}-{ordinal}", of.name());
                let (set, kind) = (of.name(), CLAIMS.name());
                match refusal(write::create(cluster, context, kind, of.namespace(), claim))? {
                    Ok(_) => {
                        let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                        write::event(cluster, context, of, "Normal", "SuccessfulCreate", &message)?;
                    }
                    Err(status) => {
                        let why = &status.message;
                        let message =
                            format!("Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {why}");
                        write::event(cluster, context, of, "Warning", "FailedCreate", &message)?;
                        problem = Some(format!("failed to create PVC {name}: {why}"));
                    }
                }
            }
        }
    }
    Ok(problem)
}

fn claim(template: &Value, of: &Object, name: &str) -> Value {
    let mut claim = template.clone();
    if let Some(fields) = claim.as_object_mut() {
        fields.remove("status");
    }
    claim["metadata"]["name"] = name.into();
    for (key, value) in of.value["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
        set(&mut claim, "labels", key, text(value));
    }
    claim
}

/// Lets the claims of a Pod belong to what their end follows, as the retention policy says: to the StatefulSet, to the Pod
/// that vanishes in a scale-down, or to nobody.
pub(super) fn retain_claims(
    cluster: &mut Cluster,
    context: &Context<'_>,
    of: &Object,
    pod: &Object,
) -> Result<(), Halt> {
    let policy = &of.value["spec"]["persistentVolumeClaimRetentionPolicy"];
    let down = !range(of).contains(&ordinal(pod));
    let reference = match (policy["whenScaled"] == "Delete", policy["whenDeleted"] == "Delete", down) {
        (true, _, true) => Some(PODS.reference(pod)),
        (true, true, false) | (false, true, _) => Some(STATEFUL_SETS.reference(of)),
        _ => None,
    };
    for template in claim_templates(of) {
        let name = claim_name(template, of, ordinal(pod));
        let Some(claim) = CLAIMS.get(cluster, &(of.namespace().into(), name.into())) else { continue };
        let names = |known: &Value, owner: &Object, kind: &str| known["kind"] == kind && known["name"] == owner.name();
        let ours = |known: &Value| names(known, of, "StatefulSet") || names(known, pod, "Pod");
        // A claim of an earlier StatefulSet or Pod of this name, or of another controller, is left alone.
        let earlier = |known: &Value| ours(known) && known["uid"] != of.uid() && known["uid"] != pod.uid();
        let references = list(&claim.value["metadata"]["ownerReferences"]);
        if references.iter().any(earlier) || controller(&claim.value).is_some_and(|known| !ours(known)) {
            continue;
        }
        let mut wanted: Vec<Value> = references.iter().filter(|known| !ours(known)).cloned().collect();
        wanted.extend(reference.clone());
        if wanted != references {
            write::change(cluster, context, &claim, |value| value["metadata"]["ownerReferences"] = wanted.into())?;
        }
    }
    Ok(())
}
