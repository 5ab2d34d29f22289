//! Elections step by step: one or two hosts, one Lease, and times as numbers.

use super::*;

const START_MS: u64 = 1_000_000;

fn at(mono_ms: u64) -> Now {
    Now { mono_ms, unix_ms: 1_700_000_000_000 + mono_ms }
}

fn host(identity: &str) -> Election {
    Election::new("mortise-system", "mortise", identity)
}

/// An API server that holds one Lease.
#[derive(Default)]
struct Server {
    version: u64,
    lease: Option<Value>,
}

impl Server {
    fn read(&self) -> Option<Lease> {
        self.lease.as_ref().map(|object| Lease::parse(object.to_string().as_bytes()).unwrap())
    }

    fn write(&mut self, act: &Act) -> Result<Lease, WriteFailure> {
        let (Act::Create(object) | Act::Replace(object)) = act else { panic!("{act:?} is no write") };
        let known = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        if known(object) != self.lease.as_ref().map_or(Value::Null, known) {
            return Err(WriteFailure::Refused);
        }
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(object);
        Ok(self.read().unwrap())
    }

    /// Runs a host until it waits; every response takes `latency_ms`. Returns when it is due again.
    fn turn(&mut self, host: &mut Election, mut now_ms: u64, latency_ms: u64) -> u64 {
        // A read and a write at most.
        for _ in 0..3 {
            match host.next(at(now_ms)) {
                Act::WaitUntil(until_ms) => return until_ms,
                Act::Read => {
                    now_ms += latency_ms;
                    host.on_read(now_ms, 0, Ok(self.read()));
                }
                write => {
                    let sent_ms = now_ms;
                    now_ms += latency_ms;
                    host.on_written(sent_ms, now_ms, 0, self.write(&write));
                    return match host.next(at(now_ms)) {
                        Act::WaitUntil(until_ms) => until_ms,
                        _ => now_ms,
                    };
                }
            }
        }
        panic!("the host does not wait");
    }

    fn holder(&self) -> Arc<str> {
        Arc::clone(self.read().unwrap().holder())
    }
}

/// A host that leads since [`START_MS`].
fn leader() -> (Server, Election) {
    let (mut server, mut host) = (Server::default(), host("a"));
    server.turn(&mut host, START_MS, 0);
    assert_eq!(host.claim_until_ms(), Some(START_MS + LEASE_DURATION_MS));
    (server, host)
}

fn may_write(host: &Election, now_ms: u64) -> bool {
    Claim::of(host.claim_until_ms()).allows_writes(now_ms)
}

