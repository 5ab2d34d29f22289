//! One operator's run: creates PodSets, scales them one step at a time, deletes Pods, restarts the operator. The usage
//! of each phase is read from /proc and from the audit log when the operator is idle.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mortise_control_plane::{AuditRecord, Usage};

use super::{Contender, Setup};
use crate::cluster::{Requests, count_requests, is_watching, received_ms, set_name};
use crate::observer::{Observer, World};
use crate::operator::{Operator, Which};
use crate::sample;

pub(crate) const SETS: usize = 300;
pub(crate) const REPLICAS: usize = 3;
/// Changes of replicas by one, alternately up and down, each awaited.
pub(crate) const STEPS: usize = 100;
pub(crate) const DELETED: usize = 200;

#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    pub(crate) wall: Duration,
    /// Until the operator was idle, where CPU times end.
    pub(crate) quiet: Duration,
    pub(crate) cpu: Duration,
    pub(crate) api_cpu: Duration,
    /// The operator's requests, without lists and watches.
    pub(crate) requests: Requests,
    /// Its completed lists and watches.
    pub(crate) watching: Requests,
    pub(crate) refused: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) converge: Phase,
    pub(crate) scale: Phase,
    /// Pods are deleted without a grace period: removed at once.
    pub(crate) churn: Phase,
    /// Pods are deleted with a grace period: they are missing for a while, which a correct status reports.
    pub(crate) graceful: Phase,
    pub(crate) restart: Phase,
    pub(crate) converged_bytes: f64,
    pub(crate) restarted_bytes: f64,
    pub(crate) pod_bytes: f64,
    /// Milliseconds from a scale request's arrival at the API server to that of the operator's first write for it.
    pub(crate) reactions_ms: Vec<f64>,
}

struct Mark {
    operator: Usage,
    api_server: Usage,
    audit: u64,
    at: Instant,
}

struct Running<'a> {
    setup: &'a Setup,
    which: Which,
    namespace: &'a str,
    operator: Operator,
    observer: Observer,
}

/// Runs an operator through all phases, and empties its namespace.
pub(super) async fn run(setup: &Setup, contender: Contender<'_>, round: usize) -> Result<Run> {
    let (namespace, which) = (format!("bench-{}-{round}", contender.name()), contender.which());
    setup.cluster.create_namespace(&namespace).await?;
    let operator = setup.start(contender).await?;
    let observer = Observer::start(&setup.cluster, &namespace);
    let mut running = Running { setup, which, namespace: &namespace, operator, observer };
    let (converge, converged) = running.converge().await.context("converge")?;
    let pod_bytes = setup.cluster.mean_pod_bytes(&namespace).await?;
    let (scale, reactions_ms) = running.scale().await.context("scale")?;
    let churn = running.churn(true).await.context("delete Pods at once")?;
    let graceful = running.churn(false).await.context("delete Pods gracefully")?;
    running.operator.stop().await?;
    let (restart, restarted);
    (running.operator, restart, restarted) = restarted_operator(setup, contender).await.context("restart")?;
    running.check_alive().await?;
    let Running { operator, observer, .. } = running;
    operator.stop().await?;
    setup.cluster.clear(&namespace).await?;
    observer.until("the namespace to be empty", |world| world.is_empty()).await?;
    Ok(Run {
        converge,
        scale,
        churn,
        graceful,
        restart,
        converged_bytes: converged.anonymous_bytes as f64,
        restarted_bytes: restarted.anonymous_bytes as f64,
        pod_bytes,
        reactions_ms,
    })
}

impl Running<'_> {
    async fn converge(&self) -> Result<(Phase, Usage)> {
        let mark = self.mark().await?;
        self.setup.cluster.create_pod_sets(self.namespace, SETS, REPLICAS, &sample::template()).await?;
        self.observer.until("every PodSet to have its Pods", |world| world.has_converged(SETS)).await?;
        let (phase, usage, _) = self.end(mark).await?;
        Ok((phase, usage))
    }

    async fn scale(&self) -> Result<(Phase, Vec<f64>)> {
        let mark = self.mark().await?;
        for step in 0..STEPS {
            // Each PodSet up, then down.
            let (set, replicas) = (set_name(step / 2), if step % 2 == 0 { REPLICAS + 1 } else { REPLICAS });
            self.scale_one(&set, replicas).await?;
        }
        let (phase, _, records) = self.end(mark).await?;
        let reactions_ms = reactions(self.which, &records, self.namespace)?;
        Ok((phase, reactions_ms))
    }

    async fn scale_one(&self, set: &str, replicas: usize) -> Result<()> {
        self.setup.cluster.scale(self.namespace, set, replicas).await?;
        let what = format!("PodSet {set} to have {replicas} Pods");
        let done = |world: &World| world.replicas(set) == Some(replicas) && world.has_converged(SETS);
        self.observer.until(&what, done).await
    }

    async fn churn(&self, at_once: bool) -> Result<Phase> {
        let victims = self.observer.world().one_pod_of_each(DELETED);
        ensure!(victims.len() == DELETED, "there are Pods of {} PodSets only", victims.len());
        let (names, uids): (Vec<_>, BTreeSet<_>) = victims.into_iter().unzip();
        let mark = self.mark().await?;
        self.setup.cluster.delete_pods(self.namespace, names, at_once).await?;
        let replaced = |world: &World| world.lost(&uids) && world.has_converged(SETS);
        self.observer.until("every deleted Pod to be replaced", replaced).await?;
        Ok(self.end(mark).await?.0)
    }

    /// Checks, outside of any measurement, that the idle restarted operator works.
    async fn check_alive(&self) -> Result<()> {
        for replicas in [REPLICAS + 1, REPLICAS] {
            self.scale_one(&set_name(0), replicas).await.context("scale with the restarted operator")?;
        }
        Ok(())
    }

    async fn mark(&self) -> Result<Mark> {
        let cluster = &self.setup.cluster;
        cluster.settle().await?;
        let operator = self.operator.quiet().await?;
        let audit = cluster.audit_mark()?;
        Ok(Mark { operator, api_server: cluster.api_server_usage()?, audit, at: Instant::now() })
    }

    /// Ends a phase, whose wall time ends now and whose usage ends when the operator is idle.
    async fn end(&self, mark: Mark) -> Result<(Phase, Usage, Vec<AuditRecord>)> {
        let wall = mark.at.elapsed();
        self.observer.until("every Pod to run", |world| world.runs()).await?;
        let operator = self.operator.quiet().await?;
        let records = self.setup.cluster.requests_since(mark.audit)?;
        let phase = Phase {
            wall,
            quiet: mark.at.elapsed(),
            cpu: operator.cpu.saturating_sub(mark.operator.cpu),
            api_cpu: self.setup.cluster.api_server_usage()?.cpu.saturating_sub(mark.api_server.cpu),
            ..requests_of(self.which, &records)
        };
        Ok((phase, operator, records))
    }
}

