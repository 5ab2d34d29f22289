//! The pools' sizes. Pools reserve address space, not memory; these constants bound what stays resident.

use std::fs;

use mortise_core::limits::MAX_MEMORY_BYTES;
use wasmtime::{Enabled, PoolingAllocationConfig};

use crate::limiter::{MAX_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES, MAX_TABLES_PER_MODULE};

/// Memory slots; each running call needs one. A slot reserves 4 GiB of the 128 TiB of address space, so that guests run
/// without bounds checks.
const MEMORY_SLOTS: u32 = 512;
/// Slots that stay warm for the plugin that used them last. A call without one takes the least recently used, which
/// costs some microseconds; each keeps resident what its last call wrote, 24 KiB for podset.
const WARM_SLOTS: u32 = 64;
/// Core instances and tables: a component has a few of each per memory (its shims have no memory).
const INSTANCES_PER_MEMORY: u32 = 8;
/// Memory of a slot that is reset by copying dirty pages instead of unmapping.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// The same when the kernel cannot find dirty pages: every reset writes all of it.
const KEEP_RESIDENT_UNSCANNED_BYTES: usize = 512 << 10;
/// Warm slots in that case: each keeps that much resident.
const WARM_SLOTS_UNSCANNED: u32 = 32;
/// Table space that is reset by writing instead of unmapping.
const KEEP_RESIDENT_TABLE_BYTES: usize = 64 << 10;
/// The first Linux that can scan page tables for dirty pages.
const PAGEMAP_SCAN_LINUX: (u32, u32) = (6, 7);

/// Pools for a host of many plugins on this machine.
pub(super) fn config() -> PoolingAllocationConfig {
    let mut config = bounds();
    config
        .total_memories(MEMORY_SLOTS)
        .total_tables(MEMORY_SLOTS * INSTANCES_PER_MEMORY)
        .total_core_instances(MEMORY_SLOTS * INSTANCES_PER_MEMORY)
        .total_component_instances(MEMORY_SLOTS);
    config
}

/// Pools with room for one instance of the largest component.
pub(super) fn config_for_one() -> PoolingAllocationConfig {
    let count = |most: usize| u32::try_from(most).expect("the bounds of a component are small");
    let mut config = bounds();
    config
        .total_memories(count(MAX_MEMORIES))
        .total_tables(count(MAX_TABLES))
        .total_core_instances(count(MAX_INSTANCES))
        .total_component_instances(1);
    config
}

/// What holds for any number of instances: the bounds of one, and how slots are reset. The scan refuses components over
/// `max_memory_size`, `table_elements` and `max_tables_per_module` with a message.
fn bounds() -> PoolingAllocationConfig {
    let scan = can_scan_pages();
    let mut config = PoolingAllocationConfig::new();
    config
        .total_stacks(0)
        .max_tables_per_module(MAX_TABLES_PER_MODULE)
        .max_memory_size(usize::try_from(MAX_MEMORY_BYTES).expect("the bound fits in an address"))
        .table_elements(MAX_TABLE_ELEMENTS)
        .table_keep_resident(KEEP_RESIDENT_TABLE_BYTES)
        .linear_memory_keep_resident(if scan { KEEP_RESIDENT_BYTES } else { KEEP_RESIDENT_UNSCANNED_BYTES })
        .max_unused_warm_slots(if scan { WARM_SLOTS } else { WARM_SLOTS_UNSCANNED })
        .pagemap_scan(if scan { Enabled::Yes } else { Enabled::No });
    config
}

/// Whether slots may be reset by their dirty pages. Not with swap: the scan misses a dirty page that was swapped out,
/// and the next instance in the slot would read what the last one left (bytecodealliance/wasmtime#14357).
fn can_scan_pages() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps");
    linux_version(&release) >= Some(PAGEMAP_SCAN_LINUX) && swaps.is_ok_and(|swaps| swaps.lines().count() <= 1)
}

/// Major and minor of "6.18.44-generic".
fn linux_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::linux_version;

    #[test]
    fn kernel_versions_compare_as_numbers() {
        assert_eq!(linux_version("6.18.44-generic\n"), Some((6, 18)));
        assert!(linux_version("6.7.0-rc1") >= Some(super::PAGEMAP_SCAN_LINUX));
        assert!(linux_version("5.15.0") < Some(super::PAGEMAP_SCAN_LINUX));
        assert!(linux_version("") < Some(super::PAGEMAP_SCAN_LINUX));
    }
}
