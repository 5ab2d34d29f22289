//! One host with a control plane of its own: starts it, gives it work, waits until it is idle, and measures what that
//! took the host and the API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mortise_control_plane::{Component, ControlPlane, Usage};

use super::figures::{Figures, Unit};
use crate::cluster::{Cluster, Requests, count_requests};
use crate::operator::{Operator, Which};
use crate::programs::Host;

/// Bound of a phase: a hundred thousand status writes take an API server on two busy cores four minutes.
const DEADLINE: Duration = Duration::from_secs(900);
/// CPU time in two seconds of an idle host with a thousand watches.
const IDLE: Duration = Duration::from_millis(40);
const MIB: f64 = 1024.0 * 1024.0;

pub(super) struct Side<'a> {
    pub(super) host: &'a Host,
    pub(super) cluster: Cluster,
    pub(super) folder: tempfile::TempDir,
    /// Whether several hosts are measured in turns.
    takes_turns: bool,
}

/// The least that the host has to do in a phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) calls: usize,
    /// Statuses of the plugins' objects.
    pub(super) statuses: usize,
}

/// The usage of a phase until the host was idle.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    /// The host's.
    pub(super) cpu: Duration,
    pub(super) anonymous_bytes: u64,
    /// Until the host was idle.
    pub(super) wall: Duration,
    /// Calls of guests, and reconciles without one.
    pub(super) calls: f64,
    pub(super) skipped: f64,
    pub(super) writes: Requests,
    pub(super) api_server: Usage,
    pub(super) etcd: Usage,
}

#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Until every plugin served.
    pub(super) ready: Duration,
    pub(super) ready_cpu: Duration,
    /// Components that were compiled.
    pub(super) compilations: f64,
    pub(super) spent: Spent,
}

struct Mark {
    cpu: Duration,
    calls: f64,
    skipped: f64,
    audit: u64,
    api_server: Usage,
    etcd: Usage,
    at: Instant,
}

impl<'a> Side<'a> {
    pub(super) async fn new(host: &'a Host, takes_turns: bool) -> Result<Self> {
        let cluster = Cluster::start_for_many().await?;
        let folder = tempfile::tempdir().context("create a folder for plugins")?;
        Ok(Self { host, cluster, folder, takes_turns })
    }

    /// Pauses its control plane during another's turn: the API server of a thousand kinds is never quite idle.
    pub(super) fn pause(&self) -> Result<()> {
        self.each_component(ControlPlane::pause)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.each_component(ControlPlane::resume)
    }

    fn each_component(&self, act: impl Fn(&ControlPlane, Component) -> Result<()>) -> Result<()> {
        let components = Component::API.iter().filter(|_| self.takes_turns);
        components.copied().try_for_each(|component| act(&self.cluster.plane, component))
    }

    /// Prints the phase to standard error: phases take minutes.
    pub(super) fn progress(&self, what: &str) {
        eprintln!("{}: {what}", self.host.name);
    }

    /// Starts the host with the plugins of its folder and waits until it has done this work and is idle.
    pub(super) async fn start(&self, what: &str, work: Work) -> Result<(Operator, Start)> {
        self.progress(what);
        if self.cluster.settle().await.is_err() {
            eprintln!("   the API server is not idle; starting anyway");
        }
        let mark = self.mark(None)?;
        let operator =
            Operator::mortise(&self.cluster, self.host, self.folder.path()).await.context("start the host")?;
        let (ready, ready_cpu) = (mark.at.elapsed(), operator.usage()?.cpu);
        let spent = self.spent(&operator, &mark, work).await?;
        let compilations = operator.metrics()?.compilations();
        eprintln!("   ready in {:.1} s, idle after {:.1} s", ready.as_secs_f64(), spent.wall.as_secs_f64());
        Ok((operator, Start { ready, ready_cpu, compilations, spent }))
    }

    /// Awaits `cause`, and waits until the host has done this work and is idle.
    pub(super) async fn phase(
        &self,
        operator: &Operator,
        work: Work,
        cause: impl Future<Output = Result<()>>,
    ) -> Result<Spent> {
        let mark = self.mark(Some(operator))?;
        cause.await?;
        self.spent(operator, &mark, work).await
    }

    fn mark(&self, operator: Option<&Operator>) -> Result<Mark> {
        let audit = self.cluster.audit_mark()?;
        // Serving metrics takes CPU time too, so read the CPU time after it.
        let metrics = operator.map(Operator::metrics).transpose()?;
        Ok(Mark {
            calls: metrics.as_ref().map_or(0.0, |metrics| metrics.calls()),
            skipped: metrics.as_ref().map_or(0.0, |metrics| metrics.skipped()),
            cpu: operator.map(Operator::usage).transpose()?.map_or(Duration::ZERO, |usage| usage.cpu),
            audit,
            api_server: self.cluster.api_server_usage()?,
            etcd: self.cluster.etcd_usage()?,
            at: Instant::now(),
        })
    }

