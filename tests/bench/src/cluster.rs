//! The control plane of the measurements, and what a user would do to it: namespaces, PodSets, their scale, deletions.
//! Operators have users of their own, by which the audit log identifies their requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mortise_control_plane::{
    ADMIN, AuditRecord, Binaries, Component, ControlPlane, Options, Usage, print_progress, usage_of,
};
use serde_json::{Value, json};

use crate::operator::Which;

/// The benchmark's own requests in flight: enough to keep an operator busy, far below the API server's budget.
const IN_FLIGHT: usize = 20;

/// CPU time per second of an idle API server: leases and probes take a few hundredths.
const CALM: Duration = Duration::from_millis(200);
/// Bound of the wait until it is idle; the garbage collector takes ten seconds for a thousand Pods.
const CALM_SECONDS: usize = 60;

/// A running control plane, with an administrator's client.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    /// The position in the audit log.
    audit: Mutex<u64>,
}

/// Number of requests by verb and resource: "create pods", "patch podsets/status".
pub(crate) type Requests = BTreeMap<String, usize>;

impl Cluster {
    /// A control plane that runs Pods, or only its API.
    pub(crate) async fn start(api_only: bool) -> Result<Self> {
        let binaries = Binaries::ensure(&mut print_progress()).context("build the control plane")?;
        let options = if api_only { Options::api_only() } else { Options::default() };
        Self::start_with(&binaries, Options { audit_reads: true, ..options }).await
    }

    /// etcd and the API server, with an audit log of writes alone, without a thousand watches.
    pub(crate) async fn start_for_many() -> Result<Self> {
        let binaries = Binaries::ensure(&mut print_progress()).context("build the control plane")?;
        Self::start_with(&binaries, Options::api_only()).await
    }

    async fn start_with(binaries: &Binaries, options: Options) -> Result<Self> {
        let users = Which::ALL.map(|which| which.user().to_owned()).into();
        let plane = ControlPlane::start(binaries, &Options { users, ..options })?;
        for which in Which::ALL {
            let (name, user) = (format!("bench-{}", which.user()), format!("--user={}", which.user()));
            plane.kubectl_output(&["create", "clusterrolebinding", &name, "--clusterrole=cluster-admin", &user])?;
        }
        let kubeconfig =
            Kubeconfig::read_from(plane.kubeconfig(ADMIN)?).context("read the administrator's kubeconfig")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)?, plane, audit: Mutex::default() })
    }

    pub(crate) async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let created = Api::<Namespace>::all(self.client.clone()).create(&PostParams::default(), &namespace).await;
        created.map(drop).with_context(|| format!("create namespace {name}"))
    }

    pub(crate) fn pod_sets(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &pod_set_resource())
    }

    pub(crate) async fn create_pod_sets(
        &self,
        namespace: &str,
        sets: usize,
        replicas: usize,
        template: &Value,
    ) -> Result<()> {
        let api = self.pod_sets(namespace);
        let create = |number| {
            let api = &api;
            let spec = json!({"replicas": replicas, "template": template});
            let set = DynamicObject::new(&set_name(number), &pod_set_resource()).data(json!({"spec": spec}));
            async move { api.create(&PostParams::default(), &set).await.map(drop) }
        };
        let created = stream::iter((0..sets).map(create)).buffer_unordered(IN_FLIGHT).try_collect::<()>().await;
        created.with_context(|| format!("create PodSets in {namespace}"))
    }

    pub(crate) async fn scale(&self, namespace: &str, set: &str, replicas: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let patched = self.pod_sets(namespace).patch(set, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("scale PodSet {namespace}/{set}"))
    }

    /// Deletes Pods by name, without a grace period or, as kubectl does, with theirs.
    pub(crate) async fn delete_pods(&self, namespace: &str, names: Vec<String>, at_once: bool) -> Result<()> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let params = DeleteParams { grace_period_seconds: at_once.then_some(0), ..DeleteParams::default() };
        let delete = |name: String| {
            let (api, params) = (&api, &params);
            async move { api.delete(&name, params).await.map(drop) }
        };
        let deleted = stream::iter(names.into_iter().map(delete)).buffer_unordered(IN_FLIGHT).try_collect::<()>().await;
        deleted.with_context(|| format!("delete Pods in {namespace}"))
    }

    pub(crate) async fn create_pods(&self, namespace: &str, count: usize, template: &Value) -> Result<()> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let create = |number: usize| {
            let api = &api;
            let mut pod = template.clone();
            pod["metadata"]["name"] = format!("pod-{number}").into();
            async move {
                let pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
                api.create(&PostParams::default(), &pod).await.map(drop)
            }
        };
        let created = stream::iter((0..count).map(create)).buffer_unordered(IN_FLIGHT).try_collect::<()>().await;
        created.with_context(|| format!("create Pods in {namespace}"))
    }

    /// The mean size of a Pod's JSON without managedFields, in bytes.
    pub(crate) async fn mean_pod_bytes(&self, namespace: &str) -> Result<f64> {
        let resource = ApiResource::erase::<Pod>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let mut bytes = 0;
        let pods = api.list(&ListParams::default()).await.with_context(|| format!("list Pods in {namespace}"))?;
        for mut pod in pods.items.iter().cloned() {
            pod.metadata.managed_fields = None;
            bytes += serde_json::to_string(&pod)?.len();
        }
        Ok(bytes as f64 / pods.items.len() as f64)
    }

    /// Deletes the PodSets and Pods of a namespace, without waiting for kubelets.
    pub(crate) async fn clear(&self, namespace: &str) -> Result<()> {
        let cleared = || format!("clear namespace {namespace}");
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        self.pod_sets(namespace).delete_collection(&now, &all).await.map(drop).with_context(cleared)?;
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        pods.delete_collection(&now, &all).await.map(drop).with_context(cleared)
    }

    pub(crate) fn api_server_usage(&self) -> Result<Usage> {
        usage_of(self.plane.pid(Component::ApiServer)?)
    }

    pub(crate) fn etcd_usage(&self) -> Result<Usage> {
        usage_of(self.plane.pid(Component::Etcd)?)
    }

    /// Waits until the API server is idle, so that the next phase is not charged for earlier work, such as garbage
    /// collection.
    pub(crate) async fn settle(&self) -> Result<()> {
        let mut before = self.api_server_usage()?.cpu;
        for _ in 0..CALM_SECONDS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.api_server_usage()?.cpu;
            if now.saturating_sub(before) < CALM {
                return Ok(());
            }
            before = now;
        }
        bail!("the API server was not idle within {CALM_SECONDS} s")
    }

    pub(crate) fn audit_mark(&self) -> Result<u64> {
        // The log of many rounds is long, so read each part only once.
        let mut known = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        (_, *known) = self.plane.audit_since(*known)?;
        Ok(*known)
    }

    /// All requests after a mark of the audit log.
    pub(crate) fn requests_since(&self, mark: u64) -> Result<Vec<AuditRecord>> {
        Ok(self.plane.audit_since(mark)?.0)
    }
}

