//! Two hosts on one cluster, of which one leads: what the other does when the leader is killed, is told to end, or is stopped
//! where it stands and goes on later (X7). The audit log tells their writes apart by their users.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use mortise_control_plane::AuditRecord;
use serde_json::Value;
use tempfile::TempDir;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::rights::grant;
use super::world::{CONTENDERS, HOST_NAMESPACE, Host, World, built, count_from_env};

/// How long a leader is stopped. Longer than its Lease holds; `MORTISE_E2E_PAUSE_S` raises it.
const PAUSE_S: usize = 20;
/// PodSets of each test.
const SETS: usize = 10;
/// From the death of a leader to the first write of another: the Lease's fifteen seconds, two of the last look at it, and a
/// machine that is busy.
const AFTER_KILL: Duration = Duration::from_secs(20);
/// From SIGTERM to the first write of another, and as much again for a machine that is busy.
const AFTER_TERM: Duration = Duration::from_secs(2 + 2);

/// A host that takes part in the election.
struct Contender {
    user: &'static str,
    host: Host,
    _cache: TempDir,
}

impl Contender {
    fn start(world: &World, user: &'static str) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let kubeconfig = world.plane.kubeconfig(user).unwrap();
        let host = world.spawn_host(user, &kubeconfig, cache.path(), &["--leader-elect"]);
        Self { user, host, _cache: cache }
    }

    fn leads(&self) -> bool {
        self.host.metric("leader_election_master_status", "mortise") == 1.0
    }

    /// Whether it is ready, and says that it stands by with the plugin compiled and its kinds listed.
    fn stands_by(&self) -> bool {
        let (code, text) = self.host.probe("/readyz?verbose");
        code == 200 && text.contains("[+]leader-election/standby ok") && text.contains("[+]plugin/podset ok")
    }

    fn says(&self, words: &str) -> bool {
        std::fs::read_to_string(self.host.process.log()).unwrap().contains(words)
    }
}

/// A host that leads and has made one Pod for each set, and one that stands by and has written nothing. Both have the rights
/// that `mortise rbac` prints, and no others.
fn contest(name: &str) -> (World, Witness, Contender, Contender) {
    let mut world = World::new(name);
    let component = built("plugins/podset.wasm");
    grant(&world, &["--host"]);
    grant(&world, &[component.to_str().unwrap()]);
    let users = CONTENDERS.map(|user| format!("--user={user}"));
    let bind = |what: &[&str]| {
        world.kubectl(&["delete", what[0], what[1], "-n", HOST_NAMESPACE, "--ignore-not-found"]);
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        world.kubectl(&[&["create"], what, &["-n", HOST_NAMESPACE], &users].concat());
    };
    bind(&["clusterrolebinding", "e2e-contenders", "--clusterrole=mortise-host"]);
    bind(&["clusterrolebinding", "e2e-contenders-podset", "--clusterrole=mortise-plugin-podset"]);
    bind(&["rolebinding", "e2e-contenders", "--role=mortise"]);
    world.offer("podset", &component);
    let leader = Contender::start(&world, CONTENDERS[0]);
    world.wait_ready("podset");
    let standby = Contender::start(&world, CONTENDERS[1]);
    world.until("the second host stands by", || standby.stands_by().then_some(()));
    let witness = Witness::watch(&world);
    create_sets(&world, SETS, 1);
    wait_converged(&world, &witness, SETS, 1);
    assert!(leader.leads() && !standby.leads());
    assert!(leader.says("this host leads") && standby.says("this host is on standby: another leads"));
    let written = world.writes_by(standby.user);
    assert!(written.is_empty(), "a host that stands by has written: {written:#?}");
    (world, witness, leader, standby)
}

fn received(record: &AuditRecord) -> Timestamp {
    serde_json::from_value::<MicroTime>(Value::from(&*record.received)).unwrap().0
}

/// How long after a moment a host has written for the first time.
fn first_write(world: &World, contender: &Contender, since: Timestamp) -> Duration {
    let writes = world.writes_by(contender.user);
    let first = writes.iter().map(received).min().expect("it has written");
    Duration::try_from(first.duration_since(since)).expect("it has not written before")
}