    /// A host that waits for a slow API server looks idle, so this also checks its work; only then, since checks cost
    /// it CPU time.
    async fn spent(&self, operator: &Operator, mark: &Mark, work: Work) -> Result<Spent> {
        let (mut read, mut writes) = (mark.audit, Requests::new());
        loop {
            let usage = operator.quiet_within(DEADLINE, IDLE).await?;
            let wall = mark.at.elapsed();
            let (api_server, etcd) = (self.cluster.api_server_usage()?, self.cluster.etcd_usage()?);
            let metrics = operator.metrics()?;
            let (records, end) = self.cluster.plane.audit_since(read)?;
            read = end;
            let own = records.iter().filter(|record| record.user == Which::Mortise.user() && record.is_write());
            for (request, count) in count_requests(own) {
                *writes.entry(request).or_default() += count;
            }
            let spent = Spent {
                cpu: usage.cpu.saturating_sub(mark.cpu),
                anonymous_bytes: usage.anonymous_bytes,
                wall,
                calls: metrics.calls() - mark.calls,
                skipped: metrics.skipped() - mark.skipped,
                writes: writes.clone(),
                api_server: since(api_server, mark.api_server),
                etcd: since(etcd, mark.etcd),
            };
            if spent.has_done(work) {
                return Ok(spent);
            }
            ensure!(wall < DEADLINE, "after {DEADLINE:?} the host has not done {work:?}: {spent:?}");
        }
    }
}

/// The CPU time since then, and the current memory.
fn since(now: Usage, then: Usage) -> Usage {
    Usage { cpu: now.cpu.saturating_sub(then.cpu), ..now }
}

impl Start {
    /// The rows of a start; a restart has targets for CPU time, and of zero writes and compilations.
    pub(super) fn rows(&self, figures: &mut Figures, host: usize, what: &str, restart_cpu_s: Option<f64>) {
        let none = restart_cpu_s.map(|_| 0.0);
        figures.add_for(host, format!("{what}: writes"), Unit::Count, total(&self.spent.writes), none);
        for (request, count) in &self.spent.writes {
            figures.add(host, format!("{what}:   {request}"), Unit::Count, *count as f64);
        }
        figures.add_for(host, format!("{what}: compilations"), Unit::Count, self.compilations, none);
        figures.add(host, format!("{what}: guest calls"), Unit::Count, self.spent.calls);
        figures.add_for(host, format!("{what}: CPU s"), Unit::Seconds, self.spent.cpu.as_secs_f64(), restart_cpu_s);
        figures.add(host, format!("{what}: CPU s until all are Ready"), Unit::Seconds, self.ready_cpu.as_secs_f64());
        figures.add(host, format!("{what}: s until all are Ready"), Unit::Seconds, self.ready.as_secs_f64());
        figures.add(host, format!("{what}: s until idle"), Unit::Seconds, self.spent.wall.as_secs_f64());
        figures.add(host, format!("{what}: anonymous memory"), Unit::Mib, self.spent.anonymous_bytes as f64 / MIB);
        self.spent.api_rows(figures, host, what);
    }
}

impl Spent {
    fn has_done(&self, work: Work) -> bool {
        let statuses = self.writes.get("patch readers/status").copied().unwrap_or_default();
        self.calls >= work.calls as f64 && statuses >= work.statuses
    }

    /// The sum of this phase and the next one.
    pub(super) fn and(self, next: Self) -> Self {
        let sum = |one: Usage, other: Usage| Usage { cpu: one.cpu + other.cpu, ..other };
        Self {
            cpu: self.cpu + next.cpu,
            wall: self.wall + next.wall,
            calls: self.calls + next.calls,
            skipped: self.skipped + next.skipped,
            api_server: sum(self.api_server, next.api_server),
            etcd: sum(self.etcd, next.etcd),
            ..next
        }
    }

    /// The rows of the API server and etcd.
    pub(super) fn api_rows(&self, figures: &mut Figures, host: usize, what: &str) {
        for (name, usage) in [("API server", self.api_server), ("etcd", self.etcd)] {
            figures.add(host, format!("{what}: {name} CPU s"), Unit::Seconds, usage.cpu.as_secs_f64());
            figures.add(host, format!("{what}: {name} memory"), Unit::Mib, usage.resident_bytes as f64 / MIB);
        }
    }

    /// The rows of equal events, each per event.
    pub(super) fn event_rows(&self, figures: &mut Figures, host: usize, what: &str, events: usize) {
        let each = |value: f64| value / events as f64;
        let ms = |cpu: Duration| each(cpu.as_secs_f64() * 1e3);
        figures.add(host, format!("{what}: CPU"), Unit::Milliseconds, ms(self.cpu));
        figures.add(host, format!("{what}: guest calls"), Unit::Count, each(self.calls));
        figures.add(host, format!("{what}: reconciles without a call"), Unit::Count, each(self.skipped));
        figures.add(host, format!("{what}: API server CPU"), Unit::Milliseconds, ms(self.api_server.cpu));
    }
}

pub(super) fn total(requests: &Requests) -> f64 {
    requests.values().sum::<usize>() as f64
}
