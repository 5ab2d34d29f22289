//! Workloads on a whole cluster: with the scheduler, the kubelet and the garbage collector. It must not know the controllers'
//! parts.

use serde_json::{Value, json};

use crate::Cluster;
use crate::Method::{Delete, Put};
use std::ops::{Deref, DerefMut};

use crate::controllers::testing;
use crate::controllers::testing::{after, post, read, reasons};
use crate::testing::ask;
use crate::{Reply, Step};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A cluster and how many seconds passed: time continues over the whole test.
struct World {
    cluster: Cluster,
    seconds: i64,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

fn cluster(controllers: &[&str]) -> World {
    World { cluster: testing::cluster(controllers), seconds: 0 }
}

/// Lets the controllers work up to a time, each step at the time that it is due. Says how many steps they took.
#[track_caller]
fn pass(world: &mut World, seconds: i64) -> usize {
    let mut now = after(world.seconds);
    world.seconds = seconds;
    for steps in 0..20_000 {
        match world.step(&[], now) {
            Reply::Done(Step::Worked) => {}
            Reply::Done(Step::Idle(Some(next))) if next <= after(seconds) => now = next.max(now),
            Reply::Done(Step::Idle(_)) => return steps,
            Reply::Call(call) => panic!("a webhook is asked: {call:?}"),
        }
    }
    panic!("the controllers do not come to rest");
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "web:1"}]}})
}

/// A workload of `web` Pods with more in its spec.
fn workload(more: &Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template()},
    });
    for (key, of) in more.as_object().unwrap() {
        value["spec"][key] = of.clone();
    }
    value
}

fn all(cluster: &mut Cluster, path: &str) -> Vec<Value> {
    read(cluster, path)["items"].as_array().cloned().unwrap()
}

