//! What must hold for what runs Pods: Deployments and their like, Jobs, CronJobs. Input: such an object. Output: causes. It
//! must not know their controllers.

use serde_json::{Value, json};

use super::super::field::{Causes, Path, is_empty, is_nothing, text};
use super::super::format;
use super::super::metadata;
use super::super::rule::{Check, Rule, check, labels, not_over_all, selects};
use super::pod_spec::pod_spec;
use crate::schedule;

const MATCH: &str = "`selector` does not match template `labels`";

pub(super) const POD_TEMPLATE: &[Rule] =
    &[("template", Check::Code(|value, path, causes| template(value, path, &[], causes)))];
pub(super) const DEPLOYMENT: &[Rule] = &[
    ("spec.replicas", Check::AtLeast(0)),
    ("spec", Check::Code(|spec, path, causes| required_selector(spec, path, "deployment", causes))),
    ("spec", Check::Code(|spec, path, causes| always(spec, path, "ReplicaSet", causes))),
    ("spec.strategy", Check::Code(deployment_strategy)),
    ("spec.minReadySeconds", Check::AtLeast(0)),
    ("spec.revisionHistoryLimit", Check::AtLeast(0)),
    ("spec.progressDeadlineSeconds", Check::AtLeast(0)),
    ("spec", Check::Code(progress_deadline)),
];
pub(super) const REPLICA_SET: &[Rule] = &[
    ("spec.replicas", Check::AtLeast(0)),
    ("spec.minReadySeconds", Check::AtLeast(0)),
    ("spec", Check::Code(|spec, path, causes| required_selector(spec, path, "deployment", causes))),
    ("spec", Check::Code(|spec, path, causes| always(spec, path, "ReplicaSet", causes))),
];
pub(super) const REPLICATION_CONTROLLER: &[Rule] = &[
    ("spec.minReadySeconds", Check::AtLeast(0)),
    ("spec.selector", Check::Required("")),
    ("spec.replicas", Check::AtLeast(0)),
    ("spec.template", Check::Required("")),
    ("spec", Check::Code(|spec, path, causes| always(spec, path, "ReplicationController", causes))),
];
pub(super) const DAEMON_SET: &[Rule] = &[
    ("spec.selector", Check::Selector),
    ("spec", Check::Code(|spec, path, causes| nonempty_selector(spec, path, "daemonset", causes))),
    ("spec", Check::Code(|spec, path, causes| always(spec, path, "DaemonSet", causes))),
    ("spec.minReadySeconds", Check::AtLeast(0)),
    ("spec.updateStrategy", Check::Code(daemon_set_strategy)),
    ("spec.revisionHistoryLimit", Check::AtLeast(0)),
];
pub(super) const STATEFUL_SET: &[Rule] = &[
    ("spec.podManagementPolicy", Check::Code(management)),
    ("spec.updateStrategy", Check::Code(stateful_set_strategy)),
    ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Check::OneOf(&["Retain", "Delete"])),
    ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Check::OneOf(&["Retain", "Delete"])),
    ("spec.volumeClaimTemplates", Check::Each(super::core::CLAIM)),
    ("spec.replicas", Check::AtLeast(0)),
    ("spec.minReadySeconds", Check::AtLeast(0)),
    ("spec.ordinals.start", Check::AtLeast(0)),
    ("spec.serviceName", Check::Text(format::label)),
    ("spec", Check::Code(|spec, path, causes| required_selector(spec, path, "statefulset", causes))),
    ("spec", Check::Code(|spec, path, causes| always(spec, path, "StatefulSet", causes))),
];
pub(super) const JOB: &[Rule] = &[
    ("", Check::Code(generated_selector)),
    ("spec", Check::Code(job_spec)),
    ("spec.selector", Check::Required("")),
    ("spec.selector", Check::Selector),
    ("spec", Check::Code(matching)),
];
pub(super) const CRON_JOB: &[Rule] = &[
    ("spec.schedule", Check::Required("")),
    ("spec.schedule", Check::Text(schedule::wrong)),
    ("spec.startingDeadlineSeconds", Check::AtLeast(0)),
    ("spec.timeZone", Check::Code(time_zone)),
    ("spec.concurrencyPolicy", Check::OneOf(&["Allow", "Forbid", "Replace"])),
    ("spec.jobTemplate.spec", Check::Code(job_spec)),
    ("spec.jobTemplate.spec", Check::Code(no_selector)),
    ("spec.successfulJobsHistoryLimit", Check::AtLeast(0)),
    ("spec.failedJobsHistoryLimit", Check::AtLeast(0)),
];
const JOB_NUMBERS: &[Rule] = &[
    ("parallelism", Check::AtLeast(0)),
    ("completions", Check::AtLeast(0)),
    ("activeDeadlineSeconds", Check::AtLeast(0)),
    ("backoffLimit", Check::AtLeast(0)),
    ("ttlSecondsAfterFinished", Check::AtLeast(0)),
    ("backoffLimitPerIndex", Check::AtLeast(0)),
    ("maxFailedIndexes", Check::AtLeast(0)),
    ("completionMode", Check::OneOf(&["NonIndexed", "Indexed"])),
];
const ROLLING: &[Rule] = &[("maxUnavailable", Check::IntOrPercent), ("maxSurge", Check::IntOrPercent)];

