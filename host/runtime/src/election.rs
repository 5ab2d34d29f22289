//! The host's part in the leader election: a thread, a runtime and a connection of their own, so that a busy host
//! delays no renewal. Whether the host leads is reported to the event loop and in a metric.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mortise_core::event::Event;
use mortise_kube::client::{Access, ApiServer};
use mortise_kube::leadership::Leadership;
use mortise_kube::lease::{self, Candidate, Release};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::config::LeaderElection;
use crate::input::Input;
use crate::inputs::Inputs;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

/// How long the release of the Lease may take. It is one request; without it the next host waits until the Lease
/// expires, for which this host should not delay its end.
const RELEASE: Duration = Duration::from_secs(3);

pub(crate) struct Election {
    release: mpsc::Sender<Release>,
    leadership: watch::Receiver<Leadership>,
}

impl Election {
    pub(crate) fn start(
        config: &LeaderElection,
        instance: &str,
        access: Access,
        inputs: &Inputs,
        metrics: &Arc<Metrics>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let candidate = Candidate {
            namespace: config.namespace.as_str().into(),
            name: config.lease.as_str().into(),
            identity: lease::identity(instance)?,
        };
        let (sender, leadership) = watch::channel(Leadership::default());
        let (release, released) = mpsc::channel(1);
        tracing::info!(
            lease = %format!("{}/{}", candidate.namespace, candidate.name),
            identity = %candidate.identity,
            "takes part in the leader election"
        );
        supervisor.task(
            "the reports of the leader election",
            report(leadership.clone(), Arc::clone(&candidate.name), inputs.clone(), Arc::clone(metrics)),
        );
        supervisor.thread("mortise-lease", move || {
            let runtime = Builder::new_current_thread().enable_all().build().context("starting its I/O")?;
            runtime.block_on(async {
                let api = ApiServer::connect(&access).await?;
                lease::run(api, candidate, sender, released).await;
                Ok(())
            })
        })?;
        Ok(Self { release, leadership })
    }

    pub(crate) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Releases the Lease, if this host holds it and the API server responds in time. Must come after the last write.
    pub(crate) async fn end(self) {
        let (done, released) = oneshot::channel();
        let release = async {
            self.release.send(done).await.ok()?;
            released.await.ok()
        };
        if timeout(RELEASE, release).await.is_err() {
            tracing::warn!("the Lease was not released within {} s; the next host waits longer", RELEASE.as_secs());
        }
    }
}

/// Reports each change, or the newest of several when the loop is busy. The election never waits for the loop;
/// meanwhile the claim of each write bounds it.
async fn report(
    mut leadership: watch::Receiver<Leadership>,
    lease: Arc<str>,
    inputs: Inputs,
    metrics: Arc<Metrics>,
) -> anyhow::Result<()> {
    loop {
        let Leadership { claim_until_ms, .. } = *leadership.borrow_and_update();
        metrics.leads(&lease, claim_until_ms.is_some());
        inputs.send(Input::Event(Event::LeaseChanged { claim_until_ms })).await.context("the event loop has ended")?;
        leadership.changed().await.context("the election has ended")?;
    }
}
