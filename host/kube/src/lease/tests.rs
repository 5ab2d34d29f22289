//! Hosts in an election, with an API server that stores one Lease as the real one does and denies watches.

use std::sync::Mutex;

use mortise_core::lease::LEASE_DURATION_MS;
use serde_json::json;

use super::*;
use crate::testing::{Received, serve};

/// Only a failing test waits for it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The API server's state.
#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    /// Whether it responds with errors.
    is_failing: bool,
    requests: Vec<String>,
}

impl Server {
    fn respond(&mut self, request: &Received) -> (&'static str, String) {
        if request.path.contains("watch=true") || request.path == "/apis/coordination.k8s.io/v1" {
            return ("403 Forbidden", json!({"kind": "Status", "message": "no", "code": 403}).to_string());
        }
        self.requests.push(format!("{} {}", request.method, request.path));
        if self.is_failing {
            return ("500 Internal Server Error", String::new());
        }
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (&*request.method, &self.lease) {
            ("GET", Some(lease)) => return ("200 OK", lease.to_string()),
            ("GET" | "PUT", None) => return ("404 Not Found", json!({"kind": "Status", "code": 404}).to_string()),
            ("POST", Some(_)) => return ("409 Conflict", json!({"reason": "AlreadyExists", "code": 409}).to_string()),
            _ => {}
        }
        let mut lease: Value = serde_json::from_str(&request.body).unwrap();
        if self.lease.as_ref().is_some_and(|before| version(before) != version(&lease)) {
            return ("409 Conflict", json!({"reason": "Conflict", "code": 409}).to_string());
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        ("200 OK", lease.to_string())
    }
}

struct Cluster {
    server: Arc<Mutex<Server>>,
    api: ApiServer,
}

struct Host {
    leadership: watch::Receiver<Leadership>,
    release: mpsc::Sender<Release>,
}

impl Cluster {
    async fn new() -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let shared = Arc::clone(&server);
        Self { server, api: serve(move |request| shared.lock().unwrap().respond(request)).await }
    }

    fn host(&self, identity: &str) -> Host {
        let (sender, leadership) = watch::channel(Leadership::default());
        let (release, requests) = mpsc::channel(1);
        let candidate = Candidate { namespace: "ns".into(), name: "mortise".into(), identity: identity.into() };
        tokio::spawn(run(self.api.clone(), candidate, sender, requests));
        Host { leadership, release }
    }

    fn spec(&self) -> Value {
        self.server.lock().unwrap().lease.as_ref().map_or(Value::Null, |lease| lease["spec"].clone())
    }
}

impl Host {
    async fn until(&mut self, what: &str, holds: impl FnMut(&Leadership) -> bool) -> Leadership {
        let waited = tokio::time::timeout(DEADLINE, self.leadership.wait_for(holds)).await;
        *waited.unwrap_or_else(|_| panic!("waited in vain until {what}")).unwrap()
    }

    async fn leads(&mut self) -> Leadership {
        self.until("the host leads", |leadership| leadership.claim_until_ms.is_some()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lease_is_taken_and_renewed_and_the_claim_counts_from_before_the_request() {
    let cluster = Cluster::new().await;
    let before_ms = clock::now_ms();
    let mut host = cluster.host("a");
    let first = host.leads().await.claim_until_ms.unwrap();
    assert!((before_ms..=clock::now_ms()).contains(&(first - LEASE_DURATION_MS)));
    assert_eq!(cluster.spec()["holderIdentity"], "a");
    let acquired = cluster.spec()["acquireTime"].clone();
    let renewed = host.until("it is renewed", |leadership| leadership.claim_until_ms > Some(first)).await;
    assert!(renewed.claim_until_ms.unwrap() - first < 2 * 2_000 + 1_000, "it is renewed every two seconds");
    assert_eq!((&cluster.spec()["acquireTime"], &cluster.spec()["leaseTransitions"]), (&acquired, &json!(0)));
    let requests = cluster.server.lock().unwrap().requests.clone();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/mortise";
    assert_eq!(requests[0], format!("GET {lease}"));
    assert!(requests[1].starts_with("POST /apis/coordination.k8s.io/v1/namespaces/ns/leases?"), "{requests:?}");
    assert!(requests[2].starts_with(&format!("PUT {lease}?")), "a renewal is one request: {requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lease_is_taken_at_the_next_read_of_another_host() {
    let cluster = Cluster::new().await;
    let mut a = cluster.host("a");
    a.leads().await;
    let mut b = cluster.host("b");
    let (done, released) = oneshot::channel();
    a.release.send(done).await.unwrap();
    tokio::time::timeout(DEADLINE, released).await.expect("it is released").unwrap();
    assert_eq!(a.leadership.borrow().claim_until_ms, None, "the host that released it does not lead");
    let requests = |cluster: &Cluster| cluster.server.lock().unwrap().requests.clone();
    let before = requests(&cluster).len();
    b.leads().await;
    let all = requests(&cluster);
    let taken = all.iter().rposition(|request| request.starts_with("PUT")).expect("the Lease was taken");
    let reads = all[before..=taken].iter().filter(|request| request.starts_with("GET")).count();
    assert!(reads <= 2, "no host waits until a released Lease expires, some reads later: {reads}");
    assert_eq!((&cluster.spec()["holderIdentity"], &cluster.spec()["leaseTransitions"]), (&json!("b"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_is_taken_does_not_lead_and_a_standby_releases_nothing() {
    let cluster = Cluster::new().await;
    let mut host = cluster.host("a");
    host.leads().await;
    {
        let mut server = cluster.server.lock().unwrap();
        server.version += 1;
        let version = server.version.to_string();
        let lease = server.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = json!("somebody");
        lease["metadata"]["resourceVersion"] = json!(version);
    }
    host.until("it does not lead", |leadership| leadership.claim_until_ms.is_none()).await;
    let (done, released) = oneshot::channel();
    host.release.send(done).await.unwrap();
    tokio::time::timeout(DEADLINE, released).await.expect("the request is answered").unwrap();
    assert_eq!(cluster.spec()["holderIdentity"], "somebody");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_failure_of_the_api_server_does_not_change_the_leader() {
    let cluster = Cluster::new().await;
    let mut host = cluster.host("a");
    let first = host.leads().await.claim_until_ms;
    cluster.server.lock().unwrap().is_failing = true;
    let requests = || cluster.server.lock().unwrap().requests.len();
    let before = requests();
    tokio::time::timeout(DEADLINE, async {
        while requests() == before {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("a renewal fails");
    assert_eq!(host.leadership.borrow().claim_until_ms, first, "a renewal that failed renews nothing");
    cluster.server.lock().unwrap().is_failing = false;
    host.until("it is renewed", |leadership| leadership.claim_until_ms > first).await;
    assert_eq!(cluster.spec()["leaseTransitions"], 0);
}

#[test]
fn each_start_of_a_host_has_its_own_identity() {
    let (one, other) = (identity("mortise-0").unwrap(), identity("mortise-0").unwrap());
    assert_ne!(one, other);
    let (machine, uuid) = one.rsplit_once('_').unwrap();
    assert_eq!(machine, "mortise-0");
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
    assert_eq!((&uuid[14..15], "89ab".contains(&uuid[19..20])), ("4", true), "{uuid}");
}
