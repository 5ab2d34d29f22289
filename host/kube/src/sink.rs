//! Where watches and lists send what they find. It must not know what that is.

use thiserror::Error;
use tokio::sync::mpsc;

/// Takes items in order; who sends waits until there is room.
pub trait Sink: Send + Sync {
    /// What it takes.
    type Item: Send;

    /// Sends an item when there is room for it.
    ///
    /// # Errors
    /// The receiver is gone.
    fn send(&self, item: Self::Item) -> impl Future<Output = Result<(), Gone>> + Send;

    /// Returns when the receiver is gone.
    fn closed(&self) -> impl Future<Output = ()> + Send;
}

/// The receiver is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the receiver is gone")]
pub struct Gone;

impl<T: Send> Sink for mpsc::Sender<T> {
    type Item = T;

    async fn send(&self, item: T) -> Result<(), Gone> {
        Self::send(self, item).await.map_err(|_| Gone)
    }

    async fn closed(&self) {
        Self::closed(self).await;
    }
}
