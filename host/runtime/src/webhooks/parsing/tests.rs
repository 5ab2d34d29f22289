//! One I/O thread, and work that ends when the test says so.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::channel;

use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::testing::DEADLINE;
use crate::webhooks::capacity::Capacity;

fn permit() -> Arc<Permit> {
    let peer = IpAddr::from(Ipv4Addr::LOCALHOST).into();
    Capacity::default().begin(Class::Unverified, peer).whole("podset").unwrap().1
}

#[tokio::test]
async fn a_small_text_is_read_while_large_ones_are_and_of_these_a_few_are_at_once() {
    let parsing = Parsing::default();
    let mut large = Vec::new();
    let (begin, begun) = channel();
    for number in 0..LARGE_AT_ONCE + 1 {
        let (end, may_end) = channel::<()>();
        let (parsing, begin) = (parsing.clone(), begin.clone());
        let work = move || {
            begin.send(number).unwrap();
            // On the I/O thread it would never come.
            may_end.recv_timeout(DEADLINE).expect("a small text is read meanwhile");
            number
        };
        large.push((end, tokio::spawn(async move { parsing.run(SMALL_BYTES + 1, &permit(), work).await })));
    }
    let mut seen = Vec::new();
    while seen.len() < LARGE_AT_ONCE {
        yield_now().await;
        seen.extend(begun.try_iter());
    }
    assert_eq!(parsing.run(SMALL_BYTES, &permit(), || "read").await, "read");
    assert_eq!(begun.try_iter().count(), 0, "the third waits");
    for (number, (end, done)) in large.into_iter().enumerate() {
        end.send(()).unwrap();
        assert_eq!(timeout(DEADLINE, done).await.expect("it ends").unwrap(), number);
    }
}

#[tokio::test]
async fn work_whose_client_has_gone_away_keeps_its_permit_and_its_turn_until_it_ends() {
    let (parsing, permit) = (Parsing::default(), permit());
    let ((begin, begun), (end, may_end)) = (tokio::sync::oneshot::channel(), channel::<()>());
    let task = tokio::spawn({
        let (parsing, permit) = (parsing.clone(), Arc::clone(&permit));
        async move {
            let work = move || {
                begin.send(()).unwrap();
                may_end.recv_timeout(DEADLINE)
            };
            parsing.run(SMALL_BYTES + 1, &permit, work).await
        }
    });
    timeout(DEADLINE, begun).await.expect("it begins").unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!((parsing.turns.available_permits(), Arc::strong_count(&permit)), (LARGE_AT_ONCE - 1, 2));
    end.send(()).unwrap();
    let ended = async {
        let _all = parsing.turns.acquire_many(u32::try_from(LARGE_AT_ONCE).unwrap()).await.unwrap();
    };
    timeout(DEADLINE, ended).await.expect("its turn is free again");
}
