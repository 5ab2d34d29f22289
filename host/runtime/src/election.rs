//! The host's part in the leader election: a thread, a runtime and a connection of their own, so that nothing that keeps the
//! host busy delays a renewal. Where the host stands goes to the event loop and to a metric.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mortise_core::event::Event;
use mortise_kube::client::{Access, ApiServer};
use mortise_kube::lease::{self, Candidate, Release, Standing};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::config::LeaderElection;
use crate::event_loop::Input;
use crate::metrics::Metrics;
use crate::supervise::Supervisor;

/// How long giving the lead back may take at the end. It is one request; without it the next host waits for the Lease to run
/// out, which is no reason to hold up the end of this one.
const RELEASE: Duration = Duration::from_secs(3);

/// The running election.
pub(crate) struct Election {
    release: mpsc::Sender<Release>,
    standing: watch::Receiver<Standing>,
}

impl Election {
    /// Begins to ask for the lead.
    pub(crate) fn start(
        config: &LeaderElection,
        instance: &str,
        access: Access,
        inputs: &mpsc::Sender<Input>,
        metrics: &Arc<Metrics>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Self> {
        let candidate = Candidate {
            namespace: config.namespace.as_str().into(),
            name: config.lease.as_str().into(),
            identity: lease::identity(instance)?,
        };
        let (sender, standing) = watch::channel(Standing::default());
        let (release, asked) = mpsc::channel(1);
        tracing::info!(
            lease = %format!("{}/{}", candidate.namespace, candidate.name),
            identity = %candidate.identity,
            "takes part in the leader election"
        );
        let told = standing.clone();
        supervisor.task(
            "the news of the leader election",
            tell(standing, Arc::clone(&candidate.name), inputs.clone(), Arc::clone(metrics)),
        );
        supervisor.thread("mortise-lease", move || {
            let runtime = Builder::new_current_thread().enable_all().build().context("starting its I/O")?;
            runtime.block_on(async {
                let api = ApiServer::connect(&access).await?;
                lease::run(api, candidate, sender, asked).await;
                Ok(())
            })
        })?;
        Ok(Self { release, standing: told })
    }

    /// Where the host stands, as it changes.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Gives the lead back, if this host has it and the API server answers in time. Nothing may be written any more.
    pub(crate) async fn end(self) {
        let (done, released) = oneshot::channel();
        let give_back = async {
            self.release.send(done).await.ok()?;
            released.await.ok()
        };
        if timeout(RELEASE, give_back).await.is_err() {
            tracing::warn!("the lead was not given back within {} s; the next host waits longer", RELEASE.as_secs());
        }
    }
}

/// Tells each change of the standing, or the newest of several when the loop is busy: the election never waits for it, and
/// what the loop does not know yet the claim of each write does.
async fn tell(
    mut standing: watch::Receiver<Standing>,
    lease: Arc<str>,
    inputs: mpsc::Sender<Input>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<()> {
    loop {
        let Standing { claim_until_ms } = *standing.borrow_and_update();
        metrics.leads(&lease, claim_until_ms.is_some());
        inputs.send(Input::Event(Event::LeaseChanged { claim_until_ms })).await.context("the event loop has ended")?;
        standing.changed().await.context("the election has ended")?;
    }
}
