//! The memory that the container leaves: beyond it the kernel kills, since Kubernetes 1.28, all processes of the
//! container. Files of the cgroup (version 2) come in, bytes come out. Nothing here knows what the memory is for.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    /// The file that names this process's group.
    membership: PathBuf,
    /// The mount of the groups.
    root: PathBuf,
}

impl Default for Cgroup {
    fn default() -> Self {
        Self { membership: "/proc/self/cgroup".into(), root: "/sys/fs/cgroup".into() }
    }
}

impl Cgroup {
    /// Bytes that this process and its children may still take together; None when unbounded. In a container the
    /// group's name may be the machine's, which is not mounted there: then the root of the mount, which is read last,
    /// is the container's own group.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let membership = fs::read_to_string(&self.membership).ok()?;
        let group = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Path::new(group).ancestors().filter_map(|group| free_in(&self.root.join(group))).min()
    }
}

/// Bytes that the container leaves to this process and its children; None when unbounded.
pub fn free_bytes() -> Option<u64> {
    Cgroup::default().free_bytes()
}

/// What one group leaves of its limit. Inactive file pages count as free: the kernel reclaims them first.
fn free_in(group: &Path) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // "max" is unbounded.
    let limit = number("memory.max")?;
    let used = number("memory.current")?;
    let facts = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let unused_files = facts.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(unused_files.unwrap_or(0))))
}

#[cfg(test)]
pub(super) mod tests {
    use tempfile::TempDir;

    use super::*;

    impl Cgroup {
        /// Unbounded, on any machine.
        pub(in crate::compile) fn nowhere() -> Self {
            Self { membership: "/no/such/file".into(), root: "/no/such/folder".into() }
        }
    }

    /// A mount of groups with these limits and uses; this process is in `own`.
    pub(in crate::compile) fn cgroup(own: &str, groups: &[(&str, &str, u64)]) -> (Cgroup, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let cgroup = Cgroup { membership: folder.path().join("cgroup"), root: folder.path().join("fs") };
        fs::create_dir(&cgroup.root).unwrap();
        fs::write(&cgroup.membership, format!("1:name=systemd:/other\n0::{own}\n")).unwrap();
        for (group, limit, used) in groups {
            let group = cgroup.root.join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), format!("{limit}\n")).unwrap();
            fs::write(group.join("memory.current"), format!("{used}\n")).unwrap();
        }
        (cgroup, folder)
    }

    #[track_caller]
    fn check(own: &str, groups: &[(&str, &str, u64)], expected: Option<u64>) {
        let (cgroup, _folder) = cgroup(own, groups);
        assert_eq!(cgroup.free_bytes(), expected, "{own} in {groups:?}");
    }

    #[test]
    fn the_tightest_group_on_the_way_up_decides() {
        check("/pod/own", &[("pod/own", "1000", 300), ("pod", "2000", 1500), ("other", "10", 10)], Some(500));
        check("/pod/own", &[("pod/own", "max", 300), ("pod", "2000", 1500)], Some(500));
        check("/own", &[("own", "100", 300)], Some(0));
    }

    #[test]
    fn in_a_container_the_root_of_the_mount_is_its_own_group() {
        check("/", &[("", "1000", 400)], Some(600));
        check("/kubepods/pod1/main", &[("", "1000", 400)], Some(600));
    }

    #[test]
    fn without_a_limit_there_is_no_bound() {
        check("/own", &[("own", "max", 300)], None);
        check("/own", &[], None);
        assert_eq!(Cgroup::nowhere().free_bytes(), None);
    }

    #[test]
    fn inactive_file_pages_are_free() {
        let (cgroup, folder) = cgroup("/", &[("", "1000", 900)]);
        fs::write(folder.path().join("fs/memory.stat"), "anon 300\ninactive_file 500\nactive_file 100\n").unwrap();
        assert_eq!(cgroup.free_bytes(), Some(600));
    }
}
