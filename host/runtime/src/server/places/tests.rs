//! Places and waiting connections as values: addresses and numbers in, choices out.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

fn peer(number: u16) -> Peer {
    let [high, low] = number.to_be_bytes();
    IpAddr::from(Ipv4Addr::new(10, 0, high, low)).into()
}

/// So many connections of a peer, each idle since another moment, beginning with this one.
fn idle(of: u16, count: usize, from: u64) -> Vec<Open> {
    (0..count as u64)
        .map(|number| Open { peer: peer(of), idle_since: Some(from + number), standing: Standing::New })
        .collect()
}

fn busy(of: u16, count: usize) -> Vec<Open> {
    vec![Open { peer: peer(of), idle_since: None, standing: Standing::New }; count]
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
    let open = [idle(1, 360, 100), idle(2, 152, 0)].concat();
    assert_eq!(open.len(), MAX_CONNECTIONS);
    assert_eq!(choose(peer(3), &open), Choice::InsteadOf(0), "the first of the 360");
    assert_eq!(choose(peer(2), &open), Choice::InsteadOf(0));
    assert_eq!(choose(peer(1), &open), Choice::InsteadOf(0), "of its own");
}

#[test]
fn of_a_full_listener_a_peer_with_few_connections_loses_none_to_one_with_more() {
    let open = [busy(1, 360), idle(2, 152, 0)].concat();
    assert_eq!(choose(peer(1), &open), Choice::Wait);
    assert_eq!(choose(peer(3), &open), Choice::InsteadOf(360), "one with none yet has its first");
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
        open.push(Open { peer: peer(1), idle_since: Some(1_000 + number), standing: Standing::New });
    }
    let of = |number| open.iter().filter(|connection| connection.peer == peer(number)).count();
    assert_eq!((of(1), of(2)), (MAX_OF_PEER, 20));
}

#[test]
fn a_thousand_peers_that_have_shown_nothing_close_no_connection_that_was_answered_or_verified() {
    let with = |of: u16, count, standing| idle(of, count, 0).into_iter().map(move |open| Open { standing, ..open });
    let mut open: Vec<_> = with(1, 30, Standing::Verified).chain(with(2, 30, Standing::Answered)).collect();
    for number in 10..1_010 {
        match choose(peer(number), &open) {
            Choice::Free => {}
            Choice::InsteadOf(index) => drop(open.swap_remove(index)),
            Choice::Wait => panic!("those before are idle"),
        }
        open.push(Open { peer: peer(number), idle_since: Some(u64::from(number)), standing: Standing::New });
    }
    let of = |number| open.iter().filter(|connection| connection.peer == peer(number)).count();
    assert_eq!((open.len(), of(1), of(2)), (MAX_CONNECTIONS, 30, 30));
    let Choice::InsteadOf(index) = choose(peer(1), &open) else { panic!("one that has shown nothing gives way") };
    assert_eq!(open[index].standing, Standing::New, "a peer that has shown something has more than one");
    // While every other one is in use, a new one waits.
    let open: Vec<_> = with(1, 30, Standing::Verified).chain(busy(2, MAX_CONNECTIONS - 30)).collect();
    assert_eq!(choose(peer(3), &open), Choice::Wait);
}

#[test]
fn connections_that_were_answered_give_way_beyond_half_of_the_places_and_those_that_were_verified_after_them() {
    let with = |of: u16, count, standing| idle(of, count, 0).into_iter().map(move |open| Open { standing, ..open });
    let rest = |count| busy(9, count).into_iter();
    let half: Vec<_> = with(1, KEPT, Standing::Answered).chain(rest(MAX_CONNECTIONS - KEPT)).collect();
    assert_eq!(choose(peer(3), &half), Choice::Wait);
    let more: Vec<_> = with(1, KEPT + 1, Standing::Answered).chain(rest(MAX_CONNECTIONS - KEPT - 1)).collect();
    assert_eq!(choose(peer(3), &more), Choice::InsteadOf(0));
    let verified = with(1, KEPT, Standing::Verified).chain(with(2, 1, Standing::Answered));
    let verified: Vec<_> = verified.chain(rest(MAX_CONNECTIONS - KEPT - 1)).collect();
    assert_eq!(choose(peer(3), &verified), Choice::InsteadOf(KEPT), "the one without a certificate");
    let all: Vec<_> = with(1, KEPT + 1, Standing::Verified).chain(rest(MAX_CONNECTIONS - KEPT - 1)).collect();
    assert_eq!(choose(peer(3), &all), Choice::InsteadOf(0));
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
    for number in 0..180 {
        waiting.add(begin, peer(2), number);
    }
    assert_eq!((waiting.connections.len(), waiting.of(peer(2))), (MAX_WAITING, 180), "the peer with the most loses");
    assert_eq!(waiting.peer(MAX_WAITING - 1), Some(peer(2)));
    let mut singles = Waiting::new();
    (0..=u16::try_from(MAX_WAITING).unwrap()).for_each(|number| singles.add(begin, peer(number), number));
    assert_eq!(
        (singles.connections.len(), singles.take(0)),
        (MAX_WAITING, Some(1)),
        "of equal ones the oldest is dropped"
    );
    waiting.add(begin + LONGEST_WAIT, peer(3), 1);
    assert_eq!((waiting.connections.len(), waiting.peer(0)), (1, Some(peer(3))));
}
