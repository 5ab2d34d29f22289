//! Peers, pieces and moments in; what there is room for out.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::allocations::counted;
use crate::testing::check_counted;

const LIMITS: Limits = Limits { all: 32 << 20, of_peer: 24 << 20 };
const LARGE: usize = 8 << 20;

fn peer(number: u16) -> Peer {
    let [high, low] = number.to_be_bytes();
    IpAddr::from(Ipv4Addr::new(10, 0, high, low)).into()
}

/// A room, and a clock.
struct World {
    room: Room,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self { room: Room::new(LIMITS), now: Instant::now() }
    }

    /// A request of which so much arrives.
    fn arrives(&mut self, of: u16, bytes: usize) -> (Id, bool) {
        let id = self.room.begin(peer(of), self.now);
        (id, self.more(id, bytes))
    }

    fn more(&mut self, id: Id, bytes: usize) -> bool {
        self.room.arrived(id, &vec![b' '; bytes], self.now)
    }

    fn whole(&mut self, id: Id) -> Option<Vec<u8>> {
        self.room.whole(id, Arc::default())
    }

    /// A request of so much, which waits to be answered.
    fn waits(&mut self, of: u16, bytes: usize) -> Id {
        let (id, is_there) = self.arrives(of, bytes);
        assert!(is_there && self.whole(id).is_some(), "{bytes} bytes of {of}");
        id
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

#[test]
fn what_is_counted_is_what_a_body_has_of_the_allocator_and_at_most_half_more_than_has_arrived() {
    let mut world = World::new();
    let (id, is_there) = world.arrives(1, 0);
    assert!(is_there && world.room.bytes() <= LEAST_CAPACITY, "nothing is reserved for what is declared");
    for piece in [1, 1, 5_000, 16 << 10, 100_000, 1 << 20, 6 << 20] {
        assert!(world.more(id, piece));
        let Stage::Arriving(body) = &world.room.held[&id].stage else { panic!("it is whole") };
        assert_eq!(world.room.bytes(), body.capacity());
        assert!(body.capacity() <= (body.len() + body.len() / 2).max(LEAST_CAPACITY) && body.capacity() <= LARGE);
    }
    let body = world.whole(id).unwrap();
    assert_eq!((body.len(), world.room.bytes()), (2 + 5_000 + (16 << 10) + 100_000 + (7 << 20), body.capacity()));
    assert!(world.room.set(id, 10, world.now) && world.room.bytes() == 10);
    world.room.end(id);
    assert!(world.room.bytes() == 0 && world.room.by_peer.is_empty() && world.room.held.is_empty());
}

/// What a request has beside its body: its nodes of trees, and its peer's. There are as many as places.
const OF_REQUEST: usize = 256;

/// A body of a byte more than the allocator has a size for had a quarter more than was counted.
#[test]
fn q4_bodies_of_any_size_have_the_bytes_that_are_counted() {
    for (name, bytes, bodies) in [
        ("bodies: 112 of a byte", 1, 112),
        ("bodies: 112 of a byte more than 32 KiB", (32 << 10) + 1, 112),
        ("bodies: three of a byte more than 4 MiB", (4 << 20) + 1, 3),
        ("bodies: three of 8 MiB", LARGE, 3),
    ] {
        let (count, world) = counted(|| {
            let mut world = World::new();
            for number in 0..bodies {
                assert!(world.arrives(number, bytes).1, "{name}");
            }
            world
        });
        check_counted(name, world.room.bytes() + usize::from(bodies) * OF_REQUEST, &count);
    }
}

#[test]
fn a_body_that_is_incomplete_for_a_second_gives_way_the_oldest_first_and_one_that_is_whole_does_not() {
    let mut world = World::new();
    let (whole, _) = world.arrives(1, LARGE);
    world.whole(whole).unwrap();
    let (older, _) = world.arrives(2, LARGE);
    let (newer, _) = world.arrives(3, LARGE);
    world.pass(GIVES_WAY - Duration::from_nanos(1));
    assert!(!world.arrives(4, LARGE).1, "none is late");
    world.pass(Duration::from_nanos(1));
    let (fourth, is_there) = world.arrives(4, LARGE);
    assert!(is_there && world.whole(older).is_none() && !world.more(older, 1));
    assert!(world.more(newer, 0) && world.whole(newer).is_some());
    assert!(world.whole(fourth).is_some());
    world.pass(GIVES_WAY);
    assert!(!world.arrives(5, LARGE).1, "three are being answered, of peers that have no more than it");
    assert!(world.arrives(6, SMALL_BYTES).1, "a small one has its own");
}

/// However many peers send as much as they can at any moment, an honest review of a usual size arrives.
#[test]
fn q4_a_small_body_of_a_new_peer_arrives_whatever_a_thousand_peers_send() {
    for size in [100, 40_000, SMALL_BYTES + 1, 1 << 20, LARGE] {
        let mut world = World::new();
        for number in 10..1_010 {
            world.arrives(number, size);
            if number % 7 == 0 {
                world.pass(Duration::from_millis(1));
            }
        }
        let (id, is_there) = world.arrives(1, 10_000);
        assert!(is_there && world.whole(id).is_some(), "beside bodies of {size}");
        assert!(world.room.bytes() <= LIMITS.all);
    }
    // Bodies that are whole, as many as there are places for.
    let mut world = World::new();
    for number in 10..122 {
        let (id, _) = world.arrives(number, SMALL_BYTES);
        world.whole(id).unwrap();
    }
    for number in 200..1_200 {
        let (id, is_there) = world.arrives(number, LARGE);
        if is_there {
            world.whole(id).unwrap();
        }
    }
    assert!(world.arrives(1, 10_000).1 && world.room.bytes() <= LIMITS.all);
}

#[test]
fn a_peer_has_its_part_and_gives_way_to_itself_alone_when_it_has_it() {
    let mut world = World::new();
    let bodies: Vec<Id> = (0..2).map(|_| world.arrives(1, LARGE).0).collect();
    let (third, _) = world.arrives(1, LARGE - 10_000);
    assert!(world.more(third, 10_000) && !world.arrives(1, 1_000_000).1, "it has its part");
    let (other, is_there) = world.arrives(2, 10_000);
    assert!(is_there);
    world.pass(GIVES_WAY);
    assert!(world.arrives(1, LARGE).1 && world.whole(bodies[0]).is_none() && world.whole(other).is_some());
}

#[test]
fn a_response_that_is_not_read_for_a_second_gives_way_and_its_connection_is_closed() {
    let mut world = World::new();
    let connections: Vec<Arc<Notify>> = (0..3).map(|_| Arc::default()).collect();
    for (number, connection) in (0..).zip(&connections) {
        let (id, _) = world.arrives(10 + number, 1_000);
        world.whole(id).unwrap();
        assert!(world.room.unread(id, LARGE, Arc::clone(connection), world.now));
    }
    assert_eq!(world.room.bytes(), 3 * LARGE, "its body is kept no more");
    assert!(!world.arrives(1, LARGE).1);
    world.pass(GIVES_WAY);
    assert!(world.arrives(1, LARGE).1);
    assert!(has_notice(&connections[0]) && !has_notice(&connections[1]));
}

fn has_notice(notice: &Notify) -> bool {
    let waker = std::task::Waker::noop();
    std::pin::pin!(notice.notified()).poll(&mut std::task::Context::from_waker(waker)).is_ready()
}

/// Two peers had all large requests, and a third one had none.
#[test]
fn q4_what_is_whole_and_waits_gives_way_to_a_peer_that_has_less_and_what_is_worked_on_does_not() {
    let mut world = World::new();
    let given_way: [Arc<Notify>; 3] = Default::default();
    let [worked_on, first, second] = [0, 1, 2].map(|number: usize| {
        let (id, is_there) = world.arrives(1, LARGE);
        assert!(is_there && world.room.whole(id, Arc::clone(&given_way[number])).is_some());
        world.pass(Duration::from_millis(1));
        id
    });
    assert!(world.room.begin_work(worked_on));
    let (large, is_there) = world.arrives(2, LARGE);
    assert!(is_there && world.whole(large).is_some());
    assert_eq!(given_way.each_ref().map(|notice| has_notice(notice)), [false, true, false], "the oldest that waits");
    assert!(!world.room.begin_work(first), "it is refused, and nobody begins with it");
    // Two peers have all of it again. The one that has more gives way.
    assert!(world.arrives(3, 1 << 20).1 && has_notice(&given_way[2]));
    assert!(!world.room.begin_work(second));
    assert!(!world.arrives(4, 2 * LARGE).1 && world.room.held.contains_key(&large), "equals do not give way");
    world.room.end_work(worked_on);
    world.waits(5, 1 << 20);
    assert!(world.room.bytes() <= LIMITS.all - FOR_SMALL);
}

#[test]
fn q4_however_many_peers_have_whole_large_requests_one_that_has_less_has_its_own() {
    for size in [SMALL_BYTES + 1, 1 << 20, LARGE] {
        let mut world = World::new();
        for number in 10..1_010 {
            let (id, is_there) = world.arrives(number, size);
            if is_there {
                world.whole(id).unwrap();
            }
        }
        assert!(world.room.bytes() > LIMITS.all - FOR_SMALL - 2 * size);
        world.waits(1, size / 2);
    }
}

#[test]
fn the_more_peers_the_less_has_each_of_large_requests_as_their_requests_end() {
    let limits = Limits { all: 48 << 20, of_peer: 32 << 20 };
    let (mut world, piece) = (World { room: Room::new(limits), now: Instant::now() }, given(100_000));
    let begin = |world: &mut World, of| {
        let (id, is_there) = world.arrives(of, piece);
        world.whole(id);
        // All are being answered, so none gives way.
        is_there && world.room.begin_work(id)
    };
    let mut alone = 0;
    while begin(&mut world, 1) {
        alone += 1;
    }
    assert_eq!(alone, limits.of_peer / piece);
    for _ in 0..2 * alone {
        let oldest = *world.room.held.first_key_value().unwrap().0;
        world.room.end(oldest);
        for of in [1, 2, 3] {
            begin(&mut world, of);
        }
    }
    let shares: Vec<usize> = (1..=3).map(|of| world.room.by_peer[&peer(of)] / piece).collect();
    let fair = 4 * (limits.all - FOR_SMALL) / 13 / piece;
    assert!(shares.iter().all(|share| share.abs_diff(fair) <= 3), "{shares:?} of {fair}");
}

#[test]
fn nobody_gives_way_where_that_makes_no_room() {
    let mut world = World::new();
    let [first, second] = [1, 2].map(|of| world.waits(of, LARGE));
    assert!(world.room.begin_work(first));
    let late = world.arrives(3, LARGE).0;
    world.pass(GIVES_WAY);
    let id = world.room.begin(peer(4), world.now);
    assert!(!world.room.grow(id, 2 * LARGE + 1, world.now), "the late one is not enough");
    assert!(world.room.held.contains_key(&late) && world.room.held.contains_key(&second));
    assert!(world.room.grow(id, LARGE, world.now) && !world.room.held.contains_key(&late));
}
