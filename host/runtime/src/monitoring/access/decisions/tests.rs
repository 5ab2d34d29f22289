//! Tokens, peers and moments in, decisions out.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

fn token(number: usize) -> Digest {
    Digest(number.to_string().into())
}

fn peer(number: u32) -> Peer {
    IpAddr::from(Ipv4Addr::from_bits(number)).into()
}

#[test]
fn a_decision_ends_and_one_that_refuses_ends_sooner() {
    let (begin, mut decisions) = (Instant::now(), Decisions::default());
    decisions.keep(token(1), Decision::Allowed, begin);
    decisions.keep(token(2), Decision::Denied("a".into()), begin);
    let just_before = |lifetime| begin + lifetime - Duration::from_nanos(1);
    assert_eq!(decisions.get(&token(1), just_before(ALLOWED)), Some(Decision::Allowed));
    assert_eq!(decisions.get(&token(1), begin + ALLOWED), None);
    assert_eq!(decisions.get(&token(2), just_before(REFUSED)), Some(Decision::Denied("a".into())));
    assert_eq!(decisions.get(&token(2), begin + REFUSED), None);
    decisions.keep(token(1), Decision::Unauthenticated, begin);
    assert_eq!(decisions.get(&token(1), begin), Some(Decision::Unauthenticated), "the last one holds");
}

#[test]
fn any_number_of_refused_tokens_is_kept_in_a_bound_and_pushes_out_no_allowed_one() {
    let (begin, mut decisions) = (Instant::now(), Decisions::default());
    decisions.keep(token(0), Decision::Allowed, begin);
    for number in 1..1_000 {
        decisions.keep(token(number), Decision::Unauthenticated, begin + Duration::from_micros(number as u64));
    }
    assert_eq!((decisions.allowed.len(), decisions.refused.len()), (1, MAX_DECISIONS));
    let now = begin + Duration::from_millis(1);
    assert_eq!(decisions.get(&token(0), now), Some(Decision::Allowed));
    assert_eq!(decisions.get(&token(999), now), Some(Decision::Unauthenticated));
    assert_eq!(decisions.get(&token(1), now), None, "the one that ends first was forgotten");
}

#[test]
fn a_peer_that_sends_token_after_token_asks_so_often_a_minute_and_another_peer_may_ask() {
    let (begin, mut decisions) = (Instant::now(), Decisions::default());
    let asked = (0..1_000).filter(|_| decisions.may_ask(peer(1), begin)).count();
    assert_eq!(asked, ASKS as usize);
    assert!(decisions.may_ask(peer(2), begin));
    assert!(decisions.may_ask(peer(1), begin + ASKS_WITHIN));
    for number in 0..5_000 {
        decisions.may_ask(peer(number), begin + ASKS_WITHIN);
    }
    assert_eq!(decisions.asks.len(), MAX_PEERS);
}
