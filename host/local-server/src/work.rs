//! The controllers' time: they work after each change, and when something is due. Input: the cluster. Output: its changes. It
//! must not know what controllers do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use mortise_local_cluster::{Answer, Call, Cluster, Reply, Step};
use tokio::time::sleep;

use crate::clock;
use crate::exchange::{Door, MAX_CALLS};

/// How long the controllers work at a time; requests wait so long at most.
const TURN: Duration = Duration::from_millis(2);
/// The pause after a step that panicked or asked too many webhooks: it would do so again at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep: the clock of the machine may be set.
const MAX_SLEEP: Duration = Duration::from_secs(60);

enum Turn {
    Worked,
    Call(Box<Call>),
    Sleep(Duration),
}

/// Lets the controllers work until the door closes.
pub(crate) async fn work(door: Arc<Door>) -> Result<()> {
    let mut clusters = door.current.subscribe();
    let mut answers = Vec::new();
    loop {
        clusters.mark_unchanged();
        match door.current.change(|cluster| turn(cluster, &answers)).unwrap_or(Turn::Sleep(PAUSE)) {
            Turn::Worked => {
                answers.clear();
                tokio::task::yield_now().await;
            }
            Turn::Call(_) if answers.len() >= MAX_CALLS => {
                answers.clear();
                sleep(PAUSE).await;
            }
            Turn::Call(call) => {
                let result = door.webhooks.call(&call, &door.current.snapshot()).await;
                answers.push(Answer { call: *call, result });
            }
            Turn::Sleep(duration) => {
                answers.clear();
                tokio::select! {
                    changed = clusters.changed() => changed.map_err(|_| anyhow!("the cluster is gone"))?,
                    () = sleep(duration.min(MAX_SLEEP)) => {}
                    () = door.closed() => return std::future::pending().await,
                }
            }
        }
    }
}

fn turn(cluster: &mut Cluster, answers: &[Answer]) -> Turn {
    let began = Instant::now();
    let mut answers = answers;
    loop {
        match cluster.step(answers, clock::now()) {
            Reply::Done(Step::Worked) if began.elapsed() < TURN => answers = &[],
            Reply::Done(Step::Worked) => return Turn::Worked,
            Reply::Done(Step::Idle(due)) => return Turn::Sleep(due.map_or(MAX_SLEEP, clock::until)),
            Reply::Call(call) => return Turn::Call(call),
        }
    }
}
