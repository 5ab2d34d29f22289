//! The controllers' time: they work after each change, and when something is due. Input: the cluster. Output: its changes. It
//! must not know what controllers do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use mortise_local_cluster::{Answer, Call, Cluster, Reply, Step};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::clock;
use crate::current::{Panicked, guard};
use crate::exchange::Door;
use crate::webhook::MAX_CALLS;

/// How long the controllers work at a time; requests wait so long at most.
const TURN: Duration = Duration::from_millis(2);
/// The pause after a panic that no key can be put off for: it would come again at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep: the clock of the machine may be set.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// How many steps may wait for webhooks at a time, as a controller has a few workers. Beyond it the others wait, too.
const MAX_WAITING: usize = 16;

enum Turn {
    Worked,
    /// The step must ask a webhook, besides those that it has answers of.
    Call(Box<Call>, Vec<Answer>),
    Sleep(Duration),
}

/// Lets the controllers work until the door closes.
pub(crate) async fn work(door: Arc<Door>) -> Result<()> {
    let mut clusters = door.current.subscribe();
    let mut waiting = JoinSet::new();
    let mut answers = Vec::new();
    loop {
        clusters.mark_unchanged();
        let given = std::mem::take(&mut answers);
        match door.current.change(|cluster| turn(cluster, given)).unwrap_or(Turn::Sleep(PAUSE)) {
            Turn::Worked => tokio::task::yield_now().await,
            // A step that asks without end is made anew later.
            Turn::Call(_, given) if given.len() >= MAX_CALLS => {}
            Turn::Call(call, given) => drop(waiting.spawn(ask(Arc::clone(&door), call, given))),
            Turn::Sleep(duration) => {
                tokio::select! {
                    changed = clusters.changed() => changed.map_err(|_| anyhow!("the cluster is gone"))?,
                    () = sleep(duration.min(MAX_SLEEP)) => {}
                    Some(answered) = waiting.join_next() => answers = answered.context("ask a webhook")?,
                    () = door.closed() => return std::future::pending().await,
                }
            }
        }
        if answers.is_empty() {
            let full = waiting.len() >= MAX_WAITING;
            let answered = if full { waiting.join_next().await } else { waiting.try_join_next() };
            answers = answered.transpose().context("ask a webhook")?.unwrap_or_default();
        }
    }
}

async fn ask(door: Arc<Door>, call: Box<Call>, mut answers: Vec<Answer>) -> Vec<Answer> {
    let result = door.webhooks.call(&call, &door.current.snapshot()).await;
    answers.push(Answer { call: *call, result });
    answers
}

/// Steps for a while, first the one that has answers.
fn turn(cluster: &mut Cluster, mut answers: Vec<Answer>) -> Turn {
    let began = Instant::now();
    loop {
        match step(cluster, &answers) {
            Err(Panicked) => return Turn::Sleep(PAUSE),
            Ok(Reply::Done(Step::Worked)) if began.elapsed() < TURN => answers.clear(),
            Ok(Reply::Done(Step::Worked)) => return Turn::Worked,
            Ok(Reply::Done(Step::Idle(due))) => return Turn::Sleep(due.map_or(MAX_SLEEP, clock::until)),
            Ok(Reply::Call(call)) => return Turn::Call(call, answers),
        }
    }
}

/// One step; a key whose controller panics is put off, so that it is not in the way of the others.
fn step(cluster: &mut Cluster, answers: &[Answer]) -> Result<Reply<Step>, Panicked> {
    let (before, now) = (cluster.clone(), clock::now());
    guard(|| cluster.step(answers, now)).or_else(|_| {
        *cluster = before;
        // One that has answers waits already.
        let put_off = if answers.is_empty() { guard(|| cluster.put_off(now)) } else { Ok(()) };
        put_off.map(|()| Reply::Done(Step::Worked))
    })
}