/// Starts an operator whose PodSets have converged, and waits until it is idle.
async fn restarted_operator(setup: &Setup, contender: Contender<'_>) -> Result<(Operator, Phase, Usage)> {
    setup.cluster.settle().await?;
    let audit = setup.cluster.audit_mark()?;
    let api_server = setup.cluster.api_server_usage()?;
    let begin = Instant::now();
    let operator = setup.start(contender).await?;
    let wall = begin.elapsed();
    let usage = operator.quiet().await?;
    let records = setup.cluster.requests_since(audit)?;
    let phase = Phase {
        wall,
        quiet: begin.elapsed(),
        cpu: usage.cpu,
        api_cpu: setup.cluster.api_server_usage()?.cpu.saturating_sub(api_server.cpu),
        ..requests_of(contender.which(), &records)
    };
    Ok((operator, phase, usage))
}

/// A phase with only the requests of an operator.
fn requests_of(which: Which, records: &[AuditRecord]) -> Phase {
    let own = || records.iter().filter(|record| record.user == which.user());
    Phase {
        requests: count_requests(own().filter(|record| !is_watching(record))),
        watching: count_requests(own().filter(|record| is_watching(record))),
        refused: own().filter(|record| matches!(record.code, 409 | 422)).count(),
        ..Phase::default()
    }
}

/// The time from each scale request to the operator's first write after it, by the API server's clock. Each step is
/// awaited, so the first write after it belongs to it.
fn reactions(which: Which, records: &[AuditRecord], namespace: &str) -> Result<Vec<f64>> {
    let is_own = |record: &AuditRecord| record.user == which.user();
    let is_step = |record: &&AuditRecord| {
        !is_own(record)
            && record.verb == "patch"
            && record.resource == "podsets"
            && record.subresource.is_empty()
            && record.namespace == namespace
    };
    let mut writes = Vec::new();
    for record in records.iter().filter(|record| is_own(record) && record.is_write() && record.resource == "pods") {
        writes.push(received_ms(record)?);
    }
    writes.sort_by(f64::total_cmp);
    let mut reactions = Vec::new();
    for step in records.iter().filter(is_step) {
        let begin = received_ms(step)?;
        let first = writes.iter().find(|write| **write > begin).context("a step without a write after it")?;
        reactions.push(first - begin);
    }
    Ok(reactions)
}

/// The number of an operator's writes in a phase.
pub(crate) fn writes(phase: &Phase) -> f64 {
    phase.requests.iter().filter(|(what, _)| !what.starts_with("get ")).map(|(_, count)| count).sum::<usize>() as f64
}

/// An operator's requests in a phase, per unit of work.
pub(crate) fn requests_per(phase: &Phase, units: usize) -> f64 {
    phase.requests.values().sum::<usize>() as f64 / units as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(user: &str, verb: &str, resource: &str, received: &str) -> AuditRecord {
        AuditRecord {
            verb: verb.to_owned(),
            user: user.to_owned(),
            resource: resource.to_owned(),
            namespace: "n".to_owned(),
            code: if verb == "create" { 409 } else { 200 },
            received: format!("2026-01-02T03:04:05.{received}Z"),
            ..AuditRecord::default()
        }
    }

    #[test]
    fn a_reaction_is_the_time_from_a_step_to_the_next_write() {
        let records = [
            record("admin", "patch", "podsets", "010000"),
            record("mortise", "create", "pods", "025500"),
            record("mortise", "patch", "podsets", "030000"),
            record("admin", "patch", "podsets", "050000"),
            record("kwok", "patch", "pods", "060000"),
            record("mortise", "delete", "pods", "070000"),
        ];
        let reactions = reactions(Which::Mortise, &records, "n").unwrap();
        let wanted = [15.5, 20.0];
        assert!(reactions.iter().zip(wanted).all(|(is, wanted)| (is - wanted).abs() < 0.01), "{reactions:?}");
        assert_eq!(reactions.len(), wanted.len());
    }

    #[test]
    fn lists_watches_and_requests_of_others_are_not_counted() {
        let records = [
            record("kube-rs", "create", "pods", "010000"),
            record("kube-rs", "list", "pods", "020000"),
            record("kube-rs", "get", "", "030000"),
            record("mortise", "create", "pods", "040000"),
        ];
        let phase = requests_of(Which::KubeRs, &records);
        assert_eq!(requests_per(&phase, 1), 1.0);
        assert_eq!(phase.watching.len(), 2);
        assert_eq!(phase.refused, 1);
    }
}