fn names(cluster: &mut Cluster, path: &str) -> Vec<String> {
    all(cluster, path).iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Changes an object by what a function does with it.
#[track_caller]
fn edit(cluster: &mut Cluster, path: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut value = read(cluster, path);
    change(&mut value);
    let (code, changed) = ask(cluster, Put, path, &value);
    assert_eq!(code, 200, "{changed}");
    changed
}

/// The status and reason of a condition.
fn condition(object: &Value, of: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == of).unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// Looks at every workload again: none is written when nothing changed.
#[track_caller]
fn rests(world: &mut World) {
    let kinds = ["apps/deployments", "apps/replicasets", "apps/statefulsets", "apps/daemonsets", "batch/jobs"];
    for kind in kinds {
        let (group, plural) = kind.split_once('/').unwrap();
        let list = format!("/apis/{group}/v1/namespaces/default/{plural}");
        for name in names(world, &list) {
            let path = format!("{list}/{name}");
            let before = edit(world, &path, |value| value["metadata"]["labels"]["again"] = "x".into());
            let seconds = world.seconds;
            pass(world, seconds);
            let after = read(world, &path);
            assert_eq!(before, after);
        }
    }
}

#[test]
fn a_deployment_rolls_out_back_and_is_cleaned_up() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{APPS}/deployments"), &workload(&json!({"revisionHistoryLimit": 1})));
    pass(&mut cluster, 10);
    let web = format!("{APPS}/deployments/web");
    let read_web = |cluster: &mut Cluster| read(cluster, &web);
    let first = read_web(&mut cluster);
    let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    assert_eq!(counts.map(|field| first["status"][field].as_i64()), [Some(3); 4], "{first}");
    assert_eq!(condition(&first, "Progressing"), pair("True", "NewReplicaSetAvailable"));
    assert_eq!(condition(&first, "Available"), pair("True", "MinimumReplicasAvailable"));
    assert_eq!(first["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");

    for (image, seconds) in [("web:2", 70), ("web:3", 130), ("web:1", 190)] {
        edit(&mut cluster, &web, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = image.into());
        pass(&mut cluster, seconds);
    }
    let last = read_web(&mut cluster);
    assert_eq!(last["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "4");
    assert_eq!(condition(&last, "Progressing"), pair("True", "NewReplicaSetAvailable"));
    let sets = all(&mut cluster, &format!("{APPS}/replicasets"));
    let mut revisions: Vec<(Value, Value)> = sets
        .iter()
        .map(|set| {
            (
                set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone(),
                set["spec"]["replicas"].clone(),
            )
        })
        .collect();
    revisions.sort_by_key(|(revision, _)| revision.to_string());
    // The first one was cleaned up, so that it was made anew.
    assert_eq!(revisions, [(json!("3"), json!(0)), (json!("4"), json!(3))]);
    assert_eq!(all(&mut cluster, PODS).len(), 3);
    rests(&mut cluster);
}

#[test]
fn a_rollback_finds_the_old_replica_set_again() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{APPS}/deployments"), &workload(&json!({"strategy": {"type": "Recreate"}})));
    pass(&mut cluster, 10);
    let web = format!("{APPS}/deployments/web");
    for (image, seconds) in [("web:2", 20), ("web:1", 40)] {
        edit(&mut cluster, &web, |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = image.into());
        pass(&mut cluster, seconds);
    }
    let sets = all(&mut cluster, &format!("{APPS}/replicasets"));
    let annotations =
        |set: &Value, key: &str| set["metadata"]["annotations"][format!("deployment.kubernetes.io/{key}")].clone();
    let new = sets.iter().find(|set| set["spec"]["replicas"] == 3).unwrap();
    assert_eq!(
        (sets.len(), annotations(new, "revision"), annotations(new, "revision-history")),
        (2, json!("3"), json!("1"))
    );
    assert!(reasons(&mut cluster, "web").iter().all(|reason| reason == "ScalingReplicaSet"));
    rests(&mut cluster);
}

#[test]
fn a_rollout_that_does_not_go_on_times_out() {
    let mut cluster = cluster(&["*"]);
    let mut web = workload(&json!({"progressDeadlineSeconds": 60}));
    web["spec"]["template"]["metadata"]["annotations"] = json!({"local-cluster.mortise.dev/ready": "false"});
    post(&mut cluster, &format!("{APPS}/deployments"), &web);
    let path = format!("{APPS}/deployments/web");
    pass(&mut cluster, 50);
    let web = read(&mut cluster, &path);
    assert_eq!(condition(&web, "Progressing"), pair("True", "ReplicaSetUpdated"));
    assert_eq!(condition(&web, "Available"), pair("False", "MinimumReplicasUnavailable"));
    assert_eq!(web["status"]["unavailableReplicas"], 3);
    pass(&mut cluster, 70);
    assert_eq!(condition(&read(&mut cluster, &path), "Progressing"), pair("False", "ProgressDeadlineExceeded"));
    rests(&mut cluster);
}

#[test]
fn a_paused_deployment_is_scaled_in_proportion() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{APPS}/deployments"), &workload(&json!({"replicas": 10})));
    pass(&mut cluster, 10);
    let web = format!("{APPS}/deployments/web");
    edit(&mut cluster, &web, |value| {
        value["spec"]["template"]["metadata"]["annotations"] = json!({"local-cluster.mortise.dev/ready": "false"});
    });
    pass(&mut cluster, 20);
    let sizes = |cluster: &mut Cluster| {
        let mut sizes: Vec<i64> = all(cluster, &format!("{APPS}/replicasets"))
            .iter()
            .map(|set| set["spec"]["replicas"].as_i64().unwrap())
            .collect();
        sizes.sort_unstable();
        sizes
    };
    // 25% surge rounds up, 25% unavailable down.
    assert_eq!(sizes(&mut cluster), [5, 8]);
    edit(&mut cluster, &web, |value| value["spec"]["replicas"] = 20.into());
    pass(&mut cluster, 30);
    // 25 Pods in all, by 8 and 5 of 13.
    assert_eq!(sizes(&mut cluster), [10, 15]);
    edit(&mut cluster, &web, |value| value["spec"]["paused"] = true.into());
    pass(&mut cluster, 40);
    assert_eq!(condition(&read(&mut cluster, &web), "Progressing"), pair("Unknown", "DeploymentPaused"));
    rests(&mut cluster);
}

#[test]
fn a_replica_set_adopts_and_releases_pods_by_their_labels() {
    let mut cluster = cluster(&["*"]);
    let alone = json!({"metadata": {"name": "alone", "labels": {"app": "web"}}, "spec": template()["spec"]});
    post(&mut cluster, PODS, &alone);
    post(&mut cluster, &format!("{APPS}/replicasets"), &workload(&json!({})));
    pass(&mut cluster, 10);
    let owner = |cluster: &mut Cluster, name: &str| {
        read(cluster, &format!("{PODS}/{name}"))["metadata"]["ownerReferences"][0]["name"].clone()
    };
    assert_eq!((all(&mut cluster, PODS).len(), owner(&mut cluster, "alone")), (3, json!("web")));
    edit(&mut cluster, &format!("{PODS}/alone"), |pod| pod["metadata"]["labels"]["app"] = "other".into());
    pass(&mut cluster, 20);
    assert_eq!((all(&mut cluster, PODS).len(), owner(&mut cluster, "alone")), (4, Value::Null));
    let set = edit(&mut cluster, &format!("{APPS}/replicasets/web"), |set| set["spec"]["replicas"] = 1.into());
    pass(&mut cluster, 60);
    assert_eq!(all(&mut cluster, PODS).len(), 2);
    let status = read(&mut cluster, &format!("{APPS}/replicasets/web"))["status"].clone();
    let expected = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": 1, "fullyLabeledReplicas": 1,
        "readyReplicas": 1, "availableReplicas": 1, "terminatingReplicas": 0,
    });
    assert_eq!(status, expected);
    rests(&mut cluster);
}