#[test]
fn a_free_lease_is_taken_and_the_claim_counts_from_before_the_request() {
    let (mut server, mut host) = (Server::default(), host("a"));
    let due_ms = server.turn(&mut host, START_MS, 400);
    // Read at the start, and written 400 ms later.
    assert_eq!(host.claim_until_ms(), Some(START_MS + 400 + LEASE_DURATION_MS));
    assert_eq!(due_ms, START_MS + 400 + RETRY_MS, "latency does not delay the next renewal");
    let lease = server.lease.unwrap();
    let spec = &lease["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("a"), &json!(15)));
    assert_eq!((&spec["leaseTransitions"], &spec["acquireTime"]), (&json!(0), &spec["renewTime"]));
}

#[test]
fn a_holder_that_renews_keeps_the_lease_and_one_that_does_not_loses_it_after_its_duration() {
    let (mut server, mut a) = leader();
    let mut b = host("b");
    let mut now_ms = START_MS + 1;
    for _ in 0..20 {
        server.turn(&mut a, now_ms, 1);
        let due_ms = server.turn(&mut b, now_ms + 10, 0);
        assert!(b.claim_until_ms().is_none() && due_ms == now_ms + 10 + RETRY_MS);
        now_ms += RETRY_MS;
    }
    assert_eq!(&*server.holder(), "a");
    // The last read saw the last renewal.
    let seen_ms = now_ms - RETRY_MS + 10;
    let mut due_ms = now_ms;
    while due_ms < seen_ms + LEASE_DURATION_MS {
        due_ms = server.turn(&mut b, due_ms, 0);
        assert!(b.claim_until_ms().is_none(), "taken at {due_ms}");
    }
    assert_eq!(due_ms, seen_ms + LEASE_DURATION_MS);
    server.turn(&mut b, due_ms, 0);
    assert!(b.claim_until_ms().is_some());
    assert_eq!(server.lease.as_ref().unwrap()["spec"]["leaseTransitions"], json!(1));
    // The claim of the old holder has ended before.
    assert!(a.claim_until_ms().unwrap() < due_ms);
}

#[test]
fn x7_a_holder_with_a_healthy_api_server_may_always_write() {
    for latency_ms in [0, 1, 50, 1_000, HEALTHY_MS] {
        let (mut server, mut host) = leader();
        let (mut now_ms, end_ms) = (START_MS + RETRY_MS, START_MS + 600_000);
        while now_ms < end_ms {
            // The claim is renewed when the response arrives.
            assert!(may_write(&host, now_ms + latency_ms), "latency {latency_ms} ms, at {now_ms}");
            let due_ms = server.turn(&mut host, now_ms, latency_ms);
            now_ms = due_ms.max(now_ms + latency_ms);
        }
    }
}

#[test]
fn x7_a_holder_that_cannot_renew_stops_writing_then_leading_and_only_then_may_another_take_over() {
    let (server, mut a) = leader();
    let mut b = host("b");
    // The candidate sees the Lease as soon as it is written.
    b.on_read(START_MS, 0, Ok(server.read()));
    let (mut wrote_until_ms, mut led_until_ms) = (0, 0);
    for now_ms in START_MS..=START_MS + 20_000 {
        match a.next(at(now_ms)) {
            Act::WaitUntil(_) => {}
            Act::Read => a.on_read(now_ms, 0, Err(())),
            Act::Create(_) | Act::Replace(_) => a.on_written(now_ms, now_ms, 0, Err(WriteFailure::Unknown)),
        }
        if may_write(&a, now_ms) {
            wrote_until_ms = now_ms;
        }
        if a.claim_until_ms().is_some() {
            led_until_ms = now_ms;
        }
        let taken = !matches!(b.next(at(now_ms)), Act::WaitUntil(_)) && {
            b.on_read(now_ms, 0, Ok(server.read()));
            matches!(b.next(at(now_ms)), Act::Replace(_))
        };
        assert_eq!(taken, now_ms >= START_MS + LEASE_DURATION_MS, "after {} ms", now_ms - START_MS);
        assert!(!taken || wrote_until_ms + WRITE_TIMEOUT_MS <= now_ms, "a write may still be under way");
    }
    assert_eq!(wrote_until_ms, START_MS + LEASE_DURATION_MS - WRITE_TIMEOUT_MS);
    assert_eq!(led_until_ms, START_MS + RENEW_DEADLINE_MS - 1);
}

#[test]
fn x7_a_holder_that_was_suspended_stops_leading_before_it_does_anything() {
    let (mut server, mut a) = leader();
    let late_ms = START_MS + 60_000;
    assert!(!may_write(&a, late_ms));
    // Also when the response to its last renewal is only read now.
    let renewal = a.next(at(START_MS + RETRY_MS));
    a.on_written(START_MS + RETRY_MS, late_ms, 0, server.write(&renewal));
    assert!(!may_write(&a, late_ms));
    assert_eq!(a.next(at(late_ms)), Act::Read);
    assert_eq!(a.claim_until_ms(), None);

    let mut b = host("b");
    server.turn(&mut b, START_MS + RETRY_MS, 0);
    server.turn(&mut b, START_MS + RETRY_MS + LEASE_DURATION_MS, 0);
    a.on_read(late_ms, 0, Ok(server.read()));
    assert_eq!((a.claim_until_ms(), &**a.holder().unwrap()), (None, "b"));
    assert!(matches!(a.next(at(late_ms)), Act::WaitUntil(_)));
}

#[test]
fn a_released_lease_is_taken_as_soon_as_the_watch_shows_it() {
    let (mut server, mut a) = leader();
    let mut b = host("b");
    let due_ms = server.turn(&mut b, START_MS + 5, 0);
    let now_ms = START_MS + 100;
    let released = a.release(at(now_ms)).expect("it has the Lease");
    server.write(&Act::Replace(released)).unwrap();
    assert_eq!((a.claim_until_ms(), &*server.holder()), (None, ""));
    assert!(a.release(at(now_ms)).is_none(), "it is released");

    assert!(now_ms < due_ms);
    b.on_observed(now_ms, Some("a"));
    assert!(matches!(b.next(at(now_ms)), Act::WaitUntil(_)), "the holder has not changed");
    b.on_observed(now_ms, Some(""));
    server.turn(&mut b, now_ms, 0);
    assert_eq!(&*server.holder(), "b");
    assert_eq!(server.lease.unwrap()["spec"]["leaseDurationSeconds"], json!(15));
    // A host that does not lead releases nothing.
    assert!(host("c").release(at(now_ms)).is_none());
}

#[test]
fn no_wall_clock_counts() {
    for renewed in ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let (mut server, _) = leader();
        server.lease.as_mut().unwrap()["spec"]["renewTime"] = json!(renewed);
        let mut b = host("b");
        server.turn(&mut b, 7, 0);
        server.turn(&mut b, 6 + LEASE_DURATION_MS, 0);
        assert_eq!(&*server.holder(), "a", "it was seen for less than its duration");
        server.turn(&mut b, 7 + LEASE_DURATION_MS, 0);
        assert_eq!(&*server.holder(), "b", "it was not seen to change for its whole duration");
    }
    // The host's own wall clock may jump: it only fills in the times for people.
    let (mut server, mut a) = leader();
    let mut jumped = at(START_MS + RETRY_MS);
    jumped.unix_ms -= 3_600_000;
    let act = a.next(jumped);
    a.on_written(jumped.mono_ms, jumped.mono_ms, 0, server.write(&act));
    assert_eq!(a.claim_until_ms(), Some(START_MS + RETRY_MS + LEASE_DURATION_MS));
}

