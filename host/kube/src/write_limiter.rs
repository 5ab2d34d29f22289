//! Room for writes: how many may be in flight, together and for one writer. A write goes in with its writer's name and
//! waits for its turn; what is written is for others to know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Writes in flight. Each has a connection of its own, since kube's client speaks HTTP/1.1; more than the API server's
/// default of 200 mutating requests shared among all clients would only be answered 429.
const TOGETHER: usize = 64;
/// Of these, writes of one plugin. The writes of one kind may hang, in an admission webhook that is away, until they time
/// out; two such plugins leave the others a quarter. Alone, a plugin is not held up: at four milliseconds a write this is
/// six thousand a second, which no API server takes.
const OF_ONE: usize = 24;
/// Writers that are remembered before those without a write are forgotten.
const REMEMBERED: usize = 64;

/// Who is writing.
#[derive(Debug)]
pub(crate) struct WriteLimiter {
    together: Arc<Semaphore>,
    of_one: Mutex<BTreeMap<Arc<str>, Arc<Semaphore>>>,
}

/// A write's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _together: OwnedSemaphorePermit,
    _of_one: Option<OwnedSemaphorePermit>,
}

impl Default for WriteLimiter {
    fn default() -> Self {
        Self { together: Arc::new(Semaphore::new(TOGETHER)), of_one: Mutex::default() }
    }
}

impl WriteLimiter {
    /// Waits for a turn: first among the plugin's own writes, then among all. The host itself, which writes little, waits
    /// only with all.
    pub(crate) async fn enter(&self, plugin: Option<&Arc<str>>) -> Permit {
        let of_one = match plugin {
            Some(plugin) => Some(enter(self.room_of(plugin)).await),
            None => None,
        };
        Permit { _together: enter(Arc::clone(&self.together)).await, _of_one: of_one }
    }

    fn room_of(&self, plugin: &Arc<str>) -> Arc<Semaphore> {
        let mut write_limiter = self.of_one.lock().unwrap_or_else(PoisonError::into_inner);
        if write_limiter.len() > REMEMBERED {
            // Whoever waits or writes holds a room of its own.
            write_limiter.retain(|_, room| Arc::strong_count(room) > 1);
        }
        Arc::clone(write_limiter.entry(Arc::clone(plugin)).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE))))
    }
}

async fn enter(room: Arc<Semaphore>) -> OwnedSemaphorePermit {
    room.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A turn that is there without waiting.
    fn enter_now(write_limiter: &WriteLimiter, plugin: &str) -> Option<Permit> {
        let plugin = plugin.into();
        match pin!(write_limiter.enter(Some(&plugin))).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn q4_a_plugin_whose_writes_hang_leaves_room_for_others() {
        let write_limiter = WriteLimiter::default();
        let hanging =
            |plugin: &str| -> Vec<Permit> { std::iter::from_fn(|| enter_now(&write_limiter, plugin)).collect() };
        let (one, other) = (hanging("one"), hanging("other"));
        assert_eq!((one.len(), other.len()), (OF_ONE, OF_ONE));
        assert!(enter_now(&write_limiter, "third").is_some());
        drop(one);
        assert!(enter_now(&write_limiter, "one").is_some(), "a turn that has ended makes room");
    }

    #[test]
    fn plugins_that_write_no_more_are_forgotten() {
        let write_limiter = WriteLimiter::default();
        for plugin in 0..1_000 {
            drop(enter_now(&write_limiter, &plugin.to_string()));
        }
        assert!(write_limiter.of_one.lock().unwrap().len() <= REMEMBERED + 1);
    }
}