/// Finds what is wrong with a template. `more` are volumes that its Pods get besides.
fn template(value: &Value, path: &Path<'_>, more: &[&str], causes: &mut Causes) {
    labels(&value["metadata"]["labels"], &Path::Field(path, "labels"), causes);
    metadata::annotations(&value["metadata"]["annotations"], &Path::Field(path, "annotations"), causes);
    pod_spec(&value["spec"], &Path::Field(path, "spec"), more, causes);
    if !is_empty(&value["spec"]["ephemeralContainers"]) {
        causes.forbidden(
            &Path::Field(path, "spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn required_selector(spec: &Value, path: &Path<'_>, what: &str, causes: &mut Causes) {
    if spec["selector"].is_null() {
        causes.required(&Path::Field(path, "selector"), "");
    } else {
        check(spec, path, &[("selector", Check::Selector)], causes);
        nonempty_selector(spec, path, what, causes);
    }
}

fn nonempty_selector(spec: &Value, path: &Path<'_>, what: &str, causes: &mut Causes) {
    let selector = &spec["selector"];
    if selector.is_object() && is_empty(&selector["matchLabels"]) && is_empty(&selector["matchExpressions"]) {
        let words = format!("empty selector is invalid for {what}");
        causes.invalid(&Path::Field(path, "selector"), selector, &words);
    }
}

/// The selector selects the template's Pods.
fn matching(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (selector, labels) = (&spec["selector"], &spec["template"]["metadata"]["labels"]);
    // A ReplicationController's selector is a map of labels.
    let plain =
        selector.is_object() && selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let found = if plain { selects(&json!({"matchLabels": selector}), labels) } else { selects(selector, labels) };
    if selector.is_object() && !found {
        causes.invalid(&Path::Field(path, "template.metadata.labels"), labels, MATCH);
    }
}

/// The template is right, selected, and of Pods that run for ever.
fn always(spec: &Value, path: &Path<'_>, owner: &str, causes: &mut Causes) {
    matching(spec, path, causes);
    let claims: Vec<&str> = match owner {
        "StatefulSet" => {
            let claims = super::items(&spec["volumeClaimTemplates"]).iter();
            claims.map(|claim| text(&claim["metadata"]["name"])).collect()
        }
        _ => Vec::new(),
    };
    let place = Path::Field(path, "template");
    if !spec["template"].is_object() {
        return;
    }
    template(&spec["template"], &place, &claims, causes);
    let pod = &spec["template"]["spec"];
    if !is_empty(&pod["restartPolicy"]) && pod["restartPolicy"] != "Always" {
        causes.not_supported(&Path::Field(&place, "spec.restartPolicy"), &pod["restartPolicy"], &["Always"]);
    }
    if !pod["activeDeadlineSeconds"].is_null() {
        let words = format!("activeDeadlineSeconds in {owner} is not Supported");
        causes.forbidden(&Path::Field(&place, "spec.activeDeadlineSeconds"), &words);
    }
}

fn deployment_strategy(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (rolling, place) = (&value["rollingUpdate"], Path::Field(path, "rollingUpdate"));
    match text(&value["type"]) {
        "Recreate" if !rolling.is_null() => {
            causes.forbidden(&place, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            check(rolling, &place, ROLLING, causes);
            let unavailable = Path::Field(&place, "maxUnavailable");
            if is_nothing(&rolling["maxUnavailable"]) && is_nothing(&rolling["maxSurge"]) {
                causes.invalid(&unavailable, &rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0");
            }
            not_over_all(&rolling["maxUnavailable"], &unavailable, causes);
        }
        _ => causes.not_supported(path, value, &["Recreate", "RollingUpdate"]),
    }
}

fn progress_deadline(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if spec["progressDeadlineSeconds"].as_i64().is_some_and(|deadline| deadline <= ready) {
        let place = Path::Field(path, "progressDeadlineSeconds");
        causes.invalid(&place, &spec["progressDeadlineSeconds"], "must be greater than minReadySeconds");
    }
}

fn daemon_set_strategy(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (rolling, place) = (&value["rollingUpdate"], Path::Field(path, "rollingUpdate"));
    match text(&value["type"]) {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => causes.required(&place, ""),
        "RollingUpdate" => {
            check(rolling, &place, ROLLING, causes);
            let (unavailable, surge) = (Path::Field(&place, "maxUnavailable"), Path::Field(&place, "maxSurge"));
            not_over_all(&rolling["maxUnavailable"], &unavailable, causes);
            not_over_all(&rolling["maxSurge"], &surge, causes);
            match (is_nothing(&rolling["maxUnavailable"]), is_nothing(&rolling["maxSurge"])) {
                (false, false) => {
                    causes.invalid(&surge, &rolling["maxSurge"], "may not be set when maxUnavailable is non-zero");
                }
                (true, true) => causes.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => causes.not_supported(path, value, &["RollingUpdate", "OnDelete"]),
    }
}

fn management(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if !matches!(text(value), "OrderedReady" | "Parallel") {
        causes.invalid(path, value, "must be 'OrderedReady' or 'Parallel'");
    }
}

fn stateful_set_strategy(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (rolling, place) = (&value["rollingUpdate"], Path::Field(path, "rollingUpdate"));
    match text(&value["type"]) {
        "OnDelete" if !rolling.is_null() => {
            causes.invalid(&place, rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            check(
                rolling,
                &place,
                &[("partition", Check::AtLeast(0)), ("maxUnavailable", Check::IntOrPercent)],
                causes,
            );
            let unavailable = Path::Field(&place, "maxUnavailable");
            if !rolling["maxUnavailable"].is_null() && is_nothing(&rolling["maxUnavailable"]) {
                causes.invalid(&unavailable, &rolling["maxUnavailable"], "cannot be 0");
            }
            not_over_all(&rolling["maxUnavailable"], &unavailable, causes);
        }
        _ => causes.invalid(path, value, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Refuses what the update of a StatefulSet may not change.
pub(super) fn stateful_set_update(new: &Value, old: &Value, causes: &mut Causes) {
    const FREE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |value: &Value| -> Vec<(String, Value)> {
        let fields = value["spec"].as_object().into_iter().flatten();
        let fields = fields.filter(|(name, value)| !FREE.contains(&name.as_str()) && !is_empty(value));
        fields.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    if fixed(new) != fixed(old) {
        let words = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                     'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        causes.forbidden(&Path::Field(&Path::Root, "spec"), words);
    }
}

/// What a Job and a CronJob's template have in common.
fn job_spec(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    check(spec, path, JOB_NUMBERS, causes);
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        causes.required(&Path::Field(path, "backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec["completionMode"] == "Indexed" {
        if spec["completions"].is_null() {
            causes.required(&Path::Field(path, "completions"), "when completion mode is Indexed");
        }
        if spec["parallelism"].as_i64().is_some_and(|number| number > 100_000) {
            let words = "must be less than or equal to 100000 when completion mode is Indexed";
            causes.invalid(&Path::Field(path, "parallelism"), &spec["parallelism"], words);
        }
    } else {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if !spec[name].is_null() {
                causes.invalid(&Path::Field(path, name), &spec[name], "requires indexed completion mode");
            }
        }
    }
    let replacement = &spec["podReplacementPolicy"];
    if !is_empty(replacement) {
        let known: &[&str] =
            if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
        if !known.contains(&text(replacement)) {
            causes.not_supported(&Path::Field(path, "podReplacementPolicy"), replacement, known);
        }
    }
    template(&spec["template"], &Path::Field(path, "template"), &[], causes);
    let (policy, place) =
        (&spec["template"]["spec"]["restartPolicy"], Path::Field(path, "template.spec.restartPolicy"));
    match text(policy) {
        "Always" | "" => causes.required(&place, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            causes.invalid(&place, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => causes.not_supported(&place, policy, &["OnFailure", "Never"]),
    }
}

fn no_selector(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if !spec["selector"].is_null() {
        causes.invalid(&Path::Field(path, "selector"), &spec["selector"], "`selector` will be auto-generated");
    }
    if spec["manualSelector"] == true {
        causes.not_supported(&Path::Field(path, "manualSelector"), &spec["manualSelector"], &["nil", "false"]);
    }
}

/// The labels and the selector that the API server gives a Job are not chosen by clients.
fn generated_selector(value: &Value, _: &Path<'_>, causes: &mut Causes) {
    let (metadata, spec) = (&value["metadata"], &value["spec"]);
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let expected = [
        ("controller-uid", &metadata["uid"]),
        ("job-name", &metadata["name"]),
        ("batch.kubernetes.io/controller-uid", &metadata["uid"]),
        ("batch.kubernetes.io/job-name", &metadata["name"]),
    ];
    let labels = &spec["template"]["metadata"]["labels"];
    let place = Path::Field(&Path::Root, "spec.template.metadata.labels");
    for (key, wanted) in &expected {
        let words = format!("must be '{}'", text(wanted));
        match labels.get(*key) {
            None => causes.required(&Path::Key(&place, key), &words),
            Some(found) if found != *wanted => causes.invalid(&Path::Key(&place, key), labels, &words),
            Some(_) => {}
        }
    }
    let expected: serde_json::Map<String, Value> =
        expected.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    if !selects(&spec["selector"], &expected.into()) {
        causes.invalid(&Path::Field(&Path::Root, "spec.selector"), &spec["selector"], "`selector` not auto-generated");
    }
}

/// Refuses what the update of a Job may not change besides what is fixed for ever.
pub(super) fn job_update(new: &Value, old: &Value, causes: &mut Causes) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let place = Path::Field(&Path::Root, "spec.completions");
    if spec["completions"] != before["completions"] {
        if spec["completionMode"] != "Indexed" {
            causes.invalid(&place, &spec["completions"], "field is immutable");
        } else if !spec["completions"].is_null() && spec["completions"] != spec["parallelism"] {
            causes.invalid(&place, &spec["completions"], "can only be modified in tandem with spec.parallelism");
        }
    }
    // A Job that waits and never ran may be moved and sized.
    let free = before["suspend"] == true && is_empty(&old["status"]["startTime"]);
    let content = |spec: &Value| {
        let mut template = spec["template"].clone();
        for name in ["nodeSelector", "tolerations", "schedulingGates", "affinity"].into_iter().filter(|_| free) {
            super::super::fill::set(&mut template, &format!("spec.{name}"), None);
        }
        for name in ["containers", "initContainers"].into_iter().filter(|_| free) {
            let list = template.pointer_mut(&format!("/spec/{name}")).and_then(Value::as_array_mut);
            list.into_iter().flatten().for_each(|container| super::super::fill::set(container, "resources", None));
        }
        if free {
            super::super::fill::set(&mut template, "metadata", None);
        }
        template
    };
    if spec["template"] != before["template"] && content(spec) != content(before) {
        causes.invalid(&Path::Field(&Path::Root, "spec.template"), &spec["template"], "field is immutable");
    }
}

fn time_zone(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let Some(name) = value.as_str() else { return };
    if name.is_empty() {
        return causes.invalid(path, value, "timeZone must be nil or non-empty string");
    }
    if name.eq_ignore_ascii_case("local") {
        let words = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.invalid(path, value, words);
    }
    let fine = |part: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
        !part.is_empty() && part != "." && part != ".." && !part.starts_with('-') && part.bytes().all(known)
    };
    if !name.split('/').all(fine) || jiff::tz::TimeZone::get(name).is_err() {
        causes.invalid(path, value, &format!("unknown time zone {name}"));
    }
}
