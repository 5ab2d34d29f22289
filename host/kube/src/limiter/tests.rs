//! Permits through futures: who waits, and callers that stop waiting.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// All the permits that a plugin gets without waiting.
fn hanging(limiter: &WriteLimiter, plugin: &str) -> Vec<Permit<Option<Arc<str>>>> {
    let enter = || match poll(limiter.enter(Some(plugin.into()))) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    };
    std::iter::from_fn(enter).collect()
}

#[test]
fn q4_a_plugin_whose_writes_hang_leaves_room_for_others() {
    let limiter = WriteLimiter::of_writes();
    let hung: Vec<_> = (0..100).map(|plugin| hanging(&limiter, &plugin.to_string())).collect();
    assert!(hung.iter().all(|permits| !permits.is_empty()));
    assert!(!hanging(&limiter, "another").is_empty());
    assert!(poll(limiter.enter(None)).is_ready(), "the host's own write");
}

#[test]
fn a_permit_that_is_dropped_wakes_the_next() {
    let limiter = WriteLimiter::of_writes();
    let mut permits = hanging(&limiter, "one");
    let mut next = pin!(limiter.enter(Some("one".into())));
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    permits.pop();
    assert!(next.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_caller_that_stops_waiting_delays_no_other_even_after_its_permit_was_granted() {
    let limiter = WriteLimiter::of_writes();
    let mut permits = hanging(&limiter, "one");
    let mut context = Context::from_waker(Waker::noop());
    let mut wait = || {
        let mut waiting = Box::pin(limiter.enter(Some("one".into())));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        waiting
    };
    let (stops_waiting, has_been_granted, mut last) = (wait(), wait(), wait());
    drop(stops_waiting);
    permits.pop();
    drop(has_been_granted);
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop((last, permits));
    assert!(limiter.lock().waiting.is_empty());
}

#[tokio::test]
async fn q4_a_write_that_took_longer_than_a_small_one_keeps_its_permit_when_it_has_ended() {
    let limiter = WriteLimiter::of_writes();
    let all = hanging(&limiter, "one");
    let count = all.len();
    drop(all);
    let large = hanging(&limiter, "one");
    assert_eq!(large.len(), count, "small ones leave at once");
    tokio::time::sleep(Duration::from_millis(75)).await;
    let begin = Instant::now();
    drop(large);
    let next = tokio::time::timeout(Duration::from_secs(30), limiter.enter(Some("one".into()))).await;
    assert!(next.is_ok() && begin.elapsed() >= Duration::from_millis(50), "{:?}", begin.elapsed());
}

#[test]
fn a_permit_that_is_kept_is_free_when_the_runtime_has_ended() {
    let (limiter, runtime) = (WriteLimiter::of_writes(), tokio::runtime::Runtime::new().unwrap());
    let large = hanging(&limiter, "one");
    std::thread::sleep(Duration::from_millis(75));
    runtime.block_on(async { drop(large) });
    assert!(hanging(&limiter, "one").is_empty(), "they are kept");
    drop(runtime);
    assert!(!hanging(&limiter, "one").is_empty());
}