pub(crate) fn set_name(number: usize) -> String {
    format!("set-{number}")
}

pub(crate) fn pod_set_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("app.example.com", "v1alpha1", "PodSet"))
}

pub(crate) fn count_requests<'a>(records: impl IntoIterator<Item = &'a AuditRecord>) -> Requests {
    let mut requests = Requests::new();
    for record in records {
        let what = match (record.resource.as_str(), record.subresource.as_str()) {
            ("", _) => record.uri.split('?').next().unwrap_or_default().to_owned(),
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        };
        let what = format!("{} {what}", record.verb);
        *requests.entry(what).or_default() += 1;
    }
    requests
}

/// Whether a request is part of an informer or of discovery, not of one object.
pub(crate) fn is_watching(record: &AuditRecord) -> bool {
    matches!(record.verb.as_str(), "list" | "watch") || record.resource.is_empty()
}

/// When the API server received a request, in Unix milliseconds.
pub(crate) fn received_ms(record: &AuditRecord) -> Result<f64> {
    let at: Timestamp = record.received.parse().with_context(|| format!("parse the time {:?}", record.received))?;
    Ok(at.as_microsecond() as f64 / 1e3)
}

/// Polls without blocking the thread.
pub(crate) async fn until<T>(
    what: &str,
    deadline: Duration,
    every: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begin = tokio::time::Instant::now();
    loop {
        if let Some(value) = probe().with_context(|| format!("wait for {what}"))? {
            return Ok(value);
        }
        anyhow::ensure!(begin.elapsed() < deadline, "waited {} s for {what}", deadline.as_secs());
        tokio::time::sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let record = |verb: &str, subresource: &str| AuditRecord {
            verb: verb.to_owned(),
            resource: "pods".to_owned(),
            subresource: subresource.to_owned(),
            ..AuditRecord::default()
        };
        let records = [record("create", ""), record("create", ""), record("patch", "status"), record("watch", "")];
        let requests = count_requests(records.iter().filter(|record| !is_watching(record)));
        assert_eq!(requests, Requests::from([("create pods".to_owned(), 2), ("patch pods/status".to_owned(), 1)]));
    }
}
