//! Who waits for room in the queue, and who does not.

use std::time::Duration;

use mortise_core::event::Event;
use mortise_core::http::{HttpId, Response, Sent};
use mortise_core::memory::{Level, Pressure};
use tokio::time::timeout;

use super::*;
use crate::allocations::counted;
use crate::testing::{DEADLINE, check_counted};

/// An input of so many bytes and a little more.
fn large(bytes: usize) -> Input {
    let response = Response { status: 200, headers: Vec::new(), body: vec![0; bytes].into() };
    Input::Event(Event::HttpDone(HttpId(1), Sent::Response(response)))
}

/// Whether an input is delivered at once.
async fn passes(inputs: &Inputs, input: Input) -> bool {
    timeout(Duration::ZERO, inputs.send(input)).await.is_ok()
}

async fn take_one(arrivals: &mut Arrivals) -> Arrived {
    let mut batch = Vec::new();
    assert_eq!(timeout(DEADLINE, arrivals.recv_many(&mut batch, 1)).await.expect("one is there"), 1);
    batch.pop().unwrap()
}

/// A quarter of the room, as an allocator gives it.
const QUARTER: usize = BYTES as usize / 4 - 64;

#[tokio::test]
async fn q4_what_has_many_bytes_waits_for_room_and_the_lead_and_the_memory_do_not() {
    let (inputs, mut arrivals) = queue();
    for _ in 0..4 {
        assert!(passes(&inputs, large(QUARTER)).await);
    }
    assert!(!passes(&inputs, large(QUARTER)).await, "the fifth waits");
    assert!(passes(&inputs, Input::Event(Event::LeaseChanged { claim_until_ms: None })).await);
    let scarce = Event::MemoryPressure(Pressure { level: Level::Scarce, excess_bytes: 1 });
    assert!(passes(&inputs, Input::Event(scarce)).await);
    let first = take_one(&mut arrivals).await;
    assert!(!passes(&inputs, large(QUARTER)).await, "the loop handles it, so it is in memory still");
    drop(first);
    assert!(passes(&inputs, large(QUARTER)).await);
}

#[test]
fn q4_as_many_inputs_as_wait_at_once_have_the_bytes_that_are_counted() {
    let small = SMALL - large(0).bytes();
    for (name, bytes, waiting) in [
        ("inputs: four with a quarter of the room each", QUARTER, 4),
        ("inputs: a thousand of a little more than 28 KiB", (28 << 10) + 1, 1_000),
    ] {
        let (count, (inputs, arrivals)) = counted(|| {
            let (inputs, arrivals) = queue();
            (0..waiting).for_each(|_| inputs.blocking_send(large(bytes)).unwrap());
            (inputs, arrivals)
        });
        check_counted(name, BYTES as usize - inputs.room.available_permits(), &count);
        assert_eq!(arrivals.len(), waiting);
    }
    // Those that are too small to be counted have four MiB, and the places of the queue.
    let (count, (inputs, _arrivals)) = counted(|| {
        let (inputs, arrivals) = queue();
        (0..INPUTS).for_each(|_| inputs.blocking_send(large(small)).unwrap());
        (inputs, arrivals)
    });
    assert_eq!(inputs.room.available_permits(), BYTES as usize, "none is counted");
    check_counted("inputs: as many small ones as fit", INPUTS * SMALL, &count);
}

#[tokio::test]
async fn q4_what_is_larger_than_all_the_room_passes_when_it_is_alone_and_is_not_overtaken() {
    let (inputs, mut arrivals) = queue();
    assert!(passes(&inputs, large(QUARTER)).await);
    let larger = tokio::spawn({
        let inputs = inputs.clone();
        async move { inputs.send(large(2 * BYTES as usize)).await }
    });
    // It waits for all of the room from when a smaller one finds none.
    let begins = async {
        while passes(&inputs, large(QUARTER)).await {
            drop(take_one(&mut arrivals).await);
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, begins).await.expect("the larger one waits");
    drop(take_one(&mut arrivals).await);
    assert_eq!(timeout(DEADLINE, larger).await.unwrap().unwrap(), Ok(()));
    assert!(!passes(&inputs, large(QUARTER)).await, "it has all the room");
    drop(take_one(&mut arrivals).await);
    assert!(passes(&inputs, large(QUARTER)).await);
}

#[test]
fn q4_threads_and_tasks_that_wait_for_room_go_on_when_the_loop_takes_inputs_and_when_it_ends() {
    let (inputs, mut arrivals) = queue();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let inputs = inputs.clone();
            thread::spawn(move || (0..8).try_for_each(|_| inputs.blocking_send(large(QUARTER))))
        })
        .collect();
    runtime.block_on(async {
        for _ in 0..64 {
            drop(take_one(&mut arrivals).await);
        }
    });
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Ok(()));
    }
    for _ in 0..4 {
        inputs.blocking_send(large(QUARTER)).unwrap();
    }
    let waits = thread::spawn({
        let inputs = inputs.clone();
        move || inputs.blocking_send(large(QUARTER))
    });
    drop(arrivals);
    assert_eq!(waits.join().unwrap(), Err(Gone));
    assert_eq!(inputs.blocking_send(large(QUARTER)), Err(Gone));
    assert_eq!(runtime.block_on(inputs.send(Input::Event(Event::Tick))), Err(Gone));
}
