//! Watches on their way: one task for each sends what the cluster has for it. Input: a watch and the clusters that follow one
//! another. Output: chunks of JSON lines. It must not know what is watched.

use std::sync::Arc;

use bytes::Bytes;
use mortise_local_cluster::{Answer, Cluster, Frame, Reply, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::clock;
use crate::current::guard;
use crate::webhook::{MAX_CALLS, Webhooks};

/// Chunks that wait for a client. A slow one is behind in the log of changes then, which has a bound of its own.
pub(crate) const MAX_CHUNKS: usize = 8;

/// Sends until the watch ends or the client leaves.
pub(crate) async fn send(
    webhooks: &Webhooks,
    mut watch: Watch,
    mut clusters: watch::Receiver<Arc<Cluster>>,
    chunks: mpsc::Sender<Bytes>,
) {
    loop {
        let cluster = Arc::clone(&clusters.borrow_and_update());
        loop {
            let Some(frames) = frames(webhooks, &cluster, &mut watch).await else { return };
            if frames.is_empty() {
                break;
            }
            let ends = frames.contains(&Frame::End);
            let chunk = encode(&frames);
            if !chunk.is_empty() && chunks.send(chunk).await.is_err() || ends {
                return;
            }
        }
        drop(cluster);
        tokio::select! {
            changed = clusters.changed() => if changed.is_err() { return },
            () = sleep(clock::until(watch.due())) => {}
            () = chunks.closed() => return,
        }
    }
}

/// What a watch has to send, converted by webhooks where that takes them. None of a watch that panics or asks without end:
/// nothing more can be said of it.
async fn frames(webhooks: &Webhooks, cluster: &Cluster, watch: &mut Watch) -> Option<Vec<Frame>> {
    let mut answers = Vec::new();
    while answers.len() <= MAX_CALLS {
        match guard(|| cluster.poll(watch, &answers, clock::now())).ok()? {
            Reply::Done(frames) => return Some(frames),
            Reply::Call(call) => {
                let result = webhooks.call(&call, cluster).await;
                answers.push(Answer { call: *call, result });
            }
        }
    }
    None
}

fn encode(frames: &[Frame]) -> Bytes {
    let mut lines = String::new();
    for frame in frames {
        if let Frame::Event(document) = frame {
            lines.push_str(document);
            lines.push('\n');
        }
    }
    lines.into()
}