#[test]
fn a_candidate_waits_for_the_duration_in_the_lease() {
    let (mut server, _) = leader();
    server.lease.as_mut().unwrap()["spec"]["leaseDurationSeconds"] = json!(60);
    let mut b = host("b");
    server.turn(&mut b, START_MS, 0);
    server.turn(&mut b, START_MS + 59_999, 0);
    assert_eq!(&*server.holder(), "a");
    server.turn(&mut b, START_MS + 60_000, 0);
    assert_eq!(&*server.holder(), "b");
}

#[test]
fn a_renewal_whose_response_is_lost_costs_a_read_and_not_the_claim() {
    let (mut server, mut a) = leader();
    let mut now_ms = START_MS + RETRY_MS;
    let renewal = a.next(at(now_ms));
    server.write(&renewal).unwrap();
    a.on_written(now_ms, now_ms, 0, Err(WriteFailure::Unknown));
    assert_eq!(a.claim_until_ms(), Some(START_MS + LEASE_DURATION_MS), "it may have happened or not");
    now_ms += RETRY_MS;
    server.turn(&mut a, now_ms, 0);
    assert_eq!(a.claim_until_ms(), Some(now_ms + LEASE_DURATION_MS));
    assert_eq!(server.lease.as_ref().unwrap()["spec"]["leaseTransitions"], json!(0));
}

#[test]
fn one_of_two_hosts_that_take_a_free_lease_at_once_gets_it() {
    let mut server = Server::default();
    let mut hosts = [host("a"), host("b")];
    for host in &mut hosts {
        assert_eq!(host.next(at(START_MS)), Act::Read);
        host.on_read(START_MS, 0, Ok(None));
    }
    for host in &mut hosts {
        let act = host.next(at(START_MS));
        host.on_written(START_MS, START_MS, 0, server.write(&act));
    }
    assert_eq!(hosts.each_ref().map(|host| host.claim_until_ms().is_some()), [true, false]);
    server.turn(&mut hosts[1], START_MS + REFUSED_MS, 0);
    assert_eq!(hosts[1].holder().map(|holder| &**holder), Some("a"));
}

#[test]
fn a_lease_that_is_taken_away_or_deleted_ends_the_claim_at_once() {
    for taken_by in [Some("somebody"), Some(""), None] {
        let (mut server, mut a) = leader();
        match taken_by {
            Some(holder) => server.lease.as_mut().unwrap()["spec"]["holderIdentity"] = json!(holder),
            None => server.lease = None,
        }
        a.on_observed(START_MS + 10, taken_by);
        assert_eq!(a.next(at(START_MS + 10)), Act::Read);
        server.version += 1;
        if let Some(lease) = &mut server.lease {
            lease["metadata"]["resourceVersion"] = json!(server.version.to_string());
        }
        a.on_read(START_MS + 11, 0, Ok(server.read()));
        assert_eq!(a.claim_until_ms(), None, "{taken_by:?}");
    }
}

/// The leader at the time of a backup, the current leader, and a server with the Lease of the backup.
fn restored() -> (Server, Election, Election, u64) {
    let (mut server, mut a) = leader();
    let backup = server.lease.clone();
    let mut b = host("b");
    server.turn(&mut b, START_MS, 0);
    let mut now_ms = START_MS + LEASE_DURATION_MS;
    server.turn(&mut b, now_ms, 0);
    // The old leader sees the new one.
    server.turn(&mut a, now_ms, 0);
    now_ms += RETRY_MS;
    server.turn(&mut b, now_ms, 0);
    server.turn(&mut a, now_ms, 0);
    assert_eq!((a.claim_until_ms(), b.claim_until_ms()), (None, Some(now_ms + LEASE_DURATION_MS)));
    server.lease = backup;
    (server, a, b, now_ms)
}

