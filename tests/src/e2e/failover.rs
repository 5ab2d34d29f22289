//! Two hosts on one cluster, of which one leads: failover when the leader is killed, shuts down, or is paused and
//! continued (X7). The audit log has their writes by user.

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

/// How long a leader is paused, longer than its Lease lasts; `MORTISE_E2E_PAUSE_S` raises it.
const PAUSE_S: usize = 20;
const SETS: usize = 10;
/// From the death of a leader to the first write of another: the Lease's fifteen seconds, two until the next read, and
/// a busy machine.
const AFTER_KILL: Duration = Duration::from_secs(20);
/// From SIGTERM to the first write of another, and as much again for a busy machine.
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

    /// Whether it is ready as a standby, with the plugin compiled and its kinds listed.
    fn is_standby(&self) -> bool {
        let (code, text) = self.host.probe("/readyz?verbose");
        code == 200 && text.contains("[+]leader-election/standby ok") && text.contains("[+]plugin/podset ok")
    }

    fn has_logged(&self, text: &str) -> bool {
        std::fs::read_to_string(self.host.process.log()).unwrap().contains(text)
    }
}

/// A host that leads and has created one Pod for each set, and a standby that has written nothing. Both have exactly
/// the rights that `mortise rbac` prints.
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
    world.until("the second host is a standby", || standby.is_standby().then_some(()));
    let witness = Witness::watch(&world);
    create_sets(&world, SETS, 1);
    wait_converged(&world, &witness, SETS, 1);
    assert!(leader.leads() && !standby.leads());
    assert!(leader.has_logged("this host leads") && standby.has_logged("this host is on standby: another leads"));
    let written = world.writes_by(standby.user);
    assert!(written.is_empty(), "a standby has written: {written:#?}");
    (world, witness, leader, standby)
}

fn received(record: &AuditRecord) -> Timestamp {
    serde_json::from_value::<MicroTime>(Value::from(&*record.received)).unwrap().0
}

/// The time from an instant to a host's first write.
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
fn x7_when_the_leader_is_killed_the_other_leads_within_twenty_seconds() {
    let (world, witness, mut leader, standby) = contest("failover-kill");
    let killed = Timestamp::now();
    leader.host.process.kill().unwrap();
    scale_all(&world, 2);
    wait_converged(&world, &witness, SETS, 2);
    let after = first_write(&world, &standby, killed);
    println!("failover: the first write came {after:?} after the leader was killed");
    assert!(after <= AFTER_KILL, "{after:?}");
    assert!(standby.leads() && standby.has_logged("this host leads"));
    assert_eq!(transitions(&world), 1);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

#[test]
fn x7_a_leader_that_shuts_down_releases_its_lease_and_the_other_leads_at_once() {
    let (world, witness, mut leader, standby) = contest("failover-term");
    let terminated = Timestamp::now();
    leader.host.process.terminate().unwrap();
    scale_all(&world, 2);
    wait_converged(&world, &witness, SETS, 2);
    let after = first_write(&world, &standby, terminated);
    println!("failover: the first write came {after:?} after the leader's SIGTERM");
    assert!(after <= AFTER_TERM, "{after:?}");
    let status = world.until("the old leader has ended", || leader.host.process.ended().unwrap());
    assert!(status.success() && leader.has_logged("released the Lease"), "{status}: {}", leader.host.process.tail());
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

#[test]
fn x7_a_paused_leader_that_continues_writes_nothing_while_another_leads() {
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
    let took_over = world.writes_by(standby.user).iter().map(received).min().expect("the other has written");
    std::thread::sleep(pause.saturating_sub(began.elapsed()));

    // Work in what the old leader has seen, and in what it has not.
    scale_all(&world, 3);
    leader.host.process.resume().unwrap();
    scale_all(&world, 5);
    world.until("the old leader knows that it does not lead", || {
        (leader.has_logged("this host no longer leads") && leader.is_standby()).then_some(())
    });
    wait_converged(&world, &witness, SETS, 5);
    let late: Vec<_> = world.writes_by(leader.user).into_iter().filter(|write| received(write) >= took_over).collect();
    // A request in the socket when the process was paused may still be sent; the API server cancels it, since the
    // client has closed the connection.
    let (effective, given_up): (Vec<_>, Vec<_>) = late.into_iter().partition(|write| write.code < 300);
    println!(
        "failover: a leader paused for {pause:?} had {} effective writes afterwards, and {} that came to nothing",
        effective.len(),
        given_up.len()
    );
    assert!(effective.is_empty(), "{effective:#?}");
    assert!(given_up.len() <= 1, "{given_up:#?}");
    assert!(standby.leads() && !leader.leads());
    assert_eq!(transitions(&world), 1);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());

    // It is a standby now, and takes over.
    let ended = Timestamp::now();
    let mut standby = standby;
    standby.host.process.kill().unwrap();
    scale_all(&world, 1);
    wait_converged(&world, &witness, SETS, 1);
    let again = world.writes_by(leader.user).iter().map(received).filter(|at| *at > ended).min();
    assert!(again.is_some(), "the first leader has not taken over");
}
