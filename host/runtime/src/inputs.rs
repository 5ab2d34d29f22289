//! The queue before the event loop: bounded by the number of inputs, and by their bytes. Who delivers an input waits until there
//! is room for it, so that a flood reaches the watches, workers and requests that bring it, and not the memory.
//!
//! The loop never waits for who delivers, so nobody waits for ever. What is small waits for no bytes, such as a change of the
//! lead or of the memory that is left: it only has its turn. Nothing here knows what an input means.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use mortise_kube::sink::{Gone, Sink};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::input::Input;

#[cfg(test)]
mod tests;

/// Inputs in the queue. Some milliseconds of work, and some tens during lists, whose inputs have several objects: enough
/// that a list keeps the loop busy, few enough that a result behind it is not late.
pub(crate) const INPUTS: usize = 1_024;
/// Bytes of the inputs in the queue and of those that the loop has taken out and not handled yet: some of the largest outcomes,
/// or a thousand objects of 32 KiB, which the loop handles in tens of milliseconds. A larger input passes when it is alone.
pub(crate) const BYTES: u32 = 32 << 20;
/// Inputs of no more bytes are not counted: all that fit have four MiB together.
const SMALL: usize = 4 << 10;

/// An empty queue.
pub(crate) fn queue() -> (Inputs, Arrivals) {
    let (queue, arrived) = mpsc::channel(INPUTS);
    let room = Arc::new(Semaphore::new(BYTES as usize));
    (Inputs { queue, room: Arc::clone(&room) }, Arrivals { arrived, room })
}

/// Where inputs are delivered. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    queue: mpsc::Sender<Arrived>,
    room: Arc<Semaphore>,
}

/// An input with its room, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) input: Input,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl Inputs {
    /// Waits until there is room. An error means that the loop has ended.
    pub(crate) async fn send(&self, input: Input) -> Result<(), Gone> {
        let room = match self.room_of(&input)? {
            Room::Free(room) => room,
            Room::After(bytes) => Some(Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| Gone)?),
        };
        self.queue.send(Arrived { input, room }).await.map_err(|_| Gone)
    }

    /// The same on a thread of its own.
    pub(crate) fn blocking_send(&self, input: Input) -> Result<(), Gone> {
        let room = match self.room_of(&input)? {
            Room::Free(room) => room,
            Room::After(bytes) => Some(parked(Arc::clone(&self.room).acquire_many_owned(bytes)).map_err(|_| Gone)?),
        };
        self.queue.blocking_send(Arrived { input, room }).map_err(|_| Gone)
    }

    fn room_of(&self, input: &Input) -> Result<Room, Gone> {
        let bytes = input.bytes();
        if bytes <= SMALL {
            return Ok(Room::Free(None));
        }
        let bytes = u32::try_from(bytes).map_or(BYTES, |bytes| bytes.min(BYTES));
        match Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            Ok(room) => Ok(Room::Free(Some(room))),
            Err(tokio::sync::TryAcquireError::NoPermits) => Ok(Room::After(bytes)),
            Err(tokio::sync::TryAcquireError::Closed) => Err(Gone),
        }
    }
}

/// Room for an input.
enum Room {
    Free(Option<OwnedSemaphorePermit>),
    /// It waits for so many bytes. They are given in the order in which they are asked for, so a large input is not overtaken.
    After(u32),
}

impl Sink for Inputs {
    type Item = Input;

    async fn send(&self, input: Input) -> Result<(), Gone> {
        Self::send(self, input).await
    }

    async fn closed(&self) {
        self.queue.closed().await;
    }
}

/// The loop's end of the queue.
#[derive(Debug)]
pub(crate) struct Arrivals {
    arrived: mpsc::Receiver<Arrived>,
    room: Arc<Semaphore>,
}

impl Arrivals {
    /// As [`mpsc::Receiver::recv_many`].
    pub(crate) async fn recv_many(&mut self, batch: &mut Vec<Arrived>, most: usize) -> usize {
        self.arrived.recv_many(batch, most).await
    }

    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<Input> {
        self.arrived.try_recv().ok().map(|arrived| arrived.input)
    }

    #[cfg(test)]
    pub(crate) fn blocking_recv(&mut self) -> Option<Input> {
        self.arrived.blocking_recv().map(|arrived| arrived.input)
    }

    /// Inputs in the queue.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        // Those that wait for room hear of the end, as those that wait for a place do.
        self.room.close();
    }
}

/// Waits for a future on this thread.
fn parked<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (waker, mut future) = (Waker::from(Arc::new(Unpark(thread::current()))), pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