#[test]
fn pods_are_available_when_they_were_ready_long_enough() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{APPS}/replicasets"), &workload(&json!({"minReadySeconds": 30})));
    let path = format!("{APPS}/replicasets/web");
    pass(&mut cluster, 20);
    let status = read(&mut cluster, &path)["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(3), &Value::Null));
    pass(&mut cluster, 40);
    assert_eq!(read(&mut cluster, &path)["status"]["availableReplicas"], 3);
}

#[test]
fn a_stateful_set_makes_and_replaces_its_pods_in_order() {
    let mut cluster = cluster(&["*"]);
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let more = json!({"serviceName": "web", "volumeClaimTemplates": claims, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}});
    post(&mut cluster, &format!("{APPS}/statefulsets"), &workload(&more));
    pass(&mut cluster, 0);
    assert_eq!(names(&mut cluster, PODS), ["web-0"]);
    let claims = names(&mut cluster, "/api/v1/namespaces/default/persistentvolumeclaims");
    assert_eq!(claims, ["data-web-0"]);
    pass(&mut cluster, 30);
    assert_eq!(names(&mut cluster, PODS), ["web-0", "web-1", "web-2"]);
    let pod = read(&mut cluster, &format!("{PODS}/web-2"));
    let labels = &pod["metadata"]["labels"];
    assert_eq!((&labels["apps.kubernetes.io/pod-index"], &pod["spec"]["hostname"]), (&json!("2"), &json!("web-2")));
    let set = format!("{APPS}/statefulsets/web");
    let first = read(&mut cluster, &set)["status"]["currentRevision"].clone();
    edit(&mut cluster, &set, |set| set["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    pass(&mut cluster, 90);
    let status = read(&mut cluster, &set)["status"].clone();
    assert_eq!(
        (&status["currentRevision"], &status["currentReplicas"], &status["updatedReplicas"]),
        (&first, &json!(1), &json!(2))
    );
    let of = |cluster: &mut Cluster, name: &str| {
        read(cluster, &format!("{PODS}/{name}"))["metadata"]["labels"]["controller-revision-hash"].clone()
    };
    assert_eq!([of(&mut cluster, "web-0"), of(&mut cluster, "web-1")], [first, status["updateRevision"].clone()]);
    edit(&mut cluster, &set, |set| {
        set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 0.into();
        set["spec"]["replicas"] = 2.into();
    });
    pass(&mut cluster, 150);
    let status = read(&mut cluster, &set)["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(names(&mut cluster, PODS), ["web-0", "web-1"]);
    // Claims stay.
    assert_eq!(names(&mut cluster, "/api/v1/namespaces/default/persistentvolumeclaims").len(), 3);
    rests(&mut cluster);
}

#[test]
fn a_daemon_set_has_a_pod_on_each_node_that_fits() {
    let mut cluster = cluster(&["*"]);
    let mut set = workload(&json!({}));
    set["spec"].as_object_mut().unwrap().remove("replicas");
    post(&mut cluster, &format!("{APPS}/daemonsets"), &set);
    post(&mut cluster, "/api/v1/nodes", &json!({"metadata": {"name": "node-1"}}));
    let taints = json!([{"key": "k", "effect": "NoSchedule"}]);
    post(&mut cluster, "/api/v1/nodes", &json!({"metadata": {"name": "node-2"}, "spec": {"taints": taints}}));
    pass(&mut cluster, 20);
    let pods = all(&mut cluster, PODS);
    let mut nodes: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["node-0", "node-1"]);
    let path = format!("{APPS}/daemonsets/web");
    let counts = |cluster: &mut Cluster| {
        let status = read(cluster, &path)["status"].clone();
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberMisscheduled",
        ]
        .map(|field| status[field].as_i64().unwrap_or(0))
    };
    assert_eq!(counts(&mut cluster), [2, 2, 2, 2, 2, 0]);
    edit(&mut cluster, &path, |set| set["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into());
    pass(&mut cluster, 90);
    assert!(all(&mut cluster, PODS).iter().all(|pod| pod["spec"]["containers"][0]["image"] == "web:2"));
    assert_eq!(counts(&mut cluster), [2, 2, 2, 2, 2, 0]);
    edit(&mut cluster, &path, |set| set["spec"]["template"]["spec"]["nodeSelector"] = json!({"none": "x"}));
    pass(&mut cluster, 150);
    assert_eq!((all(&mut cluster, PODS).len(), counts(&mut cluster)), (0, [0; 6]));
    rests(&mut cluster);
}

/// A Job whose Pods end with this code after so many seconds.
fn job(code: i64, more: &Value) -> Value {
    let annotations =
        json!({"local-cluster.mortise.dev/exit-code": code.to_string(), "local-cluster.mortise.dev/exit-after": "5s"});
    let mut value = json!({
        "metadata": {"name": "work"},
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 6,
            "template": {"metadata": {"annotations": annotations}, "spec": template()["spec"]},
        },
    });
    value["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    for (key, of) in more.as_object().unwrap() {
        value["spec"][key] = of.clone();
    }
    value
}

#[test]
fn a_job_completes_when_enough_pods_succeeded() {
    let mut cluster = cluster(&["*"]);
    post(
        &mut cluster,
        &format!("{BATCH}/jobs"),
        &job(0, &json!({"completions": 5, "parallelism": 2, "completionMode": "Indexed"})),
    );
    pass(&mut cluster, 3);
    let work = format!("{BATCH}/jobs/work");
    let status = read(&mut cluster, &work)["status"].clone();
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&json!(2), &json!(2), &json!(0)),
        "{status}"
    );
    let finalizers = all(&mut cluster, PODS)[0]["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["batch.kubernetes.io/job-tracking"]));
    pass(&mut cluster, 100);
    let done = read(&mut cluster, &work);
    assert_eq!((&done["status"]["succeeded"], &done["status"]["completedIndexes"]), (&json!(5), &json!("0-4")));
    assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
    for of in ["SuccessCriteriaMet", "Complete"] {
        assert_eq!(condition(&done, of), pair("True", "CompletionsReached"));
    }
    assert!(all(&mut cluster, PODS).iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
    let reasons = reasons(&mut cluster, "work");
    assert_eq!(reasons.iter().filter(|reason| *reason == "SuccessfulCreate").count(), 5);
    assert!(reasons.contains(&"Completed".to_owned()));
    rests(&mut cluster);
}

#[test]
fn a_job_fails_after_its_retries_each_later_than_the_last() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{BATCH}/jobs"), &job(1, &json!({"backoffLimit": 2})));
    let work = format!("{BATCH}/jobs/work");
    pass(&mut cluster, 14);
    assert_eq!(all(&mut cluster, PODS).len(), 1);
    pass(&mut cluster, 30);
    assert_eq!(all(&mut cluster, PODS).len(), 2);
    pass(&mut cluster, 100);
    let failed = read(&mut cluster, &work);
    assert_eq!((all(&mut cluster, PODS).len(), &failed["status"]["failed"]), (3, &json!(3)));
    for of in ["FailureTarget", "Failed"] {
        assert_eq!(condition(&failed, of), pair("True", "BackoffLimitExceeded"));
    }
}

