//! The bounds that several modules share, each with its reason. The modules that use a bound say what happens at it.

/// The bounds of one guest call. A manifest may set lower or higher ones, up to the `MAX` values below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// Linear memory. 64 MiB: the first touch of all of it takes some 54 ms, which epochs cannot interrupt.
    pub memory_bytes: u64,
    /// Processor time. One second is a thousand times what a reconcile needs, and short enough not to starve the others.
    pub deadline_ms: u64,
    /// Deterministic fuel; None: not metered. Costs 30 to 40 per cent of speed, so only tests and benchmarks set it.
    pub fuel: Option<u64>,
    /// Bytes of the outcome as the guest returns it. 4 MiB is eight of the largest children.
    pub output_bytes: u64,
    /// Bytes of log and of stderr, each. The rest is dropped and counted.
    pub log_bytes: u64,
    /// Log lines of one call.
    pub log_lines: u32,
    /// Calls from the guest into the host; a plugin that reads 10,000 objects one by one should use `list`.
    pub host_calls: u32,
    /// Bytes of the parameters of all reads: names, selectors and field paths. 4 MiB is 400 for each of the most calls
    /// into the host, and a `get` has some 60.
    pub query_bytes: u64,
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
            query_bytes: 4 << 20,
            read_bytes: 16 << 20,
        }
    }
}

/// Largest memory in a manifest: 256 MiB fills in 157 ms, and every worker may hold that much at once.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;
/// Longest deadline in a manifest: the guest occupies its worker thread for that long.
pub const MAX_DEADLINE_MS: u64 = 10_000;

/// Children of one object: one for each node of the largest clusters that Kubernetes supports. More is a controller that
/// needs another design, or a typing error in a spec.
pub const MAX_CHILDREN: usize = 5_000;
/// Deletes of one plan; the rest follow in the next plans. Bounds the damage of one bad outcome.
pub const MAX_DELETES_PER_PLAN: usize = 100;
/// Actions of one outcome: an eviction of each Pod of the fullest nodes, and a few more.
pub const MAX_ACTIONS: usize = 500;
/// Bytes of one child: etcd's request limit is 1.5 MiB, and server-side apply adds managedFields to the object.
pub const MAX_CHILD_BYTES: usize = 512 << 10;
/// Bytes of a status.
pub const MAX_STATUS_BYTES: usize = 256 << 10;
/// Events of one outcome. client-go's recorder lets a burst of 25 through per object; a reconcile needs far fewer.
pub const MAX_EVENTS: usize = 16;
/// Conditions of one outcome.
pub const MAX_CONDITIONS: usize = 32;

/// Shortest requeue of a guest; a shorter one would be a busy loop.
pub const MIN_REQUEUE_MS: u64 = 1_000;
/// Longest requeue of a guest.
pub const MAX_REQUEUE_MS: u64 = 24 * 3_600 * 1_000;

/// Longest time of a write, from request to response. The API server's objective is one second for 99 of 100. A host
/// with a claim sends no write that may end after the claim (X7).
pub const WRITE_TIMEOUT_MS: u64 = 10_000;

/// Longest wait of a key for its expectations before the host reads live (R2).
pub const CONSISTENCY_TIMEOUT_MS: u64 = 30_000;
/// Longest wait of a status until the cache shows the writes of its own plan (X11). The kubelet looks at its containers once
/// a second (its PLEG), so a Pod that ends at once is gone within two, and its replacement needs no status between.
pub const STATUS_DEFER_MS: u64 = 2_000;

/// Largest component after decompression: twice the size of Python's, which have 18 MB.
pub const MAX_COMPONENT_BYTES: usize = 40 << 20;
/// The API server's bound of a ConfigMap.
pub const CONFIG_MAP_BYTES: usize = 1 << 20;
/// Bytes of a fault's or a denial's one line, which becomes part of a condition's message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// Longest message of a response that is kept: a proxy may respond with a page of HTML.
pub const MAX_MESSAGE_CHARS: usize = 1_024;
/// Plugins of which a pool remembers how long their calls or requests took while they have none, four times the plugins that
/// a host is built for. Beyond it all of them are forgotten.
pub const REMEMBERED_PLUGINS: usize = 4_096;
/// Controllers of one plugin. The largest known operators have some thirty; each costs the host a queue and metrics.
pub const MAX_CONTROLLERS: usize = 64;
/// CRDs of one plugin. The host registers them at once, and each costs the API server CPU and memory.
pub const MAX_CUSTOM_RESOURCES: usize = 64;
/// Kinds that one plugin reads or owns: each is a watch and a cache of all its objects.
pub const MAX_KINDS: usize = 128;
/// Namespaces of the kinds that one plugin reads or owns in some alone, each of which is a watch: eight kinds in the most
/// namespaces.
pub const MAX_WATCHES: usize = 128;
/// Kinds that one plugin admits: each is a webhook that the API server calls for every write.
pub const MAX_ADMISSION: usize = 64;
/// Largest manifest.
pub const MAX_MANIFEST_BYTES: usize = 1 << 20;
