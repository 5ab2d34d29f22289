//! Peers, pieces and moments in; what there is room for out.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

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
    let body = world.room.whole(id).unwrap();
    assert_eq!((body.len(), world.room.bytes()), (2 + 5_000 + (16 << 10) + 100_000 + (7 << 20), body.capacity()));
    assert!(world.room.set(id, 10, world.now) && world.room.bytes() == 10);
    world.room.end(id);
    assert!(world.room.bytes() == 0 && world.room.by_peer.is_empty() && world.room.held.is_empty());
}

#[test]
fn a_body_that_is_incomplete_for_a_second_gives_way_the_oldest_first_and_one_that_is_whole_does_not() {
    let mut world = World::new();
    let (whole, _) = world.arrives(1, LARGE);
    world.room.whole(whole).unwrap();
    let (older, _) = world.arrives(2, LARGE);
    let (newer, _) = world.arrives(3, LARGE);
    world.pass(GIVES_WAY - Duration::from_nanos(1));
    assert!(!world.arrives(4, LARGE).1, "none is late");
    world.pass(Duration::from_nanos(1));
    let (fourth, is_there) = world.arrives(4, LARGE);
    assert!(is_there && world.room.whole(older).is_none() && !world.more(older, 1));
    assert!(world.more(newer, 0) && world.room.whole(newer).is_some());
    assert!(world.room.whole(fourth).is_some());
    world.pass(GIVES_WAY);
    assert!(!world.arrives(5, LARGE).1, "three are being answered");
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
        assert!(is_there && world.room.whole(id).is_some(), "beside bodies of {size}");
        assert!(world.room.bytes() <= LIMITS.all);
    }
    // Bodies that are whole, as many as there are places for.
    let mut world = World::new();
    for number in 10..122 {
        let (id, _) = world.arrives(number, SMALL_BYTES);
        world.room.whole(id).unwrap();
    }
    for number in 200..1_200 {
        let (id, is_there) = world.arrives(number, LARGE);
        if is_there {
            world.room.whole(id).unwrap();
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
    assert!(world.arrives(1, LARGE).1 && world.room.whole(bodies[0]).is_none() && world.room.whole(other).is_some());
}

#[test]
fn a_response_that_is_not_read_for_a_second_gives_way_and_its_connection_is_closed() {
    let mut world = World::new();
    let connections: Vec<Arc<Notify>> = (0..3).map(|_| Arc::default()).collect();
    for (number, connection) in (0..).zip(&connections) {
        let (id, _) = world.arrives(10 + number, 1_000);
        world.room.whole(id).unwrap();
        assert!(world.room.unread(id, LARGE, Arc::clone(connection), world.now));
    }
    assert_eq!(world.room.bytes(), 3 * LARGE, "its body is kept no more");
    assert!(!world.arrives(1, LARGE).1);
    world.pass(GIVES_WAY);
    assert!(world.arrives(1, LARGE).1);
    let mut closed = Box::pin(connections[0].notified());
    let waker = std::task::Waker::noop();
    assert!(closed.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready());
}