#[test]
fn a_job_is_suspended_resumed_and_past_its_deadline() {
    let mut cluster = cluster(&["*"]);
    let mut long = job(0, &json!({"activeDeadlineSeconds": 20, "suspend": true}));
    long["spec"]["template"]["metadata"]["annotations"]["local-cluster.mortise.dev/exit-after"] = "1h".into();
    post(&mut cluster, &format!("{BATCH}/jobs"), &long);
    let work = format!("{BATCH}/jobs/work");
    pass(&mut cluster, 5);
    let held = read(&mut cluster, &work);
    assert_eq!(
        (condition(&held, "Suspended"), &held["status"]["startTime"]),
        (pair("True", "JobSuspended"), &Value::Null)
    );
    assert_eq!(all(&mut cluster, PODS).len(), 0);
    edit(&mut cluster, &work, |job| job["spec"]["suspend"] = false.into());
    pass(&mut cluster, 15);
    let running = read(&mut cluster, &work);
    assert_eq!(
        (condition(&running, "Suspended"), &running["status"]["active"]),
        (pair("False", "JobResumed"), &json!(1))
    );
    pass(&mut cluster, 60);
    assert_eq!(condition(&read(&mut cluster, &work), "Failed"), pair("True", "DeadlineExceeded"));
    assert_eq!(all(&mut cluster, PODS).len(), 0);
}

