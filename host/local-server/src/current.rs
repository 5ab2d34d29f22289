//! The cluster as it is now: changes come one after another, and everybody else has a snapshot. Input: functions that
//! change a cluster. Output: what they give. It must not know requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Error, anyhow};
use mortise_local_cluster::Cluster;
use tokio::sync::watch;

use crate::saved::Saved;

/// The newest cluster.
pub(crate) struct Current {
    newest: watch::Sender<Arc<Cluster>>,
    /// Held during a change.
    saved: Mutex<Option<Saved>>,
    /// Why changes can no longer be saved.
    broken: watch::Sender<Option<Arc<Error>>>,
}

/// A bug of the cluster: it is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl Current {
    pub(crate) fn new(cluster: Cluster, saved: Option<Saved>) -> Self {
        let newest = watch::Sender::new(Arc::new(cluster));
        Self { newest, saved: Mutex::new(saved), broken: watch::Sender::new(None) }
    }

    pub(crate) fn snapshot(&self) -> Arc<Cluster> {
        Arc::clone(&self.newest.borrow())
    }

    /// Is notified when objects changed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Cluster>> {
        self.newest.subscribe()
    }

    /// Changes the cluster, and saves what changed before anybody sees it.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Cluster) -> T) -> Result<T, Panicked> {
        // What the lock guards is consistent wherever a panic could poison it: the cluster is a copy.
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        let mut next = (*before).clone();
        let result = guard(|| act(&mut next))?;
        let grew = next.revision() > before.revision();
        if let (true, Some(saved)) = (grew, saved.as_mut())
            && let Err(error) = saved.write(&next, before.revision())
        {
            self.broken.send_replace(Some(Arc::new(error)));
        }
        self.newest.send_if_modified(|newest| {
            *newest = Arc::new(next);
            grew
        });
        Ok(result)
    }

    /// Waits until changes can no longer be saved.
    pub(crate) async fn broken(&self) -> Error {
        let mut broken = self.broken.subscribe();
        match broken.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(why)) => anyhow!("{why:#}"),
            _ => anyhow!("nothing watches over the saved cluster"),
        }
    }
}

/// Runs what belongs to the cluster; a panic of it ends only the request.
pub(crate) fn guard<T>(act: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| Panicked)
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("revision", &self.newest.borrow().revision()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use mortise_local_cluster::Options;

    use super::*;
    use crate::clock;

    #[test]
    fn a_panic_leaves_the_cluster_as_it_was_and_usable() {
        let current = Current::new(Cluster::new(Options::default(), clock::now()), None);
        let before = current.snapshot();
        let panicked = current.change(|cluster| {
            cluster.compact();
            panic!("a bug");
        });
        assert_eq!(panicked.err(), Some(Panicked));
        assert!(Arc::ptr_eq(&before, &current.snapshot()));
        assert_eq!(current.change(|cluster| cluster.revision()), Ok(before.revision()));
    }
}