#[test]
fn x7_a_lease_of_a_restored_etcd_gives_nobody_the_lead_while_an_older_claim_may_last() {
    for is_gone in [false, true] {
        let (mut server, mut a, mut b, restored_ms) = restored();
        if is_gone {
            server.lease = None;
        }
        // The leader of the backup finds its own identity before the current leader renews.
        a.on_observed(restored_ms + 1, if is_gone { None } else { Some("a") });
        server.turn(&mut a, restored_ms + 1, 0);
        assert!(a.claim_until_ms().is_none() && may_write(&b, restored_ms + 1));
        // The current leader's renewal is refused; its next read ends its claim unless the Lease is gone.
        server.turn(&mut b, restored_ms + RETRY_MS, 0);
        server.turn(&mut b, restored_ms + RETRY_MS + REFUSED_MS, 0);
        assert_eq!(b.claim_until_ms().is_none(), !is_gone, "a leader creates a deleted Lease again");
        let until_ms = restored_ms + 1 + LEASE_DURATION_MS;
        server.turn(&mut a, until_ms - 1, 0);
        assert!(a.claim_until_ms().is_none());
        server.turn(&mut a, until_ms, 0);
        assert_eq!(a.claim_until_ms().is_some(), !is_gone);
        assert!(!(may_write(&a, until_ms) && may_write(&b, until_ms)));
    }
}

#[test]
fn a_leader_whose_own_older_lease_comes_back_keeps_leading() {
    let (mut server, mut a) = leader();
    let backup = server.lease.clone();
    server.turn(&mut a, START_MS + RETRY_MS, 0);
    server.lease = backup;
    server.version = 1;
    let now_ms = START_MS + 2 * RETRY_MS;
    server.turn(&mut a, now_ms, 0);
    server.turn(&mut a, now_ms + REFUSED_MS, 0);
    assert_eq!(a.claim_until_ms(), Some(now_ms + REFUSED_MS + LEASE_DURATION_MS));
}

#[test]
fn fields_of_others_stay_on_the_lease() {
    let (mut server, mut a) = leader();
    let lease = server.lease.as_mut().unwrap();
    lease["metadata"]["labels"] = json!({"team": "platform"});
    lease["metadata"]["resourceVersion"] = json!("77");
    server.version = 77;
    // Its write is refused, so it reads and then renews.
    server.turn(&mut a, START_MS + RETRY_MS, 0);
    server.turn(&mut a, START_MS + RETRY_MS + REFUSED_MS, 0);
    let lease = server.lease.as_ref().unwrap();
    assert_eq!(
        (&lease["metadata"]["labels"]["team"], &lease["spec"]["leaseTransitions"]),
        (&json!("platform"), &json!(0))
    );
    assert_eq!(a.claim_until_ms(), Some(START_MS + RETRY_MS + REFUSED_MS + LEASE_DURATION_MS));
}

#[test]
fn a_claim_allows_writes_that_end_before_it() {
    assert!(Claim::Everlasting.allows_writes(u64::MAX) && Claim::Everlasting.not_after_ms().is_none());
    assert!(!Claim::None.allows_writes(0) && !Claim::None.lasts(0));
    let claim = Claim::Until(25_000);
    assert!(claim.allows_writes(15_000) && !claim.allows_writes(15_001));
    assert!(claim.lasts(24_999) && !claim.lasts(25_000));
    // A claim that is shorter than a write, just after the machine has started.
    assert!(!Claim::Until(9_000).allows_writes(1));
}

#[test]
fn x7_a_write_waits_as_long_as_its_claim_is_renewed_and_no_longer_than_that_where_another_began() {
    let until = |renewed_ms| Claim::Until(renewed_ms + LEASE_DURATION_MS);
    let of_first = until(START_MS).not_after_ms().unwrap();
    let later = until(START_MS + 60_000);
    assert_eq!(later.renewed(START_MS, of_first), of_first + 60_000);
    assert_eq!(later.renewed(START_MS + 1, of_first), of_first, "another host may have led before");
    assert_eq!(Claim::None.renewed(START_MS, of_first), of_first);
    let (mut server, mut host) = leader();
    server.turn(&mut host, START_MS + RETRY_MS, 0);
    let since = (host.since_ms(), host.claim_until_ms());
    assert_eq!(since, (START_MS, Some(START_MS + RETRY_MS + LEASE_DURATION_MS)), "a renewal begins no other claim");
    let late_ms = START_MS + 60_000;
    server.turn(&mut host, late_ms, 0);
    assert_eq!((host.since_ms(), host.claim_until_ms()), (late_ms, Some(late_ms + LEASE_DURATION_MS)));
}
