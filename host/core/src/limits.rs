//! Every bound of the host in one table, each with its reason. Nothing here decides; the modules that use a bound say
//! what happens at it.

/// What one guest call may use. A manifest may ask for less or more, up to the `MAX` values below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// Linear memory. 64 MiB: a first touch of all of it takes some 54 ms, which epochs cannot interrupt.
    pub memory_bytes: u64,
    /// Wall time. One second is a thousand times what a reconcile needs, and short enough not to starve the others.
    pub deadline_ms: u64,
    /// Deterministic fuel; None meters nothing. Costs 30 to 40 per cent of speed, so only tests and benchmarks set it.
    pub fuel: Option<u64>,
    /// Bytes of the outcome as the guest returns it. Four MiB is eight of the largest children.
    pub output_bytes: u64,
    /// Bytes of log and of stderr, each. More is cut, and the cut is counted.
    pub log_bytes: u64,
    /// Log lines of one call.
    pub log_lines: u32,
    /// Calls from the guest into the host; a read of 10,000 objects one by one is a plugin that wants `list`.
    pub host_calls: u32,
    /// Bytes of all questions that the call asks, names, selectors and field paths together. 4 MiB is 400 for each of the
    /// most calls into the host, and a `get` has some 60.
    pub question_bytes: u64,
    /// Bytes that one read may return.
    pub read_bytes: u64,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            deadline_ms: 1_000,
            fuel: None,
            output_bytes: 4 << 20,
            log_bytes: 64 << 10,
            log_lines: 100,
            host_calls: 10_000,
            question_bytes: 4 << 20,
            read_bytes: 16 << 20,
        }
    }
}

/// The most memory a manifest may ask for: 256 MiB fills in 157 ms, and every worker may hold that much at once.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;
/// The longest deadline a manifest may ask for; a guest of ten seconds would hold its worker thread as long.
pub const MAX_DEADLINE_MS: u64 = 10_000;

/// Children that one object may have. More is a controller that wants another design, or a typing error in a spec.
pub const MAX_CHILDREN: usize = 500;
/// Deletes of one plan; the rest follow in the next plans. Bounds what one bad outcome can take down at once.
pub const MAX_DELETES_PER_PLAN: usize = 100;
/// Writes to objects that are no children, of one outcome: the Pods of the fullest nodes that there are, and a few more.
pub const MAX_ACTIONS: usize = 500;
/// Bytes of one child: etcd's request limit is 1.5 MiB, and server-side apply adds managedFields to the object.
pub const MAX_CHILD_BYTES: usize = 512 << 10;
/// Bytes of a status.
pub const MAX_STATUS_BYTES: usize = 256 << 10;
/// Events of one outcome. client-go's recorder lets a burst of 25 through per object; a reconcile needs far fewer.
pub const MAX_EVENTS: usize = 16;
/// Conditions of one outcome.
pub const MAX_CONDITIONS: usize = 32;

/// A guest's requeue is never sooner: below that it would be a busy loop.
pub const MIN_REQUEUE_MS: u64 = 1_000;
/// A guest's requeue is never later: a day without a look is the resync's business.
pub const MAX_REQUEUE_MS: u64 = 24 * 3_600 * 1_000;

/// Longest a write may take, from the moment it is sent to its answer. The API server's own objective is one second for 99
/// of 100. A host that may lose the right to write sends none that could end after it has (X7).
pub const WRITE_TIMEOUT_MS: u64 = 10_000;

/// Longest a key waits to see its own writes before the host reads live (R2).
pub const CONSISTENCY_TIMEOUT_MS: u64 = 30_000;
/// Longest a status waits for the writes of its own plan to show (X11). The kubelet looks at its containers once a second (its
/// PLEG), so a Pod that ends at once is gone within two, and its replacement needs no status between.
pub const STATUS_DEFER_MS: u64 = 2_000;

/// Largest component that a source delivers, after decompression: Python's are 18 MB, so twice that.
pub const MAX_COMPONENT_BYTES: usize = 40 << 20;
/// What the API server lets a ConfigMap hold.
pub const CONFIG_MAP_BYTES: usize = 1 << 20;
/// Controllers of one plugin. The largest operators that are known have some thirty; each costs the host a queue and metrics.
pub const MAX_CONTROLLERS: usize = 64;
/// CustomResourceDefinitions of one plugin. The host registers them at once, and each costs the API server CPU and memory.
pub const MAX_CUSTOM_RESOURCES: usize = 64;
/// Kinds that one plugin reads or owns: each is a watch, and a cache of all of its objects.
pub const MAX_KINDS: usize = 128;
/// Kinds that one plugin admits: each is a webhook that the API server calls at every write.
pub const MAX_ADMISSION: usize = 64;
/// Largest manifest.
pub const MAX_MANIFEST_BYTES: usize = 1 << 20;
