//! Which test runs on which control plane: each has one for itself, and as many run at a time as there are
//! (`MORTISE_E2E_PLANES`). It must not know what tests do with it.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mortise_control_plane::{Binaries, ControlPlane, Options, print_progress};

use super::clean::HOST_NAMESPACE;

/// A user with the rights that a test grants.
pub const RESTRICTED: &str = "mortise-restricted";
/// Users of hosts that run concurrently, by which the audit log identifies their requests; with the rights that a test
/// grants.
pub const CONTENDERS: [&str; 2] = ["mortise-a", "mortise-b"];
/// The most control planes: beyond it the kubectl of the tests is what takes the time.
const MOST: usize = 4;

/// A control plane for one test. It is free for the next one when this is dropped; also a test that fails has cleaned up.
pub struct Lane {
    pub plane: &'static ControlPlane,
    _number: Number,
    _company: Company,
}

/// The number of a control plane that is in use.
struct Number {
    number: usize,
    lanes: &'static Lanes,
}

/// Whether other tests may run meanwhile.
enum Company {
    Others { _guard: RwLockReadGuard<'static, ()> },
    Nobody { _guard: RwLockWriteGuard<'static, ()> },
}

struct Lanes {
    planes: Vec<OnceLock<ControlPlane>>,
    free: Mutex<Vec<usize>>,
    released: Condvar,
}

static COMPANY: RwLock<()> = RwLock::new(());
static LANES: OnceLock<Lanes> = OnceLock::new();

/// A count that an environment variable can raise, for longer runs.
pub fn count_from_env(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

impl Lane {
    /// Waits for a control plane.
    pub fn take() -> Self {
        let guard = COMPANY.read().unwrap_or_else(PoisonError::into_inner);
        Self::with(Company::Others { _guard: guard })
    }

    /// Waits until no other test runs, and keeps others waiting.
    pub fn take_alone() -> Self {
        let guard = COMPANY.write().unwrap_or_else(PoisonError::into_inner);
        Self::with(Company::Nobody { _guard: guard })
    }

    fn with(company: Company) -> Self {
        let lanes = LANES.get_or_init(Lanes::new);
        let free = lanes.released.wait_while(lanes.free(), |free| free.is_empty());
        let number = free.unwrap_or_else(PoisonError::into_inner).pop().expect("the wait ended with a free one");
        // Given back if the start fails: the next test tries again.
        let number = Number { number, lanes };
        Self { plane: lanes.planes[number.number].get_or_init(start), _number: number, _company: company }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.lanes.free().push(self.number);
        self.lanes.released.notify_one();
    }
}

impl Lanes {
    fn new() -> Self {
        let on_local = std::env::var("MORTISE_E2E_ON").is_ok_and(|on| on == "local");
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // One of Kubernetes keeps two cores busy, and a local one half of a core: most tests mostly wait. The number of
        // threads is a bound too.
        let count = if on_local { 2 * cores } else { cores / 2 };
        let count = count_from_env("MORTISE_E2E_PLANES", count.min(MOST)).max(1);
        let planes = (0..count).map(|_| OnceLock::new()).collect();
        // The last one is taken first, so that few are started when few are used.
        Self { planes, free: Mutex::new((0..count).rev().collect()), released: Condvar::new() }
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start() -> ControlPlane {
    let binaries = Binaries::ensure(&mut print_progress()).unwrap();
    let users = [&[RESTRICTED], &CONTENDERS[..]].concat().into_iter().map(str::to_owned).collect();
    let plane = ControlPlane::start(&binaries, &Options { users, audit_reads: true, ..Options::default() }).unwrap();
    plane.kubectl_output(&["create", "namespace", HOST_NAMESPACE]).unwrap();
    plane
}