#[test]
fn the_pods_of_a_job_that_is_gone_are_let_go() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{BATCH}/jobs"), &job(0, &json!({"parallelism": 3, "completions": 3})));
    pass(&mut cluster, 3);
    ask(&mut cluster, Delete, &format!("{BATCH}/jobs/work?propagationPolicy=Background"), &Value::Null);
    pass(&mut cluster, 60);
    assert_eq!((all(&mut cluster, PODS).len(), all(&mut cluster, &format!("{BATCH}/jobs")).len()), (0, 0));
}

fn cron_job(more: &Value) -> Value {
    let mut value = json!({
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "*/10 * * * *", "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1, "jobTemplate": {"spec": job(0, &json!({}))["spec"]},
        },
    });
    for (key, of) in more.as_object().unwrap() {
        value["spec"][key] = of.clone();
    }
    value
}

#[test]
fn a_cron_job_starts_a_job_at_each_time_and_keeps_the_last_few() {
    let mut cluster = cluster(&["*"]);
    post(&mut cluster, &format!("{BATCH}/cronjobs"), &cron_job(&json!({"timeZone": "Europe/Berlin"})));
    pass(&mut cluster, 3600 + 60);
    // 2026-01-01T00:40Z is minute 29453800 since 1970.
    assert_eq!(names(&mut cluster, &format!("{BATCH}/jobs")), ["tick-29453800", "tick-29453810", "tick-29453820"]);
    let status = read(&mut cluster, &format!("{BATCH}/cronjobs/tick"))["status"].clone();
    assert_eq!((&status["lastScheduleTime"], &status["active"]), (&json!("2026-01-01T01:00:00Z"), &Value::Null));
    assert!(status["lastSuccessfulTime"].is_string());
    let job = read(&mut cluster, &format!("{BATCH}/jobs/tick-29453820"));
    let at = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(at, "2026-01-01T02:00:00+01:00");
    let cause = reasons(&mut cluster, "tick");
    assert!(
        ["SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"]
            .iter()
            .all(|one| cause.contains(&(*one).to_owned()))
    );
}

