//! No task or thread dies unnoticed: each is started here or holds a [`PanicGuard`], and the first that panics, or ends
//! though it should not, ends the process. A restarted host lists everything again; one that lacks a part would look
//! alive and do nothing.

use std::borrow::Cow;
use std::thread;

use anyhow::{Context, anyhow};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Starts tasks and threads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    first: mpsc::Sender<anyhow::Error>,
}

/// Receives the first failure.
#[derive(Debug)]
pub(crate) struct Failures {
    first: mpsc::Receiver<anyhow::Error>,
    /// Keeps the channel open when no task is left.
    _open: mpsc::Sender<anyhow::Error>,
}

/// Reports a panic of the thread or task that holds it.
#[derive(Debug)]
pub(crate) struct PanicGuard {
    name: Cow<'static, str>,
    first: mpsc::Sender<anyhow::Error>,
}

pub(crate) fn supervisor() -> (Supervisor, Failures) {
    // One place: the first failure ends the process.
    let (first, receiver) = mpsc::channel(1);
    (Supervisor { first: first.clone() }, Failures { first: receiver, _open: first })
}

impl Failures {
    pub(crate) async fn next(&mut self) -> anyhow::Error {
        self.first.recv().await.unwrap_or_else(|| anyhow!("the supervision itself ended"))
    }
}

impl Supervisor {
    /// Reports a panic while it is held.
    pub(crate) fn guard(&self, name: impl Into<Cow<'static, str>>) -> PanicGuard {
        PanicGuard { name: name.into(), first: self.first.clone() }
    }

    /// Starts a task that ends by itself.
    pub(crate) fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, task: F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let guard = self.guard(name);
        tokio::spawn(async move {
            let _guard = guard;
            task.await;
        })
        .abort_handle()
    }

    /// Starts a task that runs until it is aborted; its end is a failure.
    pub(crate) fn task<F>(&self, name: impl Into<Cow<'static, str>>, task: F) -> AbortHandle
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let guard = self.guard(name);
        tokio::spawn(async move {
            guard.ended(task.await);
        })
        .abort_handle()
    }

    /// Starts a thread that runs as long as the process; its end is a failure.
    pub(crate) fn thread<F>(&self, name: &'static str, work: F) -> anyhow::Result<()>
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        let guard = self.guard(name);
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || guard.ended(work())).with_context(|| format!("starting the thread {name}"))?;
        Ok(())
    }
}

impl PanicGuard {
    fn ended(&self, how: anyhow::Result<()>) {
        let error = match how {
            Ok(()) => anyhow!("{} ended, which it must not", self.name),
            Err(error) => error.context(format!("{} failed", self.name)),
        };
        self.report(error);
    }

    fn report(&self, error: anyhow::Error) {
        // A full channel has an earlier failure, which is the likelier cause.
        let _ = self.first.try_send(error);
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.report(anyhow!("{} panicked; the panic's own message is above in the log", self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_is_a_failure_that_names_it() {
        let (supervisor, mut failures) = supervisor();
        supervisor.task("watch of v1/Pod", async { Err(anyhow!("no more")) });
        assert_eq!(format!("{:#}", failures.next().await), "watch of v1/Pod failed: no more");
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_in_tasks_and_in_threads() {
        let (supervisor, mut failures) = supervisor();
        supervisor.task("a task", async { panic!("on purpose") });
        assert!(failures.next().await.to_string().starts_with("a task panicked"));
        supervisor.spawn("a short task", async { panic!("on purpose") });
        assert!(failures.next().await.to_string().starts_with("a short task panicked"));
        supervisor.thread("a thread", || panic!("on purpose")).unwrap();
        assert!(failures.next().await.to_string().starts_with("a thread panicked"));
    }

    #[tokio::test]
    async fn an_aborted_task_is_no_failure() {
        let (supervisor, mut failures) = supervisor();
        supervisor.task("a watch", std::future::pending()).abort();
        supervisor.task("the next", async { Ok(()) });
        assert!(failures.next().await.to_string().starts_with("the next ended"));
    }
}
