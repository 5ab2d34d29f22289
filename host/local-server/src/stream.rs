//! Watches on their way: one task for each sends what the cluster has for it. Input: a watch and the clusters that follow one
//! another. Output: chunks of JSON lines. It must not know what is watched.

use std::sync::Arc;

use bytes::Bytes;
use mortise_local_cluster::{Cluster, Frame, Watch};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::clock;
use crate::current::guard;

/// Chunks that wait for a client. A slow one is behind in the log of changes then, which has a bound of its own.
pub(crate) const MAX_CHUNKS: usize = 8;

/// Sends until the watch ends or the client leaves.
pub(crate) async fn send(mut watch: Watch, mut clusters: watch::Receiver<Arc<Cluster>>, chunks: mpsc::Sender<Bytes>) {
    loop {
        let cluster = Arc::clone(&clusters.borrow_and_update());
        loop {
            // Of a watch that panics nothing more can be said.
            let Ok(frames) = guard(|| cluster.poll(&mut watch, clock::now())) else { return };
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

fn encode(frames: &[Frame]) -> Bytes {
    let mut lines = Vec::new();
    for frame in frames {
        if let Frame::Event(value) = frame {
            serde_json::to_writer(&mut lines, value).expect("a JSON value is written to memory");
            lines.push(b'\n');
        }
    }
    lines.into()
}