#[test]
fn jobs_that_overlap_are_forbidden_or_replaced() {
    for (policy, expected) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
        let mut cluster = cluster(&["*"]);
        let mut cron = cron_job(&json!({"concurrencyPolicy": policy}));
        let template = &mut cron["spec"]["jobTemplate"]["spec"]["template"];
        template["metadata"]["annotations"]["local-cluster.mortise.dev/exit-after"] = "1h".into();
        post(&mut cluster, &format!("{BATCH}/cronjobs"), &cron);
        pass(&mut cluster, 1860);
        let jobs = names(&mut cluster, &format!("{BATCH}/jobs"));
        assert_eq!(jobs.len(), expected, "{policy}: {jobs:?}");
        let last = if policy == "Forbid" { "tick-29453770" } else { "tick-29453790" };
        assert_eq!(jobs.last().map(String::as_str), Some(last), "{policy}");
    }
}

#[test]
fn ten_days_of_a_cron_job_are_few_steps() {
    let mut cluster = cluster(&["cronjob-controller"]);
    post(
        &mut cluster,
        &format!("{BATCH}/cronjobs"),
        &cron_job(&json!({"schedule": "@daily", "startingDeadlineSeconds": 60})),
    );
    let steps = pass(&mut cluster, 10 * 86_400 + 1);
    let jobs = names(&mut cluster, &format!("{BATCH}/jobs"));
    assert_eq!(jobs.len(), 10);
    assert!(steps < 50, "{steps}");
    // A changed schedule waits for its next time.
    edit(&mut cluster, &format!("{BATCH}/cronjobs/tick"), |cron| cron["spec"]["schedule"] = "30 * * * *".into());
    let now = 10 * 86_400;
    pass(&mut cluster, now + 1799);
    assert_eq!(names(&mut cluster, &format!("{BATCH}/jobs")).len(), 10);
    pass(&mut cluster, now + 1801);
    assert_eq!(names(&mut cluster, &format!("{BATCH}/jobs")).len(), 11);
}

#[test]
fn what_is_refused_is_reported_and_tried_again() {
    let mut cluster = cluster(&["replicaset-controller", "deployment-controller"]);
    let bad =
        |object: &mut Value, name: &str| object["spec"]["template"]["spec"]["containers"][0]["name"] = name.into();
    let put = |cluster: &mut Cluster, plural: &str, name: &str, container: &str| {
        let storage = crate::resource::Storage::new("apps", plural);
        let mut object = cluster.store.get(&storage, "default", name).unwrap().value.clone();
        bad(&mut object, container);
        cluster.store.put(&storage, object);
    };
    post(&mut cluster, &format!("{APPS}/deployments"), &workload(&json!({})));
    let mut alone = workload(&json!({"selector": {"matchLabels": {"app": "alone"}}}));
    alone["metadata"]["name"] = "alone".into();
    alone["spec"]["template"]["metadata"]["labels"]["app"] = "alone".into();
    post(&mut cluster, &format!("{APPS}/replicasets"), &alone);
    put(&mut cluster, "deployments", "web", "A B");
    put(&mut cluster, "replicasets", "alone", "A B");
    pass(&mut cluster, 1);
    let web = read(&mut cluster, &format!("{APPS}/deployments/web"));
    assert_eq!(condition(&web, "Progressing"), pair("False", "ReplicaSetCreateError"));
    let set = read(&mut cluster, &format!("{APPS}/replicasets/alone"));
    assert_eq!(condition(&set, "ReplicaFailure"), pair("True", "FailedCreate"));
    assert!(reasons(&mut cluster, "alone").iter().all(|reason| reason == "FailedCreate"));
    assert_eq!(reasons(&mut cluster, "web"), ["ReplicaSetCreateError"]);
    put(&mut cluster, "deployments", "web", "a");
    put(&mut cluster, "replicasets", "alone", "a");
    pass(&mut cluster, 200);
    assert_eq!(all(&mut cluster, PODS).len(), 6);
    let set = read(&mut cluster, &format!("{APPS}/replicasets/alone"));
    assert_eq!(condition(&set, "ReplicaFailure"), pair("", ""));
}

#[test]
fn a_thousand_pods_are_not_quadratic() {
    let mut cluster = cluster(&["deployment-controller", "replicaset-controller"]);
    post(&mut cluster, &format!("{APPS}/deployments"), &workload(&json!({"replicas": 1000})));
    let steps = pass(&mut cluster, 10);
    assert_eq!(all(&mut cluster, PODS).len(), 1000);
    assert!(steps < 50, "{steps}");
}