fn scale_all(world: &World, replicas: i64) {
    for index in 0..SETS {
        scale(world, index, replicas);
    }
}

fn transitions(world: &World) -> i64 {
    let lease = world.block_on(world.api("coordination.k8s.io/v1", "Lease", Some(HOST_NAMESPACE)).get("mortise"));
    lease.unwrap().data["spec"]["leaseTransitions"].as_i64().unwrap()
}

#[test]
fn x7_when_the_leader_is_killed_the_other_goes_on_within_twenty_seconds() {
    let (world, witness, mut leader, standby) = contest("failover-kill");
    let killed = Timestamp::now();
    leader.host.process.kill().unwrap();
    scale_all(&world, 2);
    wait_converged(&world, &witness, SETS, 2);
    let after = first_write(&world, &standby, killed);
    println!("failover: the first write came {after:?} after the leader was killed");
    assert!(after <= AFTER_KILL, "{after:?}");
    assert!(standby.leads() && standby.says("this host leads"));
    assert_eq!(transitions(&world), 1);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

#[test]
fn x7_a_leader_that_is_told_to_end_gives_its_lease_back_and_the_other_goes_on_at_once() {
    let (world, witness, mut leader, standby) = contest("failover-term");
    let told = Timestamp::now();
    leader.host.process.terminate().unwrap();
    scale_all(&world, 2);
    wait_converged(&world, &witness, SETS, 2);
    let after = first_write(&world, &standby, told);
    println!("failover: the first write came {after:?} after the leader was told to end");
    assert!(after <= AFTER_TERM, "{after:?}");
    let status = world.until("the old leader has ended", || leader.host.process.ended().unwrap());
    assert!(status.success() && leader.says("released the Lease"), "{status}: {}", leader.host.process.tail());
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

#[test]
fn x7_a_leader_that_was_stopped_and_goes_on_writes_nothing_while_another_leads() {
    let (world, witness, mut leader, standby) = contest("failover-pause");
    let pause = Duration::from_secs(count_from_env("MORTISE_E2E_PAUSE_S", PAUSE_S) as u64);
    let before = world.writes_by(leader.user).len();
    scale_all(&world, 8);
    world.until("the leader is in the middle of its work", || {
        (world.writes_by(leader.user).len() > before + SETS).then_some(())
    });
    let began = Instant::now();
    leader.host.process.pause().unwrap();
    wait_converged(&world, &witness, SETS, 8);
    let took_over = world.writes_by(standby.user).iter().map(received).min().expect("the other has gone on");
    std::thread::sleep(pause.saturating_sub(began.elapsed()));

    // There is something to do in what the old leader sees, and in what it has not seen.
    scale_all(&world, 3);
    leader.host.process.resume().unwrap();
    scale_all(&world, 5);
    world.until("the old leader knows that it does not lead", || {
        (leader.says("this host no longer leads") && leader.stands_by()).then_some(())
    });
    wait_converged(&world, &witness, SETS, 5);
    let late: Vec<_> = world.writes_by(leader.user).into_iter().filter(|write| received(write) >= took_over).collect();
    // What was on its way into a socket when the process was stopped may still come out, and is given up at once: nobody is
    // there any more when the API server has read it.
    let (effective, given_up): (Vec<_>, Vec<_>) = late.into_iter().partition(|write| write.code < 300);
    println!(
        "failover: a leader stopped for {pause:?} had {} effective writes afterwards, and {} that came to nothing",
        effective.len(),
        given_up.len()
    );
    assert!(effective.is_empty(), "{effective:#?}");
    assert!(given_up.len() <= 1, "{given_up:#?}");
    assert!(standby.leads() && !leader.leads());
    assert_eq!(transitions(&world), 1);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());

    // And it is as good a standby as any.
    let ended = Timestamp::now();
    let mut standby = standby;
    standby.host.process.kill().unwrap();
    scale_all(&world, 1);
    wait_converged(&world, &witness, SETS, 1);
    let again = world.writes_by(leader.user).iter().map(received).filter(|at| *at > ended).min();
    assert!(again.is_some(), "the host that led first has not gone on");
}
