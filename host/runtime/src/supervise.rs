//! What must not fall silently. Every task and thread of the host is started here or carries an [`Alarm`]; the first
//! that ends or panics without being told to is reported to the one place that waits for it, which ends the process.
//! A restarted process lists everything anew; one that lacks a part would look alive and do nothing.

use std::borrow::Cow;
use std::thread;

use anyhow::{Context, anyhow};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Starts pillars. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    fallen: mpsc::Sender<anyhow::Error>,
}

/// Tells the first fall.
#[derive(Debug)]
pub(crate) struct Falls {
    fallen: mpsc::Receiver<anyhow::Error>,
    /// Keeps the channel open, so that waiting never ends because nothing is left to fall.
    _open: mpsc::Sender<anyhow::Error>,
}

/// Reports a panic of the thread or task that holds it.
#[derive(Debug)]
pub(crate) struct Alarm {
    name: Cow<'static, str>,
    fallen: mpsc::Sender<anyhow::Error>,
}

/// A supervisor and where its falls are told.
pub(crate) fn supervisor() -> (Supervisor, Falls) {
    // One place: the first fall ends the process, so a second has nobody to tell.
    let (fallen, receiver) = mpsc::channel(1);
    (Supervisor { fallen: fallen.clone() }, Falls { fallen: receiver, _open: fallen })
}

impl Falls {
    /// Waits for the first fall.
    pub(crate) async fn next(&mut self) -> anyhow::Error {
        self.fallen.recv().await.unwrap_or_else(|| anyhow!("the supervision itself ended"))
    }
}

impl Supervisor {
    /// Reports a panic for as long as it is held; for short tasks that end by themselves.
    pub(crate) fn alarm(&self, name: impl Into<Cow<'static, str>>) -> Alarm {
        Alarm { name: name.into(), fallen: self.fallen.clone() }
    }

    /// Starts a task that runs until it is aborted.
    pub(crate) fn task<F>(&self, name: impl Into<Cow<'static, str>>, task: F) -> AbortHandle
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let alarm = self.alarm(name);
        tokio::spawn(async move {
            let ended = task.await;
            alarm.ended(ended);
        })
        .abort_handle()
    }

    /// Starts a thread that runs as long as the process.
    pub(crate) fn thread<F>(&self, name: &'static str, work: F) -> anyhow::Result<()>
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        let alarm = self.alarm(name);
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || alarm.ended(work())).with_context(|| format!("starting the thread {name}"))?;
        Ok(())
    }
}

impl Alarm {
    fn ended(&self, how: anyhow::Result<()>) {
        let error = match how {
            Ok(()) => anyhow!("{} ended, which it must not", self.name),
            Err(error) => error.context(format!("{} failed", self.name)),
        };
        self.report(error);
    }

    fn report(&self, error: anyhow::Error) {
        // A full channel holds an earlier fall, which is the cause that a person wants to read.
        let _ = self.fallen.try_send(error);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.report(anyhow!("{} panicked; the panic's own message stands above in the log", self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_is_a_fall_that_names_it() {
        let (supervisor, mut falls) = supervisor();
        supervisor.task("watch of v1/Pod", async { Err(anyhow!("no more")) });
        assert_eq!(format!("{:#}", falls.next().await), "watch of v1/Pod failed: no more");
    }

    #[tokio::test]
    async fn a_panic_is_a_fall_in_tasks_and_in_threads() {
        let (supervisor, mut falls) = supervisor();
        supervisor.task("a task", async { panic!("on purpose") });
        assert!(falls.next().await.to_string().starts_with("a task panicked"));
        supervisor.thread("a thread", || panic!("on purpose")).unwrap();
        assert!(falls.next().await.to_string().starts_with("a thread panicked"));
    }

    #[tokio::test]
    async fn an_aborted_task_is_no_fall() {
        let (supervisor, mut falls) = supervisor();
        supervisor.task("a watch", std::future::pending()).abort();
        supervisor.task("the next", async { Ok(()) });
        assert!(falls.next().await.to_string().starts_with("the next ended"));
    }
}
