//! Places and waiting connections as values: addresses and numbers in, choices out.

use std::net::Ipv4Addr;

use super::*;

fn peer(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

/// So many connections of a peer, each idle since another moment, beginning with this one.
fn idle(of: u8, count: usize, from: u64) -> Vec<Open> {
    (0..count as u64).map(|number| Open { peer: peer(of), idle_since: Some(from + number) }).collect()
}

fn busy(of: u8, count: usize) -> Vec<Open> {
    vec![Open { peer: peer(of), idle_since: None }; count]
}

#[test]
fn a_peer_has_its_part_of_the_places_and_closes_its_own_oldest_one_for_a_newer_one() {
    assert_eq!(choose(peer(1), &idle(1, MAX_OF_PEER - 1, 0)), Choice::Free);
    assert_eq!(choose(peer(1), &idle(1, MAX_OF_PEER, 7)), Choice::InsteadOf(0));
    assert_eq!(choose(peer(1), &busy(1, MAX_OF_PEER)), Choice::Wait);
    let open = [idle(2, 1, 0), busy(1, MAX_OF_PEER)].concat();
    assert_eq!(choose(peer(1), &open), Choice::Wait, "another peer's connection is not closed for it");
    assert_eq!(choose(peer(2), &open), Choice::Free);
}

#[test]
fn of_a_full_listener_the_peer_with_the_most_connections_gives_way_also_when_another_was_idle_longer() {
    let open = [idle(1, 90, 100), idle(2, 38, 0)].concat();
    assert_eq!(open.len(), MAX_CONNECTIONS);
    assert_eq!(choose(peer(3), &open), Choice::InsteadOf(0), "the first of the 90");
    assert_eq!(choose(peer(2), &open), Choice::InsteadOf(0));
    assert_eq!(choose(peer(1), &open), Choice::InsteadOf(0), "of its own");
}

#[test]
fn of_a_full_listener_a_peer_with_few_connections_loses_none_to_one_with_more() {
    let open = [busy(1, 90), idle(2, 38, 0)].concat();
    assert_eq!(choose(peer(1), &open), Choice::Wait);
    assert_eq!(choose(peer(3), &open), Choice::InsteadOf(90), "one with none yet has its first");
}

#[test]
fn a_peer_that_opens_connections_without_end_ends_with_its_part_beside_others() {
    let mut open = idle(2, 20, 0);
    for number in 0..1_000 {
        match choose(peer(1), &open) {
            Choice::Free => {}
            Choice::InsteadOf(index) => drop(open.swap_remove(index)),
            Choice::Wait => panic!("its own are idle"),
        }
        open.push(Open { peer: peer(1), idle_since: Some(1_000 + number) });
    }
    let of = |number| open.iter().filter(|connection| connection.peer == peer(number)).count();
    assert_eq!((of(1), of(2)), (MAX_OF_PEER, 20));
}

#[test]
fn the_connections_that_wait_have_a_bound_for_each_peer_and_in_all_and_an_end() {
    let begin = Instant::now();
    let mut waiting = Waiting::new();
    for number in 0..MAX_WAITING_OF_PEER + 5 {
        waiting.add(begin, peer(1), number);
    }
    assert_eq!(waiting.of(peer(1)), MAX_WAITING_OF_PEER);
    assert_eq!(waiting.take(0), Some(5), "the oldest were dropped");
    for number in 0..200 {
        waiting.add(begin, peer(2), number);
    }
    assert_eq!((waiting.connections.len(), waiting.of(peer(2))), (MAX_WAITING, 200), "the peer with the most loses");
    assert_eq!(waiting.peer(MAX_WAITING - 1), Some(peer(2)));
    waiting.add(begin + LONGEST_WAIT, peer(3), 1);
    assert_eq!((waiting.connections.len(), waiting.peer(0)), (1, Some(peer(3))));
}
